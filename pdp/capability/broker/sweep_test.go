package broker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"policy-service/pdp"
	store "policy-service/pdp/capability"
	"policy-service/pdp/pdptest"
)

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
	var f *bench
	between, n := func() {}, 0
	f = newBench(t, t.TempDir(), true, func(o *pdp.Options) {
		o.Recorder = away{o.Recorder}
		o.NewID = func() string { between(); n++; return fmt.Sprint("decision ", n) } // the policies of the grant are chosen by then
	})
	if _, err := f.asks(0); !errors.Is(err, errAway) {
		t.Fatal(err)
	}
	if f.Changed() {
		t.Error("no policies changed, and all are asked again")
	}
	none, err := pdp.New(pdptest.Bundle(map[string]string{"a.cedar": policies + `@id("no") forbid(principal, action == Action::"capability.grant", resource);`}), pdp.Options{Now: f.Now})
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
	if later, err := f.Later(t.Context()); !later || err != nil {
		t.Errorf("nor one after it is known what became of it: %v, %v", later, err)
	}
}

// TestUnrecordedIsSweptLater: what cannot be put on record now is looked at once it is.
func TestUnrecordedIsSweptLater(t *testing.T) {
	t.Parallel()
	f := newBench(t, t.TempDir(), true)
	g := f.granted(0)
	if later, err := f.Later(t.Context()); later || err != nil {
		t.Fatal(later, err)
	}
	_, err := f.Store.Suspend(t.Context(), g.ID, "h1:a")
	f.must(err)
	f.must(f.log.Close())
	if _, err := f.Store.Resume(t.Context(), g.ID, "h1:a"); !errors.Is(err, store.ErrUnrecorded) {
		t.Fatal(err)
	}
	if later, err := f.Later(t.Context()); !later || err != nil {
		t.Errorf("it is passed over: %v, %v", later, err)
	}
}
