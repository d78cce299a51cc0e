package evaluation

// Inherited says which members of the request of a batch's item stand beside the items,
// and are the same in every item that inherits them. An empty part is not inherited.
type Inherited struct {
	// Subject, Action and Resource are the properties: the item has no entity, or action,
	// of its own.
	Subject, Action, Resource bool
	// Context is all of it.
	Context bool
	// SupportedObligations is that member of a context that is otherwise the item's own.
	SupportedObligations bool
}

// Any reports whether anything was inherited.
func (i Inherited) Any() bool { return i != Inherited{} }

// Members are the names of the inherited parts, in the order of a request.
func (i Inherited) Members() []string {
	var all []string
	for n, inherited := range [...]bool{i.Subject, i.Action, i.Resource, i.Context} {
		if inherited {
			all = append(all, tuple[n])
		}
	}
	if i.SupportedObligations {
		all = append(all, inheritedOfContext)
	}
	return all
}

// Own is a request without its inheritance.
func (i Inherited) Own(r Request) Request {
	for _, part := range i.parts(&r) {
		*part = Object{}
	}
	if i.SupportedObligations {
		r.Context = r.Context.Without(func(name string) bool { return name == inheritedOfContext })
	}
	return r
}

// Shared is the inheritance of a request and of others of its batch: a
// request of properties and context alone.
func (i Inherited) Shared(r, others Request) Request {
	to := i.parts(&others)
	for n, part := range i.parts(&r) {
		*to[n] = *part
	}
	if v, ok := r.Context.Get(inheritedOfContext); i.SupportedObligations && ok && !has(others.Context, inheritedOfContext) {
		others.Context = others.Context.With(inheritedOfContext, v)
	}
	return others
}

// parts are the parts that were inherited whole.
func (i Inherited) parts(r *Request) []*Object {
	all := make([]*Object, 0, len(tuple))
	for n, part := range [...]*Object{&r.Subject.Properties, &r.Action.Properties, &r.Resource.Properties, &r.Context} {
		if [...]bool{i.Subject, i.Action, i.Resource, i.Context}[n] {
			all = append(all, part)
		}
	}
	return all
}
