package page

// Inbox is the page of the approval requests of a person.
type Inbox struct {
	Layout Layout
	Title  Label // of the list
	Tabs   []Tab
	Filter Filter
	Newest bool // comes first; otherwise it is the oldest
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
	Count   Count
	Live    bool // the count is that of those that wait for the person
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
	Link            Href
	Redacted        bool // Who, Does, With and Message are empty then
	Who, Does, With Text
	Message         Text
	// For are those for whom it is asked, as far as they are shown, and MoreFor is how many more there are.
	For     []Text
	MoreFor int
	// Says is why, in the words of the asker.
	Says Text
	// Differs are the members that others for the same do not have so. If it is
	// the same as a row above, Above says how many rows above.
	Differs Differences
	Above   int
	// By is the person of the last vote on a request that waits no longer, with the Decision and its Reason.
	By       Text
	Decision Label
	Reason   Text
	// Rest is the page that begins behind the row.
	Rest             Href
	Tenant, Template Text
	Status           Status
	Votes            Votes
	Filed, Until     Moment
}

// Difference is a member of a request that another one does not have so. None says that this one has no such member.
type Difference struct {
	Name  Text
	Value Value
	None  bool
}

// Differences are members in a row of a list. More is how many more there are.
type Differences struct {
	Some []Difference
	More int
}

// Votes is how many people approved, and how many have to.
type Votes struct{ Given, Needed int }

// Status is the status of an approval request, or the state of a capability, by the name that the API has for it.
type Status Label

// The statuses. Unknown is one that this console does not know.
const (
	Unknown   Status = ""
	Pending   Status = "pending"
	Approved  Status = "approved"
	Denied    Status = "denied"
	Expired   Status = "expired"
	Cancelled Status = "cancelled"
	UsedUp    Status = "used_up"
	Revoked   Status = "revoked"

	// Of filters alone: each, and each but Pending.
	Any   Status = "all"
	Ended Status = "ended"

	// Of capabilities alone.
	Asked     Status = "asked"
	Active    Status = "active"
	Suspended Status = "suspended"
	Returned  Status = "returned"
	Renewed   Status = "renewed"
	Released  Status = "released"

	// Of decisions alone.
	Allow      Status = "allow"
	Waiting    Status = "waiting"
	Deny       Status = "deny"
	Possible   Status = "possible"
	Impossible Status = "impossible"
)

var statuses = map[Status]Label{
	Unknown:   "In a state that this page does not know",
	Pending:   "Pending",
	Approved:  "Approved",
	Denied:    "Denied",
	Expired:   "Expired",
	Cancelled: "Cancelled",
	UsedUp:    "Used up",
	Revoked:   "Revoked",
	Any:       "All",
	Ended:     "All",
	Asked:     "Not on record yet",
	Active:    "Active",
	Suspended: "Suspended",
	Returned:  "Returned",
	Renewed:   "Renewed",
	Released:  "Never granted",

	Allow:      "Allow",
	Waiting:    "Waiting",
	Deny:       "Deny",
	Possible:   "Possible",
	Impossible: "Impossible",
}

// StatusOf is the status of a name.
func StatusOf(name string) Status {
	if _, known := statuses[Status(name)]; known {
		return Status(name)
	}
	return Unknown
}

// Name is the name of the status, as the API has it.
func (s Status) Name() Label { return Label(s) }

// Text is the status in words.
func (s Status) Text() Label { return statuses[s] }

// Pending reports if people have yet to decide.
func (s Status) Pending() bool { return s == Pending }

// Lasting reports if something can still come of the approval request, so that its end matters.
func (s Status) Lasting() bool { return s == Pending || s == Approved }
