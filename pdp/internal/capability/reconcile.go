package capability

import (
	"context"
	"errors"
	"slices"
	"time"

	"policy-service/pdp/internal/ledger"
)

// CatchUp implements [ledger.Rules]. It takes from the log later steps of an open capability, and puts that on record. It
// settles the reservations of decisions that the log has: [Options].Recorded may go by an index, from which an id can be
// taken away, and the steps are signed by the log.
func (r rules) CatchUp(ctx context.Context, c Capability, steps []Step) error {
	now := r.now()
	if c.Origin != r.options.Origin { // so the length of this log then is not known
		c.After = 0
	}
	to, behind := c.since(steps, c.Written.Last(r.options.Origin, c.Version), now, func(step *Step) bool { return r.sealed(step, &c) })
	if behind {
		m := &move{store: r.Store, now: now, from: c, to: to}
		m.step(Step{Name: StepCaughtUp})
		if _, err := r.commit(ctx, m); err != nil && !errors.Is(err, ErrUnrecorded) { // until it is on record it counts for nothing
			return err
		}
		c = m.to
	}
	c, err := r.nameOrigin(ctx, c)
	if err != nil {
		return err
	}
	var outcomes []ledger.Outcome
	for _, reserved := range c.Reserved {
		if slices.ContainsFunc(steps, func(step Step) bool { return step.Name == "" && step.Decision == reserved.Decision }) {
			outcomes = append(outcomes, ledger.Outcome{Decision: c.reservation(reserved), Used: true})
		}
	}
	return r.ledger.SettleAll(ctx, c, outcomes)
}

// nameOrigin notes that the record of the grant is in the log here, if the capability was written before there were others.
func (r rules) nameOrigin(ctx context.Context, c Capability) (Capability, error) {
	if r.options.Origin == "" || c.Granted == "" || c.GrantedIn != "" || !c.open() {
		return c, nil
	}
	_, found, err := r.options.Attest(ctx, c.Granted)
	if err != nil || !found {
		return c, err
	}
	m := r.move(c)
	m.to.Version, m.to.GrantedIn = c.Version, r.options.Origin
	if _, err = r.make(ctx, m); err != nil {
		return c, err
	}
	return m.to, r.ledger.Prove(ctx, m.to)
}

// since is a capability after steps of which the file may not know: it knows those up to a version. A step that gives something
// counts only if its seal is good, and if it is later than all that is known: what another log has may have taken that away since.
func (c Capability) since(steps []Step, known int, now time.Time, good func(*Step) bool) (to Capability, behind bool) {
	to = c.following()
	version, settled := c.Version, map[string]bool{c.Decision: true}
	for _, d := range c.Recent {
		settled[d] = true
	}
	for _, step := range steps { // what the file knows, or what was no use
		if step.Name != "" && (step.Name != StepUsed || step.Capability.Version <= known) {
			settled[step.Decision] = true
		}
	}
	for _, step := range steps {
		d := step.Decision
		decided := step.Name == "" && d != "" && !settled[d] && !to.reserves(d) // and the file knows nothing of it
		switch {
		case step.Name == StepGone: // it may have taken it back: who still wants it asks again
			if step.Capability.After >= c.After && to.open() {
				to.end(Expired, now)
				behind = true
			}
		case decided && step.Grants && to.open():
			to.end(Renewed, now)
			behind = true
		case c.MaxUses > 0 && (decided && !step.Grants || step.Name == StepUsed && !settled[d]):
			to.release(d)
			to.use(d)
			settled[d], behind = true, true
		}
		if step.Name == "" || step.Name == StepGone || step.Capability.Version <= known || to.State.Final() {
			continue
		}
		behind, version = true, max(version, step.Capability.Version)
		to.take(&step, func(step *Step) bool { return step.Capability.Version > c.Version && good(step) })
	}
	if to.open() && to.MaxUses > 0 && to.Used >= to.MaxUses {
		to.end(UsedUp, now)
	}
	to.Version = version + 1
	return to, behind
}

// take applies a step to a capability. A grant that the file does not know is settled as all that is reserved, and so is a
// renewal of which it has the token. Any other renewal ends it: which token is in force is not known.
func (c *Capability) take(step *Step, good func(*Step) bool) {
	switch step.Name {
	case StepSuspended:
		c.State = Suspended
	case StepResumed:
		if c.State == Suspended && good(step) {
			c.State = Active
		}
	case StepRenewed:
		if !c.reserves(step.Decision) {
			c.end(Renewed, step.At)
		}
	case StepRevoked, StepReturned, StepExpired, StepUsedUp:
		c.end(State(step.Name), step.At)
	}
}
