package evaluation

import (
	"bytes"
	"cmp"
	"unicode/utf8"
)

// MostHanded is the size in bytes up to which requests are handed over.
const MostHanded = 16 << 10

// Handed is a request that is the body of a message within one process. A PDP takes it by [Handed.Decode]. Whoever reads it
// instead gets its JSON. No body that comes from elsewhere is of this type.
type Handed struct {
	request             Request
	size, values, depth int           // of the JSON, at most
	text                *bytes.Reader // the rest of the JSON, nil before it is read
}

// HandOver returns a request as a body. It reports false for a request of which only the JSON may be sent: one that is larger
// than [MostHanded], that asks what is possible, or that is not what a reader would make of its JSON.
func HandOver(q Request) (*Handed, bool) {
	const around = len(`{"subject":{"type":"","id":"","properties":},"action":{"name":"","properties":},"resource":{"type":"","id":"","properties":},"context":}`)
	h := &Handed{request: q, size: around, values: 9, depth: 2} // 9 are the objects and names that each request has
	ok := q.Unknown == nil
	for _, name := range [...]string{q.Subject.Type, q.Subject.ID, q.Action.Name, q.Resource.Type, q.Resource.ID} {
		ok = ok && h.holdsText(name)
	}
	for _, properties := range [...]Object{q.Subject.Properties, q.Action.Properties, q.Resource.Properties} {
		ok = ok && h.holds(properties.Value(), 2, elsewhere)
	}
	return h, ok && h.holds(q.Context.Value(), 1, inContext) && h.size <= MostHanded
}

// Size returns a bound of the size of the JSON in bytes.
func (h *Handed) Size() int { return h.size }

// Decode returns what [DecodeAuthZEN] makes of the JSON.
func (h *Handed) Decode(tenant string, limits Limits) (Request, error) {
	if h.size > limits.Body || h.values > limits.Values || h.depth > limits.Depth {
		text, err := h.request.MarshalJSON()
		if err != nil {
			return Request{}, err
		}
		return DecodeAuthZEN(text, tenant, limits)
	}
	q := h.request
	q.Shape, q.Tenant, q.PassesOver = AuthZEN, cmp.Or(tenant, DefaultTenant), false
	return new(reader).done(q)
}

// Read implements [io.Reader].
func (h *Handed) Read(p []byte) (int, error) {
	if h.text == nil {
		text, err := h.request.MarshalJSON()
		if err != nil {
			return 0, err
		}
		h.text = bytes.NewReader(text)
	}
	return h.text.Read(p)
}

// Close implements [io.Closer].
func (h *Handed) Close() error { return nil }

// holds counts a value, and reports whether the parser would read the same from its JSON at a place, that deep.
func (h *Handed) holds(v Value, depth int, at place) bool {
	h.values++
	h.size += len(`"":,`)
	switch v.kind {
	case Array, Map:
		depth++
		if h.depth = max(h.depth, depth); depth > scanDepth {
			return false
		}
	default:
		return h.holdsText(v.text)
	}
	for n := range v.elems {
		m, inside := &v.elems[n], at.element()
		if v.kind == Map {
			inside = at.member(m.Name)
			twice := n > 0 && v.elems[n-1].Name >= m.Name
			if twice || isReserved(m.Name) || m.Value.kind == Null && at != inArguments || !h.holdsText(m.Name) {
				return false
			}
		}
		if !h.holds(m.Value, depth, inside) {
			return false
		}
	}
	return true
}

// holdsText counts a text, and reports whether it is valid UTF-8.
func (h *Handed) holdsText(s string) bool {
	h.size += len(s) + len(`"":,`)
	for n := range len(s) {
		if c := s[n]; c < ' ' || c == '"' || c == '\\' {
			h.size += len(`\u0000`) - 1
		}
	}
	return h.size <= MostHanded && utf8.ValidString(s)
}
