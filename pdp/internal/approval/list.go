package approval

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"policy-service/pdp/internal/ledger"
)

// Get reads an approval as it is now. If its time is up, it is expired, whether that is on
// record yet or not. With [ErrUnrecorded] the result says whose the approval is, and not its
// state. Any other error means that it is not known whether there is one.
func (s *Store) Get(ctx context.Context, id string) (a Approval, found bool, err error) {
	a, found, err = s.stored(id)
	if !found || err != nil {
		return Approval{}, false, err
	}
	a, err = s.told(ctx, a)
	if errors.Is(err, ErrNotFound) { // it was forgotten meanwhile
		return Approval{}, false, nil
	}
	return a, err == nil || errors.Is(err, ErrUnrecorded), err
}

// told is an approval as people may see it: with all its steps on record. It waits for
// another caller that records them, and tries failed work again.
func (s *Store) told(ctx context.Context, stored Approval) (Approval, error) {
	if !stored.Unrecorded {
		return stored, nil
	}
	a, release, err := s.ledger.Locked(ctx, stored.ID)
	if err != nil {
		return stored, err
	}
	release()
	return a.at(s.now()), nil
}

// stored is an approval as the file has it, whether it is on record or not.
func (s *Store) stored(id string) (a Approval, found bool, err error) {
	now := s.now()
	err = s.ledger.View(func(tx *ledger.Tx) {
		a, found = read(tx, id)
		a = s.shown(tx, a, now)
	})
	return a, found, err
}

// shown is an approval as of now.
func (s *Store) shown(tx *ledger.Tx, a Approval, now time.Time) Approval {
	a = a.at(now)
	a.Unrecorded = s.ledger.Unrecorded(tx, a.ID)
	return a
}

// The number of approvals that List looks at for each one that it could return: of pending ones, whose tenant
// is known without reading the approval, and of others.
const (
	examinedPerItem = 20
	readPerItem     = 4
)

// Filter picks approvals, and says in which order they come.
type Filter struct {
	Tenants []string // nil: all
	// Status is a state, [Ended], or "" for any.
	Status Status
	// Picks says which ones; nil: all. It is asked without their words, so that many can be passed over in little time.
	Picks func(Approval) bool
	// Newest has the newest come first. Otherwise it is the oldest.
	Newest bool
}

// Ended is, in a [Filter] alone, every state but Pending.
const Ended Status = "ended"

func (f *Filter) has(s Status) bool {
	return f.Status == "" || f.Status == s || f.Status == Ended && s != Pending
}

// List reads a page of the approvals that a filter picks, after an id. Next is the id to go on after,
// "" if there is no more. A page can be empty and have a next. An approval that cannot be put
// on record now is left out, because its state is not known.
func (s *Store) List(ctx context.Context, f Filter, after string, limit int) (page []Approval, next string, err error) {
	stored, next, err := s.page(f, after, limit)
	for _, one := range stored {
		a, err := s.told(ctx, one)
		switch {
		case errors.Is(err, ErrUnrecorded), errors.Is(err, ErrNotFound):
		case err != nil:
			return nil, "", err
		case f.has(a.Status):
			page = append(page, a)
		}
	}
	return page, next, err
}

// page reads a page of approvals as the file has them.
func (s *Store) page(f Filter, after string, most int) (all []Approval, next string, err error) {
	if most < 1 {
		return nil, "", errors.New("a page has at least one approval: ask for more than none")
	}
	now, looks := s.now(), most*readPerItem
	if f.Status == Pending {
		looks = most * examinedPerItem
	}
	sees := func(tenant string) bool { return f.Tenants == nil || slices.Contains(f.Tenants, tenant) }
	err = s.ledger.View(func(tx *ledger.Tx) {
		for n, one := range f.keys(tx, after, looks+1) {
			if n == looks || len(all) == most {
				return
			}
			next = one.id
			var until waiting
			if f.Status == Pending && (tx.Get(one.prefix+one.id, &until) == 0 || !now.Before(until.Until)) { // it is out
				continue
			}
			a, found := readState(tx, one.id)
			if a = a.at(now); found && sees(a.Tenant) && f.has(a.Status) && (f.Picks == nil || f.Picks(a)) {
				a.readWords(tx)
				all = append(all, s.shown(tx, a, now))
			}
		}
		next = ""
	})
	if err != nil {
		return nil, "", err
	}
	return all, next, nil
}

// keys are those that page looks at, after one and in order. If other tenants have much
// that is pending, a caller need not go through all of it to find its own.
func (f *Filter) keys(tx *ledger.Tx, after string, most int) (keys []listed) {
	if f.Status == Pending {
		return f.pending(tx, after, most)
	}
	for id := range f.scan(tx, prefixItems, after) {
		if len(keys) == most {
			break
		}
		keys = append(keys, listed{id: id})
	}
	return keys
}

// scan yields the keys with a prefix, after one and in the order of the filter.
func (f *Filter) scan(tx *ledger.Tx, prefix, after string) iter.Seq2[string, func(any) bool] {
	switch {
	case !f.Newest:
		return tx.Scan(prefix, ledger.After(after))
	case after == "":
		after = behindIDs
	}
	return tx.Back(prefix, after)
}

// behindIDs would be the last of all ids.
const behindIDs = "~"

// bound is the id of the approval that is bound to a digest, "" if there is none.
func bound(from ledger.Reader, digest [32]byte) (id string) {
	from.Get(digestKey(digest), &id)
	return id
}
