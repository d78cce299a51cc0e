package console

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// tries bounds how often somebody does something who is not logged in, such as to fail to log in with an API key. An
// address has so many tries in a minute.
type tries struct {
	now  func() time.Time
	most int

	mu   sync.Mutex // guards what follows
	made map[netip.Prefix][]time.Time
}

const (
	mostTries     = 5
	mostRefusals  = 20 // that are logged
	triesFor      = time.Minute
	mostAddresses = 10_000
)

func newTries(now func() time.Time, most int) *tries {
	return &tries{now: now, most: most, made: map[netip.Prefix][]time.Time{}}
}

// take counts a try as one that fails, before anybody knows whether it does: tries at the same moment count, too.
// If the address has none left, take returns how long it has to wait.
func (t *tries) take(from netip.Prefix) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	made := slices.DeleteFunc(t.made[from], func(at time.Time) bool { return !now.Before(at.Add(triesFor)) })
	if len(made) >= t.most {
		t.made[from] = made
		return made[0].Add(triesFor).Sub(now)
	}
	if _, known := t.made[from]; !known && len(t.made) >= mostAddresses {
		t.forget(now)
	}
	t.made[from] = append(made, now)
	return 0
}

// forget deletes the addresses that have all their tries again, or else the one that tried last the longest ago.
func (t *tries) forget(now time.Time) {
	var oldest netip.Prefix
	var last time.Time
	for from, made := range t.made {
		switch at := made[len(made)-1]; {
		case !now.Before(at.Add(triesFor)):
			delete(t.made, from)
		case last.IsZero() || at.Before(last):
			oldest, last = from, at
		}
	}
	if len(t.made) >= mostAddresses {
		delete(t.made, oldest)
	}
}

// succeeded gives a try back.
func (t *tries) succeeded(from netip.Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if made := t.made[from]; len(made) > 1 {
		t.made[from] = made[:len(made)-1]
	} else {
		delete(t.made, from)
	}
}
