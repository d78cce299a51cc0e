package identity

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server/auth"
)

// Challenge is the answer to a request without a principal.
type Challenge struct {
	// Status is that of the answer: 401, or 403 where no token would help.
	Status int
	// Header is the value of WWW-Authenticate; "" for none.
	Header string
	// Detail names the fault and a remedy. It is made of fixed texts.
	Detail string
}

// maxToken bounds a token. It is longer than issuers' tokens, and short enough to be cheap to refuse.
const maxToken = 16 << 10

// Authenticate says for whom a request is. Exactly one of the results is nil.
func (i *Identity) Authenticate(r *http.Request) (*Principal, *Challenge) {
	if i.fixed != nil {
		return i.local(r)
	}
	token, challenge := i.bearer(r)
	if challenge != nil {
		return nil, challenge
	}
	p, err := i.Holder(r.Context(), token)
	if err != nil {
		return nil, i.invalid(err.Error())
	}
	return p, nil
}

// Holder is whose a token is, wherever it came from. The error says nothing of the token.
func (i *Identity) Holder(ctx context.Context, token string) (*Principal, error) {
	if p := i.fixed; p != nil {
		if p.Token == "" || subtle.ConstantTimeCompare([]byte(p.Token), []byte(token)) != 1 {
			return nil, errors.New("the token is not valid here: this gateway has a fixed identity, and takes no tokens")
		}
		return p, nil
	}
	verified, err := i.tokens.Claims(ctx, token)
	if err != nil {
		if refused, ok := errors.AsType[*auth.Refusal](err); ok {
			return nil, errors.New(refused.Detail)
		}
		return nil, errors.New("the token is not valid here")
	}
	p, err := i.principal(verified)
	if err != nil {
		return nil, err
	}
	p.Token = token
	return p, nil
}

// Believes reports whether a subject of an issuer may count in a tenant, by the configuration.
func (i *Identity) Believes(tenant, issuer, sub string) bool {
	if p := i.fixed; p != nil {
		own, _ := textOf(evaluation.ClaimPath{"sub"}, p.Claims)
		return p.Person != "" && p.Tenant == tenant && p.Issuer == issuer && own == sub
	}
	e, known := i.issuers[issuer]
	return known && e.Tenant == tenant
}

// bearer takes the token from where alone it may be.
func (i *Identity) bearer(r *http.Request) (string, *Challenge) {
	headers := r.Header["Authorization"]
	switch {
	case tokenInQuery(r.URL):
		return "", i.invalid("the address has a token, and addresses are written to logs; send it in Authorization: Bearer alone, and have this one revoked")
	case len(headers) == 0:
		return "", &Challenge{http.StatusUnauthorized, i.challenge(""), "this needs a token; send Authorization: Bearer with an access token for " + i.resource.id}
	case len(headers) > 1:
		return "", i.invalid("the Authorization header is given more than once; send one")
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	token = strings.TrimLeft(token, " ")
	switch {
	case !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsAny(token, " \t,"):
		return "", i.invalid("the Authorization header cannot be read; send Bearer and one access token")
	case len(token) > maxToken:
		return "", i.invalid("the token is larger than 16 KiB; have its issuer write fewer claims")
	}
	return token, nil
}

// tokenInQuery reports whether an address has RFC 6750's parameter in it, in whatever spelling: it is looked for, not read.
func tokenInQuery(u *url.URL) bool {
	query, err := url.QueryUnescape(u.RawQuery)
	if err != nil {
		query = u.RawQuery
	}
	return strings.Contains(strings.ToLower(query), "access_token")
}

func (i *Identity) invalid(detail string) *Challenge {
	return &Challenge{http.StatusUnauthorized, i.challenge(`, error="invalid_token"`), detail}
}

// challenge leads a client to the metadata on how to get a token.
func (i *Identity) challenge(more string) string {
	if len(i.scopes) > 0 {
		more += `, scope="` + strings.Join(i.scopes, " ") + `"`
	}
	return `Bearer resource_metadata="` + i.resource.metadata + `"` + more
}

// fix makes the fixed identity of a gateway that asks for no token of an issuer.
func (i *Identity) fix(o Options) error {
	e := Issuer{}.filled(o)
	if err := e.check(); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	if !o.Private {
		return errors.New("identity.static: everybody who reaches the gateway would be this person, and it listens on more than loopback; listen on 127.0.0.1, or list issuers")
	}
	p, err := i.named(o.Static, e)
	if err != nil {
		return errors.New("identity.static: the claims do not say whose they are; add sub, and client_id for the client, each a text")
	}
	sub, _ := textOf(evaluation.ClaimPath{"sub"}, o.Static)
	if issuer, given := o.Static.Get("iss"); given {
		if p.Issuer = issuer.Text(); issuer.Kind() != evaluation.String || !isName(p.Issuer) || strings.Contains(p.Issuer, "#") || sub == "" {
			return errors.New("identity.static: iss is given, and it is not the text of an issuer, or sub is missing beside it; write both as that issuer does in its tokens, or leave iss out")
		}
		p.Person = evaluation.PersonOf(p.Issuer, sub)
	}
	p.Token, p.Key = o.StaticToken, keyOf(p.Issuer, sub, p.Subject, p.Client)
	i.fixed = p
	return nil
}

// Fixed is the fixed identity, and nil if requests bring tokens.
func (i *Identity) Fixed() *Principal { return i.fixed }

// local is the fixed identity, for a request of this machine. A proxy is on this machine too, and so is a page in a
// browser: [auth.Loopback] refuses both. Authorization is not read.
func (i *Identity) local(r *http.Request) (*Principal, *Challenge) {
	if _, err := (auth.Loopback{}).Authenticate(r); errors.Is(err, auth.ErrForwarded) {
		return nil, &Challenge{Status: http.StatusForbidden, Detail: "this gateway has a fixed identity for this machine, and the request has been forwarded by a proxy; list issuers in its configuration"}
	} else if err != nil {
		return nil, &Challenge{Status: http.StatusForbidden, Detail: "this gateway has a fixed identity for this machine; send requests to localhost, 127.0.0.1 or [::1]"}
	}
	return i.fixed, nil
}
