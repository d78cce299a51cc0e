// Package ledgertest has an engine for tests that does to a ledger what a cluster does: other processes write to it, too,
// changes come in between, and answers are late or lost. Below it is another engine. [Records] are the log of a store.
package ledgertest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"policy-service/pdp/internal/ledger"
)

// Cluster is the state that all processes of a test share. Each has an engine of its own, by [Cluster.Process].
type Cluster struct {
	Below ledger.Engine
	// Of makes the engine of each process, in the place of Below.
	Of func() ledger.Engine
	// Conflicts says that one of so many transactions is refused as if another change had come in between, but never more
	// than five of one process in a row. Forgets says that of so many transactions that were made one has its answer lost.
	// Late is how long a transaction waits at most. 0 is never.
	Conflicts, Forgets int
	Late               time.Duration
	// Lost is the error of a transaction whose answer is lost.
	Lost error
	// Alone says that there is one process.
	Alone bool
	Seed  uint64

	mu       sync.Mutex // guards what follows
	random   *rand.Rand
	open     int
	watchers map[*process]func(keys []string)
}

// Process is the engine of one process.
func (c *Cluster) Process() ledger.Engine {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.random == nil {
		c.random, c.watchers = rand.New(rand.NewPCG(c.Seed, 0)), map[*process]func([]string){}
	}
	if c.Of != nil {
		return &process{Engine: c.Of(), c: c, own: true}
	}
	return &process{Engine: c.Below, c: c}
}

// one reports whether it is one of so many.
func (c *Cluster) one(of int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return of > 0 && c.random.IntN(of) == 0
}

func (c *Cluster) late() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(c.random.Int64N(int64(c.Late) + 1))
}

type process struct {
	ledger.Engine
	c      *Cluster
	own    bool // no other process has this engine
	mu     sync.Mutex
	row    int // conflicts in a row
	closed bool
}

// Open implements [ledger.Engine]. What is below is opened once.
func (p *process) Open() error {
	if p.own {
		return p.Engine.Open()
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.c.open > 0 {
		p.c.open++
		return nil
	}
	err := p.Engine.Open()
	if err == nil {
		p.c.open++
	}
	return err
}

// Close implements [ledger.Engine].
func (p *process) Close() error {
	if p.own {
		return p.Engine.Close()
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	if p.c.open--; p.c.open > 0 {
		return nil
	}
	return p.Engine.Close()
}

// Shared implements [ledger.Engine].
func (p *process) Shared() bool { return !p.c.Alone }

// Watch implements [ledger.Engine].
func (p *process) Watch(changed func(keys []string)) (stop func()) {
	if p.own {
		return p.Engine.Watch(changed)
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.watchers[p] = changed
	return func() {
		p.c.mu.Lock()
		defer p.c.mu.Unlock()
		delete(p.c.watchers, p)
	}
}

// tell has the watchers of the other processes called.
func (p *process) tell(t ledger.Transaction) {
	keys := slices.Sorted(maps.Keys(t.Puts))
	p.c.mu.Lock()
	others := maps.Clone(p.c.watchers)
	p.c.mu.Unlock()
	for other, changed := range others {
		if other != p {
			changed(keys)
		}
	}
}

// Write implements [ledger.Engine].
func (p *process) Write(t ledger.Transaction) (revision uint64, err error) {
	if late := p.c.late(); late > 0 {
		<-time.After(late)
	}
	p.mu.Lock()
	conflict := p.row < 5 && p.c.one(p.c.Conflicts)
	if p.row++; !conflict {
		p.row = 0
	}
	p.mu.Unlock()
	if conflict {
		return 0, ledger.ErrConflict
	}
	if revision, err = p.Engine.Write(t); err == nil {
		p.tell(t)
	}
	if err == nil && p.c.one(p.c.Forgets) {
		return 0, fmt.Errorf("%w: the answer is lost", p.c.Lost)
	}
	return revision, err
}
