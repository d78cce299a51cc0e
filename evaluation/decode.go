package evaluation

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Decode reads a body in either wire shape, as files of requests may hold: as the
// one of [DecodeAuthZEN] and [DecodeNative] that takes it, and they never both do,
// since action is an object in one shape and a string in the other. Other members
// may be there in both, so that a subject or an actor alone tells nothing.
// The tenant is that of an AuthZEN request; a native one names its own, and
// where both do they must agree.
func Decode(body []byte, tenant string, limits Limits) (Request, error) {
	o, err := parse(body, limits)
	if err != nil {
		return Request{}, err
	}
	action, _ := o.Get("action")
	if !has(o, "actor") && !has(o, "tenant_id") || has(o, "subject") && action.Kind() != String {
		return authzen(o, tenant)
	}
	r, err := native(o)
	if err == nil && tenant != "" && tenant != r.Tenant {
		return Request{}, Malformed("the request is for another tenant than the one given beside it", "leave one of the two out", "tenant_id")
	}
	return r, err
}

// DecodeAuthZEN reads the body of an AuthZEN Access Evaluation request. The
// tenant comes from the URL.
func DecodeAuthZEN(body []byte, tenant string, limits Limits) (Request, error) {
	o, err := parse(body, limits)
	if err != nil {
		return Request{}, err
	}
	return authzen(o, tenant)
}

// DecodeNative reads the body of a tenant/actor/resource request.
func DecodeNative(body []byte, limits Limits) (Request, error) {
	o, err := parse(body, limits)
	if err != nil {
		return Request{}, err
	}
	return native(o)
}

func authzen(o Object, tenant string) (Request, error) {
	var r reader
	r.want(has(o, "subject") || !has(o, "actor"), "missing: a request with an actor is of the native shape; send it to /v1/authorize", "subject")
	subject, action, resource := r.object(o, "subject"), r.object(o, "action"), r.object(o, "resource")
	q := Request{
		Shape:    AuthZEN,
		Tenant:   cmp.Or(tenant, DefaultTenant),
		Subject:  Entity{r.text(subject, "subject", "type"), r.text(subject, "subject", "id"), r.optional(subject, "subject", "properties")},
		Action:   Action{r.text(action, "action", "name"), r.optional(action, "action", "properties")},
		Resource: Entity{r.text(resource, "resource", "type"), r.text(resource, "resource", "id"), r.optional(resource, "resource", "properties")},
		Context:  r.optional(o, "context"),
		Unknown:  r.unknown(r.optional(o, "options"), "options"),
	}
	items, _ := o.Get(itemsMember)
	q.PassesOver = items.Kind() == Array && items.Len() > 0
	return r.done(q)
}

// itemsMember holds the items of a batch.
const itemsMember = "evaluations"

func native(o Object) (Request, error) {
	var r reader
	r.want(has(o, "actor") || !has(o, "subject"), "missing: a request with a subject is one of AuthZEN; send it to /access/v1/evaluation", "actor")
	tenant := strings.Clone(r.text(o, "tenant_id")) // who counts by tenants keeps the name, and should not keep the body
	actor := r.object(o, "actor")
	action := r.text(o, "action")
	resource := r.object(o, "resource")
	q := Request{
		Shape:   Native,
		Tenant:  tenant,
		Subject: Entity{Type: r.text(actor, "actor", "actor_type"), ID: r.text(actor, "actor", "actor_id")},
		Action:  Action{Name: action},
		Resource: Entity{
			Type: r.text(resource, "resource", "type"),
			ID:   r.text(resource, "resource", "id"),
		},
		Context: r.optional(o, "context"),
	}
	options, _ := o.Get("options")
	r.want(!has(options.Object(), "unknown"), "the native shape decides, and does not say what is possible; ask /access/v1/evaluation", "options", "unknown")
	q.Subject.Properties = actor.Without(func(name string) bool { return name == "actor_type" || name == "actor_id" })
	r.optional(resource, "resource", "labels")
	q.Resource.Properties = resource.only("labels")
	if purpose, ok := o.Get("purpose"); ok {
		r.want(purpose.Kind() == String, "not a string", "purpose")
		r.want(!has(q.Context, "purpose"), "the purpose is given twice, here and beside the context", "context", "purpose")
		q.Context = q.Context.With("purpose", purpose)
	}
	return r.done(q)
}

func has(o Object, name string) bool {
	_, ok := o.Get(name)
	return ok
}

// reader takes known members out of a parsed body and keeps the first thing
// that is wrong with them.
type reader struct{ err *Error }

func (r *reader) want(ok bool, detail string, at ...string) bool {
	if !ok && r.err == nil {
		r.err = Malformed(detail, "", at...)
	}
	return ok
}

// member finds the last of the path's names in o, the value at the path before.
func (r *reader) member(o Object, path []string, required bool, kind Kind, what string) (Value, bool) {
	v, ok := o.Get(path[len(path)-1])
	if !ok {
		if required {
			r.want(false, "missing; it must be "+what, path...)
		}
		return Value{}, false
	}
	if v.Kind() != kind {
		return Value{}, r.want(false, "not "+what, path...)
	}
	return v, true
}

func (r *reader) object(o Object, path ...string) Object {
	v, _ := r.member(o, path, true, Map, "an object")
	return v.Object()
}

func (r *reader) optional(o Object, path ...string) Object {
	v, _ := r.member(o, path, false, Map, "an object")
	return v.Object()
}

func (r *reader) text(o Object, path ...string) string {
	v, _ := r.member(o, path, true, String, "a string")
	return v.Text()
}

// decode reads a body, and returns what read makes of the object in it, or the first thing that
// is wrong.
func decode[T any](body []byte, limits Limits, read func(*reader, Object) T) (none T, err error) {
	o, err := parse(body, limits)
	if err != nil {
		return none, err
	}
	var r reader
	v := read(&r, o)
	if r.err != nil {
		return none, r.err
	}
	return v, nil
}

// done returns a request, or the first thing that is wrong with it.
func (r *reader) done(q Request) (Request, error) {
	r.checkContext(q.Context)
	_, shows := q.CapabilityShown()
	r.want(!shows || q.Unknown == nil, "a question about what is possible permits nothing, and takes no capability", "context", capabilityMember)
	q.Draft = draftOf(q.Shape, q.Context)
	if r.err != nil {
		return Request{}, r.err
	}
	return q, nil
}

// CheckContext says what is wrong with the members of a context that the protocol gives a meaning to, nil for nothing.
func CheckContext(context Object) *Error {
	var r reader
	r.checkContext(context)
	return r.err
}

// checkContext checks the members of a context that the protocol gives a meaning to.
func (r *reader) checkContext(context Object) {
	for _, name := range [...]string{"action", "pdp"} {
		r.want(!has(context, name), "only the PDP sets this member of the context", "context", name)
	}
	for _, name := range [...]string{SupportedMember, ExtensionsMember} {
		if declared, ok := context.Get(name); ok {
			r.want(declared.Kind() == Array, "not an array of strings", "context", name)
			for n, v := range declared.Elements {
				r.want(v.Kind() == String, "not a string", "context", name, strconv.Itoa(n))
			}
		}
	}
	// If an approval that the request presents could not be read and were ignored, the approval would
	// be requested again, or another one found.
	approval, given := r.member(context, []string{"context", approvalMember}, false, Map, "an object with the id of an approval")
	var id string
	if given {
		id = r.text(approval.Object(), "context", approvalMember, "id")
		r.want(id != "", "empty; it is the id of an approval", "context", approvalMember, "id")
		r.checkContinues(approval.Object(), "context", approvalMember, continuesMember)
	}
	if alone, ok := r.member(context, []string{"context", approvalIDMember}, false, String, "a string"); ok {
		r.want(alone.Text() != "", "empty; it is the id of an approval", "context", approvalIDMember)
		r.want(!given || alone.Text() == id, "another approval than that of context.approval; present one", "context", approvalIDMember)
	}
	r.checkCapability(context)
	r.checkActors(context)
	// A person that could not be read and were ignored could approve what is asked for that person.
	if person, ok := context.Get(personMember); ok {
		r.want(arePersons(person),
			"not a person, or an array of two: a person is the SHA-256 of the issuer, a NUL and the subject of the person's token, in 43 characters of base64url",
			"context", personMember)
	}
}

// checkContinues checks which round of an approved call a request says it is. If that could not be
// read and were ignored, a continuation would use the approval once more.
func (r *reader) checkContinues(approval Object, at ...string) {
	v, given := r.member(approval, at, false, Map, "an object with decision and round")
	if !given {
		return
	}
	o, in := v.Object(), func(name string) []string { return append(slices.Clip(at), name) }
	for name := range o.Members {
		r.want(name == "decision" || name == "round", "neither decision nor round", in(name)...)
	}
	decision := r.text(o, in("decision")...)
	r.want(decision != "", "empty; it is the id of a decision", in("decision")...)
	round, _ := r.member(o, in("round"), true, Number, "a number")
	n, whole := round.Scaled(0)
	r.want(whole && 1 <= n && n <= MostRounds, fmt.Sprintf("not a whole number from 1 to %d", MostRounds), in("round")...)
}

const (
	approvalMember   = "approval"
	approvalIDMember = "approval_id"
	continuesMember  = "continues"
)

// Shape is a wire shape of requests and answers.
type Shape uint8

// The wire shapes.
const (
	AuthZEN Shape = iota
	Native
)

// Pointer translates a pointer into the canonical request, as rules about
// requests give it, to where the same value stands in a body of this shape.
func (s Shape) Pointer(canonical string) string {
	if s != Native {
		return canonical
	}
	for _, m := range nativeMembers {
		if rest, ok := strings.CutPrefix(canonical, m.canonical); ok && (rest == "" || rest[0] == '/') {
			return m.native + rest
		}
	}
	return canonical
}

var nativeMembers = []struct{ canonical, native string }{
	{"/subject/type", "/actor/actor_type"},
	{"/subject/id", "/actor/actor_id"},
	{"/subject/properties", "/actor"},
	{"/subject", "/actor"},
	{"/action/name", "/action"},
	{"/resource/properties", "/resource"},
	{"/context/purpose", "/purpose"},
}

// Canonical translates a pointer into a body of this shape to where the same value stands in the
// canonical request, as [Shape.Pointer] translates back.
func (s Shape) Canonical(pointer string) string {
	switch {
	case s != Native || pointer == "/resource" || pointer == "/resource/type" || pointer == "/resource/id":
		return pointer
	case pointer == "/actor":
		return "/subject"
	}
	for _, m := range nativeMembers {
		if rest, ok := strings.CutPrefix(pointer, m.native); ok && (rest == "" || rest[0] == '/') {
			return m.canonical + rest
		}
	}
	return pointer
}
