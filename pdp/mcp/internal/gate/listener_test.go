package gate

import (
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/crowd"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/people"
)

// What waits is heard of while somebody of the tenant listens, and once for all of them.
func TestListenRests(t *testing.T) {
	pdp, err := authzenclient.New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	asker, err := ask.New(ask.Options{PDP: map[string]*authzenclient.Client{evaluation.DefaultTenant: pdp}, Resource: "x"})
	if err != nil {
		t.Fatal(err)
	}
	g := &Gateway{o: Options{Asker: asker}, desk: people.New(people.Options{}), crowd: crowd.New(crowd.Options{Dropped: func(string) {}, Now: time.Now})}
	defer g.desk.Close()
	g.listeners.g = g
	var seats []*crowd.Seat
	for _, tenant := range []string{"", evaluation.DefaultTenant, "nowhere"} {
		who := &identity.Principal{Key: "k", Tenant: tenant}
		seats = append(seats, g.crowd.Join(who))
		g.listeners.hear(who)
	}
	for _, s := range seats {
		g.listeners.rest()
		if n := len(g.listeners.hearing); n != 1 && s != seats[2] {
			t.Errorf("%d are heard", n)
		}
		s.Leave()
	}
	g.listeners.rest()
	if n := len(g.listeners.hearing); n != 0 {
		t.Errorf("%d are heard still", n)
	}
	seats[0] = g.crowd.Join(&identity.Principal{Key: "k"})
	g.listeners.hear(&identity.Principal{Key: "k"})
	if n := len(g.listeners.hearing); n != 1 {
		t.Errorf("%d are heard again", n)
	}
}
