package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"policy-service/evaluation"
	"policy-service/evaluation/recent"
)

// JWT verifies bearer tokens.
type JWT struct {
	issuers    []issuer
	algorithms []jose.SignatureAlgorithm // of all issuers
	now        func() time.Time
	read       recent.Texts[readToken]
}

type issuer struct {
	JWTIssuer
	source *keySet
	signed *signatures
}

// JWTOptions are the options of tests and of the server; the zero value works.
type JWTOptions struct {
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger takes failures to get keys; nil discards them.
	Logger *slog.Logger
	// Transport carries discovery; nil is that of net/http.
	Transport http.RoundTripper
	// Before is the JWT that the new one replaces: of an issuer that stays, keys that are known stay known, so that
	// callers get in also while it is down.
	Before *JWT
	// Place is where the configuration has the issuers, for errors; "" is auth.jwt.
	Place string
}

func (o JWTOptions) withDefaults() JWTOptions {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Place = cmp.Or(o.Place, "auth.jwt")
	return o
}

// NewJWT checks a configuration and reads its jwks_files. Discovery comes with
// the first token, or with [JWT.Warm]. An issuer may occur again for another
// audience; a token that has both is taken by the first.
func NewJWT(issuers []JWTIssuer, options JWTOptions) (*JWT, error) {
	options = options.withDefaults()
	j := &JWT{now: options.Now}
	client := keyClient(options.Transport)
	var errs []error
	for i, config := range issuers {
		err := config.check()
		if err == nil && slices.ContainsFunc(issuers[:i], config.same) {
			err = errors.New("one before has the same issuer and audience; delete one of them")
		}
		var source *keySet
		if err == nil {
			source, err = options.Before.source(config, client, options)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", options.Place, i, err))
			continue
		}
		j.add(config, source)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return j, nil
}

func (j *JWT) add(config JWTIssuer, source *keySet) {
	j.issuers = append(j.issuers, issuer{config, source, &signatures{}})
	for _, name := range config.Algorithms {
		j.algorithms = append(j.algorithms, jose.SignatureAlgorithm(name))
	}
}

// source has the keys of an issuer: those known already, where it is there already.
func (j *JWT) source(config JWTIssuer, client *http.Client, options JWTOptions) (*keySet, error) {
	if j != nil {
		for _, known := range j.issuers {
			if known.Issuer == config.Issuer && known.JWKSFile == config.JWKSFile {
				return known.source, nil
			}
		}
	}
	return newKeySet(config, client, options)
}

// HaveKeys loads the keys of all issuers, and returns for each the reason why none of its tokens could be verified; nil if
// they can. It is for a look before anything depends on it.
func (j *JWT) HaveKeys(ctx context.Context) []error {
	errs := make([]error, len(j.issuers))
	var all sync.WaitGroup
	for n, issuer := range j.issuers {
		all.Go(func() {
			keys, err := issuer.source.keys(ctx, func(jose.JSONWebKey) bool { return true })
			if err == nil && len(keys) == 0 {
				err = errors.New("the issuer has no key that can be used")
			}
			errs[n] = err
		})
	}
	all.Wait()
	return errs
}

// Warm loads the keys of all issuers, so that a mistake shows in the log at the start and the first caller does not wait. A
// failure is not an error: an issuer that is down comes back.
func (j *JWT) Warm(ctx context.Context) { j.HaveKeys(ctx) }

// bearer is the caller of a bearer token, which came by itself or beside the key of that name. Its error is a [*Refusal],
// and gives the reason only to the issuer's own callers: others see one text. console's tokens are no bearer tokens.
func (j *JWT) bearer(ctx context.Context, token, key string, console *Console) (Caller, error) {
	v, err := j.verified(ctx, token, way{key: key})
	if err == nil {
		err = console.owns(v.claims)
	}
	if err != nil {
		return Caller{}, err
	}
	return v.holder()
}

// holder is whose verified token it is.
func (v verified) holder() (Caller, error) {
	var claims evaluation.Object
	if v.issuer.Grants != nil || v.issuer.Principal != nil {
		token, err := v.read()
		if err != nil {
			return Caller{}, err
		}
		claims = token.Claims
	}
	return v.issuer.holder(v.claims.Issuer, v.claims.Subject, claims), nil
}

func notOurs() *Refusal {
	return invalid("the token is not valid here; get one from an issuer that this service knows")
}

// plainHeader refuses extensions, none of which are known here, and returns the typ in small letters, "" if there is none.
func plainHeader(h jose.Header) (typ string, plain bool) {
	for _, extension := range []jose.HeaderKey{"crit", "b64"} {
		if _, there := h.ExtraHeaders[extension]; there {
			return "", false
		}
	}
	said, there := h.ExtraHeaders[jose.HeaderType]
	if !there {
		return "", true
	}
	name, _ := said.(string)
	typ = strings.TrimPrefix(strings.ToLower(name), "application/")
	return typ, typ != ""
}

// issuer is the first with the token's issuer and audience; without the
// audience the first with the issuer, which will refuse it.
//
// A token may have several audiences. One that came by itself, and has that of a gateway, goes to
// the entry that refuses it: it was given to the program of another, whatever else it is for. One
// that a key brought goes to an entry that names the key, if there is one. One that is to be exchanged goes to an entry for
// that, and any other to one that is not.
func (j *JWT) issuer(claims jwt.Claims, came way) (found *issuer) {
	const ours, audience, wanted = 1, 2, 3
	best := 0
	for i := range j.issuers {
		candidate, rank := &j.issuers[i], ours
		if candidate.Issuer != claims.Issuer {
			continue
		}
		if claims.Audience.Contains(candidate.Audience) && came.exchange == candidate.exchanged() {
			rank = audience
			if came.key == "" && candidate.relayed() || slices.Contains(candidate.RelayedBy, came.key) {
				rank = wanted
			}
		}
		if rank > best {
			found, best = candidate, rank
		}
	}
	return found
}

// counts refuses a verified token that came in a way which its entry does not allow: by itself though the entry is for
// gateways, with a key that the entry does not name, or to be exchanged and the entry is not for that, or the other way round.
func (i *issuer) counts(came way) error {
	switch key := came.key; {
	case came.exchange != i.exchanged() && came.exchange:
		return invalid("tokens of this issuer and audience are not exchanged here; get one for an audience whose tokens are")
	case came.exchange != i.exchanged():
		return invalid("the token is to be exchanged, and gives access to nothing by itself; send it to the token endpoint, or get one for this service")
	case key == "" && i.relayed():
		return invalid("the token is for a gateway, and counts only where that gateway brings it; get one for this service")
	case key != "" && !slices.Contains(i.RelayedBy, key):
		return invalid("the token is not for the gateway that brought it; have its holder get one for that gateway")
	}
	return nil
}

// clockSkew is how far the clocks of issuer and service may be apart.
const clockSkew = 60 * time.Second

// verify checks the signature of a token that was parsed. The claims were read from
// the very bytes that it covers.
func (i *issuer) verify(ctx context.Context, sum recent.Digest, token *jwt.JSONWebToken) error {
	header := token.Headers[0]
	keys, err := i.source.keys(ctx, fits(header.KeyID, header.Algorithm))
	if err != nil {
		return invalid("the token cannot be checked at the moment; ask again later")
	}
	for _, key := range keys {
		if i.signed.by(key.Key, sum, func() bool { return token.Claims(key.Key, &jwt.Claims{}) == nil }) {
			return nil
		}
	}
	return notOurs()
}

// accept checks the claims of a verified token.
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
