package record

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
)

// ErrNoRequest is returned for a record from which no request can be rebuilt: it has none,
// a part of the request is gone, or what was sent was no request either.
var ErrNoRequest = errors.New("the record holds no whole request")

// mostHidden is how many places are hidden in a request at the most: those of an item, and those of its batch.
const maxHidden = 128

const shapeNative = "native" // the shape of AuthZEN has no name in a record

// Request rebuilds the request of a resolved record, in the shape that it came in, and says what
// of it is hidden by masks. What a search looked for is empty, as it was in the search. The limits
// are those that bodies are read with, but for the length of the body.
//
// In a hidden place stands a value of the type that was sent: where that was a string, what is on
// record, or "" if nothing is; else 0, true, {} or []. A name that was masked stays as it is on
// record. So a mask never makes a request unreadable.
func (r *Recorded) Request(limits evaluation.Limits) (evaluation.Request, []evaluation.Hidden, error) {
	q, err := r.decodeRequest(limits)
	if err != nil {
		return evaluation.Request{}, nil, fmt.Errorf("record %d: %w", r.Sequence, err)
	}
	hidden := slices.Clone(r.Masked)
	r.setFits(&q, hidden)
	return q, hidden, nil
}

func (r *Recorded) decodeRequest(limits evaluation.Limits) (q evaluation.Request, err error) {
	if len(r.Asked) == 0 || len(r.Gone) > 0 {
		return q, ErrNoRequest
	}
	limits.Body = format.MaxLine // masking may have made the request longer than it was
	asked := r.Asked
	if len(r.Masked) > 0 {
		if asked, err = fillHidden(asked, r.Masked, limits); err != nil {
			return q, fmt.Errorf("%w: %w", ErrNoRequest, err)
		}
	}
	if r.Kind == format.KindSearch {
		var s evaluation.Search
		s, err = evaluation.DecodeSearch(r.Query, asked, r.Tenant, limits)
		q = s.Request
	} else {
		q, err = evaluation.DecodeAuthZEN(asked, r.Tenant, limits)
	}
	switch {
	case err != nil:
		return q, fmt.Errorf("%w: %w", ErrNoRequest, err)
	case r.Shape == shapeNative:
		q.Shape = evaluation.Native
	case r.Shape != "":
		return q, fmt.Errorf("%w: it has shape %q, which a later program wrote", ErrNoRequest, r.Shape)
	}
	q.Unknown, err = r.unknownPlaces()
	return q, err
}

// Cut ends a pointer of the member unknown that is not whole, because the names in it were masked.
const MaskedPointerEnd = "/…"

// unknownPlaces are the places whose values were not known.
func (r *Recorded) unknownPlaces() (*evaluation.Unknown, error) {
	if r.Unknown == nil {
		return nil, nil
	}
	masked := func(at string) bool {
		return strings.Contains(at, evaluation.MaskPrefix) || strings.HasSuffix(at, MaskedPointerEnd)
	}
	if slices.ContainsFunc(r.Unknown, masked) {
		return nil, fmt.Errorf("%w: the name of a place that was unknown is masked", ErrNoRequest)
	}
	places, err := evaluation.UnknownAt(r.Unknown...)
	if err != nil {
		err = fmt.Errorf("%w: what was unknown: %w", ErrNoRequest, err)
	}
	return places, err
}

// unhidden is a request in AuthZEN form with values of their types in the hidden places.
func fillHidden(asked jsontext.Value, masked []evaluation.Hidden, limits evaluation.Limits) (jsontext.Value, error) {
	o, err := evaluation.ParseObject(asked, limits)
	if err != nil {
		return nil, err
	}
	v, whole := o.Value(), ""
	if len(masked) > maxHidden {
		return nil, fmt.Errorf("it lists %d masked places, and no record has more than %d", len(masked), maxHidden)
	}
	for _, h := range masked {
		if strings.Count(h.At, "/") > limits.Depth {
			return nil, fmt.Errorf("a masked place lies more than %d deep", limits.Depth)
		}
		value, known := standIn(h)
		switch {
		case !known:
			return nil, fmt.Errorf("what is masked at %q has type %q, which a later program wrote", h.At, h.Type)
		case h.Part, h.Type == "string" && !h.Removed, whole != "" && isWithin(h.At, whole):
			continue
		case h.Type == "object" || h.Type == "array":
			whole = h.At // an item may have places of its batch's record below its own
		}
		made, ok := v.Put(evaluation.Tokens(h.At), value)
		if !ok {
			return nil, fmt.Errorf("what is masked at %q: the request has no such place", h.At)
		}
		v = made
	}
	return mendHidden(v.Object(), masked).MarshalJSON()
}

// standIn is some value for a hidden place. Where the place names an actor or the persons that a
// request is for, any value that is none could not be read.
func standIn(h evaluation.Hidden) (evaluation.Value, bool) {
	tokens := evaluation.Tokens(h.At)
	if len(tokens) < 2 || tokens[0] != "context" || !evaluation.NamesActors(tokens[1]) || tokens[1] == "agent" {
		return h.Some()
	}
	switch text, _ := evaluation.Text(evaluation.MaskPrefix); h.Type {
	case "string":
		return text, true
	case "object":
		return evaluation.Object{}.With("type", text).With("id", text).Value(), true
	}
	return h.Some()
}

// presentable mends what a request presents as its approval, if that is hidden: a request that
// presents none, or two, could not be read. Which round of an approved call it is, is left out if
// it is hidden: the record has it besides. So is a person that is hidden, whom no policy sees.
func mendHidden(o evaluation.Object, masked []evaluation.Hidden) evaluation.Object {
	const approvalAt, idAt, continues, person = "/context/approval", "/context/approval_id", "continues", "person"
	if slices.ContainsFunc(masked, func(h evaluation.Hidden) bool { return isWithin(h.At, "/context/"+person) }) {
		inContext, _ := o.Get("context")
		o = o.With("context", inContext.Object().Without(func(name string) bool { return name == person }).Value())
	}
	hides := func(h evaluation.Hidden) bool { return isWithin(h.At, approvalAt) || h.At == idAt }
	if !slices.ContainsFunc(masked, hides) {
		return o
	}
	inContext, _ := o.Get("context")
	context := inContext.Object()
	alone, hasAlone := context.Get("approval_id")
	approval, hasApproval := context.Get("approval")
	id, _ := approval.Object().Get("id")
	if id.Text() == "" {
		id = alone
	}
	if id.Text() == "" {
		id, _ = evaluation.Text(evaluation.MaskPrefix) // any text: what was sent is not known
	}
	if hasApproval {
		presented := approval.Object().With("id", id)
		at := approvalAt + "/" + continues
		if slices.ContainsFunc(masked, func(h evaluation.Hidden) bool { return isWithin(h.At, at) || isWithin(at, h.At) }) {
			presented = presented.Without(func(name string) bool { return name == continues })
		}
		context = context.With("approval", presented.Value())
	}
	if hasAlone {
		context = context.With("approval_id", id)
	}
	return o.With("context", context.Value())
}

// within reports whether a pointer is the other one, or below it.
func isWithin(pointer, above string) bool {
	rest, ok := strings.CutPrefix(pointer, above)
	return ok && (rest == "" || rest[0] == '/')
}

// fit says of hidden values whether they could be put to the policies of the bundle that decided: the record lists the
// places of the request that could not. If it lists nothing but names, all values fit. If that was the reason, the
// listed values misfit. Of all others it is unknown, because a list may name one place for several.
func (r *Recorded) setFits(q *evaluation.Request, hidden []evaluation.Hidden) {
	reason := evaluation.Reason(r.Reason)
	fits := r.Kind == format.KindDecision || r.Kind == format.KindPossible
	switch reason {
	case evaluation.UnknownType, evaluation.SchemaMismatch:
		fits = false
	case evaluation.UnknownEntity:
		fits = fits && len(r.Mismatch) > 0
	}
	names := []string{"/subject/type", "/subject/id", "/action/name", "/resource/type", "/resource/id"}
	for _, pointer := range r.Mismatch {
		place := q.Shape.Canonical(itemPointer(pointer))
		fits = fits && slices.Contains(names, place)
		for n, h := range hidden {
			if reason == evaluation.SchemaMismatch && (isWithin(place, h.At) || isWithin(h.At, place)) {
				hidden[n].Fit = evaluation.Misfits
			}
		}
	}
	for n := range hidden {
		if fits {
			hidden[n].Fit = evaluation.Fits
		}
	}
}

// inItem is a pointer into the body of a batch as one into the request of the item: what an item
// has itself stands below /evaluations/N, and what it inherits where a single request has it.
func itemPointer(pointer string) string {
	rest, ok := strings.CutPrefix(pointer, "/evaluations/")
	if _, after, found := strings.Cut(rest, "/"); ok && found {
		return "/" + after
	}
	return pointer
}

// hiddenIn are the hidden places of a member that an item inherits from this record of its batch.
// has says whether the member is there: masking may have removed it.
func (p *parts) inheritedHidden(member string, has bool) (all []evaluation.Hidden) {
	places := map[string]string{
		InheritsSubject: "/subject/properties", InheritsAction: "/action/properties",
		InheritsResource: "/resource/properties", InheritsContext: "/context",
	}
	at, inherited := places[member]
	if member == InheritsSupported {
		at, inherited = "/context/"+InheritsSupported, true
	}
	for _, h := range p.Masked {
		switch {
		case !inherited:
		case isWithin(h.At, at):
			all = append(all, h)
		case isWithin(at, h.At) && (!h.Part || !has): // it is hidden as a part of the context
			all = append(all, evaluation.Hidden{At: at, Type: "array", Removed: !has})
		}
	}
	return all
}

// sortHidden puts the places of an item and those of its batch into the order of a request.
func sortHidden(all []evaluation.Hidden) {
	order := []string{InheritsSubject, InheritsAction, InheritsResource, InheritsContext}
	rank := func(h evaluation.Hidden) int {
		return slices.IndexFunc(order, func(member string) bool { return isWithin(h.At, "/"+member) })
	}
	slices.SortStableFunc(all, func(a, b evaluation.Hidden) int { return cmp.Compare(rank(a), rank(b)) })
}
