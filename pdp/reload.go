package pdp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// loaded is a bundle in force and how it came to be.
type loaded struct {
	bundle   *Bundle
	read     reading // what the bundle was built from
	at       time.Time
	problems Problems // warnings of the load
	refused  *Refusal
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
	seen reading
	// pollBlind is how often a directory is read again that events may not tell of,
	// pollWatched how often one is that they do.
	pollBlind, pollWatched time.Duration
}

const (
	defaultQuiet = 200 * time.Millisecond
	// patience is how long the first reading waits for a directory to lie still.
	patience = 30 * time.Second
)

// Status says which bundle is in force.
func (p *PDP) Status() Status {
	now := p.inForce.Load()
	status := Status{LoadedAt: now.at, Refused: now.refused}
	if now.bundle != nil {
		status.Digest = now.bundle.Digest()
	}
	return status
}

// Reload reads the source until it lies still, and puts what it says in force.
// The error is of type [Problems] where that was refused; the bundle before it
// then stays in force, and [PDP.Status] says so. Where the source says what is
// in force already, nothing happens. Reloads are done one after the other.
func (p *PDP) Reload(ctx context.Context) error { return p.reload(ctx, true) }

// reload is Reload; without insist, a source that reads as it did at the last
// load, even a refused one, is left at that.
func (p *PDP) reload(ctx context.Context, insist bool) error {
	if p.source.isNothing() {
		return errors.New("there is no source to reload from")
	}
	select {
	case p.reloader.turn <- struct{}{}:
		defer func() { <-p.reloader.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	files := p.source.Read()
	if !insist && files.reading().equal(p.reloader.seen) {
		return nil
	}
	files, err := settle(ctx, p.source, p.options.Quiet, files)
	if err != nil {
		return err
	}
	p.reloader.seen = files.reading()
	return p.load(files, p.reloader.seen)
}

// load puts a reading in force, or refuses it and says so.
func (p *PDP) load(files *Files, read reading) error {
	before := p.inForce.Load()
	after := *before
	if read.equal(before.read) {
		if before.refused == nil {
			return nil
		}
		after.refused = nil // back to what is in force: there is nothing to complain of
		p.swap(&after)
		return nil
	}
	bundle, problems := build(files)
	now := p.options.Now()
	if !problems.Refuse() {
		if err := p.options.ask(bundle, files); err != nil {
			problems = notYet(err)
			p.reloader.seen = reading{} // nothing is wrong with the files: read them again
			if before.refused != nil && slices.Equal(before.refused.Problems, problems) {
				return problems // as was told before
			}
		}
	}
	if problems.Refuse() {
		after.refused = &Refusal{At: now, Problems: problems}
		p.swap(&after)
		return problems
	}
	after = loaded{bundle: bundle, read: read, at: now, problems: problems}
	// Nothing can fail from here on.
	p.swap(&after)
	return nil
}

// ask asks whether a bundle may come into force.
func (o Options) ask(bundle *Bundle, files *Files) error {
	if o.BeforeSwap == nil {
		return nil
	}
	return o.BeforeSwap(Incoming{Digest: bundle.Digest(), Files: files.content})
}

// notYet is what keeps a bundle out that has nothing wrong with it.
func notYet(err error) (problems Problems) {
	problems.add("", 0, 0, "not_yet", "the bundle cannot come into force yet: "+err.Error(), "nothing need be done to its files; it is tried again by itself")
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
	files, err := settle(ctx, source, quiet, source.Read())
	if err != nil {
		files.problems.add("", 0, 0, "unsettled", "the files did not lie still for "+quiet.String(), "let whoever writes them finish, then try again")
	}
	return files
}

// settle is Settled from a first reading on; the files are never nil.
func settle(ctx context.Context, source Source, quiet time.Duration, files *Files) (*Files, error) {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return files, fmt.Errorf("the files did not lie still: %w", ctx.Err())
		case <-timer.C:
		}
		again := source.Read()
		if again.equal(files) {
			return files, nil
		}
		files = again
		timer.Reset(quiet)
	}
}

// firstReading is what a PDP starts from: a directory is settled, any other file
// system is taken to lie still.
func firstReading(source Source, quiet time.Duration) *Files {
	if source.dir == "" {
		return source.Read()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return Settled(ctx, source, quiet)
}
