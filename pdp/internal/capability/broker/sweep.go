package broker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"policy-service/evaluation/capability"
	"policy-service/obligations"
	"policy-service/pdp"
	store "policy-service/pdp/internal/capability"
)

// When the policies are asked again although they did not change: time changes what some of them say.
const (
	againWhenTimeCounts = time.Minute
	againAfterError     = 10 * time.Second
	looksAtClock        = time.Second // which may have been set
)

// Run asks the policies again about all that is granted, at once and after each change of them, until a context ends. A
// capability that they would not grant any more is suspended, and active again when they would.
func (b *Broker) Run(ctx context.Context) {
	everywhere := func(string) bool { return true }
	whereTimeCounts := func(tenant string) bool { return b.options.PDP().Bundle().SeesNow(tenant) }
	of, whole, wait, looked := everywhere, true, time.Duration(0), b.now()
	var later []string  // to be looked at again
	var swept time.Time // when the last sweep began, zero if another one is due
	clock := time.NewTicker(looksAtClock)
	defer clock.Stop()
	b.PoliciesChanged()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.changed:
			of, whole, swept = everywhere, true, time.Time{}
		case <-clock.C:
			if ago := b.now().Sub(looked); 0 <= ago && ago < wait {
				continue
			}
		}
		looked = b.now()
		asked := b.options.PDP().Bundle().Digest()
		var err error
		later, err = b.lookAgain(ctx, later)
		if ago := looked.Sub(swept); ago < 0 || ago >= againWhenTimeCounts {
			more, failed := b.sweep(ctx, of)
			later = slices.Compact(slices.Sorted(slices.Values(append(later, more...))))
			if swept = looked; failed == nil {
				if whole && ctx.Err() == nil && len(b.changed) == 0 { // else other policies were in force meanwhile
					b.lists.settle(asked)
				}
				of, whole = whereTimeCounts, false
			} else {
				swept, err = time.Time{}, failed
			}
		}
		if ctx.Err() != nil {
			return
		}
		if wait = againWhenTimeCounts; err != nil || len(later) > 0 {
			wait = againAfterError
		}
		if err != nil {
			b.failed(err)
		}
	}
}

// waits reports whether a grant, a renewal or another step of a capability is not on record yet: once it is, what was decided
// before the last sweep may count.
func waits(c *store.Capability) bool { return c.Unrecorded || c.Granting != "" }

// lookAgain asks the policies again about capabilities that waited, and returns those that still do.
func (b *Broker) lookAgain(ctx context.Context, ids []string) (later []string, err error) {
	for _, id := range ids {
		c, _, failed := b.Store.Get(ctx, id)
		still := waits(&c)
		if failed == nil && !still {
			failed = b.recheck(ctx, c)
		}
		if failed != nil || still {
			later = append(later, id)
		}
		if !errors.Is(failed, store.ErrUnrecorded) {
			err = cmp.Or(err, failed)
		}
	}
	return later, err
}

// PoliciesChanged has Run ask the policies again.
func (b *Broker) PoliciesChanged() {
	select {
	case b.changed <- struct{}{}:
	default: // it is to ask already
	}
}

// Bounds of a sweep: how many capabilities it reads at once, and how many changes it makes at once.
const (
	sweptAtOnce   = 256
	changesAtOnce = 64
)

// sweep asks the policies again about all that is granted in some tenants. Later are those that are to be looked at again.
func (b *Broker) sweep(ctx context.Context, of func(tenant string) bool) (later []string, err error) {
	if !slices.ContainsFunc(b.options.PDP().Bundle().Tenants(), of) {
		return nil, nil
	}
	b.logged.Store(false)
	var changes errgroup.Group
	changes.SetLimit(changesAtOnce)
	var suspended, resumed atomic.Int64
	for after, more := "", true; more; more = after != "" && ctx.Err() == nil {
		page, next, unread := b.Store.Grants(ctx, after, sweptAtOnce)
		err, after = cmp.Or(err, unread), next // behind one that cannot be read are others
		for n := range page {
			c := &page[n]
			if waits(c) {
				later = append(later, c.ID)
			}
			if c.Unrecorded || c.State != store.Active && c.State != store.Suspended || !of(c.Tenant) {
				continue
			}
			to, bundle := b.stands(ctx, c)
			if to == c.State {
				continue
			}
			changes.Go(func() error {
				is, err := b.settle(ctx, *c, to, bundle)
				switch {
				case is.State == store.Suspended && c.State == store.Active:
					suspended.Add(1)
				case is.State == store.Active && c.State == store.Suspended:
					resumed.Add(1)
				}
				return err
			})
		}
	}
	err = errors.Join(err, changes.Wait())
	if s, r := suspended.Load(), resumed.Load(); s+r > 0 {
		b.options.Logger.Info("the policies in force would not grant some capabilities, or grant some again", "suspended", s, "resumed", r)
	}
	return later, err
}

// recheck asks the policies again about one capability, if it was granted and has not ended.
func (b *Broker) recheck(ctx context.Context, c store.Capability) error {
	if c.State != store.Active && c.State != store.Suspended {
		return nil
	}
	to, bundle := b.stands(ctx, &c)
	_, err := b.settle(ctx, c, to, bundle)
	return err
}

// stands is the state that the policies in force give a capability that was granted, and their digest. One about which they
// cannot be asked is suspended.
func (b *Broker) stands(ctx context.Context, c *store.Capability) (to store.State, bundle string) {
	bundle = b.options.PDP().Bundle().Digest()
	var s pdp.Standing
	call, err := questions(c)
	if err == nil {
		s, err = b.options.PDP().Stands(ctx, call, c.Approval != "")
	}
	switch {
	case ctx.Err() != nil: // nothing was found out
		return c.State, bundle
	case err != nil:
		if !b.logged.Swap(true) { // it may be so of all
			b.options.Logger.Error("the policies cannot be asked again about some capabilities; they are suspended", "one", c.ID, "error", err)
		}
		return store.Suspended, bundle
	case s.Granted && within(c, s.Terms):
		return store.Active, s.Bundle
	}
	return store.Suspended, s.Bundle
}

// within reports whether a capability is within the terms of now.
func within(c *store.Capability, terms obligations.GrantTerms) bool {
	if terms.MaxUses > 0 && (c.MaxUses == 0 || c.MaxUses > terms.MaxUses) {
		return false
	}
	if terms.Generations > 0 && c.MaxDepth >= max(terms.Generations, len(c.Ancestors)+1) {
		return false
	}
	if terms.MaxDuration == 0 && !terms.Online {
		return true
	}
	token, refused := capability.ParseClaims(c.Claims)
	return refused == nil && (terms.MaxDuration == 0 || c.Expires.Sub(token.NotBefore) <= terms.MaxDuration) &&
		(!terms.Online || token.Verify == capability.Online)
}

// settle gives a capability the state that the policies with a digest give it. It asks them again if another grant or other
// policies came between.
func (b *Broker) settle(ctx context.Context, c store.Capability, to store.State, bundle string) (store.Capability, error) {
	for ctx.Err() == nil {
		granted, change := c.Granted, b.Store.Resume
		if to == store.Suspended {
			change = b.Store.Suspend
		}
		if to != c.State {
			changed, err := change(ctx, c.ID, bundle)
			if other := (*store.StateError)(nil); errors.As(err, &other) || errors.Is(err, store.ErrNotFound) {
				return c, nil // it ended, or is as it is to be
			}
			if err != nil {
				return c, err
			}
			c = changed
		}
		if c.Granted == granted && bundle == b.options.PDP().Bundle().Digest() {
			return c, nil
		}
		to, bundle = b.stands(ctx, &c)
	}
	return c, ctx.Err()
}
