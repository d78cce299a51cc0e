package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"policy-service/evaluation/capability"
	store "policy-service/pdp/internal/capability"
)

// ErrUnsettled says that no status list can be signed now: the policies changed, and were not asked yet about all that was
// granted. Readers go by the list that they have, and when it ends they refuse.
var ErrUnsettled = errors.New("after a change of policies, what was granted is still being looked at")

// statusLists are the lists that were asked for.
type statusLists struct {
	mu      sync.Mutex // guards the following
	of      map[string]*statusList
	settled string        // the digest of the policies that were asked about all that was granted
	changed chan struct{} // closed when settled changes
}

// statusList is one of them. What was signed answers all requests until something changes.
type statusList struct {
	mu     sync.Mutex // guards the following
	news   *store.News
	due    bool // something changed since it was signed
	signed SignedList
	list   *capability.StatusList
	made   time.Time // by the real clock
}

// SignedList is a status list as it is sent.
type SignedList struct {
	Text            string
	Issued, Expires time.Time
	TTL             time.Duration
	// Version is another one whenever the list says something else.
	Version int
}

// listAgain is the least time between two lists because of changes.
const listAgain = 100 * time.Millisecond

// unsettledAgain is that while the policies are asked about what was granted.
const unsettledAgain = time.Second

// settle notes that policies were asked about all that was granted.
func (l *statusLists) settle(digest string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled = digest
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// isSettled reports whether these policies were asked. Later is closed when others were.
func (l *statusLists) isSettled(digest string) (is bool, later <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.settled == digest, l.changed
}

// find is a list that there is, or was since the process began.
func (l *statusLists) find(name, tenant string, s *store.Store) *statusList {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.of[name]
	if one == nil {
		one = &statusList{due: true, news: s.News(func(n store.Notice) bool { return n.Tenant == tenant })}
		if l.of == nil {
			l.of = map[string]*statusList{}
		}
		l.of[name] = one
	}
	return one
}

// end forgets a list that there is no more.
func (l *statusLists) end(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.of[name]; one != nil {
		one.news.Close()
		delete(l.of, name)
	}
}

// place is a place in a status list for a capability that is granted, or the one that it has.
func (b *Broker) place(tenant string, renews *store.Capability) (capability.Listed, error) {
	if renews != nil {
		return renews.Token.Status, nil
	}
	name, index, err := b.Store.NewPlace(tenant)
	return capability.Listed{URI: b.options.ListURL(name), Index: index}, err
}

// StatusList is a status list as of now. Only one request at a time makes it, and what was made answers others. It is
// [store.ErrNotFound] if there is none.
//
// After a change of the policies, and before they were asked about all that was granted, a list counts no longer than the last
// one from before the change: it is signed again for what was taken back meanwhile. When that has ended, [ErrUnsettled] is
// returned.
func (b *Broker) StatusList(ctx context.Context, name string) (SignedList, error) {
	tenant, found, err := b.Store.ListTenant(name)
	if err != nil {
		return SignedList{}, err
	}
	if !found {
		b.lists.end(name)
		return SignedList{}, store.ErrNotFound
	}
	one := b.lists.find(name, tenant, b.Store)
	one.mu.Lock()
	defer one.mu.Unlock()
	now, until := b.now(), time.Time{}
	if is, _ := b.lists.isSettled(b.options.PDP().Bundle().Digest()); !is {
		if until = one.signed.Expires; !now.Before(until) {
			return SignedList{}, ErrUnsettled
		}
	}
	select {
	case <-one.news.C:
		one.due = true
	default:
	}
	age, counts := now.Sub(one.signed.Issued), one.signed.TTL
	switch {
	case one.due && until.IsZero():
		counts = 0
	case one.due:
		counts = unsettledAgain // to ask about all makes many changes
	}
	if 0 <= age && age < counts {
		return one.signed, nil
	}
	if err := b.makeList(ctx, one, name, now, until); err != nil {
		return SignedList{}, err
	}
	one.due = !until.IsZero() // and once they were asked, it is signed for longer
	return one.signed, nil
}

// makeList makes and signs a list, which ends no later than until, if that is not zero.
func (b *Broker) makeList(ctx context.Context, one *statusList, name string, now, until time.Time) error {
	if wait := listAgain - time.Since(one.made); wait > 0 && !one.made.IsZero() {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if now.Before(one.signed.Issued) { // the clock was set back; no reader takes a list that is older than another
		now = one.signed.Issued
	}
	list := capability.NewStatusList(b.options.ListURL(name), now, b.options.Terms.StatusTTL)
	if !until.IsZero() {
		list.Expires = until
		list.TTL = max(time.Second, min(list.TTL, until.Sub(list.IssuedAt)))
	}
	if err := b.Store.FillList(name, list); err != nil {
		return err
	}
	text, err := b.options.Keys.Sign(list.Claims(), capability.TypeList)
	if err != nil {
		return err
	}
	version := one.signed.Version
	if one.list == nil || !list.SaysSame(one.list) {
		version++
	}
	one.list, one.made = list, time.Now()
	one.signed = SignedList{text, list.IssuedAt, list.Expires, list.TTL, version}
	return nil
}

// StatusChange is a status list once it says something else than a version, or as it is when the context ends.
func (b *Broker) StatusChange(ctx context.Context, name string, version int) (SignedList, error) {
	tenant, _, err := b.Store.ListTenant(name)
	if err != nil {
		return SignedList{}, err
	}
	news := b.Store.News(func(n store.Notice) bool { return n.Tenant == tenant })
	defer news.Close()
	for {
		_, settled := b.lists.isSettled("")
		l, err := b.StatusList(context.WithoutCancel(ctx), name)
		if err != nil && !errors.Is(err, ErrUnsettled) || err == nil && l.Version != version || ctx.Err() != nil {
			return l, err
		}
		select {
		case <-news.C:
		case <-settled:
		case <-ctx.Done():
		}
	}
}
