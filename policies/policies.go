// Package policies holds bundles to read, to run and to begin from. [Starter] is
// the directory policies/starter, embedded, so that a program can serve it
// without a checkout: pdp.New(pdp.FS(policies.Starter()), …). [Named] is any of
// the directories beside this file: the starter bundle, the one for a gateway in
// front of MCP servers (mcp), the one for an application that serves many customers
// (saas), the smallest that is of use (minimal), and four small ones, one for each way
// of working with tools that people ask for.
//
// The package holds files and no code: what they mean is for package pdp to say.
package policies

import (
	"embed"
	"fmt"
	"io/fs"
)

//go:embed always-allow always-prompt delegated mcp minimal saas selective starter
var files embed.FS

// Starter returns the starter bundle.
func Starter() fs.FS {
	starter, err := Named("starter")
	if err != nil {
		panic(err) // it is embedded above
	}
	return starter
}

// Named returns the bundle in the directory of that name.
func Named(name string) (fs.FS, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Name() == name {
			return fs.Sub(files, name)
		}
	}
	return nil, fmt.Errorf("there is no bundle %q in package policies; try one of its directories, such as starter", name)
}
