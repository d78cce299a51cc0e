package inbox_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/approval/inbox"
)

// TestActorsRequester: who asked for it is none of those for whom it is done.
func TestActorsRequester(t *testing.T) {
	t.Parallel()
	asked := inbox.Asked{Subject: inbox.Entity{Type: "agent", ID: "desktop"}, Context: map[string]jsontext.Value{
		"on_behalf_of": jsontext.Value(`[{"type":"user","id":"mia"}]`),
	}}
	if who, named := asked.Requester(); named {
		t.Errorf("nobody asked, and it is %+v", who)
	}
	asked.Context["requester"] = jsontext.Value(`{"type":"agent","id":"bot"}`)
	if who, named := asked.Requester(); !named || who.Name != "agent/bot" || who.JSON != nil || who.Pointer != "/context/requester/id" {
		t.Errorf("got %+v", who)
	}
	if by, others := asked.Actors(); by.Name != "agent/desktop" || len(others) != 1 || others[0].Name != "user/mia" {
		t.Errorf("it is done by %+v for %+v", by, others)
	}
}
