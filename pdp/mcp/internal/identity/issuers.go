package identity

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"policy-service/pdp/server/auth"
)

// place is where the configuration has the issuers.
const place = "identity.issuers"

// believe takes the issuers of a configuration.
func (i *Identity) believe(o Options) error {
	if len(o.Issuers) == 0 {
		return errors.New("identity: nobody could ask anything; list issuers, or static for a gateway on loopback or stdio")
	}
	issuers, errs := make([]Issuer, len(o.Issuers)), []error{}
	for n, e := range o.Issuers {
		e = e.filled(o)
		if err := e.check(); err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", place, n, err))
		}
		issuers[n], i.issuers[e.Issuer] = e, e
	}
	if n, err := Apart(o); err != nil {
		errs = append(errs, fmt.Errorf("%s[%d]: %w", place, n, err))
	}
	tokens, err := verifier(issuers, o, i.now)
	i.tokens = tokens
	return errors.Join(append(errs, err)...)
}

// verifier verifies tokens of issuers.
func verifier(issuers []Issuer, o Options, now func() time.Time) (*auth.JWT, error) {
	options := auth.JWTOptions{Now: now, Logger: o.Logger, Transport: o.Transport, Place: place}
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
