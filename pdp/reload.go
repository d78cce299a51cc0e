package pdp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/source"
)

// loaded is a bundle in force and how it came to be.
type loaded struct {
	bundle.InForce
	read     source.Reading // the reading of its files, which later readings are compared with
	onDisk   string         // the digest of all files as they were read last
	later    []string       // tenants whose edits wait
	at       time.Time
	problems Problems // warnings of the load
	refused  *Refusal
}

// Refusal is a load that failed. The bundle before it stays in force. If all errors are in files of tenants, only these tenants'
// files stay in force, and the others' are loaded.
type Refusal struct {
	At       time.Time `json:"at"`
	Problems Problems  `json:"problems"`
	// Tenants are those in whose files all errors are, if the whole bundle is not refused.
	Tenants []string `json:"tenants,omitzero"`
}

// Status says which bundle is in force, and whether a later one was refused.
type Status struct {
	Digest   string
	LoadedAt time.Time
	// OnDisk is the digest of the files as they were read last. It differs from Digest if some were refused, or wait.
	OnDisk  string
	Refused *Refusal
}

// reloader makes loads happen one after the other.
type reloader struct {
	turn chan struct{} // holds one element while a load is going on
	// acted is the last reading that was acted on, in force or refused. seen is the same
	// reading, but it is empty if the reading is to be tried again.
	seen, acted source.Reading
	// pollBlind is the time until a directory is read again if its changes may send no events.
	// pollWatched is the time if they send events.
	pollBlind, pollWatched time.Duration
	// building is called when a load begins to build. Tests hold up a load there.
	building func(context.Context)
	allowance
	lastWork bundle.Work // what the last load that was built read anew
}

const (
	defaultQuiet = 200 * time.Millisecond
	// patience is how long the first reading waits for a directory to lie still.
	patience = 30 * time.Second
	// aWhile is a number of quiet periods. For so long, tenants whose files do not lie still hold
	// up the load of all other files. And for so long after a reading, changes of tenants alone
	// cause no new reading. A tenant that writes without a pause must not hold up an edit of the
	// root for longer, keep the reader busy, or fill the log with loads.
	aWhile = 5
)

// errLater says that files of some tenants are not loaded yet. Of these tenants, the files that
// were loaded before stay in force.
var errLater = errors.New("the files of some tenants did not lie still, or too much of them was edited lately; what was loaded of them before stays in force")

// errOvertaken ends a load when the root's files are no longer those that it loads.
var errOvertaken = errors.New("a later edit of the root overtook this load")

// Status returns which bundle is in force, and whether a later one was refused.
func (p *PDP) Status() Status {
	now := p.inForce.Load()
	status := Status{LoadedAt: now.at, OnDisk: now.onDisk, Refused: now.refused}
	if now.Bundle != nil {
		status.Digest = now.Bundle.Digest()
	}
	return status
}

// Later returns the tenants whose last edits wait, because their files do not lie still, or because
// they edited too much lately. The files that were loaded of them before stay in force.
func (p *PDP) Later() []string { return slices.Clone(p.inForce.Load().later) }

// Reload reads the source until it lies still, and puts its bundle in force. If that bundle is
// refused, the error is of type [Problems], the bundle before it stays in force, and
// [PDP.Status] says so. If the bundle is in force already, nothing happens. Reloads are done one
// after the other.
//
// A tenant that goes on writing does not hold up the others. After a while, the others' files
// are loaded together with all files that were loaded of that tenant before, and the error says
// so. An error in a tenant's files does not hold up the others, either: what is in force of that tenant stays so, and if that does
// not load any more, the tenant is unavailable. The error is then of type [Problems], too. If the source has a MANIFEST, the
// MANIFEST lists the whole bundle, and anything else is refused.
func (p *PDP) Reload(ctx context.Context) error { return p.reload(ctx, true) }

// reload does the work of Reload. Without insist, it loads nothing if the source reads as it did
// at the last load, even if that load was refused.
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
	// If tenants' edits wait, go on even if the reading is the same: a tenant that has taken its
	// edit back must no longer count as waiting.
	if !insist && len(p.inForce.Load().later) == 0 && files.Reading().Equal(p.reloader.seen) {
		return nil
	}
	overtaken := false
	for {
		still, err := settle(ctx, p.source, p.options.Quiet, files, aWhile)
		if err != nil {
			return err
		}
		err = p.load(ctx, p.selectTenants(still, overtaken, insist))
		// After an overtaken load, the root's edit is in force first. Now the tenants' edits are loaded.
		again := overtaken && errors.Is(err, errLater)
		if overtaken = errors.Is(err, errOvertaken); !overtaken && !again {
			return err
		}
		if files, err = p.source.ReadWithin(ctx); err != nil {
			return err
		}
	}
}

// selection says which files of a reading are to be loaded.
type selection struct {
	*stable
	held  []string // tenants whose files stay as they are in force
	first []string // tenants whose files stay so too in a load of the root that goes first
}

// selectTenants selects the tenants whose files wait. All files that lie still are loaded
// together, so that an edit of both the root and a tenant comes into force whole. There is one
// exception: if an edit of the root overtook a load, the root's edit is loaded before all edits of
// tenants, because the load that took long would take as long again. Without insist, and if the
// root is unchanged, tenants wait that have spent their allowance. They do not wait if their
// files were kept already and could not come into force.
func (p *PDP) selectTenants(s *stable, overtaken, insist bool) selection {
	to := selection{stable: s}
	if s.files.Manifest {
		return to // the MANIFEST lists the whole bundle, and anything else is refused
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

// load puts a reading in force, or refuses it and reports the refusal.
func (p *PDP) load(ctx context.Context, from selection) error {
	ctx, stop := p.overtake(ctx, from.read)
	defer stop()
	if len(from.first) > 0 {
		both := slices.Concat(from.first, from.held)
		slices.Sort(both)
		if err := p.loadHolding(ctx, from, slices.Compact(both), false); !errors.As(err, new(Problems)) {
			return err
		}
	}
	return p.loadHolding(ctx, from, from.held, true)
}

// loadHolding does the work of load, with the files of the held tenants as they are in force. Without report, a
// refusal is not reported, because the refused bundle is not what the files say.
func (p *PDP) loadHolding(ctx context.Context, from selection, held []string, report bool) error {
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
	after.later, after.onDisk = held, from.files.Digest()
	waiting := slices.Concat(held, from.moving)
	p.reloader.forget(from.read, before.read, time.Now())
	if read.Equal(before.read) {
		p.reloader.seen, p.reloader.acted = read, read
		// The files are again those in force, so the refusal no longer holds.
		if after.refused = before.refusalOf(nil, waiting, p.options.Now()); after.refused != before.refused {
			p.swap(&after)
		} else {
			p.inForce.Store(&after)
		}
		return later
	}
	if len(held) > 0 && read.Equal(p.reloader.seen) {
		p.inForce.Store(&after)
		return later // it was refused already, and only files of held tenants change
	}
	made, problems, err := p.build(ctx, files, before)
	if err != nil {
		return err
	}
	if made.Bundle == nil && !report {
		return problems
	}
	p.reloader.seen, p.reloader.acted = read, read
	kept := before.read
	if made.Bundle != nil {
		kept = readingOf(made, files, read)
	}
	// The reading is charged whatever BeforeSwap answers, because the files are kept once it is called.
	p.reloader.charge(files, read, kept, before, time.Now())
	now, isNew := p.options.Now(), !kept.Equal(before.read)
	if isNew {
		aside := read.Others(kept) // the tenants with errors
		if err := p.options.askBeforeSwap(made, slices.Concat(held, aside)); err != nil {
			made, problems = bundle.InForce{}, notYet(err)
			p.reloader.seen = source.Reading{} // nothing is wrong with the files, so they are read again
			if before.refused != nil && slices.Equal(before.refused.Problems, problems) {
				return problems // the same refusal was reported before
			}
		}
	}
	switch {
	case made.Bundle == nil:
		after.refused = &Refusal{At: now, Problems: problems}
	case isNew:
		after.InForce, after.read, after.at, after.problems = made, kept, now, problems.Only(SeverityWarning)
		fallthrough
	default:
		var wrong Problems
		if report {
			wrong = problems.Only(SeverityError)
		}
		after.refused = before.refusalOf(wrong, waiting, now)
	}
	// Nothing can fail from here on.
	p.swap(&after)
	if problems.Refuse() {
		return problems
	}
	return later
}

// readingOf returns the reading of the files of a bundle that was made from files with this reading. It is the same, and not made
// again, if nothing was set aside.
func readingOf(made bundle.InForce, files *Files, read source.Reading) source.Reading {
	if made.Files == files {
		return read
	}
	return made.Files.Reading()
}

// refusalOf returns the refusal of what is wrong in tenants' files, if anything is, together with what was wrong in those that wait
// now: they may come back unchanged. If it is the refusal before, it is the same.
func (l *loaded) refusalOf(wrong Problems, waiting []string, now time.Time) *Refusal {
	if l.refused != nil {
		for _, p := range l.refused.Problems {
			if slices.Contains(waiting, source.TenantOf(p.File)) {
				wrong = append(wrong, p)
			}
		}
		if wrong = wrong.Sorted(); slices.Equal(wrong, l.refused.Problems) {
			return l.refused
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	r := &Refusal{At: now, Problems: wrong}
	for _, p := range wrong {
		r.Tenants = append(r.Tenants, source.TenantOf(p.File))
	}
	slices.Sort(r.Tenants)
	r.Tenants = slices.Compact(r.Tenants)
	return r
}

// build makes a bundle of files, and takes over what did not change since before. It is the long part of a load. The
// problems are faults of the files. The error only says why ctx ended.
func (p *PDP) build(ctx context.Context, files *Files, before *loaded) (bundle.InForce, Problems, error) {
	if p.reloader.building != nil {
		p.reloader.building(ctx)
	}
	l := bundle.NewLoading(ctx, files, before.InForce)
	l.Apart = true
	made, problems := l.Build()
	p.reloader.lastWork = l.Did
	return made, problems, context.Cause(ctx)
}

// askBeforeSwap asks whether a bundle may come into force.
func (o Options) askBeforeSwap(made bundle.InForce, later []string) error {
	if o.BeforeSwap == nil {
		return nil
	}
	slices.Sort(later)
	return o.BeforeSwap(Incoming{Digest: made.Bundle.Digest(), Bundle: made.Bundle, Files: made.Files.Content, Later: slices.Compact(later)})
}

// notYet returns the problem of a bundle that has no mistake and cannot come into force yet.
func notYet(err error) (problems Problems) {
	problems.Add("", 0, 0, "not_yet",
		"the bundle cannot come into force yet: "+err.Error(),
		"nothing need be done to its files; it is tried again by itself",
	)
	return problems
}

// swap is the only place that puts another bundle in force. It is one store, so that a request
// sees all of an edit or none of it.
func (p *PDP) swap(to *loaded) {
	p.inForce.Store(to)
	if p.options.OnLoad != nil {
		p.options.OnLoad(p.Status())
	}
}

// Settled reads a source until two readings, a quiet period apart, are equal. A file that is being
// written may be cut behind a complete policy, and would load without the forbids that follow.
// If ctx ends first, the problems of the returned files include an error.
func Settled(ctx context.Context, source Source, quiet time.Duration) *Files {
	return settleAll(ctx, source, quiet, source.Read())
}

func settleAll(ctx context.Context, source Source, quiet time.Duration, files *Files) *Files {
	s, err := settle(ctx, source, quiet, files, 0)
	if err != nil {
		s.files.Problems.Add("", 0, 0, "unsettled",
			"the files did not lie still for "+quiet.String(),
			"let whoever writes them finish, then try again",
		)
	}
	return s.files
}

// stable is a reading. The root's files in it are equal to those of the reading before, which was
// a quiet period earlier.
type stable struct {
	files  *Files
	read   source.Reading
	moving []string // tenants whose files differ from the reading before
}

// settle does the work of Settled, beginning with a first reading. The files that it returns are
// never nil. Once the root lies still, settle waits at most so many quiet periods more for
// tenants that do not lie still. If most is 0, it waits for them without end.
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

// firstReading returns the files from which a PDP starts, and the tenants whose files do not lie still, which are left out. It waits
// for the root of a directory to lie still, and for all of it if there is a MANIFEST. Any other file system is taken to lie still.
func firstReading(source Source, quiet time.Duration) (files *Files, moving []string) {
	if source.Dir == "" {
		return source.Read(), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := settle(ctx, source, quiet, source.Read(), aWhile)
	if err == nil && !s.files.Manifest {
		return s.files.Without(s.moving), s.moving
	}
	return settleAll(ctx, source, quiet, s.files), nil
}
