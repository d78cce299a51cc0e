package evaluation

// This file alone knows how answers carry obligations by the profile of 3 July 2026 (openid/authzen at de66ead0).

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
	// October's place as well: if a proxy drops the declarations of a PEP, July's answer reaches a PEP that reads the context alone.
	return append(d.appendObligations(append(b, `,"context":{"obligations":`...), all), '}')
}
