package identity

import (
	"cmp"
	"context"
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
		if _, twice := i.issuers[e.Issuer]; twice {
			errs = append(errs, fmt.Errorf("%s[%d]: one before has the same issuer; delete one of them", place, n))
		}
		for m, before := range issuers[:n] {
			if err := apart(before, e); err != nil {
				errs = append(errs, fmt.Errorf("%s[%d] and [%d]: %w", place, m, n, err))
			}
		}
		issuers[n], i.issuers[e.Issuer] = e, e
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
			Issuer: e.Issuer, Audience: cmp.Or(e.Audience, o.Resource), Algorithms: e.Algorithms, JWKSFile: e.JWKSFile, JWKSRefresh: e.JWKSRefresh,
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

// Warm gets the keys of all issuers now, so that a mistake shows in the log at start.
func (i *Identity) Warm(ctx context.Context) {
	if i.tokens != nil {
		i.tokens.Warm(ctx)
	}
}

// apart fails if two issuers could name one entity. In one tenant, an entity is a type and an id, and the id of one issuer
// could be that of the other if one's prefix begins with the other's: a subject is whatever its issuer writes.
func apart(a, b Issuer) error {
	if a.Tenant != b.Tenant || !strings.HasPrefix(a.IDPrefix, b.IDPrefix) && !strings.HasPrefix(b.IDPrefix, a.IDPrefix) {
		return nil
	}
	switch {
	case a.SubjectType == b.SubjectType:
		return errors.New("both could name the same person; give each a tenant, a subject_type, or an id_prefix with which no other begins, such as \"partner:\" here")
	case a.AgentType == b.AgentType:
		return errors.New("both could name the same client; give each an agent_type beside its subject_type, or a tenant, or an id_prefix with which no other begins, such as \"partner:\" here")
	case a.SubjectType == b.AgentType || a.AgentType == b.SubjectType:
		return errors.New("one could call a client what the other calls a person; give each types that the other has not, a tenant, or an id_prefix")
	}
	return nil
}
