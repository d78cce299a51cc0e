package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// ending is a context that ends after it was looked at so many times: a deadline that
// passes at every point where one is noticed, without a clock.
type ending struct {
	context.Context
	looks int
}

func (e *ending) Err() error {
	if e.looks--; e.looks < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// The forbid comes last: whoever answered from a part of the policies would allow.
func TestNoAnswerFromAPartOfThePolicies(t *testing.T) {
	t.Parallel()
	const permits = 50
	var text strings.Builder
	for i := range permits {
		fmt.Fprintf(&text, "@id(\"permit-%02d\") permit (principal, action == Action::\"read\", resource) when { context.level > %d };\n", i, i)
	}
	text.WriteString(`@id("z") forbid (principal, action == Action::"read", resource) when { context.level > 1 };`)
	bundle, problems := pdp.Load(pdp.FS(fstest.MapFS{"p.cedar": {Data: []byte(text.String())}}))
	if problems.Refuse() {
		t.Fatal(problems)
	}
	p := pdp.Of(bundle, pdp.Options{})
	request, err := evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"},"context":{"level":2}}`), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	for _, explain := range []bool{false, true} {
		looks := 0
		for ; ; looks++ {
			d, err := p.Evaluate(&ending{t.Context(), looks}, pdp.Call{Request: request, Explain: explain})
			if err == nil {
				if d.Allow {
					t.Fatalf("allowed after %d looks at the time", looks)
				}
				break
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		if looks <= permits {
			t.Errorf("explain %v: %d policies were asked with %d looks at the time", explain, permits+1, looks)
		}
	}
}
