package page

import "time"

// Request is the page of one approval request: all that a person needs to decide about it.
type Request struct {
	Layout Layout
	State  State
	Asks   Asks
	// Sent is the members of the question, the arguments first, and Says the justification.
	Sent  []Table
	Says  Table
	Last  Last
	Terms Terms
	Why   Why
	Said  []Vote
	// Deciders are the other people who may decide.
	Deciders Deciders
	Heed     Heed
	Forms    Forms
	// Prev and Next are those beside it in the inbox.
	Prev, Next Href
}

func (Request) template() string { return "request" }

// State is where an approval request stands.
type State struct {
	ID      ID
	Status  Status
	Heading Label
	Votes   Votes
	Until   Moment
	Filed   Moment
	// Mistake is the reason why the act of the person failed that led here.
	Mistake Label
	Detail  Text // of the mistake, by the API
}

// Asks is the question: subject, action and resource.
type Asks struct {
	// Redacted is set if the words were removed for good, and there is nothing else but who is asked, and through
	// whom it came.
	Redacted   bool
	RedactedAt Moment
	Message    Text
	Grant      bool // it is about a capability, and the service may have written the message
	Who        Name
	Through    Text
	For        []Name
	// RequestedBy is the requester of the subject's act: none or one.
	RequestedBy []Name
	Does, With  Name
	Server      Text // the words of the tool's server
	Tenant      Text
	Template    Text
}

// Name is a name, and the known one that it looks like without being it.
type Name struct{ Text, Like Text }

// Last is the last approval request like this one that the person may see. Without a Link there is none.
type Last struct {
	Link     Href
	At       Moment
	Status   Status
	By       Text
	Decision Label
	Reason   Text
	Failed   bool // it is not known if there is one
}

// Terms are the terms of an approval.
type Terms struct {
	Uses, Used int
	// Rounds is how many follow-up questions belong to each use, and Within how long after it they may come.
	Rounds    int
	Within    time.Duration
	Continued int
	UnderWay  []UnderWay
	// ValidFor is how long an approval counts that is to be given; 0 if it is not known.
	ValidFor time.Duration
	Unbound  []Text
}

// UnderWay is a use of which it is not known yet if it is on record.
type UnderWay struct {
	Decision ID
	Origin   Text
	Since    Moment
	Was      bool // it was so when the approval or the capability ended
}

// Span is how long an approval counts, in words.
func (t Terms) Span() string { return Span(t.ValidFor) }

// InTime is the time for follow-up questions, in words.
func (t Terms) InTime() string { return Span(t.Within) }

// Why is why people are asked. It is not Known if the API did not say.
type Why struct {
	Known      bool
	Obligation Place
	Policies   []Place
	Decision   ID
}

// Place is something in a policy bundle, and where.
type Place struct{ Name, At Text }

// Vote is the ruling of a person.
type Vote struct {
	By       Text
	Decision Label
	To       Text
	Reason   Text
	Via      Label
	Gateway  Text
	At       Moment
	Until    Moment
}

// Deciders are people who may decide. They are not Known if the API did not say.
type Deciders struct {
	Known  bool
	People []Text
	More   bool
}

// Heed is a warning to read before deciding. It stands beside the buttons.
type Heed struct {
	// Odd counts texts that look like others, Cut those that are not shown whole.
	Odd, Cut int
	// Whole is the page that shows all of it whole, if something is cut.
	Whole Href
	// Alike are the parts of the request that look like something known, and are not.
	Alike []Alike
}

// Any reports if there is something to heed.
func (h Heed) Any() bool { return h.Odd > 0 || h.Cut > 0 || len(h.Alike) > 0 }

// Alike is a part of the request, by its JSON Pointer, and the known id that it looks like.
type Alike struct{ Pointer, Known Text }

// Forms are the acts of the person, by the version of the approval request that is shown.
type Forms struct {
	Decision, Revocation     Form
	Approve, Deny, Delegate  bool
	Revoke                   bool
	Not                      []Not
	Version                  int
	Offer                    []Typed // people to delegate to
	Reason, ToReason, Person Typed   // typed into forms that did not count
	Missing                  Field
	Delegating               bool // the person is at the form that delegates
	Unseen                   bool // an approval did not count, because the page had cut something
}

// Form is where a form is sent, and the token that it needs. Shown is the digest of all that the page asks about; it is
// empty if the page cuts something.
type Form struct {
	Action       Href
	Token, Shown Token
}

// Not is an act that a person may not do, and the reason.
type Not struct {
	What Label
	Why  Text
}

// Field is a field of a form.
type Field string

// The fields. NoField is none of them.
const (
	NoField       Field = ""
	ReasonField   Field = "reason"
	ToReasonField Field = "to-reason"
	PersonField   Field = "person"
)
