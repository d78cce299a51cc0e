package auth

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// Authenticator knows all credentials of a server. Each member may be nil, and
// is then a kind that the server does not take.
type Authenticator struct {
	Keys KeyHolders
	JWT  *JWT
	MTLS *MTLS
	// Trusts reports whether the authority of a client's certificate still counts, of a connection that may be old.
	Trusts func(*tls.ConnectionState) bool
	// Console verifies logins to the console by an issuer.
	Console *Console
}

// KeyHolders tells the holders of API keys apart.
type KeyHolders interface {
	// Configured reports whether there ever was a key.
	Configured() bool
	// Shared reports whether the keys are those of a cluster.
	Shared() bool
	// Err returns why it is not known which keys are in force, or nil.
	Err() error
	// Find returns the holder of a key in force, by the id and the hash of the key. The error is [ErrUnauthenticated], or
	// [ErrExpired].
	Find(id string, hash [sha256.Size]byte) (Caller, error)
	// Holds reports whether a key of that name is in force and has a permission in a tenant. While it is not known which keys
	// are in force, none is.
	Holds(tenant, name string, p Permission) bool
	// Approvers returns the holders of keys in force that may approve in a tenant, sorted by name.
	Approvers(tenant string) []Caller
}

// Configured reports whether there are credentials. While there are none the
// rule is [Loopback], and the server must listen on loopback only.
func (a *Authenticator) Configured() bool {
	return a.JWT != nil || a.MTLS != nil || a.Console != nil || a.Keys != nil && a.Keys.Configured()
}

// Authenticate finds the caller of a request. Its error is a [*Refusal]. If a gateway sends it for a person, the person is
// the caller; see [ApproverToken]. If its context has a login, only the person of the login is; see [Login.Context].
func (a *Authenticator) Authenticate(r *http.Request) (Caller, error) {
	if login, ok := r.Context().Value(loginKey{}).(Login); ok {
		return a.loggedIn(r, login)
	}
	caller, err := a.authorization(r)
	if tokens, brought := r.Header[ApproverToken]; brought && err == nil {
		return a.relayed(r, caller, tokens)
	}
	return caller, err
}

// authorization says whose credential a request has in its Authorization, or in TLS.
func (a *Authenticator) authorization(r *http.Request) (Caller, error) {
	if !a.Configured() && (a.Keys == nil || !a.Keys.Shared()) { // a writer to etcd can take all keys away
		return Loopback{}.Authenticate(r)
	}
	// A server that cannot tell which keys were revoked does not know enough of
	// its callers to answer any.
	if err := a.unchecked(); err != nil {
		return Caller{}, err
	}
	switch headers := r.Header["Authorization"]; {
	case len(headers) > 1:
		return Caller{}, invalid("the Authorization header is given more than once; send one")
	case len(headers) == 1:
		return a.header(r, headers[0])
	case a.MTLS != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0:
		caller, err := a.MTLS.Verify(r.TLS)
		if err == nil && a.Trusts != nil && !a.Trusts(r.TLS) {
			caller, err = Caller{}, invalid("the authority of the client certificate does not count any more; get a certificate of one that does")
		}
		return as(ByCertificate, caller, err)
	}
	return Caller{}, missing()
}

// header chooses the check by the form of the header alone, so that no credential can be tried against one kind and then
// another.
func (a *Authenticator) header(r *http.Request, header string) (Caller, error) {
	scheme, credential, _ := strings.Cut(header, " ")
	credential = strings.TrimLeft(credential, " ")
	switch {
	case credential == "" || strings.ContainsAny(credential, " \t,"):
	case strings.EqualFold(scheme, "Basic"):
		return a.basic(credential)
	case !strings.EqualFold(scheme, "Bearer"):
	case strings.HasPrefix(credential, KeyPrefix):
		return a.key(credential)
	case a.JWT != nil:
		caller, err := a.JWT.bearer(r.Context(), credential, "", a.Console)
		return as(ByToken, caller, err)
	default:
		return Caller{}, invalid("tokens are not taken here; send an API key")
	}
	return Caller{}, invalid("the Authorization header cannot be read; send Bearer and an API key or a token, or Basic and id:key")
}

func (a *Authenticator) key(secret string) (Caller, error) {
	caller, err := a.findKey(KeyID(secret), KeyHash(secret))
	switch {
	case err == nil, errors.Is(err, ErrUnavailable):
		return caller, err
	case errors.Is(err, ErrExpired): // its holder may know
		return as(ByKey, Caller{}, invalid("the API key has expired; ask the operator to renew it"))
	}
	// One text for every other reason: a caller does not learn which ids there are.
	return as(ByKey, Caller{}, invalid("the API key is not valid here; ask the operator for one"))
}

// findKey finds the holder of a key by its id and hash. While it is not known which keys of a cluster were revoked, the error
// is a [*Refusal]: other credentials do not stand in etcd, and are checked.
func (a *Authenticator) findKey(id string, hash [sha256.Size]byte) (Caller, error) {
	switch {
	case a.Keys == nil:
	case a.Keys.Shared() && a.Keys.Err() != nil:
		return Caller{}, &Refusal{
			Kind:       ErrUnavailable,
			Detail:     "API keys cannot be checked at the moment, because this replica does not reach etcd; ask again after Retry-After seconds, or another replica",
			Credential: ByKey,
		}
	case id != "":
		return a.Keys.Find(id, hash)
	}
	return Caller{}, ErrUnauthenticated
}

// basic takes id:key. The id is in the key as well; two that differ are a mix-up.
func (a *Authenticator) basic(credential string) (Caller, error) {
	pair, err := base64.StdEncoding.Strict().DecodeString(credential)
	id, secret, found := strings.Cut(string(pair), ":")
	if err != nil || !found || KeyID(secret) == "" || KeyID(secret) != id {
		return as(ByKey, Caller{}, invalid("the Basic credential is not id:key; send the id of an API key and the whole key"))
	}
	return a.key(secret)
}

// InForce reports whether a credential, by the name of its caller, may still approve in
// a tenant: the key is in force; the issuer of the token, or the name of the
// certificate, is configured with the permission and the tenant. A token's own time is
// that of the request it came with. [Authenticator.RelayInForce] is for votes that a gateway brought.
func (a *Authenticator) InForce(tenant, caller string) bool {
	kind, name, _ := strings.Cut(caller, ":")
	switch kind {
	case "key":
		return a.Keys != nil && a.Keys.Holds(tenant, name, Approve)
	case "jwt":
		return a.JWT.lets(tenant, name, "") || a.Console.lets(tenant, name)
	case "mtls":
		return a.MTLS != nil && slices.ContainsFunc(a.MTLS.rules, func(r MTLSRule) bool { return r.SAN == name && r.Lets(tenant, Approve) })
	}
	return false
}

// Lets reports whether a grant has a permission in a tenant.
func (g Grant) Lets(tenant string, p Permission) bool {
	return slices.Contains(g.Permissions, p) && g.serves(tenant)
}

func (g Grant) serves(tenant string) bool {
	return slices.Contains(g.Tenants, allTenants) || slices.Contains(g.Tenants, tenant)
}

// lets reports whether the holder of a token may still approve in a tenant, by an issuer and a
// subject as callers are named. key is the name of the key that brought it, "" if it came by itself.
func (j *JWT) lets(tenant, holder, key string) bool {
	return j != nil && slices.ContainsFunc(j.issuers, func(i issuer) bool {
		return strings.HasPrefix(holder, i.Issuer+"#") && i.Lets(tenant, Approve) && i.counts(way{key: key}) == nil
	})
}
