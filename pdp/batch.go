package pdp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/engine"
)

// BatchCall is a batch together with its caller and the options of the call.
type BatchCall struct {
	Batch evaluation.Batch
	evaluation.Asker
	Now     time.Time
	Explain bool
	// GoOn, if it is set, is called before each item. It may let other work go first. Its error
	// ends the batch.
	GoOn func(context.Context) error
}

// BatchDecision is the answer to a batch. Item n is the decision ID.n.
type BatchDecision struct {
	ID    string
	Items []evaluation.Decision
}

// EvaluateBatch answers the items of a batch in their order, up to the item that the semantic of
// the batch makes the last. Each answer is the one that [PDP.Evaluate] would give. All answers
// come from one bundle and one reading of the clock, and go on record together.
func (p *PDP) EvaluateBatch(ctx context.Context, batch BatchCall) (BatchDecision, error) {
	call := Call{Asker: batch.Asker, Now: batch.Now, Explain: batch.Explain}
	p.setTime(&call)
	answer := BatchDecision{ID: p.options.NewID()}
	_, span := startStep(ctx, "authorize")
	records, err := p.judgeItems(ctx, call, batch, &answer)
	endStep(span, err)
	if err != nil {
		return BatchDecision{}, err
	}
	if err := p.record(ctx, records...); err != nil {
		return BatchDecision{}, err
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

// judgeItems decides the items of a batch, and returns their records.
func (p *PDP) judgeItems(ctx context.Context, call Call, all BatchCall, answer *BatchDecision) ([]Record, error) {
	batch := all.Batch
	in := inquire(p.Bundle(), &call)
	in.WantMismatch = true
	in.Keep()
	records := make([]Record, 0, len(batch.Items))
	filled, size := 0, sizeOf(batch)
	explaining := explaining{asked: call.Explain}
	for n, item := range batch.Items {
		if err := mayGoOn(ctx, all.GoOn); err != nil {
			return nil, err
		}
		call.Request, call.Explain = item.Request, explaining.asked && !explaining.full
		in.Request, in.Explain, in.Inherits = call.Request, call.Explain, item.Inherits()
		d, err := judgeItem(ctx, &in, item)
		if err != nil {
			return nil, err
		}
		if err := explaining.countOrOmit(&d); err != nil {
			return nil, err
		}
		if filled += filledSize(d); filled > maxFilled {
			return nil, overfilled()
		}
		if in.Converted > maxConverted {
			return nil, &evaluation.Error{
				TooLarge: true,
				Detail: fmt.Sprintf("what the items share comes to more than %d bytes, "+
					"with what makes it different for each of them", maxConverted),
				Try: "send fewer items, or less in what they share beside properties of their own",
			}
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

// sizeOf returns the size of a batch, even if it came in no body.
func sizeOf(batch evaluation.Batch) int {
	if batch.Size > 0 {
		return batch.Size
	}
	n := 0
	for _, item := range batch.Items {
		r := &item.Request
		n += len(r.Subject.Type) + len(r.Subject.ID) + len(r.Action.Name) + len(r.Resource.Type) + len(r.Resource.ID) +
			r.Subject.Properties.Size() + r.Action.Properties.Size() + r.Resource.Properties.Size() + r.Context.Size() +
			r.Unknown.Size()
	}
	return n
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

// judgeItem decides one item. If an item is malformed, that is the answer of the item, and not an
// error of the batch.
func judgeItem(ctx context.Context, in *engine.Inquiry, item evaluation.Item) (d evaluation.Decision, err error) {
	if in.Bundle == nil {
		return d, ErrNoBundle
	}
	malformed := item.Err
	if malformed == nil {
		_, d, err = in.Decide(ctx)
		for n := range d.Mismatch { // the explanation holds the same slice
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
func filledSize(d evaluation.Decision) int {
	n := 0
	for _, o := range d.Obligations {
		n += o.Properties.Size()
	}
	return n
}
