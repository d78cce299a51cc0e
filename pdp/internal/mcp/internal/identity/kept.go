package identity

import (
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// Kept is a principal for another gateway with the same configuration.
type Kept struct {
	Key     string         `json:"key"`
	Issuer  string         `json:"iss"`
	Claims  jsontext.Value `json:"claims"`
	Token   string         `json:"token,omitzero"`
	Expires time.Time      `json:"exp,omitzero"`
}

// Keep is the principal for another gateway. It has the token, so it is to be sealed.
func (p *Principal) Keep() (Kept, error) {
	claims, err := p.Claims.MarshalJSON()
	return Kept{Key: p.Key, Issuer: p.Issuer, Claims: claims, Token: p.Token, Expires: p.Expires}, err
}

// Again is the principal that another gateway has kept, as the configuration here reads its claims. They are not verified again:
// the caller knows that such a gateway wrote them.
func (i *Identity) Again(k Kept) (*Principal, error) {
	p := i.fixed
	if p == nil {
		claims, err := evaluation.ParseObject(k.Claims, evaluation.DefaultLimits())
		if err != nil {
			return nil, err
		}
		e, known := i.issuers[k.Issuer]
		if !known {
			return nil, errors.New("the issuer of the principal is not known here")
		}
		sub, _ := textOf(evaluation.ClaimPath{"sub"}, claims)
		if p, err = i.holder(claims, e, sub, k.Expires); err != nil {
			return nil, err
		}
		p.Token = k.Token
	}
	if p.Key != k.Key {
		return nil, errors.New("the principal is another one by the configuration here")
	}
	return p, nil
}
