package mcp_test

import (
	"slices"
	"testing"
)

// ahead has a call under way, and gives what comes of it.
func (v *visitor) ahead(tool, arguments string) <-chan echo {
	over := make(chan echo, 1)
	go func() { over <- v.call(tool, arguments) }()
	return over
}

// A call waits for people, in either era, and goes on once they have approved it: once, as it came.
func TestApproveModernAndLegacyWait(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			w := newPeople(t, land{})
			over := w.plain(era).ahead("second-person", `{"n": 1.0}`)
			id := w.asks("second-person")
			w.untouched(t)
			w.approve("mia", id)
			if got := <-over; !got.ran() {
				t.Errorf("it came to %s", got)
			}
			if got := w.forwarded("second-person"); !slices.Equal(got, []string{`{"n": 1.0}`}) {
				t.Errorf("the server got %q", got)
			}
			if got := w.approval(id); got.Status != "used_up" || got.Used != 1 {
				t.Errorf("the approval is %s, used %d times", got.Status, got.Used)
			}
		})
	}
}
