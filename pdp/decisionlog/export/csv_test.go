package export

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/decisionlog"
)

const oneLine = `{"sequence":7,"id":"0190","kind":"decision","time":"2026-11-20T11:00:00.5Z","tenant":"default","decision":true,` +
	`"request":{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"a/b"}},"determining":["p1"]}`

func TestCSVCellsAreNoFormulas(t *testing.T) {
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

func csvRow(t *testing.T, line string) []string {
	t.Helper()
	var b bytes.Buffer
	buffered := bufio.NewWriter(&b)
	w := newTable(newLines(buffered, 0))
	if err := w.begin(decisionlog.Head{}); err != nil {
		t.Fatal(err)
	}
	if err := w.record(decisionlog.Record{Sequence: 7, Line: []byte(line)}); err != nil {
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
