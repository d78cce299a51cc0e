package pdp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/internal/engine"
)

// BatchCall is a batch together with its caller and the options of the call.
type BatchCall struct {
	Batch evaluation.Batch
	evaluation.Asker
	Now     time.Time
	Explain bool
	// Approvals says what a person's approval can do for each item. A batch files no approval
	// requests, so [SpendOrFile] is as [Spend].
	Approvals ApprovalMode
	// GoOn, if it is set, is called before each item. It may let other work go first. Its error
	// ends the batch.
	GoOn func(context.Context) error
	// Waits, if it is set, is called before the batch keeps approvals from others, or waits for those
	// who do. From then on GoOn is called only if the batch keeps none. Whoever has taken turns with
	// others until then must wait for no turn any more.
	Waits func()
}

// BatchDecision is the answer to a batch. Item n is the decision ID.n.
type BatchDecision struct {
	ID    string
	Items []evaluation.Decision
}

// EvaluateBatch answers the items of a batch in their order, up to the item that the semantic of
// the batch makes the last. Each answer is the one that [PDP.Evaluate] would give, but that a batch takes no
// capability. All answers come from one bundle and one reading of the clock, and go on record together.
// Approvals that the answers hang on are used by all of them, or by none.
func (p *PDP) EvaluateBatch(ctx context.Context, batch BatchCall) (BatchDecision, error) {
	j := p.judging(ctx, batch)
	defer j.inDoubt()
	_, span := startStep(ctx, "authorize")
	err := j.decide(ctx)
	endStep(span, err)
	if err != nil {
		return BatchDecision{}, err
	}
	if len(j.uses) > 0 {
		ctx = context.WithoutCancel(ctx) // the caller may go away: a use is either on record or not taken
	}
	if err := p.record(ctx, j.records()...); err != nil {
		return BatchDecision{}, err
	}
	if err := j.spend(ctx); err != nil {
		return BatchDecision{}, err
	}
	answer := BatchDecision{ID: j.id, Items: make([]evaluation.Decision, len(j.items))}
	for n := range j.items {
		answer.Items[n] = j.items[n].decision
	}
	return answer, nil
}

// mayGoOn is called between two questions of one call. Its error ends the call: it is that of goOn,
// or of ctx if there is no goOn.
func mayGoOn(ctx context.Context, goOn func(context.Context) error) error {
	if goOn == nil {
		return ctx.Err()
	}
	return goOn(ctx)
}

// judging is a batch on the way to its answer.
type judging struct {
	all       BatchCall
	id        string
	call      Call // with the request of the item in question
	in        engine.Inquiry
	approvals *batchApprovals
	explaining
	filled int
	items  []judgedItem
	uses   []batchUse // reserved, and not settled
}

// judgedItem is an item with its answer.
type judgedItem struct {
	reply
	call     Call
	inherits evaluation.Inherited
}

func (p *PDP) judging(ctx context.Context, batch BatchCall) *judging {
	j := &judging{
		all:        batch,
		id:         p.options.NewID(),
		call:       Call{Asker: batch.Asker, Now: batch.Now, Explain: batch.Explain, Approvals: batch.Approvals},
		approvals:  &batchApprovals{Approvals: p.options.Approvals},
		explaining: explaining{asked: batch.Explain},
	}
	if p.options.Approvals == nil {
		j.call.Approvals = NotAsked
	} else if batch.Approvals == SpendOrFile {
		j.call.Approvals = Spend
	}
	p.begin(ctx, &j.call)
	j.in = inquire(p.Bundle(), &j.call)
	j.in.Keep()
	return j
}

// decide answers the items, and reserves the uses of approvals that the answers hang on. A use that
// cannot be reserved may leave an answer that does not decide the batch: then it goes on.
func (j *judging) decide(ctx context.Context) error {
	for {
		if err := j.judge(ctx); err != nil {
			return err
		}
		if err := j.reserve(ctx); err != nil {
			return err
		}
		if j.done() {
			return nil
		}
	}
}

// done reports whether every item that is to be answered is.
func (j *judging) done() bool {
	n := len(j.items)
	return n == len(j.all.Batch.Items) || n > 0 && j.decidedBy(&j.items[n-1].decision)
}

// decidedBy reports whether an answer is the last one of the batch.
func (j *judging) decidedBy(d *evaluation.Decision) bool {
	return j.all.Batch.Semantic.Decides(d.Allow, d.Possible)
}

// judge answers the items up to the one that decides the batch. What approvals they hang on is not
// reserved yet.
func (j *judging) judge(ctx context.Context) error {
	for !j.done() {
		if err := mayGoOn(ctx, j.all.GoOn); err != nil {
			return err
		}
		n := len(j.items)
		item := j.all.Batch.Items[n]
		in, call := &j.in, j.call
		call.Request, call.Explain = item.Request, j.asked && !j.full
		in.Request, in.Explain, in.Inherits = call.Request, call.Explain, item.Inherits()
		answer, err := j.judgeItem(ctx, &call, &item, fmt.Sprintf("%s.%d", j.id, n))
		if err == nil {
			err = j.countOrOmit(&answer.decision)
		}
		if err != nil {
			return err
		}
		if j.filled += filledSize(&answer.decision); j.filled > maxFilled {
			return overfilled()
		}
		if in.Converted+in.Renewed > maxConverted {
			return &evaluation.Error{
				TooLarge: true,
				Detail: fmt.Sprintf("what the items share comes to more than %d bytes, "+
					"with what makes it different for each of them", maxConverted),
				Try: "send fewer items, or less in what they share beside properties of their own",
			}
		}
		j.items = append(j.items, judgedItem{answer, call, in.Inherits})
	}
	return nil
}

// records are the records of the items.
func (j *judging) records() []Record {
	records, size := make([]Record, len(j.items)), sizeOf(j.all.Batch)
	for n := range j.items {
		item := &j.items[n]
		records[n].put(&item.call, &item.decision)
		records[n].Approved = item.approved
		if item.decision.Malformed == nil {
			records[n].Capability = shownInBatch(&item.call.Request)
		}
		records[n].Item = Item{Batch: j.id, Size: size, Inherits: item.inherits}
	}
	return records
}

// sizeOf returns the size of a batch, even if it came in no body.
func sizeOf(batch evaluation.Batch) int {
	if batch.Size > 0 {
		return batch.Size
	}
	n := 0
	for _, item := range batch.Items {
		n += sizeOfRequest(&item.Request)
	}
	return n
}

func sizeOfRequest(r *evaluation.Request) int {
	return len(r.Subject.Type) + len(r.Subject.ID) + len(r.Action.Name) + len(r.Resource.Type) + len(r.Resource.ID) +
		r.Subject.Properties.Size() + r.Action.Properties.Size() + r.Resource.Properties.Size() + r.Context.Size() +
		r.Unknown.Size()
}

// maxExplained bounds the explanations of one batch, in bytes of the answer.
const maxExplained = 1 << 20

// explaining counts the explanations of a batch so far. The first explanation that there is no
// room for is left out. After it, no further explanation is even made.
type explaining struct {
	asked, full bool
	size        int
}

// countOrOmit counts the explanation of a decision, or leaves it out.
func (e *explaining) countOrOmit(d *evaluation.Decision) error {
	if !e.asked || d.Malformed != nil { // a malformed item has an error in place of an explanation
		return nil
	}
	if !e.full {
		text, err := json.Marshal(d.Explain)
		if err != nil {
			return err
		}
		e.size += len(text)
		e.full = e.size > maxExplained
	}
	if e.full {
		d.Explain = &evaluation.Explanation{Omitted: true}
	}
	return nil
}

// judgeItem decides one item. If an item is malformed, that is the answer of the item, and not an
// error of the batch.
func (j *judging) judgeItem(ctx context.Context, call *Call, item *evaluation.Item, id string) (reply, error) {
	if j.in.Bundle == nil {
		return reply{}, ErrNoBundle
	}
	malformed := item.Err
	if malformed == nil {
		var w engine.Verdict
		var answer reply
		err := j.in.Decide(ctx, &w, &answer.decision)
		if err == nil {
			err = j.in.NeedCapability(ctx, &w, &answer.decision)
		}
		if err == nil {
			answer.decision.ID = id
			inBody(item, &answer.decision)
			if shown := shownInBatch(&call.Request); shown != nil {
				shown.refuse(&answer.decision)
				return answer, nil
			}
			err = j.consult(ctx, call, item, &w, &answer)
			return answer, err
		}
		if !errors.As(err, &malformed) {
			return reply{}, err
		}
		malformed = item.InBody(malformed)
	}
	return reply{decision: evaluation.Decision{ID: id, Bundle: j.in.Bundle.Digest(), Malformed: malformed}}, nil
}

// inBody makes the pointers of a decision about an item those into the body of the batch.
func inBody(item *evaluation.Item, d *evaluation.Decision) {
	move := func(all []evaluation.Mismatch) {
		for n := range all {
			all[n].Pointer = item.Pointer(all[n].Pointer)
		}
		engine.SortMismatch(all)
	}
	move(d.Mismatch) // the explanation holds the same slice
	if d.Explain != nil {
		move(d.Explain.Dropped)
	}
	if d.Refused != nil {
		d.Refused.Pointer = item.Pointer(d.Refused.Pointer)
	}
}

// maxFilled bounds the obligations of one answer, in bytes. If a thousand items inherit a
// megabyte of context, and a template copies it, the answer would be a gigabyte.
const maxFilled = 16 << 20

// maxConverted bounds the JSON that is converted for one batch, in bytes; it takes about a second.
// The parts that items share are converted once, except if each item's own parts make the
// result different each time. Properties of the action do so, because they are in the context.
const maxConverted = 32 << 20

// overfilled refuses a batch whose obligations become too large when values of the requests are filled into them.
func overfilled() error {
	return &evaluation.Error{
		TooLarge: true,
		Detail:   fmt.Sprintf("the obligations of the answer come to more than %d bytes", maxFilled),
		Try:      "send fewer items, or less in the context they share",
	}
}

// filledSize returns the size of the obligations of a decision.
func filledSize(d *evaluation.Decision) int {
	n := 0
	for _, o := range d.Obligations {
		n += o.Properties.Size()
	}
	return n
}
