package evaluation

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Batch is the body of an Access Evaluations request.
type Batch struct {
	// Single is set where the body has no evaluations: then it is one request,
	// and is answered as one.
	Single   bool
	Items    []Item
	Semantic Semantic
	// Size is that of the body in bytes; 0 is a batch that came in none.
	Size int
}

// Item is one request of a batch, or its error.
type Item struct {
	Request Request
	Err     *Error

	at       string // its place in the body
	sent     Object // its own members
	inherits Inherited
}

// Inherits says which parts of the item's request are the batch's.
func (i Item) Inherits() Inherited { return i.inherits }

// InBody is an error of the item's request with the pointer into the body of the
// batch: a part that the item does not have itself stands beside the items.
func (i Item) InBody(err *Error) *Error {
	moved := *err
	moved.Pointer = i.Pointer(err.Pointer)
	return &moved
}

// Pointer is a pointer into the item's request as one into the body of the batch.
func (i Item) Pointer(canonical string) string {
	member, rest, _ := strings.Cut(strings.TrimPrefix(canonical, "/"), "/")
	own, ok := i.sent.Get(member)
	name, _, _ := strings.Cut(rest, "/")
	if inherited := member == "context" && name == inheritedOfContext && i.Request.Draft != October || member != "context" && rest != "" && name != "properties"; inherited {
		ok = ok && has(own.Object(), name)
	}
	if !ok {
		return canonical
	}
	return short(i.at + canonical)
}

// Semantic says how far a batch is decided.
type Semantic string

// The semantics of a batch.
const (
	ExecuteAll          Semantic = "execute_all"
	DenyOnFirstDeny     Semantic = "deny_on_first_deny"
	PermitOnFirstPermit Semantic = "permit_on_first_permit"
)

// Decides reports whether an answer is the last one of a batch. A possible item never is.
func (s Semantic) Decides(allow bool, possible Possibility) bool {
	return possible == Decided && (s == DenyOnFirstDeny && !allow || s == PermitOnFirstPermit && allow)
}

// DecodeBatch reads the body of an AuthZEN Access Evaluations request. An error
// is one of the body as a whole; the error of an item stands in the item.
func DecodeBatch(body []byte, tenant string, limits Limits) (Batch, error) {
	o, reserved, err := parseBody(body, limits, itemsMember, inBody)
	if err != nil {
		return Batch{}, err
	}
	return batch(o, reserved, tenant, len(body))
}

// batch makes the batch of a body of a size, in which a reserved name may stand.
func batch(o Object, reserved bool, tenant string, size int) (Batch, error) {
	var r reader
	semantic := r.semantic(o)
	items, _ := r.member(o, []string{itemsMember}, false, Array, "an array")
	if r.err != nil {
		return Batch{}, r.err
	}
	if items.Len() == 0 {
		if err := reservedIn(reserved, o.Value(), ""); err != nil {
			return Batch{}, err
		}
		q, err := authzen(o, tenant)
		return Batch{Single: true, Items: []Item{{Request: q}}, Semantic: semantic, Size: size}, err
	}
	d := defaults{
		tenant:   cmp.Or(tenant, DefaultTenant),
		resource: []string{"type", "id"},
		reserved: reserved,
		objects:  map[string]Object{},
		illegal:  map[string]*Error{},
	}
	for _, name := range tuple {
		d.objects[name] = r.optional(o, name)
	}
	d.options = r.unknown(r.optional(o, "options"), "options")
	d.draft = draftOf(AuthZEN, d.objects["context"])
	for _, v := range items.Elements {
		own, _ := v.Object().Get("context")
		d.draft = max(d.draft, draftOf(AuthZEN, own.Object()))
	}
	if r.err != nil {
		return Batch{}, r.err
	}
	if reserved {
		others := o.Without(func(name string) bool { return name == itemsMember || slices.Contains(tuple[:], name) })
		if err := reservedIn(true, others.Value(), ""); err != nil {
			return Batch{}, err
		}
	}
	b := Batch{Semantic: semantic, Items: make([]Item, 0, items.Len()), Size: size}
	for n, v := range items.Elements {
		item := d.item(v, itemsMember, strconv.Itoa(n))
		if item.Err != nil {
			item.Request = Request{Tenant: d.tenant} // so that it is known whose log it goes into
		}
		b.Items = append(b.Items, item)
	}
	return b, nil
}

var tuple = [...]string{"subject", "action", "resource", "context"}

func (r *reader) semantic(o Object) Semantic {
	options := r.optional(o, "options")
	v, ok := r.member(options, []string{"options", "evaluations_semantic"}, false, String, "a string")
	if !ok {
		return ExecuteAll
	}
	s := Semantic(v.Text())
	r.want(s == ExecuteAll || s == DenyOnFirstDeny || s == PermitOnFirstPermit, "none of execute_all, deny_on_first_deny, permit_on_first_permit", "options", "evaluations_semantic")
	return s
}

// defaults are the members beside evaluations, which items inherit.
type defaults struct {
	tenant   string
	resource []string // the texts that a resource must have
	reserved bool
	objects  map[string]Object
	illegal  map[string]*Error // by default, once one was looked through for reserved names
	options  *Unknown
	draft    Draft // of the whole body
}

// item makes a request of an item and its inheritance. An entity of its own
// replaces the default one whole, but for a type, id or name it leaves out.
func (d *defaults) item(v Value, at ...string) Item {
	if v.Kind() != Map {
		return Item{Err: Malformed("not an object", "", at...)}
	}
	place := pointerTo(at...)
	if err := reservedIn(d.reserved, v, place); err != nil {
		return Item{Err: err}
	}
	i := inheriting{defaults: d, item: v.Object(), at: at}
	in := &i.inherits
	subject := i.part(&in.Subject, "subject", "type", "id")
	action := i.part(&in.Action, "action", "name")
	resource := i.part(&in.Resource, "resource", d.resource...)
	q := Request{
		Draft:    d.draft,
		Tenant:   d.tenant,
		Subject:  Entity{subject.names[0], subject.names[1], subject.properties},
		Action:   Action{action.names[0], action.properties},
		Resource: Entity{resource.names[0], resource.names[1], resource.properties},
		Context:  i.context(),
		Unknown:  i.ownOptions(),
	}
	if i.err != nil {
		return Item{Err: i.err}
	}
	item := Item{Request: q, at: place, sent: i.item, inherits: i.inherits}
	if i.checkContext(q.Context); i.err != nil {
		return Item{Err: item.InBody(i.err)}
	}
	return item
}

// inheriting reads one item beside the defaults.
type inheriting struct {
	reader
	*defaults
	item     Object
	at       []string
	inherits Inherited
}

type part struct {
	names      [2]string
	properties Object
}

func (i *inheriting) part(inherits *bool, name string, required ...string) part {
	own, owns := i.item.Get(name)
	inherited := i.objects[name]
	if owns {
		i.want(own.Kind() == Map, "not an object", append(i.at, name)...)
	} else if inherited.Len() == 0 {
		i.want(false, "missing; it must be an object", append(i.at, name)...)
	}
	var p part
	for n, member := range required {
		if _, ok := own.Object().Get(member); ok {
			p.names[n] = i.text(own.Object(), append(i.at, name, member)...)
		} else if _, ok := inherited.Get(member); ok {
			i.legal(inherited, name)
			p.names[n] = i.text(inherited, name, member)
		} else {
			i.want(false, "missing; it must be a string", append(i.at, name, member)...)
		}
	}
	if owns {
		p.properties = i.optional(own.Object(), append(i.at, name, "properties")...)
	} else {
		p.properties = i.optional(inherited, name, "properties")
		*inherits = p.properties.Len() > 0
	}
	return p
}

// inheritedOfContext is the member that a context of the item's own still inherits by July's draft. By October's, a context
// of the item's own inherits nothing.
const inheritedOfContext = SupportedMember

func (i *inheriting) context() Object {
	own, owns := i.item.Get("context")
	inherited := i.objects["context"]
	if !owns {
		i.legal(inherited, "context")
		i.inherits.Context = inherited.Len() > 0
		return inherited
	}
	i.want(own.Kind() == Map, "not an object", append(i.at, "context")...)
	o := own.Object()
	if v, ok := inherited.Get(inheritedOfContext); ok && i.draft != October && !has(o, inheritedOfContext) {
		o = o.With(inheritedOfContext, v)
		i.inherits.SupportedObligations = true
	}
	return o
}

// ownOptions are the options of the item: its own, whole, or those of the batch.
func (i *inheriting) ownOptions() *Unknown {
	if !has(i.item, "options") {
		return i.options
	}
	at := append(i.at, "options")
	return i.unknown(i.reader.optional(i.item, at...), at...)
}

// legal makes a reserved name in a default the error of the item that inherits it.
func (i *inheriting) legal(inherited Object, name string) {
	if !i.reserved || i.err != nil {
		return
	}
	err, looked := i.illegal[name]
	if !looked {
		err = reservedIn(true, inherited.Value(), pointerTo(name))
		i.illegal[name] = err
	}
	i.err = err
}

// reservedIn finds a reserved name in a value, where the parser saw one anywhere.
func reservedIn(seen bool, v Value, pointer string) *Error {
	if !seen {
		return nil
	}
	for n, m := range v.elems {
		name := m.Name
		if v.kind == Array {
			name = strconv.Itoa(n)
		} else if isReserved(name) {
			return reservedError(pointer+pointerTo(name), name)
		}
		if err := reservedIn(true, m.Value, pointer+pointerTo(name)); err != nil {
			return err
		}
	}
	return nil
}
