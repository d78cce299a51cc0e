package link

import (
	"testing"
	"testing/synctest"
	"time"
)

// A server that was waited for in vain is waited for half as long the next time, until it answers or a minute has gone.
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l lateness
		want := func(of string, d time.Duration) {
			t.Helper()
			if got := l.patience(of); got != d {
				t.Errorf("it is waited for %v, and it should be %v", got, d)
			}
		}
		want("list", patience)
		for n := 1; n < 5; n++ {
			l.note("list", true)
			want("list", max(patience>>n, Glance))
		}
		want("open", patience)
		time.Sleep(time.Minute - time.Nanosecond)
		want("list", Glance)
		time.Sleep(time.Nanosecond)
		want("list", patience)
		l.note("list", true)
		want("list", Glance)
		l.note("list", false)
		want("list", patience)
		l.note("list", true)
		want("list", patience/2)
	})
}
