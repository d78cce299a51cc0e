package auth

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"policy-service/evaluation"
)

// ApproverToken is the header in which a gateway brings a token of the person that votes
// about an approval. Authorization has the gateway's own key, which must have the permission
// [Relay], and the token must be of an entry of the configuration that names that key (see
// [JWTIssuer]). Only both together are a vote: without the person's token the gateway has none, and
// the token alone is no credential, so that no program to which people give one approves with it.
//
// The header is not for every route. A server refuses it wherever it does not take it, and also if
// its authenticator passes the header over.
const ApproverToken = "Approver-Token"

// ApproverClient is the header in which a gateway that shows forms says, beside [ApproverToken], which client answered: the
// entity that the client is in questions of the gateway, as TYPE/ID, each of the two percent-encoded, or none if the token
// names no client.
const ApproverClient = "Approver-Client"

// mostClient bounds the header in bytes: it goes on record with each offer and each vote.
const mostClient = 2048

// relayed is the person whose token a gateway brought.
func (a *Authenticator) relayed(r *http.Request, gateway Caller, tokens []string) (Caller, error) {
	key, isKey := strings.CutPrefix(gateway.Name, keyCaller)
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if gateway.Relays == "" || !isKey || !strings.EqualFold(scheme, "Bearer") {
		return Caller{}, forbidden("the header Approver-Token counts only beside Authorization: Bearer with an API key that has the permission relay; leave it out, or send such a key")
	}
	token, err := oneToken(tokens)
	if err != nil {
		return Caller{}, err
	}
	if a.JWT == nil {
		return Caller{}, ofApprover(invalid("tokens are not taken here; the operator lists their issuer in auth.jwt"))
	}
	person, err := a.JWT.bearer(r.Context(), token, key, a.Console)
	if refused, ok := err.(*Refusal); ok {
		return Caller{}, ofApprover(refused)
	}
	if err != nil {
		return Caller{}, err
	}
	return person.through(gateway, r)
}

// oneToken is the value of the header [ApproverToken], if that is a token.
func oneToken(header []string) (string, error) {
	switch {
	case len(header) > 1:
		return "", ofApprover(invalid("it is given more than once; send one"))
	case header[0] == "" || strings.ContainsAny(header[0], " \t,"):
		return "", ofApprover(invalid("it cannot be read; send a token, with nothing before or behind it"))
	case strings.HasPrefix(header[0], KeyPrefix):
		return "", ofApprover(invalid("an API key is no token of a person; have the person send it in Authorization, without a gateway"))
	}
	return header[0], nil
}

// ofApprover says of a refusal that it is about the header Approver-Token, in words and in the
// challenge: the gateway's own key is good.
func ofApprover(r *Refusal) *Refusal {
	r.Detail, r.Challenge, r.Credential = "in the header Approver-Token, "+r.Detail, challengeApprover, ByToken
	return r
}

// client is the client that a gateway names, the zero Ref if the gateway does not say.
func client(gateway Caller, header []string) (c evaluation.Ref, err error) {
	if header == nil {
		return c, nil
	}
	typ, id, _ := strings.Cut(header[0], "/")
	c.Type, err = url.PathUnescape(typ)
	if err == nil {
		c.ID, err = url.PathUnescape(id)
	}
	named := c.Type != "" && c.ID != "" && utf8.ValidString(c.Type+c.ID) || header[0] == evaluation.NoClient.Type
	if err != nil || !named || len(header) > 1 || len(header[0]) > mostClient || gateway.Relays != evaluation.ViaForm {
		return c, forbidden(fmt.Sprintf("the header %s cannot be read here; send TYPE/ID once, each percent-encoded, or none, of at most %d bytes, and only for a form", ApproverClient, mostClient))
	}
	return c, nil
}

// through is a person where a gateway speaks for them in a request: neither may do more than the other.
func (c Caller) through(gateway Caller, r *http.Request) (Caller, error) {
	of, err := client(gateway, r.Header[ApproverClient])
	if err != nil {
		return Caller{}, err
	}
	c.Way = evaluation.Way{Via: gateway.Relays, Gateway: gateway.Name, Client: of}
	c.Apart = nil // it is always: such a person has one permission
	if gateway.AllTenants {
		return c, nil
	}
	shared := gateway.Tenants
	if !c.AllTenants {
		shared = slices.DeleteFunc(slices.Clone(c.Tenants), func(tenant string) bool { return !gateway.Serves(tenant) })
	}
	c.AllTenants, c.Tenants = false, shared
	return c, nil
}

// RelayInForce reports whether the vote of a person through a gateway may still count in a tenant: the
// gateway's key is in force and relays, and the issuer of the person's token is configured with that
// key and lets its people approve.
func (a *Authenticator) RelayInForce(tenant, caller, gateway string) bool {
	key, isKey := strings.CutPrefix(gateway, keyCaller)
	holder, isToken := strings.CutPrefix(caller, tokenCaller)
	return isKey && isToken && key != "" && a.Keys != nil && a.Keys.Holds(tenant, key, Relay) && a.JWT.lets(tenant, holder, key)
}

// Persons are the values that context.person may have for the holder of a credential, by the caller's name: by the issuer
// of the token, if it is one, and by each issuer in force of whose persons the entity is one, with its id as the subject.
// So people with two credentials do not decide by the one about a question that is asked for them by the other.
func (a *Authenticator) Persons(caller string, entity Principal) (all []string) {
	if person := evaluation.PersonOfCaller(caller); person != "" {
		all = append(all, person)
	}
	for _, j := range a.tokens() {
		for _, i := range j.issuers {
			if p := i.Principal; p != nil && p.Type == entity.Type && p.Claim == subjectClaim {
				all = append(all, evaluation.PersonOf(i.Issuer, entity.ID))
			}
		}
	}
	return all
}

// subjectClaim is the claim by which an issuer names persons.
const subjectClaim = "sub"

// Unbarred is an error if the holders of other credentials may decide about questions that are asked for them by a token
// of this issuer, because an entity does not show which of its persons it is.
func (i JWTIssuer) Unbarred() error {
	if i.Principal == nil || i.Principal.Claim == subjectClaim || len(i.RelayedBy) == 0 && !i.approves() {
		return nil
	}
	return fmt.Errorf("principal.claim is %q and not sub: whoever approves by an API key as a %s is not barred from what a gateway asks for them by a token of %s; "+
		"write the names of one person into identities of the entity, or take sub", i.Principal.Claim, i.Principal.Type, i.Issuer)
}
