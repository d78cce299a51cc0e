package broker_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
)

// TestLittleIsKnown: a token is remembered once it was shown, but none with so many values in it that thousands would fill the
// memory.
func TestLittleIsKnown(t *testing.T) {
	t.Parallel()
	f := newService(t, t.TempDir(), true)
	for values, want := range map[int]bool{1: true, 1000: false} {
		text := `{"v":{"target":{"constraint_type":"exact","value":["staging"` + strings.Repeat(",1", values) + `]}}}`
		o, err := evaluation.ParseObject([]byte(text), evaluation.DefaultLimits())
		f.must(err)
		all, _ := o.Get("v")
		target, _ := all.Object().Get("target")
		c, err := capability.ParseConstraint(target)
		f.must(err)
		g, err := f.asks(0, func(a *capability.Ask) {
			a.Arguments = capability.Arguments{"target": c}
		})
		f.must(err)
		d, err := f.pdp.Evaluate(t.Context(), f.call(g))
		f.must(err)
		if d.Capability == nil || d.Capability.Argument != "target" || f.Knows(g.Token) != want {
			t.Errorf("%d values: known %v; %+v", values, f.Knows(g.Token), d.Capability)
		}
	}
}

// TestLargeQuestionsTakeLittle: a request that makes more questions than are kept is refused before they are all written out.
// It is not parallel, because it counts what all allocate.
func TestLargeQuestionsTakeLittle(t *testing.T) {
	f := newService(t, t.TempDir(), true)
	properties, err := evaluation.NewObject(map[string]any{"note": strings.Repeat("x", 900<<10)})
	f.must(err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = f.asks(0, func(a *capability.Ask) {
		a.Properties = properties
		for n := range capability.MaxTools - 1 {
			a.Tools = append(a.Tools, fmt.Sprint("b:tool", n))
		}
	})
	runtime.ReadMemStats(&after)
	var failure *evaluation.Error
	if !errors.As(err, &failure) || !failure.TooLarge {
		t.Fatal(err)
	}
	if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 32 {
		t.Errorf("it takes %d MiB", mib)
	}
}
