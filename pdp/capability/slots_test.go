package capability_test

import (
	"path"
	"testing"
	"time"

	token "policy-service/evaluation/capability"
	"policy-service/pdp/capability"
)

// offline has a capability take a place in a status list.
func offline(t *testing.T, s *capability.Store) func(*capability.New) {
	name, index, err := s.NewPlace("acme")
	must(t, err)
	return func(n *capability.New) {
		n.Token.Verify, n.Token.Status = token.Offline, token.Listed{URI: "https://pdp.example.com/v1/capabilities/status/" + name, Index: index}
	}
}

// listed is what the status list of a token says of it.
func listed(t *testing.T, s *capability.Store, of token.Token, now time.Time) token.State {
	t.Helper()
	list := token.NewStatusList(of.Status.URI, now, time.Minute)
	must(t, s.FillList(path.Base(of.Status.URI), list))
	return list.State(of.Status.Index, now)
}

// TestForgottenIsListed: what was taken back stays in its status list as long as a token of it lasts, however soon it could
// be forgotten: nobody else says to a gateway that verifies by itself that it does not count.
func TestForgottenIsListed(t *testing.T) {
	t.Parallel()
	r := newRecord()
	o := r.options()
	o.Retain = time.Hour
	s := mustOpen(t, quick(t), o)
	lasts := func(d time.Duration) func(*capability.New) {
		return func(n *capability.New) { n.Token.Expires = r.time().Add(d) }
	}
	revoked := r.mustGrant(t, s, asked(s, r.time(), "a", offline(t, s), lasts(24*time.Hour)))
	_, err := s.Revoke(t.Context(), revoked.ID, "mia", "")
	must(t, err)
	renewed := r.mustGrant(t, s, asked(s, r.time(), "b", offline(t, s), lasts(24*time.Hour)))
	less := asked(s, r.time(), "b", lasts(time.Minute), func(n *capability.New) {
		n.Token.ID, n.Token.Verify, n.Token.Status = renewed.ID, token.Offline, renewed.Token.Status
	})
	use, err := s.Renew(t.Context(), renewed.ID, less, "renewal")
	must(t, err)
	must(t, r.decide("renewal"))
	use.Spent(t.Context())
	for range 8 {
		r.pass(3*time.Hour - time.Second)
		s.Work(t.Context())
		for name, of := range map[string]token.Token{"revoked": revoked.Token, "renewed": renewed.Token} {
			if state := listed(t, s, of, r.time()); state != token.StateInvalid {
				t.Errorf("at %v, what was %s has the state %v", r.time(), name, state)
			}
		}
	}
	r.pass(time.Hour + time.Minute)
	s.Work(t.Context())
	for _, id := range []string{revoked.ID, renewed.ID} {
		if c, found, err := s.Get(t.Context(), id); found || err != nil {
			t.Errorf("after its time it is %v, %v", c.State, err)
		}
	}
}
