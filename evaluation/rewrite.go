package evaluation

import "slices"

// Rewrite returns o with each member as f makes it, under the name f gives it,
// and without those f drops. Of two that come to have one name the first stays. A member
// that is null stays null, if f keeps it.
func (o Object) Rewrite(f func(Member) (Member, bool)) Object {
	members := make([]Member, 0, len(o.members))
	for _, m := range o.members {
		if made, keep := f(m); keep && (made.Value.kind != Null || m.Value.kind == Null) {
			members = append(members, made)
		}
	}
	slices.SortStableFunc(members, byName)
	return Object{slices.CompactFunc(members, func(a, b Member) bool { return a.Name == b.Name })}
}

// RewriteElements returns an Array with each element as f makes it; what f drops
// becomes null, so that the others keep their places. Other values stay as they are.
func (v Value) RewriteElements(f func(int, Value) (Value, bool)) Value {
	if v.kind != Array {
		return v
	}
	elems := make([]Member, len(v.elems))
	for n, e := range v.elems {
		if made, keep := f(n, e.Value); keep {
			elems[n].Value = made
		}
	}
	return Value{kind: Array, elems: elems}
}
