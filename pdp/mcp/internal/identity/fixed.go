package identity

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp/server/auth"
)

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
