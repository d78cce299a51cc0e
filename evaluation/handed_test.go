package evaluation_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/night"
)

// handedAsSent holds that a request, if it can be handed over, is what a reader makes of its JSON. It reports whether it can.
func handedAsSent(t *testing.T, q evaluation.Request, limits evaluation.Limits) bool {
	t.Helper()
	h, ok := evaluation.HandOver(q)
	if !ok {
		return false
	}
	text, err := q.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	told := func(q evaluation.Request, err error) string {
		return fmt.Sprintf("%s %t\nerror: %v, %+v", requestTold(q), q.PassesOver, err, err)
	}
	if got, want := told(h.Decode("t1", limits)), told(evaluation.DecodeAuthZEN(text, "t1", limits)); got != want {
		t.Fatalf("%s\nis handed over as\n%s\nand sent as\n%s", text, got, want)
	}
	if read, err := io.ReadAll(h); err != nil || string(read) != string(text) || len(text) > h.Size() {
		t.Fatalf("%s\nhas at most %d bytes, and is read as\n%s, %v", text, h.Size(), read, err)
	}
	return true
}

// TestPropertyHandedAsSent makes requests of what other tests send, also of what no body may hold in that place.
func TestPropertyHandedAsSent(t *testing.T) {
	t.Parallel()
	var objects []evaluation.Object
	for _, body := range corpusFor(t) {
		for _, batch := range []string{"", "evaluations"} {
			for _, limits := range []evaluation.Limits{wider(), evaluation.DefaultLimits()} {
				if o, _, err := evaluation.ParseStrictly([]byte(body), limits, batch, evaluation.InArguments); err == nil {
					objects = append(objects, o)
				}
				if o, _, err := evaluation.ParseStrictly([]byte(body), limits, batch, evaluation.InBody); err == nil {
					objects = append(objects, o)
					for _, v := range o.All { // a context by itself, for one
						objects = append(objects, v.Object())
					}
				}
			}
		}
	}
	r := rand.New(rand.NewPCG(30, 11))
	names := []string{"", "user", "a\"b\\c\n", "é😀", "\xff", "\x00", strings.Repeat("x", 200)}
	name := func() string { return names[r.IntN(len(names))%(1+r.IntN(len(names)))] }
	pick := func() evaluation.Object {
		if r.IntN(2) == 0 {
			return evaluation.Object{}
		}
		return objects[r.IntN(len(objects))]
	}
	members := []string{"arguments", "approval", "approval_id", "capability", "on_behalf_of", "person", "pdp", "__entity", "supported_obligations", "a"}
	all, handed := night.Cases(20_000), 0
	for range all {
		q := evaluation.Request{
			Shape: evaluation.Shape(r.IntN(2)), Tenant: name(), PassesOver: r.IntN(2) == 0,
			Subject: evaluation.Entity{Type: name(), ID: name(), Properties: pick()}, Action: evaluation.Action{Name: name(), Properties: pick()},
			Resource: evaluation.Entity{Type: name(), ID: name(), Properties: pick()}, Context: pick(),
		}
		for range r.IntN(3) {
			q.Context = q.Context.With(members[r.IntN(len(members))], pick().Value())
		}
		for _, limits := range []evaluation.Limits{evaluation.DefaultLimits(), tight(), {Body: 400, Depth: 16, Values: 20}} {
			if handedAsSent(t, q, limits) {
				handed++
			}
		}
	}
	if handed < all/4 || handed > 3*all*3/4 {
		t.Errorf("%d of %d are handed over: the test shows little", handed, 3*all)
	}
}

// TestHandOver: what is usual is handed over, also to its largest size, and nothing larger, nor what asks for what is possible.
func TestHandOver(t *testing.T) {
	t.Parallel()
	q, err := evaluation.DecodeAuthZEN([]byte(shapes["AuthZEN"].body), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]bool{0: true, 1 << 10: true, evaluation.MostHanded - 1<<10: true, evaluation.MostHanded: false} {
		text, err := evaluation.Text(strings.Repeat("x", n))
		if err != nil {
			t.Fatal(err)
		}
		q.Context = q.Context.With("arguments", evaluation.Object{}.With("text", text).Value())
		if got := handedAsSent(t, q, evaluation.DefaultLimits()); got != want {
			t.Errorf("with %d bytes: %t", n, got)
		}
	}
	q.Context = evaluation.Object{}
	if q.Unknown, err = evaluation.UnknownAt("/context/a"); err != nil {
		t.Fatal(err)
	}
	if handedAsSent(t, q, evaluation.DefaultLimits()) {
		t.Error("a question about what is possible")
	}
}
