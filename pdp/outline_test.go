package pdp_test

import (
	"fmt"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/pdptest"
)

// What is a number to one action and a text to another is told in the same way each time.
func TestOutlineIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	bundle, problems := pdp.Check(pdptest.Bundle(map[string]string{
		"schema.cedarschema": `entity user; entity doc;
			action "read" appliesTo { principal: user, resource: doc, context: { x: Long } };
			action "write" appliesTo { principal: user, resource: doc, context: { x: String } };`,
		"p.cedar": `permit (principal == user::"ann", action == Action::"read", resource);`,
	}), time.Now())
	if bundle == nil {
		t.Fatal(problems)
	}
	first := fmt.Sprint(pdp.OutlineOf(bundle, evaluation.DefaultTenant).Context(""))
	for range 100 {
		if got := fmt.Sprint(pdp.OutlineOf(bundle, evaluation.DefaultTenant).Context("")); got != first {
			t.Fatalf("got %s, and %s", got, first)
		}
	}
}
