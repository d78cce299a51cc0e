package page

// Layout is the part that every page has.
type Layout struct {
	// Title is the title of the page. If it is the page of one approval request or capability, About is its id.
	Title Label
	About ID
	// Home is where the console is, without a slash at its end.
	Home Href
	// Section is the part of the console that the page belongs to: approvals, decisions or capabilities.
	Section Label
	// Name is the person of the session in short, if there is a short name. Who is the name that goes on record. Tenants are
	// those that the person serves; AllTenants stands for all.
	Name, Who  Text
	Tenants    []Text
	AllTenants bool
	// LogOut is the token of the form that logs out. Without one there is no session that could end.
	LogOut Token
	// Inbox says that the person may approve, Records that the person may read records, and Capabilities that the person may
	// see and take back capabilities.
	Inbox, Records, Capabilities bool
	// Waiting is how many approval requests wait for the person, and Tag that of the page that was counted. Stream has
	// each other number for scripts; it is empty if the person may not approve.
	Waiting Count
	Tag     ID
	Stream  Href
	// Now is when the page was made.
	Now Moment
}

// Count is a number of things, and More is set if there are more than that.
type Count struct {
	N    int
	More bool
}

// Login is the page where a person logs in.
type Login struct {
	Layout Layout
	// OIDC is the link to the provider, and empty if there is none. Provider is its name.
	OIDC     Href
	Provider Text
	// Next is the path to go to after the login.
	Next Typed
	// Problem is why the last attempt failed.
	Problem Label
}

func (Login) template() string { return "login" }

// Message is a page that says one thing.
type Message struct {
	Layout  Layout
	Heading Label
	Says    []Text
	// Link leads on, and LinkText says whereto.
	Link     Href
	LinkText Label
}

func (Message) template() string { return "message" }
