package author

import (
	"fmt"
	"slices"
	"strings"

	"policy-service/pdp"
	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
)

// Access has the commands for declarations of access, which open the tools of an owner to subjects.
type Access struct {
	Show   AccessShow   `cmd:"" help:"Print the policies that declarations of access become."`
	Check  AccessCheck  `cmd:"" help:"List what is wrong with a declaration of access."`
	Import AccessImport `cmd:"" help:"Write the declaration that a message of MCPx asks for."`
}

// AccessShow prints the policies that declarations become.
type AccessShow struct {
	Dir         string    `arg:"" help:"The directory of the bundle."`
	Tenant      cli.Given `placeholder:"T" help:"Only of the declarations of this tenant. Those of the root have the tenant default."`
	Owner       cli.Given `placeholder:"O" help:"Only of the declarations of this owner of tools."`
	Obligations bool      `help:"Print what belongs into obligations.yaml instead."`
}

// Help ends the command's help.
func (AccessShow) Help() string {
	return "The output loads as it is printed: in files of policies, of 256 KiB at most, and in obligations.yaml it can take the place of the declarations. The policies of a tenant belong into its directory.\n\nExit codes: 0, or 2 if it cannot run."
}

// Run prints them, each declaration's behind a comment that names it.
func (c AccessShow) Run(s cli.Streams) error {
	bundle, err := bundledir.Load(c.Dir, s)
	if err != nil {
		return err
	}
	all := bundle.Access()
	wanted := slices.DeleteFunc(slices.Clone(all), func(a pdp.AccessPolicies) bool {
		return c.Tenant != "" && a.Tenant != string(c.Tenant) || c.Owner != "" && a.Owner != string(c.Owner)
	})
	if len(wanted) == 0 {
		return c.nothing(all)
	}
	var out strings.Builder
	for _, a := range wanted {
		comment, text := "//", a.Cedar
		if c.Obligations {
			comment, text = "#", a.Obligations
		}
		if text == "" {
			continue
		}
		if out.Len() > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "%s %s: the tools of %s\n%s", comment, a.File, a.Owner, text)
	}
	if out.Len() == 0 {
		s.Tell("nothing: no rule there demands an approval")
	}
	return printFile(s, []byte(out.String()))
}

// nothing says why there is nothing to print.
func (c AccessShow) nothing(all []pdp.AccessPolicies) error {
	if len(all) == 0 {
		return fmt.Errorf("the bundle in %s has no declaration of access; write one into %s/access/OWNER.yaml", c.Dir, c.Dir)
	}
	files := make([]string, len(all))
	for n, a := range all {
		files[n] = a.File
	}
	return fmt.Errorf("the bundle in %s has no such declaration of access; it has %s", c.Dir, strings.Join(files, ", "))
}

// printFile prints text for a file: as it is, unless a person looks at it. Nothing in it can act on a terminal.
func printFile(s cli.Streams, text []byte) error {
	if cli.IsTerminal(s.Out) {
		s.Print("%s", cli.Lines(strings.TrimSuffix(string(text), "\n")))
		return nil
	}
	if _, err := s.Out.Write(text); err != nil {
		return fmt.Errorf("cannot write the output: %w; try it where it can be written", err)
	}
	return nil
}
