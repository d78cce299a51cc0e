package turns

import (
	"context"
	"errors"
	"testing"
)

// One after the other, who gives up is not waited for, and nothing is left of it.
func TestTurns(t *testing.T) {
	var all Turns
	done, err := all.Take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := all.Take(gone, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a second had its turn: %v", err)
	}
	other, err := all.Take(t.Context(), "b")
	if err != nil {
		t.Errorf("another waits: %v", err)
	}
	done()
	if done, err = all.Take(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	done()
	if _, ok := all.Try("b"); ok {
		t.Error("a third took what a second has")
	}
	other()
	if again, ok := all.Try("b"); !ok {
		t.Error("nobody has it, and it cannot be taken")
	} else {
		again()
	}
	if len(all.held) != 0 {
		t.Errorf("%d are left", len(all.held))
	}
}
