package bundle

import (
	"slices"
	"strconv"
	"strings"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// Knows reports whether those who act are of types that there are.
func (c *Config) Knows(actors evaluation.Actors) bool {
	for _, ref := range actors.Chain {
		if _, ok := c.EntityType(ref.Type); !ok {
			return false
		}
	}
	if actors.Agent == nil || actors.Agent.Type == "" {
		return true
	}
	_, ok := c.EntityType(actors.Agent.Type)
	return ok
}

// Members are those of the context that the approval is bound to, or that may be.
func (c *Config) Members(context evaluation.Object) []string {
	names := []string{}
	for name := range context.Members {
		if !evaluation.Protocol(name) && !slices.Contains(c.volatile, name) {
			names = append(names, name)
		}
	}
	return names
}

// Binding is what an approval is bound to, as one text for all ways of writing the
// same request: members in a fixed order, each value in its canonical form. It always
// has types, ids and names, who acts and for whom, and who asks where; the terms say
// what else. Who decided was held to be none of those who act, so they must be the ones
// that act then; and whether the tenant alone demands it, since that says whose permits let
// them decide. Protocol members are how one and the same request is sent again, and never
// in it.
func (c *Config) Binding(r *evaluation.Request, caller, obligation string, t obligations.Terms, ofTenant bool) ([]byte, bool) {
	b := binder{ok: true}
	head := []string{"v2", r.Tenant, caller, obligation, t.Template, strconv.Itoa(t.Quorum)}
	if ofTenant { // of what the root demands it is the text of the first release, so that what was approved then counts
		head = append(head, "of tenant")
	}
	b.strings(head...)
	b.strings(t.Material...)
	b.strings(slices.Sorted(slices.Values(c.volatile))...) // people were told what it is not bound to
	b.strings(r.Subject.Type, r.Subject.ID, r.Action.Name, r.Resource.Type, r.Resource.ID)
	b.value(r.Context.Without(func(member string) bool { return !evaluation.NamesActors(member) }).Value())
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
			v, _ := r.Context.Get(member) // one that is not there is null, which no member is
			b.value(v)
		default:
			b.value(r.Context.Without(func(member string) bool { return evaluation.Protocol(member) || slices.Contains(c.volatile, member) }).Value())
		}
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

// strings writes a list of strings, as one value.
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
