package approval

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"policy-service/pdp/internal/ledger"
)

// counts are how many approvals are pending of the subject of a request, of its caller, and in its tenant.
type counts struct{ subject, caller, tenant int }

// counters are the keys of the counts.
func (q *ApprovalRequest) counters() (subject, caller, tenant string) {
	of := url.PathEscape(q.Tenant)
	return prefixOfSubject + of + "/" + q.owner().hash(), prefixOfCaller + of + "/" + q.asker().hash(), prefixOfTenant + of
}

func countsOf(from ledger.Reader, q *ApprovalRequest) (n counts) {
	subject, caller, tenant := q.counters()
	from.Get(subject, &n.subject)
	from.Get(caller, &n.caller)
	from.Get(tenant, &n.tenant)
	return n
}

// waits notes that one more approval is pending, or one less, and that an event for systems is due.
func (s *Store) waits(c *change, a *Approval, more int) {
	n := countsOf(c, &a.ApprovalRequest)
	subject, caller, tenant := a.counters()
	count := func(key string, now int) {
		if now > 0 {
			c.Put(key, now)
		} else {
			c.Delete(key)
		}
	}
	count(subject, n.subject+more)
	count(caller, n.caller+more)
	count(tenant, n.tenant+more)
	ofTenant, ofCaller := prefixPending+url.PathEscape(a.Tenant)+"/"+a.ID, prefixAsked+a.asker().hash()+"/"+a.ID
	e := Completed
	if more > 0 {
		c.Put(ofTenant, waiting{a.ExpiresAt})
		c.Put(ofCaller, true)
		e = Filed
	} else {
		c.Delete(ofTenant)
		c.Delete(ofCaller)
	}
	if s.options.Silent {
		return
	}
	due := untold{Tenant: a.Tenant, Caller: a.Caller}
	c.Get(prefixUntold+a.ID, &due)
	due.Events = append(due.Events, e)
	c.Put(prefixUntold+a.ID, due)
}

// pendingIn is how many approvals are pending in all tenants.
func pendingIn(tx *ledger.Tx) (all int) {
	for _, read := range tx.Scan(prefixOfTenant, "") {
		n := 0
		read(&n)
		all += n
	}
	return all
}

// listed is an approval that an index lists, if it is pending under a key with a prefix.
type listed struct{ id, prefix string }

// pending are those that are pending, after an id and in order, but no more than most.
func (f *Filter) pending(tx *ledger.Tx, after string, most int) (all []listed) {
	order, tenants := strings.Compare, f.Tenants
	if f.Newest {
		order = func(a, b string) int { return strings.Compare(b, a) }
	}
	if tenants == nil {
		for tenant := range tx.Scan(prefixOfTenant, "") {
			tenant, _ = url.PathUnescape(tenant)
			tenants = append(tenants, tenant)
		}
	}
	for _, tenant := range slices.Compact(slices.Sorted(slices.Values(tenants))) {
		n, known, prefix := 0, len(all), prefixPending+url.PathEscape(tenant)+"/"
		for id := range f.scan(tx, prefix, after) {
			if n++; n > most || known == most && order(id, all[most-1].id) > 0 {
				break
			}
			all = append(all, listed{id, prefix})
		}
		slices.SortFunc(all, func(a, b listed) int { return order(a.id, b.id) })
		all = all[:min(most, len(all))]
	}
	return all
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

// untold are the events of an approval that are still to be delivered.
type untold struct {
	Tenant string  `json:"tenant"`
	Caller string  `json:"caller"`
	Events []Event `json:"events"`
}

// Untold are the events that are not delivered yet, those of one approval in
// their order. It leaves out events that are not on record yet. It has no more than share events of
// one caller's approvals in a tenant, so that those of others come, too.
func (s *Store) Untold(limit, share int) (out []Told) {
	of := map[[2]string]int{}
	err := s.ledger.View(func(tx *ledger.Tx) {
		for id, read := range tx.Scan(prefixUntold, "") {
			if len(out) >= limit {
				return
			}
			var due untold
			if !read(&due) {
				return
			}
			whose := [2]string{due.Tenant, due.Caller}
			if of[whose] >= share || s.ledger.Unrecorded(tx, id) {
				continue
			}
			of[whose] += len(due.Events)
			for _, e := range due.Events {
				out = append(out, Told{id, e})
			}
		}
	})
	if err != nil {
		s.options.OnError(err)
		return nil
	}
	if len(out) > 0 && !s.ledger.Claim(prefixUntold) { // another process delivers them
		return nil
	}
	return out[:min(len(out), max(limit, 0))]
}

// Told notes that an event was delivered. Until then it is delivered again, also after a restart.
func (s *Store) Told(t Told) error {
	return s.ledger.Change(context.Background(), func(c *change) {
		var due untold
		if c.Get(prefixUntold+t.Approval, &due) == 0 {
			return
		}
		due.Events = slices.DeleteFunc(due.Events, func(e Event) bool { return e == t.Event })
		if len(due.Events) > 0 {
			c.Put(prefixUntold+t.Approval, due)
		} else {
			c.Delete(prefixUntold + t.Approval)
		}
	})
}
