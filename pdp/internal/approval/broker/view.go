package broker

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server/auth"
)

// view is the view of an approval, without a link. How many people approve is the same for whoever looks.
func (v *approver) view(ctx context.Context, a approval.Approval) evaluation.ApprovalView {
	seen := Seen{Approval: a, by: v}
	view := evaluation.ApprovalView{
		ID:            a.ID,
		Status:        string(a.Status),
		Version:       a.Version,
		Tenant:        a.Tenant,
		Template:      a.Terms.Template,
		Message:       a.Terms.Message,
		Request:       a.ForPeople(),
		Unbound:       Unbound(a),
		Decision:      a.Decision,
		Justification: a.Said,
		Asked:         a.Asked,
		Requester:     a.Caller,
		Quorum:        a.Terms.Quorum,
		Approvals:     v.Store.Approving(a, seen.counts(ctx), seen.same),
		Uses:          a.Terms.Uses,
		Used:          len(a.Used) + len(a.Reserved),
		Rounds:        a.Terms.Rounds,
		Continued:     a.Continued,
		InFlight:      a.InFlight(),
		Delegable:     a.Terms.Delegable,
		FiledAt:       a.FiledAt,
		ExpiresAt:     a.ExpiresAt,
		DecidedAt:     a.DecidedAt,
		RedactedAt:    a.RedactedAt,
		Said:          []evaluation.ApprovalVote{},
	}
	if view.Rounds > 0 {
		view.RoundsWithin = span(a.Terms.RoundsWithin)
	}
	for _, vote := range a.Votes {
		way := vote.Way()
		view.Said = append(view.Said, evaluation.ApprovalVote{
			By:         vote.By,
			Decision:   string(vote.Kind),
			Reason:     vote.Reason,
			To:         vote.To,
			Via:        way.Via,
			Gateway:    way.Gateway,
			ValidUntil: vote.ValidUntil,
			At:         vote.At,
		})
	}
	return view
}

// ViewOf returns the view of an approval for the caller, who sees it. The link is for people who decide: a program
// could have another person follow it. For which person it was asked is for the program that asked.
func (s *Seen) ViewOf(ctx context.Context, a approval.Approval) evaluation.ApprovalView {
	view := s.by.view(ctx, a)
	if s.decides || s.voted {
		view = s.by.linked(ctx, a)
	}
	if s.asked {
		view.Person = a.Person
	}
	return view
}

// linked is the view of an approval for people who may decide about it.
func (v *approver) linked(ctx context.Context, a approval.Approval) evaluation.ApprovalView {
	view := v.view(ctx, a)
	view.Link = v.Link(a.ID)
	return view
}

// Link is where people decide about an approval request; "" if there is no console.
func (b *Broker) Link(id string) string {
	console := b.options.ConsoleURL()
	if console == "" {
		return ""
	}
	return console + "/approvals/" + url.PathEscape(id)
}

// Why is the reason why people are asked. Policies, places in files and known ids are for deciders and for callers that may have
// decisions explained. A program that asks could otherwise guess which ids exist.
func (s *Seen) Why() evaluation.ApprovalWhy {
	a := s.Approval
	w := evaluation.ApprovalWhy{Decision: a.Decision, ValidFor: span(a.Terms.ValidFor), Alike: []evaluation.AlikeText{}}
	w.Obligation.Name = a.Obligation
	if !s.decides && !s.voted && !s.by.caller.May(auth.Explain) {
		return w
	}
	w.Alike = s.by.alike(a)
	b := s.by.options.PDP().Bundle()
	if b != nil && b.Digest() == a.Bundle {
		w.Obligation.At = b.ObligationPosition(a.Tenant, a.Obligation)
	}
	r := s.by.recordOf(a)
	if r == nil {
		return w
	}
	w.Policies = []evaluation.PolicyPlace{}
	determined := slices.Concat(r.Determining, r.Overruled)
	slices.Sort(determined)
	for _, id := range slices.Compact(determined) {
		w.Policies = append(w.Policies, evaluation.PolicyPlace{ID: id, At: positionIn(b, r.Bundle, a.Tenant, id)})
	}
	return w
}

// positionIn is where a policy stands, if the bundle is still the one that decided.
func positionIn(b *pdp.Bundle, digest, tenant, id string) string {
	if b == nil || b.Digest() != digest {
		return ""
	}
	return b.PolicyPosition(tenant, id)
}

// recordOf is the record of the decision that waits, nil if the log has none that can be read.
func (b *Broker) recordOf(a approval.Approval) *record.Recorded {
	rec, err := b.options.Log.ByID(a.Decision)
	if err != nil {
		return nil
	}
	r, err := record.Parse(rec.Line)
	if err != nil || r.Tenant != a.Tenant {
		return nil
	}
	return r
}

// span is a length of time as policies write it.
func span(d time.Duration) string {
	text := d.String()
	for _, none := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, none) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// Unbound names the parts of a request that people are shown and that may differ when it is done: the author of the
// policies did not bind the approval to them.
func Unbound(a approval.Approval) (names []string) {
	if !a.RedactedAt.IsZero() { // people are shown nothing of it
		return nil
	}
	bound := func(name string) bool { return slices.Contains(a.Terms.Material, name) }
	type part struct {
		Properties map[string]jsontext.Value `json:"properties"`
	}
	var shown struct {
		Subject  part                      `json:"subject"`
		Action   part                      `json:"action"`
		Resource part                      `json:"resource"`
		Context  map[string]jsontext.Value `json:"context"`
	}
	if json.Unmarshal(a.Shown, &shown) != nil {
		return []string{"request"} // a request that cannot be read is not the bound one
	}
	delete(shown.Resource.Properties, "digest") // which is bound in any case
	for name, p := range map[string]part{"action": shown.Action, "resource": shown.Resource, "subject": shown.Subject} {
		if len(p.Properties) > 0 && !bound(name) {
			names = append(names, name+".properties")
		}
	}
	for member := range shown.Context {
		whole := bound("context") && slices.Contains(a.Members, member)
		if !whole && !bound("context."+member) && !evaluation.NamesActors(member) {
			names = append(names, "context."+member)
		}
	}
	slices.Sort(names)
	return names
}
