package engine

import (
	"maps"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// dropped finds what was sent and no policy can see, because the schema does not declare it. Only who has the decision
// explained is told.
func (in *Inquiry) dropped(v *bundle.View) []evaluation.Mismatch {
	b, r := in.Bundle, &in.Request
	uids, ok := in.uids()
	if b.Schema == nil || !ok {
		return nil
	}
	m := mismatches{in: in, b: b, v: v, r: *r}
	of := func(declared map[string]bundle.AttributeShape, sent evaluation.Object, what string, seen func(string) bool, at ...string) {
		for name := range sent.Members {
			if _, is := declared[name]; !is && !seen(name) {
				m.add("the schema declares no such "+what+", so no policy sees it"+m.near(name, maps.Keys(declared)), append(at, name)...)
			}
		}
	}
	for part, e := range map[bundle.Variable]struct {
		name string
		of   evaluation.Entity
	}{bundle.PrincipalVar: {"subject", r.Subject}, bundle.ResourceVar: {"resource", r.Resource}} {
		typ := uids[part].Type
		asParents := func(name string) bool { return b.Config.ParentsFrom(typ, name) }
		of(b.AttributesOf(typ), e.of.Properties, "attribute of "+string(typ), asParents, e.name, "properties")
	}
	context := maps.Clone(b.Schema.ContextOf(uids[bundle.ActionVar]))
	action := context["action"].Shape
	for _, ours := range []string{"pdp", "action"} { // which no request may send
		delete(context, ours)
	}
	of(context, r.Context, "member of the context", evaluation.Protocol, "context")
	if action != nil {
		of(action.Members, r.Action.Properties, "property of the action", func(string) bool { return false }, "action", "properties")
	}
	SortMismatch(m.found)
	return m.found
}
