package engine

import (
	"maps"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// dropped finds values that were sent and that no policy can see, because the schema does not declare them. An
// explanation alone names them.
func (in *Inquiry) dropped(v *bundle.View) (found mismatches) {
	b, r, d := in.Bundle, &in.Request, describer{in, v}
	uids, ok := in.uids()
	if b.Schema == nil || !ok {
		return nil
	}
	of := func(declared map[string]bundle.AttributeShape, sent evaluation.Object, kind string, seen func(string) bool, at ...string) {
		for name := range sent.Members {
			if _, is := declared[name]; !is && !seen(name) {
				detail := "the schema declares no such " + kind + ", so no policy sees it" + d.near(name, maps.Keys(declared))
				found.note(d.at(detail, append(at, name)...))
			}
		}
	}
	entity := func(part bundle.Variable, e *evaluation.Entity, name string) {
		typ := uids[part].Type
		asParents := func(name string) bool { return b.Config.ParentsFrom(typ, name) }
		of(b.AttributesOf(typ), e.Properties, "attribute of "+string(typ), asParents, name, "properties")
	}
	entity(bundle.PrincipalVar, &r.Subject, "subject")
	entity(bundle.ResourceVar, &r.Resource, "resource")
	context := b.Schema.ContextOf(uids[bundle.ActionVar]) // no request may send pdp and action, which it has too
	of(context, r.Context, "member of the context", evaluation.Protocol, "context")
	if action := context["action"].Shape; action != nil {
		of(action.Members, r.Action.Properties, "property of the action", func(string) bool { return false }, "action", "properties")
	}
	SortMismatch(found)
	return found
}
