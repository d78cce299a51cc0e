package pdp

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
)

// What is asked before the swap keeps the bundle before it in force as long as it
// does not agree, and is asked again without an edit.
func TestBeforeSwapKeepsABundleOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(text string) { must(t, os.WriteFile(dir+"/a.cedar", []byte(text), 0o644)) }
	write(`permit(principal is user, action, resource);`)
	var agree error
	var asked []Incoming
	p, err := New(Dir(dir), Options{Quiet: 1, BeforeSwap: func(b Incoming) error { asked = append(asked, b); return agree }})
	must(t, err)
	first := p.Status()
	if len(asked) != 1 || asked[0].Digest != first.Digest || len(asked[0].Files) != 1 {
		t.Fatalf("asked %v for the first bundle", asked)
	}
	agree = errors.New("the disk is full")
	write(`forbid(principal, action, resource); permit(principal is user, action, resource);`)
	for range 2 { // the second time without an edit, and without insisting
		if err := p.reload(context.Background(), false); err == nil || !strings.Contains(err.Error(), "the disk is full") {
			t.Fatalf("got %v", err)
		}
	}
	if s := p.Status(); s.Digest != first.Digest || s.Refused == nil || s.Refused.Problems[0].Code != "not_yet" {
		t.Errorf("got %+v", s)
	}
	agree = nil
	if err := p.reload(context.Background(), false); err != nil || p.Status().Digest == first.Digest || p.Status().Refused != nil {
		t.Errorf("got %v, %+v", err, p.Status())
	}
	if len(asked) != 4 {
		t.Errorf("asked %d times", len(asked))
	}
}

func TestBeforeSwapKeepsTheFirstBundleOut(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	if _, err := New(Dir("../policies/starter"), Options{BeforeSwap: func(Incoming) error { return full }}); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}
