package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/pdptest"
)

// Three policies are put to different requests, and one of them is a hundred times
// the work of the others.
func TestCosts(t *testing.T) {
	t.Parallel()
	dear := strings.Repeat(` && context.text like "*a*b*c*d*e*f*"`, 20)
	bundle, problems := pdp.Load(pdptest.Bundle(map[string]string{
		"a.cedar": `@id("cheap") permit (principal, action == Action::"read", resource);
			@id("dear") forbid (principal is user, action == Action::"read", resource) when { context.level > 1` + dear + ` };
			@id("rare") permit (principal, action == Action::"write", resource);
			@id("never") permit (principal, action == Action::"delete", resource);`,
		"tenants/acme/own.cedar": `@id("own") permit (principal, action == Action::"read", resource is page);`,
	}))
	if problems.Refuse() {
		t.Fatal(problems)
	}
	var calls []pdp.Call
	for _, of := range []struct{ tenant, action, resource string }{
		{"default", "read", "doc"}, {"default", "write", "doc"}, {"acme", "read", "page"}, {"acme", "read", "doc"}, {"default", "nothing", "doc"}, {"default", "read", "__cedar::no"},
	} {
		body := fmt.Sprintf(`{"subject":{"type":"user","id":"a"},"action":{"name":%q},"resource":{"type":%q,"id":"1"},"context":{"level":2,"text":"a b c d e f a b c d e f"}}`, of.action, of.resource)
		request, err := evaluation.DecodeAuthZEN([]byte(body), of.tenant, evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, pdp.Call{Request: request})
	}
	ended, end := context.WithCancel(t.Context())
	end()
	decider := pdp.Of(bundle, pdp.Options{})
	once, err := decider.Costs(ended, calls) // one round is made in any case
	if err != nil {
		t.Fatal(err)
	}
	// In a single round whatever else the machine does may make anything dear.
	costs, err := decider.Costs(&looks{t.Context(), 5000}, calls)
	if err != nil {
		t.Fatal(err)
	}
	if len(once) != len(costs) {
		t.Errorf("one round knows %d policies, and many %d", len(once), len(costs))
	}
	requests := map[string]int{}
	for n, c := range costs {
		requests[c.Tenant+"/"+c.ID] = c.Requests
		if c.Total <= 0 || c.Position == "" || n > 0 && c.Total > costs[n-1].Total {
			t.Errorf("%+v is not in its place, or took no time", c)
		}
	}
	want := map[string]int{"default/dear": 3, "default/cheap": 3, "default/rare": 1, "acme/own": 1}
	if fmt.Sprint(requests) != fmt.Sprint(want) {
		t.Errorf("policies were put to requests as %v, want %v", requests, want)
	}
	if costs[0].ID != "dear" || costs[0].Position != "a.cedar:2:4" || costs[0].Effect != "forbid" {
		t.Errorf("the dearest is %+v", costs[0])
	}
	if all := calls[0]; all.Now != (pdp.Call{}).Now {
		t.Error("the caller's own calls were changed")
	}
}

// looks is a context that ends after it was looked at so many times.
type looks struct {
	context.Context
	left int
}

func (l *looks) Err() error {
	if l.left--; l.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestCostsOfWhatCannotBeDecided(t *testing.T) {
	t.Parallel()
	bundle, problems := pdp.Load(pdptest.Bundle(map[string]string{"a.cedar": `permit (principal is user, action, resource);`}))
	if problems.Refuse() {
		t.Fatal(problems)
	}
	call := pdp.Call{Request: evaluation.Request{Tenant: "nosuch"}}
	if _, err := pdp.Of(bundle, pdp.Options{}).Costs(t.Context(), []pdp.Call{call}); !errors.Is(err, pdp.ErrUnknownTenant) {
		t.Errorf("the error is %v", err)
	}
}
