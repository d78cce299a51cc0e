package mask_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/pdptest/night"
)

// texts yields every string of a value, names of members included.
func texts(v evaluation.Value, yield func(string)) {
	if v.Kind() == evaluation.String || v.Kind() == evaluation.Number {
		yield(v.Text())
	}
	for _, e := range v.Elements {
		texts(e, yield)
	}
	for name, m := range v.Object().Members {
		yield(name)
		texts(m, yield)
	}
}

// secrets are the strings of a context that a pattern or a name makes one, found in
// another way than package mask does: of the test's own names only.
func secrets(v evaluation.Value, masked bool, found map[string]bool) {
	if masked && (v.Kind() == evaluation.String || v.Kind() == evaluation.Number) && len(v.Text()) >= 8 {
		found[v.Text()] = true
	}
	for _, e := range v.Elements {
		secrets(e, masked, found)
	}
	for name, m := range v.Object().Members {
		secrets(m, masked || strings.Contains(name, "token"), found)
	}
}

// generated are contexts of few letters, so that secrets overlap, hold one another and
// turn up in names and texts; "masked:" makes them look like what replaces them.
func generated(r *rand.Rand, depth int) any {
	pieces := []string{"a", "b", "ab", "aaaa", "abababab", "masked:", "é", "\"", "\\", "\n", "1234"}
	text := func() string {
		var b strings.Builder
		for range r.IntN(6) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		return b.String()
	}
	switch n := r.IntN(8); {
	case n < 4 || depth == 0:
		return text()
	case n == 4:
		return r.IntN(2_000_000_000)
	case n == 5:
		return []any{text(), generated(r, 0)}
	default:
		members := map[string]any{}
		for range r.IntN(5) {
			name := text()
			if r.IntN(3) == 0 {
				name = fmt.Sprintf("token%d", r.IntN(9))
			}
			members[name] = generated(r, depth-1)
		}
		return members
	}
}

func TestNoSecretSurvives(t *testing.T) {
	t.Parallel()
	m := masker(t)
	for seed := range uint64(night.Cases(5_000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		context, err := evaluation.NewObject(map[string]any{"x": generated(r, 3), "token": generated(r, 2), "y": generated(r, 3)})
		if err != nil {
			t.Fatal(err)
		}
		holds(t, m, context)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// holds checks what must be true of any masked context: no secret in any string or
// name of it, in an obligation, or in a text; and equal values are equal afterwards.
func holds(t *testing.T, m *mask.Masker, context evaluation.Object) {
	t.Helper()
	found := map[string]bool{}
	secrets(context.Value(), false, found)
	k := m.Apply(evaluation.Request{Context: context})
	people := k.ForPeople(evaluation.Request{Context: context})
	made := []evaluation.Object{k.Request.Context, k.Object(context), people.Request.Context, people.Object(context)}
	var all []string
	for _, o := range made {
		texts(o.Value(), func(s string) { all = append(all, s) })
	}
	texts(context.Value(), func(s string) { all = append(all, k.Text(s)) })
	for secret := range found {
		for _, s := range all {
			if strings.Contains(s, secret) {
				t.Errorf("%q is left in %q", secret, s)
			}
		}
	}
	if again := m.Apply(evaluation.Request{Context: context}).Request.Context; !again.Value().Equal(made[0].Value()) {
		t.Error("the same context is masked in two ways")
	}
	if _, err := evaluation.ParseObject(mustJSON(t, made[0]), evaluation.DefaultLimits()); err != nil {
		t.Errorf("the masked context is no legal one: %v", err)
	}
}

func mustJSON(t *testing.T, o evaluation.Object) []byte {
	t.Helper()
	b, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzMask(f *testing.F) {
	for _, seed := range []string{`{"token":"hunter22","a":"hunter22"}`, `{"token":["masked:A","masked:B"],"masked:A":1}`, `{"token":1e9,"x":1000000000}`, `{"token":"aaaaaaaa","a":"aaaaaaaaaaaaaaaa"}`} {
		f.Add([]byte(seed))
	}
	m := masker(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		context, err := evaluation.ParseObject(text, evaluation.DefaultLimits())
		if err != nil {
			return
		}
		holds(t, m, context)
	})
}

// The worst a megabyte can be: many secrets that begin alike and long texts that
// nearly hold them. One after the other would be their product.
func TestHostileRequestsCostTheirSum(t *testing.T) {
	night.Measures(t)
	alike, long := strings.Repeat("a", 60), strings.Repeat("a", 100_000)
	for name, context := range map[string]map[string]any{
		"many alike":    {"tokens": numbered(4000, alike), "x": []string{long, long, long}},
		"one long":      {"token": strings.Repeat("ab", 200_000), "x": strings.Repeat("ab", 199_999) + "aa"},
		"each a prefix": {"tokens": prefixes(1000), "x": []string{long, long}},
		"all found":     {"token": "aaaaaaab", "x": strings.Repeat("aaaaaaab", 80_000)},
		"many quotes":   {"x": strings.Repeat("\"a\" ", 100_000), "y": strings.Repeat("\"", 100_000)},
		"many strings":  {"tokens": 1, "x": numbered(4000, `{"token":"`+alike+`"}`), "y": numbered(4000, `{"token":"`+alike)},
		"in each other": {"x": quoted(`{"token":"hunter22"}`, 13), "y": quoted(`{"token":"hunter22`, 13)},
		"many names":    {"x": map[string]any{"token": strings.Repeat("x", 500_000)}, "token": 1},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := evaluation.NewObject(context)
			if err != nil {
				t.Fatal(err)
			}
			fastest := time.Duration(math.MaxInt64)
			for range 5 { // what stands in the way of one, on a busy machine, is not masking's
				m, start := masker(t), time.Now()
				m.Apply(evaluation.Request{Context: o})
				fastest = min(fastest, time.Since(start))
			}
			if t.Logf("%d bytes in %v", len(mustJSON(t, o)), fastest); fastest > 5*time.Second {
				t.Error("this is no sum")
			}
		})
	}
}

func numbered(n int, text string) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s%08d", text, i))
	}
	return all
}

func prefixes(n int) (all []string) {
	for i := range n {
		all = append(all, strings.Repeat("a", i+8)+"b")
	}
	return all
}

// What does masking add to a usual request: one with two secrets, and one with none?
func BenchmarkMask(b *testing.B) {
	m := masker(b, "/context/arguments/*/pin")
	for name, context := range map[string]string{
		"no_secret":   `{"arguments":{"title":"Server outage","body":"The server in Frankfurt is down."},"workflow_id":"wf-abc","agent_invocation_id":"inv-789"}`,
		"two_secrets": `{"arguments":{"title":"Server outage","card":{"pin":"12345678"},"body":"use 12345678 or hunter22 now"},"token":"hunter22"}`,
	} {
		b.Run(name, func(b *testing.B) {
			r := request(b, context)
			b.ReportAllocs()
			for b.Loop() {
				m.Apply(r)
			}
		})
	}
}
