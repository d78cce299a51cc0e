package authzenclient_test

import (
	"context"
	"errors"
	"fmt"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/obligations"
)

func Example() {
	client, err := authzenclient.New("http://127.0.0.1:8180")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, tool := range []string{"tickets:create_ticket", "ledger:export_payments"} {
		decision := client.Evaluate(context.Background(), evaluation.Request{
			Subject:  evaluation.Entity{Type: "user", ID: "alice"},
			Action:   evaluation.Action{Name: "tool.invoke"},
			Resource: evaluation.Entity{Type: "tool", ID: tool},
		})
		if !decision.Permitted() {
			fmt.Println("alice may not use", tool, decision.Err())
			continue
		}
		fmt.Println("alice may use", tool)
	}
	// Output:
	// alice may use tickets:create_ticket
	// alice may not use ledger:export_payments <nil>
}

func ExampleClient_Enforce() {
	client, err := authzenclient.New("http://127.0.0.1:8180")
	if err != nil {
		fmt.Println(err)
		return
	}
	handlers := obligations.Handlers{
		"notification": func(ctx context.Context, o evaluation.Obligation) error {
			to, _ := o.Properties.Get("to")
			fmt.Println("telling", to.Text())
			return nil
		},
		"approval_required": func(ctx context.Context, o evaluation.Obligation) error {
			return errors.New("nobody is there to approve")
		},
	}
	for _, tool := range []string{"tickets:create_ticket", "deploy:rollout", "github.push_code"} {
		enforcement := client.Enforce(context.Background(), evaluation.Request{
			Subject:  evaluation.Entity{Type: "user", ID: "alice"},
			Action:   evaluation.Action{Name: "tool.invoke"},
			Resource: evaluation.Entity{Type: "tool", ID: tool},
		}, handlers)
		if !enforcement.Permitted() {
			fmt.Println("alice may not use", tool, enforcement.Err())
			continue
		}
		fmt.Println("alice may use", tool)
	}
	// Output:
	// alice may use tickets:create_ticket
	// telling #operations
	// alice may use deploy:rollout
	// alice may not use github.push_code authzen enforce: obligations not discharged: obligation "ask-team-lead" of type "approval_required" failed: nobody is there to approve
}

func ExampleClient_Decide() {
	client, err := authzenclient.New("http://127.0.0.1:8180")
	if err != nil {
		fmt.Println(err)
		return
	}
	var owed []evaluation.Obligation
	handlers := obligations.Handlers{
		"redact": func(ctx context.Context, o evaluation.Obligation) error {
			owed = append(owed, o) // a promise: no result leaves before it is done
			return nil
		},
	}
	ctx := context.Background()
	decided := client.Decide(ctx, evaluation.Request{
		Subject:  evaluation.Entity{Type: "user", ID: "bob"},
		Action:   evaluation.Action{Name: "tool.invoke"},
		Resource: evaluation.Entity{Type: "tool", ID: "crm:read_customer"},
	}, handlers.Types())
	enforcement := decided.Discharge(ctx, handlers)
	defer client.Report(ctx, &enforcement)
	if !enforcement.Permitted() {
		fmt.Println("bob may not read a customer", enforcement.Err())
		return
	}
	customer := map[string]string{"/name": "Ada", "/email": "ada@example.com"} // what the tool returned
	for _, o := range owed {
		fields, ok := o.Properties.Get("fields")
		if !ok {
			enforcement.Break(o, errors.New("it names no fields"))
		}
		for _, field := range fields.Elements {
			delete(customer, field.Text())
		}
	}
	if enforcement.Permitted() {
		fmt.Println("bob reads", customer)
	}
	// Output:
	// bob reads map[/name:Ada]
}
