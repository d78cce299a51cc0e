package identity

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/server/auth"
)

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

// named reads the subject and the client from claims.
func (i *Identity) named(claims evaluation.Object, e Issuer) (*Principal, error) {
	p := &Principal{Tenant: e.Tenant, Claims: claims, agentType: e.AgentType, idPrefix: e.IDPrefix}
	var ok bool
	if p.Subject, ok = textOf(i.subject, claims); !ok {
		return nil, errors.New("the token does not say whose it is; have its issuer set the claim " + strings.Join(i.subject, "/") + " to a text")
	}
	p.User = Entity{e.SubjectType, e.IDPrefix + p.Subject}
	if sub, ok := textOf(evaluation.ClaimPath{"sub"}, claims); ok && i.subject[0] == actMember {
		p.bySub = Entity{e.SubjectType, e.IDPrefix + sub}
	}
	for _, path := range i.agent {
		if _, there := path.In(claims); !there {
			continue
		}
		client, ok := textOf(path, claims)
		if !ok || p.Client != "" && p.Client != client {
			return nil, errors.New("the token does not say plainly which client it is for; have its issuer set " + i.agentClaims() + " to a text")
		}
		p.Client, p.Agent = client, Entity{e.AgentType, e.IDPrefix + client}
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
