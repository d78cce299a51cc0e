package auth

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"policy-service/evaluation"
)

// OIDC is the issuer by which people log in to the console, with their permissions.
type OIDC struct {
	// Issuer is the claim iss, byte for byte, and where discovery begins.
	Issuer string `yaml:"issuer" required:"yes" doc:"The issuer by which people log in: the claim iss of its tokens, byte for byte. OIDC discovery begins at this address."`
	// ClientID must be in the claim aud of the ID tokens.
	ClientID string `yaml:"client_id" required:"yes" doc:"The name that the issuer has for the console. An ID token must be for it, and is no credential anywhere else."`
	// ClientSecretFile is of a client that has a secret. All clients prove by PKCE that it was they who asked.
	ClientSecretFile string `yaml:"client_secret_file" doc:"The file with the secret that the issuer has given the console. Without it, the console is a public client. PKCE is used in any case."`
	// Algorithms are the signatures taken; nil is RS256, which every issuer must have.
	Algorithms []string `yaml:"algorithms" min:"1" doc:"The signature algorithms that the service accepts, as in auth.jwt. RS256 unless given."`
	// Principal is the claim that names a person's entity; nil is none.
	Principal *PrincipalClaim `yaml:"principal" doc:"Which entity the person is to policies. The permission approve needs it."`
	// Grants are all permissions of people; a person that none matches has none.
	Grants []ClaimGrant `yaml:"grants" required:"yes" min:"1" doc:"What people may do, by what the claims of the ID token say. All that match count, each in its own tenants. Whom none matches may log in and do nothing."`
}

// entry is the configuration as one of an issuer whose tokens are for the console.
func (o OIDC) entry() JWTIssuer {
	algorithms := o.Algorithms
	if algorithms == nil {
		algorithms = []string{string(jose.RS256)}
	}
	return JWTIssuer{Issuer: o.Issuer, Audience: o.ClientID, Algorithms: algorithms, Principal: o.Principal, Grants: o.Grants}
}

func (o OIDC) check() error {
	if o.ClientID == "" || len(o.ClientID) > maxClientID || strings.ContainsFunc(o.ClientID, unprintable) {
		return fmt.Errorf("client_id is missing, not printable or longer than %d bytes; write the name that the issuer has given the console", maxClientID)
	}
	if len(o.Grants) == 0 {
		return errors.New("grants is missing, and nobody who logs in could do anything; add one such as {claim: groups, value: approvers, permissions: [approve], tenants: [default]}")
	}
	return o.entry().check()
}

const maxClientID = 512

// CheckBeside refuses entries of auth.jwt that want the tokens of the console: these are no bearer tokens.
func (o OIDC) CheckBeside(issuers []JWTIssuer) error {
	if i := slices.IndexFunc(issuers, o.entry().same); i >= 0 {
		return fmt.Errorf("console.oidc: auth.jwt[%d] has the same issuer, and client_id as its audience, and a token by which people log in is no bearer token; give one of them a client or audience of its own", i)
	}
	return nil
}

// Console verifies the logins of people by an issuer.
type Console struct{ tokens *JWT }

// NewConsole checks a configuration. Discovery comes with the first login, or with [Console.Warm]. before is the Console
// that it replaces, or nil: keys that are known of an issuer that stays, stay known.
func NewConsole(config OIDC, before *Console, options JWTOptions) (*Console, error) {
	options.Place = cmp.Or(options.Place, "console.oidc")
	options = options.withDefaults()
	if before != nil {
		options.Before = before.tokens
	}
	err := config.check()
	var source *keySet
	if err == nil {
		source, err = options.Before.source(config.entry(), keyClient(options.Transport), options)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", options.Place, err)
	}
	j := &JWT{now: options.Now}
	j.add(config.entry(), source)
	return &Console{j}, nil
}

// Warm is [JWT.Warm].
func (c *Console) Warm(ctx context.Context) { c.tokens.Warm(ctx) }

// HaveKeys is [JWT.HaveKeys] for the one issuer.
func (c *Console) HaveKeys(ctx context.Context) error { return c.tokens.HaveKeys(ctx)[0] }

func (c *Console) entry() *issuer { return &c.tokens.issuers[0] }

// maxIDToken bounds the ID token of a person, which is read and partly kept.
const maxIDToken = 64 << 10

// logIn verifies an ID token as OpenID Connect Core 1.0, 3.1.3.7 has it.
func (c *Console) logIn(ctx context.Context, text, nonce string) (Login, error) {
	if len(text) > maxIDToken {
		return Login{}, invalid("the ID token is too large; have its issuer write fewer claims into it")
	}
	v, err := c.tokens.verified(ctx, text, way{})
	if err != nil {
		return Login{}, err
	}
	token, err := v.read()
	if err != nil {
		return Login{}, err
	}
	entry := c.entry()
	said, _ := token.Claims.Lookup("nonce")
	party, named := token.Claims.Lookup("azp")
	switch {
	case !token.Login:
		return Login{}, invalid("the token is no ID token; have the issuer send one")
	case nonce == "" || said.Kind() != evaluation.String || subtle.ConstantTimeCompare([]byte(said.Text()), []byte(nonce)) != 1:
		return Login{}, invalid("the ID token does not answer this login; log in again")
	case (named || len(v.claims.Audience) > 1) && (party.Kind() != evaluation.String || party.Text() != entry.Audience):
		return Login{}, invalid("the ID token was made for another client; log in again, and have the operator compare client_id")
	}
	return Login{
		issuer:  token.Issuer,
		client:  entry.Audience,
		subject: token.Subject,
		claims:  token.Claims.Without(func(name string) bool { return !entry.reads(name) }),
		name:    nameIn(token.Claims),
		ends:    c.tokens.now().Add(longestLogin),
	}, nil
}

// of is the caller of a login, as the entry in force has it.
func (c *Console) of(l Login) (Caller, error) {
	now, entry := c.tokens.now(), c.entry()
	if l.issuer != entry.Issuer || l.client != entry.Audience || !now.Before(l.ends) || now.Before(l.ends.Add(-longestLogin-clockSkew)) {
		return Caller{}, loginOver()
	}
	return entry.holder(l.issuer, l.subject, l.claims), nil
}

// owns refuses a bearer token that is one of the console's, whatever else it is for: a person got it to log in, and not
// for a program that asks with it.
func (c *Console) owns(claims jwt.Claims) error {
	if c != nil && claims.Issuer == c.entry().Issuer && claims.Audience.Contains(c.entry().Audience) {
		return invalid("the token is one by which people log in to the console, and no bearer token; get one for this service")
	}
	return nil
}

// lets is [JWT.lets] for people who log in to the console.
func (c *Console) lets(tenant, holder string) bool {
	return c != nil && c.tokens.lets(tenant, holder, "")
}

// reads reports whether a person's entity or permissions depend on a claim.
func (i JWTIssuer) reads(claim string) bool {
	return i.Principal != nil && i.Principal.Claim == claim ||
		slices.ContainsFunc(i.Grants, func(g ClaimGrant) bool { return g.Claim == claim })
}

// holder is the caller with these claims of an issuer.
func (i JWTIssuer) holder(issuer, subject string, claims evaluation.Object) Caller {
	caller := i.caller(tokenCaller + issuer + "#" + subject)
	caller.Principal = i.Principal.in(claims)
	if i.Grants == nil {
		return caller
	}
	var all []Grant
	for _, g := range i.Grants {
		if g.matches(claims) {
			all = append(all, g.grant())
		}
	}
	return caller.granted(all)
}
