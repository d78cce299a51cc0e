package record

import (
	"testing"
	"time"

	"policy-service/obligations"
	"policy-service/pdp/internal/decisionlog/format"
)

const oneLine = `{"sequence":7,"id":"0190","kind":"decision","time":"2026-11-20T11:00:00.5Z","tenant":"default","decision":true,` +
	`"request":{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"a/b"}},"determining":["p1"]}`

func TestFilter(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 11, 0, 0, 5e8, time.UTC)
	for name, c := range map[string]struct {
		filter Filter
		want   bool
	}{
		"all":               {Filter{}, true},
		"from is inside":    {Filter{From: at}, true},
		"to is outside":     {Filter{To: at}, false},
		"between":           {Filter{From: at.Add(-1), To: at.Add(1)}, true},
		"tenant":            {Filter{Tenant: "default"}, true},
		"other tenant":      {Filter{Tenant: "acme"}, false},
		"allow":             {Filter{Decision: "allow"}, true},
		"deny":              {Filter{Decision: "deny"}, false},
		"subject by id":     {Filter{Subject: "alice"}, true},
		"subject by both":   {Filter{Subject: "user/alice"}, true},
		"subject of a type": {Filter{Subject: "agent/alice"}, false},
		"id with a slash":   {Filter{Resource: "a/b"}, true},
		"both with slashes": {Filter{Resource: "doc/a/b"}, true},
		"action":            {Filter{Action: "write"}, false},
		"policy":            {Filter{Policy: "p1"}, true},
		"every one counts":  {Filter{Policy: "p1", Action: "read", Decision: "deny"}, false},
		"kind":              {Filter{Kind: "admin"}, false},
	} {
		if got, err := c.filter.Matches([]byte(oneLine)); got != c.want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// A decision is one of three: an allow with which the caller may not go ahead yet is no allow.
func TestAnswers(t *testing.T) {
	t.Parallel()
	if format.ApprovalRequired != obligations.ApprovalRequired {
		t.Errorf("%s is not the type that asks for approval", format.ApprovalRequired)
	}
	const head = `{"sequence":7,"id":"0190","kind":"decision","time":"2026-11-20T11:00:00.5Z","decision":`
	for rest, want := range map[string]string{
		`true}`:  Allow,
		`false}`: Deny,
		`true,"obligations":[{"id":"l","type":"log"}]}`:                                                                       Allow,
		`true,"obligations":[{"id":"l","type":"log"},{"id":"ask","type":"approval_required"}]}`:                               Waiting,
		`true,"obligations":[{"id":"l","type":"log"}],"discharged":[{"id":"ask","type":"approval_required","approval":"a"}]}`: Allow,
		`false,"reason":"approval_required","required":["approval_required"]}`:                                                Deny,
	} {
		for _, answer := range []string{Allow, Waiting, Deny} {
			if passes, err := (Filter{Decision: answer}).Matches([]byte(head + rest)); err != nil || passes != (answer == want) {
				t.Errorf("%s: %s %v, %v", rest, answer, passes, err)
			}
		}
	}
	if err := (Filter{Decision: "pending"}).Check(); err == nil {
		t.Error("a word that is no answer is one")
	}
}

func TestFilterOfNoRecord(t *testing.T) {
	t.Parallel()
	if _, err := (Filter{Tenant: "x"}).Matches([]byte("{")); err == nil {
		t.Error("half a line was passed over")
	}
}
