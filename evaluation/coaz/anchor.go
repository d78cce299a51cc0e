package coaz

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"policy-service/evaluation"
)

// claimPath leads to a claim of a token: the names of the members on the way.
type claimPath []string

// claimOf reads [Options.SubjectClaim].
func claimOf(s string) (claimPath, error) {
	if s == "" {
		return claimPath{"sub"}, nil
	}
	if s[0] != '/' {
		return claimPath{s}, nil
	}
	path := strings.Split(s[1:], "/")
	for n, token := range path {
		unescaped, ok := unescape(token)
		if !ok {
			return nil, fmt.Errorf("coaz: the subject claim %q is no JSON Pointer: ~ is not followed by 0 or 1", s)
		}
		path[n] = unescaped
	}
	return path, nil
}

func unescape(token string) (string, bool) {
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

// in returns the claim, if it names somebody: a string that is not empty.
func (p claimPath) in(token evaluation.Object) (string, bool) {
	v := token.Value()
	for _, name := range p {
		v, _ = v.Object().Get(name)
	}
	return v.Text(), v.Kind() == evaluation.String && v.Text() != ""
}

// claimNode is the claim that names the subject. It stands where the binding says $token.sub, which it wants read as
// the claim that the deployment designates.
type claimNode struct{ at string }

func (n claimNode) append(b []byte, r *resolution) ([]byte, bool, *Error) {
	who, ok := r.mapping.binding.claim.in(r.op.Token)
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
	who, ok := r.mapping.binding.claim.in(r.op.Token)
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

// escaped is one reference token of a JSON Pointer, with its slash.
func escaped(name string) string {
	return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

func indexed(n int) string { return "/" + strconv.Itoa(n) }
