package cedartext_test

import (
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"

	"policy-service/pdp/internal/cedartext"
)

// FuzzFormat reads anything. The tokens joined are the text. What cedar-go can read has a layout that keeps all of it, but
// for what is refused by name; and no layout is made of what cedar-go cannot read as it could before.
func FuzzFormat(f *testing.F) {
	for seed := range 60 {
		m := seeded(seed)
		if text := m.scattered(m.policies()); len(text) < 1<<10 { // short ones are faster to vary
			f.Add(text)
		}
	}
	for _, text := range []string{
		"", "\r", "//", "/**/", "/*/", "\"", "\"\\\n\"", "\xff", "permit(principal,action,resource", "permit(principal,action in[],resource,);// x\r\n\n// y",
		"permit(principal,action,resource)when{[1,].contains({a:1,\"b\":2,})};", "permit(principal,action,resource)when{[1 // x\n,]};", "@a@if(\"\")forbid(principal is a in a::\"\",action,resource)unless{if 1 then-1 else!!context[\"a\"].b};",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 16<<10 {
			return
		}
		whole(t, text)
		if len(text) > 4<<10 || strings.Count(text, ".") > 50 { // what bounds cedar-go is not here
			return
		}
		_, err := cedar.NewPolicyListFromBytes("", []byte(text))
		laid, refused := cedartext.Format(text)
		switch {
		case err != nil && refused == nil:
			if _, err := cedar.NewPolicyListFromBytes("", []byte(laid)); err == nil {
				t.Errorf("%q is no Cedar, and becomes %q, which is", text, laid)
			}
		case err == nil && refused != nil:
			if !strings.Contains(refused.Problem, "comma") && !strings.Contains(refused.Problem, "/*") && !strings.Contains(refused.Problem, "nest more") {
				t.Errorf("%q is refused: %v", text, refused)
			}
		case err == nil:
			keeps(t, text, laid)
		}
	})
}
