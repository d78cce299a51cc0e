package pdp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/engine"
)

// BatchCall is a batch together with who asks and how.
type BatchCall struct {
	Batch evaluation.Batch
	evaluation.Asker
	Now     time.Time
	Explain bool
	// GoOn, if it is set, is called before each item, and its error ends the batch. It may
	// let other work go first.
	GoOn func(context.Context) error
}

// BatchDecision is the answer to a batch. Item n is the decision ID.n.
type BatchDecision struct {
	ID    string
	Items []evaluation.Decision
}

// EvaluateBatch answers the items of a batch in their order, all from one bundle
// and one reading of the clock, each as [PDP.Evaluate] would, and up to the one
// that its semantic makes the last. They go on record together.
func (p *PDP) EvaluateBatch(ctx context.Context, batch BatchCall) (BatchDecision, error) {
	call := Call{Asker: batch.Asker, Now: batch.Now, Explain: batch.Explain}
	p.stamp(&call)
	answer := BatchDecision{ID: p.options.NewID()}
	_, span := step(ctx, "authorize")
	records, err := p.items(ctx, call, batch, &answer)
	ended(span, err)
	if err != nil {
		return BatchDecision{}, err
	}
	if err := p.record(ctx, records...); err != nil {
		return BatchDecision{}, err
	}
	return answer, nil
}

// goesOn is called between two questions of one call.
func goesOn(ctx context.Context, goOn func(context.Context) error) error {
	if goOn == nil {
		return ctx.Err()
	}
	return goOn(ctx)
}

// items decides the items of a batch, and returns what goes on record.
func (p *PDP) items(ctx context.Context, call Call, all BatchCall, answer *BatchDecision) ([]Record, error) {
	batch := all.Batch
	in := inquire(p.Bundle(), &call)
	in.Tells = true
	records := make([]Record, 0, len(batch.Items))
	filled, size := 0, sizeOf(batch)
	explaining := explaining{asked: call.Explain}
	for n, item := range batch.Items {
		if err := goesOn(ctx, all.GoOn); err != nil {
			return nil, err
		}
		call.Request, call.Explain = item.Request, explaining.more()
		in.Request, in.Explain, in.Inherits = call.Request, call.Explain, item.Inherits()
		d, err := judgeItem(ctx, &in, item)
		if err != nil {
			return nil, err
		}
		if err := explaining.take(&d); err != nil {
			return nil, err
		}
		if filled += filledSize(d); filled > maxFilled {
			return nil, overfilled()
		}
		if in.Converted > maxConverted {
			return nil, overconverted()
		}
		d.ID = fmt.Sprintf("%s.%d", answer.ID, n)
		answer.Items = append(answer.Items, d)
		one := record(call, d)
		one.Item = Item{Batch: answer.ID, Size: size, Inherits: in.Inherits}
		records = append(records, one)
		if batch.Semantic.Decides(d.Allow) {
			break
		}
	}
	return records, nil
}

// sizeOf is the size of a batch, whether it came in a body or not.
func sizeOf(batch evaluation.Batch) int {
	if batch.Size > 0 {
		return batch.Size
	}
	n := 0
	for _, item := range batch.Items {
		r := &item.Request
		n += len(r.Subject.Type) + len(r.Subject.ID) + len(r.Action.Name) + len(r.Resource.Type) + len(r.Resource.ID) +
			r.Subject.Properties.Size() + r.Action.Properties.Size() + r.Resource.Properties.Size() + r.Context.Size()
	}
	return n
}

// maxExplained bounds the explanations of one batch, in bytes of the answer.
const maxExplained = 1 << 20

// explaining is what was explained of a batch so far. The first explanation that there is
// no room for ends it: after that none is even made.
type explaining struct {
	asked, full bool
	size        int
}

func (e *explaining) more() bool { return e.asked && !e.full }

// take counts the explanation of a decision, or leaves it out.
func (e *explaining) take(d *evaluation.Decision) error {
	switch {
	case !e.asked || d.Malformed != nil: // which says what is wrong with it
		return nil
	case !e.full:
		text, err := d.Explain.MarshalJSON()
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

// judgeItem decides one item. What is wrong with an item is its own answer, and no error of
// the batch.
func judgeItem(ctx context.Context, in *engine.Inquiry, item evaluation.Item) (d evaluation.Decision, err error) {
	if in.Bundle == nil {
		return d, ErrNoBundle
	}
	malformed := item.Err
	if malformed == nil {
		var w engine.Verdict
		if w, err = in.Judge(ctx); err == nil {
			d, err = w.Answer(ctx, in)
		}
		for n := range d.Mismatch { // which are those of the explanation, too
			d.Mismatch[n].Pointer = item.Pointer(d.Mismatch[n].Pointer)
		}
		engine.SortMismatch(d.Mismatch)
		if !errors.As(err, &malformed) {
			return d, err
		}
		malformed = item.InBody(malformed)
	}
	return evaluation.Decision{Bundle: in.Bundle.Digest(), Malformed: malformed}, nil
}

// maxFilled bounds the obligations of one answer: a megabyte of context that a
// thousand items inherit, and a template copies, would be a gigabyte.
const maxFilled = 16 << 20

// maxConverted bounds what of one batch is converted, in bytes of JSON: about a second. What
// items share is converted once, but where what they have of their own makes it another
// thing each time, such as properties of the action, which stand in the context.
const maxConverted = 32 << 20

func overconverted() error {
	return &evaluation.Error{TooLarge: true, Detail: fmt.Sprintf("what the items share comes to more than %d bytes, with what makes it different for each of them", maxConverted), Try: "send fewer items, or less in what they share beside properties of their own"}
}

func overfilled() error {
	return &evaluation.Error{TooLarge: true, Detail: fmt.Sprintf("the obligations of the answer come to more than %d bytes", maxFilled), Try: "send fewer items, or less in the context they share"}
}

func filledSize(d evaluation.Decision) int {
	n := 0
	for _, o := range d.Obligations {
		n += o.Properties.Size()
	}
	return n
}
