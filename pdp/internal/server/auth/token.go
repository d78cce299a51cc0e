package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/recent"
)

// Token are the claims of a verified token.
type Token struct {
	// Issuer and Subject are the claims iss and sub.
	Issuer, Subject string
	// Expires is the claim exp. Clocks may be apart, so a token is verified for a minute longer.
	Expires time.Time
	// Login reports that it is an ID token, which informs a client of a login and is not meant to give access.
	Login bool
	// Claims are all claims as they stand in the token, those that are null among them.
	Claims evaluation.Object
	// Digest is that of the token's text.
	Digest recent.Digest
}

// Claims verifies a token that came by itself, for callers that need all its claims. The claims of a token never change, so
// they are read once; its key and its time are looked at each time.
func (j *JWT) Claims(ctx context.Context, text string) (Token, error) {
	sum := recent.Digest(sha256.Sum256([]byte(text)))
	if known, ok := j.read.Get(sum); ok {
		if err := known.verify(ctx, j.now(), way{}); err != nil {
			return Token{}, err
		}
		return known.token, nil
	}
	v, err := j.verified(ctx, text, way{})
	if err != nil {
		return Token{}, err
	}
	token, err := v.read()
	if err == nil && len(text) <= maxRemembered {
		j.read.Put(sum, readToken{v, token}, maxRead)
	}
	return token, err
}

// readToken is a verified token that was read.
type readToken struct {
	verified
	token Token
}

// maxRead is how many are kept of each of two generations, and maxRemembered how large one may be: read, it is some times
// as large. Only tokens that an issuer signs fill it.
const (
	maxRead       = 1024
	maxRemembered = 4 << 10
)

// read reads a verified token once more and strictly: a reader that mends text that is no UTF-8 makes one name of two.
func (v verified) read() (Token, error) {
	var payload jsontext.Value
	if v.token.UnsafeClaimsWithoutVerification(&payload) != nil {
		return Token{}, notOurs()
	}
	claims, err := evaluation.ParseWithNulls(payload, evaluation.DefaultLimits())
	if err != nil {
		return Token{}, invalid("the token's claims have a form that not every reader reads alike, or are too many; have its issuer write fewer and plainer ones")
	}
	return Token{
		Issuer: v.claims.Issuer, Subject: v.claims.Subject, Expires: v.claims.Expiry.Time(),
		Login: isLogin(v.token.Headers[0], claims), Claims: claims, Digest: v.sum,
	}, nil
}

// isLogin separates ID tokens from access tokens. RFC 9068 gives access tokens a typ of their own. Without it, some issuers
// have a claim for it: Keycloak typ, Cognito token_use. Without that, a claim decides that OpenID Connect has for ID tokens
// alone. An ID token with none of these looks like an access token, and its audience refuses it: that is a client.
func isLogin(h jose.Header, claims evaluation.Object) bool {
	if typ, _ := h.ExtraHeaders[jose.HeaderType].(string); isAccessTyp(typ) {
		return false
	}
	for _, name := range []string{"typ", "token_use"} {
		said, _ := claims.Lookup(name)
		switch strings.ToLower(said.Text()) {
		case "bearer", "dpop", "access":
			return false
		case "id":
			return true
		}
	}
	return slices.ContainsFunc([]string{"nonce", "at_hash", "c_hash", "s_hash"}, func(name string) bool {
		_, there := claims.Lookup(name)
		return there
	})
}

// isAccessTyp reports whether a header typ is that of RFC 9068.
func isAccessTyp(typ string) bool {
	return strings.TrimPrefix(strings.ToLower(typ), "application/") == accessTyp
}

const accessTyp = "at+jwt"

// verified is a token that an issuer's entry claims, with its claims.
type verified struct {
	issuer *issuer
	token  *jwt.JSONWebToken
	claims jwt.Claims
	sum    recent.Digest
}

// way is how a token came: by itself, beside a key of that name, or to be exchanged.
type way struct {
	key      string
	exchange bool
}

// verified verifies a token.
func (j *JWT) verified(ctx context.Context, token string, came way) (v verified, err error) {
	v.token, err = jwt.ParseSigned(token, j.algorithms)
	if err != nil || len(v.token.Headers) != 1 {
		return v, notOurs()
	}
	typ, plain := plainHeader(v.token.Headers[0])
	if !plain {
		return v, notOurs()
	}
	// The claims are not believed before the signature is verified.
	if err := v.token.UnsafeClaimsWithoutVerification(&v.claims); err != nil {
		return v, notOurs()
	}
	v.issuer = j.issuer(v.claims, came)
	if v.issuer == nil || !slices.Contains(v.issuer.Algorithms, v.token.Headers[0].Algorithm) || !v.issuer.takes(typ) {
		return v, notOurs()
	}
	v.sum = sha256.Sum256([]byte(token))
	return v, v.verify(ctx, j.now(), came)
}

// verify checks the signature of a token, and all that may be otherwise at another time.
func (v verified) verify(ctx context.Context, now time.Time, came way) error {
	if err := v.issuer.verify(ctx, v.sum, v.token); err != nil {
		return err
	}
	return cmp.Or(v.issuer.accept(v.claims, now), v.issuer.counts(came))
}
