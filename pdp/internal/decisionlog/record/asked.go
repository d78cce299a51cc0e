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

// ErrNoRequest is returned for a record from which no request can be rebuilt: the record has no request, part of the request
// is gone, or the caller sent no valid request.
var ErrNoRequest = errors.New("the record holds no whole request")

// maxHidden is the maximum number of hidden places in a request: those of an item and those of its batch.
const maxHidden = 128

const shapeNative = "native" // the shape of AuthZEN has no name in a record

// Request rebuilds the request of a resolved record in its original shape, and returns the places that masks hide. What a search
// looked for is empty, as it was in the search. The limits are those for bodies, except for the length of the body.
//
// A hidden place has a value of the type that was sent. A string is what is on record, or "" if nothing is; other types are 0,
// true, {} or []. A masked name stays as it is on record. So a mask never makes a request unreadable.
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
	limits.Body = format.MaxLine // masking may have made the request longer
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
		if q.Shape = evaluation.Native; q.Draft == evaluation.BundlesDraft {
			q.Draft = evaluation.July // as a body in that shape is read
		}
	case r.Shape != "":
		return q, fmt.Errorf("%w: it has shape %q, which a later program wrote", ErrNoRequest, r.Shape)
	}
	q.Unknown, err = r.unknownPlaces()
	return q, err
}

// MaskedPointerEnd ends a pointer in the member unknown that is shortened, because names in it were masked.
const MaskedPointerEnd = "/…"

// unknownPlaces returns the places whose values were unknown.
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

// fillHidden returns a request in AuthZEN form with a value of the right type in each hidden place.
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
			whole = h.At // an item may also list places of its batch below this one
		}
		made, ok := v.Put(evaluation.Tokens(h.At), value)
		if !ok {
			return nil, fmt.Errorf("what is masked at %q: the request has no such place", h.At)
		}
		v = made
	}
	return mendHidden(v.Object(), masked).MarshalJSON()
}

// standIn returns a value for a hidden place. Where the place names an actor, or the persons that a request is for, most values
// could not be read: these get a valid one.
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

// mendHidden makes a request readable whose approval is hidden: a request that presents no approval, or two, could
// not be read. It leaves out a hidden round of an approved call, which the record has elsewhere, and a hidden person, whom no
// policy sees.
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
		id, _ = evaluation.Text(evaluation.MaskPrefix) // any text will do: what was sent is unknown
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

// isWithin reports whether a pointer equals above or is below it.
func isWithin(pointer, above string) bool {
	rest, ok := strings.CutPrefix(pointer, above)
	return ok && (rest == "" || rest[0] == '/')
}

// setFits sets whether each hidden value could be passed to the policies of the bundle that decided. The record lists the places
// of the request that could not. If it lists nothing except names, all values fit. If a misfit was the reason for the answer,
// the listed values misfit. All other values stay unknown, because one listed place may stand for several.
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

// itemPointer converts a pointer into the body of a batch to one into the request of an item. Own members of an item are below
// /evaluations/N; inherited ones are where a single request has them.
func itemPointer(pointer string) string {
	rest, ok := strings.CutPrefix(pointer, "/evaluations/")
	if _, after, found := strings.Cut(rest, "/"); ok && found {
		return "/" + after
	}
	return pointer
}

// inheritedHidden returns the hidden places of a member that an item inherits from this record of its batch. has reports whether
// the member is there: masking may have removed it.
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
		case isWithin(at, h.At) && (!h.Part || !has): // it is hidden with the context
			all = append(all, evaluation.Hidden{At: at, Type: "array", Removed: !has})
		}
	}
	return all
}

// sortHidden sorts the places of an item and its batch into the order of a request.
func sortHidden(all []evaluation.Hidden) {
	order := []string{InheritsSubject, InheritsAction, InheritsResource, InheritsContext}
	rank := func(h evaluation.Hidden) int {
		return slices.IndexFunc(order, func(member string) bool { return isWithin(h.At, "/"+member) })
	}
	slices.SortStableFunc(all, func(a, b evaluation.Hidden) int { return cmp.Compare(rank(a), rank(b)) })
}
