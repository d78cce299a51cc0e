package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/bolt"
)

// A ticket is a small item: it has some uses, and ends at a time. The tests below have the rules of tickets.
type ticket struct {
	ID       string    `json:"id"`
	Uses     int       `json:"uses"`
	Used     []string  `json:"used"`
	Reserved []string  `json:"reserved"`
	Ended    bool      `json:"ended"`
	Ends     time.Time `json:"ends"`
	After    uint64    `json:"after"`
	Revision uint64    `json:"-"`
}

func (t ticket) Standing() ledger.Standing {
	is := ledger.Standing{ID: t.ID, Tenant: "acme", Open: !t.Ended, Ends: t.Ends, After: t.After, Revision: t.Revision}
	for _, d := range t.Reserved {
		is.Reserved = append(is.Reserved, ledger.Reserved{Decision: d})
	}
	return is
}

func (t ticket) Settled(decision string) bool { return slices.Contains(t.Used, decision) }

type step struct {
	ID     string `json:"id"`
	Ticket string `json:"ticket"`
	Name   string `json:"name"`
	Use    string `json:"use"`
}

func (s step) Entry() ledger.Entry {
	return ledger.Entry{ID: s.ID, Item: s.Ticket, Tenant: "acme", Settles: s.Name == "used" || s.Name == "released"}
}

type change = ledger.Change[step]

var (
	errDamaged     = errors.New("damaged")
	errNotFound    = errors.New("not found")
	errUnavailable = errors.New("unavailable")
	errClosed      = errors.New("closed")
	errLocked      = errors.New("locked")
	errLog         = errors.New("the log is away")
)

// log is a log in memory, and what the tickets' rules are given of a process.
type log struct {
	mu     sync.Mutex
	steps  []step
	ids    map[string]bool
	away   bool
	now    time.Time
	n      int
	failed []error

	withdrawn []ledger.Withdrawal
}

func newLog() *log {
	return &log{ids: map[string]bool{}, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func (l *log) locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *log) record(_ context.Context, s step) (err error) {
	l.locked(func() {
		if err = errLog; !l.away {
			l.steps, l.ids[s.ID], err = append(l.steps, s), true, nil
		}
	})
	return err
}

func (l *log) names() (names []string) {
	l.locked(func() {
		for _, s := range l.steps {
			names = append(names, s.Name)
		}
	})
	return names
}

// tickets are the rules of tickets.
type tickets struct {
	*ledger.Ledger[ticket, step]
	log *log
}

var known = ledger.Errors{
	Unavailable: errUnavailable,
	Closed:      errClosed,
	Locked:      errLocked,
	Damaged:     errDamaged,
	NotFound:    errNotFound,
}

func file(data string) bolt.Options {
	return bolt.Options{Path: filepath.Join(data, "tickets.db"), Errors: known}
}

func options(data string, l *log, rules ledger.Rules[ticket, step]) ledger.Options[ticket, step] {
	return ledger.Options[ticket, step]{
		Engine: bolt.New(file(data)),
		Form: ledger.Form{
			Kind:      "t",
			Key:       []byte("a key that nobody else has"),
			Version:   2,
			Marshal:   json.Deterministic(true),
			Unmarshal: json.RejectUnknownMembers(true),
			Errors:    known,
		},
		Log: ledger.Log[step]{
			Record: l.record,
			Recorded: func(id string) (is bool, err error) {
				l.locked(func() {
					if is = l.ids[id]; l.away {
						err = errLog
					}
				})
				return is, err
			},
			Withdraw: func(_ context.Context, w ledger.Withdrawal) (err error) {
				l.locked(func() {
					if err = errLog; !l.away {
						l.withdrawn, err = append(l.withdrawn, w), nil
					}
				})
				return err
			},
			Steps: func(_ context.Context, from uint64, ids map[string]bool) (map[string][]step, error) {
				found := map[string][]step{}
				l.locked(func() {
					for _, s := range l.steps[from:] {
						if ids[s.Ticket] {
							found[s.Ticket] = append(found[s.Ticket], s)
						}
					}
				})
				return found, nil
			},
			Size: func() (n uint64) {
				l.locked(func() { n = uint64(len(l.steps)) })
				return n
			},
		},
		Rules: rules,
		Now: func() (now time.Time) {
			l.locked(func() { now = l.now })
			return now
		},
		Retain:  time.Hour,
		OnError: func(err error) { l.locked(func() { l.failed = append(l.failed, err) }) },
	}
}

func open(t *testing.T, data string, l *log) *tickets {
	t.Helper()
	all := &tickets{log: l}
	all.Ledger = ledger.New(options(data, l, all))
	must(t, all.Open(t.Context()))
	t.Cleanup(func() { _ = all.Close() })
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// save writes a ticket and takes steps of it.
func (a *tickets) save(was, is ticket, names ...string) func(*change) {
	return func(c *change) {
		is.After = c.Size
		c.Save(was.Standing(), is)
		for _, name := range names {
			a.log.locked(func() { a.log.n++ })
			name, use, _ := strings.Cut(name, " ")
			c.Step(step{ID: fmt.Sprint("s", a.log.n), Ticket: is.ID, Name: name, Use: use})
		}
	}
}

func (a *tickets) Read(r ledger.Reader, id string) (t ticket, found bool) {
	revision := r.Get("t/"+id, &t)
	t.Revision = revision
	return t, revision > 0
}

func (a *tickets) State(r ledger.Reader, id string) (t ticket, found bool) { return a.Read(r, id) }

func (a *tickets) Brief(s step) step { return s }

func (a *tickets) Whole(s step, _ ticket) step { return s }

// commit makes a change of a ticket, and puts its steps on record.
func (a *tickets) commit(ctx context.Context, t ticket, write func(*change)) error {
	made, err := a.Update(write)
	if err == nil {
		err = a.Record(ctx, t, made)
	}
	return err
}

func (a *tickets) CatchUp(ctx context.Context, t ticket, steps []step) error {
	is := t
	for _, s := range steps {
		if s.Name == "ended" {
			is.Ended = true
		}
	}
	if is.Ended == t.Ended {
		return nil
	}
	return a.commit(ctx, t, a.save(t, is, "caught_up"))
}

func (a *tickets) Expire(ctx context.Context, t ticket) error {
	is := t
	is.Ended = true
	return a.commit(ctx, t, a.save(t, is, "ended"))
}

func (a *tickets) Settle(_ context.Context, t ticket, outcomes []ledger.Outcome) (ticket, ledger.Made[step], error) {
	is, names := t, []string(nil)
	is.Reserved, is.Used = nil, slices.Clone(t.Used)
	for _, r := range t.Reserved {
		at := slices.IndexFunc(outcomes, func(o ledger.Outcome) bool { return o.Decision == r })
		switch {
		case at < 0:
			is.Reserved = append(is.Reserved, r)
		case outcomes[at].Used:
			is.Used, names = append(is.Used, r), append(names, "used "+r)
		default:
			names = append(names, "released "+r)
		}
	}
	made, err := a.Update(a.save(t, is, names...))
	is.Revision = made.Revision
	return is, made, err
}

func (*tickets) Moved(item ticket, _ []string, _ string) ticket { return item }

func (a *tickets) Save(c *change, t ticket) { a.save(t, t)(c) }

func (a *tickets) Forget(c *change, t ticket) { c.Forget(t) }

func (a *tickets) sell(t *testing.T, id string, uses int) ticket {
	t.Helper()
	is := ticket{ID: id, Uses: uses, Ends: a.log.now.Add(time.Hour)}
	must(t, a.commit(t.Context(), is, a.save(ticket{}, is, "sold")))
	return a.read(t, id)
}

func (a *tickets) reserve(t *testing.T, id, decision string) *ledger.Reservation[ticket, step] {
	t.Helper()
	was, release, err := a.Locked(t.Context(), id)
	must(t, err)
	is := was
	is.Reserved = append(slices.Clone(was.Reserved), decision)
	made, err := a.Update(a.save(was, is))
	must(t, err)
	is.Revision = made.Revision
	return a.Reserved(is, decision, release)
}

func (a *tickets) unrecorded(t *testing.T, id string) (is bool) {
	t.Helper()
	must(t, a.View(func(tx *ledger.Tx) { is = a.Unrecorded(tx, id) }))
	return is
}

func (a *tickets) listed(t *testing.T, one ticket) (is bool) {
	t.Helper()
	must(t, a.View(func(tx *ledger.Tx) { is = a.Listed(tx, one.Standing()) }))
	return is
}

func (a *tickets) read(t *testing.T, id string) ticket {
	t.Helper()
	is, err := a.Ledger.Read(id)
	must(t, err)
	return is
}

// TestReservation: of two uses that are reserved, the one that is on record is used after a restart without an end, and
// the other is there again.
func TestReservation(t *testing.T) {
	t.Parallel()
	l, data := newLog(), t.TempDir()
	a := open(t, data, l)
	a.sell(t, "t", 3)
	a.reserve(t, "t", "d1").Spent(t.Context())
	l.locked(func() { l.ids["d2"] = true })
	a.reserve(t, "t", "d2").InDoubt()
	a.reserve(t, "t", "d3").InDoubt()
	if got := a.read(t, "t"); !slices.Equal(got.Reserved, []string{"d2", "d3"}) {
		t.Errorf("reserved are %v", got.Reserved)
	}
	l.locked(func() { l.away = true })
	a.Work(t.Context())
	if got := a.read(t, "t"); len(got.Reserved) != 2 || len(l.failed) == 0 {
		t.Errorf("while nobody can tell, reserved are %v, and the errors %v", got.Reserved, l.failed)
	}
	l.locked(func() { l.away = false })
	must(t, a.Close())
	a = open(t, data, l)
	if got := a.read(t, "t"); len(got.Reserved) != 0 || !slices.Equal(got.Used, []string{"d1", "d2"}) {
		t.Errorf("it is %+v", got)
	}
	if want := []string{"sold", "used", "used", "released"}; !slices.Equal(l.names(), want) {
		t.Errorf("on record is %v, want %v", l.names(), want)
	}
}

// TestOutbox: steps go on record in their order, once, whatever fails in between, and an item waits for them.
func TestOutbox(t *testing.T) {
	t.Parallel()
	l, data := newLog(), t.TempDir()
	a := open(t, data, l)
	is := a.sell(t, "t", 1)
	news := a.News(func(n ledger.Notice) bool { return n.Tenant == "acme" && n.ID == "t" })
	defer news.Close()
	l.locked(func() { l.away = true })
	err := a.commit(t.Context(), is, a.save(is, is, "moved", "painted"))
	if !errors.Is(err, ledger.ErrUnrecorded) || !errors.Is(err, errLog) || !a.unrecorded(t, "t") {
		t.Errorf("without a log it counts: %v", err)
	}
	if _, _, err := a.Locked(t.Context(), "t"); !errors.Is(err, ledger.ErrUnrecorded) {
		t.Errorf("it is handed out: %v", err)
	}
	must(t, a.View(func(tx *ledger.Tx) {
		if got := a.UnrecordedItems(tx); len(got) != 1 || got[0] != (ledger.Notice{Tenant: "acme", ID: "t"}) {
			t.Errorf("not all is on record of %v", got)
		}
	}))
	select {
	case <-news.C:
		t.Error("it is news before it counts")
	default:
	}
	must(t, a.Close())
	l.locked(func() { l.away = false })
	a = open(t, data, l)
	if a.unrecorded(t, "t") || !slices.Equal(l.names(), []string{"sold", "moved", "painted"}) {
		t.Errorf("after a restart on record is %v", l.names())
	}
	again := a.News(func(n ledger.Notice) bool { return n.ID == "t" })
	defer again.Close()
	must(t, a.commit(t.Context(), is, a.save(a.read(t, "t"), is, "painted")))
	<-again.C
}

// TestRun: what is due ends, and what ended long ago is forgotten.
func TestRun(t *testing.T) {
	t.Parallel()
	l := newLog()
	a := open(t, t.TempDir(), l)
	a.sell(t, "t", 1)
	a.Work(t.Context())
	if got := a.read(t, "t"); got.Ended {
		t.Error("it ended too early")
	}
	l.locked(func() { l.now = l.now.Add(time.Hour) })
	a.Work(t.Context())
	if got := a.read(t, "t"); !got.Ended || a.listed(t, got) {
		t.Errorf("its time is up, and it is %+v", got)
	}
	l.locked(func() { l.now = l.now.Add(time.Hour) })
	a.Work(t.Context())
	if _, err := a.Ledger.Read("t"); !errors.Is(err, errNotFound) {
		t.Errorf("it is not forgotten: %v", err)
	}
}

// TestOlderFile: what the log knows better than a file is taken from the log, and a log that was cut is refused.
func TestOlderFile(t *testing.T) {
	t.Parallel()
	l, data := newLog(), t.TempDir()
	path := filepath.Join(data, "tickets.db")
	a := open(t, data, l)
	a.sell(t, "t", 1)
	must(t, a.Close())
	old, err := os.ReadFile(path)
	must(t, err)
	a = open(t, data, l)
	must(t, a.Expire(t.Context(), a.read(t, "t")))
	must(t, a.Close())
	must(t, os.WriteFile(path, old, 0o600))
	a = open(t, data, l)
	if got := a.read(t, "t"); !got.Ended || !slices.Contains(l.names(), "caught_up") {
		t.Errorf("it is %+v, and on record is %v", got, l.names())
	}
	must(t, a.Close())
	must(t, os.WriteFile(path, old, 0o600))
	l.locked(func() { l.steps = nil })
	other := &tickets{log: l}
	other.Ledger = ledger.New(options(data, l, other))
	if err := other.Open(t.Context()); !errors.Is(err, ledger.ErrShort) {
		t.Errorf("a log that was cut: %v", err)
	}
}

// TestKey: what was written with another key is damage.
func TestKey(t *testing.T) {
	t.Parallel()
	l, data := newLog(), t.TempDir()
	a := open(t, data, l)
	a.sell(t, "t", 1)
	must(t, a.Close())
	o := options(data, l, a)
	o.Form.Key = []byte("another key")
	if err := ledger.New(o).Open(t.Context()); !errors.Is(err, errDamaged) {
		t.Errorf("it opens with another key: %v", err)
	}
	err := bolt.Examine(file(data), func(s ledger.State) error {
		return ledger.Look(s, o, func(*ledger.Tx) { t.Error("it is read with another key") })
	})
	if !errors.Is(err, errDamaged) {
		t.Errorf("it is read with another key: %v", err)
	}
}

// TestRefused: after an error nothing of a change is there, and after a write that cannot be done likewise.
func TestRefused(t *testing.T) {
	t.Parallel()
	a := open(t, t.TempDir(), newLog())
	is := a.sell(t, "t", 1)
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		change func(*change)
		want   error
	}{
		"by its author": {func(c *change) { c.Fail(refused) }, refused},
		"no JSON":       {func(c *change) { c.Put("x", func() {}) }, ledger.ErrInvalid},
		"written first": {func(c *change) { c.Put("x", 1); c.Get("x", new(int)) }, ledger.ErrInvalid},
		"many keys": {func(c *change) {
			for n := range ledger.MostKeys {
				c.Put(fmt.Sprint("x", n), n)
			}
		}, ledger.ErrTooMuch},
		"many bytes":    {func(c *change) { c.Put("x", strings.Repeat("x", ledger.MostBytes)) }, ledger.ErrTooMuch},
		"come too late": {func(c *change) { c.Save(ledger.Standing{ID: is.ID, Revision: is.Revision - 1}, is) }, ledger.ErrConflict},
	} {
		_, err := a.Update(func(one *change) {
			changed := is
			changed.Uses = 7
			a.save(is, changed, "painted")(one)
			c.change(one)
		})
		if got := a.read(t, "t"); !errors.Is(err, c.want) || got.Uses != 1 || a.unrecorded(t, "t") {
			t.Errorf("%s: %v, and it is %+v", name, err, got)
		}
	}
	must(t, a.Close())
	if _, err := a.Update(func(*change) {}); !errors.Is(err, errClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// TestErase: a file that is to be written anew has no byte of what was taken away, is as it was else, and goes on. After a
// crash before that the next opening writes it anew.
func TestErase(t *testing.T) {
	t.Parallel()
	for _, crash := range []bool{false, true} {
		l, data := newLog(), t.TempDir()
		a := open(t, data, l)
		name := filepath.Join(data, "tickets.db")
		has := func(text string) bool {
			t.Helper()
			content, err := os.ReadFile(name)
			must(t, err)
			return strings.Contains(string(content), text)
		}
		kept := a.sell(t, "kept", 2)
		a.reserve(t, "kept", "d1").InDoubt()
		is := a.sell(t, "t", 1)
		is.Used = []string{"a-secret"}
		must(t, a.commit(t.Context(), is, a.save(is, is)))
		gone := a.read(t, "t")
		gone.Used = nil
		must(t, a.commit(t.Context(), gone, func(c *change) {
			a.save(gone, gone, "painted")(c)
			c.Erase()
		}))
		if !has("a-secret") {
			t.Fatal("nothing is left of what was deleted, so this test finds nothing")
		}
		if crash {
			must(t, a.Close())
			must(t, os.WriteFile(name+bolt.NewSuffix, []byte("half"), 0o600))
			a = open(t, data, l)
		} else {
			must(t, a.Erase(t.Context()))
		}
		if has("a-secret") {
			t.Errorf("crash %v: it is in the file", crash)
		}
		if _, err := os.Stat(name + bolt.NewSuffix); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("crash %v: the new file is beside it: %v", crash, err)
		}
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("crash %v: it is %v, %v", crash, info, err)
		}
		must(t, a.Erase(t.Context()))
		gone = a.read(t, "t")
		must(t, a.commit(t.Context(), gone, a.save(gone, gone, "moved")))
		a.sell(t, "new", 1)
		must(t, a.Close())
		a = open(t, data, l)
		if got := a.read(t, "kept"); got.Uses != kept.Uses {
			t.Errorf("crash %v: it is %+v", crash, got)
		}
		if len(a.read(t, "t").Used) > 0 || !a.listed(t, a.read(t, "t")) || !a.listed(t, a.read(t, "new")) {
			t.Errorf("crash %v: what was written after it is not there", crash)
		}
	}
}
