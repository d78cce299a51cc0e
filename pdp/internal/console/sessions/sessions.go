// Package sessions keeps the sessions of a console that has replicas where each of them finds them. Start with [Open].
package sessions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"policy-service/pdp/internal/console"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/server/auth"
)

// Shared are the sessions of all replicas. They are in an engine that the replicas share:
//
//	s/ID     → the session
//	n/CALLER → the sessions of a caller, the oldest first
//
// A session is written twice. The first value of a key could be put again after the key was deleted, by a program that can
// write to etcd: so the first is empty.
type Shared struct {
	values *ledger.Values
	o      Options

	mu    sync.Mutex
	swept time.Time
}

const (
	prefixSessions = "s/"
	prefixOfCaller = "n/"
	// usedEvery is how often a session in use is written again, at most.
	usedEvery = 20 * time.Second
	// sweepEvery is how often a replica looks for sessions that are over, at most.
	sweepEvery = 10 * time.Minute
)

// Options are where the sessions are, and how long they last. All must be there.
type Options struct {
	Engine ledger.Engine
	// Key seals the values in the engine.
	Key []byte
	// Idle is how long an unused session lasts.
	Idle time.Duration
	Now  func() time.Time
	// Behind is by how much the clock of another replica may be ahead. Generation is one more after each time that the engine was
	// restored from a copy. Room is an error if there is no room for more.
	Behind     func() time.Duration
	Generation func() uint64
	Room       func() error
}

// storedSession is a session in etcd. Those of another generation count for nothing: a copy of etcd that was put back has
// sessions that were ended since.
type storedSession struct {
	Login      auth.Login `json:"login,omitzero"`
	Caller     string     `json:"caller,omitzero"`
	Used       time.Time  `json:"used,omitzero"`
	End        time.Time  `json:"end,omitzero"`
	Generation uint64     `json:"generation,omitzero"`
}

// callersSession is a session in the list of its caller.
type callersSession struct {
	ID  string    `json:"id"`
	End time.Time `json:"end"`
}

var (
	errAway    = errors.New("the console's sessions in etcd cannot be used now")
	errDamaged = errors.New("the console's sessions in etcd are damaged")
	errNone    = errors.New("there is no such session of the console")
)

// Errors are those of an engine for sessions.
func Errors() ledger.Errors {
	return ledger.Errors{Unavailable: errAway, Closed: errAway, Locked: errAway, Damaged: errDamaged, NotFound: errNone}
}

// Open opens the sessions.
func Open(ctx context.Context, o Options) (*Shared, error) {
	s := &Shared{o: o, values: ledger.NewValues(o.Engine, ledger.Form{
		Items: "the console's sessions", Key: o.Key, Version: 1, Errors: Errors(),
	})}
	if err := s.values.Open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close closes the engine.
func (s *Shared) Close() error { return s.values.Close() }

// now is the clock of the replica that is ahead of the others.
func (s *Shared) now() time.Time { return s.o.Now().Add(s.o.Behind()) }

func keyOfSession(id console.SessionID) string { return prefixSessions + hex.EncodeToString(id[:]) }

func keyOfCaller(caller string) string {
	sum := sha256.Sum256([]byte(caller))
	return prefixOfCaller + hex.EncodeToString(sum[:])
}

// Begin implements [console.Sessions].
func (s *Shared) Begin(ctx context.Context, id console.SessionID, session console.Session) error {
	if err := s.o.Room(); err != nil {
		return err
	}
	if err := s.sweep(ctx); err != nil {
		return err
	}
	key, list := keyOfSession(id), keyOfCaller(session.Caller)
	begin := func(c *ledger.ValuesChange) {
		all := s.open(c, list)
		for len(all) >= console.MostOfCaller {
			c.Delete(all[0].ID)
			all = all[1:]
		}
		c.Put(key, storedSession{})
		c.Put(list, append(all, callersSession{key, session.End.UTC()}))
	}
	err := s.values.Update(ctx, begin)
	if errors.Is(err, errDamaged) { // the list begins anew: the sessions of before end in their time
		if err = s.values.Update(ctx, func(c *ledger.ValuesChange) { c.Delete(list) }); err == nil {
			err = s.values.Update(ctx, begin)
		}
	}
	if err != nil {
		return err
	}
	return s.values.Update(ctx, func(c *ledger.ValuesChange) {
		if c.Get(key, new(storedSession)) == 0 {
			c.Fail(errNone)
			return
		}
		c.Put(key, storedSession{
			Login: session.Login, Caller: session.Caller, Used: session.Used.UTC(), End: session.End.UTC(),
			Generation: s.o.Generation(),
		})
	})
}

// open reads a list of the sessions of a caller, and deletes those that have ended.
func (s *Shared) open(c *ledger.ValuesChange, key string) (all []callersSession) {
	c.Get(key, &all)
	now := s.o.Now()
	return slices.DeleteFunc(all, func(one callersSession) bool {
		ended := !now.Before(one.End)
		if ended {
			c.Delete(one.ID)
		}
		return ended
	})
}

// Find implements [console.Sessions]. A value that no replica wrote is no session.
func (s *Shared) Find(ctx context.Context, id console.SessionID, uses bool) (console.Session, bool, error) {
	var is storedSession
	key := keyOfSession(id)
	err := s.values.View(func(tx *ledger.Tx) { tx.Get(key, &is) })
	if errors.Is(err, errDamaged) {
		return console.Session{}, false, nil
	}
	session := console.Session{Login: is.Login, Caller: is.Caller, Used: is.Used, End: is.End}
	if err != nil || is.Generation != s.o.Generation() || session.Over(s.now(), s.o.Idle) {
		return console.Session{}, false, err
	}
	if now := s.o.Now(); uses && now.Sub(is.Used) >= min(usedEvery, s.o.Idle/2) {
		err = s.values.Update(ctx, func(c *ledger.ValuesChange) {
			var is storedSession
			if c.Get(key, &is) > 0 && is.Used.Before(now) { // or it was ended meanwhile
				is.Used = now.UTC()
				c.Put(key, is)
			}
		})
	}
	return session, err == nil, err
}

// Drop implements [console.Sessions].
func (s *Shared) Drop(ctx context.Context, id console.SessionID) error {
	key := keyOfSession(id)
	return s.change(ctx, key, func(c *ledger.ValuesChange) {
		var is storedSession
		if c.Get(key, &is) == 0 {
			return
		}
		c.Delete(key)
		if list := keyOfCaller(is.Caller); is.Caller != "" {
			c.Put(list, slices.DeleteFunc(s.open(c, list), func(one callersSession) bool { return one.ID == key }))
		}
	})
}

// change changes values, and deletes a key in any case if one that it reads is damaged.
func (s *Shared) change(ctx context.Context, key string, change func(*ledger.ValuesChange)) error {
	err := s.values.Update(ctx, change)
	if errors.Is(err, errDamaged) {
		err = s.values.Update(ctx, func(c *ledger.ValuesChange) { c.Delete(key) })
	}
	return err
}

// sweep deletes the sessions that have ended of callers who came back no more.
func (s *Shared) sweep(ctx context.Context) error {
	now := s.o.Now()
	s.mu.Lock()
	due := !now.Before(s.swept.Add(sweepEvery))
	if due {
		s.swept = now
	}
	s.mu.Unlock()
	if !due {
		return nil
	}
	var gone []string
	var err error
	for from, more := "", true; more; {
		last := ""
		err = s.values.View(func(tx *ledger.Tx) {
			for key, read := range tx.Scan(prefixOfCaller, from) {
				var all []callersSession
				last = key
				if read(&all) && !slices.ContainsFunc(all, func(one callersSession) bool { return now.Before(one.End) }) {
					gone = append(gone, prefixOfCaller+key)
				}
			}
		})
		if more = errors.Is(err, errDamaged); more { // it goes, too
			gone, from = append(gone, prefixOfCaller+last), ledger.After(last)
		}
	}
	for _, key := range gone {
		if err != nil {
			break
		}
		err = s.change(ctx, key, func(c *ledger.ValuesChange) {
			if len(s.open(c, key)) == 0 {
				c.Delete(key)
			}
		})
	}
	if err != nil {
		return fmt.Errorf("looking for sessions that are over: %w", err)
	}
	return nil
}
