package mcp

import (
	"context"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/server/auth"
)

// Persons are those whom a gateway knows: the holders of tokens that it takes, or the one of identity.static. A PDP in its
// process goes by them, so that a form counts there as the word of the person who filled it in. They are [auth.People].
type Persons struct {
	known *identity.Identity
	// typeOf is the policies' name of a type of questions.
	typeOf func(wire string) (string, bool)
}

// NewPersons knows them by the configuration and d.FixedToken. typeOf is the name in the policies in force of a type of
// questions.
func NewPersons(c Config, d Deps, typeOf func(wire string) (string, bool)) (*Persons, error) {
	Form.SetDefaults(&c)
	if err := c.Check(); err != nil {
		return nil, err
	}
	known, err := newIdentity(c, d.withDefaults())
	if err != nil {
		return nil, err
	}
	return &Persons{known, typeOf}, nil
}

// Person implements [auth.People]. Policies know the person as in the questions of their agents.
func (p *Persons) Person(ctx context.Context, token string) (auth.Person, error) {
	who, err := p.known.Holder(ctx, token)
	if err != nil {
		return auth.Person{}, err
	}
	sub, _ := who.Claims.Get("sub")
	person := auth.Person{Issuer: who.Issuer, Subject: sub.Text(), Tenant: who.Tenant}
	if sub.Kind() != evaluation.String || evaluation.PersonOf(person.Issuer, person.Subject) != who.Person {
		return person, nil // that person would not be known as the one of the question
	}
	if typ, ok := p.typeOf(who.User.Type); ok {
		person.Principal = auth.Principal{Type: typ, ID: who.User.ID}
	}
	return person, nil
}

// Believed implements [auth.People].
func (p *Persons) Believed(tenant, issuer, subject string) bool {
	return p.known.Believes(tenant, issuer, subject)
}
