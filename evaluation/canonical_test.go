package evaluation_test

import (
	"math/big"
	"strings"
	"testing"

	"policy-service/evaluation"
)

func canonical(t testing.TB, text string) (string, bool) {
	t.Helper()
	o, err := evaluation.ParseObject([]byte(`{"v":`+text+`}`), evaluation.DefaultLimits())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	v, _ := o.Get("v")
	b, ok := v.AppendCanonical(nil)
	return string(b), ok
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{`7`, `7`}, {`"7"`, `"7"`}, {`7.0`, `7`}, {`70e-1`, `7`}, {`0.7E+1`, `7`}, {`-7`, `-7`},
		{`9007199254740992`, `9007199254740992`}, {`9007199254740993`, `9007199254740993`}, {`9007199254740993.0`, `9007199254740993e0`}, {`-9007199254740993.0`, `-9007199254740993e0`}, {`9007199254740992.0`, `9007199254740992`},
		{`9007199254740993e0`, `9007199254740993e0`}, {`90071992547409930E-1`, `9007199254740993e0`}, {`1e16`, `1e16`}, {`1e15`, `1000000000000000`}, {`10000000000000000`, `10000000000000000`},
		{`123456789012345678901234567890`, `123456789012345678901234567890`}, {`1e3`, `1000`},
		{`0`, `0`}, {`-0`, `0`}, {`0.000`, `0`}, {`0e99999999999999999999`, ``}, {`0e999`, `0`},
		{`1.5`, `15e-1`}, {`15e-1`, `15e-1`}, {`0.10`, `1e-1`}, {`1e-7`, `1e-7`},
		{"1" + strings.Repeat("0", 1000), "1" + strings.Repeat("0", 1000)}, {`1e1000`, `1e1000`}, {`1e1001`, `1e1001`}, {`10e1000`, `1e1001`},
		{`1e123456789012345`, `1e123456789012345`}, {`1e1234567890123456`, ``}, {`1e0000000000000000000001`, `10`},
		{`[1,1,"a",null,true]`, `[1,1,"a",null,true]`}, {`[2,1]`, `[2,1]`},
		{`{"b":1,"a":{"d":[],"c":null}}`, `{"a":{"d":[]},"b":1}`},
		{`{"\ufb33":1,"\ud83d\ude02":2,"\u20ac":3}`, `{"€":3,"😂":2,"` + "\ufb33" + `":1}`}, // RFC 8785 has these three in this order
		{`"\u000a\u001f\/\u20ac\u0022"`, `"\n\u001f/€\""`},
		{`{}`, `{}`}, {`[]`, `[]`}, {`""`, `""`}, {`false`, `false`},
	} {
		if got, ok := canonical(t, c.text); got != c.want && (ok || c.want != "") || ok != (c.want != "") {
			t.Errorf("%.40s: got %.60s %v, want %.60s", c.text, got, ok, c.want)
		}
	}
}

// Two numbers have one canonical text exactly where they are one number, and where both are beyond 2^53 one form.
func FuzzCanonicalNumber(f *testing.F) {
	f.Add("1.0", "1")
	f.Add("10e-1", "1")
	f.Add("9007199254740993", "9007199254740992")
	f.Add("-0.0", "0")
	f.Add("9007199254740993.0", "9007199254740993")
	f.Add("9007199254740992.0", "9007199254740992")
	f.Add("1e30", "1000000000000000000000000000000.0")
	f.Add("1e1001", "10e1000")
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a) > 100 || len(b) > 100 {
			return
		}
		x, ok1 := rational(a)
		y, ok2 := rational(b)
		if !ok1 || !ok2 {
			return
		}
		p, ok1 := canonical(t, a)
		q, ok2 := canonical(t, b)
		large := x.IsInt() && new(big.Int).Abs(x.Num()).Cmp(big.NewInt(1<<53)) > 0
		form := func(text string) bool { return strings.ContainsAny(text, ".eE") }
		if !ok1 || !ok2 || (p == q) != (x.Cmp(y) == 0 && (!large || form(a) == form(b))) {
			t.Errorf("%s is %s, %s is %s", a, p, b, q)
		}
	})
}

// rational reads what is a JSON number with an exponent that can be computed with.
func rational(text string) (*big.Rat, bool) {
	if strings.Trim(text, "0123456789.eE+-") != "" {
		return nil, false
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 && len(text)-i > 5 {
		return nil, false
	}
	if _, err := evaluation.ParseObject([]byte(`{"v":`+text+`}`), evaluation.DefaultLimits()); err != nil {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}
