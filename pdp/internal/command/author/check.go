// Package author has the commands of authors of policies: eval, filter, check, test, fmt, bench and access. Each but
// fmt reads a bundle from its directory, as serve would, and answers from it in this process.
//
// None of them needs a server, and none records a decision. Read check.go first: it is the shortest.
package author

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
)

// Commands are these commands, as they stand in the command line beside others.
type Commands struct {
	Init   Init   `cmd:"" help:"Write a bundle to begin from."`
	Eval   Eval   `cmd:"" help:"Answer one request from a file."`
	Filter Filter `cmd:"" help:"Make the conditions by which a query selects the rows that decisions allow."`
	Check  Check  `cmd:"" help:"Say whether a bundle loads, and list its errors and warnings."`
	Test   Test   `cmd:"" help:"Run the tests of a bundle."`
	Fmt    Fmt    `cmd:"" help:"Lay out policies as Cedar's own formatter does."`
	LSP    LSP    `cmd:"" name:"lsp" help:"Be the language server of an editor."`
	Bench  Bench  `cmd:"" help:"Measure how fast a bundle decides, and which policies cost most."`
	Access Access `cmd:"" help:"Look at declarations of who may use which tools, check them, and import them."`
}

// Check lists the errors and warnings of a bundle.
type Check struct {
	Dir           string `arg:"" optional:"" help:"The directory of the bundle. Without it, the one in $$POLICY_SERVICE_POLICIES, or this directory."`
	JSON          bool   `name:"json" help:"Print JSON, for programs."`
	Strict        bool   `help:"Count warnings as errors."`
	WriteManifest bool   `help:"Write the MANIFEST. Then the bundle loads with exactly this content, and with no other."`
}

// Help ends the command's help.
func (Check) Help() string {
	return "Exit codes: 0 if there are no errors, 1 if there are (with --strict also if there are warnings), " +
		"2 if it cannot run."
}

// Run prints everything that is wrong or odd.
func (c Check) Run(s cli.Streams) (err error) {
	if c.Dir, err = bundledir.Or(c.Dir); err != nil {
		return err
	}
	if err := bundledir.Exists(c.Dir); err != nil {
		return err
	}
	source := pdp.Dir(c.Dir)
	bundle, problems := check(source)
	if c.WriteManifest && mendable(problems) {
		var unreadable pdp.Problems
		if err := source.WriteManifest(); errors.As(err, &unreadable) {
			return c.print(nil, unreadable, s)
		} else if err != nil {
			return fmt.Errorf("cannot write the MANIFEST: %w; try it where %s can be written", err, c.Dir)
		}
		bundle, problems = check(source)
	}
	return c.print(bundle, problems, s)
}

// check loads the bundle, and also reads its tests, which are no part of loading.
func check(source pdp.Source) (*pdp.Bundle, pdp.Problems) {
	bundle, problems := pdp.Check(source, time.Now())
	_, tests := pdp.Examples(source)
	return bundle, append(problems, tests...)
}

// mendable reports whether a new MANIFEST would make the bundle load. A bundle that is wrong in itself must not get a
// MANIFEST that says it is right.
func mendable(problems pdp.Problems) bool {
	return !slices.ContainsFunc(problems, func(p pdp.Problem) bool {
		return p.Severity == pdp.SeverityError && !strings.HasPrefix(p.Code, "manifest_")
	})
}

func (c Check) print(bundle *pdp.Bundle, problems pdp.Problems, s cli.Streams) error {
	document := struct {
		BundleDir string       `json:"bundle_dir"` // as the command was given it: the files of problems are inside
		Problems  pdp.Problems `json:"problems"`
		// OpenToTenants are the policies of the root that tenants' entities come under by tenants: {parents: […]}.
		OpenToTenants []pdp.OpenPolicy `json:"open_to_tenants,omitempty"`
	}{BundleDir: c.Dir, Problems: problems}
	if bundle != nil {
		document.OpenToTenants = bundle.OpenToTenants()
	}
	lines := func() error { return c.printLines(bundle, problems, s) }
	return s.Answer(c.JSON, document, lines, problems.Refuse() || c.Strict && len(problems) > 0)
}

func (c Check) printLines(bundle *pdp.Bundle, problems pdp.Problems, s cli.Streams) error {
	count, warnings := bundledir.Print(bundledir.Placed(c.Dir, problems), s)
	errors, odd := cli.Plural(count, "error"), cli.Plural(warnings, "warning")
	if bundle != nil {
		for _, p := range bundle.OpenToTenants() {
			below := strings.Join(p.Parents, ", ")
			if below == "" {
				below = "what a request or an entity names"
			}
			s.Print("%s", cli.Quoted(fmt.Sprintf("%s: %s %q is open to tenants, whose entities may be in %s",
				filepath.Join(c.Dir, filepath.FromSlash(p.Position)), p.Effect, p.ID, below)))
		}
	}
	switch {
	case bundle == nil:
		s.Print("%s does not load: %s, %s; mend the errors and try again", c.Dir, errors, odd)
	case count > 0:
		s.Print("%s loads, its tests do not: %s, %s; mend the errors and try again", c.Dir, errors, odd)
	default:
		s.Print("%s loads: %s, %s", c.Dir, odd, bundle.Digest())
	}
	return nil
}
