package pdp

import (
	"context"
	"slices"
	"time"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
)

// Who may decide about an approval is a question like any other: may this principal do
// the action approval.decide on an entity of type Approval, which has the attributes
// below? Authors answer it in policies, and the default is nobody. One thing is not
// theirs to allow, unless bundle.yaml says so: that people approve what they ask for
// themselves.
const (
	approvalAction = "approval.decide"
	approvalType   = "Approval"
	identities     = "identities" // the attribute with the other entities of one person
)

// anyEntity is the type of a reference to whatever is named.
const anyEntity types.EntityType = ""

// approvalAttributes are those of an Approval where no schema declares it.
var approvalAttributes = map[string]attributeShape{
	"template":  {shape: &shape{form: shapeString}},
	"action":    {shape: &shape{form: shapeString}},
	"subject":   {shape: &shape{form: shapeEntity, entity: anyEntity}},
	"requester": {shape: &shape{form: shapeEntity, entity: anyEntity}},
	"resource":  {shape: &shape{form: shapeEntity, entity: anyEntity}},
	"chain":     {shape: &shape{form: shapeSet, element: &shape{form: shapeEntity, entity: anyEntity}}},
}

// attributesOf are the attributes that are declared of a type.
func (b *Bundle) attributesOf(typ types.EntityType) map[string]attributeShape {
	if b.schema == nil && typ == b.config.approvalType {
		return approvalAttributes
	}
	return b.schema.attributes(typ)
}

// Reviewed is an approval as far as it matters to who may decide about it. Types are
// those of requests.
type Reviewed struct {
	ID, Template      string
	Subject, Resource evaluation.Ref
	Action            string
	evaluation.Actors
	// OfTenant says that only policies and obligations of the tenant demand the approval.
	// What the root demands the root's permits decide about, and no tenant's: a tenant adds
	// to what stands above it, and never weakens it.
	OfTenant bool
	// Asker is the caller that asked. A person who authenticates as this caller counts as the
	// requester.
	Asker string
}

// requester is who acts: the agent, where there is one that is named as an entity.
func (r *Reviewed) requester() evaluation.Ref {
	if r.Agent != nil && r.Agent.Type != "" {
		return *r.Agent
	}
	return r.Subject
}

// review is whether a question is who decides about an approval, and whose demand that
// is. Only the PDP asks it, and what it says of the approval stands in no store.
type review uint8

const (
	noReview review = iota
	reviewOfRoot
	reviewOfTenant
)

// Reviewer answers which approvals one person may decide about, all from one bundle
// and one reading of the clock.
type Reviewer struct {
	inquiry inquiry
	store   *store
	person  types.EntityUID
}

// Reviewer is for a person, named as policies name them, in a tenant.
func (p *PDP) Reviewer(tenant string, person evaluation.Ref, caller string) (*Reviewer, error) {
	call := Call{
		Asker:   evaluation.Asker{Name: caller},
		Request: evaluation.Request{Tenant: tenant, Action: evaluation.Action{Name: approvalAction}},
	}
	p.stamp(&call)
	r := &Reviewer{
		inquiry: inquiry{bundle: p.Bundle(), call: call},
		person:  types.NewEntityUID(types.EntityType(person.Type), types.String(person.ID)),
	}
	if r.inquiry.bundle == nil {
		return nil, ErrNoBundle
	}
	view, err := r.inquiry.view()
	if err == nil {
		r.store = view.store
	}
	return r, err
}

// Now is the reading of the clock.
func (r *Reviewer) Now() time.Time { return r.inquiry.call.Now }

// Review is what there is to say about one person and one approval.
type Review struct {
	// May is the answer. Own is set if it is no because it is their own request.
	May, Own    bool
	Determining []string
	Bundle      string
}

// Review asks the policies. What cannot be asked is a no.
func (r *Reviewer) Review(ctx context.Context, a Reviewed) (Review, error) {
	b, caller := r.inquiry.bundle, r.inquiry.call.Asker.Name
	out := Review{Bundle: b.digest}
	if !slices.Contains(b.config.allowSelfApproval, a.Template) && (a.Asker != "" && a.Asker == caller || b.own(r.store, r.person, &a)) {
		out.Own = true
		return out, nil
	}
	ok, err := r.ask(a)
	if !ok || err != nil {
		return out, err
	}
	w, err := r.inquiry.judge(ctx)
	if err != nil {
		return out, err
	}
	d, err := w.answer(ctx, &r.inquiry)
	out.May = err == nil && d.Allow && len(d.Obligations) == 0 // what is owed nobody here could do
	out.Determining = d.Determining
	return out, err
}

// ask makes the question that the policies are asked. It fails for a person or a type that no
// request could name.
func (r *Reviewer) ask(a Reviewed) (bool, error) {
	c := &r.inquiry.bundle.config
	person, ok1 := c.wireType(r.person.Type)
	approval, ok2 := c.wireType(c.approvalType)
	if !ok1 || !ok2 {
		return false, nil
	}
	properties, err := r.inquiry.bundle.propertiesOf(&a)
	r.inquiry.review = reviewOfRoot
	if a.OfTenant {
		r.inquiry.review = reviewOfTenant
	}
	request := &r.inquiry.call.Request
	request.Subject = evaluation.Entity{Type: person, ID: string(r.person.ID)}
	request.Resource = evaluation.Entity{Type: approval, ID: a.ID, Properties: properties}
	return true, err
}

// propertiesOf are the attributes of an approval, as far as they are declared.
func (b *Bundle) propertiesOf(a *Reviewed) (evaluation.Object, error) {
	chain := make([]any, len(a.Chain))
	for n, ref := range a.Chain {
		chain[n] = reference(ref)
	}
	all := map[string]any{
		"template": a.Template, "action": a.Action, "subject": reference(a.Subject), "requester": reference(a.requester()),
		"resource": reference(a.Resource), "chain": chain,
	}
	o, err := evaluation.NewObject(all)
	if err != nil {
		return o, err
	}
	declared := b.attributesOf(b.config.approvalType)
	return o.Without(func(name string) bool { _, ok := declared[name]; return !ok }), nil
}

func reference(r evaluation.Ref) map[string]any { return map[string]any{"type": r.Type, "id": r.ID} }

// own reports whether a person is one of those who ask: by the person's own name or
// another of theirs, and by any name of the others. If an identity cannot be resolved, it is
// treated as the same person (fail safe).
func (b *Bundle) own(s *store, person types.EntityUID, a *Reviewed) bool {
	asking := people{store: s}
	for _, ref := range append([]evaluation.Ref{a.Subject}, a.Chain...) {
		if !asking.addRef(&b.config, ref) {
			return true
		}
	}
	switch {
	case a.Agent == nil:
	case a.Agent.Type == "":
		asking.addID(types.String(a.Agent.ID))
	case !asking.addRef(&b.config, *a.Agent):
		return true
	}
	return asking.overlaps(s, person)
}

// SamePerson reports whether two names are of one person.
func (r *Reviewer) SamePerson(a, b evaluation.Ref) bool {
	one := people{store: r.store}
	one.add(types.NewEntityUID(types.EntityType(a.Type), types.String(a.ID)))
	return one.overlaps(r.store, types.NewEntityUID(types.EntityType(b.Type), types.String(b.ID)))
}

// people are entities with all their identities: those that they have, those of these,
// and whoever has one of them. Two other names of one person are one person, too.
type people struct {
	store *store
	uids  []types.EntityUID
	ids   []types.String // each stands for every entity that has it
	vague bool           // somebody's identities cannot be read
	// steps are names and entities come by; where there are most, it ends beyond them. That
	// is for [entityLoader.checkPersons] alone, after which there are never too many.
	steps, most int
}

// step reports whether one more may be taken.
func (p *people) step() bool {
	p.steps++
	return p.most == 0 || p.steps <= p.most
}

func (p *people) addRef(c *config, r evaluation.Ref) bool {
	typ, ok := c.entityType(r.Type)
	p.add(types.NewEntityUID(typ, types.String(r.ID)))
	return ok
}

func (p *people) add(uid types.EntityUID) {
	if !p.step() || slices.Contains(p.uids, uid) {
		return
	}
	p.uids = append(p.uids, uid)
	if e, ok := p.store.Get(uid); ok {
		p.addIdentities(e)
	}
	for s := p.store; s != nil; s = s.root {
		for _, e := range s.naming[uid.ID] {
			if !p.step() {
				return
			}
			if uids, ids, _ := identitiesOf(e); slices.Contains(uids, uid) || slices.Contains(ids, uid.ID) {
				p.add(e.UID)
			}
		}
	}
}

// addID adds every entity with an id.
func (p *people) addID(id types.String) {
	if !p.step() || slices.Contains(p.ids, id) {
		return
	}
	p.ids = append(p.ids, id)
	for s := p.store; s != nil; s = s.root {
		for _, e := range s.identified[id] {
			if !p.step() {
				return
			}
			p.addIdentities(e)
		}
		for _, e := range s.naming[id] {
			if !p.step() {
				return
			}
			p.add(e.UID)
		}
	}
}

func (p *people) addIdentities(e types.Entity) {
	uids, ids, ok := identitiesOf(e)
	p.vague = p.vague || !ok
	for _, uid := range uids {
		p.add(uid)
	}
	for _, id := range ids {
		p.addID(id)
	}
}

// identitiesOf reads what else an entity is named. It fails where there is anything but
// references and ids.
func identitiesOf(e types.Entity) (uids []types.EntityUID, ids []types.String, ok bool) {
	value, given := e.Attributes.Get(identities)
	if !given {
		return nil, nil, true
	}
	set, ok := value.(types.Set)
	for one := range set.All() {
		switch one := one.(type) {
		case types.EntityUID:
			uids = append(uids, one)
		case types.String:
			ids = append(ids, one)
		default:
			ok = false
		}
	}
	return uids, ids, ok
}

// identityIDs are the ids of whatever an entity is named besides.
func identityIDs(e types.Entity) []types.String {
	uids, ids, _ := identitiesOf(e)
	for _, uid := range uids {
		ids = append(ids, uid.ID)
	}
	return ids
}

// overlaps reports whether a person is among them.
func (p *people) overlaps(s *store, person types.EntityUID) bool {
	other := people{store: s}
	other.add(person)
	if p.vague || other.vague {
		return true
	}
	return p.has(&other) || other.has(p)
}

func (p *people) has(other *people) bool {
	for _, uid := range other.uids {
		if slices.Contains(p.uids, uid) || slices.Contains(p.ids, uid.ID) {
			return true
		}
	}
	for _, id := range other.ids {
		if slices.Contains(p.ids, id) {
			return true
		}
	}
	return false
}
