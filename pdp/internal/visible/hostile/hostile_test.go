package hostile_test

import (
	"strings"
	"testing"

	"policy-service/pdp/internal/visible/hostile"
)

func TestTextsAreManyAndDifferent(t *testing.T) {
	seen := map[string]bool{}
	runs, elsewhere := 0, 0
	for _, text := range hostile.Texts() {
		if seen[text] {
			t.Errorf("%.40q is there twice", text)
		}
		seen[text] = true
		if strings.Contains(text, hostile.Runs) {
			runs++
		}
		if strings.Contains(text, hostile.Elsewhere) {
			elsewhere++
		}
	}
	if len(seen) < 200 || runs < 50 || elsewhere < 30 {
		t.Errorf("%d texts, of which %d run a script and %d load from elsewhere", len(seen), runs, elsewhere)
	}
	for _, text := range hostile.Short(128) {
		if len(text) > 128 || strings.ToValidUTF8(text, "") != text {
			t.Errorf("%.40q is no short text of UTF-8", text)
		}
	}
	if short := len(hostile.Short(128)); short < 200 {
		t.Errorf("%d texts are short", short)
	}
	if broken := len(hostile.Texts()) - len(hostile.UTF8()); broken < 10 {
		t.Errorf("%d texts are no UTF-8", broken)
	}
}
