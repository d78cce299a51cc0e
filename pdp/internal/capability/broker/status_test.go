package broker_test

import (
	"context"
	"errors"
	"path"
	"slices"
	"testing"
	"time"

	"policy-service/evaluation/capability"
	"policy-service/pdp"
	"policy-service/pdp/internal/capability/broker"
	"policy-service/pdp/pdptest"
)

// TestStatusListWhileUnsettled: what is taken back after a change of the policies is listed before these were asked about all
// that is granted. Such a list ends when the last one from before the change does.
func TestStatusListWhileUnsettled(t *testing.T) {
	t.Parallel()
	f := newService(t, t.TempDir(), true)
	f.Settle()
	var places []capability.Listed
	var ids []string
	for range 2 {
		g, err := f.asks(0, func(a *capability.Ask) { a.Offline = true })
		f.must(err)
		token, refusal := capability.ParseToken(g.Token)
		if refusal != nil {
			t.Fatal(refusal)
		}
		places, ids = append(places, token.Status), append(ids, g.ID)
		f.Advance(time.Second)
	}
	name := path.Base(places[0].URI)
	read := func() *capability.StatusList {
		t.Helper()
		signed, err := f.StatusList(t.Context(), name)
		f.must(err)
		l, err := capability.ReadStatusList(t.Context(), f, signed.Text)
		f.must(err)
		return l
	}
	are := func(when string, l *capability.StatusList, want ...capability.State) {
		t.Helper()
		for n, at := range places {
			if got := l.State(at.Index, f.Now()); got != want[n] {
				t.Errorf("%s: %d is %v, want %v", when, n, got, want[n])
			}
		}
	}
	before := read()
	are("before", before, capability.StateValid, capability.StateValid)
	other, err := pdp.New(pdptest.Bundle(map[string]string{"a.cedar": policies + noGrants}), pdp.Options{Now: f.Now})
	f.must(err)
	f.pdp = other
	f.Advance(2 * time.Second)
	are("other policies", read(), capability.StateValid, capability.StateValid)
	_, err = f.Store.Revoke(t.Context(), ids[0], "mia", "")
	f.must(err)
	later := read()
	are("revoked", later, capability.StateInvalid, capability.StateValid)
	if !later.Expires.Equal(before.Expires) || !later.IssuedAt.After(before.IssuedAt) {
		t.Errorf("it counts from %v to %v, and that from before to %v", later.IssuedAt, later.Expires, before.Expires)
	}
	f.Advance(before.Expires.Sub(f.Now()) - time.Second)
	if last := read(); !last.Expires.Equal(before.Expires) || last.TTL != time.Second {
		t.Errorf("the last one ends at %v, and is fetched again after %v", last.Expires, last.TTL)
	}
	f.Settle()
	if settled := read(); settled.Expires.Sub(settled.IssuedAt) != time.Minute || settled.TTL != 15*time.Second {
		t.Errorf("once all were asked about it ends %v, and is fetched again after %v", settled.Expires, settled.TTL)
	}
	f.pdp, err = pdp.New(pdptest.Bundle(map[string]string{"a.cedar": policies}), pdp.Options{Now: f.Now})
	f.must(err)
	f.Advance(time.Minute)
	if _, err := f.StatusList(t.Context(), name); !errors.Is(err, broker.ErrUnsettled) {
		t.Errorf("after its end: %v", err)
	}
}

// TestSweepUnderTwoPolicies: where other policies came while all that is granted was asked about, lists wait until it is asked
// about once more, also if the first ones are in force again.
func TestSweepUnderTwoPolicies(t *testing.T) {
	t.Parallel()
	f := newService(t, t.TempDir(), true)
	ctx, stop := context.WithCancel(t.Context())
	var settled []bool // at each look
	f.looks = func() {
		settled = append(settled, f.WasSettled())
		switch len(settled) {
		case 2: // within the first sweep
			f.PoliciesChanged()
		case 3: // before the second
			stop()
		}
	}
	f.Run(ctx)
	if len(settled) < 3 || slices.Contains(settled, true) {
		t.Errorf("at the looks it was settled: %v", settled)
	}
}
