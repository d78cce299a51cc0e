package author

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/plainfile"
)

// AccessCheck lists the problems of one declaration.
type AccessCheck struct {
	File     string    `arg:"" help:"The declaration, a YAML file."`
	Policies cli.Given `placeholder:"DIR" help:"The directory of a bundle: say what is wrong with the declaration there. It stands in the place of the file that has the tools of the same owner."`
	Tenant   cli.Given `placeholder:"T" help:"The tenant of the bundle that the declaration is for. Without it, the declaration is for all of them."`
	JSON     bool      `name:"json" help:"Print JSON, for programs."`
}

// Help ends the command's help.
func (AccessCheck) Help() string {
	return "Without --policies nobody knows which types and tools there are: what a file says by itself is looked at, and there are no warnings.\n\nExit codes: 0 if there are no errors, 1 if there are, 2 if it cannot run."
}

// mostDeclaration is how large a declaration can be in a bundle.
const mostDeclaration = 256 << 10

// Run prints everything that is wrong or odd with the declaration.
func (c AccessCheck) Run(s cli.Streams) error {
	text, err := plainfile.Read(c.File, mostDeclaration)
	if err != nil {
		return fmt.Errorf("cannot read the declaration: %w; try a file as it stands in access/", err)
	}
	problems, where := pdp.ReadAccess(c.File, text), c.File
	if c.Policies == "" && c.Tenant != "" {
		return errors.New("--tenant names a tenant of a bundle; add --policies DIR, or leave it out")
	}
	if c.Policies != "" && !problems.Refuse() {
		if problems, err = c.inBundle(text); err != nil {
			return err
		}
		where += " in " + string(c.Policies)
	}
	document := struct {
		Problems pdp.Problems `json:"problems"`
	}{problems}
	lines := func() error {
		errors, odd := bundledir.Print(problems, s)
		if problems.Refuse() {
			s.Print("%s does not load: %s, %s; mend the errors and try again", where, cli.Plural(errors, "error"), cli.Plural(odd, "warning"))
		} else {
			s.Print("%s loads: %s", where, cli.Plural(odd, "warning"))
		}
		return nil
	}
	return s.Answer(c.JSON, document, lines, problems.Refuse())
}

// inBundle has the errors of the bundle with the declaration in it, and the warnings of the declaration.
func (c AccessCheck) inBundle(text []byte) (pdp.Problems, error) {
	shelf, err := openShelf(string(c.Policies), string(c.Tenant))
	if err != nil {
		return nil, err
	}
	name := filepath.Base(c.File)
	if owner := ownerNamed(text); owner != "" {
		name, _ = shelf.fileOf(owner)
	}
	file := path.Join(shelf.dir, name)
	_, all := pdp.Check(pdp.Dir(shelf.bundle).With(file, text), time.Now())
	return about(file, c.File, all), nil
}

// about are the errors among some problems, and the warnings of one file, which gets another name.
func about(file, name string, all pdp.Problems) (some pdp.Problems) {
	for _, p := range all {
		if p.File == file {
			p.File = name
			some = append(some, p)
		} else if p.Severity == pdp.SeverityError {
			some = append(some, p)
		}
	}
	return some
}
