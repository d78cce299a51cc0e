package coaz

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"policy-service/evaluation"
)

// claimOf reads [Options.SubjectClaim].
func claimOf(s string) (evaluation.ClaimPath, error) {
	path, err := evaluation.ParseClaimPath(cmp.Or(s, "sub"))
	if err != nil {
		return nil, fmt.Errorf("coaz: the subject claim %q: %w", s, err)
	}
	return path, nil
}

// identity is the value of the token's subject claim: a string that is not empty.
func (r *resolution) identity() (string, bool) {
	v, _ := r.mapping.binding.claim.In(r.op.Token)
	return v.Text(), v.Kind() == evaluation.String && v.Text() != ""
}

// claimNode is the claim that names the subject. It stands where the binding says $token.sub, which it wants read as
// the claim that the deployment designates.
type claimNode struct{ at string }

func (n claimNode) append(b []byte, r *resolution) ([]byte, bool, *Error) {
	who, ok := r.identity()
	if !ok {
		return b, false, r.fail(n.at, "the token has no claim that says who the subject is")
	}
	return appendQuoted(b, who), true, nil
}

// audienceNode is the identifier of this server. It stands where a default mapping says $token.aud.
type audienceNode struct{ at string }

func (n audienceNode) append(b []byte, r *resolution) ([]byte, bool, *Error) {
	aud, given := r.op.Token.Lookup("aud")
	server, err := audienceOf(aud, given, r.mapping.binding.resource)
	if err != nil {
		return b, false, r.fail(n.at, err.Error())
	}
	return appendQuoted(b, server), true, nil
}

// audienceOf resolves an audience to the one string that identifies this server.
func audienceOf(aud evaluation.Value, given bool, own string) (string, error) {
	var all []string
	switch aud.Kind() {
	case evaluation.String:
		all = []string{aud.Text()}
	case evaluation.Array:
		for _, v := range aud.Elements {
			if v.Kind() != evaluation.String {
				return "", errors.New("the token's audience holds something that is no string")
			}
			all = append(all, v.Text())
		}
	default:
		if given {
			return "", errors.New("the token's audience is neither a string nor an array of strings")
		}
	}
	if own == "" {
		if len(all) != 1 || all[0] == "" {
			return "", errors.New("the token does not have exactly one audience, and this server does not know its own identifier")
		}
		return all[0], nil
	}
	for _, one := range all {
		if one == own {
			return own, nil
		}
	}
	if given {
		return "", errors.New("the token is for another audience than this server")
	}
	return own, nil
}

// anchor holds the subjects of an envelope's requests to the token.
func (r *resolution) anchor(requests []evaluation.Request, at string) *Error {
	if r.mapping.author == operator {
		return nil
	}
	who, ok := r.identity()
	for _, q := range requests {
		if ok && q.Subject.ID == who {
			continue
		}
		if r.mapping.binding.override == RefuseOverride {
			return r.fail(at+"/subject/id", "the subject is not the one that the token names")
		}
		r.warnings = append(r.warnings, Warning{at + "/subject/id", "the subject is asserted by the mapping: it is not the one that the token names"})
		return nil
	}
	return nil
}

var tokenEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// escaped is one reference token of a JSON Pointer, with its slash.
func escaped(name string) string {
	return "/" + tokenEscapes.Replace(name)
}

func indexed(n int) string { return "/" + strconv.Itoa(n) }
