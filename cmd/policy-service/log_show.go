package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/decisionlog"
)

type logShowCommand struct {
	logAt
	ID     string `arg:"" help:"The id of the record, as X-Decision-Id had it."`
	Bundle given  `placeholder:"DIR" help:"Also write the bundle that decided into this new directory, for eval."`
	JSON   bool   `name:"json" help:"For programs."`
}

// Run shows a record, then the policies its answer came from.
func (c logShowCommand) Run(s streams) error {
	var shown decisionlog.Shown
	err := c.read(func(ctx context.Context, log auditLog) (err error) {
		shown, err = log.Show(ctx, c.ID)
		return err
	})
	if err != nil {
		return c.failed("show the record", err)
	}
	if c.Bundle != "" {
		if err := c.writeBundle(shown); err != nil {
			return err
		}
	}
	then, note := c.then(shown)
	if c.JSON {
		return s.printJSON(struct {
			Record   jsontext.Value `json:"record"`
			LeafHash string         `json:"leaf_hash"`
			Policies []policyThen   `json:"policies"`
			Note     string         `json:"note,omitempty"`
		}{shown.Line, shown.LeafHash, then, note})
	}
	return c.print(s, shown, then, note)
}

// then are the policies of a record, or why they cannot be shown: the record itself always can.
func (c logShowCommand) then(shown decisionlog.Shown) (then []policyThen, note string) {
	then = []policyThen{}
	l, err := parseLogLine(shown.Line)
	ids := l.policies()
	switch {
	case err != nil:
		return then, fmt.Sprintf("the record cannot be understood: %v; try a newer policy-service", err)
	case shown.Bundle == "":
		return then, ""
	case shown.Files == nil:
		return then, fmt.Sprintf("the files of bundle %s are not kept here; try the directory of policies in its repository", shown.Bundle)
	case len(ids) == 0:
		return then, "no policy applied"
	}
	slices.Sort(ids)
	found, err := policiesThen(shown.Files, slices.Compact(ids))
	if err != nil {
		return then, fmt.Sprintf("%v; try --bundle DIR, and read the files", err)
	}
	return found, ""
}

func (c logShowCommand) print(s streams, shown decisionlog.Shown, then []policyThen, note string) error {
	record := jsontext.Value(slices.Clone(shown.Line))
	if err := record.Indent(jsontext.WithIndent("  ")); err != nil {
		return fmt.Errorf("the record is no JSON: %w; %s", err, c.try(err))
	}
	s.print("%s", lines(record))
	s.print("leaf hash %s", shown.LeafHash)
	for _, p := range then {
		s.print("\n%s %s, %s:\n%s", p.Effect, p.ID, p.Position, lines(p.Text))
	}
	if note != "" {
		s.print("\n%s", note)
	}
	return nil
}

// writeBundle writes the bundle for eval --policies. It must be a new directory: beside other files it would be another bundle.
func (c logShowCommand) writeBundle(shown decisionlog.Shown) error {
	if shown.Files == nil {
		return errors.New("this record has no bundle that is kept here; leave out --bundle")
	}
	err := os.Mkdir(string(c.Bundle), 0o700)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists; try a --bundle that does not", c.Bundle)
	}
	if err == nil {
		err = writeBundle(string(c.Bundle), shown.Files)
	}
	if err != nil {
		return fmt.Errorf("cannot write the bundle: %w; try another --bundle", err)
	}
	return nil
}
