package approval

import (
	"maps"
	"slices"
	"sync"
)

// memory is what is known without reading the file. It is made anew whenever the file
// is opened, so nothing in it is known by it alone.
type memory struct {
	mu       sync.Mutex
	pending  int
	subjects map[owner]int  // how many are pending
	tenants  map[string]int // likewise
	reserved map[string]bool
	live     map[string]bool     // the open ones: those that were held against the log, or changed since
	outbox   map[string][]*entry // by approval, in the order of their numbers
	struck   []uint64            // of the outbox, on record: the next transaction removes them
}

// entry is a step in the outbox.
type entry struct {
	number   uint64
	approval string
	tenant   string
	id, name string
	step     *Step // nil once it was tried: then it may be on record
}

func newMemory() *memory {
	return &memory{subjects: map[owner]int{}, tenants: map[string]int{}, reserved: map[string]bool{}, live: map[string]bool{}, outbox: map[string][]*entry{}}
}

// remember reads the file as far as memory has it.
func remember(tx values) (*memory, error) {
	m := newMemory()
	err := tx.Bucket([]byte(bucketPending)).ForEach(func(k, v []byte) error {
		var w waiting
		err := tx.decode(bucketPending, k, v, &w)
		m.count(w.owner(), 1)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = tx.Bucket([]byte(bucketReserved)).ForEach(func(k, _ []byte) error {
		m.reserved[string(k)] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = tx.Bucket([]byte(bucketDue)).ForEach(func(k, v []byte) error {
		_, id := readTimeKey(k)
		m.live[id] = true
		var is bool
		return tx.decode(bucketDue, k, v, &is)
	})
	if err != nil {
		return nil, err
	}
	return m, tx.Bucket([]byte(bucketOutbox)).ForEach(func(k, v []byte) error {
		var s Step
		if err := tx.decode(bucketOutbox, k, v, &s); err != nil {
			return err
		}
		m.expect([]*entry{{number: readNumber(k), approval: s.Approval.ID, tenant: s.Approval.Tenant, id: s.ID, name: s.Name}})
		return nil
	})
}

// count is with the lock, or before anybody else has m.
func (m *memory) count(o owner, n int) {
	m.pending += n
	if m.subjects[o] += n; m.subjects[o] == 0 {
		delete(m.subjects, o)
	}
	if m.tenants[o.tenant] += n; m.tenants[o.tenant] == 0 {
		delete(m.tenants, o.tenant)
	}
}

// apply takes in what was committed.
func (m *memory) apply(c *change, struck int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for o, n := range c.pending {
		m.count(o, n)
	}
	for id, is := range c.reserved {
		if m.reserved[id] = is; !is {
			delete(m.reserved, id)
		}
	}
	for id, is := range c.live {
		if m.live[id] = is; !is {
			delete(m.live, id)
		}
	}
	m.struck = m.struck[struck:]
}

// isLive reports whether an approval is open, by what the log was asked.
func (m *memory) isLive(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live[id]
}

// liveOnes are the open ones, in the order of their ids.
func (m *memory) liveOnes() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.live))
}

func (m *memory) isNotLive(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, id)
}

// counts are how many of an owner's, and of its tenant's, are pending.
func (m *memory) counts(o owner) (subject, tenant int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.subjects[o], m.tenants[o.tenant]
}

// expect adds to the outbox.
func (m *memory) expect(entries []*entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		m.outbox[e.approval] = append(m.outbox[e.approval], e)
	}
}

// recorded strikes an entry off.
func (m *memory) recorded(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := slices.DeleteFunc(m.outbox[e.approval], func(o *entry) bool { return o.number == e.number })
	if m.outbox[e.approval] = left; len(left) == 0 {
		delete(m.outbox, e.approval)
	}
	m.struck = append(m.struck, e.number)
}

// unrecorded are the steps of an approval in the outbox.
func (m *memory) unrecorded(id string) []*entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.outbox[id])
}

// waits reports whether an approval counts for nothing before a step is on record.
func (m *memory) waits(id string) bool {
	return slices.ContainsFunc(m.unrecorded(id), func(e *entry) bool { return counts(e.name) })
}

// toStrike are the entries that the next transaction removes.
func (m *memory) toStrike() []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.struck)
}

// inDoubt are the approvals with reservations, and those with steps in the outbox.
func (m *memory) inDoubt() (reserved, unrecorded []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.reserved {
		reserved = append(reserved, id)
	}
	for id := range m.outbox {
		unrecorded = append(unrecorded, id)
	}
	slices.Sort(reserved)
	slices.Sort(unrecorded)
	return reserved, unrecorded
}
