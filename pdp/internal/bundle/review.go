package bundle

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// The PDP answers who may decide about an approval as it answers any other request: may this
// principal do the action approval.decide on an entity of type Approval, which has the
// attributes below? Authors answer that in policies, and without such a policy no principal
// may. Authors cannot allow people to approve what they ask for themselves, unless
// bundle.yaml says so.
const (
	ApprovalAction = "approval.decide"
	approvalType   = "Approval"
	identities     = "identities" // the attribute with the other entities of one person
)

// ApprovalAttributes are the attributes of an Approval if no schema declares that type.
var ApprovalAttributes = map[string]AttributeShape{
	"template":  {Shape: &Shape{Form: ShapeString}},
	"action":    {Shape: &Shape{Form: ShapeString}},
	"subject":   {Shape: &Shape{Form: ShapeEntity, Entity: AnyEntity}},
	"requester": {Shape: &Shape{Form: ShapeEntity, Entity: AnyEntity}},
	"resource":  {Shape: &Shape{Form: ShapeEntity, Entity: AnyEntity}},
	"chain":     {Shape: &Shape{Form: ShapeSet, Element: &Shape{Form: ShapeEntity, Entity: AnyEntity}}},
}

// reviews reports if an action is to decide about an approval.
func (c *Config) reviews(action types.EntityUID) bool {
	return action == types.NewEntityUID(c.ActionType, ApprovalAction)
}

// SuppliesVia reports if the PDP says by which way the vote comes that a request asks about. A
// request that says it itself asks what would be if a vote came so: it is no vote.
func SuppliesVia(r *evaluation.Request) bool {
	_, sent := r.Context.Get(evaluation.ViaMember)
	return r.Action.Name == ApprovalAction && !sent
}

// OfVote reports if the path is a member of the context that tells a policy about approval.decide
// how a vote came. No request says that of a vote.
func (c *Config) OfVote(p *Policy, path AttributePath) bool {
	if path.Root != "context" || wayMembers[types.String(path.Names[0])].Type == nil {
		return false
	}
	return slices.ContainsFunc(p.Tests(), func(t ScopeTest) bool {
		return t.Of == ActionVar && t.Eq && c.reviews(t.Uids[0])
	})
}

// AttributesOf are the declared attributes of a type.
func (b *Bundle) AttributesOf(typ types.EntityType) map[string]AttributeShape {
	if b.Schema == nil && typ == b.Config.ApprovalType {
		return ApprovalAttributes
	}
	return b.Schema.Attributes(typ)
}

// Review says if a request asks who may decide about an approval, and which owner demands the
// approval. Only the PDP makes such a request. The Approval that it is about is in no store.
type Review uint8

// The kinds of review.
const (
	NoReview Review = iota
	ReviewOfRoot
	ReviewOfTenant
)

// DemandsAsRoot reports if an approval that a policy demands is demanded by the root.
func (b *Bundle) DemandsAsRoot(p *Policy) bool {
	ofRoot := func(d *obligations.Definition) bool {
		known := b.Views[evaluation.DefaultTenant].Obligations[d.Name]
		return d.Type.Name == obligations.ApprovalRequired && known.Definition == d && known.File != ""
	}
	return !p.OfTenant() || slices.ContainsFunc(p.Obliges, ofRoot)
}
