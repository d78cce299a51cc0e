package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Get is an approval as it is now: one whose time is up is expired, whether that is on
// record yet or not. With [ErrUnrecorded] it says whose it is, and nobody is told what
// became of it. Any other error is that nobody can tell whether there is one.
func (s *Store) Get(ctx context.Context, id string) (a Approval, found bool, err error) {
	stored, found, err := s.stored(id)
	if !found || err != nil {
		return Approval{}, false, err
	}
	switch a, err = s.told(ctx, stored); {
	case errors.Is(err, ErrNotFound): // it was forgotten meanwhile
		return Approval{}, false, nil
	case errors.Is(err, ErrUnrecorded):
		return stored, true, err
	}
	return a, err == nil, err
}

// told is an approval as people may be told of it: with all its steps on record. Whoever
// is at that is waited for, and what could not be done before is tried again.
func (s *Store) told(ctx context.Context, stored Approval) (Approval, error) {
	if !stored.Unrecorded {
		return stored, nil
	}
	a, release, err := s.locked(ctx, stored.ID)
	if err != nil {
		return Approval{}, err
	}
	release()
	return a.at(s.now()), nil
}

// stored is an approval as the file has it, be it on record or not.
func (s *Store) stored(id string) (a Approval, found bool, err error) {
	now := s.now()
	err = s.view(func(tx values) (err error) {
		if a, found, err = read(tx, id); found {
			a = s.shown(a, now)
		}
		return err
	})
	return a, found, err
}

// shown is within a view.
func (s *Store) shown(a Approval, now time.Time) Approval {
	a = a.at(now)
	a.Unrecorded = s.memory.waits(a.ID)
	return a
}

// What List looks at for each approval that it could return: of those that are pending,
// where little need be read to see whose they are, and of others.
const (
	examinedPerItem = 20
	readPerItem     = 4
)

// List is a page of the approvals of some tenants, or of all where tenants is nil, in a
// state, or in any where that is "": those after an id, oldest first. Next is the id to
// go on after, "" where there is no more. A page can be empty and have a next. One that
// cannot be put on record now is left out, as nobody can say which state it is in.
func (s *Store) List(ctx context.Context, tenants []string, status Status, after string, limit int) (page []Approval, next string, err error) {
	stored, next, err := s.page(tenants, status, after, limit)
	for _, one := range stored {
		a, err := s.told(ctx, one)
		switch {
		case errors.Is(err, ErrUnrecorded), errors.Is(err, ErrNotFound):
		case err != nil:
			return nil, "", err
		case status == "" || status == a.Status:
			page = append(page, a)
		}
	}
	return page, next, err
}

// page is a page of approvals as the file has them.
func (s *Store) page(tenants []string, status Status, after string, limit int) (page []Approval, next string, err error) {
	if limit < 1 {
		return nil, "", errors.New("a page has at least one approval: ask for more than none")
	}
	w := &walk{store: s, tenants: tenants, status: status, now: s.now()}
	err = s.view(func(tx values) error {
		most := limit * readPerItem
		if status == Pending {
			most = limit * examinedPerItem
		}
		for n, key := range w.keys(tx, after, most+1) {
			if n == most || len(page) == limit {
				return nil
			}
			a, fits, err := w.look(tx, []byte(key))
			if err != nil {
				return err
			}
			if fits {
				page = append(page, s.shown(a, w.now))
			}
			next = key
		}
		next = ""
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

// walk is what List looks for.
type walk struct {
	store   *Store
	tenants []string
	status  Status
	now     time.Time
}

// keys are those that may be what is looked for, after one and in order. Where others have
// much that is pending, nobody goes through that to find their own.
func (w *walk) keys(tx values, after string, most int) (keys []string) {
	bucket := bucketApprovals
	if w.status == Pending {
		if w.tenants != nil {
			return w.store.memory.pendingIn(w.tenants, after, most)
		}
		bucket = bucketPending
	}
	c := tx.Bucket([]byte(bucket)).Cursor()
	for key := beyond(c, []byte(after)); key != nil && len(keys) < most; key, _ = c.Next() {
		keys = append(keys, string(key))
	}
	return keys
}

// look reads an approval, if what is known of it without that does not speak against it.
func (w *walk) look(tx values, key []byte) (a Approval, fits bool, err error) {
	if w.status == Pending {
		var known waiting
		found, err := get(tx, bucketPending, key, &known)
		if err != nil || !found || !w.sees(known.Tenant) || !w.now.Before(known.Until) {
			return a, false, err
		}
	}
	a, found, err := read(tx, string(key))
	status := a.at(w.now).Status
	return a, found && w.sees(a.Tenant) && (w.status == "" || w.status == status), err
}

func (w *walk) sees(tenant string) bool {
	return w.tenants == nil || slices.Contains(w.tenants, tenant)
}

// read reads an approval.
func read(tx values, id string) (a Approval, found bool, err error) {
	if found, err = get(tx, bucketApprovals, []byte(id), &a); found && err == nil && a.ID != id {
		err = fmt.Errorf("%w: %q in %s says that it is %q", ErrDamaged, id, bucketApprovals, a.ID)
	}
	return a, found && err == nil, err
}

// bound reads the open approval that is bound to a digest.
func bound(tx values, digest [32]byte) (a Approval, found bool, err error) {
	var id string
	if found, err = get(tx, bucketDigests, digest[:], &id); err != nil || !found {
		return a, false, err
	}
	return read(tx, id)
}
