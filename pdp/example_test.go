package pdp_test

import (
	"context"
	"fmt"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/policies"
)

func Example() {
	p, err := pdp.New(pdp.FS(policies.Starter()), pdp.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	decision, err := p.Evaluate(context.Background(), pdp.Call{Request: evaluation.Request{
		Subject:  evaluation.Entity{Type: "user", ID: "alice"},
		Action:   evaluation.Action{Name: "tool.invoke"},
		Resource: evaluation.Entity{Type: "tool", ID: "wiki:search_pages"},
	}})
	fmt.Println(decision.Allow, decision.Determining, err)
	// Output: true [people-read] <nil>
}
