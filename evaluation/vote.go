package evaluation

import (
	"cmp"
	"strings"
)

// Via is the way by which a vote on an approval request came. The PDP knows it by the
// credentials that came with the vote, and never by a request.
type Via string

// The ways by which votes come.
const (
	// ViaAPI is a credential of the person's own, and nothing else.
	ViaAPI Via = "api"
	// ViaConsole is a console for approvers, which the person has logged in to.
	ViaConsole Via = "console"
	// ViaForm is a form that a gateway showed the person, perhaps in the client of the person's own agent.
	ViaForm Via = "form"
)

// Way says how a vote came. Policies about approval.decide see it as context.via, context.gateway and
// context.client. The zero value is a vote by the API.
type Way struct {
	Via Via
	// Gateway is the caller that relayed the vote, "" if none did.
	Gateway string
	// Client is the client of a person that answered a form, by the word of the gateway: the entity that it would be in a
	// question of the gateway, or [NoClient]. It is the zero Ref if the gateway did not say, and for every other way.
	Client Ref
}

// NoClient is the client of a form that was answered with a token which names no client.
var NoClient = Ref{Type: "none"}

// Members of the context of approval.decide. Only the PDP asks by which way a vote came, so they
// are ordinary members in any other question.
const (
	ViaMember     = "via"
	GatewayMember = "gateway"
	ClientMember  = "client"
)

// Context has the way as policies see it.
func (w Way) Context() Object {
	text := func(s string) Value { return Value{kind: String, text: strings.ToValidUTF8(s, "\uFFFD")} }
	context := Object{}.With(ViaMember, text(string(cmp.Or(w.Via, ViaAPI))))
	if w.Gateway != "" {
		context = context.With(GatewayMember, text(w.Gateway))
	}
	if w.Client.ID != "" {
		client := Object{}.With("type", text(w.Client.Type)).With("id", text(w.Client.ID))
		context = context.With(ClientMember, client.Value())
	}
	return context
}
