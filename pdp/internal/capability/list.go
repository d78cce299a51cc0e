package capability

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp/internal/ledger"
)

// Filter finds capabilities. What is zero in it does not matter.
type Filter struct {
	Tenant   string
	Caller   string // that asked for it
	Holder   evaluation.Ref
	Person   string
	JKT      string // the thumbprint of the holder's key
	Ancestor string // that it was made from, at any depth
	Audience string
	State    State
	Sees     func(*Capability) bool // whether the reader may see one, nil for all
}

func (f *Filter) finds(c *Capability) bool {
	return (f.Caller == "" || f.Caller == c.Caller) && (f.Tenant == "" || f.Tenant == c.Tenant) && (f.Holder == evaluation.Ref{} || f.Holder == c.Holder) && (f.Person == "" || f.Person == c.Person) &&
		(f.Ancestor == "" || slices.Contains(c.Ancestors, f.Ancestor)) && (f.JKT == "" || f.JKT == c.JKT) && (f.Audience == "" || f.Audience == c.Audience) && (f.Sees == nil || f.Sees(c))
}

// prefix is that of the keys under which capabilities are looked for.
func (f *Filter) prefix() string {
	switch {
	case f.Caller != "": // the cursor of a page names none that another asked for
		return indexCaller(f.Caller, f.Person)
	case f.Ancestor != "":
		return indexAncestor(f.Ancestor)
	case f.Tenant == "":
		return prefixItems
	case f.JKT != "":
		return indexKey(f.Tenant, f.JKT)
	case f.Person != "":
		return indexPerson(f.Tenant, f.Person)
	case f.Holder != evaluation.Ref{}:
		return indexHolder(f.Tenant, f.Holder)
	}
	return indexTenant(f.Tenant)
}

// readPerItem is the number of capabilities that List reads for each one that it could return.
const readPerItem = 4

// Get reads a capability as it is now. If its time is up, it is expired, whether that is on record yet or not. With
// [ErrUnrecorded] the result says whose it is, and not its state. Any other error means that it is not known whether there
// is one.
func (s *Store) Get(ctx context.Context, id string) (c Capability, found bool, err error) {
	return s.get(ctx, id, read)
}

// reading reads a capability, with its words or without.
type reading = func(from ledger.Reader, id string) (Capability, bool)

func (s *Store) get(ctx context.Context, id string, read reading) (c Capability, found bool, err error) {
	err = s.ledger.View(func(tx *ledger.Tx) { c, found = s.stored(tx, id, read) })
	if !found || err != nil {
		return Capability{}, false, err
	}
	c, err = s.told(ctx, c)
	if errors.Is(err, ErrNotFound) { // it was forgotten meanwhile
		return Capability{}, false, nil
	}
	return c, err == nil || errors.Is(err, ErrUnrecorded), err
}

// told is a capability with all its steps on record. It waits for another caller that records them, and tries failed work
// again.
func (s *Store) told(ctx context.Context, stored Capability) (Capability, error) {
	if !stored.Unrecorded {
		return stored, nil
	}
	c, release, err := s.ledger.Locked(ctx, stored.ID)
	if err != nil {
		return stored, err
	}
	release()
	return c.at(s.now()), nil
}

// stored is a capability as of now, whether it is on record or not. One that is open must be listed so: else it was never
// held against the log.
func (s *Store) stored(tx *ledger.Tx, id string, read reading) (c Capability, found bool) {
	c, found = read(tx, id)
	if is := c.Standing(); found && is.Open && !s.ledger.Listed(tx, is) {
		tx.Fail(fmt.Errorf("%w: %q is open, and not listed so: it was never held against the log", ErrDamaged, id))
	}
	c = c.at(s.now())
	c.Unrecorded = s.ledger.Unrecorded(tx, id)
	return c, found
}

// List reads a page of the capabilities that a filter finds, after an id, oldest first. Next is the id to go on after, "" if
// there is no more. A page can be empty and have a next. One that cannot be put on record now is left out, because its
// state is not known. Next beside an error is the one that cannot be read.
func (s *Store) List(ctx context.Context, f Filter, after string, limit int) (page []Capability, next string, err error) {
	is := func(c Capability) bool { return f.State == "" || f.State == c.State }
	stored, next, err := s.page(f, after, limit, is, read)
	for _, one := range stored {
		c, err := s.told(ctx, one)
		switch {
		case errors.Is(err, ErrUnrecorded), errors.Is(err, ErrNotFound):
		case err != nil:
			return nil, "", err
		case is(c):
			page = append(page, c)
		}
	}
	return page, next, err
}

// Grants reads a page of those capabilities that have not ended, with their words and without their tokens. One that cannot be
// put on record now is Unrecorded, and its State counts for nothing. Next beside an error is the one that cannot be read.
func (s *Store) Grants(ctx context.Context, after string, limit int) (page []Capability, next string, err error) {
	page, next, err = s.page(Filter{}, after, limit, func(c Capability) bool { return c.open() }, readGrant)
	for n := range page {
		c, unread := s.told(ctx, page[n])
		if unread == nil {
			page[n] = c
		} else if !errors.Is(unread, ErrUnrecorded) && !errors.Is(unread, ErrNotFound) {
			err = cmp.Or(err, unread)
		}
	}
	return page, next, err
}

// page reads a page as the file has it.
func (s *Store) page(
	f Filter, after string, most int, is func(Capability) bool, read reading,
) (all []Capability, next string, err error) {
	if most < 1 {
		return nil, "", fmt.Errorf("%w: a page has at least one capability: ask for more than none", ErrInvalid)
	}
	more := false
	err = s.ledger.View(func(tx *ledger.Tx) {
		looks, prefix := most*readPerItem, f.prefix()
		for key, value := range tx.Scan(prefix, ledger.After(after)) {
			if more = looks == 0 || len(all) == most; more {
				return
			}
			looks--
			next = key[strings.LastIndexByte(key, '/')+1:]
			if c := (Capability{}); prefix == prefixItems && value(&c) && !f.finds(&c) { // it is not read once more
				continue
			}
			if c, found := s.stored(tx, next, read); found && f.finds(&c) && (c.Unrecorded || is(c)) {
				all = append(all, c)
			}
		}
	})
	if !more && err == nil {
		next = ""
	}
	return all, next, err
}
