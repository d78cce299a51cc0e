package server

import (
	"context"
	"testing"
	"time"
)

// While one caller's request is worked on, and more of it wait, another caller has its turn
// in the middle, before the others.
func TestOneCallersWorkMakesWayForAnothers(t *testing.T) {
	w := &gate{limit: 1, patience: time.Hour}
	long := &shift{of: w, caller: "loud"}
	if err := long.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	more := w.join("loud")
	long.since = time.Time{} // its time is over
	if err := long.goOn(t.Context()); err != nil || !long.inside || len(more) > 0 {
		t.Fatalf("it makes way for itself: %v", err)
	}
	other := &shift{of: w, caller: "calm"}
	begun := make(chan error)
	go func() { begun <- other.begin(t.Context()) }()
	for !w.wanted("loud") {
	}
	ctx, cancel := context.WithCancel(t.Context())
	again := make(chan error)
	go func() { again <- long.goOn(ctx) }()
	// The first of the others of loud came before calm, so it is that one's turn, and then calm's.
	select {
	case <-more:
		w.leave("loud")
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
	long.end()
	other.end()
	other.end()
	if w.busy() || w.waiting != 0 {
		t.Errorf("something is left: %+v", w)
	}
}
