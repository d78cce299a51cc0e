package broker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/obligations"
	"policy-service/pdp"
	store "policy-service/pdp/capability"
)

// wanted is a request for a capability, and the token that it would be granted.
type wanted struct {
	ask      *capability.Ask
	digest   string // of what is asked
	behind   []evaluation.Ref
	person   string
	token    capability.Token
	narrowed []string
	hidden   func(argument string) bool // masks hide its value
	grant    []byte                     // the questions
}

// want makes the token of a request. It counts from now on, or from later, and no longer than tokens may.
func (b *Broker) want(a *capability.Ask, issuer string, now time.Time) (*wanted, error) {
	w, terms := &wanted{ask: a}, b.options.Terms
	from := now.Truncate(time.Second)
	if a.ValidFrom.After(from) {
		from = a.ValidFrom
	}
	until := a.ValidUntil
	if until.IsZero() {
		duration := a.Duration
		if duration == 0 {
			duration = terms.DefaultLifetime
		}
		until = from.Add(duration)
	}
	most := terms.MaxLifetime
	if a.Proof == "" {
		most = mostUnproved
	}
	if latest := now.Truncate(time.Second).Add(most); until.After(latest) {
		w.less("duration")
		until = latest
	}
	if !from.Before(until) || !now.Before(until) {
		return nil, evaluation.Malformed("past, or not after the time from which it is to count, or that is further off than a capability may last", "", "valid_until")
	}
	w.token = capability.Token{
		Issuer:    issuer,
		Audience:  a.Audience,
		Holder:    a.Holder,
		Key:       a.Key,
		IssuedAt:  now.Truncate(time.Second),
		NotBefore: from,
		Expires:   until,
		Layers:    []capability.Layer{{Tools: a.Tools, Arguments: a.Arguments}},
		MaxUses:   a.MaxUses,
		Verify:    capability.Online,
		Session:   a.Channel.Hash(),
	}
	return w, nil
}

// narrow bounds the token by terms of the policies.
func (w *wanted) narrow(by obligations.GrantTerms) {
	t := &w.token
	if most := t.NotBefore.Add(by.MaxDuration); by.MaxDuration > 0 && t.Expires.After(most) {
		t.Expires = most
		w.less("duration")
	}
	if by.MaxUses > 0 && (t.MaxUses == 0 || t.MaxUses > by.MaxUses) {
		t.MaxUses = by.MaxUses
		w.less("max_uses")
	}
}

// end ends the token no later than an access rule does that grants it. One that would begin later never counts.
func (w *wanted) end(until time.Time) {
	if until = until.Truncate(time.Second); !until.IsZero() && w.token.Expires.After(until) {
		w.token.Expires = until
		w.less("duration")
	}
}

// less notes that less was granted of a member of the request.
func (w *wanted) less(member string) {
	if !slices.Contains(w.narrowed, member) {
		w.narrowed = append(w.narrowed, member)
	}
}

// call is the questions of a request: one for each tool, and one for people, about all of them.
func (w *wanted) call(asker evaluation.Asker, now time.Time) (call pdp.GrantCall, err error) {
	a := w.ask
	action := map[string]any{
		"audience": a.Audience,
		"seconds":  int(w.token.Expires.Sub(w.token.NotBefore) / time.Second),
		"offline":  false,
		"jkt":      a.Key.Thumbprint(),
		"depth":    0,
	}
	if a.MaxUses > 0 {
		action["max_uses"] = a.MaxUses
	}
	if !a.ValidFrom.IsZero() {
		action["valid_from"] = a.ValidFrom.UTC().Format(time.RFC3339)
	}
	if !a.ValidUntil.IsZero() {
		action["valid_until"] = a.ValidUntil.UTC().Format(time.RFC3339)
	}
	if a.Channel != (capability.Channel{}) {
		action["channel"] = obligations.ChannelSession
	}
	constrained, exact, constraints := []string{}, map[string]any{}, map[string]any{}
	for name, c := range a.Arguments {
		constrained = append(constrained, name)
		constraints[name] = c.Value()
		if v, ok := c.ScalarExact(); ok && !w.hidden(name) {
			exact[name] = v
		}
	}
	slices.Sort(constrained)
	action["constrained"], action["exact"] = constrained, exact
	context := map[string]any{}
	if a.Reason != "" {
		context["justification"] = a.Reason
	}
	whole := map[string]any{"tools": a.Tools}
	for name, v := range a.Context.Members {
		context[name], whole[name] = v, v
	}
	if len(w.behind) > 0 {
		chain := make([]any, len(w.behind))
		for n, of := range w.behind {
			chain[n] = map[string]any{"type": of.Type, "id": of.ID}
		}
		context["on_behalf_of"], whole["on_behalf_of"] = chain, chain
	}
	if w.person != "" {
		context["person"], whole["person"] = w.person, w.person
	}
	if call.Asker = asker; asker.Registered {
		call.Asker.Obligations = append(slices.Clone(asker.Obligations), obligations.CapabilityTerms)
	} else {
		context["supported_obligations"] = []string{obligations.CapabilityTerms}
	}
	about := func(typ, id string, properties, context map[string]any) evaluation.Request {
		r := evaluation.Request{Shape: evaluation.Native, Tenant: a.Tenant}
		r.Subject = evaluation.Entity{Type: a.Holder.Type, ID: a.Holder.ID, Properties: a.Properties}
		r.Resource = evaluation.Entity{Type: typ, ID: id}
		r.Action.Name = pdp.GrantAction
		for _, part := range []struct {
			to   *evaluation.Object
			from map[string]any
		}{{&r.Action.Properties, action}, {&r.Resource.Properties, properties}, {&r.Context, context}} {
			made, failed := evaluation.NewObject(part.from)
			*part.to, err = made, errors.Join(err, failed)
		}
		return r
	}
	for _, tool := range a.Tools {
		typ, id := toolType, tool
		if server, all := strings.CutSuffix(tool, everyTool); all {
			typ, id = serverType, server
		}
		call.Questions = append(call.Questions, about(typ, id, nil, context))
	}
	if a.Arguments != nil {
		whole["arguments"] = constraints
	}
	if a.Reason != "" {
		whole["justification"] = a.Reason
	}
	if a.ApprovalID != "" {
		whole["approval_id"] = a.ApprovalID
	}
	if !a.ValidUntil.IsZero() { // what people see says until when, and not for how long from the moment of the question
		delete(action, "seconds")
	}
	call.People = func(by obligations.GrantTerms) (evaluation.Request, string) {
		w.narrow(by)
		if by != (obligations.GrantTerms{}) { // what people see says no more than is granted
			whole["at_most"] = map[string]any{"seconds": int(by.MaxDuration / time.Second), "uses": by.MaxUses}
		}
		return about(serverType, a.Audience, map[string]any{"digest": w.digest}, whole), w.sentence()
	}
	call.Now, call.Approvals = now, pdp.SpendOrFile
	if err == nil {
		w.grant, err = asGranted(&call)
	}
	if len(w.grant) > mostAsked {
		err = &evaluation.Error{
			TooLarge: true,
			Detail:   fmt.Sprintf("the questions that it makes, one for each tool, have more than %d bytes", mostAsked),
			Try:      "ask for fewer tools at once, or send fewer properties of the holder",
		}
	}
	return call, err
}

// mostAsked bounds the questions of one request, which all go on record, and are kept.
const mostAsked = 60 << 10

// serverType is the wire type of a server, whose tools are all asked for.
const serverType = "server"

// new is the capability that a decision grants.
func (w *wanted) new(asker evaluation.Asker, d *pdp.GrantDecision) store.New {
	return store.New{
		Tenant:   w.ask.Tenant,
		Caller:   asker.Name,
		Token:    w.token,
		Grant:    w.grant,
		Approval: d.Approved,
		Ask:      w.digest,
		Bundle:   d.Bundle,
	}
}
