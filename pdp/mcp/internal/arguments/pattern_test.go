package arguments

import "testing"

// A pattern that looks ahead from the beginning means what it says; elsewhere it is an error.
func TestPatternsThatLookAhead(t *testing.T) {
	t.Parallel()
	const email = `^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$`
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{email, []string{"a@b.example", "a.b+c@b.example"}, []string{".a@b.example", "a..b@b.example", "a@b..example", "a@b", "x a@b.example"}},
		{`^(?=.*[a-z])(?=.*[0-9]).{4,}$`, []string{"abc1", "1abc"}, []string{"abcd", "1234", "a1"}},
		{`^(?!a|b)`, []string{"", "ca"}, []string{"a", "bc"}},
		{`^(?![)a](?:b|c))x?`, []string{"ad", ")", "x"}, []string{")b", "ac"}},
		{`^(?!\))(?=[^\]|]$)[\]|(]?`, []string{"x", "("}, []string{")", "]", "|", "xy"}},
		{`^(?!x)$`, []string{""}, []string{"x", "y"}},
		{`a|^b`, []string{"ca", "b"}, []string{"cb"}},
	} {
		p, err := compilePattern(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		for _, text := range c.yes {
			if !p.MatchString(text) {
				t.Errorf("%s does not match %q", c.pattern, text)
			}
		}
		for _, text := range c.no {
			if p.MatchString(text) {
				t.Errorf("%s matches %q", c.pattern, text)
			}
		}
	}
	for _, pattern := range []string{`^(?!a)b|c`, `(?!a)`, `^x(?!a)`, `^(?!a(?=b))`, `^(?!a`, `^(?!a)*b`, `^(?<!a)`, `^(?!a)\1`, `^(?!()`, `^(?!a))`, `^(?!\`} {
		if _, err := compilePattern(pattern); err == nil {
			t.Errorf("%s compiles", pattern)
		}
	}
}
