package obligations_test

import (
	"context"
	"errors"
	"fmt"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// A PEP that has its answers from elsewhere than the Go client gives them to
// Discharge itself, the denies as well.
func ExampleDischarge() {
	owed := []evaluation.Obligation{{ID: "ask", Type: "approval_required"}, {ID: "tell-security", Type: "notification"}}
	handlers := obligations.Handlers{
		"approval_required": func(context.Context, evaluation.Obligation) error { return errors.New("nobody answered") },
		"notification": func(_ context.Context, o evaluation.Obligation) error {
			fmt.Println("sent", o.ID)
			return nil
		},
	}
	report := obligations.Discharge(context.Background(), true, owed, handlers)
	for _, o := range report.Outcomes() {
		fmt.Println(o.ID, o.Status)
	}
	fmt.Println("permitted:", report.Permitted())
	// Output:
	// sent tell-security
	// ask failed
	// tell-security discharged
	// permitted: false
}
