package export

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

const oneLine = `{"sequence":7,"id":"0190","kind":"decision","time":"2026-11-20T11:00:00.5Z","tenant":"default","decision":true,` +
	`"request":{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"a/b"}},"determining":["p1"]}`

func TestCSVCellsAreNoFormulas(t *testing.T) {
	t.Parallel()
	for _, id := range []string{`=cmd|' /C calc'!A0`, "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "\u00a0=1", "'=1", "＝1", "=1\r\n=2", `","=1`} {
		quoted, _ := json.Marshal(id)
		line := strings.Replace(oneLine, `"alice"`, string(quoted), 1)
		cell := csvRow(t, line)[slices.Index(tableColumns, "subject_id")]
		if bare, ok := strings.CutPrefix(cell, "'"); strings.HasPrefix(id, `"`) != !ok || strings.ReplaceAll(bare, "\r\n", "\n") != strings.ReplaceAll(id, "\r\n", "\n") {
			t.Errorf("%q is written as %q", id, cell)
		}
	}
	if row := csvRow(t, oneLine); row[10] != "alice" || row[7] != "allow" || row[1] != "0190" {
		t.Errorf("%q", row)
	}
}

// What an auditor asks of a row: which approval, who, in which words, what was asked, and everything that is left.
func TestCSVSaysWhoAndWhy(t *testing.T) {
	t.Parallel()
	if end := tableColumns[len(tableColumns)-6:]; !slices.Equal(end, []string{"leaf_hash", "approval_id", "by", "reason_text", "request", "details"}) {
		t.Errorf("columns came elsewhere than at the end: %q", end)
	}
	const (
		head    = `{"sequence":7,"id":"0190","time":"2026-11-20T11:00:00.5Z","tenant":"default",`
		request = `"request":{"subject":{"type":"user","id":"a\"b"},"action":{"name":"=read"}},`
		asked   = `{"subject":{"type":"user","id":"a\"b"},"action":{"name":"=read"}}`
		step    = `{"approval":"one","by":"User::\"mia\"","reason":"=fine","seal":"s"}`
	)
	for line, want := range map[string][]string{ // decision, approval_id, by, reason_text, request, details
		`"kind":"decision",` + request + `"decision":true,"obligations":[{"id":"ask","type":"approval_required"}]}`: {"waiting", "", "", "", asked, ""},
		`"kind":"decision",` + request + `"decision":true,"discharged":[{"id":"ask","type":"approval_required","approval":"one"},{"id":"b","type":"x","approval":"two"}]}`: {
			"allow", "one two", "", "", asked, ""},
		`"kind":"decision","caller":"key:pep","decision":false,"reason_user":"not today"}`:                                          {"deny", "", "", "not today", "", ""},
		`"kind":"approval","event":"approve","caller":"key:mia",` + request + `"details":` + step + `}`:                             {"", "one", `User::"mia"`, "'=fine", asked, step},
		`"kind":"approval","event":"used","details":{"approval":"one"}}`:                                                            {"", "one", "", "", "", `{"approval":"one"}`},
		`"kind":"approval","event":"later","details":{"approval":"one","by":["User"]}}`:                                             {"", "one", "", "", "", `{"approval":"one","by":["User"]}`},
		`"kind":"admin","event":"` + format.EventRedacted + `","caller":"key:boss","details":{"sequence":1,"reason":"erasure 17"}}`: {"", "", "key:boss", "erasure 17", "", `{"sequence":1,"reason":"erasure 17"}`},
		`"kind":"admin","event":"` + format.EventRetired + `","details":{"below":1,"reason":"age"}}`:                                {"", "", "", "", "", `{"below":1,"reason":"age"}`},
		`"kind":"receipt","caller":"key:pep","details":{"decision":"d","by":"=x","approval":"y","reason":"z"}}`: {
			"", "", "", "", "", `{"decision":"d","by":"=x","approval":"y","reason":"z"}`},
		`"kind":"search","query":"action",` + request + `"found":[]}`: {"", "", "", "", asked, ""},
	} {
		row := csvRow(t, head+line)
		if got := append([]string{row[7]}, row[len(row)-5:]...); !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", line, got, want)
		}
	}
}

// The hash of a record without content stands in its own column, whichever come after it.
func TestCSVRowWithoutContent(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	buffered := bufio.NewWriter(&b)
	w := newTable(newLines(buffered, 0))
	gone := record.Record{Sequence: 3, Gone: format.WhyRedacted}
	if err := errors.Join(w.begin(segment.Head{}), w.without(gone), buffered.Flush()); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != 2 || rows[1][slices.Index(rows[0], "leaf_hash")] != gone.Leaf.String() || rows[1][len(rows[1])-1] != "" {
		t.Errorf("%v, %q", err, rows)
	}
}

// What items inherit is not written out again and again if it is long: a table must not become a thousand times what the
// caller sent.
func TestCSVNamesWhatItemsInheritIfItIsLong(t *testing.T) {
	t.Parallel()
	batch := []byte(`{"sequence":1,"id":"b","time":"2026-11-22T00:00:00Z","kind":"batch","request":{"context":{"x":"` + strings.Repeat("x", maxRequest) + `"}},"salt":"s"}`)
	item := []byte(`{"sequence":2,"id":"b.0","time":"2026-11-22T00:00:00Z","kind":"decision","request":{"subject":{"type":"user","id":"u"}},"inherits":["context"],"decision":true,"salt":"s"}`)
	whole, err := record.Resolve(item, record.Record{Sequence: 1, Line: batch})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := requestOf(whole); err != nil || string(got) != `{"subject":{"type":"user","id":"u"},"inherits":["context"]}` {
		t.Errorf("got %.200s, %v", got, err)
	}
	short := bytes.Replace(batch, []byte(strings.Repeat("x", maxRequest)), []byte("y"), 1)
	if whole, err = record.Resolve(item, record.Record{Sequence: 1, Line: short}); err != nil {
		t.Fatal(err)
	}
	if got, err := requestOf(whole); err != nil || string(got) != `{"subject":{"type":"user","id":"u"},"context":{"x":"y"}}` {
		t.Errorf("got %.200s, %v", got, err)
	}
}

func csvRow(t *testing.T, line string) []string {
	t.Helper()
	var b bytes.Buffer
	buffered := bufio.NewWriter(&b)
	w := newTable(newLines(buffered, 0))
	if err := w.begin(segment.Head{}); err != nil {
		t.Fatal(err)
	}
	if err := w.record(record.Record{Sequence: 7, Line: []byte(line)}); err != nil {
		t.Fatal(err)
	}
	if err := buffered.Flush(); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != 2 || len(rows[1]) != len(tableColumns) {
		t.Fatalf("%v, %q", err, rows)
	}
	return rows[1]
}
