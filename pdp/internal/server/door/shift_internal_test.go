package door

import (
	"context"
	"testing"
	"time"
)

// While one caller's request is worked on, and more of it wait, another caller has its turn
// in the middle, before the others.
func TestOneCallersWorkMakesWayForAnothers(t *testing.T) {
	t.Parallel()
	w := &Gate{Limit: 1, Patience: time.Hour}
	long := &Shift{Gate: w, Caller: "loud"}
	if err := long.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	more := w.join("loud")
	long.Since = time.Time{} // its time is over
	if err := long.GoOn(t.Context()); err != nil || !long.inside || len(more) > 0 {
		t.Fatalf("it makes way for itself: %v", err)
	}
	other := &Shift{Gate: w, Caller: "calm"}
	begun := make(chan error)
	go func() { begun <- other.Begin(t.Context()) }()
	for !w.wanted("loud") {
	}
	ctx, cancel := context.WithCancel(t.Context())
	again := make(chan error)
	go func() { again <- long.GoOn(ctx) }()
	// The first of the others of loud came before calm, so it is that one's turn, and then calm's.
	select {
	case <-more:
		w.Leave("loud")
	case err := <-begun:
		t.Fatal("out of turn", err)
	}
	if err := <-begun; err != nil || !other.inside {
		t.Fatal(err)
	}
	cancel() // whoever is gone has no place
	if err := <-again; err == nil || long.inside {
		t.Errorf("it goes on: %v", err)
	}
	long.End()
	other.End()
	other.End()
	if w.Inside() > 0 || w.waiting != 0 {
		t.Errorf("something is left: %+v", w)
	}
}
