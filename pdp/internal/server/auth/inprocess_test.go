package auth

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
)

// household are people by tokens that nobody signed.
type household map[string]Person

func (h household) Person(_ context.Context, token string) (Person, error) {
	if p, known := h[token]; known {
		return p, nil
	}
	return Person{}, errors.New("the token is not valid here")
}

func (h household) Believed(tenant, issuer, subject string) bool {
	for _, p := range h {
		if p.Tenant == tenant && p.Issuer == issuer && p.Subject == subject {
			return true
		}
	}
	return false
}

func newInProcess(people People) *InProcess {
	return &InProcess{People: people, Program: Caller{
		Name: "key:program", AllTenants: true, Permissions: []Permission{Decide, Request, Relay}, Relays: evaluation.ViaForm,
	}}
}

func (p *InProcess) ask(tokens ...string) (Caller, error) {
	q := httptest.NewRequest(http.MethodPost, "/", nil)
	q.Header.Set("Authorization", "Bearer psk_aaaaaaaa_"+strings.Repeat("a", secretLength)) // nobody looks at it
	for _, token := range tokens {
		q.Header.Add("approver-token", token)
	}
	return p.Authenticate(q)
}

var ofAlice = Person{Issuer: testIssuer, Subject: "alice", Tenant: "acme", Principal: Principal{"User", "corp:alice"}}

func TestEmbeddedPersonBesideTheProgram(t *testing.T) {
	t.Parallel()
	p := newInProcess(household{"a": ofAlice})
	alone, err := p.ask()
	if err != nil || alone.Name != "key:program" || alone.May(Approve) || !alone.May(Relay) || alone.Way != (evaluation.Way{}) {
		t.Errorf("alone: got %+v, %v", alone, err)
	}
	caller, err := p.ask("a")
	if err != nil || caller.Name != "jwt:"+testIssuer+"#alice" || caller.Principal != ofAlice.Principal || caller.Way != (evaluation.Way{Via: evaluation.ViaForm, Gateway: "key:program"}) {
		t.Fatalf("got %+v, %v", caller, err)
	}
	if !slices.Equal(caller.Permissions, []Permission{Approve}) || caller.AllTenants || !caller.Serves("acme") || caller.Serves("default") {
		t.Errorf("got %+v", caller)
	}
	if got := (&Authenticator{}).Persons(caller.Name, caller.Principal); !slices.Equal(got, []string{evaluation.PersonOf(testIssuer, "alice")}) {
		t.Error("nobody would know that it is the person who asks")
	}
	if again, err := p.ask("a"); err != nil || !again.Is(caller) {
		t.Errorf("a moment later: %+v, %v", again, err)
	}
}

// A program with fewer tenants brings people in those alone.
func TestEmbeddedPersonOfANarrowProgram(t *testing.T) {
	t.Parallel()
	p := newInProcess(household{"a": ofAlice})
	p.Program.AllTenants, p.Program.Tenants = false, []string{"default"}
	caller, err := p.ask("a")
	if err != nil || caller.Serves("acme") || caller.Serves("default") || p.RelayInForce("acme", caller.Name, "key:program") {
		t.Errorf("got %+v, %v", caller, err)
	}
}

func TestEmbeddedTokensThatDoNotCount(t *testing.T) {
	t.Parallel()
	people := household{"a": ofAlice, "psk_x": ofAlice, "a b": ofAlice, "": ofAlice}
	for name, test := range map[string]struct {
		of     *InProcess
		tokens []string
		kind   error
	}{
		"unknown":           {newInProcess(people), []string{"b"}, ErrUnauthenticated},
		"twice":             {newInProcess(people), []string{"a", "a"}, ErrUnauthenticated},
		"empty":             {newInProcess(people), []string{""}, ErrUnauthenticated},
		"two in one":        {newInProcess(people), []string{"a b"}, ErrUnauthenticated},
		"an API key":        {newInProcess(people), []string{"psk_x"}, ErrUnauthenticated},
		"nobody is known":   {newInProcess(nil), []string{"a"}, ErrForbidden},
		"it does not relay": {&InProcess{People: people, Program: Caller{Name: "key:program", AllTenants: true}}, []string{"a"}, ErrForbidden},
	} {
		caller, err := test.of.ask(test.tokens...)
		if !refusedAs(caller, err, test.kind, "Approver-Token") {
			t.Errorf("%s: got %+v, %v", name, caller, err)
		}
		if refused := new(Refusal); test.kind == ErrUnauthenticated && (!errors.As(err, &refused) || refused.Challenge != challengeApprover || refused.Credential != ByToken) {
			t.Errorf("%s: got %+v", name, refused)
		}
	}
}

// Whom policies could not name approves nothing.
func TestEmbeddedNobody(t *testing.T) {
	t.Parallel()
	for name, principal := range map[string]Principal{
		"none": {}, "no id": {Type: "User"}, "a long id": {"User", strings.Repeat("a", maxClaim+1)}, "no UTF-8": {"User", "\xff"}, "an action": {"Action", "a"}, "no type": {"a b", "a"},
	} {
		who := ofAlice
		who.Principal = principal
		caller, err := newInProcess(household{"a": who}).ask("a")
		if err != nil || caller.May(Approve) || caller.Principal != (Principal{}) {
			t.Errorf("%s: got %+v, %v", name, caller, err)
		}
	}
}

func TestEmbeddedVotesInForce(t *testing.T) {
	t.Parallel()
	p := newInProcess(household{"a": ofAlice})
	const alice = "jwt:" + testIssuer + "#alice"
	for _, test := range []struct {
		tenant, caller, gateway string
		want                    bool
	}{
		{"acme", alice, "key:program", true},
		{"default", alice, "key:program", false},
		{"acme", alice, "key:other", false},
		{"acme", alice, "", false},
		{"acme", "jwt:" + testIssuer + "#bob", "key:program", false},
		{"acme", "key:alice", "key:program", false},
		{"acme", testIssuer + "#alice", "key:program", false},
	} {
		if got := p.RelayInForce(test.tenant, test.caller, test.gateway); got != test.want {
			t.Errorf("%+v: got %t", test, got)
		}
	}
	if p.InForce("acme", alice) || newInProcess(nil).RelayInForce("acme", alice, "key:program") {
		t.Error("somebody votes by another way, or of whom nothing is known")
	}
}
