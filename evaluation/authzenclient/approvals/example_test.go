package approvals_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/evaluation/capability"
	"policy-service/obligations"
)

func ExampleEnforce() {
	client, err := authzenclient.New(os.Getenv("PDP_URL"), authzenclient.WithKey(os.Getenv("PDP_KEY")))
	if err != nil {
		fmt.Println(err)
		return
	}
	keep := func(ctx context.Context, task approvals.Task) error {
		text, err := json.Marshal(task)
		if err != nil {
			return err
		}
		return os.WriteFile(os.Getenv("STATE_DIRECTORY")+"/push.json", text, 0o600)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Hour)
	defer cancel()
	enforcement := approvals.Enforce(ctx, client, evaluation.Request{
		Subject:  evaluation.Entity{Type: "user", ID: "alice"},
		Action:   evaluation.Action{Name: "tool.invoke"},
		Resource: evaluation.Entity{Type: "tool", ID: "github.push_code"},
	}, obligations.Handlers{}, approvals.WithJustification("the fix for the outage"), approvals.KeepTask(keep))
	if !enforcement.Permitted() {
		fmt.Println("alice may not use github.push_code", enforcement.Err())
		return
	}
	fmt.Println("alice may use github.push_code")
	// Output:
	// alice may use github.push_code
}

func ExampleResume() {
	client, err := authzenclient.New(os.Getenv("PDP_URL"), authzenclient.WithKey(os.Getenv("PDP_KEY")))
	if err != nil {
		fmt.Println(err)
		return
	}
	var task approvals.Task
	text, err := os.ReadFile(os.Getenv("STATE_DIRECTORY") + "/push.json")
	if err == nil {
		err = json.Unmarshal(text, &task)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	request := evaluation.Request{
		Subject:  evaluation.Entity{Type: "user", ID: "alice"},
		Action:   evaluation.Action{Name: "tool.invoke"},
		Resource: evaluation.Entity{Type: "tool", ID: "github.push_code"},
	}
	if approvals.Resume(context.Background(), client, task, request, obligations.Handlers{}).Permitted() {
		fmt.Println("alice may use github.push_code")
	}
	// Output:
	// alice may use github.push_code
}

func ExampleAsk() {
	client, err := authzenclient.New(os.Getenv("PDP_URL"), authzenclient.WithKey(os.Getenv("PDP_KEY")))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	request := evaluation.Request{
		Subject:  evaluation.Entity{Type: "user", ID: "alice"},
		Action:   evaluation.Action{Name: "tool.invoke"},
		Resource: evaluation.Entity{Type: "tool", ID: "github.push_code"},
	}
	enforcement := client.Enforce(ctx, request, obligations.Handlers{})
	if next, _ := approvals.Next(enforcement); next == evaluation.NextRequest {
		standing, err := approvals.Ask(ctx, client, enforcement, approvals.JoinEqual())
		for cursor := ""; err == nil && standing.Pending(); {
			var changes approvals.Changes
			if changes, err = approvals.Watch(ctx, client, cursor, 30*time.Second); err == nil {
				cursor = changes.Cursor()
				standing, err = approvals.Look(ctx, client, standing.Task())
			}
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		enforcement = approvals.Use(ctx, client, standing, request, nil).Discharge(ctx, obligations.Handlers{})
		client.Report(ctx, &enforcement)
	}
	if !enforcement.Permitted() {
		fmt.Println("alice may not use github.push_code", enforcement.Err())
		return
	}
	fmt.Println("alice may use github.push_code")
	// Output:
	// alice may use github.push_code
}

func ExampleRequestCapability() {
	client, err := authzenclient.New("http://127.0.0.1:8247", authzenclient.WithKey(os.Getenv("AGENTS_KEY")))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	holder, err := capability.NewHolder(private)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	grant, err := approvals.RequestCapability(ctx, client, "", holder, capability.Ask{
		Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "agent-a"}, Audience: "agent-b", Tools: []string{"restart"},
		Duration: time.Hour,
	}, nil)
	if err != nil || !grant.Granted {
		fmt.Println("agent-a is granted nothing", grant.Refused, err)
		return
	}
	held := authzenclient.WithCapability(grant.Token, holder) // keep it: it remembers the nonce
	arguments, err := evaluation.NewObject(map[string]any{"arguments": map[string]any{"target": "staging"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	enforcement := client.Enforce(ctx, evaluation.Request{
		Subject:  evaluation.Entity{Type: "agent", ID: "agent-a"},
		Action:   evaluation.Action{Name: "tool.invoke"},
		Resource: evaluation.Entity{Type: "tool", ID: "agent-b:restart"},
		Context:  arguments,
	}, obligations.Handlers{}, held)
	if !enforcement.Permitted() {
		fmt.Println("agent-a may not restart", enforcement.Err())
		return
	}
	fmt.Println("agent-a may restart")
	// Output:
	// agent-a may restart
}
