package identity

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server/auth"
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
	// AgentClaim names the client in the same way. "" is client_id, and azp for issuers that write that.
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
}

// Issuer is an issuer whose tokens count, as a configuration has it.
type Issuer struct {
	Issuer     string   `yaml:"issuer" required:"yes" doc:"The claim iss of the tokens, byte for byte. OIDC discovery begins at this address."`
	Audience   string   `yaml:"audience" doc:"What the claim aud of the tokens must contain, if that is not resource."`
	Algorithms []string `yaml:"algorithms" required:"yes" min:"1" enum:"RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384,ES512,EdDSA" doc:"The signature algorithms that the gateway accepts."`
	JWKSFile   string   `yaml:"jwks_file" doc:"The issuer's public keys, as a JWK Set. A changed file takes effect without a restart. Without it, the keys come by OIDC discovery."`
	// Tenant, the types and IDPrefix keep the people of several issuers apart.
	Tenant      string `yaml:"tenant" doc:"The tenant whose policies decide about holders of these tokens, in place of pdp.tenant."`
	SubjectType string `yaml:"subject_type" doc:"The type of the entity that a person is to policies. user unless given."`
	AgentType   string `yaml:"agent_type" doc:"The type of the entity that an agent is to policies. agent unless given."`
	IDPrefix    string `yaml:"id_prefix" doc:"What the ids of people and agents of this issuer begin with in policies. Nothing unless given."`
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
	claim := cmp.Or(o.AgentClaim, "client_id")
	path, err := evaluation.ParseClaimPath(claim)
	if err != nil {
		return fmt.Errorf("identity.agent_claim: %w; write the name of a claim, such as client_id, or a JSON Pointer", err)
	}
	if i.agent = []evaluation.ClaimPath{path}; claim == "client_id" {
		i.agent = append(i.agent, evaluation.ClaimPath{"azp"})
	}
	return nil
}

// filled is an issuer with its defaults.
func (e Issuer) filled(o Options) Issuer {
	e.Tenant = cmp.Or(e.Tenant, o.DefaultTenant, evaluation.DefaultTenant)
	e.SubjectType = cmp.Or(e.SubjectType, "user")
	e.AgentType = cmp.Or(e.AgentType, "agent")
	return e
}

// check checks the tenant, the types and the prefix of an issuer. [auth.NewJWT] checks everything else.
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

func isText(s string) bool { return len(s) <= 128 && isName(s) }

// isName bounds names that come from tokens.
func isName(s string) bool {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	return s != "" && len(s) <= 1024 && utf8.ValidString(s) && !strings.ContainsFunc(s, hidden)
}

// Claimed is the principal that claims would name in a valid token. Nothing is verified, so it must not let a request in: it
// shows how a gateway would decide. A fixed identity needs no claims, and takes none.
func Claimed(o Options, claims evaluation.Object) (*Principal, error) {
	i := &Identity{issuers: map[string]Issuer{}, now: time.Now}
	if err := i.readClaims(o); err != nil {
		return nil, err
	}
	if o.Static.Len() > 0 {
		if claims.Len() > 0 {
			return nil, errors.New("the configuration has identity.static, and a gateway with that reads no token; leave the claims out")
		}
		if err := i.fix(o); err != nil {
			return nil, err
		}
		return i.fixed, nil
	}
	issuers, err := o.filled()
	if err != nil {
		return nil, err
	}
	issuer, _ := claims.Get("iss")
	for _, e := range issuers {
		if e.Issuer == issuer.Text() && issuer.Kind() == evaluation.String {
			sub, _ := claims.Get("sub")
			return i.holder(claims, e, sub.Text(), time.Time{})
		}
	}
	return nil, errors.New("the claim iss is none of identity.issuers; write one of these into the claims, byte for byte")
}

const place = "identity.issuers"

func (i *Identity) believe(o Options) error {
	if len(o.Issuers) == 0 {
		return errors.New("identity: nobody could ask anything; list issuers, or static for a gateway on loopback or stdio")
	}
	issuers, wrong := o.filled()
	for _, e := range issuers {
		i.issuers[e.Issuer] = e
	}
	n, alike := Apart(o)
	if alike != nil {
		alike = fmt.Errorf("%s[%d]: %w", place, n, alike)
	}
	tokens, err := verifier(issuers, o, i.now)
	i.tokens = tokens
	return errors.Join(wrong, alike, err)
}

// filled are the issuers with their defaults, and the reasons why some cannot be believed.
func (o Options) filled() (issuers []Issuer, wrong error) {
	for n, e := range o.Issuers {
		e = e.filled(o)
		if err := e.check(); err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s[%d]: %w", place, n, err))
		}
		issuers = append(issuers, e)
	}
	return issuers, wrong
}

func verifier(issuers []Issuer, o Options, now func() time.Time) (*auth.JWT, error) {
	options := auth.JWTOptions{Now: now, Logger: o.Logger, Place: place}
	var entries, others []auth.JWTIssuer
	for _, e := range issuers {
		entry := auth.JWTIssuer{
			Issuer: e.Issuer, Audience: cmp.Or(e.Audience, o.Resource), Algorithms: e.Algorithms, JWKSFile: e.JWKSFile,
			Grant: auth.Grant{Tenants: []string{e.Tenant}, Permissions: []auth.Permission{auth.Decide}},
		}
		entries = append(entries, entry)
		if e.Audience == "" {
			entry.Audience = otherForm(o.Resource)
			others = append(others, entry)
		}
	}
	first, err := auth.NewJWT(entries, options)
	if err != nil || len(others) == 0 {
		return first, err
	}
	options.Before = first // each issuer's keys are known once
	return auth.NewJWT(append(entries, others...), options)
}

// otherForm is an identifier without the slash at its end, or with one. Clients and issuers do not agree which it has.
func otherForm(resource string) string {
	if without, ok := strings.CutSuffix(resource, "/"); ok {
		return without
	}
	return resource + "/"
}

// Apart is the first issuer that could name an entity of one before it, and a remedy. In one tenant, an entity
// is a type and an id; and the id of one issuer could be that of another if one's prefix begins with the other's, because
// an issuer writes whatever it likes behind its own. Clients are entities too.
func Apart(o Options) (n int, err error) {
	for n, e := range o.Issuers {
		for _, before := range o.Issuers[:n] {
			if err := e.filled(o).apart(before.filled(o)); err != nil {
				return n, err
			}
		}
	}
	return 0, nil
}

func (e Issuer) apart(before Issuer) error {
	switch {
	case e.Issuer == before.Issuer:
		return errors.New("one before has the same issuer; delete one of them")
	case e.Tenant != before.Tenant, !strings.HasPrefix(e.IDPrefix, before.IDPrefix) && !strings.HasPrefix(before.IDPrefix, e.IDPrefix):
		return nil
	case e.SubjectType == before.SubjectType:
		return errors.New("one before could name the same person; give each a tenant, a subject_type, or an id_prefix with which no other begins")
	case e.AgentType == before.AgentType:
		return errors.New("one before could name the same client, which a subject_type does not keep apart; give each a tenant, an id_prefix with which no other begins, or an agent_type beside its subject_type")
	case e.SubjectType == before.AgentType, e.AgentType == before.SubjectType:
		return errors.New("one before calls clients what this one calls people, or the reverse; give each types that the other has not, a tenant, or an id_prefix with which no other begins")
	}
	return nil
}
