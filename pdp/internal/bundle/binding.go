package bundle

import (
	"slices"
	"strconv"
	"strings"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// UnknownActor is the place in a request of the actor whose type does not exist, or "".
func (c *Config) UnknownActor(actors evaluation.Actors) string {
	unknown := func(ref evaluation.Ref) bool { _, ok := c.EntityType(ref.Type); return !ok }
	if agent := actors.Agent; agent != nil && agent.Type != "" && unknown(*agent) {
		return "/context/agent"
	}
	if actors.Requester != nil && unknown(*actors.Requester) {
		return "/context/requester"
	}
	if actors.Recipient != nil && unknown(*actors.Recipient) {
		return "/action/properties/to"
	}
	if slices.ContainsFunc(actors.Chain, unknown) {
		return "/context/on_behalf_of"
	}
	return ""
}

// Members are the members of the context that an approval is bound to, or may be bound to. It is always bound to
// those that name actors, also where the bundle has them as volatile.
func (c *Config) Members(context evaluation.Object) []string {
	names := []string{}
	for name := range context.Members {
		if !evaluation.Protocol(name) && (evaluation.NamesActors(name) || !slices.Contains(c.volatile, name)) {
			names = append(names, name)
		}
	}
	return names
}

// Binding is what an approval is bound to, as one text. All ways to write the same request
// have the same text: members come in a fixed order, and each value in its canonical form.
//
// The text always has the types, ids and names of the request, the actors, the caller and the
// tenant. The terms say what else is in the text. The actors are in it because the approver
// was checked to be none of them, so the same actors must act when the approval is used. The
// text says if the tenant alone demands the approval, because that decides whose permits let
// an approver decide. The digest of the resource is in it, because another digest is another
// tool under the same id. Of the grant of a capability all properties of the action and all of the context are in it. Below the arguments of the call null members are in it. Of the protocol
// members the text has the person for whom the request is asked, who may not approve it. The others
// are how one and the same request is sent again.
func (c *Config) Binding(
	r *evaluation.Request,
	caller, obligation string,
	t obligations.Terms,
	ofTenant bool,
) ([]byte, bool) {
	b := binder{ok: true}
	head := []string{"v2", r.Tenant, caller, obligation, t.Template, strconv.Itoa(t.Quorum)}
	// If the root demands the approval, the text is that of the first release, so that what was
	// approved then still counts.
	if ofTenant {
		head = append(head, "of tenant")
	}
	b.strings(head...)
	b.strings(t.Material...)
	// The approvers were told what the approval is not bound to.
	b.strings(slices.Sorted(slices.Values(c.volatile))...)
	b.strings(r.Subject.Type, r.Subject.ID, r.Action.Name, r.Resource.Type, r.Resource.ID)
	b.value(r.Context.Without(func(member string) bool { return !evaluation.BindsAlways(member) }).Value())
	for _, name := range t.Material {
		b.strings(name)
		switch member, one := strings.CutPrefix(name, "context."); {
		case name == "subject":
			b.value(r.Subject.Properties.Value())
		case name == "action":
			b.value(r.Action.Properties.Value())
		case name == "resource":
			b.value(r.Resource.Properties.Value())
		case one:
			v, _ := r.Context.Get(member) // a missing member is null, and no present member is
			b.value(v)
		default:
			b.value(r.Context.Without(func(member string) bool {
				return evaluation.Protocol(member) || slices.Contains(c.volatile, member)
			}).Value())
		}
	}
	if Grants(r.Action.Name) { // it is granted as it was shown, whatever the terms bind
		b.value(r.Action.Properties.Value())
		b.value(r.Context.Without(evaluation.Protocol).Value())
	}
	if !slices.Contains(t.Material, "resource") {
		digest, _ := r.Resource.Properties.Get("digest")
		b.strings("resource.properties.digest")
		b.value(digest)
	}
	return b.text, b.ok
}

// binder writes JSON values, each on a line of its own.
type binder struct {
	text []byte
	ok   bool
}

func (b *binder) value(v evaluation.Value) {
	text, ok := v.AppendCanonical(b.text)
	b.text, b.ok = append(text, '\n'), b.ok && ok
}

// strings writes a list of strings as one value.
func (b *binder) strings(all ...string) {
	b.text = append(b.text, '[')
	for n, s := range all {
		if n > 0 {
			b.text = append(b.text, ',')
		}
		v, err := evaluation.Text(s)
		text, _ := v.AppendCanonical(b.text)
		b.text, b.ok = text, b.ok && err == nil
	}
	b.text = append(b.text, ']', '\n')
}
