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
	tenants  map[string][]string // which are pending, in the order of their ids
	subjects map[owner]int       // how many are pending
	callers  map[asker]int       // likewise
	untold   map[string]asker    // who asked for those of which somebody is to be told
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
	return &memory{tenants: map[string][]string{}, subjects: map[owner]int{}, callers: map[asker]int{}, untold: map[string]asker{}, reserved: map[string]bool{}, live: map[string]bool{}, outbox: map[string][]*entry{}}
}

// remember reads the file as far as memory has it.
func remember(tx values) (*memory, error) {
	m := newMemory()
	err := tx.Bucket([]byte(bucketPending)).ForEach(func(k, v []byte) error {
		var w waiting
		if err := tx.decode(bucketPending, k, v, &w); err != nil {
			return err
		}
		who, err := askerOf(tx, k)
		m.count(pendingOne{string(k), w.owner(), who.caller}, true)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = tx.Bucket([]byte(bucketUntold)).ForEach(func(k, _ []byte) error {
		m.untold[string(k)], _ = askerOf(tx, k) // what is damaged of one that ended is found when it is read
		return nil
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

// pendingOne is one that is pending, with whose it is.
type pendingOne struct {
	id string
	owner
	caller string
}

// count notes that one is pending, or is no more. It is with the lock, or before anybody
// else has m.
func (m *memory) count(one pendingOne, is bool) {
	ids := m.tenants[one.tenant]
	at, known := slices.BinarySearch(ids, one.id)
	if known == is {
		return
	}
	n := 1
	if is {
		ids = slices.Insert(ids, at, one.id)
	} else {
		n, ids = -1, slices.Delete(ids, at, at+1)
	}
	if m.tenants[one.tenant] = ids; len(ids) == 0 {
		delete(m.tenants, one.tenant)
	}
	m.pending += n
	counted(m.subjects, one.owner, n)
	counted(m.callers, asker{one.tenant, one.caller}, n)
}

func counted[K comparable](of map[K]int, key K, n int) {
	if of[key] += n; of[key] == 0 {
		delete(of, key)
	}
}

// pendingIn are those that are pending in some tenants, after an id and in order, but no
// more than most.
func (m *memory) pendingIn(tenants []string, after string, most int) (ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, tenant := range slices.Compact(slices.Sorted(slices.Values(tenants))) {
		all := m.tenants[tenant]
		at, is := slices.BinarySearch(all, after)
		if is {
			at++
		}
		ids = append(ids, all[at:min(at+most, len(all))]...)
	}
	slices.Sort(ids)
	return ids[:min(most, len(ids))]
}

// apply takes in what was committed.
func (m *memory) apply(c *change, struck int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for one, is := range c.pending {
		m.count(one, is)
	}
	for id, who := range c.tells {
		m.untold[id] = who
	}
	if c.heard != "" {
		delete(m.untold, c.heard)
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

// counts are how many are pending of the subject of a question, of its caller, and in its
// tenant.
func (m *memory) counts(q *ApprovalRequest) (subject, caller, tenant int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.subjects[q.owner()], m.callers[q.asker()], len(m.tenants[q.Tenant])
}

// toTell is who asked for one of which somebody is to be told.
func (m *memory) toTell(id string) asker {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.untold[id]
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
