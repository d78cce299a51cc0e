package bundle

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// Who may decide about an approval is a question like any other: may this principal do
// the action approval.decide on an entity of type Approval, which has the attributes
// below? Authors answer it in policies, and the default is nobody. One thing is not
// theirs to allow, unless bundle.yaml says so: that people approve what they ask for
// themselves.
const (
	ApprovalAction = "approval.decide"
	approvalType   = "Approval"
	identities     = "identities" // the attribute with the other entities of one person
)

// ApprovalAttributes are those of an Approval where no schema declares it.
var ApprovalAttributes = map[string]AttributeShape{
	"template":  {Shape: &Shape{Form: shapeString}},
	"action":    {Shape: &Shape{Form: shapeString}},
	"subject":   {Shape: &Shape{Form: ShapeEntity, Entity: AnyEntity}},
	"requester": {Shape: &Shape{Form: ShapeEntity, Entity: AnyEntity}},
	"resource":  {Shape: &Shape{Form: ShapeEntity, Entity: AnyEntity}},
	"chain":     {Shape: &Shape{Form: ShapeSet, Element: &Shape{Form: ShapeEntity, Entity: AnyEntity}}},
}

// AttributesOf are the attributes that are declared of a type.
func (b *Bundle) AttributesOf(typ types.EntityType) map[string]AttributeShape {
	if b.Schema == nil && typ == b.Config.ApprovalType {
		return ApprovalAttributes
	}
	return b.Schema.Attributes(typ)
}

// Review is whether a question is who decides about an approval, and whose demand that
// is. Only the PDP asks it, and what it says of the approval stands in no store.
type Review uint8

const (
	NoReview Review = iota
	ReviewOfRoot
	ReviewOfTenant
)

// DemandsAsRoot reports whether an approval that a policy asks for is the root's.
func (b *Bundle) DemandsAsRoot(p *Policy) bool {
	ofRoot := func(d *obligations.Definition) bool {
		known := b.Views[evaluation.DefaultTenant].Obligations[d.Name]
		return d.Type.Name == obligations.ApprovalRequired && known.Definition == d && known.File != ""
	}
	return !p.OfTenant() || slices.ContainsFunc(p.Obliges, ofRoot)
}
