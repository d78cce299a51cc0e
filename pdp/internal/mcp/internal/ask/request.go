package ask

import (
	"context"
	"slices"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/rpc"
)

// A client that may not call a tool may be permitted to request it (001): then another calls it, who may. Both have actions
// of their own, and never a mapping: an operator's says nothing of requesters, and a server's is about callers.
const (
	toolsRequest = "tools/request"
	toolRequest  = "tool.request"
	toolFulfil   = "tool.fulfil"

	metaReason  = "reason"                   // why a tool is requested, in the context
	requester   = evaluation.RequesterMember // the requester of a call that another makes, in the context
	callRequest = "call tools/request"

	personMember = "person" // for which person a question is, in the context
)

// mostWords is how much a requester may say of why, in bytes.
const mostWords = 2 << 10

// Members that are unknown of a request for a tool, or of its fulfilment, before it is made. An approval is known to be
// absent: people are asked about neither.
var (
	unknownOfRequest   = mustKnow("/context/arguments", "/context/reason", "/context/pdp/capability")
	unknownOfTheCall   = mustKnow("/context/reason", "/context/pdp/capability")
	unknownOfFulfiller = mustKnow("/context/purpose", "/context/pdp/capability")
)

// OfTool reports whether a method is about one tool with arguments: params name it, and it is found, and its arguments are held
// against it, in the same way.
func OfTool(method string) bool { return method == toolsCall || method == toolsRequest }

// aboutTool is our own question about a tool with the arguments of an operation, by an action. The speaker is known already
// where who is not nil.
func (a *Asker) aboutTool(op *Operation, action string, who *speaker) (r evaluation.Request, err error) {
	arguments := op.Params.Get("arguments")
	if arguments != nil && arguments.Kind() != '{' {
		return r, wrong("/params/arguments", "not an object")
	}
	s, err := a.speaker(op, who)
	if err != nil {
		return r, err
	}
	if op.Requester != nil {
		of, err := a.speaks(op.Requester)
		if err != nil {
			return r, err
		}
		s = s.fulfils(of, action == toolFulfil)
	}
	if action == toolRequest {
		if err := s.reasons(op.Params); err != nil {
			return r, err
		}
	}
	if op.Kept {
		s.context = s.context.With(capability.HolderKeyMember, text(capability.KeptByGateway))
	}
	said, err := s.object(arguments)
	return evaluation.Request{Subject: s.subject, Action: evaluation.Action{Name: action}, Resource: op.Tool.resource, Context: said}, err
}

func (s *speaker) reasons(params rpc.Object) error {
	if s.said.Get(metaReason) != nil {
		return wrong(inMeta(metaContext)+"/"+metaReason, "params.reason says this member of the context")
	}
	reason := params.Get("reason")
	switch {
	case !isPresent(reason):
		return nil
	case reason.Kind() != '"':
		return wrong("/params/reason", "not a string")
	case len(reason) > mostWords:
		return wrong("/params/reason", "too long")
	}
	s.said = s.said.With(metaReason, reason)
	return nil
}

// fulfils is a speaker that makes a call another has requested: those behind the other are behind the call, too, and so is the
// other where the question is whether one may fulfil the other's request. So each of them is named once, and never behind
// themselves.
func (s speaker) fulfils(of speaker, withRequester bool) speaker {
	chain := slices.Clone(s.chain)
	if withRequester {
		chain = append(chain, of.subject.Ref())
	}
	behind := chainOf(append(chain, of.chain...), s.subject.Ref())
	if person, both := persons(s, of); both { // neither of them decides about the call
		s.context = s.context.With(personMember, person)
	}
	s.context = s.context.With("on_behalf_of", behind).With(requester, valueOf(of.subject.Ref()))
	return s
}

// persons are for whom a call is and for whom it was requested, if they are two. It is not ok if there is nothing to add.
func persons(by, of speaker) (both evaluation.Value, ok bool) {
	one, _ := by.context.Get(personMember)
	other, _ := of.context.Get(personMember)
	switch {
	case other.Text() == "" || other.Text() == one.Text():
		return both, false
	case one.Text() == "":
		return other, true
	}
	return evaluation.List(one, other), true
}

// chainOf is a chain as it stands in a question, with each once and without the subject. It is null if none is left.
func chainOf(chain []evaluation.Ref, subject evaluation.Ref) evaluation.Value {
	seen := []evaluation.Ref{subject}
	var all []evaluation.Value
	for _, e := range chain {
		if !slices.Contains(seen, e) {
			seen, all = append(seen, e), append(all, valueOf(e))
		}
	}
	if len(all) == 0 {
		return evaluation.Value{}
	}
	return evaluation.List(all...)
}

func valueOf(e evaluation.Ref) evaluation.Value {
	return evaluation.Object{}.With("type", text(e.Type)).With("id", text(e.ID)).Value()
}

// MayFulfil reports whether the PDP may permit that op.Principal fulfils the request of op.Requester. It is a question whose
// answer only selects the people who see the request: nothing is discharged, and nothing follows.
func (a *Asker) MayFulfil(ctx context.Context, op Operation) (bool, *Refusal) {
	return a.possible(ctx, op, toolFulfil, unknownOfFulfiller)
}

// possible asks whether something may be permitted of which not all is known.
func (a *Asker) possible(ctx context.Context, op Operation, action string, unknown *evaluation.Unknown) (bool, *Refusal) {
	w := a.refuser(&op)
	pdp, refusal := a.client(&op)
	if refusal != nil {
		return false, refusal
	}
	r, err := a.aboutTool(&op, action, nil)
	if err != nil {
		return false, w.unmapped(err)
	}
	if refusal := a.o.Admit(ctx, 1); refusal != nil {
		return false, refusal
	}
	r.Unknown = unknown
	d := pdp.Evaluate(ctx, r)
	return d.Possible(), w.failure(d.Err())
}

// FilterRequests says which tools of a list the client may request with some arguments, as [Asker.Filter] says which it may
// call.
func (a *Asker) FilterRequests(ctx context.Context, op Operation, items []Item) (keep []bool, refusal *Refusal) {
	if op.Method != toolsList || !a.Requests() {
		return make([]bool, len(items)), nil
	}
	return a.filter(ctx, op, toolsRequest, items, unknownOfCall)
}

// Block refuses an operation without a question, as if the PDP had denied it.
func (a *Asker) Block(op Operation, reason string) *Refusal {
	return a.refuser(&op).denial(reason, reason)
}
