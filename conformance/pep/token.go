package pep

import (
	"strings"
	"time"
)

// caller is the caller in the claims of a good token.
type caller struct {
	issuer, resource string // the signer of the tokens, and their audience
	claim            string // the claim that names the subject
	now              func() time.Time
}

// The caller of the profile's figures.
const (
	alice  = "alice@example.com"
	onHer  = "bob@example.com" // the value of another claim that is to name the subject
	carol  = "carol@example.com"
	client = "http://agentprovider.com/agent-app-id"
)

// subject is the id of the subject in every question.
func (c caller) subject() string {
	if c.claim == "sub" {
		return alice
	}
	return onHer
}

// claims are those of a good token.
func (c caller) claims() object {
	now := c.now().Unix()
	claims := object{
		"iss": c.issuer, "aud": c.resource, "iat": now - 10, "exp": now + 3600, "jti": "token-1",
		"client_id": client, "roles": []any{"treasury"}, "department": object{"name": "research"},
		"https://claims.example.com/level": 3,
	}
	claims[c.claim] = onHer
	claims["sub"] = alice
	return claims
}

// stranger is the audience of tokens that are for another server.
const stranger = "https://other.example.com"

// kinds are the tokens that cases send, by name. Those before "missing" are good.
func (c caller) kinds() map[string]func() (string, error) {
	change := func(changes object) func() (string, error) { // a good signature of other claims
		return func() (string, error) { return c.signed(nil, changes) }
	}
	header := func(changes object) func() (string, error) {
		return func() (string, error) { return c.signed(changes, nil) }
	}
	now := c.now().Unix()
	return map[string]func() (string, error){
		"good":           change(nil),
		"rs256":          c.bySealed(func() (sealed, error) { k, err := keys(); return byRSA(k.rsa), err }),
		"aud-array":      change(object{"aud": []any{stranger, c.resource}}),
		"aud-array-one":  change(object{"aud": []any{c.resource}}),
		"no-client":      change(object{"client_id": nil}),
		"no-roles":       change(object{"roles": []any{}}),
		"other-person":   change(object{c.claim: carol}),
		"visitor":        change(object{c.claim: carol}), // in the session of another person
		"subject-gone":   change(object{c.claim: nil}),
		"subject-null":   change(object{c.claim: jsonNull{}}),
		"subject-number": change(object{c.claim: 7}),

		"missing":           func() (string, error) { return "", nil },
		"garbage":           func() (string, error) { return "garbage", nil },
		"expired":           change(object{"exp": now - 3600}),
		"without-exp":       change(object{"exp": nil}),
		"not-yet":           change(object{"nbf": now + 3600}),
		"foreign-audience":  change(object{"aud": stranger}),
		"foreign-audiences": change(object{"aud": []any{stranger, c.resource + ".example"}}),
		"without-audience":  change(object{"aud": nil}),
		"longer-audience":   change(object{"aud": c.resource + "/other"}),
		"foreign-issuer":    change(object{"iss": "https://issuer.example.com"}),
		"without-issuer":    change(object{"iss": nil}),
		"unknown-critical":  header(object{"crit": []any{"x-conformance"}, "x-conformance": true}),
		"other-key":         c.bySealed(func() (sealed, error) { k, err := keys(); return byEC(k.stranger, nil), err }),
		"hs256":             c.bySealed(func() (sealed, error) { k, err := keys(); return byPublic(k.rsa), err }),
		"none":              c.bySealed(func() (sealed, error) { return unsigned("none"), nil }),
		"None":              c.bySealed(func() (sealed, error) { return unsigned("None"), nil }),
		"altered":           c.altered,
		"unsigned":          c.cut,
	}
}

// jsonNull is a claim that is there and null, where nil would take it away.
type jsonNull struct{}

// MarshalJSON writes null.
func (jsonNull) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

func (c caller) signed(header, changes object) (string, error) {
	k, err := keys()
	if err != nil {
		return "", err
	}
	return byEC(k.ec, header).token(with(c.claims(), changes))
}

func (c caller) bySealed(by func() (sealed, error)) func() (string, error) {
	return func() (string, error) {
		s, err := by()
		if err != nil {
			return "", err
		}
		return s.token(c.claims())
	}
}

// altered has claims that its signature is not of.
func (c caller) altered() (string, error) {
	first, err := c.signed(nil, nil)
	if err != nil {
		return "", err
	}
	second, err := c.signed(nil, object{c.claim: "mallory@example.com"})
	if err != nil {
		return "", err
	}
	mine, theirs := strings.Split(first, "."), strings.Split(second, ".")
	return mine[0] + "." + theirs[1] + "." + mine[2], nil
}

// cut has no signature.
func (c caller) cut() (string, error) {
	whole, err := c.signed(nil, nil)
	return whole[:strings.LastIndexByte(whole, '.')+1], err
}
