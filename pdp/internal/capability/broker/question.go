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
	store "policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/evidence"
)

// wanted is a request for a capability, and the token that it would be granted.
type wanted struct {
	ask    *capability.Ask
	digest evidence.Text // of what is asked
	key    *evidence.Key // of approvals, for what people see
	mask   *mask.Masker
	masked *mask.Masking // the constraints on arguments, and what else the asker chose
	behind []evaluation.Ref
	person string
	// countsFor is the person by whom limits count it, "" for none.
	countsFor string
	token     capability.Token
	narrowed  []string
	giver     *evaluation.Entity // the holder of the parent, if it hands that on
	grant     []byte             // the questions
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
		ID:        b.Store.NewID(),
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
		MaxDepth:  a.MaxDepth,
	}
	if a.Offline {
		w.token.Verify = capability.Offline
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
	if most := max(by.Generations-1, t.Depth); by.Generations > 0 && t.MaxDepth > most {
		t.MaxDepth = most
		w.less("max_depth")
	}
	if t.Verify == capability.Offline && (by.Online || t.MaxUses > 0) { // uses are not counted offline
		t.Verify = capability.Online
		w.less("offline")
	}
}

// handOn makes the token that of a child. A bound that is not asked for is the parent's.
func (w *wanted) handOn(p *store.Capability) error {
	a, t, of := w.ask, &w.token, p.Token
	t.Parent, t.Depth, t.MaxDepth, t.Grantor = p.ID, of.Depth+1, max(a.MaxDepth, of.Depth+1), &of.Holder
	t.Layers = append(slices.Clone(of.Layers), t.Layers...)
	if t.NotBefore.Before(of.NotBefore) && a.ValidFrom.IsZero() {
		t.NotBefore = of.NotBefore
	}
	if t.Expires.After(of.Expires) && a.Duration == 0 && a.ValidUntil.IsZero() {
		t.Expires = of.Expires
	}
	if a.MaxUses == 0 && of.MaxUses > 0 {
		t.MaxUses = of.MaxUses
		w.less("max_uses")
	}
	if t.Verify == capability.Offline && of.Verify != capability.Offline { // a list says nothing of uses
		t.Verify = capability.Online
		w.less("offline")
	}
	if err := of.Narrower(*t); err != nil {
		return err
	}
	whole := *t
	if whole.Verify == capability.Offline { // its place will be about as long
		whole.Status = of.Status
	}
	if _, err := whole.Claims(); err != nil {
		return evaluation.Malformed("too much beside what the capability that is handed on says: the token would be too large", "hand on fewer tools, or shorter constraints", "tools")
	}
	asked, err := questions(p)
	if err != nil || len(asked.Questions) == 0 {
		return fmt.Errorf("%w: the questions by which %s was granted cannot be read", store.ErrDamaged, p.ID)
	}
	w.giver = &evaluation.Entity{Type: p.Holder.Type, ID: p.Holder.ID}
	if q := asked.Questions[0]; of.Parent == "" { // else they are of another
		w.giver.Properties = q.Subject.Properties
	}
	return nil
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
		"offline":  a.Offline,
		"jkt":      a.Key.Thumbprint(),
		"depth":    w.token.Depth,
	}
	if w.token.MaxUses > 0 {
		action["max_uses"] = w.token.MaxUses
	}
	if w.token.MaxDepth > w.token.Depth {
		action["max_depth"] = w.token.MaxDepth
	}
	name, subject := pdp.GrantAction, evaluation.Entity{Type: a.Holder.Type, ID: a.Holder.ID, Properties: a.Properties}
	if w.giver != nil {
		name, subject = pdp.DelegateAction, *w.giver
		action["to"] = map[string]any{"type": a.Holder.Type, "id": a.Holder.ID}
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
	}
	slices.Sort(constrained)
	all, err := evaluation.NewObject(map[string]any{"arguments": constraints, "justification": a.Reason})
	if err != nil {
		return call, err
	}
	w.masked = w.mask.Apply(evaluation.Request{Subject: subject, Action: evaluation.Action{Name: name}, Context: all.Beside(a.Context)})
	for name, c := range a.Arguments {
		if v, ok := c.ScalarExact(); ok && !w.hidden(name) {
			exact[name] = v
		}
	}
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
	switch persons := strings.Fields(w.person); len(persons) {
	case 0:
	case 1:
		context["person"], whole["person"] = w.person, w.person
	default:
		context["person"], whole["person"] = persons, persons
	}
	if call.Asker = asker; asker.Registered {
		call.Asker.Obligations = append(slices.Clone(asker.Obligations), obligations.CapabilityTerms)
	} else {
		context[evaluation.SupportedMember] = []string{obligations.CapabilityTerms}
	}
	about := func(typ, id string, properties, context map[string]any) evaluation.Request {
		r := evaluation.Request{Shape: evaluation.Native, Tenant: a.Tenant}
		r.Subject = subject
		r.Resource = evaluation.Entity{Type: typ, ID: id}
		r.Action.Name = name
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
			most := map[string]any{"seconds": int(by.MaxDuration / time.Second), "uses": by.MaxUses}
			if by.Generations > 0 {
				most["max_depth"] = by.Generations - 1
			}
			if a.Offline {
				most["offline"] = w.token.Verify == capability.Offline
			}
			whole["at_most"] = most
		}
		digest := w.key.Plain
		if w.masked.Hides("context", "arguments") {
			digest = w.key.Hash
		}
		return about(serverType, a.Audience, map[string]any{"digest": digest(w.digest)}, whole), w.sentence()
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

// hidden reports whether masks hide anything of the constraint on an argument.
func (w *wanted) hidden(name string) bool { return w.masked.Hides("context", "arguments", name) }

// new returns the capability that a decision grants, which can be found by the digest of the request.
func (w *wanted) new(asker evaluation.Asker, d *pdp.GrantDecision, ask string) store.New {
	return store.New{
		Tenant:   w.ask.Tenant,
		Caller:   asker.Name,
		Person:   w.countsFor,
		Token:    w.token,
		Grant:    w.grant,
		Approval: d.Approved,
		Ask:      ask,
		Bundle:   d.Bundle,
	}
}
