package author

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"policy-service/pdp"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/plainfile"
)

// Fmt lays out policies.
type Fmt struct {
	Files []string `arg:"" optional:"" name:"file" help:"Policy files, or directories with .cedar files. - is standard input, and so is no file at all."`
	Check bool     `xor:"what" help:"Only list the files that are laid out otherwise."`
	Diff  bool     `help:"Print what changes, instead of the policies."`
	Write bool     `xor:"what" help:"Write the files, and list those that changed."`
}

// Help ends the command's help.
func (Fmt) Help() string {
	return "It lays out policies as Cedar's own formatter does, in 80 columns. What they mean, and the comments, stay as they " +
		"are; blank lines between comments do not. A file of which it cannot keep everything stays as it is. So do schemas and " +
		"links in a directory; --check is silent about those.\n\n" +
		"Exit codes: 0 if all is well, 1 with --check if a file is laid out otherwise, 2 if a file cannot be laid out or written."
}

// policyText is where policies are, before and after.
type policyText struct {
	name      string // "-" for standard input
	text, now []byte
}

// Run lays out file after file. One that cannot be laid out does not keep it from the others.
func (c Fmt) Run(s cli.Streams) error {
	if len(c.Files) == 0 {
		c.Files = []string{"-"}
	}
	changed, left := 0, 0
	leave := func(err error) {
		s.Tell("%s", cli.Lines(err.Error()))
		left++
	}
	for _, of := range c.Files {
		names, err := c.policyFiles(of, s)
		if err != nil {
			leave(err)
		}
		before := changed
		for _, name := range names {
			f, err := c.layOut(name, s)
			if err == nil {
				err = c.tell(f, s)
			}
			if err != nil {
				leave(err)
			} else if string(f.text) != string(f.now) {
				changed++
			}
		}
		if _, err := os.Stat(filepath.Join(of, "MANIFEST")); err == nil && c.Write && changed > before {
			s.Tell("%s has a MANIFEST of what was there before; write it again: policy-service check %s --write-manifest", of, cli.Quoted(cli.Shell(of)))
		}
	}
	if left > 0 {
		return fmt.Errorf("not laid out: %s; mend what is listed above, and try again", cli.Plural(left, "file"))
	}
	if c.Check && changed > 0 {
		return cli.No
	}
	return nil
}

// tell prints, compares or writes a file.
func (c Fmt) tell(f policyText, s cli.Streams) error {
	same := string(f.text) == string(f.now)
	switch {
	case !c.Check && !c.Diff && !c.Write:
		return printFile(s, f.now)
	case same:
		return nil
	case c.Write:
		if err := plainfile.Rewrite(f.name, f.now); err != nil {
			return fmt.Errorf("cannot write %s: %w; try it where it can be written", f.name, err)
		}
	}
	if c.Diff {
		return printFile(s, diff.Diff(f.name, f.text, f.name, f.now))
	}
	s.Print("%s", f.name)
	return nil
}

// mostText is where reading ends. A policy file may have less, by package pdp.
const mostText = 1 << 20

// layOut reads a file, and lays it out.
func (c Fmt) layOut(name string, s cli.Streams) (f policyText, err error) {
	f.name = name
	if name != "-" {
		f.text, err = plainfile.Read(name, mostText)
	} else if f.text, err = io.ReadAll(io.LimitReader(s.In, mostText)); err == nil && c.Write {
		err = errors.New("there is no file to write standard input to; leave --write out")
	}
	if err != nil {
		return f, err
	}
	var problems pdp.Problems
	if f.now, problems = pdp.Format(name, f.text); problems.Refuse() {
		return f, problems
	}
	return f, nil
}

// policyFiles are the policy files that a name stands for: itself, or those in and below the directory that it is of.
func (c Fmt) policyFiles(name string, s cli.Streams) (names []string, err error) {
	info, err := os.Stat(name)
	switch {
	case name == "-":
		return []string{name}, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read policies: %w; try the name of a .cedar file, or of a directory with some", err)
	case info.IsDir():
		return c.filesBelow(name, s)
	case filepath.Ext(name) != ".cedar":
		return nil, fmt.Errorf("%s is no policy file, and stays as it is; try a .cedar file", name)
	}
	return []string{name}, nil
}

// filesBelow looks for policy files. As in a bundle, names that begin with a dot are passed over. Links stay as they are: a
// file of the directory is found by its own name, and files elsewhere are not meant. A check lists files that are to be
// laid out, and no others.
func (c Fmt) filesBelow(dir string, s cli.Streams) (names []string, err error) {
	leave := func(format, name string) {
		if !c.Check {
			s.Tell(format, name)
		}
	}
	err = filepath.WalkDir(dir+string(filepath.Separator), func(name string, entry fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(entry.Name(), ".") && name != dir+string(filepath.Separator)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && hidden:
			return fs.SkipDir
		case entry.IsDir() || hidden:
		case strings.HasPrefix(filepath.Ext(name), ".cedarschema"):
			leave("%s is a schema, and stays as it is", name)
		case filepath.Ext(name) != ".cedar":
		case entry.Type()&fs.ModeSymlink != 0:
			leave("%s is a link, and stays as it is; name the file that it leads to", name)
		default:
			names = append(names, name)
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("there is no .cedar file in %s; try the directory that holds them", dir)
	}
	return names, err
}
