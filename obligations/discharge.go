package obligations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"policy-service/evaluation"
)

// Handler does one obligation. Only nil says that it is done: where it is done
// later (redact, when the answer goes out) nil is a promise that it will be.
// Whatever the handler cannot do, or finds malformed, it returns an error for,
// and so it does for the kinds of custom it does not know. It heeds its context,
// and treats properties as input from elsewhere.
type Handler func(context.Context, evaluation.Obligation) error

// Handlers do the obligations that a PEP can do, by type.
type Handlers map[string]Handler

// Types are the types there is a handler for, sorted: those a PEP declares.
func (h Handlers) Types() []string {
	types := slices.AppendSeq([]string{}, maps.Keys(h))
	slices.Sort(types)
	return slices.DeleteFunc(types, func(name string) bool { return name == "" || h[name] == nil })
}

// Within is h with so much time for each obligation. One that takes longer has
// failed, also where h then returns nil.
func Within(d time.Duration, h Handler) Handler {
	if h == nil {
		return nil // and not a handler of nothing, which would be declared
	}
	return func(ctx context.Context, o evaluation.Obligation) error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return h.do(ctx, o)
	}
}

// Grace is the time that obligations get together when the caller's context has ended.
const Grace = 5 * time.Second

// Discharge does the owed obligations, one after the other in the order given, and reports
// the outcome. allow is the decision; the obligations of a deny are done as well, and
// the outcome stays a deny.
//
// All of it has to succeed for a permit, and every obligation is tried, whatever became of the ones
// before it: a PEP that cannot ask for approval must still send the notification. For the same
// reason the end of ctx, which fails the obligation being done and so denies, does not stop those
// after it: they get another context, which ends after [Grace]. Otherwise a client that ends the
// request early could keep the PEP from sending notifications.
//
// An obligation without a type or an id, or with an id that another one has, is
// malformed and denies. It is tried as well, where there is a handler.
func Discharge(ctx context.Context, allow bool, owed []evaluation.Obligation, handlers Handlers) Report {
	r := Report{allow: allow, outcomes: make([]Outcome, 0, len(owed))}
	ids := map[string]int{}
	for _, o := range owed {
		ids[o.ID]++
	}
	current, over := ctx, false
	for _, o := range owed {
		if !over && ctx.Err() != nil {
			over = true
			var cancel context.CancelFunc
			current, cancel = context.WithTimeout(context.WithoutCancel(ctx), Grace)
			defer cancel()
		}
		r.outcomes = append(r.outcomes, handlers.discharge(current, o, flaw(o, ids[o.ID])))
	}
	r.ended = ctx.Err()
	return r
}

// Forgo is the report of obligations that are not tried, because the act that they were
// for is denied for another reason. It permits nothing.
func Forgo(owed []evaluation.Obligation) Report {
	r := Report{outcomes: make([]Outcome, 0, len(owed))}
	for _, o := range owed {
		r.outcomes = append(r.outcomes, Outcome{o.ID, o.Type, Failed, errForgone})
	}
	return r
}

// The faults of an obligation before anything is tried.
var (
	errNoType    = errors.New("it has no type")
	errNoID      = errors.New("it has no id")
	errSameID    = errors.New("another obligation has its id")
	errNoHandler = errors.New("there is no handler for its type")
	errBroken    = errors.New("its handler promised it, and it was not done")
	errForgone   = errors.New("it was not tried, because the act was denied for another reason")
)

// flaw describes a malformed obligation.
func flaw(o evaluation.Obligation, sameID int) error {
	switch {
	case o.Type == "":
		return errNoType
	case o.ID == "":
		return errNoID
	case sameID > 1:
		return errSameID
	}
	return nil
}

func (h Handlers) discharge(ctx context.Context, o evaluation.Obligation, flaw error) Outcome {
	handler := h[o.Type]
	if o.Type == "" || handler == nil {
		return Outcome{o.ID, o.Type, Unknown, cmp.Or(flaw, errNoHandler)}
	}
	err := handler.do(ctx, o)
	if err != nil && flaw != nil {
		err = fmt.Errorf("%w; %w", flaw, err)
	}
	if err = cmp.Or(err, flaw); err != nil {
		return Outcome{o.ID, o.Type, Failed, err}
	}
	return Outcome{o.ID, o.Type, Discharged, nil}
}

// do calls the handler. One whose context has ended has failed, whatever it
// returns: a handler that was cancelled often returns nil.
func (h Handler) do(ctx context.Context, o evaluation.Obligation) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Panic{v, debug.Stack()}
		}
	}()
	if err := h(ctx, o); err != nil {
		return err
	}
	return ctx.Err()
}

// Panic is the error of an obligation whose handler panicked.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("its handler panicked: %v", p.Value) }

// Report is the outcome of a decision and of its obligations. Only
// [Discharge] makes one that permits; the zero Report does not.
type Report struct {
	allow    bool
	ended    error // the error of the caller's context in the end
	outcomes []Outcome
}

// Outcome is that of one obligation. Err is nil where it was discharged.
type Outcome struct {
	ID, Type string
	Status   Status
	Err      error
}

// Status says whether an obligation was discharged.
type Status string

// The statuses of an obligation.
const (
	Discharged Status = "discharged"
	Failed     Status = "failed"
	// Unknown: there is no handler for its type, and nothing was tried.
	Unknown Status = "unknown"
)

// Permitted reports whether the decision was an allow and all it obliged to was
// discharged. It is made of the outcomes each time: there is no second truth.
func (r Report) Permitted() bool { return r.allow && r.ended == nil && len(r.undone()) == 0 }

// Owes reports whether an obligation with the id of o is among the obligations.
func (r Report) Owes(o evaluation.Obligation) bool {
	return slices.ContainsFunc(r.outcomes, func(one Outcome) bool { return one.ID == o.ID })
}

// Break is r after a promise was not kept: a handler returned nil for what was to be done later, and
// it was not done. An obligation that r does not have is added to it as failed: the caller has
// mistaken it for another, which then was not done.
func (r Report) Break(o evaluation.Obligation, why error) Report {
	broken := Outcome{o.ID, o.Type, Failed, errors.Join(errBroken, why)}
	if !r.Owes(o) {
		r.outcomes = append(slices.Clip(r.outcomes), broken)
		return r
	}
	r.outcomes = slices.Clone(r.outcomes)
	for n, one := range r.outcomes {
		if one.ID == o.ID && one.Status == Discharged {
			r.outcomes[n].Status, r.outcomes[n].Err = Failed, broken.Err
		}
	}
	return r
}

// Outcomes are those of the obligations, in the order they came in.
func (r Report) Outcomes() []Outcome { return slices.Clone(r.outcomes) }

// Err names the obligations that were not discharged, and why an allow does not
// permit. It is nil for a permit, and for a deny that obliged to nothing else.
func (r Report) Err() error {
	if u := r.undone(); len(u) > 0 {
		return u
	}
	if r.allow && r.ended != nil {
		return fmt.Errorf("obligations: the decision is no longer waited for: %w", r.ended)
	}
	return nil
}

func (r Report) undone() (u undischarged) {
	for _, o := range r.outcomes {
		if o.Status != Discharged {
			u = append(u, o)
		}
	}
	return u
}

// undischarged is the error of obligations that were not.
type undischarged []Outcome

func (u undischarged) Error() string {
	texts := make([]string, len(u))
	for n, o := range u {
		texts[n] = fmt.Sprintf("obligation %q of type %q %s: %v", o.ID, o.Type, o.Status, o.Err)
	}
	return strings.Join(texts, "; ")
}

func (u undischarged) Unwrap() []error {
	errs := make([]error, len(u))
	for n, o := range u {
		errs[n] = o.Err
	}
	return errs
}

// Receipts are the outcomes as a PEP reports them to the PDP, where they go on record.
// A detail says which kind of thing went wrong, and nothing that a handler said: the
// text of an error may quote whatever the handler had in its hands. An obligation that has no id, or
// one that another has, cannot be distinguished there, and is reported once or not at all.
func (r Report) Receipts() []evaluation.Receipt {
	if len(r.outcomes) == 0 {
		return nil
	}
	receipts, reported := make([]evaluation.Receipt, 0, len(r.outcomes)), map[string]bool{"": true}
	for _, o := range r.outcomes {
		receipt := evaluation.Receipt{ID: o.ID, Status: evaluation.Discharged}
		if o.Status != Discharged {
			receipt.Status, receipt.Detail = evaluation.NotDischarged, o.kind()
		}
		if !reported[o.ID] {
			reported[o.ID], receipts = true, append(receipts, receipt)
		}
	}
	return receipts
}

// kind classifies a failure.
func (o Outcome) kind() string {
	for _, ours := range []error{errNoType, errNoID, errSameID, errNoHandler, errForgone, errBroken} {
		if errors.Is(o.Err, ours) {
			return ours.Error()
		}
	}
	var p *Panic
	switch {
	case errors.As(o.Err, &p):
		return "its handler panicked"
	case errors.Is(o.Err, context.DeadlineExceeded):
		return "its time was up"
	case errors.Is(o.Err, context.Canceled):
		return "the decision was no longer waited for"
	}
	return "its handler failed"
}
