package evaluation_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/night"
)

// narrow are limits that a generated request is often beyond.
func narrow() evaluation.Limits {
	l := evaluation.DefaultLimits()
	l.Body, l.Depth, l.Elements, l.NestedElements, l.Values = 4000, 6, 6, 3, 60
	return l
}

// oddly are limits within which nearly everything can be read.
func oddly() evaluation.Limits {
	l := wider()
	l.ArrayDepth, l.Elements, l.NestedElements = 9, 9999, 9999
	return l
}

// ofParts are requests with an object at each place where a request has one. It may hold what no body would keep.
func ofParts(o evaluation.Object) []evaluation.Request {
	q := evaluation.Request{
		Subject:  evaluation.Entity{Type: "user", ID: "alice"},
		Action:   evaluation.Action{Name: "tool.invoke"},
		Resource: evaluation.Entity{Type: "tool", ID: "wiki:search"},
	}
	all := []evaluation.Request{q, q, q, q, q}
	all[0].Subject.Properties = o
	all[1].Action.Properties = o
	all[2].Resource.Properties = o
	all[3].Context = o
	all[4].Context = evaluation.Object{}.With("arguments", o.Value())
	return all
}

// plainly holds that a plain request is read as it is, and returns how many of them are plain.
func plainly(t *testing.T, o evaluation.Object) (n int) {
	t.Helper()
	for _, limits := range []evaluation.Limits{narrow(), evaluation.DefaultLimits()} {
		for at, q := range ofParts(o) {
			if !q.Plain(limits) {
				continue
			}
			n++
			text, err := q.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			q.Tenant = "t1"
			again, err := evaluation.DecodeAuthZEN(text, "t1", limits)
			if err != nil || !equal(q, again) {
				t.Errorf("%d: %s\nis plain, and read as %+v, %v", at, text, again, err)
			}
		}
	}
	return n
}

// oddNames are those that mean something somewhere, or are read as something else.
var oddNames = []string{
	"a", "b", "arguments", "context", "content", "action", "pdp", "approval", "approval_id", "person", "supported_obligations",
	"__entity", "__extn", "é", "\x00", `"`, "options",
}

// oddValue is a JSON value such as no client would send, and many would.
func oddValue(r *rand.Rand, deep int) string {
	switch n := r.IntN(10); {
	case n < 3 || deep == 0:
		return []string{"null", "true", "1", "1.50", "1e400", `"x"`, `"\u2028<\u0000"`, `"` + strings.Repeat("x", r.IntN(900)) + `"`}[r.IntN(8)]
	case n < 5:
		all := make([]string, r.IntN(8))
		for i := range all {
			all[i] = oddValue(r, deep-1)
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	return oddObject(r, deep-1)
}

func oddObject(r *rand.Rand, deep int) string {
	var all []string
	for _, n := range r.Perm(len(oddNames))[:r.IntN(4)] {
		if name := oddNames[n]; !strings.HasPrefix(name, "__") || r.IntN(9) == 0 {
			all = append(all, fmt.Sprintf("%s:%s", quoted(name), oddValue(r, deep)))
		}
	}
	return "{" + strings.Join(all, ",") + "}"
}

func quoted(name string) string {
	v, _ := evaluation.Text(name)
	text, _ := v.MarshalJSON()
	return string(text)
}

func TestPropertyPlainRequestsAreReadAsTheyAre(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	all, n := night.Cases(4000), 0
	for range all {
		o, err := evaluation.ParseWithNulls([]byte(oddObject(r, 8)), oddly())
		if err == nil {
			n += plainly(t, o)
		}
	}
	if n < all || n > 9*all {
		t.Errorf("of %d requests %d are plain: the test shows little", 10*all, n)
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for context, plain := range map[string]bool{
		`{}`: true,
		`{"arguments":{"title":null,"n":[1,null,{"a":null}]},"purpose":"support"}`:                                                     true,
		`{"supported_obligations":["log"],"person":"` + evaluation.PersonOf("i", "s") + `","on_behalf_of":[{"type":"user","id":"a"}]}`: true,
		`{"text":"` + strings.Repeat("x", 8000) + `"}`:                                                                                 true,
		`{"text":"` + strings.Repeat("x", 9000) + `"}`:                                                                                 false,
		`{"purpose":null}`:                           false,
		`{"arguments":null}`:                         false,
		`{"a":[null]}`:                               false,
		`{"a":[[[1]]]}`:                              false,
		`{"pdp":{}}`:                                 false,
		`{"action":"a"}`:                             false,
		`{"approval":{"id":"a"}}`:                    false,
		`{"approval_id":"a"}`:                        false,
		`{"person":"mia"}`:                           false,
		`{"supported_obligations":[1]}`:              false,
		`{"a":[1` + strings.Repeat(",1", 999) + `]}`: false,
	} {
		o, err := evaluation.ParseWithNulls([]byte(context), oddly())
		if err != nil {
			t.Fatal(err)
		}
		q := evaluation.Request{Context: o}
		if q.Plain(evaluation.DefaultLimits()) != plain {
			t.Errorf("%.99s is plain: %t", context, !plain)
		}
	}
	unknown := evaluation.Request{Unknown: &evaluation.Unknown{}}
	if unknown.Plain(evaluation.DefaultLimits()) {
		t.Error("what is unknown is plain")
	}
	odd := evaluation.Request{Subject: evaluation.Entity{Type: "user", ID: "\xff"}}
	if odd.Plain(evaluation.DefaultLimits()) {
		t.Error("what is not UTF-8 is plain")
	}
}

// An array or an object costs something to read and to decide about even if nothing is in it.
func TestPlainCountsEmptyContainers(t *testing.T) {
	t.Parallel()
	row := "[{}" + strings.Repeat(",{}", 126) + "]"
	o, err := evaluation.ParseWithNulls([]byte(`{"a":[`+row+strings.Repeat(","+row, 126)+`]}`), evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	q := evaluation.Request{Context: o}
	text, err := q.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if q.Plain(evaluation.DefaultLimits()) {
		t.Errorf("a request of %d bytes, with nothing but empty objects, is plain", len(text))
	}
	small := evaluation.DefaultLimits()
	small.Body = len(text) - 1
	if _, err := evaluation.DecodeAuthZEN(text, "", small); err == nil || q.Plain(small) {
		t.Errorf("a request larger than a body may be is plain: as text, %v", err)
	}
}

// Whoever sets limits may have arrays of anything be shorter than arrays of arrays.
func TestPlainHoldsArraysToBothLimits(t *testing.T) {
	t.Parallel()
	o, err := evaluation.ParseWithNulls([]byte(`{"a":[1,2,3,4,5]}`), evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	limits := evaluation.DefaultLimits()
	limits.Elements = 4
	if q := (evaluation.Request{Context: o}); q.Plain(limits) {
		t.Error("an array longer than any may be is plain")
	}
}

func FuzzPlain(f *testing.F) {
	for _, body := range bodies {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if o, err := evaluation.ParseWithNulls(body, oddly()); err == nil {
			plainly(t, o)
		}
	})
}
