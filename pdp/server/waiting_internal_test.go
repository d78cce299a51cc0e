package server

import "testing"

// However many one caller has wait, there is room for others, and after all that there
// is room again.
func TestRoomToWait(t *testing.T) {
	w := newWaiting()
	joined := func(caller string) (n int) {
		for w.join(caller) {
			n++
		}
		return n
	}
	if one, other, third := joined("key:a"), joined("key:b"), joined("key:c"); one != mostOfOne || other != mostPatient-mostOfOne || third != 0 {
		t.Errorf("%d, %d and %d wait", one, other, third)
	}
	w.leave("key:a")
	if !w.join("key:c") {
		t.Error("who left is still counted")
	}
	for range mostOfOne - 1 {
		w.leave("key:a")
	}
	if _, known := w.of["key:a"]; known {
		t.Error("who does not wait is remembered")
	}
}
