package main

import (
	"errors"
	"fmt"
	"os"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp"
)

// isBundle tells a slip of the pen from a bundle that is at fault.
func isBundle(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("cannot read the bundle: %w; try the directory that holds the .cedar files", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory; try the directory that holds the .cedar files", dir)
	}
	return nil
}

// load loads a bundle, or prints everything that keeps it from loading.
func load(dir string, s cli.Streams) (*pdp.Bundle, error) {
	if err := isBundle(dir); err != nil {
		return nil, err
	}
	bundle, problems := pdp.Load(pdp.Dir(dir))
	if problems.Refuse() {
		return nil, refused(dir, problems, s)
	}
	return bundle, nil
}

// refused prints the problems of a bundle, a line each, where err is that.
func refused(dir string, err error, s cli.Streams) error {
	var problems pdp.Problems
	if !errors.As(err, &problems) {
		return err
	}
	s.Tell("%s", cli.Lines(problems.Error()))
	return fmt.Errorf("the bundle in %s does not load; mend what is listed above, and try policy-service check %s", dir, cli.Shell(dir))
}
