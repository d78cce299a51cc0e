package pdp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
)

// PDP answers requests from the bundle in force. It is safe for concurrent use.
type PDP struct {
	source   Source
	options  Options
	inForce  atomic.Pointer[loaded]
	reloader reloader
}

// Options are what a [PDP] takes from outside. The zero value is ready to use.
type Options struct {
	// Now is the clock; the default is time.Now.
	Now func() time.Time
	// NewID names decisions; the default is UUIDv7.
	NewID func() string
	// Recorder puts decisions on record before they are answered; the default
	// keeps none.
	Recorder Recorder
	// Capabilities says what the capabilities are worth that requests show. By default none counts.
	Capabilities Capabilities
	// Approvals keeps approval requests and approvals. By default no approval is requested, and
	// none is given.
	Approvals Approvals
	// Quiet is how long a bundle directory must lie still before it is loaded;
	// the default is 200 ms.
	Quiet time.Duration
	// BeforeSwap is called before a bundle comes into force, even the first one. If it returns an
	// error, the bundle before stays in force, and BeforeSwap is called again a moment later,
	// until it returns nil.
	BeforeSwap func(Incoming) error
	// Masked reports if texts in obligations must not show the member of the context that names
	// lead to, for the call of a context. The members that are secrets by their names, as
	// [evaluation.SecretName] has them, are never shown. By default all others are.
	Masked func(ctx context.Context, path []string) bool
	// OnLoad is called with the outcome of every load after the first, in order, and before the
	// next load starts. So it must not itself reload.
	OnLoad func(Status)
}

// Recorder puts decisions on record, all or none. If it returns an error, the answer is not given. The records are lent:
// once it has returned, they are used for other decisions.
type Recorder interface {
	Record(context.Context, []Record) error
}

// Record is the record of one decision, or of one page of a search.
type Record struct {
	ID       string
	Time     time.Time
	Call     Call // its Request is whole, with the parts that it inherited
	Decision evaluation.Decision
	// Approved is set if the decision is what the policies said when they were asked again as
	// approved, an allow or a deny.
	Approved bool
	// Capability is what came of the capability that the request showed, nil if it showed none.
	Capability *ShownCapability
	// Item is set for an item of a batch. The records of a batch are recorded together.
	Item Item
	// Kind and Search are set for a search: what it looked for, and what it found.
	Kind   evaluation.SearchKind
	Search *SearchAnswer
	// Bundle is the digest of the policies that decided.
	Bundle string
}

// Item says which batch the request of a record is an item of.
type Item struct {
	// Batch is the id of the batch, or "" if the request is in no batch.
	Batch string
	// Size is the size of the batch: the size of its body, or of its requests if it came in no
	// body.
	Size int
	// Inherits says which parts of the request come from the batch. All items of the batch that
	// inherit a part have the same there.
	Inherits evaluation.Inherited
}

// Incoming is a bundle that is about to come into force, with its files by slash path.
// [Options.BeforeSwap] must not change them.
type Incoming struct {
	Digest string
	Bundle *Bundle
	Files  map[string][]byte
	// Later are the tenants whose own files are still those of the bundle before, because the
	// new files did not lie still, wait for their turn, or have an error.
	Later []string
}

// Call is a request together with its caller and the options of the call.
type Call struct {
	Request evaluation.Request
	evaluation.Asker
	// Now overrides the clock, to ask what the answer would have been at another time.
	Now time.Time
	// Explain asks for [evaluation.Decision.Explain], and for names that are near in [evaluation.Decision.Mismatch].
	Explain bool
	// Clauses asks for the clauses of policies in the explanation.
	Clauses bool
	// Approvals says what a person's approval can do for the call.
	Approvals ApprovalMode
	// Hidden are the places in Request that masks hide, if the request comes from a record. The decision is the one that
	// all values at these places lead to. If it may depend on one of them, the error is an [*Unknown].
	Hidden []evaluation.Hidden
	// Approved is the approval by which the call was decided, if it comes from a record. It counts
	// as an approval of exactly this call. None other is looked for, and nothing is spent. If Bound is not nil, it counts only
	// if the policies bind an approval of the call to the same; see [PDP.Binding].
	Approved string
	Bound    []byte
	// Capability is the one by which the call was decided, if it comes from a record or from a test. NoCapability is then
	// why the one that was shown did not count.
	Capability   evaluation.Capability
	NoCapability string
	// Continued is the round that the decision was of an approved call, if it comes from a record.
	Continued evaluation.Continuation

	masked func(path []string) bool // of the options
}

// The errors of [PDP.Evaluate] besides [*evaluation.Error].
var (
	ErrNoBundle      = engine.ErrNoBundle
	ErrUnknownTenant = engine.ErrUnknownTenant
	// ErrTenantUnavailable says that the tenant is there and its files do not load.
	ErrTenantUnavailable = engine.ErrTenantUnavailable
	ErrNotRecorded       = errors.New("the decision could not be recorded")
	// ErrUnsettled: the decision is on record, and may not be answered. Its use of an approval or a capability could not be
	// settled, or went to another decision.
	ErrUnsettled = errors.New("the use of an approval or a capability could not be settled")
)

// New loads the bundle of a source and returns a PDP that answers from it. If the bundle is at
// fault, the error is of type [Problems]. If all errors are in the files of tenants, there is none, these tenants are unavailable,
// and [PDP.Status] says so.
func New(source Source, options Options) (*PDP, error) {
	p := newPDP(source, loaded{}, options)
	files, moving := firstReading(source, p.options.Quiet)
	made, problems, _ := p.build(context.Background(), files, &loaded{})
	if made.Bundle == nil {
		return nil, problems
	}
	if err := options.askBeforeSwap(made, made.Bundle.Unavailable()); err != nil {
		return nil, err
	}
	read := files.Reading()
	first := &loaded{
		InForce:  made,
		read:     readingOf(made, files, read),
		onDisk:   files.Digest(),
		later:    moving,
		at:       p.options.Now(),
		problems: problems.Only(SeverityWarning),
	}
	first.refused = first.refusalOf(problems.Only(SeverityError), nil, first.at)
	p.reloader.seen, p.reloader.acted = read, read
	p.inForce.Store(first)
	return p, nil
}

// Of returns a PDP that answers from a bundle that is already loaded, and never from another.
func Of(b *Bundle, options Options) *PDP {
	return newPDP(Source{}, loaded{InForce: bundle.InForce{Bundle: b}}, options)
}

func newPDP(source Source, first loaded, options Options) *PDP {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.NewID == nil {
		options.NewID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	options.Quiet = cmp.Or(options.Quiet, defaultQuiet)
	first.at = options.Now()
	p := &PDP{source: source, options: options}
	p.reloader = reloader{
		turn:        make(chan struct{}, 1),
		allowance:   newAllowance(),
		pollBlind:   pollBlind,
		pollWatched: pollWatched,
	}
	p.inForce.Store(&first)
	return p
}

// Evaluate answers one call. It is the decision path from top to bottom:
//
//   - show: what the capability is worth that the request shows;
//   - judge: the policies of one bundle are asked, and their verdict becomes an answer;
//   - if the answer waits for a person's approval and there is one, the policies are asked
//     again as approved;
//   - reserve: a use of the approval, and one of the capability, are reserved for the answer;
//   - record: the answer is durable before it leaves;
//   - settle: the reserved uses are spent before the answer leaves, or in doubt if it is not known what was recorded.
//
// [PDP.EvaluateBatch] goes the same way with all of its items, but for capabilities, and [PDP.Search] judges and records
// without approvals.
// If ctx ends first there is no answer, and the error is that of ctx.
func (p *PDP) Evaluate(ctx context.Context, call Call) (evaluation.Decision, error) {
	p.begin(ctx, &call)
	b := p.Bundle() // pinned: one call sees one bundle
	shown, err := p.show(ctx, &call, !call.Explain)
	if err != nil {
		return evaluation.Decision{}, err
	}
	var answer reply
	if err := p.decide(ctx, b, &call, shown, &answer); err != nil {
		return evaluation.Decision{}, err
	}
	uses, err := p.reserve(ctx, shown, &answer)
	if err != nil {
		return evaluation.Decision{}, err
	}
	p.keepProof(ctx, shown, &answer.decision)
	one := lent.Get().(*[1]Record)
	defer func() {
		*one = [1]Record{}
		lent.Put(one)
	}()
	one[0].put(&call, &answer.decision)
	one[0].Approved, one[0].Capability = answer.approved, shown
	if len(uses) > 0 {
		err = p.recordUses(ctx, one[:], uses)
	} else {
		err = p.record(ctx, one[:]...)
	}
	if err != nil {
		return evaluation.Decision{}, err
	}
	return answer.decision, nil
}

// lent are lent to recorders, each with the record of one call.
var lent = sync.Pool{New: func() any { return new([1]Record) }}

// decide is [PDP.Evaluate] up to the record. The answer is empty before.
func (p *PDP) decide(ctx context.Context, b *Bundle, call *Call, shown *ShownCapability, answer *reply) error {
	room := engine.Borrow()
	defer room.Return()
	in := &room.Inquiry
	put(call, b, in)
	if err := judge(ctx, in, &room.Verdict, &answer.decision); err != nil {
		return err
	}
	answer.decision.ID = p.options.NewID()
	if shown != nil && shown.Reason != "" {
		shown.refuse(&answer.decision)
		return nil
	}
	approvals, mode := p.approvalsFor(call)
	if mode == NotAsked || approvals == nil {
		return nil
	}
	if mode != call.Approvals {
		asked := *call
		asked.Approvals = mode
		call = &asked
	}
	return consult(ctx, approvals, b, call, &room.Verdict, answer)
}

// approvalsFor returns the approvals that can change the answer to a call, and how they can. What
// was decided by an approval on record is decided again by that approval, and by no other.
func (p *PDP) approvalsFor(call *Call) (Approvals, ApprovalMode) {
	switch {
	case call.Request.Unknown != nil: // nothing is permitted, so nothing can be spent, filed or offered
		return nil, NotAsked
	case call.Approved != "":
		return approvalOnRecord{call.Approved, call.Bound}, Spend
	case len(call.Hidden) > 0:
		return nil, NotAsked
	}
	return p.options.Approvals, call.Approvals
}

// reserve reserves the uses that an answer hangs on: first that of an approval, then that of a capability.
func (p *PDP) reserve(ctx context.Context, shown *ShownCapability, answer *reply) (uses []Reservation, err error) {
	done := false
	defer func() {
		if !done { // after an error or a panic
			inDoubt(uses)
		}
	}()
	use, err := answer.reserve(ctx)
	if use != nil {
		uses = append(uses, use)
	}
	if err == nil && shown != nil {
		uses, err = p.reserveHeld(ctx, shown, answer, uses)
	}
	done = err == nil
	return uses, err
}

// inquire returns the inquiry that puts a call to a bundle.
func inquire(b *Bundle, call *Call) (in engine.Inquiry) {
	put(call, b, &in)
	return in
}

// put puts a call to a bundle, by an inquiry that is empty before.
func put(call *Call, b *Bundle, in *engine.Inquiry) {
	in.Request = call.Request // one by one: large values that are assigned together are copied twice
	in.Asker = call.Asker
	in.Bundle, in.Now, in.Explain, in.Clauses, in.Masked = b, call.Now, call.Explain, call.Clauses, call.masked
	in.Hidden, in.Capability = call.Hidden, call.Capability
}

// judge puts one request to the policies, and makes an answer of their verdict. Both are one step
// of a trace.
func judge(ctx context.Context, in *engine.Inquiry, w *engine.Verdict, d *evaluation.Decision) error {
	_, span := startStep(ctx, "authorize")
	err := in.Decide(ctx, w, d)
	if err == nil {
		err = in.NeedCapability(ctx, w, d)
	}
	if err == nil && filledSize(d) > maxFilled {
		*d, err = evaluation.Decision{}, overfilled()
	}
	describeDecision(span, d)
	endStep(span, err)
	return err
}

// begin gives a call what all of its decisions share: one reading of the clock, and what is masked.
func (p *PDP) begin(ctx context.Context, call *Call) {
	p.setTime(call)
	if masked := p.options.Masked; masked != nil {
		call.masked = func(path []string) bool { return masked(ctx, path) }
	}
}

// setTime reads the clock, once for all decisions of one call.
func (p *PDP) setTime(call *Call) {
	if call.Now.IsZero() {
		call.Now = p.options.Now()
	}
}

// put puts one decision into a record that is empty before.
func (r *Record) put(call *Call, d *evaluation.Decision) {
	r.Call = *call
	r.Decision = *d
	r.ID, r.Time, r.Bundle = d.ID, call.Now, d.Bundle
}

// record puts the records of one call on record, all or none.
func (p *PDP) record(ctx context.Context, records ...Record) error {
	ctx, span := startStep(ctx, "record")
	var err error
	if p.options.Recorder != nil {
		err = p.options.Recorder.Record(ctx, records)
	}
	endStep(span, err)
	return notRecorded(err)
}

// recordUses records an answer that uses an approval or a capability, and settles the uses that are reserved for it:
// spent if the record is durable, and in doubt after an error or a panic. It goes on even if the caller goes away. After an
// error the answer may not be given.
func (p *PDP) recordUses(ctx context.Context, records []Record, uses []Reservation) error {
	ctx = context.WithoutCancel(ctx)
	recorded := false
	defer func() {
		if !recorded {
			inDoubt(uses)
		}
	}()
	if err := p.record(ctx, records...); err != nil {
		return err
	}
	recorded = true
	return spent(ctx, uses)
}

// spent settles the uses of decisions that are on record. All of them are settled, even if one fails or panics.
func spent(ctx context.Context, uses []Reservation) (err error) {
	for _, use := range slices.Backward(uses) {
		defer func() {
			if failed := use.Spent(ctx); failed != nil {
				err = fmt.Errorf("%w: %w", ErrUnsettled, errors.Join(failed, err))
			}
		}()
	}
	return nil
}

func inDoubt(uses []Reservation) {
	for _, use := range uses {
		use.InDoubt()
	}
}

// Bundle returns the bundle in force.
func (p *PDP) Bundle() *Bundle { return p.inForce.Load().Bundle }
