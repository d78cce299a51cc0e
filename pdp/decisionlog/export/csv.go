package export

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"policy-service/pdp/decisionlog"
)

// The columns of a CSV export. New ones come at the end.
var tableColumns = []string{"sequence", "id", "time", "kind", "event", "tenant", "caller", "decision", "reason",
	"subject_type", "subject_id", "action", "resource_type", "resource_id",
	"policies", "policy_errors", "obligations", "bundle", "leaf_hash"}

// table writes CSV. It is for reading, and proves nothing: leaf_hash finds the record of a
// row in an export that proves it. A record without content has a row too, so that a reader
// sees the gap. A record that does not pass the filter has none.
type table struct {
	lines
	row  bytes.Buffer // as rows writes it
	rows *csv.Writer
}

func newTable(lines lines) *table {
	t := &table{lines: lines}
	t.rows = csv.NewWriter(&t.row)
	return t
}

func (t *table) begin(decisionlog.Head) error { return t.add(0, slices.Clone(tableColumns)) }

// whole is false, because no column shows what a record can inherit.
func (t *table) whole() bool { return false }

func (t *table) end(done *Result) error {
	done.Digest = t.sum()
	return nil
}

func (t *table) without(r decisionlog.Record) error {
	if r.Gone == decisionlog.WhyFiltered {
		return nil
	}
	row := make([]string, len(tableColumns))
	row[0], row[3], row[len(row)-1] = strconv.FormatUint(r.Sequence, 10), r.Gone, r.Leaf.String()
	return t.add(r.Sequence, row)
}

func (t *table) record(r decisionlog.Record) error {
	s, err := decisionlog.Parse(r.Line)
	if err != nil {
		return fmt.Errorf("record %d: %w", r.Sequence, err)
	}
	var errors, obligations []string
	for _, e := range s.Errors {
		errors = append(errors, e.Policy)
	}
	for _, o := range s.Obligations {
		obligations = append(obligations, o.ID)
	}
	names := &s.Names
	return t.add(r.Sequence, []string{
		strconv.FormatUint(r.Sequence, 10), s.ID, s.Time.Format(time.RFC3339Nano), s.Kind, s.Event, s.Tenant, s.Caller,
		s.Answer(), s.Reason,
		names.Subject.Type, names.Subject.ID, names.Action.Name, names.Resource.Type, names.Resource.ID,
		strings.Join(s.Determining, " "), strings.Join(errors, " "), strings.Join(obligations, " "),
		s.Bundle, r.Leaf.String(),
	})
}

// add writes one row. The sequence is that of the record.
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

// harmless keeps a spreadsheet from running a cell as a formula. Otherwise the id that a
// caller sends would be code on the auditor's machine. Leading spaces are passed over because
// some programs trim them first. A cell that begins with a quote gets another one, so that a
// reader can take the first quote away without doubt.
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
