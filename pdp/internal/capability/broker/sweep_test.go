package broker_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/evaluation/capability"
	"policy-service/pdp"
	store "policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/capability/broker"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/bolt"
	"policy-service/pdp/pdptest"
)

const noGrants = `@id("no") forbid(principal, action == Action::"capability.grant", resource);`

// away records, and whoever asked goes away meanwhile.
type away struct{ pdp.Recorder }

var errAway = errors.New("went away")

func (a away) Record(ctx context.Context, all []pdp.Record) error {
	return errors.Join(a.Recorder.Record(ctx, all), errAway)
}

// TestGrantInDoubtIsSwept: a grant that policies of before decided, and of which the asker did not hear, may count after all.
// If a sweep went by in between there is another one.
func TestGrantInDoubtIsSwept(t *testing.T) {
	t.Parallel()
	var f *service
	between, n := func() {}, 0
	f = newService(t, t.TempDir(), true, func(o *pdp.Options) {
		o.Recorder = away{o.Recorder}
		o.NewID = func() string { between(); n++; return fmt.Sprint("decision ", n) } // the policies of the grant are chosen by then
	})
	if _, err := f.asks(0); !errors.Is(err, errAway) {
		t.Fatal(err)
	}
	if f.Changed() {
		t.Error("no policies changed, and all are asked again")
	}
	none, err := pdp.New(pdptest.Bundle(map[string]string{"a.cedar": policies + noGrants}), pdp.Options{Now: f.Now})
	f.must(err)
	between = func() {
		between = func() {}
		f.pdp = none
		f.must(f.Sweep(t.Context()))
	}
	f.Advance(1)
	if _, err := f.asks(0); !errors.Is(err, errAway) {
		t.Fatal(err)
	}
	if !f.Changed() {
		t.Error("no sweep comes after the grant")
	}
	later, err := f.Later(t.Context())
	if len(later) != 2 || err != nil { // both grants are in doubt
		t.Fatalf("nor one after it is known what became of it: %v, %v", later, err)
	}
	if still, err := f.LookAgain(t.Context(), later); len(still) != 2 || err != nil {
		t.Errorf("it is not known yet: %v, %v", still, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	news := f.Store.News(nil)
	defer news.Close()
	go f.Store.Run(ctx) // which finds the decisions on record
	for len(later) > 0 {
		<-news.C
		later, err = f.LookAgain(t.Context(), later)
		f.must(err)
	}
	all, _, err := f.Store.List(t.Context(), store.Filter{}, "", 10)
	f.must(err)
	for _, c := range all {
		if c.State != store.Suspended {
			t.Errorf("%s is %s", c.ID, c.State)
		}
	}
}

// TestUnrecordedIsSweptLater: what cannot be put on record now is looked at once it is.
func TestUnrecordedIsSweptLater(t *testing.T) {
	t.Parallel()
	f := newService(t, t.TempDir(), true)
	g := f.granted(0)
	if later, err := f.Later(t.Context()); len(later) > 0 || err != nil {
		t.Fatal(later, err)
	}
	_, err := f.Store.Suspend(t.Context(), g.ID, "h1:a")
	f.must(err)
	f.must(f.log.Close())
	if _, err := f.Store.Resume(t.Context(), g.ID, "h1:a"); !errors.Is(err, store.ErrUnrecorded) {
		t.Fatal(err)
	}
	later, err := f.Later(t.Context())
	if len(later) != 1 || err != nil {
		t.Errorf("it is passed over: %v, %v", later, err)
	}
	if later, err = f.LookAgain(t.Context(), later); len(later) != 1 || err != nil {
		t.Errorf("it is forgotten: %v, %v", later, err)
	}
}

// TestDamageHoldsNothingUp: beside a capability that cannot be read, the others are suspended, and revoked. The token of
// one that has ended is not even read.
func TestDamageHoldsNothingUp(t *testing.T) {
	t.Parallel()
	data, ids := t.TempDir(), []string{}
	t.Run("before", func(t *testing.T) {
		f := newService(t, data, true)
		for n := range 4 {
			if ids = append(ids, f.granted(0).ID); n == 1 || n == 2 {
				_, err := f.Store.Return(t.Context(), ids[n], "", "")
				f.must(err)
			}
		}
	})
	e := bolt.New(bolt.Options{Path: filepath.Join(data, store.FileName)})
	err := e.Open()
	if err == nil {
		_, err = e.Write(ledger.Transaction{Puts: map[string][]byte{"xw/" + ids[1]: []byte("damage"), "x/" + ids[2]: []byte("damage")}})
	}
	if err = errors.Join(err, e.Close()); err != nil {
		t.Fatal(err)
	}
	f := newService(t, data, true)
	f.pdp, err = pdp.New(pdptest.Bundle(map[string]string{"a.cedar": policies + noGrants}), pdp.Options{Now: f.Now})
	f.must(err)
	if err := f.Sweep(t.Context()); !errors.Is(err, store.ErrDamaged) || strings.Contains(err.Error(), ids[1]) {
		t.Error(err)
	}
	for _, id := range []string{ids[0], ids[3]} {
		if c, _, err := f.Store.Get(t.Context(), id); c.State != store.Suspended || err != nil {
			t.Errorf("%s is %s, %v", id, c.State, err)
		}
	}
	n, err := f.Store.RevokeMany(t.Context(), store.Filter{Tenant: "default"}, "", "")
	if n != 2 || !errors.Is(err, store.ErrDamaged) {
		t.Errorf("%d are revoked, %v", n, err)
	}
}

// TestSweepLogsLittle: if the policies cannot be asked about any capability, because its tenant is gone, the service says so
// once.
func TestSweepLogsLittle(t *testing.T) {
	t.Parallel()
	f := newService(t, t.TempDir(), true)
	one, tenants := f.pdp, pdptest.Bundle(map[string]string{"a.cedar": policies, "tenants/acme/a.cedar": `@id("acme") permit(principal is agent, action == Action::"tool.see", resource);`})
	var err error
	f.pdp, err = pdp.New(tenants, pdp.Options{Now: f.Now})
	f.must(err)
	var last *broker.Answer
	for range 3 {
		last, err = f.asks(0, func(a *capability.Ask) { a.Tenant = "acme" })
		f.must(err)
	}
	f.pdp = one
	f.must(f.Sweep(t.Context()))
	if c, _, err := f.Store.Get(t.Context(), last.ID); c.State != store.Suspended || err != nil {
		t.Errorf("it is %s, %v", c.State, err)
	}
	if logged := f.logged.String(); strings.Count(logged, "cannot be asked") != 1 {
		t.Errorf("logged:\n%s", logged)
	}
}
