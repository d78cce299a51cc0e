package evaluation

import "unicode/utf8"

// plainText bounds the texts of a request that is plain, in bytes: what is larger is long work to read, and has its turn.
const plainText = 8 << 10

// Plain reports whether r, sent as text, would be read as r again and as nothing else, within the
// limits: whoever has r need not write the text and read it then. That r is not plain is no fault:
// only reading the text tells. Shape and Tenant are not looked at, as the text has neither.
func (r *Request) Plain(limits Limits) bool {
	if r.Unknown != nil {
		return false
	}
	p := plain{limits: limits}
	for _, name := range [...]string{r.Subject.Type, r.Subject.ID, r.Action.Name, r.Resource.Type, r.Resource.ID} {
		if !p.string(name) {
			return false
		}
	}
	for _, properties := range [...]Object{r.Subject.Properties, r.Action.Properties, r.Resource.Properties} {
		if !p.value(properties.Value(), 2, 0, elsewhere) {
			return false
		}
	}
	// A text of six bytes for each that is counted, and the names of members that all requests have, are the most there can be.
	return p.context(r.Context) && p.text <= plainText && 6*p.text+1024 <= limits.Body && p.values+16 <= limits.Values
}

// plain counts the values of a request.
type plain struct {
	limits       Limits
	text, values int
}

// context looks at the members that mean something to the protocol as decoding does, and leaves to it those that name approvals.
func (p *plain) context(context Object) bool {
	for _, name := range [...]string{"action", "pdp", approvalMember, approvalIDMember} {
		if has(context, name) {
			return false
		}
	}
	var r reader
	r.checkContext(context)
	return r.err == nil && p.value(context.Value(), 1, 0, inContext)
}

func (p *plain) string(s string) bool {
	p.text += len(s) + len(`"":,`)
	return utf8.ValidString(s)
}

// value looks at a value that is so deep in the body, and in so many arrays.
func (p *plain) value(v Value, depth, arrays int, at place) bool {
	p.values++
	switch v.kind {
	case Null, Bool, Number, String:
		return p.string(v.text)
	case Array:
		at, arrays = at.element(), arrays+1
	}
	p.text += len(`[],`) // as nothing else of an empty one counts
	if depth++; depth > p.limits.Depth || arrays > p.limits.ArrayDepth || v.kind == Array && len(v.elems) > min(p.limits.Elements, p.limits.NestedElements) {
		return false
	}
	for _, m := range v.elems {
		within := at
		if v.kind == Map {
			if within = at.member(m.Name); isReserved(m.Name) || !p.string(m.Name) {
				return false
			}
		}
		if m.Value.kind == Null && at != inArguments || !p.value(m.Value, depth, arrays, within) {
			return false
		}
	}
	return true
}
