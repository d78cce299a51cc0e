package capability

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"policy-service/evaluation/capability"
	"policy-service/evaluation/recent"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/bolt"
)

// Store keeps capabilities in a file. Every change is one transaction of a [ledger.Ledger], and counts when its steps are on
// record. [Store.Run] does due work, and retries failed work.
type Store struct {
	*ledger.Bulletin // has the news for readers that wait for a change
	options          Options
	ledger           *ledger.Ledger[Capability, Step]
	sealKey          []byte
	rates            rates
	shared           bool                   // others write to the engine, too
	attested         recent.Texts[struct{}] // the grants for which the log vouched
}

// News and Notice are those of package ledger: readers wait for the former, and choose them by the latter.
type (
	News   = ledger.News
	Notice = ledger.Notice
)

// Proof is a record of the log of an origin, with the proof that it is there.
type Proof = ledger.Proof

// Withdrawal is a decision that may not be answered, as its use of a capability is not there any more, or its grant.
type Withdrawal = ledger.Withdrawal

// change is one transaction, of one capability at most.
type change = ledger.Change[Step]

// Open opens the store in a data directory, or creates it. Reservations in doubt when the last process ended are settled as
// far as it can be now; [Store.Run] does the rest.
func Open(data string, o Options) (*Store, error) {
	if o.Record == nil || o.Recorded == nil || o.Withdraw == nil || o.Attest == nil || o.Steps == nil || o.Size == nil {
		return nil, errors.New("opening the capabilities: there is no log to hold them against: " +
			"set Record, Recorded, Withdraw, Attest, Steps and Size")
	}
	if len(o.Key) != 32 {
		return nil, errors.New("opening the capabilities: their key is not 32 bytes long: set Key")
	}
	s := &Store{options: o.withDefaults(), sealKey: keyOf(o.Key, sealUse)}
	s.rates.perMinute = s.options.Limits.NewPerMinutePerHolder
	if o.Engine == nil {
		if err := os.MkdirAll(data, 0o700); err != nil {
			return nil, opening(data, err)
		}
		o.Engine = bolt.New(file(data))
	}
	recorded := func(id string) (bool, error) { return o.Recorded(decisionOf(id)) }
	withdraw := func(ctx context.Context, w ledger.Withdrawal) error {
		w.Decision = decisionOf(w.Decision)
		return o.Withdraw(ctx, w)
	}
	s.shared = o.Engine.Shared()
	s.ledger = ledger.New(ledger.Options[Capability, Step]{
		Engine:  o.Engine,
		Form:    form(o.Key),
		Origin:  o.Origin,
		Log:     ledger.Log[Step]{Record: o.Record, Recorded: recorded, Withdraw: withdraw, Steps: o.Steps, Size: o.Size, Prove: o.Prove},
		Rules:   rules{s},
		Now:     s.now,
		Retain:  s.options.Retain,
		OnError: s.options.OnError,
	})
	s.Bulletin = s.ledger.Bulletin
	if err := s.ledger.Open(context.Background()); err != nil {
		return nil, opening(data, err)
	}
	return s, nil
}

func opening(data string, err error) error {
	if err != nil {
		err = fmt.Errorf("opening the capabilities: %s: %w", filepath.Join(data, FileName), err)
	}
	return err
}

// Look reads the file of a data directory as [Open] would, and changes nothing. Size is how many records the log has; nil
// if there is no log. It returns the number of live capabilities. The error is the one with which Open would fail.
func Look(data string, key []byte, size func() uint64) (live int, err error) {
	o := ledger.Options[Capability, Step]{Form: form(key), Rules: rules{}, Log: ledger.Log[Step]{Size: size}}
	err = bolt.Look(file(data), func(state ledger.State) error {
		return ledger.Look(state, o, func(tx *ledger.Tx) { live = liveIn(tx) })
	})
	return live, opening(data, err)
}

// Take copies the file of a data directory into an engine that several processes share. See [ledger.Take].
func Take(data string, key []byte, to ledger.Engine, origin string, size uint64) error {
	return opening(data, bolt.Examine(file(data), func(state ledger.State) error {
		return ledger.Take(state, to, form(key), origin, size)
	}))
}

// liveIn is how many are live in all tenants.
func liveIn(tx *ledger.Tx) (all int) {
	for _, read := range tx.Scan(ofTenants, "") {
		n := 0
		read(&n)
		all += n
	}
	return all
}

// Live is how many capabilities have not ended.
func (s *Store) Live() (n int, err error) {
	err = s.ledger.View(func(tx *ledger.Tx) { n = liveIn(tx) })
	return n, err
}

// Run does due work until its context ends. It ends capabilities whose time is up, forgets those that ended long ago, and
// retries failed work.
func (s *Store) Run(ctx context.Context) { s.ledger.Run(ctx, s.settleAllLost) }

// SettleLost counts what another origin has reserved as used, whose log will never say anything any more. See
// [ledger.Ledger.SettleLost]. What it was to grant or to renew is neither: nothing says that a decision did.
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

// NewID makes an id for a capability.
func (s *Store) NewID() string { return "cap_" + strings.ReplaceAll(s.options.NewID(), "-", "") }

// now is the time as it is stored.
func (s *Store) now() time.Time { return s.options.Now().Round(0).UTC() }

// move is a change of a capability, with the steps that it takes.
type move struct {
	store *Store
	now   time.Time
	from  Capability // the zero value of a new one
	to    Capability
	steps []Step
	also  func(*change) // the first part of the change, if it is not nil
	with  []*move       // of others, which are locked, too; none has steps
}

// move begins a change. A capability whose time is up stays what it is: to expire it is a change of its own.
func (s *Store) move(from Capability) *move {
	return &move{store: s, now: s.now(), from: from, to: from.following()}
}

// step adds a step, after which the capability is as it is now. Its record has the id.
func (m *move) step(step Step) (id string) {
	step.ID, step.At, step.Capability = m.store.options.NewID(), m.now, m.to
	step.Seal = m.store.seal(&step, &m.to)
	m.steps = append(m.steps, step)
	return step.ID
}

// reserve has a decision reserve something, of whose record the log here will say what becomes.
// Of an ancestor, by is the capability that the decision uses.
func (m *move) reserve(decision, by string) {
	r := Reserved{Decision: decision, Origin: m.store.options.Origin, By: by}
	if r.Origin != "" {
		r.Since = m.now
	}
	m.to.Reserved = append(m.to.Reserved, r)
}

// write writes the change with its steps.
func (m *move) write(c *change) {
	if m.also != nil {
		m.also(c)
	}
	m.store.save(c, m.from, &m.to)
	for _, other := range m.with {
		other.write(c)
	}
	for _, step := range m.steps {
		c.Step(step)
	}
}

// commit makes a change, and puts its steps on record: it counts when this returns nil.
func (s *Store) commit(ctx context.Context, m *move) (Capability, error) {
	made, err := s.make(ctx, m)
	if err == nil {
		err = s.ledger.Record(ctx, m.to, made)
	}
	if err != nil {
		return Capability{}, err
	}
	return m.to, nil
}

// make makes a change, and puts nothing on record. Changes of one tenant that count what is live wait for one another: else
// each would find the count of another, and be made again.
func (s *Store) make(ctx context.Context, m *move) (made ledger.Made[Step], err error) {
	if m.from.open() != m.to.open() {
		release, err := s.ledger.Lock(ctx, "live in "+m.to.Tenant) // no id has a space
		if err != nil {
			return made, err
		}
		defer release()
	}
	made, err = s.ledger.Update(m.write)
	m.to.Revision = made.Revision
	for _, other := range m.with {
		other.to.Revision = made.Revision
	}
	return made, err
}

// save writes a capability without its words, and what counts and lists it. from is as it was read, the zero value of a new
// one.
func (s *Store) save(c *change, from Capability, to *Capability) {
	to.After, to.Origin = c.Size, c.Origin // an opening compares it with later records of the log
	to.Written = from.Written.By(c.Origin, from.Version, to.Version)
	state := *to
	state.Words = Words{}
	c.Save(from.Standing(), state)
	if from.ID == "" {
		c.Put(prefixWords+to.ID, to.Words)
		for _, key := range to.indexes() {
			c.Put(key, true)
		}
	}
	more := 0
	switch was, is := from.open(), to.open(); {
	case is && !was:
		more = 1
	case was && !is:
		more = -1
	default:
		return
	}
	for key, most := range to.counters(s.options.Limits) {
		n := 0
		if c.Get(key, &n); more > 0 && n >= most {
			c.Fail(&LimitError{RetryAfter: laterOn})
		}
		if n += more; n > 0 {
			c.Put(key, n)
		} else {
			c.Delete(key)
		}
	}
}

// rules are the part of a store that the ledger calls.
type rules struct{ *Store }

// Read implements [ledger.Rules].
func (r rules) Read(from ledger.Reader, id string) (Capability, bool) { return read(from, id) }

// State implements [ledger.Rules].
func (r rules) State(from ledger.Reader, id string) (Capability, bool) { return readState(from, id) }

// Brief implements [ledger.Rules]: what the step changes, and whose it is.
func (r rules) Brief(step Step) Step {
	c := &step.Capability
	step.Capability = Capability{ID: c.ID, Tenant: c.Tenant, Caller: c.Caller, Version: c.Version, State: c.State}
	return step
}

// Whole implements [ledger.Rules].
func (r rules) Whole(step Step, c Capability) Step {
	c.Version, c.State = step.Capability.Version, step.Capability.State
	step.Capability = c
	return step
}

// Moved implements [ledger.Rules].
func (r rules) Moved(c Capability, records []string, origin string) Capability {
	if slices.Contains(records, c.Granted) {
		c.GrantedIn = origin
	}
	return c
}

// Save implements [ledger.Rules].
func (r rules) Save(c *change, one Capability) { r.save(c, one, &one) }

// Forget implements [ledger.Rules].
func (r rules) Forget(c *change, one Capability) {
	var w Words
	c.Get(prefixWords+one.ID, &w)
	c.Forget(one)
	c.Delete(prefixWords + one.ID)
	for _, key := range one.indexes() {
		c.Delete(key)
	}
	r.unask(c, one, w.Approval, w.Ask)
	if token, refused := capability.ParseClaims(w.Claims); refused == nil {
		r.leave(c, token, one.Tenant)
	}
}

// unask removes the key by which what was asked finds a capability, if there is one.
func (s *Store) unask(c *change, one Capability, approval, ask string) {
	id, key := "", askKey(one.Tenant, approval, ask)
	if c.Get(key, &id); approval != "" && id == one.ID {
		c.Delete(key)
	}
}

// Expire implements [ledger.Rules]. A capability whose time is up ended then, not now.
func (r rules) Expire(ctx context.Context, c Capability) error {
	m := r.move(c)
	m.to.end(Expired, c.Expires)
	m.step(Step{Name: StepExpired})
	_, err := r.commit(ctx, m)
	return err
}
