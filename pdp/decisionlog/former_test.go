package decisionlog

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/night"
)

// former is the encoder of before: each member is made by package json, and each finished value is read once more. The
// lines of a log must not depend on which of the two made them.
type former struct {
	out []byte
	err error
}

func (f *former) raw(name string, v jsontext.Value) {
	if len(v) == 0 || f.err != nil {
		return
	}
	f.out = append(append(append(f.out, `,"`...), name...), `":`...)
	f.out, f.err = jsontext.AppendFormat(f.out, v)
}

func (f *former) made(name string, v any) {
	text, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if f.err == nil {
		f.err = err
	}
	f.raw(name, text)
}

func (f *former) text(name, s string) {
	if s != "" {
		f.made(name, s)
	}
}

func (f *former) list(name string, items any, empty bool) {
	if v := reflect.ValueOf(items); v.Len() > 0 || empty && !v.IsNil() {
		f.made(name, items)
	}
}

// formerLine is the line of an entry without its salt.
func formerLine(e Entry, sequence uint64, at time.Time, behind bool) (string, error) {
	f := &former{}
	if !e.Now.IsZero() {
		f.text("now", e.Now.UTC().Format(TimeLayout))
	}
	f.text("tenant", e.Tenant)
	f.text("kind", e.Kind)
	f.text("caller", e.Caller)
	f.list("declared", e.Declared, true)
	f.text("request_id", e.RequestID)
	f.text("trace_id", e.TraceID)
	if q := e.Request; q != nil {
		request := formerParts(e)
		f.raw("request", append(append(jsontext.Value{'{'}, strings.TrimPrefix(string(request.out), ",")...), '}'))
		if f.err == nil {
			f.err = request.err
		}
		if q.Shape == evaluation.Native {
			f.text("shape", "native")
		}
		f.list("masked", q.Masked, true)
		f.list("unknown", q.Unknown, true)
	}
	f.list("inherits", e.Inherits, false)
	if s := e.Search; s != nil {
		f.text("query", string(s.Query))
		f.list("found", s.Found, false)
		f.made("examined", s.Examined)
		f.text("bundle", s.Bundle)
	}
	if d := e.Decision; d != nil {
		if d.Possible == evaluation.Decided {
			f.made("decision", d.Allow)
		} else {
			f.made("possible", d.Possible == evaluation.Possible)
		}
		if d.Approved {
			f.made("approved", true)
		}
		f.text("reason", d.Reason)
		f.text("reason_user", d.ReasonUser)
		f.list("determining", d.Determining, false)
		f.list("overruled", d.Overruled, false)
		f.list("errors", d.Errors, false)
		f.list("obligations", formerObligations(d.Obligations), false)
		f.list("required", d.Required, false)
		f.list("left_out", d.LeftOut, false)
		f.list("discharged", d.Discharged, false)
		f.list("mismatch", d.Mismatch, false)
		f.text("bundle", d.Bundle)
	}
	f.text("event", e.Event)
	f.raw("details", e.Details)
	head := &former{}
	head.made("id", e.ID)
	head.text("time", at.Format(TimeLayout))
	if behind {
		head.made("clock_behind", true)
	}
	return `{"sequence":` + strconv.FormatUint(sequence, 10) + string(head.out) + string(f.out), f.err
}

func formerParts(e Entry) *former {
	f, q := &former{}, e.Request
	if q.Asked == nil {
		f.raw("subject", q.Subject)
		f.raw("action", q.Action)
		f.raw("resource", q.Resource)
		f.raw("context", q.Context)
		return f
	}
	r := q.Asked
	if e.Kind == KindBatch {
		for _, part := range []struct {
			name string
			has  bool
			o    evaluation.Object
		}{{"subject", q.Shared.Subject, r.Subject.Properties}, {"action", q.Shared.Action, r.Action.Properties}, {"resource", q.Shared.Resource, r.Resource.Properties}} {
			if part.has {
				f.made(part.name, map[string]any{"properties": part.o})
			}
		}
		if q.Shared.Context {
			f.made("context", r.Context)
		}
		return f
	}
	entity := func(name string, of evaluation.Entity, kind evaluation.SearchKind) {
		if e.Search != nil && e.Search.Query == kind {
			f.made(name, map[string]string{"type": of.Type})
			return
		}
		f.made(name, of)
	}
	entity("subject", r.Subject, evaluation.SubjectSearch)
	if e.Search == nil || e.Search.Query != evaluation.ActionSearch {
		f.made("action", r.Action)
	}
	entity("resource", r.Resource, evaluation.ResourceSearch)
	if r.Context.Len() > 0 {
		f.made("context", r.Context)
	}
	return f
}

type formerObligation struct {
	ID         string            `json:"id"`
	Type       string            `json:"type"`
	Properties evaluation.Object `json:"properties"`
}

func formerObligations(all []evaluation.Obligation) (out []formerObligation) {
	for _, o := range all {
		out = append(out, formerObligation{o.ID, o.Type, o.Properties})
	}
	return out
}

// strange draws strings that need care in JSON, and in UTF-8.
func strange(r *rand.Rand) string {
	some := []string{"", "a", "user", "0197f0c0-0000-7000-8000-000000000000", `"`, `\`, "\n", "\r\t\b\f", "\x00\x1f", "\x7f", "é", "\u2028\u2029", "<&>", "\U0001F600", "\uFFFD",
		"\xff", "\xff\xfe", "\xed\xa0\x80", "\xc3", "masked:x", "/context/a~1b", strings.Repeat("long", 80)}
	text := ""
	for range 1 + r.IntN(3) {
		text += some[r.IntN(len(some))]
	}
	return text
}

// valid draws such strings that are UTF-8.
func valid(r *rand.Rand) string { return strings.ToValidUTF8(strange(r), "?") }

// filled gives v, and all that is in it, drawn values: nil, empty and longer lists among them. What has no place in a line
// is drawn, too.
func filled(r *rand.Rand, v reflect.Value, text func(*rand.Rand) string) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(moment(r)))
		return
	case jsontext.Value:
		v.Set(reflect.ValueOf(jsontext.Value([]string{"", `{}`, "{\n\"a\" : [1.0, \"\\u00e9\\/\"],\t\"decision\":\"x\"}", `{"approval":"é"}`, `{"approval":1}`}[r.IntN(5)])))
		return
	case evaluation.Object:
		v.Set(reflect.ValueOf(someObject(r, 2)))
		return
	case *evaluation.Unknown:
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text(r))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(r.IntN(2000) - 1000))
	case reflect.Uint8:
		v.SetUint(uint64(r.IntN(2)))
	case reflect.Pointer:
		if r.IntN(4) == 0 {
			v.SetZero()
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		filled(r, v.Elem(), text)
	case reflect.Slice:
		v.SetZero()
		if n := r.IntN(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n-1, n-1))
		}
		for i := range v.Len() {
			filled(r, v.Index(i), text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			filled(r, v.Field(i), text)
		}
	default:
		panic(fmt.Sprintf("a %s in an entry: draw it here", v.Type()))
	}
}

func moment(r *rand.Rand) time.Time {
	if r.IntN(5) == 0 {
		return []time.Time{{}, time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC), time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 0)}[r.IntN(5)]
	}
	at := time.Unix(r.Int64N(4e9), []int64{0, 7, 120_000_000, r.Int64N(1e9)}[r.IntN(4)])
	return at.In(time.FixedZone("", 60*(r.IntN(1440)-720)))
}

func someObject(r *rand.Rand, depth int) evaluation.Object {
	members := map[string]any{}
	for range r.IntN(4) {
		members[strings.ToValidUTF8(strange(r), "?")+"m"] = someValue(r, depth)
	}
	if r.IntN(4) == 0 {
		members["arguments"] = map[string]any{"null": nil, "n": someValue(r, 0)}
	}
	o, err := evaluation.NewObject(members)
	if err != nil {
		panic(err)
	}
	return o
}

func someValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(6); {
	case n == 0 && depth > 0:
		return someObject(r, depth-1)
	case n == 1 && depth > 0:
		return []any{someValue(r, depth-1), someValue(r, depth-1)}
	case n == 2:
		return r.IntN(2) == 0
	case n == 3:
		return []any{1.5e300, -0.25, int64(-1 << 62), uint64(1 << 63), 0, 1.0}[r.IntN(6)]
	}
	return strings.ToValidUTF8(strange(r), "\uFFFD")
}

// someEntry draws an entry of any kind with any members, and with such texts.
func someEntry(r *rand.Rand, text func(*rand.Rand) string) (e Entry) {
	filled(r, reflect.ValueOf(&e).Elem(), text)
	e.Kind, e.Questions = []string{KindDecision, KindSearch, KindBatch, KindAdmin, KindReceipt, KindPossible}[r.IntN(6)], nil
	if (e.Kind == KindDecision || e.Kind == KindPossible) && e.Decision == nil {
		e.Decision = &Decision{}
	}
	if e.Kind == KindSearch && e.Search == nil {
		e.Search = &Search{}
	}
	if e.Search != nil && e.Decision != nil {
		e.Search.Bundle = "" // a line has one
	}
	if e.Search != nil && r.IntN(4) > 0 {
		e.Search.Query = []evaluation.SearchKind{evaluation.SubjectSearch, evaluation.ResourceSearch, evaluation.ActionSearch}[r.IntN(3)]
	}
	return e
}

// asking makes of an entry one of questions about what is possible.
func asking(r *rand.Rand, e *Entry, text func(*rand.Rand) string) {
	e.Kind, e.Search, e.Decision, e.Questions = KindPossible, nil, nil, &Questions{Bundle: text(r)}
	e.Request = &Request{Asked: &evaluation.Request{}}
	filled(r, reflect.ValueOf(&e.Questions.Same).Elem(), text)
	for n := range r.IntN(5) {
		q := Question{N: n, Request: &Request{Asked: &evaluation.Request{}}, Decision: &Decision{}}
		filled(r, reflect.ValueOf(q.Request.Asked).Elem(), text)
		filled(r, reflect.ValueOf(q.Decision).Elem(), text)
		q.Decision.Possible, q.Decision.Bundle = evaluation.PossibilityOf(r.IntN(2) == 0), ""
		e.Questions.All = append(e.Questions.All, q)
	}
}

var saltOfLine = regexp.MustCompile(`,"salt":"[A-Za-z0-9_-]{22}"}$`)

// checkLine holds the line of an entry against that of the encoder of before.
func checkLine(t *testing.T, e Entry, sequence uint64, at time.Time, behind bool) {
	t.Helper()
	want, wrong := formerLine(e, sequence, at, behind)
	p, err := prepare(&e, e.ID, Options{}.withDefaults().Kinds)
	if wrong != nil || err != nil {
		if (wrong == nil) != (err == nil) {
			t.Fatalf("%+v: got %v, want %v", e, err, wrong)
		}
		return
	}
	p.finish(sequence, at, behind)
	line := string(p.line)
	if !saltOfLine.MatchString(line) {
		t.Fatalf("%s: it has no salt at its end", line)
	}
	if got := saltOfLine.ReplaceAllString(line, ""); got != want {
		t.Fatalf("%+v:\ngot  %s\nwant %s", e, got, want)
	}
	if body := string(p.body); !strings.HasSuffix(want, body) || len(p.body)+len(`,"salt":"0123456789012345678901"}`) > len(p.line) {
		t.Fatalf("%s: its body is %s", line, body)
	}
	p.done()
}

// A line has exactly the bytes that it had when each member was made by itself, whatever is on record.
func TestLinesAreThoseOfBefore(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range night.Cases(10_000) {
		checkLine(t, someEntry(r, strange), r.Uint64()>>r.IntN(64), moment(r).UTC(), r.IntN(2) == 0)
	}
}

func FuzzLinesAreThoseOfBefore(f *testing.F) {
	f.Add(uint64(1), "a", `{"a":1}`, int64(0))
	f.Add(uint64(2), "\xff\xed\xa0\x80\u2028\"\\\x01", "{\"a\" : \"\\u0041\",\n\"b\":[ ]}", int64(1e18))
	f.Add(uint64(3), "é", `{"a":1,"a":2}`, int64(-1))
	f.Fuzz(func(t *testing.T, seed uint64, text, value string, at int64) {
		e := someEntry(rand.New(rand.NewPCG(seed, 0)), strange)
		e.ID, e.Tenant, e.RequestID = text+"1", text, text+text
		e.Details = jsontext.Value(value)
		if e.Request != nil {
			e.Request.Masked = append(e.Request.Masked, evaluation.Hidden{At: text, Type: text})
			e.Request.Subject = jsontext.Value(value)
			if e.Request.Asked != nil {
				e.Request.Asked.Subject.ID = text
			}
		}
		checkLine(t, e, seed, time.Unix(0, at).UTC(), seed%2 == 0)
	})
}

// refused reports whether the encoder of before refuses an entry.
func refused(e Entry) bool {
	_, err := formerLine(e, 0, time.Time{}, false)
	return err != nil
}

// What records are written on is used again, by any of them: nothing of one is ever in another.
func TestNoRecordHasBytesOfAnother(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, memory(t), Options{SegmentBytes: 512 << 10})
	const callers, calls = 16, 30
	var all [callers][]Entry
	var writing sync.WaitGroup
	for caller := range callers {
		writing.Go(func() {
			r := rand.New(rand.NewPCG(uint64(caller), 0))
			for n := range calls {
				entries := make([]Entry, 1+r.IntN(4))
				for i := range entries {
					entries[i] = someEntry(r, strange)
					entries[i].ID, entries[i].Caller = fmt.Sprintf("%d-%d-%d", caller, n, i), fmt.Sprint("key:", caller)
					entries[i].Now = time.Unix(r.Int64N(4e9), r.Int64N(1e9)) // which can be read back
					entries[i].RequestID = strings.Repeat(fmt.Sprint("r", caller, "-"), r.IntN(2000))
				}
				err := l.Append(t.Context(), entries)
				if err == nil {
					all[caller] = append(all[caller], entries...)
				} else if !slices.ContainsFunc(entries, refused) {
					t.Errorf("it is refused: %v", err)
				}
			}
		})
	}
	writing.Wait()
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	records := map[string]Record{}
	for record, err := range l.Records(t.Context(), 0, l.Size()) {
		if err != nil {
			t.Fatal(err)
		}
		records[idOf(record.Line)] = record
	}
	salts := map[string]bool{}
	for _, entries := range all {
		for _, e := range entries {
			record := records[e.ID]
			got, err := Parse(record.Line)
			if err != nil {
				t.Fatal(err)
			}
			want, err := formerLine(e, record.Sequence, got.Time, got.ClockBehind)
			salt := saltOfLine.FindString(string(record.Line))
			if line := string(record.Line); err != nil || line != want+salt || salts[salt] {
				t.Fatalf("%v, its salt is that of another: %v\ngot  %s\nwant %s", err, salts[salt], line, want)
			}
			salts[salt] = true
		}
	}
	if len(salts) < callers*calls {
		t.Errorf("only %d records", len(salts))
	}
}
