package decisionlog

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The columns of a CSV export. New ones come at the end.
var tableColumns = []string{"sequence", "id", "time", "kind", "event", "tenant", "caller", "decision", "reason",
	"subject_type", "subject_id", "action", "resource_type", "resource_id",
	"policies", "policy_errors", "obligations", "bundle", "leaf_hash"}

// table writes CSV. It is for reading, and proves nothing, but that leaf_hash
// finds a row in an export that does. Records without content have a row too, so
// that a gap is not taken for nothing; those a filter passed over have none.
type table struct {
	exportLines
	row  bytes.Buffer // as rows writes it
	rows *csv.Writer
}

func newTable(lines exportLines) *table {
	t := &table{exportLines: lines}
	t.rows = csv.NewWriter(&t.row)
	return t
}

func (t *table) begin(Head) error { return t.add(0, slices.Clone(tableColumns)) }

// whole is false: no column is of what can be inherited.
func (t *table) whole() bool { return false }

func (t *table) end(done *Exported) error {
	done.Digest = t.sum()
	return nil
}

func (t *table) without(l Record, why string) error {
	if why == WhyFiltered {
		return nil
	}
	row := make([]string, len(tableColumns))
	row[0], row[3], row[len(row)-1] = strconv.FormatUint(l.Sequence, 10), why, l.Leaf.String()
	return t.add(l.Sequence, row)
}

func (t *table) record(l Record) error {
	s, err := Parse(l.Line)
	if err != nil {
		return fmt.Errorf("record %d: %w", l.Sequence, err)
	}
	var errors, obligations []string
	for _, e := range s.Errors {
		errors = append(errors, e.Policy)
	}
	for _, o := range s.Obligations {
		obligations = append(obligations, o.ID)
	}
	r := &s.Names
	return t.add(l.Sequence, []string{
		strconv.FormatUint(l.Sequence, 10), s.ID, s.Time.Format(time.RFC3339Nano), s.Kind, s.Event, s.Tenant, s.Caller,
		s.Answer(), s.Reason,
		r.Subject.Type, r.Subject.ID, r.Action.Name, r.Resource.Type, r.Resource.ID,
		strings.Join(s.Determining, " "), strings.Join(errors, " "), strings.Join(obligations, " "),
		s.Bundle, l.Leaf.String(),
	})
}

func (t *table) add(sequence uint64, row []string) error {
	for i, cell := range row {
		row[i] = harmless(cell)
	}
	t.row.Reset()
	if err := t.rows.Write(row); err != nil {
		return err
	}
	t.rows.Flush()
	return t.write(sequence, t.row.Bytes())
}

// harmless keeps a spreadsheet from running a cell as a formula: what a caller
// sends as an id would be code on the auditor's machine. Spaces count because
// some programs trim them first, and a leading quote so that the one put before
// a cell can be taken away again without doubt.
func harmless(cell string) string {
	bare := strings.TrimLeft(cell, " \u00a0")
	for _, sign := range formulaSigns {
		if strings.HasPrefix(bare, sign) {
			return "'" + cell
		}
	}
	return cell
}

// formulaSigns begin a formula, or hide what does. The full-width forms are signs
// to East Asian spreadsheets.
var formulaSigns = []string{"=", "+", "-", "@", "\t", "\r", "\n", "'", "＝", "＋", "－", "＠"}
