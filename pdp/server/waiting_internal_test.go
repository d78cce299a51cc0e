package server

import (
	"testing"
	"time"
)

// However many one caller has wait, there is room for others, and after all that there
// is room again.
func TestRoomToWait(t *testing.T) {
	w := newWaiting(time.Second)
	places := func(caller string) (n int, limit string) {
		for limit = w.place(caller); limit == ""; limit = w.place(caller) {
			n++
		}
		return n, limit
	}
	for _, caller := range []string{"key:a", "key:b", "key:c", "key:d"} {
		if n, limit := places(caller); n != mostPatient/4 || limit != "waiting_share" {
			t.Errorf("%d of %s wait, and then there is %s", n, caller, limit)
		}
	}
	if n, limit := places("key:e"); n != 0 || limit != "waiting" {
		t.Errorf("%d of one too many wait, and then there is %s", n, limit)
	}
	w.leave("key:a")
	if limit := w.place("key:e"); limit != "" {
		t.Error("who left is still counted")
	}
	for range mostOfOne - 1 {
		w.leave("key:a")
	}
	if _, known := w.of["key:a"]; known {
		t.Error("who does not wait is remembered")
	}
}
