package approval

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/ledger"
)

// queue has, in memory, the approvals that wait for a person,
// and those with events still to be delivered to systems. It is made anew whenever the file is
// opened, so nothing in it is known by it alone.
type queue struct {
	pending atomic.Int64
	mu      sync.Mutex          // guards the fields below
	tenants map[string][]string // which are pending, in the order of their ids
	askers  map[owner][]string  // the same, by requester
	owners  map[owner]int       // how many are pending, of subjects
	untold  map[string]owner    // requesters of approvals with events to be delivered
}

// readQueue makes the queue: of the open approvals those that are pending, and from the file those of which systems are
// still to be told.
func readQueue(tx *ledger.Tx, open []Approval) *queue {
	q := &queue{
		tenants: map[string][]string{},
		askers:  map[owner][]string{},
		owners:  map[owner]int{},
		untold:  map[string]owner{},
	}
	for _, a := range open {
		if a.Status == Pending {
			q.waits(a.ID, a.owner(), a.asker(), true)
		}
	}
	for key := range tx.Scan(bucketUntold, nil) {
		_ = tx.Try(func(tx *ledger.Tx) { // damage in one that ended is found when it is read
			q.untold[string(key)] = askerOf(tx, key)
		})
	}
	return q
}

// askerOf reads the caller that asked for an approval, and nothing else of it.
func askerOf(tx *ledger.Tx, id []byte) owner {
	var a struct {
		Tenant string `json:"tenant"`
		Caller string `json:"caller"`
	}
	tx.Get(bucketApprovals, id, &a, json.RejectUnknownMembers(false))
	return owner{a.Tenant, evaluation.Ref{ID: a.Caller}}
}

// waits notes that an approval is pending, or is no more.
func (q *queue) waits(id string, subject, asker owner, pending bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !list(q.tenants, asker.tenant, id, pending) {
		return
	}
	list(q.askers, asker, id, pending)
	n := -1
	if pending {
		n = 1
	}
	q.pending.Add(int64(n))
	if q.owners[subject] += n; q.owners[subject] == 0 {
		delete(q.owners, subject)
	}
}

// list puts an id into the list of a key, in order, or takes it out. It reports whether that changes the list.
func list[K comparable](lists map[K][]string, key K, id string, in bool) bool {
	ids := lists[key]
	at, known := slices.BinarySearch(ids, id)
	if known == in {
		return false
	}
	if in {
		ids = slices.Insert(ids, at, id)
	} else {
		ids = slices.Delete(ids, at, at+1)
	}
	if lists[key] = ids; len(ids) == 0 {
		delete(lists, key)
	}
	return true
}

// tells notes the requester of an approval with events to be delivered.
func (q *queue) tells(id string, asker owner) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.untold[id] = asker
}

// told notes that all events of an approval are delivered.
func (q *queue) told(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.untold, id)
}

// toTell is the requester of an approval with events to be delivered.
func (q *queue) toTell(id string) owner {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.untold[id]
}

// counts are how many approvals are pending of the subject of a request, of its caller, and
// in its tenant.
func (q *queue) counts(r *ApprovalRequest) (subject, caller, tenant int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.owners[r.owner()], len(q.askers[r.asker()]), len(q.tenants[r.Tenant])
}

// askedBy are the ids of those that are pending of a caller in a tenant, from an id on and in order, but no more than
// most.
func (q *queue) askedBy(asker owner, from string, most int) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	ids := q.askers[asker]
	at, _ := slices.BinarySearch(ids, from)
	return slices.Clone(ids[at:min(at+most, len(ids))])
}

// pendingIn are the ids of those that are pending in some tenants, after an id and in order,
// but no more than most.
func (q *queue) pendingIn(tenants []string, after string, most int) (ids []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, tenant := range slices.Compact(slices.Sorted(slices.Values(tenants))) {
		all := q.tenants[tenant]
		at, is := slices.BinarySearch(all, after)
		if is {
			at++
		}
		ids = append(ids, all[at:min(at+most, len(all))]...)
	}
	slices.Sort(ids)
	return ids[:min(most, len(ids))]
}

// Event is an event that systems receive.
type Event string

// The events: that an approval waits for a person, and that it does no more.
const (
	Filed     Event = "filed"
	Completed Event = "completed"
)

// Told is an event of one approval.
type Told struct {
	Approval string // its id
	Event    Event
}

// Untold are the events that are not delivered yet, those of one approval in
// their order. It leaves out events that are not on record yet. It has no more than share events of
// one caller's approvals in a tenant, so that those of others come, too.
func (s *Store) Untold(limit, share int) (out []Told) {
	of := map[owner]int{}
	err := s.ledger.View(func(tx *ledger.Tx) {
		for key, read := range tx.Scan(bucketUntold, nil) {
			if len(out) >= limit {
				return
			}
			id := string(key)
			who := s.queue.Load().toTell(id)
			var events []Event
			if of[who] >= share || !read(&events) || s.ledger.Unrecorded(id) {
				continue
			}
			of[who] += len(events)
			for _, e := range events {
				out = append(out, Told{id, e})
			}
		}
	})
	if err != nil {
		s.options.OnError(err)
		return nil
	}
	return out[:min(len(out), max(limit, 0))]
}

// Told notes that an event was delivered. Until then it is delivered again, also after a restart.
func (s *Store) Told(t Told) error {
	return s.ledger.Update(func(c *change) {
		var events []Event
		if !c.Get(bucketUntold, []byte(t.Approval), &events) {
			return
		}
		events = slices.DeleteFunc(events, func(e Event) bool { return e == t.Event })
		if len(events) > 0 {
			c.Put(bucketUntold, []byte(t.Approval), events)
			return
		}
		c.Delete(bucketUntold, []byte(t.Approval))
		c.Then(func() { s.queue.Load().told(t.Approval) })
	})
}
