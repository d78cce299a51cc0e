package page

// Inbox is the page of the approval requests of a person.
type Inbox struct {
	Layout Layout
	Tabs   []Tab
	Filter Filter
	Rows   []Entry
	// Mistake is why there is no list, if the address of the page is no good.
	Mistake Text
	// Next is the page after this one, and First the first page if this is another one.
	Next, First Href
}

func (Inbox) template() string { return "inbox" }

// Tab is one kind of approval requests.
type Tab struct {
	Link    Href
	Text    Label
	Current bool
}

// Filter is the filter of the entries.
type Filter struct {
	// Tab is the value of the parameter tab.
	Tab Label
	// Statuses are the choices, if any.
	Statuses                                    []Choice
	Tenant, Template, Subject, Resource, Action Typed
	// Clear is the page without a filter. It is empty if there is none.
	Clear Href
}

// Choice is a value of a select.
type Choice struct {
	Value, Text Label
	Chosen      bool
}

// Entry is an approval request in the inbox.
type Entry struct {
	Link             Href
	ID               ID
	Redacted         bool // Who, Does, With and Message are empty then
	Who, Does, With  Text
	Message          Text
	Tenant, Template Text
	Status           Status
	Votes            Votes
	Filed, Until     Moment
}

// Votes is how many people approved, and how many have to.
type Votes struct{ Given, Needed int }

// Status is the status of an approval request.
type Status int

// The statuses. Unknown is one that this console does not know.
const (
	Unknown Status = iota
	Pending
	Approved
	Denied
	Expired
	Cancelled
	UsedUp
	Revoked
)

var statuses = [...]struct{ name, text Label }{
	Unknown:   {"", "In a state that this page does not know"},
	Pending:   {"pending", "Pending"},
	Approved:  {"approved", "Approved"},
	Denied:    {"denied", "Denied"},
	Expired:   {"expired", "Expired"},
	Cancelled: {"cancelled", "Cancelled"},
	UsedUp:    {"used_up", "Used up"},
	Revoked:   {"revoked", "Revoked"},
}

// StatusOf is the status of a name.
func StatusOf(name string) Status {
	for s, known := range statuses {
		if Status(s) != Unknown && string(known.name) == name {
			return Status(s)
		}
	}
	return Unknown
}

// Name is the name of the status, as the API has it.
func (s Status) Name() Label { return statuses[s].name }

// Text is the status in words.
func (s Status) Text() Label { return statuses[s].text }

// Pending reports if people have yet to decide.
func (s Status) Pending() bool { return s == Pending }

// Lasting reports if something can still come of the approval request, so that its end matters.
func (s Status) Lasting() bool { return s == Pending || s == Approved }
