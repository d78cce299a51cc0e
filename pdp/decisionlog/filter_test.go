package decisionlog

import (
	"testing"
	"time"
)

const oneLine = `{"sequence":7,"id":"0190","kind":"decision","time":"2026-11-20T11:00:00.5Z","tenant":"default","decision":true,` +
	`"request":{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"a/b"}},"determining":["p1"]}`

func TestFilter(t *testing.T) {
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

func TestFilterOfNoRecord(t *testing.T) {
	if _, err := (Filter{Tenant: "x"}).Matches([]byte("{")); err == nil {
		t.Error("half a line was passed over")
	}
}
