package engine

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// Reviewed is what determines which persons may decide about an approval. Types are named as
// requests name them.
type Reviewed struct {
	ID, Template      string
	Subject, Resource evaluation.Ref
	Action            string
	evaluation.Actors
	// OfTenant says that only policies and obligations of the tenant demand the approval. If the
	// root demands it, only permits of the root say who may decide, and no permit of a tenant:
	// a tenant adds to the rules of the root, and never weakens them.
	OfTenant bool
	// Asker is the caller that asked. A person who authenticates as this caller counts as the
	// requester.
	Asker string
	// AskerPrincipal is whom this caller was authenticated as, the zero value if that was nobody.
	AskerPrincipal evaluation.Ref
	// Person is for whom the caller asked, as [evaluation.Request.Person] names persons; "" if the
	// request named none.
	Person string
	// SameClient says that the terms let people vote through the client that asks.
	SameClient bool
}

// Approver is a person who would decide about approvals, by a credential.
type Approver struct {
	// Entity is the person as policies name entities.
	Entity evaluation.Ref
	// Caller is the credential.
	Caller string
	// Persons are what context.person may be of the holder of the credential: by each issuer that knows the
	// entity, and by that of the credential itself if it is a token.
	Persons []string
	// Way is how the vote comes, or would.
	Way evaluation.Way
}

// Reviewer answers which approvals one person may decide about. All its answers come from one
// bundle and one reading of the clock.
type Reviewer struct {
	inquiry  Inquiry
	store    *bundle.Store
	approver Approver
	entity   types.EntityUID
}

// ParseEntity reads the name of an entity as policies write it, User::"mia".
func ParseEntity(text string) (evaluation.Ref, error) {
	var uid types.EntityUID
	err := uid.UnmarshalCedar([]byte(text))
	return evaluation.Ref{Type: string(uid.Type), ID: string(uid.ID)}, err
}

// NewReviewer returns a Reviewer for a person. The inquiry holds the tenant and the time.
func NewReviewer(in Inquiry, who Approver) (*Reviewer, error) {
	if in.Bundle == nil {
		return nil, ErrNoBundle
	}
	in.Asker, in.NoMismatch = evaluation.Asker{Name: who.Caller}, true
	in.Request.Action.Name, in.Request.Context = bundle.ApprovalAction, who.Way.Context()
	in.Keep()
	r := &Reviewer{
		inquiry:  in,
		approver: who,
		entity:   types.NewEntityUID(types.EntityType(who.Entity.Type), types.String(who.Entity.ID)),
	}
	view, err := r.inquiry.view()
	if err == nil {
		r.store = view.Store
	}
	return r, err
}

// Now returns the reading of the clock.
func (r *Reviewer) Now() time.Time { return r.inquiry.Now }

// Review is the answer about one person and one approval.
type Review struct {
	// May is set if the person may decide by this way. Own is set if the person may not, because the
	// request is the person's own, or that of the client which brings the vote.
	May, Own bool
	// Unsaid is set if no policy permits or forbids it. Then the person may vote in the place of another one.
	Unsaid      bool
	Determining []string
	Bundle      string
}

// Review asks the policies whether the person may decide about an approval. If the question
// cannot be put to the policies, the person may not.
func (r *Reviewer) Review(ctx context.Context, a Reviewed) (Review, error) {
	b := r.inquiry.Bundle
	out := Review{Bundle: b.Digest()}
	if r.asks(&a) && !r.mayItself(&a) || r.throughAsker(&a) {
		out.Own = true
		return out, nil
	}
	ok, err := r.makeQuestion(a)
	if !ok || err != nil {
		return out, err
	}
	var w Verdict
	var d evaluation.Decision
	err = r.inquiry.Decide(ctx, &w, &d)
	out.May = err == nil && d.Allow && len(d.Obligations) == 0 // nobody here could discharge an obligation
	out.Unsaid = err == nil && !d.Allow && len(d.Determining) == 0 && d.Reason == ""
	out.Determining = d.Determining
	return out, err
}

// Candidates lists the entities of the person's type whom the policies may let decide about an approval, in order, but no
// more than most. More says that there are others. Of each, [Reviewer.Review] of a reviewer of its own knows.
func (r *Reviewer) Candidates(ctx context.Context, a Reviewed, most int) (ids []string, more bool, err error) {
	if ok, err := r.makeQuestion(a); !ok || err != nil {
		return nil, false, err
	}
	all, err := r.inquiry.Candidates(ctx, evaluation.SubjectSearch)
	if err != nil {
		return nil, false, err
	}
	for len(ids) < most {
		id, ok := all.Next()
		if !ok {
			return ids, false, nil
		}
		ids = append(ids, id)
	}
	return ids, all.Len() > 0, nil
}

// asks reports whether the person is one of those who ask, by the credential or by any name. Two
// credentials of one person may name different entities, which the issuer's name for the person
// shows: the person of the question, and that of the token that asked it.
func (r *Reviewer) asks(a *Reviewed) bool {
	persons := a.Person + " " + evaluation.PersonOfCaller(a.Asker)
	return a.Asker != "" && a.Asker == r.approver.Caller ||
		slices.ContainsFunc(r.approver.Persons, func(one string) bool { return evaluation.SaysPerson(persons, one) }) ||
		ownRequest(r.inquiry.Bundle, r.store, r.entity, a)
}

// mayItself reports whether the policies are asked although the person takes part in what waits. Of
// what somebody else has requested only who does it confirms it: those behind the two stand in one
// chain, and no policy can tell them apart.
func (r *Reviewer) mayItself(a *Reviewed) bool {
	c := &r.inquiry.Bundle.Config
	if !slices.Contains(c.AllowSelfApproval, a.Template) {
		return false
	}
	if a.Requester == nil {
		return true
	}
	typ, ok := c.EntityType(a.Subject.Type)
	itself := ok && r.entity == types.NewEntityUID(typ, types.String(a.Subject.ID))
	// Whoever is called as the subject here may be the requester to the issuer: the first person is the subject's.
	first, _, _ := strings.Cut(a.Person, " ")
	isRequester := func(one string) bool { return one != first && evaluation.SaysPerson(a.Person, one) }
	return itself && !slices.ContainsFunc(r.approver.Persons, isRequester)
}

// throughAsker reports whether the client that answers the form is one of those who ask: it could say yes in the name of
// its person. If the gateway does not say which client it is, it may be any, so it has no vote on what clients ask.
func (r *Reviewer) throughAsker(a *Reviewed) bool {
	c, way := &r.inquiry.Bundle.Config, &r.approver.Way
	switch {
	case way.Via != evaluation.ViaForm, way.Client == evaluation.NoClient, a.SameClient, slices.Contains(c.AllowSelfApproval, a.Template):
		return false
	case way.Client != evaluation.Ref{}:
		typ, ok := c.EntityType(way.Client.Type)
		return !ok || ownRequest(r.inquiry.Bundle, r.store, types.NewEntityUID(typ, types.String(way.Client.ID)), a)
	}
	return !r.isPerson(&a.Subject) || !r.isPerson(a.Agent) || !r.isPerson(a.Requester) || !r.isPerson(a.Recipient)
}

// isPerson reports whether an entity has the type of the approver; nil is nothing else.
func (r *Reviewer) isPerson(e *evaluation.Ref) bool {
	if e == nil {
		return true
	}
	typ, ok := r.inquiry.Bundle.Config.EntityType(e.Type)
	return ok && typ == r.entity.Type
}

// makeQuestion makes the question for the policies. It reports false for a person or a type that no
// request could name.
func (r *Reviewer) makeQuestion(a Reviewed) (bool, error) {
	c := &r.inquiry.Bundle.Config
	person, ok1 := c.WireType(r.entity.Type)
	approval, ok2 := c.WireType(c.ApprovalType)
	if !ok1 || !ok2 {
		return false, nil
	}
	properties, err := propertiesOf(r.inquiry.Bundle, &a)
	r.inquiry.review = bundle.ReviewOfRoot
	if a.OfTenant {
		r.inquiry.review = bundle.ReviewOfTenant
	}
	request := &r.inquiry.Request
	request.Subject = evaluation.Entity{Type: person, ID: string(r.entity.ID)}
	request.Resource = evaluation.Entity{Type: approval, ID: a.ID, Properties: properties}
	return true, err
}

// propertiesOf returns the attributes of an approval that the bundle declares.
func propertiesOf(b *bundle.Bundle, a *Reviewed) (evaluation.Object, error) {
	requester := a.Subject // the entity that acts: the agent, if there is one that is named as an entity
	if a.Agent != nil && a.Agent.Type != "" {
		requester = *a.Agent
	}
	chain := make([]any, len(a.Chain))
	for n, ref := range a.Chain {
		chain[n] = reference(ref)
	}
	all := map[string]any{
		"template":  a.Template,
		"action":    a.Action,
		"subject":   reference(a.Subject),
		"requester": reference(requester),
		"resource":  reference(a.Resource),
		"chain":     chain,
	}
	o, err := evaluation.NewObject(all)
	if err != nil {
		return o, err
	}
	declared := b.AttributesOf(b.Config.ApprovalType)
	return o.Without(func(name string) bool { _, ok := declared[name]; return !ok }), nil
}

func reference(r evaluation.Ref) map[string]any { return map[string]any{"type": r.Type, "id": r.ID} }

// ownRequest reports whether a person is one of the requesters, or has sent the request, or gets what is handed on. It
// compares all names of the person with all names of these. If an identity cannot be resolved, it is treated as the same
// person (fail safe).
func ownRequest(b *bundle.Bundle, s *bundle.Store, person types.EntityUID, a *Reviewed) bool {
	asking := bundle.People{Store: s}
	for _, ref := range append([]evaluation.Ref{a.Subject}, a.Chain...) {
		if !asking.AddRef(&b.Config, ref) {
			return true
		}
	}
	for _, ref := range []*evaluation.Ref{a.Requester, a.Recipient} {
		if ref != nil && !asking.AddRef(&b.Config, *ref) {
			return true
		}
	}
	if p := a.AskerPrincipal; p != (evaluation.Ref{}) {
		asking.Add(types.NewEntityUID(types.EntityType(p.Type), types.String(p.ID)))
	}
	switch {
	case a.Agent == nil:
	case a.Agent.Type == "":
		asking.AddID(types.String(a.Agent.ID))
	case !asking.AddRef(&b.Config, *a.Agent):
		return true
	}
	return asking.Overlaps(s, person)
}

// SamePerson reports whether two names are names of one person.
func (r *Reviewer) SamePerson(a, b evaluation.Ref) bool {
	one := bundle.People{Store: r.store}
	one.Add(types.NewEntityUID(types.EntityType(a.Type), types.String(a.ID)))
	return one.Overlaps(r.store, types.NewEntityUID(types.EntityType(b.Type), types.String(b.ID)))
}
