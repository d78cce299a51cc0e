package console

import (
	"fmt"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest/clock"
)

// There are never more than so many sessions. The oldest goes, unless the caller has too many of its own.
func TestManySessions(t *testing.T) {
	t.Parallel()
	now := clock.New()
	s := newMemory(time.Hour, now.Now)
	var ids []SessionID
	for n := range mostSessions + 2 {
		ids = append(ids, beginAt(t, s, now, n))
	}
	in := func(id SessionID) bool {
		_, ok, err := s.Find(t.Context(), id, true)
		return ok && err == nil
	}
	if len(s.byID) != mostSessions || in(ids[0]) || in(ids[1]) || !in(ids[2]) || !in(ids[mostSessions+1]) {
		t.Errorf("there are %d", len(s.byID))
	}
	now.Advance(time.Hour) // all are over: nobody has to go for the next
	one := beginAt(t, s, now, 0)
	if len(s.byID) != 1 || len(s.ofCaller) != 1 || !in(one) {
		t.Errorf("there are %d", len(s.byID))
	}
}

// beginAt begins a session of the caller n, which lasts an hour.
func beginAt(t *testing.T, s Sessions, now *clock.Clock, n int) SessionID {
	id := newTicket().id()
	if err := s.Begin(t.Context(), id, Session{Caller: fmt.Sprint("key:", n), Used: now.Now(), End: now.Now().Add(time.Hour)}); err != nil {
		t.Error(err)
	}
	return id
}

// What addresses are one: those of one home. The table does not grow without end, and tries at the same moment count.
func TestAddresses(t *testing.T) {
	t.Parallel()
	for one, other := range map[string]string{
		"[2001:db8:1:2::1]:5":  "[2001:db8:1:2:ffff::9]:6",
		"[::ffff:192.0.2.1]:5": "192.0.2.1:7",
		"[fe80::1%eth0]:5":     "[fe80::2%eth1]:5",
		"no address":           "",
	} {
		if from(one) != from(other) {
			t.Errorf("%s is %v, and %s is %v", one, from(one), other, from(other))
		}
	}
	for one, other := range map[string]string{"[2001:db8:1:2::1]:5": "[2001:db8:1:3::1]:5", "192.0.2.1:5": "192.0.2.2:5", "[::1]:5": "127.0.0.1:5"} {
		if from(one) == from(other) {
			t.Errorf("%s and %s are one", one, other)
		}
	}
	now := clock.New()
	all := newTries(now.Now, mostTries)
	for range mostTries {
		all.take(from("192.0.2.1:5"))
	}
	now.Advance(time.Second)
	for n := range mostAddresses - 1 {
		if wait := all.take(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 32)); wait > 0 {
			t.Fatalf("the address %d waits %v", n, wait)
		}
	}
	if wait := all.take(from("192.0.2.1:5")); wait != triesFor-time.Second {
		t.Errorf("it waits %v", wait)
	}
	all.take(from("192.0.2.9:5"))
	if len(all.made) != mostAddresses {
		t.Errorf("%d addresses are known", len(all.made))
	}
	now.Advance(triesFor)
	all.take(from("192.0.2.8:5"))
	if len(all.made) != 1 {
		t.Errorf("%d addresses are known", len(all.made))
	}
}

func from(address string) netip.Prefix {
	r := httptest.NewRequest("POST", "/", nil)
	r.RemoteAddr = address
	return auth.AddressOf(r)
}

// Sessions begin, are used and end side by side.
func TestSessionsSideBySide(t *testing.T) {
	t.Parallel()
	now := clock.New()
	s := newMemory(time.Hour, now.Now)
	all := newTries(now.Now, mostTries)
	let := make(chan bool, 100)
	var wait sync.WaitGroup
	for n := range 8 {
		wait.Go(func() {
			for range 50 {
				id := beginAt(t, s, now, n)
				now.Advance(1)
				if _, ok, err := s.Find(t.Context(), id, true); !ok || err != nil {
					t.Error("a new session is none", err)
				}
				_ = s.Drop(t.Context(), id)
				if _, ok, err := s.Find(t.Context(), id, true); ok || err != nil {
					t.Error("an ended session goes on", err)
				}
			}
			if all.take(from("192.0.2.1:5")) == 0 {
				let <- true
			}
		})
	}
	wait.Wait()
	if len(let) != mostTries || len(s.byID) != 0 {
		t.Errorf("%d tries were let in, and %d sessions are left", len(let), len(s.byID))
	}
}

// However many logins are answered, none is answered twice. Those that have waited longer than the answers are known are
// as if they had been.
func TestALoginIsAnsweredOnceInAFlood(t *testing.T) {
	t.Parallel()
	now := clock.New()
	all := newAnswers(now.Now, 10)
	began := []time.Time{}
	answer := func(n int) bool { return all.first(fmt.Sprint(n), began[n].Add(loginFor)) }
	for n := range 100 {
		now.Advance(time.Second)
		began = append(began, now.Now())
		now.Advance(time.Second)
		if !answer(n) {
			t.Fatalf("login %d is refused", n)
		}
		for before := range began {
			if answer(before) {
				t.Fatalf("after %d, login %d is answered again", n, before)
			}
		}
		if len(all.newer)+len(all.older) > 20 {
			t.Fatalf("%d answers are known", len(all.newer)+len(all.older))
		}
	}
}
