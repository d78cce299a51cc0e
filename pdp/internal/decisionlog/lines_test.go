package decisionlog

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/pdptest/night"
)

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
	case reflect.Uint64:
		v.SetUint(r.Uint64N(3))
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
func someEntry(r *rand.Rand, text func(*rand.Rand) string) (e record.Entry) {
	filled(r, reflect.ValueOf(&e).Elem(), text)
	e.Kind, e.Questions = []string{format.KindDecision, format.KindSearch, format.KindBatch, format.KindAdmin, format.KindReceipt, format.KindPossible}[r.IntN(6)], nil
	if (e.Kind == format.KindDecision || e.Kind == format.KindPossible) && e.Decision == nil {
		e.Decision = &record.Decision{}
	}
	if e.Kind == format.KindSearch && e.Search == nil {
		e.Search = &record.Search{}
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
func asking(r *rand.Rand, e *record.Entry, text func(*rand.Rand) string) {
	e.Kind, e.Search, e.Decision, e.Questions = format.KindPossible, nil, nil, &record.Questions{Bundle: text(r)}
	e.Request = &record.Request{Asked: &evaluation.Request{}}
	filled(r, reflect.ValueOf(&e.Questions.Same).Elem(), text)
	for n := range r.IntN(5) {
		q := record.Question{N: n, Request: &record.Request{Asked: &evaluation.Request{}}, Decision: &record.Decision{}}
		filled(r, reflect.ValueOf(q.Request.Asked).Elem(), text)
		filled(r, reflect.ValueOf(q.Decision).Elem(), text)
		q.Decision.Possible, q.Decision.Bundle = evaluation.PossibilityOf(r.IntN(2) == 0), ""
		e.Questions.All = append(e.Questions.All, q)
	}
}

var saltOfLine = regexp.MustCompile(`,"salt":"[A-Za-z0-9_-]{22}"}$`)

// lineMade is the line of an entry without its salt. It has no line if a value in it is no JSON.
func lineMade(e record.Entry, sequence uint64, at time.Time, behind bool) (string, error) {
	p, err := prepare(&e, e.ID, Options{}.withDefaults().Kinds)
	if err != nil {
		return "", err
	}
	p.finish(sequence, at, behind)
	return saltOfLine.ReplaceAllString(string(p.line), ""), nil
}

// checkLine reads the line of an entry: it is one JSON object without whitespace and doubles, and says what the entry does.
func checkLine(t *testing.T, e record.Entry, sequence uint64, at time.Time, behind bool) {
	t.Helper()
	p, err := prepare(&e, e.ID, Options{}.withDefaults().Kinds)
	if err != nil {
		if !slices.ContainsFunc(valuesOf(&e), func(v jsontext.Value) bool { return len(v) > 0 && !v.IsValid() }) {
			t.Fatalf("%+v: %v", e, err)
		}
		return
	}
	p.finish(sequence, at, behind)
	line, compact := string(p.line), jsontext.Value(slices.Clone(p.line))
	if err := compact.Compact(); err != nil || string(compact) != line || !saltOfLine.MatchString(line) {
		t.Fatalf("%s: it is not compact JSON with a salt: %v", line, err)
	}
	if body := string(p.body); !strings.HasSuffix(saltOfLine.ReplaceAllString(line, ""), body) {
		t.Fatalf("%s: its body is %s", line, body)
	}
	if y := e.Now.UTC().Year(); y > 9999 || at.Year() > 9999 {
		return // which cannot be read
	}
	got, err := record.Parse([]byte(line))
	must(t, err)
	says := func(name string, got, want any) {
		t.Helper()
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Fatalf("%s: %s is %q, want %q", line, name, got, want)
		}
	}
	mended := func(some ...string) (all []string) {
		for _, text := range some {
			quoted, _ := jsontext.AppendQuote(nil, text)
			mended, _ := jsontext.AppendUnquote(nil, quoted)
			all = append(all, string(mended))
		}
		return all
	}
	says("texts", []string{got.ID, got.Tenant, got.Kind, got.Caller, got.RequestID, got.TraceID, got.Event},
		mended(e.ID, e.Tenant, e.Kind, e.Caller, e.RequestID, e.TraceID, e.Event))
	says("numbers", fmt.Sprint(got.Sequence, got.ClockBehind, got.Time.Equal(at), got.Now.Equal(e.Now)), fmt.Sprint(sequence, behind, true, true))
	says("declared", got.Declared, mended(e.Declared...))
	says("inherits", got.Inherits, mended(e.Inherits...))
	if d := e.Decision; d != nil {
		says("reasons", []string{got.Reason, got.ReasonUser}, mended(d.Reason, d.ReasonUser))
		says("determining", got.Determining, mended(d.Determining...))
		says("overruled", got.Overruled, mended(d.Overruled...))
		says("mismatch", got.Mismatch, mended(d.Mismatch...))
		says("answer", fmt.Sprint(got.Decision != nil && *got.Decision, got.Possible != nil && *got.Possible, got.Approved),
			fmt.Sprint(d.Possible == evaluation.Decided && d.Allow, d.Possible == evaluation.Possible, d.Approved))
		says("lists", fmt.Sprint(len(got.Errors), len(got.Obligations), len(got.Discharged)), fmt.Sprint(len(d.Errors), len(d.Obligations), len(d.Discharged)))
	}
	if s := e.Search; s != nil {
		says("found", got.Found, mended(s.Found...))
		says("examined", fmt.Sprint(got.Query, got.Examined), fmt.Sprint(mended(string(s.Query))[0], s.Examined))
	}
}

// valuesOf are the finished JSON values in an entry.
func valuesOf(e *record.Entry) []jsontext.Value {
	all := []jsontext.Value{e.Details}
	if q := e.Request; q != nil {
		all = append(all, q.Subject, q.Action, q.Resource, q.Context)
	}
	return all
}

// A line says what its entry does, whatever is on record.
func TestLinesSayWhatIsOnRecord(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range night.Cases(10_000) {
		checkLine(t, someEntry(r, strange), r.Uint64()>>r.IntN(64), moment(r).UTC(), r.IntN(2) == 0)
	}
}

func FuzzLinesSayWhatIsOnRecord(f *testing.F) {
	f.Add(uint64(1), "a", `{"a":1}`, int64(0))
	f.Add(uint64(2), "\xff\xed\xa0\x80\u2028\"\\\x01", "{\"a\" : \"\\u0041\",\n\"b\":[ ]}", int64(1e18))
	f.Add(uint64(3), "é", `{"a":1,"a":2}`, int64(-1))
	f.Add(uint64(32), "0", "0", int64(-91))
	f.Fuzz(func(t *testing.T, seed uint64, text, value string, at int64) {
		e := someEntry(rand.New(rand.NewPCG(seed, 0)), strange)
		e.ID, e.Tenant, e.RequestID = text+"1", text, text+text
		e.Details = jsontext.Value(value)
		if e.Request != nil {
			e.Request.Masked = append(e.Request.Masked, evaluation.Hidden{At: text, Type: text})
			e.Request.Subject = jsontext.Value(`{"type":"user","id":"alice","properties":` + value + `}`) // no mask hides more of it
			if e.Request.Asked != nil {
				e.Request.Asked.Subject.ID = text
			}
		}
		checkLine(t, e, seed, time.Unix(0, at).UTC(), seed%2 == 0)
	})
}

// refused reports whether an entry has no line.
func refused(e record.Entry) bool {
	_, err := lineMade(e, 0, time.Time{}, false)
	return err != nil
}
