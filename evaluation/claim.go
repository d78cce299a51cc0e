package evaluation

import (
	"errors"
	"strings"
)

// ClaimPath leads to a claim of a token: the names of the members on the way.
type ClaimPath []string

// ParseClaimPath reads how a configuration names a claim: by its name, or by a JSON Pointer, which begins with a slash.
func ParseClaimPath(text string) (ClaimPath, error) {
	if text == "" {
		return nil, errors.New("it names no claim")
	}
	if !strings.HasPrefix(text, "/") {
		return ClaimPath{text}, nil
	}
	if !escaped(text) {
		return nil, errors.New("it is no JSON Pointer: ~ is not followed by 0 or 1")
	}
	return Tokens(text), nil
}

// In returns the claim, if the token has it.
func (p ClaimPath) In(claims Object) (Value, bool) {
	v, there := claims.Value(), false
	for _, name := range p {
		v, there = v.Object().Get(name)
	}
	return v, there
}
