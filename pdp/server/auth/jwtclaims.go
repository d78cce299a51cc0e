package auth

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
)

// clockSkew is how far the clocks of issuer and service may be apart.
const clockSkew = 60 * time.Second

// verify checks the signature of a token that was parsed. The claims were read from
// the very bytes that it covers.
func (i *issuer) verify(ctx context.Context, text string, token *jwt.JSONWebToken) error {
	header := token.Headers[0]
	keys, err := i.source.keys(ctx, fits(header.KeyID, header.Algorithm))
	if err != nil {
		return invalid("the token cannot be checked at the moment; ask again later")
	}
	for _, key := range keys {
		if i.signed.by(key.Key, text, func() bool { return token.Claims(key.Key, &jwt.Claims{}) == nil }) {
			return nil
		}
	}
	return notOurs()
}

// accept checks what a verified token says.
func (i *issuer) accept(claims jwt.Claims, now time.Time) error {
	if claims.Expiry == nil {
		return invalid("the token never expires; have its issuer set exp")
	}
	if claims.Subject == "" || len(claims.Subject) > 1024 || strings.ContainsFunc(claims.Subject, unprintable) {
		return invalid("the token does not say whose it is; have its issuer set sub")
	}
	err := claims.ValidateWithLeeway(jwt.Expected{Issuer: i.Issuer, AnyAudience: jwt.Audience{i.Audience}, Time: now}, clockSkew)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jwt.ErrExpired):
		return invalid("the token has expired; get a new one")
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return invalid("the token is not valid yet; use it later, or compare the clocks")
	case errors.Is(err, jwt.ErrInvalidAudience):
		return invalid("the token is for another audience; get one for this service")
	}
	return notOurs()
}
