package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/decisionlog"
)

type showCommand struct {
	logFlags
	ID     string    `arg:"" help:"The id of the record, such as the value of X-Decision-Id."`
	Bundle cli.Given `placeholder:"DIR" help:"Also write the bundle that decided into this new directory, for eval --policies."`
	JSON   bool      `name:"json" help:"Print JSON, for programs."`
}

// Run shows a record, then the policies its answer came from.
func (c showCommand) Run(s cli.Streams) error {
	shown, err := c.show("show the record", c.ID)
	if err != nil {
		return err
	}
	if c.Bundle != "" {
		if err := c.writeBundle(shown); err != nil {
			return err
		}
	}
	then, note := c.then(shown)
	if c.JSON {
		return s.PrintJSON(struct {
			Record   jsontext.Value `json:"record"`
			LeafHash string         `json:"leaf_hash"`
			*inheritedJSON
			Policies []policyThen `json:"policies"`
			Note     string       `json:"note,omitempty"`
		}{shown.Record.Line, shown.LeafHash, inheritedOf(shown), then, note})
	}
	return c.print(s, shown, then, note)
}

// inheritedJSON is the request of an item of a batch, or of a question in it, with all that it inherits. Gone names the
// parts that are gone with the record of the batch.
type inheritedJSON struct {
	Batch   *batchJSON     `json:"batch,omitempty"`
	Request jsontext.Value `json:"request"`
	Gone    []string       `json:"inherited_gone,omitempty"`
}

type batchJSON struct {
	Record   jsontext.Value `json:"record"`
	LeafHash string         `json:"leaf_hash"`
}

// inheritedOf is nil for a record that has its whole request.
func inheritedOf(shown decisionlog.Shown) *inheritedJSON {
	r := shown.Record
	if len(r.Inherits) == 0 && !shown.OfBatch {
		return nil
	}
	inherited := &inheritedJSON{Request: r.Asked, Gone: r.Gone}
	if r.Batch.Line != nil {
		inherited.Batch = &batchJSON{r.Batch.Line, r.Batch.Leaf.String()}
	}
	return inherited
}

// then are the policies of a record, or why they cannot be shown: the record itself always can.
func (c showCommand) then(shown decisionlog.Shown) (then []policyThen, note string) {
	then = []policyThen{}
	ids := policiesOf(shown.Record)
	switch {
	case shown.Record.Bundle == "":
		return then, ""
	case shown.Files == nil:
		return then, fmt.Sprintf("the files of bundle %s are not kept here; try the directory of policies in its "+
			"repository", shown.Record.Bundle)
	case len(ids) == 0:
		return then, "no policy applied"
	}
	slices.Sort(ids)
	found, err := policiesThen(shown.Files, shown.Record.Tenant, slices.Compact(ids))
	if err != nil {
		return then, fmt.Sprintf("%v; try --bundle DIR, and read the files", err)
	}
	return found, ""
}

func (c showCommand) print(s cli.Streams, shown decisionlog.Shown, then []policyThen, note string) error {
	if err := c.printJSONOf(s, shown.Record.Line); err != nil {
		return err
	}
	s.Print("leaf hash %s", shown.LeafHash)
	for _, id := range shown.Record.Approvals() {
		s.Print("approval %s; log approvals --approval says who said what about it", cli.Quoted(id))
	}
	if err := c.printInherited(s, shown); err != nil {
		return err
	}
	for _, p := range then {
		s.Print("\n%s %s, %s:\n%s", p.Effect, p.ID, p.Position, cli.Lines(p.Text))
	}
	if note != "" {
		s.Print("\n%s", cli.Quoted(note))
	}
	return nil
}

func (c showCommand) printJSONOf(s cli.Streams, text []byte) error {
	indented := jsontext.Value(slices.Clone(text))
	if err := indented.Indent(jsontext.WithIndent("  ")); err != nil {
		return fmt.Errorf("the record is no JSON: %w; %s", err, c.try(err))
	}
	s.Print("%s", cli.Lines(indented))
	return nil
}

// printInherited prints the request of an item that inherits from its batch, whole, or of a question in it.
func (c showCommand) printInherited(s cli.Streams, shown decisionlog.Shown) error {
	r := shown.Record
	switch {
	case shown.OfBatch:
		s.Print("\nthe request of %s, which is %s:", cli.Quoted(r.ID), r.Answer())
	case len(r.Inherits) == 0:
		return nil
	case len(r.Gone) > 0:
		s.Print("\nthe request, without %s: gone with the record of its batch:", strings.Join(r.Gone, ", "))
	default:
		s.Print("\nthe request, with %s from the record of its batch:", strings.Join(r.Inherits, ", "))
	}
	if err := c.printJSONOf(s, r.Asked); err != nil {
		return err
	}
	if r.Batch.Line != nil {
		s.Print("leaf hash of the record of its batch %s", r.Batch.Leaf)
	}
	return nil
}

// writeBundle writes the bundle for eval --policies.
func (c showCommand) writeBundle(shown decisionlog.Shown) error {
	if shown.Files == nil {
		return errors.New("this record has no bundle that is kept here; leave out --bundle")
	}
	err := isNew(string(c.Bundle), "--bundle")
	if err != nil {
		return err
	}
	if err = writeNew(string(c.Bundle), shown.Files); err != nil {
		return unwritable("bundle", "--bundle", err)
	}
	return nil
}
