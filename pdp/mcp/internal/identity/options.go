package identity

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
	"unicode"
	"unicode/utf8"

	"policy-service/evaluation"
	"policy-service/pdp/server/auth"
)

// Options list the issuers whose tokens count, and the meaning of their claims.
type Options struct {
	// Resource is the gateway's own identifier, the address that clients have of it: https, or http on loopback.
	Resource string
	// Name is how clients show the gateway to people; it may be "".
	Name string
	// Issuers are believed, and no others are.
	Issuers []Issuer
	// SubjectClaim names the subject: the name of a claim, or a JSON Pointer. "" is sub.
	SubjectClaim string
	// AgentClaim names the client, in the same way. "" is client_id; and beside client_id, azp says it for issuers that
	// write that.
	AgentClaim string
	// Static are the claims of a fixed identity, which takes the place of all tokens; empty is none.
	Static evaluation.Object
	// StaticToken is [Principal.Token] of the fixed identity, by which the PDP knows the person; "" is none.
	StaticToken string
	// Private is the caller's word that only this machine or process reaches the gateway. Static needs it.
	Private bool
	// DefaultTenant is that of issuers without a tenant of their own, and of a fixed identity; "" is default.
	DefaultTenant string
	// Scopes are those that clients are advised to ask for. A token is not checked for them.
	Scopes []string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger takes failures to get keys; nil discards them.
	Logger *slog.Logger
	// Transport carries discovery; nil is that of net/http.
	Transport http.RoundTripper
}

// Issuer is an issuer whose tokens count.
type Issuer struct {
	// Issuer is the claim iss, byte for byte.
	Issuer string
	// Audience must be in the claim aud; "" is the gateway's Resource, with or without a slash at the end.
	Audience string
	// Algorithms are the signatures taken. There is no default.
	Algorithms []string
	// JWKSFile holds the keys; without it they come by discovery.
	JWKSFile string
	// Tenant is where questions about the issuer's people are asked.
	Tenant string
	// SubjectType is the type of the subjects' entities; "" is user. AgentType is that of the clients'; "" is agent.
	SubjectType, AgentType string
	// IDPrefix stands in front of the ids of the issuer's subjects and clients.
	IDPrefix string
}

// Identity knows whose tokens count.
type Identity struct {
	resource resource
	metadata []byte
	scopes   []string
	tokens   *auth.JWT
	issuers  map[string]Issuer
	subject  evaluation.ClaimPath
	agent    []evaluation.ClaimPath
	fixed    *Principal
	now      func() time.Time
}

// New checks the options and reads the jwks_files. Discovery comes with the first token.
func New(o Options) (*Identity, error) {
	i := &Identity{scopes: o.Scopes, issuers: map[string]Issuer{}, now: o.Now}
	if i.now == nil {
		i.now = time.Now
	}
	var err error
	i.resource, err = parseResource(o.Resource)
	if err = errors.Join(err, checkScopes(o.Scopes), i.readClaims(o)); err != nil {
		return nil, err
	}
	switch {
	case o.Static.Len() > 0 && len(o.Issuers) > 0:
		err = errors.New("identity: issuers and static are both given, and a request has one identity; keep one of them")
	case o.Static.Len() > 0:
		err = i.fix(o)
	default:
		if err = i.believe(o); err == nil {
			i.metadata, err = i.document(o.Name)
		}
	}
	if err != nil {
		return nil, err
	}
	return i, nil
}

// readClaims reads which claims name the subject and the client.
func (i *Identity) readClaims(o Options) error {
	var err error
	if i.subject, err = evaluation.ParseClaimPath(cmp.Or(o.SubjectClaim, "sub")); err != nil {
		return fmt.Errorf("identity.subject_claim: %w; write the name of a claim, such as sub, or a JSON Pointer, such as /act/sub", err)
	}
	if o.AgentClaim == "" || o.AgentClaim == "client_id" {
		i.agent = []evaluation.ClaimPath{{"client_id"}, {"azp"}}
		return nil
	}
	path, err := evaluation.ParseClaimPath(o.AgentClaim)
	if err != nil {
		return fmt.Errorf("identity.agent_claim: %w; write the name of a claim, such as client_id, or a JSON Pointer", err)
	}
	i.agent = []evaluation.ClaimPath{path}
	return nil
}

// filled is an issuer with its defaults.
func (e Issuer) filled(o Options) Issuer {
	e.Tenant = cmp.Or(e.Tenant, o.DefaultTenant, evaluation.DefaultTenant)
	e.SubjectType = cmp.Or(e.SubjectType, "user")
	e.AgentType = cmp.Or(e.AgentType, "agent")
	return e
}

// check checks the tenant, the types and prefixes of an issuer's people and clients. [auth.NewJWT] checks everything
// else.
func (e Issuer) check() error {
	switch {
	case !evaluation.IsTenantName(e.Tenant):
		return errors.New("tenant is no legal name; try up to 63 letters, digits, '.', '_' and '-', the first a letter or digit")
	case !isText(e.SubjectType), !isText(e.AgentType), e.IDPrefix != "" && !isText(e.IDPrefix):
		return errors.New("subject_type, agent_type or id_prefix is not printable, or too long; try up to 128 letters and digits")
	case e.SubjectType == e.AgentType:
		return errors.New("subject_type and agent_type are the same, so a client could have a person's name; give them two")
	}
	return nil
}

// isText bounds a part of names.
func isText(s string) bool { return len(s) <= 128 && isName(s) }

// isName bounds names that come from tokens.
func isName(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return s != "" && len(s) <= 1024 && utf8.ValidString(s)
}
