package pdp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
	"policy-service/pdp/pdptest/worst"
)

func TestCollidingSets(t *testing.T) {
	t.Parallel()
	strs := worst.Each(worst.Colliding(4096), func(s string) string { return `"` + s + `"` })
	longs := worst.Each(worst.Numbers(4096), func(i int) string { return fmt.Sprint(i) })
	unread := bundleOfFiles(t, map[string]string{"p.cedar": smallest})
	for what, c := range map[string]struct {
		elements []string
		usable   bool
	}{
		"colliding strings":                   {strs, false},
		"a few of them":                       {strs[:bundle.FewElements], true},
		"a few of them more":                  {strs[:bundle.FewElements+1], false},
		"the same one again and again":        {worst.Times(strs[0], 4096), true},
		"numbers":                             {longs, true},
		"numbers in the other order":          {slices.Collect(backward(longs)), true},
		"numbers and true":                    {append(longs[:4094:4094], "true"), true},
		"numbers and true again and again":    {append(longs[:2048:2048], worst.Times("true", 2048)...), false},
		"strings like those people send":      {worst.Each(worst.Numbers(4096), func(i int) string { return fmt.Sprintf(`"item-%d"`, i) }), true},
		"records of colliding strings":        {worst.Each(strs[:128], func(s string) string { return `{"k":` + s + `}` }), false},
		"records of colliding names":          {worst.Each(strs[:128], func(s string) string { return `{` + s + `:1}` }), false},
		"records":                             {worst.Each(longs[:128], func(s string) string { return `{"n":` + s + `}` }), true},
		"ranges, whose ends have the one sum": {worst.Each(worst.Numbers(128), func(i int) string { return fmt.Sprintf("[%d,%d]", i, 1000-i) }), true},
	} {
		body := worst.Request(`"user","id":"1"`, `"doc","id":"2"`, `{"a":[`+strings.Join(c.elements, ",")+`]}`)
		r, err := evaluation.DecodeAuthZEN([]byte(body), "", evaluation.DefaultLimits())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		a, _ := r.Context.Get("a")
		if _, usable := engine.Untyped(a); usable != c.usable {
			t.Errorf("%s: usable is %v", what, usable)
		}
		call := Call{Request: r}
		in := inquire(unread, &call)
		q, err := in.Question(viewOf(unread, call))
		must(t, err)
		if unusable := reads(q, bundle.AttributePath{Root: "context", Names: []string{"a"}}); unusable == c.usable {
			t.Errorf("%s: where no policy sees it, unusable is %v", what, unusable)
		}
	}
}

func backward[T any](of []T) func(func(T) bool) {
	return func(yield func(T) bool) {
		for _, v := range slices.Backward(of) {
			if !yield(v) {
				return
			}
		}
	}
}
