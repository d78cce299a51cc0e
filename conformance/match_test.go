package conformance

import "testing"

func TestMatcher(t *testing.T) {
	t.Parallel()
	var m matcher
	value := map[string]any{"a": []any{1.0, "x"}, "u": "https://h/p", "e": "", "o": map[string]any{}}
	for _, want := range []any{
		map[string]any{}, map[string]any{"a": []any{1, "x"}}, map[string]any{"a": "$filled", "u": "$url", "e": "$string", "o": "$object"},
		map[string]any{"z*": "$string"}, map[string]any{"a": []any{"$number", "$nonempty"}},
	} {
		if err := m.has("", want, value); err != nil {
			t.Errorf("%v: %v", want, err)
		}
	}
	for _, want := range []any{
		[]any{}, map[string]any{"z": "$string"}, map[string]any{"a": []any{1}}, map[string]any{"a": []any{"x", 1}}, map[string]any{"e": "$nonempty"},
		map[string]any{"u*": "$boolean"}, map[string]any{"a": "$strings"}, map[string]any{"u": "$unknown"}, map[string]any{"o": false},
	} {
		if err := m.has("", want, value); err == nil {
			t.Errorf("%v matches", want)
		}
	}
	if (matcher{secure: true}).isKind("url", "http://h/p") || !m.isKind("url", "http://h/p") || m.isKind("url", "https://h/p?q=1") {
		t.Error("which URLs are taken depends on how the PDP is reached")
	}
}
