package audit

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// A record must not be able to rewrite the screen it is read on.
func TestLogLineIsHarmless(t *testing.T) {
	lines, err := recordLines([]byte(`{"sequence":7,"id":"i","time":"2026-01-02T03:04:05.678Z","kind":"decision","tenant":"default",`+
		`"request":{"subject":{"type":"user","id":"a\u001b[2J\u009b1m`+"\u202e\U000e0041"+`"},"action":{"name":"n"},"resource":{"type":"t","id":"é\n"}},"decision":true,"determining":["p"]}`), record.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	want := "     7  i  2026-01-02T03:04:05.678Z  allow    default  user/a\\u001b[2J\\u009b1m\\u202e\\udb40\\udc41 n t/é\\u000a  [p]"
	if got := lines[0].String(); len(lines) != 1 || got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// askedOfBatch is a record of what a batch asked, without its head.
const askedOfBatch = `"kind":"possible","request":{"subject":{"type":"u","id":"x"},"action":{"name":"read"}},"items":[
	{"n":0,"request":{"resource":{"type":"d","id":"0"}},"possible":true,"determining":["p"]},
	{"n":2,"request":{"action":{"name":"write"},"resource":{"type":"d","id":"2"}},"possible":false,"determining":["q"]}],"rest":{"more":5,"possible":2,"sha256":"x"}}`

// A filter that asks for some of the questions of a batch gets those, each in its line.
func TestLogLinesOfABatch(t *testing.T) {
	const head = `{"sequence":7,"id":"i","time":"2026-01-02T03:04:05Z","tenant":"default",`
	zero, two := "     7  i.0  2026-01-02T03:04:05.000Z  possible  default  u/x read d/0  [p]", "     7  i.2  2026-01-02T03:04:05.000Z  impossible  default  u/x write d/2  [q]"
	for name, tt := range map[string]struct {
		only record.Filter
		want []string
	}{
		"all":      {record.Filter{Kind: format.KindPossible}, []string{"     7  i  2026-01-02T03:04:05.000Z  3 of 7 possible  default  u/x read *"}},
		"subject":  {record.Filter{Subject: "u/x"}, []string{zero, two}},
		"resource": {record.Filter{Resource: "2"}, []string{two}},
		"action":   {record.Filter{Action: "read"}, []string{zero}},
		"policy":   {record.Filter{Policy: "q"}, []string{two}},
		"answer":   {record.Filter{Decision: record.Possible, Subject: "x"}, []string{zero}},
		"none":     {record.Filter{Decision: record.Possible, Resource: "2"}, nil},
	} {
		lines, err := recordLines([]byte(head+askedOfBatch), tt.only)
		var got []string
		for _, l := range lines {
			got = append(got, l.String())
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s:\ngot  %q\nwant %q, %v", name, got, tt.want, err)
		}
		if r, err := record.Parse([]byte(head + askedOfBatch)); err != nil || tt.only.Passes(r) != (len(tt.want) > 0) {
			t.Errorf("%s: the record passes, or not, %v", name, err)
		}
	}
}

func TestLogLine(t *testing.T) {
	const head = `{"sequence":0,"id":"i","time":"2026-01-02T03:04:05Z","tenant":"default",`
	for rec, want := range map[string]string{
		`"kind":"admin","event":"started","details":{"a":1}}`:                                               `started  {"a":1}`,
		`"kind":"admin","event":"tool_drift","details":{"server":"s","tool":"a\u202eb","change":"gone"}}`:   `tool_drift  {"server":"s","tool":"a\u202eb","change":"gone"}`,
		`"kind":"search","query":"action","found":["x"],"examined":3,"request":{"subject":{"type":"u"}}}`:   `action search: 1 of 3  default  u/ * *`,
		`"kind":"batch","request":{"context":{}}}`:                                                          `batch  default`,
		`"kind":"decision","decision":false,"reason":"policy_error","errors":[{"policy":"b"}]}`:             `deny     default  * * *  policy_error  [b]`,
		`"kind":"decision","decision":false,"reason":"approval_required","overruled":["asks","b"]}`:         `deny     default  * * *  approval_required  [asks b]`,
		`"kind":"decision","decision":true,"obligations":[{"id":"ask","type":"approval_required"}]}`:        `waiting  default  * * *`,
		`"kind":"approval","request":{"subject":{"type":"u","id":"x"}},"something":"that will come later"}`: `approval  default  u/x * *`,
		`"kind":"approval","event":"approve","request":{"subject":{"type":"u","id":"x"},"action":{"name":"n"},"resource":{"type":"t","id":"y"}},"details":{"approval":"i7","by":"User::\"m\"","via":"api","reason":"a\u202eb"}}`: `approve  default  u/x n t/y  approval i7  User::"m" by api: a\u202eb`,
		`"kind":"approval","event":"used","details":{"approval":"i7","used_by":"d"}}`: `used     default  * * *  approval i7  by decision d`,
		`"kind":"approval","event":"used","details":7}`:                               `used     default  * * *  7`,
		`"kind":"possible","possible":true,"determining":["p"]}`:                      `possible  default  * * *  [p]`,
		askedOfBatch: `3 of 7 possible  default  u/x read *`,
	} {
		lines, err := recordLines([]byte(head+rec), record.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		if got := lines[0].String(); len(lines) != 1 || !strings.HasSuffix(got, "Z  "+want) {
			t.Errorf("%s:\ngot  %s\nwant %s", rec, got, want)
		}
	}
}

// The text of a policy is its own: the comments that lead to the next one are not.
func TestPolicyTextThen(t *testing.T) {
	files := map[string][]byte{
		"a:b.cedar": []byte("// first\n@id(\"one\")\npermit (principal == User::\"a\",\n  action, resource);\n\n// second\n@id(\"two\")\nforbid (principal, action, resource); // always\n"),
	}
	then, err := policiesThen(files, "default", []string{"one", "two"})
	if err != nil {
		t.Fatal(err)
	}
	want := []policyThen{
		{ID: "one", Effect: "permit", Position: "a:b.cedar:2:1", Text: "@id(\"one\")\npermit (principal == User::\"a\",\n  action, resource);"},
		{ID: "two", Effect: "forbid", Position: "a:b.cedar:7:1", Text: "@id(\"two\")\nforbid (principal, action, resource); // always"},
	}
	if !slices.Equal(then, want) {
		t.Errorf("got %q, want %q", then, want)
	}
	if _, err := policiesThen(files, "default", []string{"three"}); err == nil {
		t.Error("a policy that is not there was shown")
	}
}

// The names of a bundle's files come out of the log, which somebody may have altered.
func TestBundleStaysInItsDirectory(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "inner")
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeBundle(inner, map[string][]byte{"../out": []byte("x")}); err == nil {
		t.Error("a file was written outside")
	}
	if err := writeBundle(inner, map[string][]byte{"tenants/a/b.cedar": []byte("x")}); err != nil {
		t.Error(err)
	}
	if err := fstest.TestFS(os.DirFS(dir), "inner/tenants/a/b.cedar"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
		t.Error("a file is outside")
	}
}

// An export that failed leaves neither a half one nor takes the one before away.
func TestExportFileIsWhole(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "export")
	whole := func(w io.Writer) error { _, err := io.WriteString(w, "whole"); return err }
	half := func(w io.Writer) error { _, _ = io.WriteString(w, "ha"); return errors.New("disk") }
	if err := writeOut(cli.Streams{}, "export", name, whole); err != nil {
		t.Fatal(err)
	}
	if err := writeOut(cli.Streams{}, "export", name, half); err == nil {
		t.Error("a failed export is no error")
	}
	if content, err := os.ReadFile(name); err != nil || string(content) != "whole" {
		t.Errorf("%q, %v", content, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("records are for everybody: %v, %v", info.Mode(), err)
	}
}

// A sample that cannot be written whole is not written.
func TestSampleIsWholeOrNot(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "sample")
	if err := writeNew(out, map[string][]byte{"a": nil, "../b": nil}); err == nil {
		t.Error("a file outside was written")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
	if err := os.Mkdir(out, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := isNew(out, "--out"); err != nil { // it is empty
		t.Fatal(err)
	}
	if err := writeNew(out, map[string][]byte{"a": []byte("x"), "b/c": nil}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(out, "b/c")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := isNew(out, "--out"); err == nil {
		t.Error("a directory with files is taken for a new one")
	}
	if err := writeNew(out, map[string][]byte{"a": []byte("y")}); err == nil {
		t.Error("a directory with files was replaced")
	}
	if content, err := os.ReadFile(filepath.Join(out, "a")); err != nil || string(content) != "x" {
		t.Errorf("%q, %v", content, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}
