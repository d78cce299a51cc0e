package etcd

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/pdp/internal/ledger"
)

// Watch implements [ledger.Engine].
func (e *Engine) Watch(changed func(keys []string)) (stop func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := e.nextID
	e.nextID++
	e.readers[id] = changed
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.readers, id)
	}
}

// The watch is held against a linearizable read every pulse. It is begun again after so long without an answer.
const (
	pulse      = 500 * time.Millisecond
	watchAgain = 200 * time.Millisecond
)

// watch feeds the cache and the readers with all transactions from a revision on, until its context ends. If some are lost,
// because etcd was compacted meanwhile, the readers learn that anything may have changed.
func (e *Engine) watch(ctx context.Context, from int64) {
	var all sync.WaitGroup
	defer all.Wait()
	if e.Pulse {
		all.Go(func() { e.pulse(ctx) })
	}
	all.Go(func() { e.hand(ctx) })
	for ctx.Err() == nil {
		next := e.follow(ctx, from)
		if ctx.Err() != nil {
			return
		}
		if next > 0 { // as far as it came
			from = next
		} else if now, err := e.now(); err == nil {
			e.news.add(nil)
			e.cache.restart(now.at)
			from = now.at + 1
		}
		select {
		case <-time.After(watchAgain):
		case <-ctx.Done():
		}
	}
}

// follow watches until it fails, and returns where to go on; 0 if transactions are lost.
func (e *Engine) follow(ctx context.Context, from int64) (next int64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for got := range e.Client.Watch(clientv3.WithRequireLeader(ctx), e.Prefix, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if got.CompactRevision != 0 || got.Header != nil && !e.History.of(got.Header.ClusterId) {
			return 0
		}
		if got.Err() != nil {
			return from
		}
		e.changed(got.Events)
		if n := len(got.Events); n > 0 {
			from = got.Events[n-1].Kv.ModRevision + 1
		}
	}
	return from
}

// of reports whether a cluster is the one that is known.
func (h *History) of(cluster uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.restored && (h.cluster == 0 || h.cluster == cluster)
}

// changed takes the events of the watch: whole transactions, in their order.
func (e *Engine) changed(events []*clientv3.Event) {
	for len(events) > 0 {
		at := events[0].Kv.ModRevision
		changes, own := map[string]stored{}, true // what etcd removes with a lease is in no transaction, and no news
		for len(events) > 0 && events[0].Kv.ModRevision == at {
			kv := events[0].Kv
			one := stored{at: at}
			if events[0].Type != clientv3.EventTypeDelete {
				one.value, one.meta = kv.Value, metaOf(kv)
			}
			switch key := string(kv.Key); {
			case strings.HasPrefix(key, e.key("")):
				changes[strings.TrimPrefix(key, e.key(""))] = one
			case key == e.Prefix+last, strings.HasPrefix(key, e.Prefix+by):
				own = string(kv.Value) == e.name
				if known := e.History.lastKnown(key); at > known.Revision {
					_ = e.History.goesOn(key, known, Transaction{kv.Version, at}) // the next call returns the error
				}
			}
			events = events[1:]
		}
		if !own && len(changes) > 0 {
			e.news.add(slices.Collect(maps.Keys(changes)))
		}
		e.cache.change(changes, at)
	}
}

// news are the keys that the readers do not know of yet. They are here before the cache has them.
type news struct {
	mu   sync.Mutex
	keys []string
	lost bool          // any may have changed
	come chan struct{} // has room for one
}

const mostNews = 10_000

func (n *news) add(keys []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keys = append(n.keys, keys...)
	if n.lost = n.lost || keys == nil || len(n.keys) > mostNews; n.lost {
		n.keys = nil
	}
	select {
	case n.come <- struct{}{}:
	default:
	}
}

func (n *news) take() (keys []string, any bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	keys, any = n.keys, n.lost || n.keys != nil
	n.keys, n.lost = nil, false
	return keys, any
}

// hand hands the news to the readers: these may ask etcd, and the watch must not wait for that.
func (e *Engine) hand(ctx context.Context) {
	for {
		select {
		case <-e.news.come:
		case <-ctx.Done():
			return
		}
		e.handOver()
	}
}

// handOver returns when the readers know of all that the cache had when it was called.
func (e *Engine) handOver() {
	e.handing.Lock()
	defer e.handing.Unlock()
	keys, any := e.news.take()
	if !any {
		return
	}
	e.mu.Lock()
	all := slices.Collect(maps.Values(e.readers))
	e.mu.Unlock()
	for _, changed := range all {
		changed(keys)
	}
}

// pulse finds out again and again that the watch is current.
func (e *Engine) pulse(ctx context.Context) {
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for {
		began := time.Now()
		if now, err := e.now(); err == nil && e.cache.wait(now.last, pulse) {
			e.handOver()
			e.mu.Lock()
			e.contact = began
			e.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// stored is a value, or that there is none, as of a revision of etcd: its last change, or a later read.
type stored struct {
	value []byte
	meta  ledger.Meta
	at    int64
	asked bool // etcd was asked, and has not answered yet; no change up to at will come any more
}

// cache has values that were read, and what the watch says of them. It has two halves: the older one goes when the younger
// one is full.
type cache struct {
	mu    sync.Mutex
	young map[string]stored
	old   map[string]stored
	bytes int
	until int64         // all transactions up to this revision have come
	moved chan struct{} // closed when until grows
}

const (
	cacheHalf = 16 << 20 // bytes
	// cacheEach is the room of an entry besides its key and its value.
	cacheEach = 192
)

func newCache() *cache { return &cache{moved: make(chan struct{}), young: map[string]stored{}} }

// restart forgets all: what happened up to a revision has not come.
func (c *cache) restart(at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.young, c.old, c.bytes, c.until = map[string]stored{}, nil, 0, at
}

// wait waits until all transactions up to a revision have come, but no longer than so long.
func (c *cache) wait(last int64, most time.Duration) (come bool) {
	var late <-chan time.Time
	for {
		c.mu.Lock()
		come, moved := c.until >= last, c.moved
		c.mu.Unlock()
		if come {
			return true
		}
		if late == nil {
			late = time.After(most)
		}
		select {
		case <-moved:
		case <-late:
			return false
		}
	}
}

// find returns a value, and makes it one of the younger. Its caller has the lock.
func (c *cache) find(key string) (one stored, found bool) {
	if one, found = c.young[key]; found {
		return one, true
	}
	if one, found = c.old[key]; found {
		c.put(key, one)
	}
	return one, found
}

func (c *cache) put(key string, one stored) {
	if was, is := c.young[key]; is {
		c.bytes -= len(key) + len(was.value) + cacheEach
	}
	c.young[key] = one
	if c.bytes += len(key) + len(one.value) + cacheEach; c.bytes > cacheHalf {
		c.young, c.old, c.bytes = map[string]stored{}, c.young, 0
	}
}

// get finds a value as of a revision, before which last is that of the last transaction. If it is not known, etcd is to be
// asked for it, and [cache.keep] gets the answer.
func (c *cache) get(key string, at, last int64) (one stored, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, found := c.find(key)
	if !found {
		c.put(key, stored{asked: true, at: c.until})
		return one, false
	}
	return one, !one.asked && c.until >= last && one.at <= at
}

// keep keeps an answer, unless a change that came meanwhile is later, or may have come before the question.
func (c *cache) keep(key string, one stored) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, found := c.find(key); found && was.at <= one.at {
		c.put(key, one)
	}
}

// change takes the changes of one transaction: of values that are here, or on their way.
func (c *cache) change(changes map[string]stored, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, one := range changes {
		if was, found := c.find(key); found && was.at < at {
			c.put(key, one)
		}
	}
	if at > c.until {
		c.until = at
		close(c.moved)
		c.moved = make(chan struct{})
	}
}
