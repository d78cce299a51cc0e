package identity

import (
	"errors"
	"fmt"
	"time"

	"policy-service/evaluation"
)

// Claimed is the principal that claims would name in a valid token. Nothing is verified, so it must not let a request in: it
// shows how a gateway would decide. A fixed identity needs no claims, and takes none.
func Claimed(o Options, claims evaluation.Object) (*Principal, error) {
	i := &Identity{issuers: map[string]Issuer{}, now: time.Now}
	if err := i.readClaims(o); err != nil {
		return nil, err
	}
	if o.Static.Len() > 0 {
		if claims.Len() > 0 {
			return nil, errors.New("the configuration has identity.static, and a gateway with that reads no token; leave the claims out")
		}
		if err := i.fix(o); err != nil {
			return nil, err
		}
		return i.fixed, nil
	}
	issuer, _ := claims.Get("iss")
	for n, e := range o.Issuers {
		e = e.filled(o)
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", place, n, err)
		}
		if e.Issuer == issuer.Text() && issuer.Kind() == evaluation.String {
			sub, _ := claims.Get("sub")
			return i.holder(claims, e, sub.Text(), time.Time{})
		}
	}
	return nil, errors.New("the claim iss is none of identity.issuers; write one of these into the claims, byte for byte")
}
