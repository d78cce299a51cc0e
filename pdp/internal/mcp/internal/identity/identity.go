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
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server/auth"
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
func (p *Principal) Participant() Entity {
	if p.Agent.ID != "" {
		return p.Agent
	}
	return p.User
}

// Entity is a type and an id.
type Entity = evaluation.Ref

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

// principal is the principal that a verified token names.
func (i *Identity) principal(t auth.Token) (*Principal, error) {
	e, known := i.issuers[t.Issuer]
	now := i.now()
	switch {
	case !known:
		return nil, errors.New("the token is not valid here; get one from an issuer that this service knows")
	case !now.Before(t.Expires): // a stream that is open ends just then
		return nil, errors.New("the token has expired; get a new one")
	case t.Login:
		return nil, errors.New("the token is an ID token, which gives access to nothing; send an access token")
	}
	return i.holder(t.Claims, e, t.Subject, t.Expires)
}

// holder is whom the claims of an issuer's access token name. Sub is the claim of that name.
func (i *Identity) holder(claims evaluation.Object, e Issuer, sub string, expires time.Time) (*Principal, error) {
	// RFC 7800: the token is bound to the holder of a key, by DPoP or TLS. Without the proof it could be anybody's.
	if _, bound := claims.Get("cnf"); bound {
		return nil, errors.New("the token is bound to a key, for which this gateway takes no proof; get a plain bearer token")
	}
	p, err := i.named(claims, e)
	if err != nil {
		return nil, err
	}
	p.Issuer, p.Expires, p.now = e.Issuer, expires, i.now
	p.Person = evaluation.PersonOf(e.Issuer, sub)
	p.Key = keyOf(e.Issuer, sub, p.Subject, p.Client)
	return p, nil
}

func (i *Identity) named(claims evaluation.Object, e Issuer) (*Principal, error) {
	p := &Principal{Tenant: e.Tenant, Claims: claims, agentType: e.AgentType, idPrefix: e.IDPrefix}
	var ok bool
	if p.Subject, ok = textOf(i.subject, claims); !ok {
		return nil, errors.New("the token does not say whose it is; have its issuer set the claim " + strings.Join(i.subject, "/") + " to a text")
	}
	p.User = Entity{Type: e.SubjectType, ID: e.IDPrefix + p.Subject}
	if sub, ok := textOf(evaluation.ClaimPath{"sub"}, claims); ok && i.subject[0] == actMember {
		p.bySub = Entity{Type: e.SubjectType, ID: e.IDPrefix + sub}
	}
	for _, path := range i.agent {
		if _, there := path.In(claims); !there {
			continue
		}
		client, ok := textOf(path, claims)
		if !ok || p.Client != "" && p.Client != client {
			return nil, errors.New("the token does not say plainly which client it is for; have its issuer set " + i.agentClaims() + " to a text")
		}
		p.Client, p.Agent = client, Entity{Type: e.AgentType, ID: e.IDPrefix + client}
	}
	return p, nil
}

// textOf is a claim that is a name.
func textOf(path evaluation.ClaimPath, claims evaluation.Object) (string, bool) {
	v, _ := path.In(claims)
	return v.Text(), v.Kind() == evaluation.String && isName(v.Text())
}

// keyOf is a digest of texts, each behind its length, so that no two lists of texts are written alike.
func keyOf(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(text)))) // a hash takes everything
		_, _ = h.Write([]byte(text))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// agentClaims are the claims that name the client, for people.
func (i *Identity) agentClaims() string {
	if len(i.agent) > 1 {
		return "client_id or azp, or both,"
	}
	return "the claim " + strings.Join(i.agent[0], "/")
}

// actMember is RFC 8693's claim for the actor, in which it occurs again for the actor before.
const actMember = "act"

// OnBehalfOf are all entities behind a question whose subject is the agent, or the user if there is no agent: the actors of
// the claim act, the last one first, and then the person. If the configuration takes an actor for the subject, that actor is
// there as both, and the person behind is the last. It fails if the claim has another form than RFC 8693 gives it: then the
// actor is not known.
func (p *Principal) OnBehalfOf() ([]Entity, error) {
	names, ok := auth.Actors(p.Claims, p.Issuer)
	if !ok {
		return nil, errors.New("the token's claim act is no chain of actors that this gateway can read: each has sub, perhaps the token's own iss, perhaps act, and nothing else")
	}
	var all, chain []Entity
	for _, name := range names { // the actors are of the type that clients have
		all = append(all, Entity{Type: cmp.Or(p.agentType, p.Agent.Type, "agent"), ID: p.idPrefix + name})
	}
	subject := p.Participant()
	for _, e := range append(all, p.User, p.bySub) {
		if e != subject && e != (Entity{}) && !slices.Contains(chain, e) {
			chain = append(chain, e)
		}
	}
	return chain, nil
}
