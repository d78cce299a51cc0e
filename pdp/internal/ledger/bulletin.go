package ledger

import (
	"slices"
	"strings"
	"sync"
)

// Bulletin wakes readers when an item has changed, and the change counts.
type Bulletin struct {
	mu      sync.Mutex
	readers map[*News]chan<- struct{}
}

// News wake a reader when something that it waits for has changed, and else not: a change in one tenant wakes no reader
// of another.
type News struct {
	// C has one value while there is something that was not received yet.
	C     <-chan struct{}
	of    func(Notice) bool
	board *Bulletin
}

// Notice is the part of a changed item that news are chosen by: whose it is, by tenant and caller, and its id.
type Notice struct {
	Tenant, Caller, ID string
}

func (s Standing) notice() Notice { return Notice{Tenant: s.Tenant, Caller: s.Caller, ID: s.ID} }

// News are of those items for which a function says so; the function must be quick. If it is nil, they are of every
// change, also one of no item. A reader that looks after this returned misses nothing that was on record by then or
// comes after it.
func (b *Bulletin) News(of func(Notice) bool) *News {
	c := make(chan struct{}, 1)
	n := &News{C: c, of: of, board: b}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readers[n] = c
	return n
}

// changed makes news of what another process did, once it counts. Without keys, anything may have changed.
func (l *Ledger[I, S]) changed(keys []string) {
	if keys == nil {
		l.postTo(func(*News) bool { return true })
		return
	}
	form := &l.options.Form
	var ids []string
	for _, key := range keys {
		for _, prefix := range []string{form.Item(""), form.of(prefixOutbox), l.options.Beside} {
			if rest, is := strings.CutPrefix(key, prefix); is && prefix != "" {
				id, _, _ := strings.Cut(rest, "/")
				ids = append(ids, id)
			}
		}
	}
	var news []Notice
	err := l.View(func(tx *Tx) {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
			if item, found := l.options.Rules.State(tx, id); found && !l.Unrecorded(tx, id) {
				news = append(news, item.Standing().notice())
			}
		}
	})
	if err != nil {
		l.options.OnError(err)
	}
	if len(news) > 0 {
		l.post(news)
	}
}

// Close ends them.
func (n *News) Close() {
	n.board.mu.Lock()
	defer n.board.mu.Unlock()
	delete(n.board.readers, n)
}

// post says that a change of these items counts.
func (b *Bulletin) post(items []Notice) {
	b.postTo(func(n *News) bool { return n.of == nil || slices.ContainsFunc(items, n.of) })
}

// postTo wakes some readers.
func (b *Bulletin) postTo(which func(*News) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, c := range b.readers {
		if !which(n) {
			continue
		}
		select {
		case c <- struct{}{}:
		default: // what it has is not received yet
		}
	}
}
