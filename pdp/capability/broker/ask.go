package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/obligations"
	"policy-service/pdp"
	store "policy-service/pdp/capability"
	"policy-service/pdp/visible"
)

// Answer is the answer to a request for a capability.
type Answer struct {
	ID string `json:"id"` // of the capability
	// Token is the capability. It can be had once more only by the approval that it was granted by.
	Token     string    `json:"token"`
	Tools     []string  `json:"tools"`
	Audience  string    `json:"audience"`
	ValidFrom time.Time `json:"valid_from"`
	Expires   time.Time `json:"expires"`
	ExpiresIn int       `json:"expires_in"` // in seconds
	MaxUses   int       `json:"max_uses,omitzero"`
	Verify    string    `json:"verify"`
	// Narrowed are the members of the request of which less was granted.
	Narrowed []string `json:"narrowed,omitzero"`
	// Obligations are owed for the grant, each once.
	Obligations []Owed `json:"obligations,omitzero"`
}

// Owed is an obligation in the form of an answer.
type Owed struct {
	ID         string            `json:"id"`
	Type       string            `json:"type"`
	Properties evaluation.Object `json:"properties"`
}

// Denied says why no capability was granted, if that is no error.
type Denied struct {
	// Approval is what people were asked, if only that is missing.
	Approval   *evaluation.Approval `json:"approval,omitzero"`
	Reason     evaluation.Reason    `json:"reason,omitzero"`
	ReasonUser string               `json:"reason_user,omitzero"`
	Refused    []string             `json:"refused,omitzero"` // the tools that may not be granted
}

// ErrNoIssuer says that tokens cannot be signed, because their issuer has no URL.
var ErrNoIssuer = errors.New("the service does not know its own URL, by which tokens are: set public_url")

// Request is a request for a capability.
type Request struct {
	capability.Ask
	// Renews is the capability that is to be renewed by it, nil if another one is to be granted.
	Renews *store.Capability
	// MayLackProof is set if the caller may have a capability bound to a key without a proof of the key.
	MayLackProof bool
}

// mostUnproved is the longest lifetime of a capability for a key of which there was no proof: its holder is away.
const mostUnproved = 90 * 24 * time.Hour

// unproved stands behind the digest of a request without a proof. An approval of it is none of a request with one, which
// may be granted for less time.
const unproved = " unproved"

// Ask decides whether a capability may be granted, and grants it, or renews one. Whoever asks shows the key that it is to be
// bound to by a proof. Decision is the id of the answer on record, "" if there is none, as when the same answer is given again.
// An error can be a [*capability.Refusal], an [*evaluation.Error], a [*store.LimitError], [ErrNoIssuer], or one of the PDP or
// of the store.
func (b *Broker) Ask(ctx context.Context, asker evaluation.Asker, r Request) (decision string, granted *Answer, denied *Denied, err error) {
	a := &r.Ask
	if err := r.renewable(); err != nil {
		return "", nil, nil, err
	}
	issuer, now := b.options.IssuerURL(a.Tenant), b.now()
	if issuer == "" {
		return "", nil, nil, ErrNoIssuer
	}
	if err := b.Store.Admit(a.Tenant, a.Holder); err != nil { // before anything of it is on record
		return "", nil, nil, err
	}
	if err := b.asked(&r, asker.Name, issuer, now); err != nil {
		return "", nil, nil, err
	}
	digest := a.Digest()
	if a.Proof == "" {
		digest += unproved
	}
	if again, err := b.again(ctx, &r, digest); again != nil || err != nil {
		return "", again, nil, err
	}
	w, err := b.want(a, issuer, now)
	if err != nil {
		return "", nil, nil, err
	}
	w.digest = digest
	w.hidden = func(name string) bool {
		return evaluation.SecretName(name) || b.options.PDP().Masked(ctx, "arguments", name)
	}
	call, err := w.call(asker, now)
	if err != nil {
		return "", nil, nil, err
	}
	keep := b.Store.Grant
	if w.token.ID = b.Store.NewID(); r.Renews != nil {
		w.token.ID = r.Renews.ID
		keep = func(ctx context.Context, n store.New, decision string) (*store.Reservation, error) {
			return b.Store.Renew(ctx, n.Token.ID, n, decision)
		}
	}
	decidedBy := ""
	prepare := func(ctx context.Context, d *pdp.GrantDecision) (pdp.Reservation, error) {
		w.narrow(d.Terms)
		w.end(d.Until)
		n := w.new(asker, d)
		use, err := keep(ctx, n, d.Items[0].ID)
		if err != nil {
			return nil, err
		}
		d.Capability, decidedBy = n.Token.ID, n.Bundle
		return use, nil
	}
	defer func() { // it may be granted all the same, by policies of before the last sweep
		if err != nil && decidedBy != "" && decidedBy != b.options.PDP().Bundle().Digest() {
			b.PoliciesChanged()
		}
	}()
	d, err := b.options.PDP().Grant(ctx, call, prepare)
	switch {
	case err != nil:
		return "", nil, nil, err
	case !d.Allow:
		return d.ID, nil, deniedBy(&d, a.Tools), nil
	}
	if b.options.PDP().Bundle().Digest() != d.Bundle { // a sweep may not have seen it
		if err := b.recheck(ctx, d.Capability); err != nil {
			return "", nil, nil, err
		}
	}
	c, err := b.Store.Usable(ctx, d.Capability)
	if err == nil && c.Decision != d.Items[0].ID { // it is on record, and what it granted is not stored yet
		err = store.ErrUnavailable
	}
	if err != nil {
		return "", nil, nil, err
	}
	if granted, err = b.answer(&c, w.narrowed); err == nil {
		granted.Obligations = owed(&d)
	}
	return d.ID, granted, nil, err
}

// owed are the obligations of all answers, without those that the service met itself.
func owed(d *pdp.GrantDecision) (all []Owed) {
	for n := range d.Items {
		for _, o := range d.Items[n].Obligations {
			same := func(other Owed) bool {
				return other.Type == o.Type && other.Properties.Value().Equal(o.Properties.Value())
			}
			if o.Type != obligations.CapabilityTerms && !slices.ContainsFunc(all, same) {
				all = append(all, Owed{o.ID, o.Type, o.Properties})
			}
		}
	}
	return all
}

// asked checks the proof of a request. It is taken once. After a restart it may be taken again: then it gives its sender
// what it gave before, a token for the same key, within the same limits.
func (b *Broker) asked(a *Request, caller, issuer string, now time.Time) error {
	if a.Proof == "" && a.MayLackProof {
		return nil
	}
	terms := b.options.Terms
	jti, iat, refusal := a.CheckProof(issuer, now, terms.ProofAge, terms.Skew)
	if refusal != nil {
		if refusal.Code == capability.ProofMissing {
			refusal.Hint = "Sign the request with its key, and send that as proof"
			if a.Renews == nil {
				refusal.Hint += "; only a credential that has the permission capability.admin, too, may leave it out"
			}
		}
		return refusal
	}
	first, err := b.asks.First(a.Tenant, evaluation.Ref{ID: caller}, a.Key.Thumbprint(), jti, iat.Add(terms.ProofAge+terms.Skew))
	switch {
	case errors.Is(err, store.ErrFull):
		return &capability.Refusal{Code: capability.Unavailable}
	case err == nil && !first:
		return &capability.Refusal{Code: capability.ProofReplayed}
	}
	return err
}

// renewable says why the capability that a request is to renew cannot be renewed by it.
func (r *Request) renewable() error {
	if r.Renews == nil {
		return nil
	}
	switch c := r.Renews; {
	case c.Tenant != r.Tenant:
		return store.ErrNotFound
	case c.State != store.Active:
		return &store.StateError{State: c.State}
	case c.Renewals >= store.MostRenewals:
		return store.ErrRenewals
	case !c.MayHaveUses(r.MaxUses):
		return evaluation.Malformed("more than the capability has, or no more than were used", "give as many as it has", "max_uses")
	}
	return r.SameAs(r.Renews.Token)
}

// IsFor reports whether a request is for the holder that policies know by a type and an id.
func (b *Broker) IsFor(a *capability.Ask, typ, id string) bool {
	return b.options.PDP().SameEntity(a.Holder, typ, id)
}

// again is the answer to a request that was granted before by the same approval, and whose answer may have been lost.
func (b *Broker) again(ctx context.Context, a *Request, digest string) (*Answer, error) {
	if a.ApprovalID == "" {
		return nil, nil
	}
	c, found, err := b.Store.Granted(ctx, a.Tenant, a.ApprovalID, digest)
	if err != nil || !found || c.State != store.Active || c.Holder != a.Holder || c.JKT != a.Key.Thumbprint() {
		return nil, err
	}
	if a.Renews != nil && (c.ID != a.Renews.ID || c.Renewals == 0) { // the approval granted it, and renewed nothing
		return nil, nil
	}
	if c, err = b.Store.Usable(ctx, c.ID); err != nil {
		return nil, err
	}
	return b.answer(&c, nil)
}

// answer signs the token of a capability.
func (b *Broker) answer(c *store.Capability, narrowed []string) (*Answer, error) {
	claims, err := c.Token.Claims()
	if err != nil {
		return nil, err
	}
	signed, err := b.options.Keys.Sign(claims, capability.TypeToken)
	t := &c.Token
	return &Answer{
		ID:        t.ID,
		Token:     signed,
		Tools:     t.Layers[0].Tools,
		Audience:  t.Audience,
		ValidFrom: t.NotBefore.UTC(),
		Expires:   t.Expires.UTC(),
		ExpiresIn: int(t.Expires.Sub(t.NotBefore) / time.Second),
		MaxUses:   t.MaxUses,
		Verify:    t.Verify,
		Narrowed:  narrowed,
	}, err
}

func deniedBy(d *pdp.GrantDecision, tools []string) *Denied {
	out := &Denied{Approval: d.Approval}
	for n := range d.Items {
		item := &d.Items[n]
		if item.Allow {
			continue
		}
		if len(out.Refused) == 0 {
			out.Reason, out.ReasonUser = item.Reason, item.ReasonUser
		}
		out.Refused = append(out.Refused, tools[n])
	}
	if len(out.Refused) == 0 && d.Approval == nil { // it waits, and nobody was asked
		out.Reason = evaluation.ApprovalRequired
	}
	return out
}

// wanted is a request for a capability, and the token that it would be granted.
type wanted struct {
	ask      *capability.Ask
	digest   string // of what is asked
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
	whole := map[string]any{"tools": a.Tools}
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

// sentence is what people read about the request. It begins with what has no bound, because a list may show no more than
// its beginning. No name in it can pass for words of ours.
func (w *wanted) sentence() string {
	a, b := w.ask, new(strings.Builder)
	if open := w.openEnded(); len(open) > 0 {
		fmt.Fprintf(b, "Open-ended in %s: ", listed(open))
	}
	fmt.Fprintf(b, "%s may call %s of %s ", visible.Word(a.Holder.ID), listed(bare(a)), visible.Word(a.Audience))
	if !a.ValidFrom.IsZero() {
		fmt.Fprintf(b, "from %s ", a.ValidFrom.UTC().Format(time.RFC3339))
	}
	if !a.ValidUntil.IsZero() {
		fmt.Fprintf(b, "until %s, ", a.ValidUntil.UTC().Format(time.RFC3339))
	}
	switch life := span(w.token.Expires.Sub(w.token.NotBefore)); {
	case a.ValidUntil.IsZero():
		fmt.Fprintf(b, "for %s, ", life)
	case slices.Contains(w.narrowed, "duration"):
		fmt.Fprintf(b, "for %s at most, ", life)
	}
	switch {
	case w.token.MaxUses == 1:
		b.WriteString("once, ")
	case w.token.MaxUses > 0:
		fmt.Fprintf(b, "%d times, ", w.token.MaxUses)
	default:
		b.WriteString("any number of times, ")
	}
	switch {
	case a.Arguments == nil:
		b.WriteString("with any arguments")
	case len(a.Arguments) == 0:
		b.WriteString("without arguments")
	default:
		fmt.Fprintf(b, "where %s", listed(w.conditions()))
	}
	fmt.Fprintf(b, "; held by key %s", a.Key.Thumbprint())
	if a.Proof == "" {
		b.WriteString(", of which no proof was shown")
	}
	return b.String()
}

// openEnded is what a request sets no bound to.
func (w *wanted) openEnded() (all []string) {
	a := w.ask
	if slices.Contains(a.Tools, a.Audience+everyTool) {
		all = append(all, "tools")
	}
	if w.token.MaxUses == 0 {
		all = append(all, "uses")
	}
	if a.Arguments == nil {
		all = append(all, "arguments")
	}
	for _, name := range slices.Sorted(maps.Keys(a.Arguments)) {
		switch {
		case name == "*":
			all = append(all, "other arguments")
		case a.Arguments[name].Kind() == wildcard:
			all = append(all, "argument "+visible.Word(name))
		}
	}
	return all
}

// wildcard is the kind of a constraint that admits any value.
const wildcard = "wildcard"

// everyTool stands behind a server for all of its tools.
const everyTool = ":*"

// listed is some words as a list in a sentence.
func listed(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// span is a length of time in words.
func span(d time.Duration) string {
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}} {
		if d%unit.of == 0 {
			return fmt.Sprintf("%d %s", d/unit.of, unit.name)
		}
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// bare are the names of the tools at their server.
func bare(a *capability.Ask) (names []string) {
	for _, tool := range a.Tools {
		if tool == a.Audience+everyTool {
			names = append(names, "all tools")
		} else {
			names = append(names, visible.Word(strings.TrimPrefix(tool, a.Audience+":")))
		}
	}
	return names
}

// conditions are the constraints in words. Values that masks hide are left out.
func (w *wanted) conditions() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(w.ask.Arguments)) {
		c := w.ask.Arguments[name]
		value, one := c.ScalarExact()
		switch {
		case name == "*":
			all = append(all, "other arguments are any")
		case c.Kind() == wildcard:
			all = append(all, visible.Word(name)+" is any")
		case one && !w.hidden(name):
			text, _ := value.MarshalJSON()
			all = append(all, visible.Word(name)+" = "+string(text))
		default:
			all = append(all, visible.Word(name)+" is bound ("+c.Kind()+")")
		}
	}
	return all
}

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
