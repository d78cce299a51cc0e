package export

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// tableColumns are the columns of a CSV export. New ones come at the end. pdp/decisionlog/README.md says what is in them.
var tableColumns = []string{"sequence", "id", "time", "kind", "event", "tenant", "caller", "decision", "reason",
	"subject_type", "subject_id", "action", "resource_type", "resource_id",
	"policies", "policy_errors", "obligations", "bundle", columnLeaf,
	"approval_id", "by", "reason_text", "request", "details"}

// columnLeaf is the column that a record without content has, too.
const columnLeaf = "leaf_hash"

// table writes CSV. It is for reading, and proves nothing: leaf_hash finds the record of a
// row in an export that proves it. A record without content has a row too, so that a reader
// sees the gap. A record that does not pass the filter has none.
type table struct {
	lines
	row  bytes.Buffer // as rows writes it
	rows *csv.Writer
	bom  bool

	batchID string // of the record of kind batch that came last
	batch   record.Record
}

func newTable(lines lines) *table {
	t := &table{lines: lines}
	t.rows = csv.NewWriter(&t.row)
	return t
}

func (t *table) begin(segment.Head) error {
	if t.bom {
		if err := t.write(0, []byte("\ufeff")); err != nil {
			return err
		}
	}
	return t.add(0, slices.Clone(tableColumns))
}

// whole is false: what a record inherits stands in its own row, so a row for the record of its batch is not needed.
func (t *table) whole() bool { return false }

func (t *table) end(done *Result) error {
	done.Digest = t.sum()
	return nil
}

func (t *table) without(r record.Record) error {
	if r.Gone == format.WhyFiltered {
		return t.keep(r)
	}
	row := make([]string, len(tableColumns))
	row[0], row[3], row[slices.Index(tableColumns, columnLeaf)] = strconv.FormatUint(r.Sequence, 10), r.Gone, r.Leaf.String()
	return t.add(r.Sequence, row)
}

// keep keeps the record of a batch. Its items come next, and inherit from it whether it has a row or not. It is not read
// again for them: somebody may redact it meanwhile, and one export would be of two states of the log.
func (t *table) keep(r record.Record) error {
	batch, err := batchOf(r)
	if batch != nil {
		t.batchID, t.batch = batch.ID, r
		t.batch.Line = bytes.Clone(r.Line)
	}
	return err
}

// resolved is a record with what it inherits, as far as that is there.
func (t *table) resolved(r record.Record) (s record.Recorded, err error) {
	if err = t.keep(r); err == nil {
		var parsed *record.Recorded
		parsed, err = record.Parse(r.Line)
		s = *parsed
	}
	if id := s.BatchID(); err == nil && id != "" {
		var batch record.Record
		if id == t.batchID {
			batch = t.batch
		}
		s, err = record.Resolve(r.Line, batch)
	}
	return s, err
}

func (t *table) record(r record.Record) error {
	s, err := t.resolved(r)
	if err != nil {
		return fmt.Errorf("record %d: %w", r.Sequence, err)
	}
	if s.Items == nil {
		return t.answer(r, s)
	}
	return t.questions(r, s)
}

// questions writes a row for each question of the record of a batch, and one for those for which it has no room.
func (t *table) questions(r record.Record, s record.Recorded) error {
	all, err := s.ResolvedQuestions()
	for n := range all {
		if err == nil {
			err = t.answer(r, all[n])
		}
	}
	if err != nil {
		return fmt.Errorf("record %d: %w", r.Sequence, err)
	}
	if s.Rest == nil {
		return nil
	}
	if s.Details, err = json.Marshal(s.Rest); err != nil {
		return err
	}
	return t.answer(r, s)
}

// answer writes the row of one question, or of a record without one.
func (t *table) answer(r record.Record, s record.Recorded) error {
	request, err := requestOf(s)
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
	names, said := &s.Names, saidIn(s)
	return t.add(r.Sequence, []string{
		strconv.FormatUint(r.Sequence, 10), s.ID, s.Time.Format(time.RFC3339Nano), s.Kind, s.Event, s.Tenant, s.Caller,
		s.Answer(), s.Reason,
		names.Subject.Type, names.Subject.ID, names.Action.Name, names.Resource.Type, names.Resource.ID,
		strings.Join(s.Determining, " "), strings.Join(errors, " "), strings.Join(obligations, " "),
		s.Bundle, r.Leaf.String(),
		said.Approval, said.By, said.Reason, string(request), string(s.Details),
	})
}

// requestOf is the request of a record as JSON, byte for byte as it is stored if the record inherits nothing. If a part
// of it is gone with the record of the batch, it says which: nobody is to take the rest for all that was asked.
func requestOf(s record.Recorded) ([]byte, error) {
	if len(s.Inherits) == 0 || len(s.Asked) > maxRequest {
		var own struct {
			Request jsontext.Value `json:"request"`
		}
		err := json.Unmarshal(s.Line, &own)
		if err != nil || len(s.Inherits) == 0 {
			return own.Request, err
		}
		return withNames(own.Request, "inherits", s.Inherits)
	}
	if len(s.Gone) == 0 {
		return s.Asked, nil
	}
	return withNames(s.Asked, "inherited_gone", s.Gone)
}

// maxRequest is the length of the longest request that has in it what an item of a batch inherits. Otherwise a thousand
// items that inherit a megabyte would make a table of a gigabyte. A spreadsheet cuts such a cell anyway.
const maxRequest = 32 << 10

// withNames adds to a request a member that lists names: of what it inherits, or of what is gone.
func withNames(request []byte, member string, names []string) ([]byte, error) {
	text, err := json.Marshal(names)
	rest := slices.Clip(request[:len(request)-1])
	if len(rest) > 1 {
		rest = append(rest, ',')
	}
	return fmt.Appendf(rest, `"%s":%s}`, member, text), err
}

// said is what an auditor asks of the details of a record: which approval it is about, who did it, and the words for it.
type said struct {
	Approval string `json:"approval"`
	By       string `json:"by"`
	Reason   string `json:"reason"`
}

// saidIn takes from a record what people said, and nothing that programs put there: the reason of a retention is none.
func saidIn(s record.Recorded) (of said) {
	switch {
	case s.Kind == format.KindApproval:
		_ = json.Unmarshal(s.Details, &of) // of a later program, perhaps; the column details has all of it
	case s.Event == format.EventRedacted:
		_ = json.Unmarshal(s.Details, &of)
		of = said{By: s.Caller, Reason: of.Reason}
	case s.Kind == format.KindAdmin:
		of.By = s.Caller
	default:
		var approvals []string
		for _, met := range s.Discharged {
			approvals = append(approvals, met.Approval)
		}
		of = said{Approval: strings.Join(approvals, " "), Reason: s.ReasonUser}
	}
	return of
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
