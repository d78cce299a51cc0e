package wire

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
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
	if e.read(readObject(text, &err)); err != nil {
		return Envelope{}, err
	}
	return e, nil
}

func (e *Envelope) read(o object) {
	o.misspelt(envelopeNames...)
	if o.wanted("protocol") != Protocol {
		o.wrong("an unknown protocol; it is "+Protocol, "protocol")
	}
	e.ID, e.Time, e.From, e.Kind = o.text("id"), o.time("ts"), o.wanted("from"), o.wanted("kind")
	if o.Get("to") != nil {
		e.To = o.texts("to", "no array of names; leave it out for everybody", "it is for nobody; leave it out for everybody")
	}
	if e.Kind != KindMCP && e.Kind != KindSystem {
		o.wrong("an unknown kind; it is mcp or system", "kind")
	}
	o.object("payload")
	e.Payload = o.Get("payload")
}

// time is a member that is a time, the zero one if there is none.
func (o object) time(name string) (t time.Time) {
	text := o.text(name)
	if text == "" {
		return t
	}
	if err := t.UnmarshalText([]byte(text)); err != nil || t.IsZero() || strings.Contains(text, ",") { // Go takes a comma for a point
		o.wrong("no time; it is written like 2026-01-02T15:04:05Z", name)
	}
	return t
}
