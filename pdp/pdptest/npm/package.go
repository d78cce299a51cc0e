package npm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Package is a package of this repository: a copy of its directory, with its packages from npm.
type Package struct {
	Dir  string
	File string // the packed file, by npm pack, which compiles the package
	Bin  string // has a node for PATH: the oldest one that the package runs on
}

// Pack makes a copy of a package's directory in another one, and packs it. Its directory test/node22 pins a node.
func Pack(from, to string) (p Package, err error) {
	if p.Dir, err = to, copied(from, to); err != nil {
		return p, err
	}
	if p.Bin, err = Node(filepath.Join(to, "test", "node22")); err != nil {
		return p, err
	}
	if err := link(os.DirFS(to), to); err != nil {
		return p, err
	}
	out, err := p.Run(context.Background(), to, "npm", "pack", "--loglevel=error", "--json")
	if err != nil {
		return p, err
	}
	// The output of the compiler stands before it.
	var packed []struct{ Filename string }
	if _, text, ok := strings.Cut("\n"+out, "\n[\n"); !ok || json.Unmarshal([]byte("[\n"+text), &packed) != nil || len(packed) != 1 {
		return p, fmt.Errorf("npm pack printed %s", out)
	}
	p.File = filepath.Join(to, packed[0].Filename)
	return p, nil
}

// copied copies a directory, without the files that a build makes there.
func copied(from, to string) error {
	return fs.WalkDir(os.DirFS(from), ".", func(file string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains([]string{"node_modules", "dist", "dist-test"}, file):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir():
			return os.MkdirAll(filepath.Join(to, file), 0o755)
		}
		text, err := os.ReadFile(filepath.Join(from, file))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, file), text, 0o644)
	})
}

// Node is where the program node is that a package.json and its lock pin.
func Node(pins string) (bin string, err error) {
	installed, err := Keep(os.DirFS(pins))
	if err != nil {
		return "", err
	}
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	bin = filepath.Join(installed, "node_modules", "node-"+runtime.GOOS+"-"+arch, "bin")
	_, err = os.Stat(filepath.Join(bin, "node"))
	return bin, err
}

// Command is a command with the package's node.
func (p Package) Command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	if name == "node" {
		name = filepath.Join(p.Bin, name)
	}
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "PATH="+p.Bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return c
}

// Run returns the output of a command. Its standard error is in the error.
func (p Package) Run(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := p.Command(ctx, dir, name, args...)
	var failure bytes.Buffer
	c.Stderr = &failure
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, &failure)
	}
	return string(out), err
}
