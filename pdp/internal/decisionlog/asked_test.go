package decisionlog

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.etcd.io/bbolt"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/index"
	"policy-service/pdp/internal/decisionlog/record"
)

// lineOf is the line of an entry without what differs each time.
func lineOf(t *testing.T, e record.Entry) string {
	t.Helper()
	p, err := prepare(&e, e.ID, Options{}.withDefaults().Kinds)
	must(t, err)
	return strings.TrimPrefix(string(p.body), ",")
}

// TestWhatALineSaysOfItsDecision: what a decision needs to be made again is in its line, each member in its place, and
// only if it says something.
func TestWhatALineSaysOfItsDecision(t *testing.T) {
	t.Parallel()
	subject := jsontext.Value(`{"type":"user","id":"a"}`)
	plain := `"kind":"decision","caller":"key:pep","request_id":"r","request":{"subject":{"type":"user","id":"a"}},"decision":true,"determining":["p"],"bundle":"h1:x"`
	entry := func(change func(*record.Entry)) record.Entry {
		e := record.Entry{
			Kind: format.KindDecision, Caller: "key:pep", RequestID: "r", Request: &record.Request{Subject: subject},
			Decision: &record.Decision{Allow: true, Determining: []string{"p"}, Bundle: "h1:x"},
		}
		change(&e)
		return e
	}
	for name, c := range map[string]struct {
		change    func(*record.Entry)
		old, with string
	}{
		"nothing":                     {func(*record.Entry) {}, "", ""},
		"shape":                       {func(e *record.Entry) { e.Request.Shape = evaluation.Native }, `}},`, `}},"shape":"native",`},
		"declared":                    {func(e *record.Entry) { e.Declared = []string{"log", "redact"} }, `"key:pep",`, `"key:pep","declared":["log","redact"],`},
		"declared, none":              {func(e *record.Entry) { e.Declared = []string{} }, `"key:pep",`, `"key:pep","declared":[],`},
		"approved":                    {func(e *record.Entry) { e.Decision.Approved = true }, `"decision":true,`, `"decision":true,"approved":true,`},
		"overruled":                   {func(e *record.Entry) { e.Decision.Overruled = []string{"a", "b"} }, `["p"],`, `["p"],"overruled":["a","b"],`},
		"a text like a mask was sent": {func(e *record.Entry) { e.Request.Masked = []evaluation.Hidden{} }, `}},`, `}},"masked":[],`},
		"masked": {func(e *record.Entry) {
			e.Request.Shape = evaluation.Native
			e.Request.Masked = []evaluation.Hidden{{At: "/context/a", Type: "number", Fit: evaluation.Fits}, {At: "/context/b", Type: "string", Part: true}, {At: "/context/c", Type: "bool", Removed: true}}
		}, `}},`, `}},"shape":"native","masked":[{"at":"/context/a","type":"number"},{"at":"/context/b","type":"string","part":true},{"at":"/context/c","type":"bool","removed":true}],`},
	} {
		got := lineOf(t, entry(c.change))
		if want := strings.Replace(plain, c.old, c.with, 1); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
	if more := len(lineOf(t, entry(func(e *record.Entry) { e.Request.Shape = evaluation.Native }))) - len(plain); more > 20 {
		t.Errorf("a native request takes %d bytes more", more)
	}
}

// TestNoRegistrationIsNotAnEmptyOne: a record says which of the two it was, also when it is read back.
func TestNoRegistrationIsNotAnEmptyOne(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, memory(t), Options{})
	for id, declared := range map[string][]string{"none": nil, "empty": {}, "some": {"log"}} {
		mustAppend(t, l, record.Entry{ID: id, Kind: format.KindDecision, Declared: declared, Decision: &record.Decision{}})
		record, err := l.ByID(id)
		must(t, err)
		r, err := l.Recorded(record.Line)
		if err != nil || fmt.Sprintf("%#v", r.Declared) != fmt.Sprintf("%#v", declared) {
			t.Errorf("%s: got %#v, %v", id, r.Declared, err)
		}
	}
}

// askedOf is the request of a line, with what it inherits, as text: "native: " before it if it came in that shape.
func askedOf(t *testing.T, line, batch string) (string, []evaluation.Hidden, error) {
	t.Helper()
	r, err := record.Resolve([]byte(line), record.Record{Line: []byte(batch)})
	if batch == "" {
		r, err = record.Resolve([]byte(line), record.Record{})
	}
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	q, hidden, err := r.Request(evaluation.DefaultLimits())
	if err != nil {
		return "", nil, err
	}
	text, err := q.MarshalJSON()
	must(t, err)
	if q.Shape == evaluation.Native {
		return "native: " + string(text), hidden, nil
	}
	return string(text), hidden, nil
}

// aLine is the line of a decision about a request with this context, and more members.
func aLine(context, more string) string {
	return `{"sequence":7,"id":"b.0","time":"2026-11-22T00:00:00.000000000Z","tenant":"acme","kind":"decision","request":` +
		`{"subject":{"type":"user","id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"},"context":` + context + `}` + more + `,"decision":false}`
}

// TestNoMaskMakesARequestUnreadable: in each hidden place stands a value of the type that was sent.
func TestNoMaskMakesARequestUnreadable(t *testing.T) {
	t.Parallel()
	const d = `"masked:AAAAAAAAAAAAAAAAAAAAAA"`
	for _, c := range []struct{ context, masked, want string }{
		{`{"a":1}`, ``, `{"a":1}`},
		{`{"a":` + d + `,"b":` + d + `,"c":` + d + `,"d":` + d + `,"e":` + d + `}`,
			`{"at":"/context/a","type":"string"},{"at":"/context/b","type":"number"},{"at":"/context/c","type":"bool"},{"at":"/context/d","type":"object"},{"at":"/context/e","type":"array"}`,
			`{"a":` + d + `,"b":0,"c":true,"d":{},"e":[]}`},
		{`{"n":12345678901234567890.50,"note":"is masked:x ok"}`, `{"at":"/context/note","type":"string","part":true}`, `{"n":12345678901234567890.50,"note":"is masked:x ok"}`},
		{`{"l":[1,null,null,{"x":` + d + `}]}`, `{"at":"/context/l/1","type":"string","removed":true},{"at":"/context/l/2","type":"number","removed":true},{"at":"/context/l/3/x","type":"array"}`, `{"l":[1,"",0,{"x":[]}]}`},
		{`{"o":{}}`, `{"at":"/context/o/a~1b~0","type":"bool","removed":true}`, `{"o":{"a/b~":true}}`},
		{`{"o":{"masked:x":` + d + `,"t":` + d + `}}`, `{"at":"/context/o","type":"object","part":true},{"at":"/context/o/t","type":"object"}`, `{"o":{"masked:x":` + d + `,"t":{}}}`},
		{`{"supported_obligations":` + d + `}`, `{"at":"/context/supported_obligations","type":"array"}`, `{"supported_obligations":[]}`},
		{`{"supported_obligations":["log",` + d + `,null]}`, `{"at":"/context/supported_obligations/1","type":"string"},{"at":"/context/supported_obligations/2","type":"string","removed":true}`, `{"supported_obligations":["log",` + d + `,""]}`},
		{`{"supported_obligations":[null,"x"],"approval":` + d + `}`, `{"at":"/context","type":"object"}`, `{}`},
		{`{"approval":` + d + `}`, `{"at":"/context/approval","type":"object"}`, `{"approval":{"id":"masked:"}}`},
		{`{"approval":` + d + `,"approval_id":"abc"}`, `{"at":"/context/approval","type":"object"}`, `{"approval":{"id":"abc"},"approval_id":"abc"}`},
		{`{"approval":{"id":"abc"},"approval_id":` + d + `}`, `{"at":"/context/approval_id","type":"string"}`, `{"approval":{"id":"abc"},"approval_id":"abc"}`},
		{`{}`, `{"at":"/context/approval_id","type":"string","removed":true}`, `{"approval_id":"masked:"}`},
		{`{"approval":{}}`, `{"at":"/context/approval/id","type":"string","removed":true}`, `{"approval":{"id":"masked:"}}`},
		{`{"requester":` + d + `,"on_behalf_of":` + d + `}`, `{"at":"/context/requester","type":"object"},{"at":"/context/on_behalf_of","type":"object"}`,
			`{"on_behalf_of":{"id":"masked:","type":"masked:"},"requester":{"id":"masked:","type":"masked:"}}`},
		{`{"on_behalf_of":[` + d + `,{"type":"user"}],"requester":{"id":"a"}}`,
			`{"at":"/context/on_behalf_of/0","type":"object"},{"at":"/context/on_behalf_of/1/id","type":"string","removed":true},{"at":"/context/requester/type","type":"string","removed":true}`,
			`{"on_behalf_of":[{"id":"masked:","type":"masked:"},{"id":"masked:","type":"user"}],"requester":{"id":"a","type":"masked:"}}`},
		{`{"on_behalf_of":` + d + `,"agent":` + d + `}`, `{"at":"/context/on_behalf_of","type":"array"},{"at":"/context/agent","type":"array"}`, `{"agent":[],"on_behalf_of":[]}`},
		{`{"person":` + d + `,"x":1}`, `{"at":"/context/person","type":"string"}`, `{"x":1}`},
		{`{"person":[` + d + `,"b"],"x":1}`, `{"at":"/context/person/0","type":"string"}`, `{"x":1}`},
		{`{"note":"masked:sent"}`, ``, `{"note":"masked:sent"}`},
	} {
		for _, native := range []bool{false, true} {
			more, shape := `,"masked":[`+c.masked+`]`, ""
			if native {
				more, shape = `,"shape":"native"`+more, "native: "
			}
			got, hidden, err := askedOf(t, aLine(c.context, more), "")
			want := shape + `{"subject":{"type":"user","id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"},"context":` + c.want + `}`
			if want = strings.TrimSuffix(want, `,"context":{}}`); want[len(want)-2:] != "}}" {
				want += "}"
			}
			if err != nil || got != want || len(hidden) != strings.Count(c.masked, `"at"`) {
				t.Errorf("%s %s:\ngot  %s, %v, %v\nwant %s", c.context, c.masked, got, hidden, err, want)
			}
		}
	}
	// Nothing is left of what masks removed, and it is put back where nothing is.
	line := `{"tenant":"acme","kind":"decision","request":{"subject":{"type":"user","id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}},` +
		`"masked":[{"at":"/subject/properties/token","type":"number","removed":true},{"at":"/context/x","type":"string","removed":true}]}`
	got, _, err := askedOf(t, line, "")
	if want := `{"subject":{"type":"user","id":"a","properties":{"token":0}},"action":{"name":"read"},"resource":{"type":"doc","id":"1"},"context":{"x":""}}`; err != nil || got != want {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestRequestsThatCannotBeMadeAgain: records with members that this program cannot read.
func TestRequestsThatCannotBeMadeAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ context, more, says string }{
		{`{"o":1}`, `,"shape":"round"`, "a later program"},
		{`{"o":"masked:"}`, `,"masked":[{"at":"/context/o","type":"blob"}]`, "a later program"},
		{`{"o":"masked:"}`, `,"masked":[{"at":"/context/o/x","type":"number"}]`, "no such place"},
		{`{"o":["masked:"]}`, `,"masked":[{"at":"/context/o/1","type":"number"}]`, "no such place"},
		{`{"o":["masked:"]}`, `,"masked":[{"at":"","type":"number"}]`, ""},
	} {
		_, _, err := askedOf(t, aLine(c.context, c.more), "")
		if c.says == "" && err == nil {
			continue
		}
		if !errors.Is(err, record.ErrNoRequest) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s%s: got %v", c.context, c.more, err)
		}
	}
	// An id is never masked, so it says nothing.
	if _, _, err := askedOf(t, strings.Replace(aLine(`{"a":1}`, ""), `"id":"1"`, `"id":"masked:x"`, 1), ""); err != nil {
		t.Errorf("an id that looks like a mask: %v", err)
	}
}

// TestItemsHideWhatTheirBatchHides: an item hides what it hides itself, and of what it inherits, what the record of its
// batch hides there; and nothing else.
func TestItemsHideWhatTheirBatchHides(t *testing.T) {
	t.Parallel()
	batch := func(masked, context string) string {
		return `{"sequence":6,"id":"b","tenant":"acme","kind":"batch","request":{"subject":{"properties":{"token":"masked:S"}},"resource":{"properties":{"token":"masked:R"}},"context":` + context + `}` + masked + `}`
	}
	all := `,"masked":[{"at":"/subject/properties/token","type":"number"},{"at":"/resource/properties/token","type":"bool"},{"at":"/context/supported_obligations/0","type":"string"},{"at":"/context/x","type":"string"}]`
	context := `{"supported_obligations":["masked:O"],"x":"masked:X"}`
	for _, c := range []struct{ own, more, batch, want string }{
		{`{"a":1}`, ``, batch(all, context), "[]"},
		{`{"a":1}`, `,"inherits":["subject"]`, batch(all, context), "[/subject/properties/token number false]"},
		{`{"a":"masked:A"}`, `,"inherits":["subject","supported_obligations"],"masked":[{"at":"/context/a","type":"array"}]`, batch(all, context), "[/subject/properties/token number false /context/a array false /context/supported_obligations/0 string false]"},
		{``, `,"inherits":["resource","context"]`, batch(all, context), "[/resource/properties/token bool false /context/supported_obligations/0 string false /context/x string false]"},
		{`{"a":1}`, `,"inherits":["supported_obligations"]`, batch(`,"masked":[{"at":"/context","type":"object"}]`, context), "[/context/supported_obligations array false]"},
		{`{"a":1}`, `,"inherits":["supported_obligations"]`, batch(`,"masked":[{"at":"/context","type":"object","part":true}]`, context), "[]"},
		{`{"a":1}`, `,"inherits":["supported_obligations"]`, batch(`,"masked":[{"at":"/context","type":"object","part":true}]`, `{}`), "[/context/supported_obligations array true]"},
		{`{"a":1}`, `,"inherits":["supported_obligations"]`, batch(`,"masked":[{"at":"/context/supported_obligations","type":"array","removed":true}]`, `{}`), "[/context/supported_obligations array true]"},
		{`{"a":"masked:A"}`, `,"inherits":["subject"],"masked":[]`, batch(``, context), "[]"},
	} {
		line := aLine(c.own, c.more)
		if c.own == "" {
			line = strings.Replace(line, `,"context":`, "", 1)
		}
		r, err := record.Resolve([]byte(line), record.Record{Line: []byte(c.batch)})
		var got []string
		for _, h := range r.Masked {
			got = append(got, fmt.Sprint(h.At, " ", h.Type, " ", h.Removed))
		}
		if err != nil || fmt.Sprint(got) != c.want || len(r.Gone) > 0 {
			t.Errorf("%s: got %s, gone %v, %v, want %s", line, got, r.Gone, err, c.want)
		}
		if _, hidden, err := r.Request(evaluation.DefaultLimits()); err != nil || len(hidden) != len(r.Masked) {
			t.Errorf("%s: %v, %v", line, hidden, err)
		}
	}
	// Of a redacted batch everything is gone.
	r, err := record.Resolve([]byte(aLine(`{"a":"masked:A"}`, `,"inherits":["subject"],"masked":[{"at":"/context/a","type":"array"}]`)), record.Record{})
	if err != nil || len(r.Masked) != 1 || fmt.Sprint(r.Gone) != "[subject]" {
		t.Errorf("a redacted batch: %v, gone %v, %v", r.Masked, r.Gone, err)
	}
}

// TestWhetherAHiddenValueFits: a value that the record lists as misfitting misfits; of others it is only said that they
// fit if the record would say otherwise.
func TestWhetherAHiddenValueFits(t *testing.T) {
	t.Parallel()
	names := map[evaluation.Fit]string{evaluation.FitUnknown: "?", evaluation.Fits: "fits", evaluation.Misfits: "misfits"}
	const d = `"masked:AAAAAAAAAAAAAAAAAAAAAA"`
	const context = `{"a":` + d + `,"o":{"x":` + d + `,"y":` + d + `},"l":[1,` + d + `]}`
	const masked = `,"masked":[{"at":"/context/a","type":"object"},{"at":"/context/l/1","type":"string"},{"at":"/context/o/x","type":"number"},{"at":"/context/o/y","type":"number"}]`
	for _, c := range []struct{ more, want string }{
		{``, "fits fits fits fits"},
		{`,"reason":"approval_required"`, "fits fits fits fits"},
		{`,"reason":"schema_mismatch"`, "? ? ? ?"},
		{`,"reason":"unknown_type","mismatch":["/subject/type"]`, "? ? ? ?"},
		{`,"reason":"unknown_entity","mismatch":["/subject/id"]`, "fits fits fits fits"},
		{`,"mismatch":["/context/a"]`, "? ? ? ?"},
		{`,"mismatch":["/context/other"]`, "? ? ? ?"},
		{`,"mismatch":["/…"]`, "? ? ? ?"},
		{`,"mismatch":["/subject/id","/resource/type"]`, "fits fits fits fits"},
		{`,"reason":"schema_mismatch","mismatch":["/context/a"]`, "misfits ? ? ?"},
		{`,"reason":"schema_mismatch","mismatch":["/context/a/inner"]`, "misfits ? ? ?"},
		{`,"reason":"schema_mismatch","mismatch":["/context/ab"]`, "? ? ? ?"},
		{`,"reason":"schema_mismatch","mismatch":["/context/o"]`, "? ? misfits misfits"},
		{`,"reason":"schema_mismatch","mismatch":["/context/o/x","/context/…"]`, "? ? misfits ?"},
		{`,"reason":"schema_mismatch","mismatch":["/evaluations/12/context/a"]`, "misfits ? ? ?"},
		{`,"reason":"schema_mismatch","shape":"native","mismatch":["/actor/context/a","/resource/labels","/context/o/y"]`, "? ? ? misfits"},
	} {
		_, hidden, err := askedOf(t, aLine(context, masked+c.more), "")
		var got []string
		for _, h := range hidden {
			got = append(got, names[h.Fit])
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.more, got, err, c.want)
		}
	}
	properties := func(more string) string {
		return `{"tenant":"acme","kind":"decision","request":{"subject":{"type":"user","id":"a","properties":{"t":` + d + `,"u":{}}},"action":{"name":"read","properties":{"t":` + d + `}},"resource":{"type":"doc","id":"1","properties":{"labels":{"t":` + d + `}}},"context":{"purpose":` + d + `}}` +
			`,"masked":[{"at":"/subject/properties/t","type":"number"},{"at":"/action/properties/t","type":"number"},{"at":"/resource/properties/labels/t","type":"number"},{"at":"/context/purpose","type":"string"}]` + more + `,"decision":false}`
	}
	for _, c := range []struct{ more, want string }{
		{`,"mismatch":["/subject/properties/u"]`, "? ? ? ?"},
		{`,"mismatch":["/action/properties/u"]`, "? ? ? ?"},
		{`,"reason":"schema_mismatch","shape":"native","mismatch":["/actor/t","/purpose"]`, "misfits ? ? misfits"},
		{`,"reason":"schema_mismatch","shape":"native","mismatch":["/resource/labels/t"]`, "? ? misfits ?"},
		{`,"shape":"native","mismatch":["/actor/actor_id","/resource/id","/action"]`, "fits fits fits fits"},
	} {
		_, hidden, err := askedOf(t, properties(c.more), "")
		var got []string
		for _, h := range hidden {
			got = append(got, names[h.Fit])
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.more, got, err, c.want)
		}
	}
	for more, want := range map[string]evaluation.Fit{
		``:                           evaluation.Fits,
		`,"mismatch":["/context/x"]`: evaluation.FitUnknown,
		`,"reason":"schema_mismatch","mismatch":["/context/x"]`: evaluation.Misfits,
	} {
		for _, part := range []string{``, `,"part":true`} {
			line := aLine(`{"x":1,"masked:":2}`, `,"masked":[{"at":"/context","type":"object"`+part+`}]`+more)
			if _, hidden, err := askedOf(t, line, ""); err != nil || hidden[0].Fit != want {
				t.Errorf("%s: got %v, %v, want %v", line, hidden, err, want)
			}
		}
	}
}

// TestRecordsAreFoundByWhatWasOverruled: with the index, also if there is only one of the version before, which did not
// know of them. It is made anew.
func TestRecordsAreFoundByWhatWasOverruled(t *testing.T) {
	t.Parallel()
	l := indexedLog(t, memory(t), time.Now(), true)
	for n := range 300 {
		e := entry(fmt.Sprint("e", n))
		if e.Decision = (&record.Decision{Reason: "approval_required"}); n%20 == 5 {
			e.Decision.Overruled = []string{"asks", "other"}
		}
		mustAppend(t, l, e)
	}
	must(t, l.Rotate(t.Context()))
	found := func(when string) {
		t.Helper()
		page, err := l.Query(t.Context(), Query{Filter: record.Filter{Policy: "asks"}, Limit: 100})
		if err != nil || len(page.Lines) != 15 {
			t.Errorf("%s: %d records, %v", when, len(page.Lines), err)
		}
	}
	settled(t, l)
	found("with an index")
	segment := l.Layout()[0]
	terms := [][]string{{index.Term(index.TermPolicy, "asks")}}
	if list, upTo := l.index.Candidates(segment, terms); len(list) == 0 || upTo != segment.End {
		t.Errorf("the index names %v up to %d", list, upTo)
	}
	indexOfVersion2(t, filepath.Join(l.data, filepath.FromSlash(index.Dir), fmt.Sprintf(format.SegmentName, segment.Number)), terms[0][0])
	found("with an index of the version before")
	settled(t, l)
	if list, upTo := l.index.Candidates(segment, terms); len(list) == 0 || upTo != segment.End {
		t.Errorf("the index that is made anew names %v up to %d", list, upTo)
	}
	found("with the index made anew")
}

// indexOfVersion2 turns the index of a segment into what version 2 of it was, which lacks a term.
func indexOfVersion2(t *testing.T, name, term string) {
	t.Helper()
	db, err := bbolt.Open(name, 0o600, nil)
	if err == nil {
		err = db.Update(func(tx *bbolt.Tx) error {
			return errors.Join(tx.Bucket([]byte("meta")).Put([]byte("format"), []byte("2")), tx.Bucket([]byte("terms")).Delete([]byte(term)))
		})
	}
	if err == nil {
		err = db.Close()
	}
	must(t, err)
}
