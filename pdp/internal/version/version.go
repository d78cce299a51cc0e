// Package version says which program this is ([This]), and which one a file holds ([Of]).
//
// A tag of the repository is a version. A program of any other commit is the next version in the making, with that
// commit in its name. All of it stands in the lines that each go command writes into a program that it builds.
package version

import (
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// Next is the version in the making: the first of the list of changes.
const Next = "v0.1.0"

// Build is one program. It is the same for two builds of one commit on one platform: the time is that of the commit, not
// of the build.
type Build struct {
	Version  string `json:"version"`           // the tag, or [Next] with the commit
	Commit   string `json:"commit,omitzero"`   // empty if the build did not see the repository
	Time     string `json:"time,omitzero"`     // of the commit
	Modified bool   `json:"modified,omitzero"` // with changes that are not in the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// This is the program that runs.
func This() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	info.GoVersion = runtime.Version()
	return Of(info)
}

// Of is the program of which the go command has written this.
func Of(info *debug.BuildInfo) Build {
	b := Build{Go: info.GoVersion}
	system, machine := runtime.GOOS, runtime.GOARCH
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "GOOS":
			system = s.Value
		case "GOARCH":
			machine = s.Value
		}
	}
	b.Platform, b.Version = system+"/"+machine, name(info.Main.Version, b)
	return b
}

// name is the tag, or says that there is none. A module that was fetched by its commit has that in its version alone.
func name(of string, b Build) string {
	commit := b.Commit
	if module.IsPseudoVersion(of) && commit == "" {
		commit, _ = module.PseudoVersionRev(of)
	} else if semver.IsValid(of) && !module.IsPseudoVersion(of) {
		return of
	}
	made := Next + "-dev"
	if commit != "" {
		made += "+" + commit[:min(len(commit), 12)]
	}
	if b.Modified {
		made += ".dirty"
	}
	return made
}

// String is the line that people read, and paste into a report.
func (b Build) String() string {
	parts := []string{"policy-service " + b.Version, "commit unknown: it was built without the repository"}
	if b.Commit != "" {
		parts[1] = "commit " + b.Commit
		if b.Modified {
			parts[1] += " with changes that are not in it"
		}
		parts = append(parts, b.Time)
	}
	return strings.Join(append(parts, b.Go+" "+b.Platform), ", ")
}
