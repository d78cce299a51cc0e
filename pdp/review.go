package pdp

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
	approvalAction = "approval.decide"
	approvalType   = "Approval"
	identities     = "identities" // the attribute with the other entities of one person
)

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

// review is whether a question is who decides about an approval, and whose demand that
// is. Only the PDP asks it, and what it says of the approval stands in no store.
type review uint8

const (
	noReview review = iota
	reviewOfRoot
	reviewOfTenant
)

// demandsAsRoot reports whether an approval that a policy asks for is the root's.
func (b *Bundle) demandsAsRoot(p *policy) bool {
	ofRoot := func(d *obligations.Definition) bool {
		known := b.views[evaluation.DefaultTenant].obligations[d.Name]
		return d.Type.Name == obligations.ApprovalRequired && known.Definition == d && known.file != ""
	}
	return !p.ofTenant() || slices.ContainsFunc(p.obliges, ofRoot)
}
