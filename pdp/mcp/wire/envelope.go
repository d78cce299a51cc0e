package wire

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// Protocol is the name of the protocol of an [Envelope].
const Protocol = "mcp-x/v0"

// The kinds of an [Envelope].
const (
	KindMCP    = "mcp"    // the payload is a message of JSON-RPC
	KindSystem = "system" // the payload has a type
)

// Envelope is the envelope that 000 and 001 have around every message. On MCP only the payload travels.
type Envelope struct {
	// ID names the message, and Time is when it was sent. Both may be missing: 001 prints envelopes without them.
	ID   string
	Time time.Time
	From string
	// To are the recipients. An envelope without To is for everybody.
	To   []string
	Kind string
	// Payload is a JSON object.
	Payload jsontext.Value
}

var envelopeNames = []string{"protocol", "id", "ts", "from", "to", "kind", "payload"}

// ReadEnvelope reads an envelope. The payload keeps its bytes, and is a slice of text. Members that are unknown are passed
// over, because others may add some; a name that differs from a known one in case alone is refused. An error of package
// evaluation says where something is wrong.
func ReadEnvelope(text []byte) (e Envelope, err error) {
	o, err := readObject(text)
	if err != nil {
		return e, err
	}
	var protocol string
	steps := []func() error{
		func() error { return o.misspelt(envelopeNames...) },
		func() (err error) { protocol, err = o.wanted("protocol"); return },
		func() (err error) { e.ID, err = o.text("id"); return },
		func() (err error) { e.Time, err = timeOf(o.Get("ts")); return },
		func() (err error) { e.From, err = o.wanted("from"); return },
		func() (err error) { e.To, err = o.to(); return },
		func() (err error) { e.Kind, err = o.wanted("kind"); return },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return Envelope{}, err
		}
	}
	if protocol != Protocol {
		return Envelope{}, evaluation.Malformed("an unknown protocol; it is "+Protocol, "", "protocol")
	}
	switch e.Payload = o.Get("payload"); {
	case e.Kind != KindMCP && e.Kind != KindSystem:
		return Envelope{}, evaluation.Malformed("an unknown kind; it is mcp or system", "", "kind")
	case e.Payload == nil:
		return Envelope{}, evaluation.Malformed("missing; it must be an object", "", "payload")
	case e.Payload.Kind() != '{':
		return Envelope{}, evaluation.Malformed("no object", "", "payload")
	}
	return e, nil
}

// timeOf is a time, the zero one if there is no value.
func timeOf(v jsontext.Value) (t time.Time, err error) {
	text, err := textOf(v, "ts")
	if err != nil || text == "" {
		return t, err
	}
	if err := t.UnmarshalText([]byte(text)); err != nil || t.IsZero() || strings.Contains(text, ",") { // Go takes a comma for a point
		return t, evaluation.Malformed("no time; it is written like 2026-01-02T15:04:05Z", "", "ts")
	}
	return t, nil
}

// to are the recipients of an envelope, nil if there is no value.
func (o object) to() (names []string, err error) {
	all, err := o.elements("to", "no array of names; leave it out for everybody")
	if err != nil || all == nil && o.Get("to") == nil {
		return nil, err
	}
	for _, one := range all {
		name, err := textOf(one, "to")
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil, evaluation.Malformed("it is for nobody; leave it out for everybody", "", "to")
	}
	return names, nil
}
