package approval

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/bolt"
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
	limiter          limiter
	proof            proof
}

// Proof is a record of the log of an origin, with the proof that it is there.
type Proof = ledger.Proof

// Withdrawal is a decision that may not be answered, as its use of an approval is not there any more.
type Withdrawal = ledger.Withdrawal

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
	if o.Record == nil || o.Recorded == nil || o.Withdraw == nil || o.Attest == nil || o.Steps == nil || o.Size == nil {
		return nil, errors.New("opening the approvals: there is no log to hold them against: " +
			"set Record, Recorded, Withdraw, Attest, Steps and Size")
	}
	if len(o.Key) != 32 {
		return nil, errors.New("opening the approvals: their key is not 32 bytes long: set Key")
	}
	s := &Store{options: o.withDefaults()}
	s.limiter.most = s.options.Limits
	s.proof = proof{key: keyOf(o.Key, sealUse), options: &s.options}
	if o.Engine == nil {
		if err := os.MkdirAll(data, 0o700); err != nil {
			return nil, opening(data, err)
		}
		o.Engine = bolt.New(file(data))
	}
	s.ledger = ledger.New(ledger.Options[Approval, Step]{
		Engine:  o.Engine,
		Form:    form(o.Key),
		Origin:  o.Origin,
		Log:     ledger.Log[Step]{Record: o.Record, Recorded: o.Recorded, Withdraw: o.Withdraw, Steps: o.Steps, Size: o.Size, Prove: o.Prove},
		Rules:   rules{s},
		Now:     s.now,
		Retain:  s.options.Retain,
		Beside:  prefixFollowers,
		OnError: s.options.OnError,
	})
	s.Bulletin, s.proof.stored = s.ledger.Bulletin, s.ledger.Proof
	if err := s.ledger.Open(context.Background()); err != nil {
		return nil, opening(data, err)
	}
	return s, nil
}

func opening(data string, err error) error {
	if err != nil {
		err = fmt.Errorf("opening the approvals: %s: %w", filepath.Join(data, FileName), err)
	}
	return err
}

// Run does due work until its context ends. It ends approvals whose time is up, forgets
// those that ended long ago, and retries failed work.
func (s *Store) Run(ctx context.Context) {
	s.ledger.Run(ctx, s.forgetTasks, s.forgetToolRequests, s.settleAllLost)
}

// SettleLost counts what another origin has reserved as used, whose log will never say anything any more. See
// [ledger.Ledger.SettleLost].
func (s *Store) SettleLost(ctx context.Context, origin string) error {
	return s.ledger.SettleLost(ctx, origin)
}

func (s *Store) settleAllLost(ctx context.Context) error {
	return s.ledger.SettleAllLost(ctx, s.options.Lost)
}

// Copy is a copy of the file as of one moment, to be read and closed.
func (s *Store) Copy() (*os.File, error) { return s.ledger.Copy() }

// Close closes the file. Steps that are not on record yet are put there after the next Open.
func (s *Store) Close() error { return s.ledger.Close() }

// Pending is how many wait for a person.
func (s *Store) Pending() (n int) {
	if err := s.ledger.View(func(tx *ledger.Tx) { n = pendingIn(tx) }); err != nil {
		s.options.OnError(err)
	}
	return n
}

// now is the time as it is stored.
func (s *Store) now() time.Time { return s.options.Now().Round(0).UTC() }

// move is a change of an approval, with the steps that it takes.
type move struct {
	store *Store
	now   time.Time
	from  Approval // the zero value of a new one
	to    Approval
	steps []Step
	// first is called, if it is not nil, when no other change of what is pending in the tenant is under way here. also is the
	// first part of the change, if it is not nil.
	first func() error
	also  func(*change)
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
	m.here(step.ID) // save leaves those that count
	m.steps = append(m.steps, step)
	return step.ID
}

// write writes the change with its steps.
func (m *move) write(c *change) {
	if m.also != nil {
		m.also(c)
	}
	m.store.save(c, m.from, &m.to)
	for _, step := range m.steps {
		c.Step(step)
	}
}

// commit makes a change, and puts its steps on record: it counts when this returns nil.
func (s *Store) commit(ctx context.Context, m *move) (Approval, error) {
	made, err := s.make(ctx, m)
	if err == nil {
		err = s.ledger.Record(ctx, m.to, made)
	}
	if err != nil {
		return Approval{}, err
	}
	return m.to, nil
}

// make makes a change, and puts nothing on record. Changes of one tenant that count what is pending wait for one another:
// else each would find the count of another, and be made again.
func (s *Store) make(ctx context.Context, m *move) (made ledger.Made[Step], err error) {
	if (m.from.Status == Pending) != (m.to.Status == Pending) {
		release, err := s.ledger.Lock(ctx, "pending in "+m.to.Tenant) // no id has a space
		if err != nil {
			return made, err
		}
		defer release()
	}
	if m.first != nil {
		if err := m.first(); err != nil {
			return made, err
		}
	}
	made, err = s.ledger.Update(m.write)
	m.to.Revision = made.Revision
	return made, err
}

// save writes an approval and its indexes: by digest while it is open, by tenant and by caller while it is pending, and by
// what it was for after that. If it begins or ends to be pending, an event for callbacks and webhooks is due. from is as it
// was read, the zero value of a new one.
func (s *Store) save(c *change, from Approval, to *Approval) {
	to.After, to.Origin = c.Size, c.Origin // an opening compares it with later records of the log
	to.Written = from.Written.By(c.Origin, from.Version, to.Version)
	to.Origins = to.namedOrigins()
	maps.DeleteFunc(to.Since, func(decision string, _ time.Time) bool { return !slices.Contains(to.reserved(), decision) })
	state := *to
	words := state.cut()
	c.Save(from.Standing(), state)
	switch {
	case from.ID == "":
		c.Put(prefixWords+to.ID, words)
	case from.RedactedAt.IsZero() && !to.RedactedAt.IsZero():
		c.Delete(prefixWords + to.ID)
	}
	switch {
	case to.open() && !from.open():
		c.Put(digestKey(to.Digest), to.ID)
	case from.open() && !to.open():
		c.Delete(digestKey(to.Digest))
	}
	if from.Status != to.Status || !slices.Equal(from.Votes, to.Votes) {
		tellTasks(c, to)
	}
	switch was, is := from.wasRuled(), to.wasRuled(); {
	case is && !was:
		c.Put(to.alikeKey(), true)
	case was && !is:
		c.Delete(from.alikeKey())
	}
	switch was, is := from.Status == Pending, to.Status == Pending; {
	case is && !was:
		s.waits(c, to, 1)
	case was && !is:
		s.waits(c, &from, -1) // to may not say any more whose it was
	}
}

// Standing implements [ledger.Item].
func (a Approval) Standing() ledger.Standing {
	is := ledger.Standing{
		ID: a.ID, Tenant: a.Tenant, Caller: a.Caller, Ends: a.EndedAt, After: a.After, Origin: a.Origin, Revision: a.Revision,
	}
	for _, d := range a.reserved() {
		is.Reserved = append(is.Reserved, ledger.Reserved{Decision: d, Origin: a.Origins[d]})
	}
	if len(a.Origins) > 0 {
		is.By = a.namedOrigins()
		maps.DeleteFunc(is.By, func(record, _ string) bool { return slices.Contains(a.reserved(), record) })
	}
	switch until := a.continuesUntil(); {
	case a.open():
		is.Open, is.Ends = true, a.ExpiresAt
	case !until.IsZero(): // a copy from before a round must not have that answered again
		is.Open, is.Ends = true, until
	}
	return is
}

// Settled implements [ledger.Item].
func (a Approval) Settled(decision string) bool {
	return slices.Contains(a.Used, decision) ||
		slices.ContainsFunc(a.Spendings, func(s Spending) bool { return slices.Contains(s.Rounds, decision) })
}

// Entry implements [ledger.Step].
func (s Step) Entry() ledger.Entry {
	return ledger.Entry{
		ID:      s.ID,
		Item:    s.Approval.ID,
		Tenant:  s.Approval.Tenant,
		Caller:  s.Approval.Caller,
		Settles: s.Name == StepUsed || s.Name == StepContinued || s.Name == StepReleased,
		Proves:  s.proves(),
	}
}

// proves are the records by which an approval may count from a step on.
func (s *Step) proves() []string {
	switch s.Name {
	case StepApprove, StepDelegate, StepApproved:
		return []string{s.ID}
	case StepUsed:
		return []string{s.Decision}
	}
	return nil
}

// rules are the part of a store that the ledger calls.
type rules struct{ *Store }

// Read implements [ledger.Rules].
func (r rules) Read(from ledger.Reader, id string) (a Approval, found bool) { return read(from, id) }

// State implements [ledger.Rules].
func (r rules) State(from ledger.Reader, id string) (a Approval, found bool) {
	return readState(from, id)
}

// read reads an approval with its words.
func read(from ledger.Reader, id string) (a Approval, found bool) {
	if a, found = readState(from, id); found {
		a.readWords(from)
	}
	return a, found && from.Err() == nil
}

// readWords adds the words of an approval, unless they are redacted.
func (a *Approval) readWords(from ledger.Reader) {
	if !a.RedactedAt.IsZero() {
		return
	}
	var w words
	if from.Get(prefixWords+a.ID, &w) == 0 {
		from.Fail(fmt.Errorf("%w: %q has no request", ErrDamaged, a.ID))
	}
	a.add(w)
}

// readState reads an approval without its words.
func readState(from ledger.Reader, id string) (a Approval, found bool) {
	revision := from.Get(prefixItems+id, &a)
	a.Revision = revision
	return a, revision > 0
}

// Brief implements [ledger.Rules]: what the step changes, and whose it is.
func (r rules) Brief(step Step) Step {
	a := step.Approval
	step.Approval = Approval{ID: a.ID, Version: a.Version, Status: a.Status, ExpiresAt: a.ExpiresAt}
	step.Approval.Tenant, step.Approval.Caller = a.Tenant, a.Caller
	return step
}

// Whole implements [ledger.Rules].
func (r rules) Whole(step Step, a Approval) Step {
	a.Version, a.Status, a.ExpiresAt = step.Approval.Version, step.Approval.Status, step.Approval.ExpiresAt
	step.Approval = a
	return step
}

// Moved implements [ledger.Rules].
func (r rules) Moved(a Approval, records []string, origin string) Approval {
	a.Origins = maps.Clone(a.Origins)
	for _, record := range records {
		if _, counts := a.Origins[record]; counts {
			a.Origins[record] = origin
		}
	}
	return a
}

// Save implements [ledger.Rules].
func (r rules) Save(c *change, a Approval) { r.save(c, a, &a) }

// Forget implements [ledger.Rules].
func (r rules) Forget(c *change, a Approval) {
	c.Forget(a)
	c.Delete(prefixWords + a.ID)
	c.Delete(prefixUntold + a.ID)
	c.Delete(a.alikeKey())
}

// Expire implements [ledger.Rules]. An approval whose time is up ended then, not now. One that ended before has only its
// uses closed: no decision goes on from them any more.
func (r rules) Expire(ctx context.Context, a Approval) error {
	if to := a; a.Status.Final() {
		to.close(every)
		_, err := r.ledger.Update(func(c *change) { r.save(c, a, &to) })
		return err
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
	o := ledger.Options[Approval, Step]{Form: form(key), Rules: rules{}, Log: ledger.Log[Step]{Size: size}}
	err = bolt.Look(file(data), func(state ledger.State) error {
		return ledger.Look(state, o, func(tx *ledger.Tx) { pending = pendingIn(tx) })
	})
	return pending, opening(data, err)
}

// Take copies the file of a data directory into an engine that several processes share. See [ledger.Take].
func Take(data string, key []byte, to ledger.Engine, origin string, size uint64) error {
	return opening(data, bolt.Examine(file(data), func(state ledger.State) error {
		return ledger.Take(state, to, form(key), origin, size)
	}))
}
