package evaluation

// Draft is a draft of AuthZEN's obligations. It decides which obligations a PEP may be sent, and how a body writes them: see
// july.go and october.go. Decisions and records have the types of package obligations in every draft.
type Draft uint8

const (
	// July is the profile of 3 July 2026. Requests that came in no body are of it.
	July Draft = iota
	// BundlesDraft is July, or October if bundle.yaml says so and the request has AuthZEN's shape.
	BundlesDraft
	// October is Obligations Core with its Standard Types, of 6 October 2026.
	October
)

// draftOf returns the draft by which a request with a context is read.
func draftOf(shape Shape, context Object) Draft {
	switch {
	case has(context, ExtensionsMember):
		return October
	case shape == AuthZEN:
		return BundlesDraft
	}
	return July
}

// ObligationsCapability is among the capabilities of a PDP that answers with obligations.
const ObligationsCapability = "urn:openid:authzen:capability:obligations"

// The members of a context in which a PEP declares which obligations it can discharge. A body with the second one is of
// October's draft.
const (
	SupportedMember  = "supported_obligations"
	ExtensionsMember = "supported_mandatory_extensions"
)
