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
	pointer, isPointer := strings.CutPrefix(text, "/")
	if !isPointer {
		return ClaimPath{text}, nil
	}
	path := strings.Split(pointer, "/")
	for n, token := range path {
		unescaped, ok := unescapeToken(token)
		if !ok {
			return nil, errors.New("it is no JSON Pointer: ~ is not followed by 0 or 1")
		}
		path[n] = unescaped
	}
	return path, nil
}

// unescapeToken reads one reference token of a JSON Pointer.
func unescapeToken(token string) (string, bool) {
	for rest := token; ; {
		_, after, found := strings.Cut(rest, "~")
		if !found {
			return strings.NewReplacer("~1", "/", "~0", "~").Replace(token), true
		}
		if after == "" || after[0] != '0' && after[0] != '1' {
			return "", false
		}
		rest = after
	}
}

// In returns the claim, if the token has it.
func (p ClaimPath) In(claims Object) (Value, bool) {
	v, there := claims.Value(), false
	for _, name := range p {
		v, there = v.Object().Get(name)
	}
	return v, there
}
