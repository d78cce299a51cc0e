package approval

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"policy-service/pdp/ledger"
)

// Store keeps approvals in a file. [Store.File] asks for one, [Store.Decide] adds the vote of
// a person, and [Store.Reserve] takes a use of an approved one.
//
// Every change is one transaction of a [ledger.Ledger], and counts when its steps are on
// record. [Store.Run] does due work, and retries failed work.
type Store struct {
	*ledger.Bulletin // has the news for readers that wait for a change
	options          Options
	ledger           *ledger.Ledger[Approval, Step]
	names            []naming // of the file, the one that it has now last
	queue            atomic.Pointer[queue]
	history          *history
	limiter          limiter
	proof            proof
}

// change is one transaction, of one approval at most.
type change = ledger.Change[Step]

// News tell a reader that an approval it waits for has changed, and a Notice says which one.
type (
	News   = ledger.News
	Notice = ledger.Notice
)

// Open opens the store in a data directory, or creates it. Reservations in doubt when the
// last process ended are settled as far as it can be now; [Store.Run] does the rest.
func Open(data string, o Options) (*Store, error) {
	if o.Record == nil || o.Recorded == nil || o.Attest == nil || o.Steps == nil || o.Size == nil {
		return nil, errors.New("opening the approvals: there is no log to hold them against: " +
			"set Record, Recorded, Attest, Steps and Size")
	}
	if len(o.Key) != 32 {
		return nil, errors.New("opening the approvals: their key is not 32 bytes long: set Key")
	}
	s := &Store{options: o.withDefaults(), history: newHistory()}
	most := s.options.Limits
	s.limiter = limiter{most, newRates(most.NewPerMinutePerSubject), newRates(most.NewPerMinutePerCaller)}
	s.proof = proof{key: keyOf(o.Key, sealUse), options: &s.options}
	s.ledger = ledger.New(ledger.Options[Approval, Step]{
		Form:    form(data, o.Key),
		Log:     ledger.Log[Step]{Record: o.Record, Recorded: o.Recorded, Steps: o.Steps, Size: o.Size},
		Rules:   rules{s},
		Now:     s.now,
		Retain:  s.options.Retain,
		OnError: s.options.OnError,
	})
	s.Bulletin = s.ledger.Bulletin
	if err := s.ledger.Open(context.Background()); err != nil {
		return nil, err
	}
	if err := s.nameFile(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Run does due work until its context ends. It ends approvals whose time is up, forgets
// those that ended long ago, and retries failed work.
func (s *Store) Run(ctx context.Context) { s.ledger.Run(ctx, s.forgetTasks) }

// Close closes the file. Steps that are not on record yet are put there after the next Open.
func (s *Store) Close() error { return s.ledger.Close() }

// Pending is how many wait for a person.
func (s *Store) Pending() int { return int(s.queue.Load().pending.Load()) }

// now is the time as it is stored.
func (s *Store) now() time.Time { return s.options.Now().Round(0).UTC() }

// move is a change of an approval, with the steps that it takes.
type move struct {
	store *Store
	now   time.Time
	from  Approval // the zero value of a new one
	to    Approval
	steps []Step
	// allowed refuses the move, if it is not nil. The writer calls it, so that no other change comes in between.
	allowed func() error
}

func (s *Store) move(from Approval) *move {
	m := &move{store: s, now: s.now(), from: from, to: from.next()}
	m.to.close(m.to.over(m.now))
	return m
}

// step adds a step, after which the approval is as it is now. Its record has the id.
func (m *move) step(step Step) (id string) {
	step.ID, step.At, step.Approval = m.store.options.NewID(), m.now, m.to
	step.Seal = m.store.proof.seal(&step, m.to.Digest)
	m.steps = append(m.steps, step)
	return step.ID
}

// write writes the change with its steps.
func (m *move) write(c *change) {
	if m.allowed != nil {
		c.Fail(m.allowed())
	}
	if c.Err() != nil {
		return
	}
	m.store.save(c, m.from, &m.to)
	for _, step := range m.steps {
		c.Step(step)
	}
}

// commit makes a change, and puts its steps on record: it counts when this returns nil.
func (s *Store) commit(ctx context.Context, m *move) (Approval, error) {
	if err := s.ledger.Commit(ctx, m.to.ID, m.write); err != nil {
		return Approval{}, err
	}
	return m.to, nil
}

// save writes an approval and its indexes: by digest while it is open, and by id while it is pending. If it begins or
// ends to be pending, an event for callbacks and webhooks is due. from is as the file has it, the zero
// value of a new one.
func (s *Store) save(c *change, from Approval, to *Approval) {
	to.After = c.Size // the length of the log: an opening compares it with later records of the log
	c.Save(from.Standing(), to)
	switch {
	case to.open():
		c.Put(bucketDigests, to.Digest[:], to.ID)
	case from.open():
		c.Delete(bucketDigests, to.Digest[:])
	}
	if from.Status != to.Status || !slices.Equal(from.Votes, to.Votes) {
		s.changeTasks(c, to.ID)
	}
	if to.Status != Pending {
		of, id, in := to.purpose(), to.ID, to.RedactedAt.IsZero()
		if !in {
			of = from.purpose()
		}
		c.Then(func() { s.history.note(of, id, in) })
	}
	switch was, is := from.Status == Pending, to.Status == Pending; {
	case is && !was:
		c.Put(bucketPending, []byte(to.ID), waiting{to.Tenant, to.Subject, to.ExpiresAt})
		s.queued(c, to, Filed)
	case was && !is:
		c.Delete(bucketPending, []byte(to.ID))
		s.queued(c, &from, Completed) // to may not say any more whose it was
	}
}

// queued notes that an approval waits, or does no more, and that an event for systems is due.
func (s *Store) queued(c *change, a *Approval, e Event) {
	q, id, subject, asker := s.queue.Load(), a.ID, a.owner(), a.asker()
	c.Then(func() { q.waits(id, subject, asker, e == Filed) })
	if s.options.Silent {
		return
	}
	var events []Event
	c.Get(bucketUntold, []byte(a.ID), &events)
	c.Put(bucketUntold, []byte(a.ID), append(events, e))
	c.Then(func() { q.tells(id, asker) })
}

// Standing implements [ledger.Item].
func (a Approval) Standing() ledger.Standing {
	is := ledger.Standing{ID: a.ID, Tenant: a.Tenant, Caller: a.Caller, Ends: a.EndedAt, After: a.After, Reserved: a.reserved()}
	switch until := a.continuesUntil(); {
	case a.open():
		is.Open, is.Ends = true, a.ExpiresAt
	case !until.IsZero(): // a copy from before a round must not have that answered again
		is.Open, is.Ends = true, until
	}
	return is
}

// Entry implements [ledger.Step].
func (s Step) Entry() ledger.Entry {
	return ledger.Entry{
		ID:      s.ID,
		Item:    s.Approval.ID,
		Tenant:  s.Approval.Tenant,
		Caller:  s.Approval.Caller,
		Settles: s.Name == StepUsed || s.Name == StepContinued || s.Name == StepReleased,
	}
}

// rules are the part of a store that the ledger calls.
type rules struct{ *Store }

// Remember implements [ledger.Rules].
func (r rules) Remember(tx *ledger.Tx, open []Approval) {
	if q := readQueue(tx, open); tx.Err() == nil {
		r.queue.Store(q)
	}
}

// Save implements [ledger.Rules].
func (r rules) Save(c *change, a Approval) { r.save(c, a, &a) }

// Forget implements [ledger.Rules].
func (r rules) Forget(c *change, a Approval) {
	c.Forget(a)
	c.Delete(bucketUntold, []byte(a.ID))
	c.Then(func() {
		r.queue.Load().told(a.ID)
		r.history.note(a.purpose(), a.ID, false)
	})
}

// Expire implements [ledger.Rules]. An approval whose time is up ended then, not now. One that ended before has only its
// uses closed: no decision goes on from them any more.
func (r rules) Expire(ctx context.Context, a Approval) error {
	if to := a; a.Status.Final() {
		to.close(every)
		return r.ledger.Update(func(c *change) { r.save(c, a, &to) })
	}
	m := r.move(a)
	m.to.end(Expired, a.ExpiresAt)
	m.step(Step{Name: StepExpired})
	_, err := r.commit(ctx, m)
	return err
}

// Look reads the file of a data directory as [Open] would, and changes nothing. Size is how many records the log has; nil
// if there is no log. It returns the number of pending approvals. The error is the one with which Open would fail.
func Look(data string, key []byte, size func() uint64) (pending int, err error) {
	err = ledger.Examine(form(data, key), func(tx *ledger.Tx) {
		if tx.Format() == 0 {
			return
		}
		open := ledger.OpenItems[Approval](tx)
		pending = int(readQueue(tx, open).pending.Load())
		for range ledger.Outbox[Step](tx) { // Open reads it, too
		}
		if size != nil {
			none := func(context.Context, uint64, map[string]bool) (map[string][]Step, error) { return nil, nil }
			_, short := ledger.Since(context.Background(), open, ledger.Log[Step]{Size: size, Steps: none})
			tx.Fail(short)
		}
	})
	return pending, err
}
