package wire

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// AccessPolicy is 001's tool_access_policy: a participant names the agents that may use its tools. By itself it permits
// nothing: the operator of the PDP makes a declaration of it.
type AccessPolicy struct {
	// Envelope is the envelope around it, the zero one if there is none.
	Envelope Envelope
	// At is the JSON Pointer of the policy in the text.
	At string
	// Mode and Default are as they are sent. Default is "" if there is none.
	Mode, Default string
	Rules         []AccessRule
}

// AccessRule is a rule of an [AccessPolicy], its words as they are sent.
type AccessRule struct {
	Agent string
	// Tools are names, or [AllTools] alone.
	Tools []string
	// Expires is a time, "" for never.
	Expires          string
	RequiresApproval bool
	// Effect is not in 001: it says in the mode hybrid whether the rule allows or denies. It is "" if it is not sent.
	Effect string
}

const typeAccess = "tool_access_policy"

// AllTools stands for all tools, in place of their names.
const AllTools = "*"

// ReadAccessPolicy reads a tool_access_policy: in its envelope, as the message of MCP that it is, as a payload by itself, or the
// policy alone. Its words are not interpreted. An unknown member is an error, in the envelope, too: a reader that passed
// over it could permit a call that it forbids. An error of package evaluation says where something is wrong.
func ReadAccessPolicy(text []byte) (p AccessPolicy, err error) {
	o := readObject(text, &err)
	switch {
	case o.Get("protocol") != nil:
		p.Envelope.read(o)
		o.only(envelopeNames...)
		if p.Envelope.Kind != KindSystem {
			o.wrong("a "+typeAccess+" is of kind system", "kind")
		}
		o = o.object("payload")
	case o.Get("jsonrpc") != nil:
		o.is("jsonrpc", version)
		o.is("method", MethodAccess)
		if o.Get("id") != nil {
			o.wrong("a notification has none", "id")
		}
		o.only("jsonrpc", "method", "params")
		o = o.object("params")
	}
	if len(o.at) > 0 || o.Get("type") != nil {
		o.is("type", typeAccess)
		o.only("type", "policy")
		o = o.object("policy")
	}
	for _, token := range o.at {
		p.At += "/" + token
	}
	p.read(o)
	return whole(p, err)
}

// is notes a member that is another text than the one that is read here.
func (o object) is(name, want string) {
	if o.wanted(name) != want {
		o.wrong("another message; what is read is "+want, name)
	}
}

func (p *AccessPolicy) read(o object) {
	o.only("mode", "default", "rules")
	p.Mode, p.Default = o.wanted("mode"), o.text("default")
	for n, v := range o.elements("rules", "no array") {
		rule := readObject(v, o.err, append(slices.Clip(o.at), "rules", strconv.Itoa(n))...)
		rule.only("agent", "tools", "expires", "requires_approval", "effect")
		p.Rules = append(p.Rules, AccessRule{
			Agent: rule.wanted("agent"), Tools: rule.tools(), Expires: rule.text("expires"),
			RequiresApproval: rule.truth("requires_approval"), Effect: rule.text("effect"),
		})
	}
}

func (o object) tools() []string {
	const want = `it must be an array of names, or "` + AllTools + `" for all tools`
	switch string(o.Get("tools")) {
	case "":
		o.wrong("missing; "+want, "tools")
		return nil
	case `"` + AllTools + `"`:
		return []string{AllTools}
	}
	return o.texts("tools", want, "no tool; leave the rule out, or name some")
}

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
	e.read(readObject(text, &err))
	return whole(e, err)
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
