package capability_test

import (
	"context"
	"fmt"
	"path"
	"slices"
	"testing"
	"time"

	token "policy-service/evaluation/capability"
	"policy-service/pdp/internal/capability"
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
		return func(n *capability.New) { n.Token.Expires = r.Time().Add(d) }
	}
	revoked := r.mustGrant(t, s, asked(s, r.Time(), "a", offline(t, s), lasts(24*time.Hour)))
	_, err := s.Revoke(t.Context(), revoked.ID, "mia", "")
	must(t, err)
	renewed := r.mustGrant(t, s, asked(s, r.Time(), "b", offline(t, s), lasts(24*time.Hour)))
	less := asked(s, r.Time(), "b", lasts(time.Minute), func(n *capability.New) {
		n.Token.ID, n.Token.Verify, n.Token.Status = renewed.ID, token.Offline, renewed.Token.Status
	})
	use, err := s.Renew(t.Context(), renewed.ID, less, "renewal")
	must(t, err)
	must(t, r.Decide("renewal"))
	must(t, use.Spent(t.Context()))
	for range 8 {
		r.Pass(3*time.Hour - time.Second)
		s.Work(t.Context())
		for name, of := range map[string]token.Token{"revoked": revoked.Token, "renewed": renewed.Token} {
			if state := listed(t, s, of, r.Time()); state != token.StateInvalid {
				t.Errorf("at %v, what was %s has the state %v", r.Time(), name, state)
			}
		}
	}
	r.Pass(time.Hour + time.Minute)
	s.Work(t.Context())
	for _, id := range []string{revoked.ID, renewed.ID} {
		if c, found, err := s.Get(t.Context(), id); found || err != nil {
			t.Errorf("after its time it is %v, %v", c.State, err)
		}
	}
}

// handedOn is a capability made from another one.
func handedOn(from capability.Capability) func(*capability.New) {
	return func(n *capability.New) {
		of := from.Token
		n.Token.Parent, n.Token.Depth, n.Token.MaxDepth, n.Token.Grantor = of.ID, of.Depth+1, max(of.MaxDepth, of.Depth+1), &of.Holder
		n.Token.Layers = append(slices.Clone(of.Layers), n.Token.Layers...)
		n.Token.NotBefore, n.Token.Expires = of.NotBefore, of.Expires
	}
}

func deep(n int) func(*capability.New) { return func(a *capability.New) { a.Token.MaxDepth = n } }

// TestListedAsTheWorstOfItsLine: a list says of what was handed on no more than of any that it was made from, also where one of
// those was renewed: with less depth, or for later.
func TestListedAsTheWorstOfItsLine(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	root := r.mustGrant(t, s, asked(s, r.Now, "a", offline(t, s), deep(2)))
	child := r.mustGrant(t, s, asked(s, r.Now, "b", offline(t, s), handedOn(root)))
	last := r.mustGrant(t, s, asked(s, r.Now, "c", offline(t, s), handedOn(child)))
	renew := func(decision string, change ...func(*capability.New)) {
		t.Helper()
		next := asked(s, r.Time(), "a", append([]func(*capability.New){deep(2), func(n *capability.New) {
			n.Token.ID, n.Token.Verify, n.Token.Status = root.ID, token.Offline, root.Token.Status
		}}, change...)...)
		use, err := s.Renew(t.Context(), root.ID, next, decision)
		must(t, err)
		must(t, r.Decide(decision))
		must(t, use.Spent(t.Context()))
	}
	are := func(name, want string, used ...token.Code) {
		t.Helper()
		got := ""
		for n, of := range []capability.Capability{root, child, last} {
			got += string("?vis"[listed(t, s, of.Token, r.Time())])
			_, err := s.Usable(t.Context(), of.ID)
			wantCode(t, fmt.Sprint(name, ", use of ", n), err, used[n])
		}
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	change := func(do func(ctx context.Context, id, bundle string) (capability.Capability, error), of capability.Capability) {
		t.Helper()
		_, err := do(t.Context(), of.ID, "h1:abc")
		must(t, err)
	}
	are("granted", "vvv", "", "", "")
	change(s.Suspend, child)
	are("the child suspended", "vss", "", token.Suspended, token.Suspended)
	change(s.Suspend, root)
	change(s.Resume, child)
	are("the first suspended", "sss", token.Suspended, token.Suspended, token.Suspended)
	change(s.Resume, root)
	are("all resumed", "vvv", "", "", "")
	renew("less deep", deep(1))
	are("the first less deep", "vvi", "", "", token.Revoked)
	renew("as deep as before")
	are("as deep as before", "vvv", "", "", "")
	r.Pass(time.Minute)
	renew("renewed as it was")
	are("renewed as it was", "vvv", "", "", "")
	renew("later", func(n *capability.New) { n.Token.NotBefore = r.Time().Add(time.Minute) })
	are("the first for later", "vss", "", token.NotYetValid, token.NotYetValid)
	_, err := s.Reserve(t.Context(), last.ID, "too early")
	wantCode(t, "a use too early", err, token.NotYetValid)
	r.Pass(time.Minute)
	are("from then on", "vvv", "", "", "")
	_, err = s.Revoke(t.Context(), root.ID, "mia", "")
	must(t, err)
	are("the first revoked", "iii", token.Revoked, token.Revoked, token.Revoked)
}
