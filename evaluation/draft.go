package evaluation

// Draft is a draft of AuthZEN's obligations. It says which obligations a PEP may be sent, and how a body writes them; july.go
// and october.go have how. Decisions and records have the types of package obligations whatever the draft is.
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
	case has(context, extensionsMember):
		return October
	case shape == AuthZEN:
		return BundlesDraft
	}
	return July
}

// ObligationsCapability is among the capabilities of a PDP that answers with obligations.
const ObligationsCapability = "urn:openid:authzen:capability:obligations"

// The members of a context in which a PEP declares which obligations it can discharge. The presence of the second one
// makes a body one of October's draft.
const (
	supportedMember  = "supported_obligations"
	extensionsMember = "supported_mandatory_extensions"
)

// appendObligations appends an array of obligations as the draft writes them.
func (d Draft) appendObligations(b []byte, all []Obligation) []byte {
	b = appendList(append(b, '['), all, func(b []byte, o Obligation) []byte {
		if d == October {
			o = inOctober(o)
		}
		return appendObligation(b, o)
	})
	return append(b, ']')
}

func appendObligation(b []byte, o Obligation) []byte {
	b = appendString(append(b, `{"id":`...), o.ID)
	b = appendString(append(b, `,"type":`...), o.Type)
	b = o.Properties.Value().append(append(b, `,"properties":`...))
	return append(b, '}')
}

// appendResult appends the obligations of one result of a search.
func (d Draft) appendResult(b []byte, all []Obligation) []byte {
	if len(all) == 0 {
		return b
	}
	if d != October {
		b = d.appendObligations(append(b, `,"obligations":`...), all)
	}
	// A proxy that drops what a PEP of October's declares gets July's answer for it: that PEP reads the context alone.
	return append(d.appendObligations(append(b, `,"context":{"obligations":`...), all), '}')
}
