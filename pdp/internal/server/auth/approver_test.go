package auth

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"policy-service/pdp/pdptest/clock"
)

var mia = Principal{"User", "mia"}

func addApprover(t testing.TB, k APIKeys, name string, p Principal) string {
	t.Helper()
	secret, err := k.Add(KeySpec{Name: name, Principal: p, Grant: Grant{Permissions: []Permission{Approve}}})
	must(t, err)
	return secret
}

func TestNobodyApproves(t *testing.T) {
	t.Parallel()
	everything := Caller{AllTenants: true, Permissions: permissions}
	if everything.May(Approve) || !everything.May(LogAdmin) {
		t.Error("who is nobody approves, or may do nothing else")
	}
	if everything.Principal = mia; !everything.May(Approve) {
		t.Error("who is somebody with the permission does not approve")
	}
	if (Caller{Principal: mia}).May(Approve) {
		t.Error("who is somebody approves without the permission")
	}
	caller, err := Loopback{}.Authenticate(httptest.NewRequest(http.MethodGet, "http://localhost/", nil))
	if caller.Principal = mia; err != nil || caller.May(Approve) {
		t.Errorf("without credentials: got %+v, %v; want nobody who approves, whoever it is", caller, err)
	}
}

// approving is an issuer whose tokens name users by a claim.
func approving(t *testing.T, c *clock.Clock, s signer, claim string) *JWT {
	t.Helper()
	issuer := decider("ES256")
	issuer.JWKSFile = filepath.Join(t.TempDir(), "jwks.json")
	issuer.Permissions = []Permission{Decide, Approve}
	issuer.Principal = &PrincipalClaim{Type: "Acme::User", Claim: claim}
	writeJWKS(t, issuer.JWKSFile, s)
	j, err := NewJWT([]JWTIssuer{issuer}, JWTOptions{Now: c.Now})
	must(t, err)
	return j
}

func TestTokenOfAnApprover(t *testing.T) {
	t.Parallel()
	c := clock.New()
	s := newSigner(t, "1", jose.ES256)
	bySub, byMail := approving(t, c, s, "sub"), approving(t, c, s, "https://example.com/mail")
	with := func(value any) map[string]any { return map[string]any{"https://example.com/mail": value} }
	for name, test := range map[string]struct {
		j       *JWT
		changes map[string]any
		id      string
	}{
		"sub":             {bySub, nil, "alice"},
		"another claim":   {byMail, with("mia@example.com"), "mia@example.com"},
		"quotes":          {byMail, with(`User::"mia"`), `User::"mia"`},
		"escapes in JSON": {byMail, with("m\u00e9\u202e\n"), "m\u00e9\u202e\n"},
		"as long as can":  {byMail, with(strings.Repeat("x", 256)), strings.Repeat("x", 256)},
		"absent":          {byMail, nil, ""},
		"another case":    {byMail, map[string]any{"https://example.com/Mail": "mia"}, ""},
		"null":            {byMail, map[string]any{"https://example.com/mail": jsonNull{}}, ""},
		"number":          {byMail, with(7), ""},
		"boolean":         {byMail, with(true), ""},
		"array":           {byMail, with([]string{"mia"}), ""},
		"object":          {byMail, with(map[string]string{"id": "mia"}), ""},
		"empty":           {byMail, with(""), ""},
		"too long":        {byMail, with(strings.Repeat("x", 257)), ""},
		"long if escaped": {byMail, with(strings.Repeat("\x01", 200)), ""},
	} {
		caller, err := test.j.Verify(t.Context(), s.token(t, claims(c, test.changes), nil))
		want := Principal{}
		if test.id != "" {
			want = Principal{"Acme::User", test.id}
		}
		if err != nil || caller.Principal != want || caller.May(Approve) != (test.id != "") || !caller.May(Decide) || caller.Name != "jwt:https://issuer.example#alice" {
			t.Errorf("%s: got %+v, %v; want %s", name, caller, err, want)
		}
	}
}

type jsonNull struct{}

func (jsonNull) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// A token that one reader mends and another does not is refused: it would name two entities.
func TestTokensThatNameTwo(t *testing.T) {
	t.Parallel()
	c := clock.New()
	s := newSigner(t, "1", jose.ES256)
	j := approving(t, c, s, "mail")
	for name, text := range map[string]string{
		"no UTF-8":         "\"mia\xff\"",
		"a lone surrogate": `"mia\ud800"`,
		"an inner name":    `"mia","x":{"a":1,"a":2}`,
	} {
		payload := strings.Replace(string(asJSON(t, claims(c, map[string]any{"mail": "MAIL"}))), `"MAIL"`, text, 1)
		caller, err := j.Verify(t.Context(), signText(t, s, payload))
		if refused := (*Refusal)(nil); !errors.As(err, &refused) || caller.Principal != (Principal{}) || caller.May(Decide) {
			t.Errorf("%s: got %+v, %v; want a refusal", name, caller, err)
		}
	}
}

func TestIssuersThatNameNobody(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*JWTIssuer){
		"permissions has approve, and nothing says who approves; add principal: {type: User, claim: sub}": func(i *JWTIssuer) { i.Principal = nil },
		"principal.type is missing or no type of principals; write it as policies do":                     func(i *JWTIssuer) { i.Principal.Type = "" },
		"principal.type is ":  func(i *JWTIssuer) { i.Principal.Type = "Acme::Action" },
		"principal.type":      func(i *JWTIssuer) { i.Principal.Type = `User::"mia"` },
		"principal.claim is ": func(i *JWTIssuer) { i.Principal.Claim = "" },
		"principal.claim":     func(i *JWTIssuer) { i.Principal.Claim = "a\nb" },
	} {
		issuer := decider("ES256")
		issuer.Permissions = []Permission{Approve}
		issuer.Principal = &PrincipalClaim{Type: "User", Claim: "sub"}
		change(&issuer)
		if _, err := NewJWT([]JWTIssuer{issuer}, JWTOptions{}); err == nil || !strings.HasPrefix(err.Error(), "auth.jwt[0]: "+want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := NewMTLS([]MTLSRule{rule("pep.example", Decide, Approve)}, nil); err == nil || !strings.HasPrefix(err.Error(), "auth.mtls[0]: permissions has approve, and a certificate does not say who approves; ") {
		t.Errorf("a certificate approves: %v", err)
	}
}

// A PEP says much of whom it asks for, and none of it makes it somebody.
func TestOnlyTheCredentialSaysWhoApproves(t *testing.T) {
	t.Parallel()
	c := clock.New()
	s := newSigner(t, "1", jose.ES256)
	keys := open(t, t.TempDir(), c)
	approver, pep := addApprover(t, keys, "mia", mia), add(t, keys, "pep")
	a := &Authenticator{Keys: keys, JWT: approving(t, c, s, "mail")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := a.Authenticate(r)
		if err == nil && caller.Principal != (Principal{}) {
			_, _ = io.WriteString(w, caller.Principal.String())
		}
	}))
	t.Cleanup(server.Close)
	token := s.token(t, claims(c, map[string]any{"mail": "mia"}), nil)
	nameless := s.token(t, claims(c, nil), header{"mail": "mia", "principal": `User::"mia"`})
	for credential, want := range map[string]string{
		"Bearer " + approver:             `200 User::"mia"`,
		basic(KeyID(approver), approver): `200 User::"mia"`,
		"Bearer " + token:                `200 Acme::User::"mia"`,
		"Bearer " + pep:                  "200 ",
		"Bearer " + nameless:             "200 ",
		"":                               "200 ",
	} {
		claimed := []string{"Principal", `User::"eve"`, "X-Principal", `User::"eve"`, "X-Forwarded-User", "eve", "Mail", "eve", "Cookie", "principal=eve"}
		if credential != "" {
			claimed = append(claimed, "Authorization", credential)
		}
		if got := do(t, server.Client(), server.URL+`/?principal=User::"eve"&mail=eve`, claimed...); got != want {
			t.Errorf("%.10s: got %s, want %s", credential, got, want)
		}
	}
}
