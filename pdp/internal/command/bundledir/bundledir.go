// Package bundledir is the directory of a bundle as commands take it: whether it is one, the bundle in it, and why it
// does not load. Package pdp defines bundles.
package bundledir

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"policy-service/pdp"
	"policy-service/pdp/internal/command/cli"
)

// Exists refuses a path that is no directory, so that a typing error is not taken for a fault of a bundle.
func Exists(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("cannot read the bundle: %w; try the directory that holds the .cedar files", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory; try the directory that holds the .cedar files", dir)
	}
	return nil
}

// PoliciesVariable names the directory of the bundle, for serve and for commands without one.
const PoliciesVariable = "POLICY_SERVICE_POLICIES"

// Or is a directory, or if none is given the one in the environment, or this one if it holds a bundle.
func Or(dir string) (string, error) {
	if dir = cmp.Or(dir, os.Getenv(PoliciesVariable)); dir != "" {
		return dir, nil
	}
	for _, pattern := range []string{"*.cedar", "bundle.yaml", filepath.Join("access", "*.yaml")} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return ".", nil
		}
	}
	return "", errors.New("no bundle is named, and this directory holds none; give the directory that holds the .cedar files, or set " + PoliciesVariable + "; try --help")
}

// Load loads a bundle, or prints everything that keeps it from loading.
func Load(dir string, s cli.Streams) (*pdp.Bundle, error) {
	if err := Exists(dir); err != nil {
		return nil, err
	}
	bundle, problems := pdp.Load(pdp.Dir(dir))
	if problems.Refuse() {
		return nil, Refused(dir, problems, s)
	}
	return bundle, nil
}

// Refused prints the problems of a bundle, a line each, if err is those; any other error stays as it is.
func Refused(dir string, err error, s cli.Streams) error {
	var problems pdp.Problems
	if !errors.As(err, &problems) {
		return err
	}
	s.Tell("%s", cli.Lines(Placed(dir, problems).Error()))
	return fmt.Errorf("the bundle in %s does not load; mend what is listed above, and try policy-service check %s",
		dir, cli.Shell(dir))
}

// Placed has the files of problems by their paths from where the command was started, so that a terminal, an editor or CI can
// go there. Paths in a message stay inside the bundle.
func Placed(dir string, problems pdp.Problems) pdp.Problems {
	placed := slices.Clone(problems)
	for n, p := range placed {
		if p.File != "" {
			placed[n].File = filepath.Join(dir, filepath.FromSlash(p.File))
		}
	}
	return placed
}

// Print prints problems, a line each, and counts them.
func Print(problems pdp.Problems, s cli.Streams) (errors, warnings int) {
	for _, p := range problems {
		hue := cli.Red
		if p.Severity == pdp.SeverityWarning {
			hue = cli.Yellow
			warnings++
		}
		s.Print("%s", s.Colour(hue, cli.Quoted(p.String())))
	}
	return len(problems) - warnings, warnings
}
