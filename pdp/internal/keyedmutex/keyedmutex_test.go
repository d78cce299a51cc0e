package keyedmutex

import (
	"context"
	"errors"
	"runtime"
	"testing"
)

// A locked key keeps out a second caller, who may give up; another key is free; and nothing is left of any of them.
func TestMutex(t *testing.T) {
	var m Mutex
	unlock, err := m.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Lock(gone, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a locked key was locked again: %v", err)
	}
	other, err := m.Lock(t.Context(), "b")
	if err != nil {
		t.Errorf("another key waits: %v", err)
	}
	unlock()
	if unlock, err = m.Lock(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	unlock()
	if _, ok := m.TryLock("b"); ok {
		t.Error("TryLock locked a locked key")
	}
	other()
	if again, ok := m.TryLock("b"); !ok {
		t.Error("TryLock did not lock a free key")
	} else {
		again()
	}
	if len(m.keys) != 0 {
		t.Errorf("%d keys are left", len(m.keys))
	}
}

// As many callers hold a key, or wait for it, as may, and no more; and then there is room again.
func TestMost(t *testing.T) {
	m := Mutex{Most: 2}
	unlock, err := m.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan func())
	go func() {
		second, err := m.Lock(t.Context(), "a")
		if err != nil {
			t.Error(err)
		}
		waits <- second
	}()
	waiting := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.keys["a"].users
	}
	for waiting() < 2 {
		runtime.Gosched()
	}
	if _, err := m.Lock(t.Context(), "a"); !errors.Is(err, ErrFull) {
		t.Errorf("a third: %v", err)
	}
	if _, ok := m.TryLock("a"); ok {
		t.Error("TryLock: a third")
	}
	if other, err := m.Lock(t.Context(), "b"); err != nil {
		t.Errorf("another key: %v", err)
	} else {
		other()
	}
	unlock()
	(<-waits)()
	if len(m.keys) > 0 {
		t.Errorf("%d keys are left", len(m.keys))
	}
}
