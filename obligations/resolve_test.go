package obligations_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// owed reads "policy name type on {properties}".
func owed(t testing.TB, lines ...string) []obligations.Owed {
	t.Helper()
	var all []obligations.Owed
	for _, line := range lines {
		part := strings.SplitN(line, " ", 5)
		typ, ok := obligations.Lookup(part[2])
		if !ok {
			t.Fatalf("%s: no type", line)
		}
		on := map[string]obligations.On{"allow": obligations.OnAllow, "deny": obligations.OnDeny, "both": obligations.OnBoth}[part[3]]
		all = append(all, obligations.Owed{Policy: part[0], Definition: &obligations.Definition{Name: part[1], Type: typ, On: on, Properties: object(t, part[4])}})
	}
	return all
}

// said is an outcome in one line.
func said(t testing.TB, out obligations.Resolution) string {
	t.Helper()
	var parts []string
	for _, o := range out.Obligations {
		parts = append(parts, fmt.Sprintf("%s %s %s of %s", o.ID, o.Type, text(t, o.Properties), strings.Join(o.Policies, ",")))
	}
	for _, l := range out.LeftOut {
		parts = append(parts, fmt.Sprintf("without %s: %s", l.ID, l.Reason))
	}
	if out.Conflict {
		parts = append(parts, "conflict")
	}
	if out.Unfilled {
		parts = append(parts, "unfilled")
	}
	return strings.Join(parts, "; ")
}

func TestResolve(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		owed        []string
		allow, deny string
	}{
		{"nothing", nil, "", ""},
		{"by what it comes with", []string{"p a log allow {}", "p b log deny {\"x\":1}", "p c redact both {}"},
			"a log {} of p; c redact {} of p", `b log {"x":1} of p; c redact {} of p`},
		{"in order of names, not of policies", []string{"p1 z log both {\"n\":1}", "p2 a log both {\"n\":2}", "p3 B log both {\"n\":3}"},
			`B log {"n":3} of p3; a log {"n":2} of p2; z log {"n":1} of p1`, "="},
		{"one of many policies", []string{"p3 a log both {}", "p1 a log both {}", "p2 a log both {}", "p1 a log both {}"}, "a log {} of p1,p2,p3", "="},
		{"equal ones of other names once", []string{"p2 a log both {}", "p1 b log both {}"}, "a log {} of p1,p2", "="},
		{"equal once they are filled", []string{`p a notification both {"to":"alice","body":""}`, `q b notification both {"to":"${principal.id}","body":"${context.empty}"}`},
			`a notification {"body":"","to":"alice"} of p,q`, "="},
		{"equal ones of another type", []string{"p a log both {}", "p b custom both {}"}, "a log {} of p; b custom {} of p", "="},
		{"different ones of a type that is each", []string{`p a redact both {"fields":["/a"]}`, `p b redact both {"fields":["/b"]}`},
			`a redact {"fields":["/a"]} of p; b redact {"fields":["/b"]} of p`, "="},
		{"different ones of a type that is one", []string{`p a step-up both {"acr_value":"x"}`, `p b step-up both {"acr_value":"y"}`, "p c log both {}"},
			"c log {} of p; without a: obligation_conflict; without b: obligation_conflict; conflict", "="},
		{"three, two of them equal", []string{`p a step-up both {"acr_value":"x"}`, `p b step-up both {"acr_value":"y"}`, `p c step-up both {"acr_value":"x"}`},
			"without a: obligation_conflict; without b: obligation_conflict; conflict", "="},
		{"equal ones of a type that is one", []string{`p a step-up both {"acr_value":"x"}`, `q b step-up both {"acr_value":"x"}`}, `a step-up {"acr_value":"x"} of p,q`, "="},
		{"different approvals", []string{"p a approval_required both {}", `p b approval_required both {"quorum":2}`},
			"without a: obligation_conflict; without b: obligation_conflict; conflict", "="},
		{"one each of two types that are one", []string{"p a approval_required both {}", `p b step-up both {"acr_value":"x"}`},
			`a approval_required {} of p; b step-up {"acr_value":"x"} of p`, "="},
		{"what has no value", []string{`p a log both {"x":"${context.missing}"}`, `q a log both {"x":"${context.missing}"}`, "p b log both {}"},
			"b log {} of p; without a: obligation_unfilled; unfilled", "="},
		{"no value makes no conflict", []string{`p a step-up both {"acr_value":"${context.missing}"}`, `p b step-up both {"acr_value":"x"}`},
			`b step-up {"acr_value":"x"} of p; without a: obligation_unfilled; unfilled`, "="},
		{"no value, and a conflict besides", []string{`p a log both {"x":"${context.missing}"}`, "p b approval_required both {}", `p c approval_required both {"uses":1}`},
			"without a: obligation_unfilled; without b: obligation_conflict; without c: obligation_conflict; conflict; unfilled", "="},
		{"no value of what does not come", []string{`p a log deny {"x":"${context.missing}"}`}, "", "without a: obligation_unfilled; unfilled"},
	} {
		if test.deny == "=" {
			test.deny = test.allow
		}
		if got := said(t, obligations.Resolve(true, owed(t, test.owed...), values)); got != test.allow {
			t.Errorf("%s, allow: got %s\nwant %s", test.name, got, test.allow)
		}
		if got := said(t, obligations.Resolve(false, owed(t, test.owed...), values)); got != test.deny {
			t.Errorf("%s, deny: got %s\nwant %s", test.name, got, test.deny)
		}
	}
}

// In whatever order the determining policies come, the outcome is the same.
func TestResolveOrder(t *testing.T) {
	t.Parallel()
	lines := []string{
		"p a log both {}", "q a log both {}", "p b log both {}", `q c step-up both {"acr_value":"x"}`, `p d step-up both {"acr_value":"y"}`,
		`r e notification both {"to":"${principal.id}","body":"b"}`, `p f notification both {"to":"alice","body":"b"}`, `s g custom both {"x":"${context.missing}"}`, "t h redact both {}",
	}
	want := said(t, obligations.Resolve(true, owed(t, lines...), values))
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		shuffled := slices.Clone(lines)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if got := said(t, obligations.Resolve(true, owed(t, shuffled...), values)); got != want {
			t.Fatalf("%q\n got %s\nwant %s", shuffled, got, want)
		}
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	all := []evaluation.Obligation{{Type: "step-up"}, {Type: "log"}, {Type: "step-up"}, {Type: "redact"}}
	for declared, want := range map[string][]string{
		"": {"log", "redact", "step-up"}, "log": {"redact", "step-up"}, "log redact step-up custom": nil, "custom": {"log", "redact", "step-up"}, "step-up": {"log", "redact"},
	} {
		got := obligations.Missing(all, func(typ string) bool { return slices.Contains(strings.Fields(declared), typ) })
		if !slices.Equal(got, want) {
			t.Errorf("with %q declared %q are missing, want %q", declared, got, want)
		}
	}
	if got := obligations.Missing(nil, func(string) bool { return false }); got != nil {
		t.Errorf("of nothing %q are missing", got)
	}
}
