package pdp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"policy-service/pdp/internal/bundle"
)

// loaded is a bundle in force and how it came to be.
type loaded struct {
	bundle.InForce
	read     bundle.Reading // and what is kept to compare them by
	later    []string       // tenants whose edits wait
	at       time.Time
	problems Problems // warnings of the load
	refused  *Refusal
	// refusedOf is the reading that was refused.
	refusedOf bundle.Reading
}

// Refusal is a load that failed; the bundle before it stays in force.
type Refusal struct {
	At       time.Time `json:"at"`
	Problems Problems  `json:"problems"`
}

// Status is which bundle is in force and whether a later one was refused.
type Status struct {
	Digest   string
	LoadedAt time.Time
	Refused  *Refusal
}

// reloader makes loads happen one after the other.
type reloader struct {
	turn chan struct{} // holds one element while a load is going on
	// seen is the last reading that was acted on, in force or refused.
	// It is nothing where that is to be tried again, and acted is not.
	seen, acted bundle.Reading
	// pollBlind is how often a directory is read again that events may not tell of,
	// pollWatched how often one is that they do.
	pollBlind, pollWatched time.Duration
	// building is called when a load begins to build; tests hold it up there.
	building func(context.Context)
	allowance
	did bundle.Work // of the last load that was built
}

const (
	defaultQuiet = 200 * time.Millisecond
	// patience is how long the first reading waits for a directory to lie still.
	patience = 30 * time.Second
	// aWhile is, in quiet periods, how long tenants whose files do not lie still keep
	// those waiting whose do, and how long what tenants alone do makes nobody read again:
	// whoever writes without a pause must neither hold up an edit of the root, nor keep the
	// reader busy, nor fill the log with loads.
	aWhile = 5
)

// errLater says that files of some tenants are not loaded yet. What was loaded of them
// before is in force.
var errLater = errors.New("the files of some tenants did not lie still, or too much of them was edited lately; what was loaded of them before stays in force")

// errOvertaken ends a load when the root's files are no longer those that it loads.
var errOvertaken = errors.New("a later edit of the root overtook this load")

// Status says which bundle is in force.
func (p *PDP) Status() Status {
	now := p.inForce.Load()
	status := Status{LoadedAt: now.at, Refused: now.refused}
	if now.Bundle != nil {
		status.Digest = now.Bundle.Digest()
	}
	return status
}

// Later are the tenants whose last edits wait: their files do not lie still, or they
// edited too much lately. What was loaded of them before is in force.
func (p *PDP) Later() []string { return slices.Clone(p.inForce.Load().later) }

// Reload reads the source until it lies still, and puts what it says in force.
// The error is of type [Problems] where that was refused; the bundle before it
// then stays in force, and [PDP.Status] says so. Where the source says what is
// in force already, nothing happens. Reloads are done one after the other.
//
// A tenant that goes on writing holds up nobody else: after a while the others' files
// are loaded with what was loaded of that tenant before, whole, and the error says so.
// Where a MANIFEST stands, it says what is whole, and anything else is refused.
func (p *PDP) Reload(ctx context.Context) error { return p.reload(ctx, true) }

// reload is Reload; without insist, a source that reads as it did at the last
// load, even a refused one, is left at that.
func (p *PDP) reload(ctx context.Context, insist bool) error {
	if p.source.IsNothing() {
		return errors.New("there is no source to reload from")
	}
	select {
	case p.reloader.turn <- struct{}{}:
		defer func() { <-p.reloader.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	files, err := p.source.ReadWithin(ctx)
	if err != nil {
		return err
	}
	// Where somebody waited who took back what waits, nobody does any more.
	if !insist && len(p.inForce.Load().later) == 0 && files.Reading().Equal(p.reloader.seen) {
		return nil
	}
	overtaken := false
	for {
		still, err := settle(ctx, p.source, p.options.Quiet, files, aWhile)
		if err != nil {
			return err
		}
		err = p.load(ctx, p.pick(still, overtaken, insist))
		again := overtaken && errors.Is(err, errLater) // the root's edit is in force; now the tenants'
		if overtaken = errors.Is(err, errOvertaken); !overtaken && !again {
			return err
		}
		if files, err = p.source.ReadWithin(ctx); err != nil {
			return err
		}
	}
}

// picked is what of a reading is to be loaded.
type picked struct {
	*stable
	held  []string // tenants whose files are left as they are in force
	first []string // where that loads, so are those of these, for now
}

// pick says whose files wait. Whatever lies still is loaded together, so that an edit of
// the root and of a tenant is seen whole. Only where an edit of the root overtook a load, it
// goes before everything that tenants edited: what took long then would take as long again.
// Where nobody insists and the root is as it was, tenants wait who have spent their
// allowance, but not for what was kept already and could not come into force.
func (p *PDP) pick(s *stable, overtaken, insist bool) picked {
	to := picked{stable: s}
	if s.files.Manifest {
		return to // which says what is whole, and refuses anything else
	}
	others := s.read.Others(p.inForce.Load().read)
	if to.held = s.moving; overtaken {
		to.first = others
	} else if !insist && s.read.SameRoot(p.reloader.acted) {
		for _, tenant := range others {
			waits := p.reloader.spent(tenant, time.Now()) && !p.reloader.isKept(tenant, s.read.Tenants[tenant])
			if waits && !slices.Contains(to.held, tenant) {
				to.held = append(to.held, tenant)
			}
		}
		slices.Sort(to.held)
	}
	return to
}

// load puts a reading in force, or refuses it and says so.
func (p *PDP) load(ctx context.Context, from picked) error {
	ctx, stop := p.overtake(ctx, from.read)
	defer stop()
	if len(from.first) > 0 {
		both := slices.Concat(from.first, from.held)
		slices.Sort(both)
		if err := p.try(ctx, from, slices.Compact(both), false); !errors.As(err, new(Problems)) {
			return err
		}
	}
	return p.try(ctx, from, from.held, true)
}

// try is load with those tenants' files as they are in force. Without tell, what is
// refused is not told of, because it is not what the files say.
func (p *PDP) try(ctx context.Context, from picked, held []string, tell bool) error {
	before := p.inForce.Load()
	after := *before
	files, read := from.files, from.read
	var later error
	if len(held) > 0 {
		files = files.Holding(held, before.Files)
		read, later = files.Reading(), errLater
	}
	if len(from.moving) > 0 {
		later = errLater
	}
	after.later = held
	p.reloader.forget(from.read, before.read, time.Now())
	if read.Equal(before.read) {
		p.reloader.seen, p.reloader.acted = read, read
		if before.refused != nil && (later == nil || len(held) > 0 && !before.refusedFor(held)) {
			// Back to what is in force: there is nothing to complain of.
			after.refused, after.refusedOf = nil, bundle.Reading{}
			p.swap(&after)
		} else {
			p.inForce.Store(&after)
		}
		return later
	}
	if len(held) > 0 && read.Equal(p.reloader.seen) {
		p.inForce.Store(&after)
		return later // refused already, and nothing but the tenant's moves
	}
	b, problems, err := p.build(ctx, files, before)
	if err != nil {
		return err
	}
	if problems.Refuse() && !tell {
		return problems
	}
	p.reloader.seen, p.reloader.acted = read, read
	// What is asked for is kept, whatever the answer.
	p.reloader.charge(files, read, !problems.Refuse(), before, time.Now())
	now := p.options.Now()
	var yet error
	if !problems.Refuse() {
		yet = p.options.ask(b, files, held)
	}
	if yet != nil {
		problems = notYet(yet)
		p.reloader.seen = bundle.Reading{} // nothing is wrong with the files: read them again
		if before.refused != nil && slices.Equal(before.refused.Problems, problems) {
			return problems // as was told before
		}
	}
	if problems.Refuse() {
		after.refused, after.refusedOf = &Refusal{At: now, Problems: problems}, read
		p.swap(&after)
		return problems
	}
	after = loaded{InForce: bundle.InForce{Bundle: b, Files: files}, read: read, later: held, at: now, problems: problems}
	// Nothing can fail from here on.
	p.swap(&after)
	return later
}

// refusedFor reports whether any of those tenants had edited something of what was refused:
// it may be what is wrong, and come back as it was.
func (l *loaded) refusedFor(tenants []string) bool {
	return slices.ContainsFunc(l.refusedOf.Others(l.read), func(tenant string) bool { return slices.Contains(tenants, tenant) })
}

// build is what takes long of a load. It ends when ctx does.
func (p *PDP) build(ctx context.Context, files *Files, before *loaded) (*Bundle, Problems, error) {
	if p.reloader.building != nil {
		p.reloader.building(ctx)
	}
	l := bundle.NewLoading(ctx, files, before.InForce)
	bundle, problems := l.Build()
	p.reloader.did = l.Did
	return bundle, problems, context.Cause(ctx)
}

// ask asks whether a bundle may come into force.
func (o Options) ask(bundle *Bundle, files *Files, later []string) error {
	if o.BeforeSwap == nil {
		return nil
	}
	return o.BeforeSwap(Incoming{Digest: bundle.Digest(), Files: files.Content, Later: later})
}

// notYet is what keeps a bundle out that has nothing wrong with it.
func notYet(err error) (problems Problems) {
	problems.Add("", 0, 0, "not_yet", "the bundle cannot come into force yet: "+err.Error(), "nothing need be done to its files; it is tried again by itself")
	return problems
}

// swap is the only place where what is in force changes: one store, so that a
// request sees all of an edit or none of it.
func (p *PDP) swap(to *loaded) {
	p.inForce.Store(to)
	if p.options.OnLoad != nil {
		p.options.OnLoad(p.Status())
	}
}

// Settled reads a source until two readings, a quiet period apart, are equal: a
// file that is being written may be cut behind a complete policy, and would load
// without the forbids that follow. Where ctx ends first, that is an error among
// the problems of what it returns.
func Settled(ctx context.Context, source Source, quiet time.Duration) *Files {
	s, err := settle(ctx, source, quiet, source.Read(), 0)
	if err != nil {
		s.files.Problems.Add("", 0, 0, "unsettled", "the files did not lie still for "+quiet.String(), "let whoever writes them finish, then try again")
	}
	return s.files
}

// stable is a reading of which the root's part is equal to that of the reading before,
// a quiet period earlier.
type stable struct {
	files  *Files
	read   bundle.Reading
	moving []string // tenants whose parts are not
}

// settle is Settled from a first reading on; the files are never nil. Once the root lies
// still, tenants that do not are waited for that many quiet periods more; 0 is for ever.
func settle(ctx context.Context, source Source, quiet time.Duration, files *Files, most int) (*stable, error) {
	s := &stable{files: files, read: files.Reading()}
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for waited := 0; ; waited++ {
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("the files did not lie still: %w", ctx.Err())
		case <-timer.C:
		}
		again, err := source.ReadWithin(ctx)
		if err != nil {
			return s, fmt.Errorf("the files did not lie still: %w", err)
		}
		read := again.Reading()
		still := read.SameRoot(s.read)
		s = &stable{files: again, read: read, moving: read.Others(s.read)}
		switch {
		case still && (len(s.moving) == 0 || most > 0 && waited >= most):
			return s, nil
		case !still:
			waited = -1
		}
		timer.Reset(quiet)
	}
}

// firstReading is what a PDP starts from: a directory is settled, any other file
// system is taken to lie still.
func firstReading(source Source, quiet time.Duration) *Files {
	if source.Dir == "" {
		return source.Read()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return Settled(ctx, source, quiet)
}
