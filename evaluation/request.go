package evaluation

// Request asks for one decision: may this subject do this action on this resource,
// in this context, in this tenant? Every wire shape becomes one of these. The texts of a
// request that came in a body share memory: who keeps one after the request clones it.
type Request struct {
	// Shape is the wire shape the request came in. It changes the pointers of errors and the form
	// of the answer; and a native request declares the obligation approval_required by itself.
	Shape Shape
	// Draft is the draft of AuthZEN's obligations by which the request is read and answered.
	Draft Draft
	// Tenant is "default" or the name of a tenant of the bundle; "" is default,
	// but for a native request, which must name its own.
	Tenant   string
	Subject  Entity
	Action   Action
	Resource Entity
	Context  Object
	// Unknown is set if the request asks what is possible, while values of it are not known. The native
	// shape has no place for it.
	Unknown *Unknown
	// PassesOver is set if the body has the items of a batch beside the request. They are not read: a
	// member that is not known must be ignored.
	PassesOver bool
}

// Entity names a subject or resource and carries the caller's attributes of it.
type Entity struct {
	Type, ID   string
	Properties Object
}

// Action names the act that the subject wants to do.
type Action struct {
	Name       string
	Properties Object
}

// DefaultTenant is the tenant of requests that name none.
const DefaultTenant = "default"

// IsTenantName reports whether s is a legal tenant name: a letter or digit,
// then up to 62 letters, digits, dots, underscores and hyphens.
func IsTenantName(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return 0 < len(s) && len(s) <= 63
}

// Protocol reports whether a member of the context is part of the protocol
// between PEP and PDP rather than of the request itself. Such members are never seen
// by a policy, are legal beside any schema, and are recorded.
func Protocol(member string) bool {
	switch member {
	case SupportedMember, ExtensionsMember, "justification", approvalMember, approvalIDMember, "approved", "access_request", "evaluation_id",
		capabilityMember, personMember:
		return true
	}
	return false
}

// Presented is the id of the approval that a request brings, in either shape: of
// context.approval, as AuthZEN's profile for approvals has it, or context.approval_id.
// It is "" where there is neither.
func (r *Request) Presented() string {
	approval, _ := r.Context.Get(approvalMember)
	id, given := approval.Object().Get("id")
	if !given {
		id, _ = r.Context.Get(approvalIDMember)
	}
	return id.Text()
}

// MostRounds is how many rounds the use of an approval can have at the most. How many it has, its terms say.
const MostRounds = 10

// Continuation names a round of an approved call: after the call used its approval, the one who
// was called asked for input, and the same call comes again with that. It uses nothing up.
type Continuation struct {
	// Decision is the id of the decision that used the approval.
	Decision string `json:"decision"`
	// Round is 1 for the first, and [MostRounds] at the most. The zero Continuation is none.
	Round int `json:"round"`
}

// Continues is the round that a request says it is of an approved call, in context.approval.
func (r *Request) Continues() (c Continuation) {
	approval, _ := r.Context.Get(approvalMember)
	continues, _ := approval.Object().Get(continuesMember)
	decision, _ := continues.Object().Get("decision")
	round, _ := continues.Object().Get("round")
	n, _ := round.Scaled(0)
	return Continuation{decision.Text(), int(n)}
}

// Justified reports whether a request gives as its reason that it was approved, in
// either shape. That proves nothing: it has an approval of exactly this be looked for.
func (r *Request) Justified() bool {
	reason, _ := r.Context.Get("justification")
	return reason.Kind() == String && reason.Text() == "approved"
}

// usualSize is the room in bytes that most values need as JSON.
const usualSize = 128

// MarshalJSON writes r in the AuthZEN shape, whichever shape it came in. The
// tenant is not part of that shape: it is in the URL.
func (r Request) MarshalJSON() ([]byte, error) {
	room := 4*usualSize + r.Context.Value().room()
	b := r.Subject.AppendJSON(append(make([]byte, 0, room), `{"subject":`...))
	b = r.Action.AppendJSON(append(b, `,"action":`...))
	b = r.Resource.AppendJSON(append(b, `,"resource":`...))
	if r.Context.Len() > 0 {
		b = r.Context.AppendJSON(append(b, `,"context":`...))
	}
	if r.Unknown != nil {
		b = appendList(append(b, `,"options":{"unknown":[`...), r.Unknown.pointers, appendString)
		b = append(b, "]}"...)
	}
	return append(b, '}'), nil
}

// Ref is the name of the entity.
func (e Entity) Ref() Ref { return Ref{Type: e.Type, ID: e.ID} }

// MarshalJSON writes e in the AuthZEN shape.
func (e Entity) MarshalJSON() ([]byte, error) { return e.AppendJSON(make([]byte, 0, usualSize)), nil }

// MarshalJSON writes a in the AuthZEN shape.
func (a Action) MarshalJSON() ([]byte, error) { return a.AppendJSON(make([]byte, 0, usualSize)), nil }

// AppendJSON appends the JSON of MarshalJSON.
func (e Entity) AppendJSON(b []byte) []byte {
	b = appendString(append(b, `{"type":`...), e.Type)
	b = appendString(append(b, `,"id":`...), e.ID)
	return append(appendProperties(b, e.Properties), '}')
}

// AppendJSON appends the JSON of MarshalJSON.
func (a Action) AppendJSON(b []byte) []byte {
	b = appendString(append(b, `{"name":`...), a.Name)
	return append(appendProperties(b, a.Properties), '}')
}

func appendProperties(b []byte, o Object) []byte {
	if o.Len() == 0 {
		return b
	}
	return o.AppendJSON(append(b, `,"properties":`...))
}
