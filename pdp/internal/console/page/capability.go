package page

// Capabilities is the page of the capabilities that a person may take back.
type Capabilities struct {
	Layout Layout
	Filter CapabilityFilter
	Rows   []Held
	// Mistake is why there is no list, if the address of the page is no good.
	Mistake Text
	// Next is the page after this one, and First the first page if this is another one.
	Next, First Href
}

func (Capabilities) template() string { return "capabilities" }

// CapabilityFilter is the filter of the capabilities.
type CapabilityFilter struct {
	States                        []Choice
	Tenant, Holder, Audience, Key Typed
	// Offer are the tenants of the person, if they are some.
	Offer []Typed
	// Clear is the page without a filter. It is empty if there is none.
	Clear Href
}

// Capability is the page of one capability, with the form that takes it back.
type Capability struct {
	Layout Layout
	ID     ID
	Held   Held
	// Mistake is the reason why the act of the person failed that led here.
	Mistake Label
	Detail  Text // of the mistake, by the API
	// Revoke is set if the capability can be taken back, by the form Revocation.
	Revoke     bool
	Revocation Form
	Reason     Typed // typed into a form that did not count
	Missing    Field
}

func (Capability) template() string { return "capability" }

// Held is a capability, and its holder.
type Held struct {
	Link     Href
	Holder   Text
	Audience Text
	Tenant   Text
	Key      Text // the thumbprint
	State    Status
	Until    Moment
	// Used is how often it was used, and Uses how often it may be; 0 is any number.
	Used, Uses int
	UnderWay   []UnderWay
	Tools      []Tool
	MoreTools  int // that are not among Tools
	Arguments  []Argument
	// AnyArguments says that no argument is bound, and OtherArguments that others than Arguments may be any.
	AnyArguments, OtherArguments bool
}

// Argument is an argument that has to be there, and Any says that its value may be any.
type Argument struct {
	Name Text
	Any  bool
}

// Tool is a tool that a capability is for, and All says that it stands for all tools of a server.
type Tool struct {
	ID  Text
	All bool
}
