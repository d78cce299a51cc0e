package verify

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Programs read the document, so its members and their order stay.
func TestDocument(t *testing.T) {
	t.Parallel()
	full := func() Report {
		return Report{
			Origin:      "log",
			Key:         "log+1+key",
			KeyGiven:    true,
			Size:        1,
			Root:        "root",
			Checkpoint:  "note\n",
			Records:     2,
			Redacted:    3,
			Retired:     4,
			Skipped:     5,
			Unsigned:    6,
			Live:        true,
			Unknown:     []string{"00000001.db: bucket"},
			Read:        7,
			Digested:    8,
			Proved:      []string{"this"},
			NotExcluded: []string{"that"},
			checkpoints: 9,
		}
	}
	failed := func(p Problem) Report {
		c := checker{report: full()}
		c.fail(&p)
		return c.report
	}
	const rest = `"origin":"log","key":"log+1+key","key_given":true,"size":1,"root":"root","checkpoint":"note\n","records":2,` +
		`"redacted":3,"retired":4,"skipped":5,"unsigned":6,"live":true,"unknown":["00000001.db: bucket"],`
	for what, test := range map[string]struct {
		report Report
		want   string
	}{
		"verified": {full(), `{"result":"verified","exit":0,` + rest + `"proved":["this"],"not_excluded":["that"]}`},
		"nothing": {Report{}, `{"result":"verified","exit":0,"key_given":false,"size":0,"records":0,"redacted":0,` +
			`"retired":0,"skipped":0,"unsigned":0,"live":false,"proved":[],"not_excluded":[]}`},
		"a record": {failed(Problem{Code: TimeReversed, File: "a", Line: 5, What: "w"}),
			`{"result":"time_reversed","exit":7,"problem":{"sequence":0,"file":"a","line":5,"what":"w","try":"` +
				advice[TimeReversed] + `"},` + rest + `"proved":[],"not_excluded":["that"]}`},
		"no record": {failed(Problem{Code: Altered, Sequence: -1, What: "w"}),
			`{"result":"altered","exit":3,"problem":{"line":0,"what":"w","try":"` + advice[Altered] + `"},` + rest +
				`"proved":[],"not_excluded":["that"]}`},
	} {
		got, err := json.Marshal(test.report)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", what, err, got, test.want)
		}
	}
	names := []string{
		"result", "exit", "problem", "origin", "key", "key_given", "size", "root", "checkpoint", "records", "redacted",
		"retired", "skipped", "unsigned", "live", "unknown", "proved", "not_excluded",
	}
	if got := topLevel(t, failed(Problem{Code: Altered})); !slices.Equal(got, names) {
		t.Errorf("members %q, want %q", got, names)
	}
}

// topLevel are the names at the top of the document, in order.
func topLevel(t *testing.T, document any) (names []string) {
	text, err := json.Marshal(document)
	dec := jsontext.NewDecoder(strings.NewReader(string(text)))
	for err == nil {
		var token jsontext.Token
		if token, err = dec.ReadToken(); err == nil && dec.StackDepth() == 1 && token.Kind() == '"' {
			names = append(names, token.String())
			err = dec.SkipValue()
		}
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	return names
}

// Whatever verify finds, there is something to try.
func TestAdvice(t *testing.T) {
	t.Parallel()
	for code := Altered; code <= Unwitnessed; code++ {
		if advice[code] == "" && code.String() != "" {
			t.Errorf("no advice for %d, %s", code, code)
		}
	}
}
