package auth

import (
	"errors"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// PrincipalClaim says which entity the holder of an issuer's token is to policies.
// Whoever can have the issuer write the claim can be every entity of the type.
type PrincipalClaim struct {
	Type  string `yaml:"type" required:"yes" doc:"The type of the entity, as policies write it, with the namespace of the bundle if it has one."`
	Claim string `yaml:"claim" required:"yes" doc:"The claim that is the id of the entity, such as sub: text of 1 to 256 bytes. If a token has anything else there, its holder is no entity and approves nothing."`
}

// maxClaim bounds the id that a token gives.
const maxClaim = 256

func (c *PrincipalClaim) check() error {
	switch {
	case c == nil:
	case !isTypeName(c.Type):
		return errors.New("principal.type is missing or no type of principals; write it as policies do, such as User")
	case !isName(c.Claim):
		return errors.New("principal.claim is missing or not printable; write the name of the claim, such as sub")
	}
	return nil
}

// of is the holder of a verified token, or none. Its claims are read once more and
// strictly: a reader that mends text that is no UTF-8 makes one id of two.
func (c *PrincipalClaim) of(token *jwt.JSONWebToken) Principal {
	if c == nil {
		return Principal{}
	}
	var payload jsontext.Value
	if token.UnsafeClaimsWithoutVerification(&payload) != nil {
		return Principal{}
	}
	var claims map[string]jsontext.Value
	if json.Unmarshal(payload, &claims) != nil {
		return Principal{}
	}
	var id string
	if json.Unmarshal(claims[c.Claim], &id) != nil || len(id) > maxClaim {
		return Principal{}
	}
	holder := Principal{c.Type, id}
	if holder.check() != nil {
		return Principal{}
	}
	return holder
}
