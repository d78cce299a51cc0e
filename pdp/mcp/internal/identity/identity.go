// Package identity finds out for whom an MCP request is: by its bearer token alone, or by the identity that an operator
// fixed for a gateway that only one machine or process can reach.
//
// Begin with [New] and [Identity.Authenticate], which gives a [Principal] or says why there is none. [Identity.Metadata]
// leads clients to a token.
//
// The package refuses to guess. A token is taken from the header Authorization and from nowhere else, a bad one is never
// passed over for none, and no issuer can name an entity of another. No token, and nothing of one, is in its texts.
package identity

import (
	"cmp"
	"context"
	"errors"
	"time"

	"policy-service/evaluation"
)

// Principal is the party that a request is for. Everything that is kept for a principal is kept by Key.
type Principal struct {
	// Issuer, Subject and Client are the claims iss, that which names the subject, and client_id. Client may be "".
	Issuer, Subject, Client string
	// Key is a digest of the three and of sub, and of nothing else: the same sub of another issuer is another principal, and so
	// is the same actor for another person.
	Key string
	// Person is the protocol member context.person of questions: the person's identity, whatever policies call them. "" if a
	// fixed identity names no issuer.
	Person string
	// Tenant is where questions are asked, by its name, also if it is the default. It is never a claim.
	Tenant string
	// User is the entity of the subject: its type and id as the issuer's entry in the configuration has them. Agent is that
	// of the client, and the zero value without a client_id.
	User, Agent Entity
	// Claims are all claims of the token as they stand in it.
	Claims evaluation.Object
	// Token is the access token itself, and Expires when it ends. A fixed identity has the token given for it, or "", and
	// does not end.
	Token   string
	Expires time.Time

	agentType, idPrefix string // of the issuer's clients, and of all its entities
	bySub               Entity // the person by sub, if the claim that names the subject is one of the actor
	now                 func() time.Time
}

// Account is by what shares are counted: the person, by all clients, or the key of a client without a person.
func (p *Principal) Account() string { return cmp.Or(p.Person, p.Key) }

// Participant is whoever acts, as questions have it: the client, or the user without one.
func (p *Principal) Participant() evaluation.Ref {
	acts := p.User
	if p.Agent.ID != "" {
		acts = p.Agent
	}
	return evaluation.Ref{Type: acts.Type, ID: acts.ID}
}

// Entity is a type and an id.
type Entity struct{ Type, ID string }

// ErrExpired is the cause of a context that ended with its principal's token.
var ErrExpired = errors.New("the access token has expired")

// Context ends with the token of the principal, at the latest. A stream stays open for as long as its principal may ask.
func (p *Principal) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.Expires.IsZero() {
		return context.WithCancel(ctx)
	}
	now := time.Now
	if p.now != nil {
		now = p.now
	}
	return context.WithTimeoutCause(ctx, p.Expires.Sub(now()), ErrExpired)
}
