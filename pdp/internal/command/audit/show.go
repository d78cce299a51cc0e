package audit

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/evidence"
	"policy-service/pdp/internal/plainfile"
)

type showCommand struct {
	logFlags
	ID      string    `arg:"" help:"The id of the record, such as the value of X-Decision-Id."`
	Bundle  cli.Given `placeholder:"DIR" help:"Also write the bundle that decided into this new directory, for eval --policies."`
	AsTest  bool      `xor:"test,why" help:"Print a test with the recorded question and its answer instead, to append to a file of tests/."`
	Explain bool      `xor:"why" help:"Also say, policy by policy, how the decision came about, as it was, and by today's policies."`
	With    cli.Given `placeholder:"DIR" help:"With --explain: the directory of policies in place of today's."`
	JSON    bool      `name:"json" xor:"test" help:"Print JSON, for programs."`

	Evidence bool      `xor:"test" help:"Also open what the record seals because a mask hides arguments: the hash of the arguments, and the proof with its holder's signature. It needs the key of masked values, mask.key."`
	MaskKey  cli.Given `name:"mask-key" placeholder:"FILE" help:"With --evidence: the key of masked values. Default: mask.key in the directory of --data."`
}

// Help ends the command's help.
func (showCommand) Help() string {
	return "Today's policies are the bundle that the decision log says was loaded last.\n\n" +
		"A value that a mask hides is not known. --explain and --as-test name each one that the answer depends on. A test can hold no " +
		"approval either. If a test does not pass as it is printed, by the policies that decided, it says so in a comment.\n\n" +
		"Exit codes: 0, 1 with --as-test if the test needs a value first, 2 it could not be done."
}

// Validate refuses flags that would be ignored.
func (c showCommand) Validate() error {
	if c.With != "" && !c.Explain {
		return errors.New("--with is for --explain; add it, or leave --with out")
	}
	if c.MaskKey != "" && !c.Evidence {
		return errors.New("--mask-key is for --evidence; add it, or leave --mask-key out")
	}
	if c.Evidence && c.MaskKey == "" && c.Data == "" {
		return errors.New("--evidence needs the key of masked values, which no server hands out; give its file with --mask-key")
	}
	return c.logFlags.Validate()
}

// Run shows a record, then the policies its answer came from.
func (c showCommand) Run(s cli.Streams) error {
	shown, today, err := c.shown()
	if err != nil {
		return err
	}
	if c.Bundle != "" {
		if err := c.writeBundle(shown); err != nil {
			return err
		}
	}
	if c.AsTest {
		return asTest(s, shown)
	}
	var opened *evidenceJSON
	if c.Evidence {
		if opened, err = c.openEvidence(&shown.Record); err != nil {
			return err
		}
	}
	then, note := c.then(shown)
	var why *whyJSON
	if c.Explain {
		why = explained(shown, today)
	}
	if c.JSON {
		return s.PrintJSON(struct {
			Record   jsontext.Value `json:"record"`
			LeafHash string         `json:"leaf_hash"`
			Evidence *evidenceJSON  `json:"evidence,omitempty"`
			*inheritedJSON
			Policies []policyThen `json:"policies"`
			Note     string       `json:"note,omitempty"`
			*whyJSON
		}{shown.Record.Line, shown.LeafHash, opened, inheritedOf(shown), then, note, why})
	}
	if c.Explain { // which has the policies, too
		then = nil
	}
	if err := c.print(s, shown, then, note); err != nil {
		return err
	}
	if opened != nil {
		s.Print("\nthe hash of the arguments, as the holder signed it: %s\nthe proof, which the holder's key verifies:\n%s", opened.Arguments, opened.Proof)
	}
	if why != nil {
		why.print(s)
	}
	return nil
}

// evidenceJSON is the opened evidence of a record: the hash of the arguments, and the proof of which it is a part.
type evidenceJSON struct {
	Arguments string `json:"args"`
	Proof     string `json:"proof"` // a JWS in its compact form
}

func (c showCommand) openEvidence(r *record.Recorded) (*evidenceJSON, error) {
	if r.Capability == nil || r.Capability.Proof == nil || r.Capability.Proof.Evidence == "" {
		return nil, errors.New("this record seals no evidence: it has no proof of a capability, or has it in the open; leave out --evidence")
	}
	name := cmp.Or(string(c.MaskKey), filepath.Join(c.Data, mask.KeyFile))
	secret, err := plainfile.Read(name, 1<<10)
	var key *evidence.Key
	if err == nil {
		key, err = evidence.NewKey(secret, r.Tenant)
	}
	p, opened := r.Capability.Proof, []string(nil)
	if err == nil {
		opened, err = key.Open(r.ID, string(p.Evidence))
	}
	if err == nil && len(opened) != 2 {
		err = errors.New("it holds something else than a hash and a signature")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the evidence with %s: %w; give the mask.key with which the record was made", name, err)
	}
	proof := capability.Proof{
		Capability: r.Capability.ID, Audience: p.Audience, Tool: p.Tool, Arguments: opened[0], IssuedAt: time.Unix(p.IssuedAt, 0),
		ID: p.ID, Nonce: p.Nonce, Algorithm: p.Algorithm, Signature: opened[1],
	}
	return &evidenceJSON{opened[0], proof.Text()}, nil
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
func inheritedOf(shown segment.Shown) *inheritedJSON {
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
func (c showCommand) then(shown segment.Shown) (then []policyThen, note string) {
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

func (c showCommand) print(s cli.Streams, shown segment.Shown, then []policyThen, note string) error {
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
func (c showCommand) printInherited(s cli.Streams, shown segment.Shown) error {
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
func (c showCommand) writeBundle(shown segment.Shown) error {
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
