package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/remote"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/plainfile"
)

type proveCommand struct {
	logFlags
	ID  string    `arg:"" help:"The id of the record, such as the value of X-Decision-Id."`
	Out cli.Given `short:"o" name:"out" placeholder:"DIR" help:"Write ID.json, which is the record as it was hashed, and its proof ID.json.tlog-proof into this directory. Tools of others read them, too."`
}

// Help ends the command's help.
func (proveCommand) Help() string {
	return "The proof holds the record, its path through the Merkle tree and the signed checkpoint. Check it with " +
		"policy-service log verify --key, or with --policy for one that witnesses cosigned.\n\n" +
		"With -o, the proof is a file in the format c2sp.org/tlog-proof. If the record is an item of a batch and inherits from " +
		"the record of the batch, that one is written as well. If the content of the record was redacted, the proof is " +
		"written without it, together with the record of the redaction."
}

// Run prints the proof, or writes its files.
func (c proveCommand) Run(s cli.Streams) error {
	const task = "prove the record"
	if c.Out == "" {
		return c.read(task, func(ctx context.Context, log auditLog) error { return log.Prove(ctx, s.Out, c.ID) })
	}
	if !isFileName(c.ID) {
		return fmt.Errorf("the id %q cannot be the name of a file; leave out --out, and the proof is printed", c.ID)
	}
	var all []export.Proved
	err := c.read(task, func(ctx context.Context, log auditLog) (err error) {
		all, err = c.proofs(ctx, log, c.ID)
		if errors.Is(err, segment.ErrGone) || httpclient.StatusOf(err) == http.StatusGone {
			all, err = c.proofsOfGone(ctx, log)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, one := range all {
		if err := c.write(s, one); err != nil {
			return err
		}
	}
	if last := all[len(all)-1]; last.Line == nil {
		s.Print("the content of record %d was removed, and its hash was not: an export has it in a line of leaves. Of a copy that "+
			"was kept, log verify %s --line COPY says whether it is that record", last.Proof.Index, c.file(last.ID)+c2sp.ProofSuffix)
	}
	return nil
}

// isFileName reports whether an id names a file in a directory, and nothing outside of it.
func isFileName(id string) bool {
	odd := func(r rune) bool { return !unicode.IsGraphic(r) || strings.ContainsRune(`/\:`, r) }
	return filepath.IsLocal(id) && id[0] != '.' && len(id) <= 200 && !strings.ContainsFunc(id, odd)
}

// proofs are those of a record, which is the last one, and of all that it inherits from. The record has the id that was asked
// for: it may be that of a question in the record.
func (c proveCommand) proofs(ctx context.Context, log auditLog, id string) ([]export.Proved, error) {
	var text bytes.Buffer
	if err := log.Prove(ctx, &text, id); err != nil {
		return nil, err
	}
	all, err := export.Proofs(&text)
	if err != nil {
		return nil, err
	}
	last := &all[len(all)-1]
	if last.ID != id && !slices.Contains(record.PossibleIDsOf(id), last.ID) {
		return nil, fmt.Errorf("the proof is of another record, %.200q", last.ID)
	}
	last.ID = id
	return all, nil
}

// proofsOfGone are the proof of a record whose content is gone, which is the last one, and that of the record which says so.
func (c proveCommand) proofsOfGone(ctx context.Context, log auditLog) (all []export.Proved, err error) {
	text, err := log.Proof(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	gone := export.Proved{ID: c.ID}
	if gone.Proof, err = c2sp.ParseProof(text); err != nil {
		return nil, err
	}
	redaction, err := c.redaction(ctx, log, gone.Proof.Index)
	if err == nil && redaction != "" { // else retention dropped it
		all, err = c.proofs(ctx, log, redaction)
	}
	return append(all, gone), err
}

// redaction is the id of the record that says that a record was redacted, "" if there is none.
func (c proveCommand) redaction(ctx context.Context, log auditLog, of int64) (id string, err error) {
	records, ok := log.(tailed)
	if !ok {
		records = tailedHere(c.Data)
	}
	o := export.TailOptions{After: of, Filter: record.Filter{Event: format.EventRedacted}}
	_, err = records.Tail(ctx, o, func(_ int64, line []byte) error {
		r, err := record.Parse(line)
		var d struct {
			Sequence int64 `json:"sequence"`
		}
		if err == nil {
			err = json.Unmarshal(r.Details, &d)
		}
		if err == nil && d.Sequence == of {
			id = r.ID
		}
		return err
	})
	return id, err
}

var _ tailed = (*remote.Log)(nil)

func (c proveCommand) file(id string) string { return filepath.Join(string(c.Out), id+".json") }

// write writes a record and its proof, for the owner of the files alone.
func (c proveCommand) write(s cli.Streams, p export.Proved) error {
	if !isFileName(p.ID) { // a server says how the record of a batch is called
		return fmt.Errorf("the id %q cannot be the name of a file; leave out --out, and the proof is printed", p.ID)
	}
	name := c.file(p.ID)
	err := os.MkdirAll(string(c.Out), 0o700)
	if err == nil && p.Line != nil {
		err = plainfile.Replace(name, p.Line)
	}
	if err == nil {
		err = plainfile.Replace(name+c2sp.ProofSuffix, p.Proof.Text())
	}
	if err != nil {
		return unwritable("proof", "--out", err)
	}
	s.Print("%s: record %d", name+c2sp.ProofSuffix, p.Proof.Index)
	return nil
}
