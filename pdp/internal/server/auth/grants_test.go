package auth

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/clock"
)

// A grant is for who has the very text, alone or in a list of texts, and for nobody whose claim has another form.
func TestWhatAGrantMatches(t *testing.T) {
	t.Parallel()
	grant := groupGrant("auditors", "log.read", "acme")
	for claims, want := range map[string]bool{
		`{"groups":"auditors"}`:                  true,
		`{"groups":["staff","auditors"]}`:        true,
		`{"groups":["\u0061uditors"]}`:           true,
		`{"groups":["auditors","auditors"]}`:     true,
		`{}`:                                     false,
		`{"groups":null}`:                        false,
		`{"groups":""}`:                          false,
		`{"groups":[]}`:                          false,
		`{"groups":"auditors "}`:                 false,
		`{"groups":"Auditors"}`:                  false,
		`{"groups":"auditors,staff"}`:            false,
		`{"groups":"staff auditors"}`:            false,
		`{"groups":["auditors2"]}`:               false,
		`{"groups":["audit\u006frs\u0301"]}`:     false,
		`{"groups":1}`:                           false,
		`{"groups":true}`:                        false,
		`{"groups":{"auditors":true}}`:           false,
		`{"groups":{"groups":"auditors"}}`:       false,
		`{"groups":[["auditors"]]}`:              false,
		`{"groups":["auditors",1]}`:              false,
		`{"groups":[null,"auditors"]}`:           false,
		`{"groups":["auditors",{"a":1}]}`:        false,
		`{"roles":"auditors"}`:                   false,
		`{"Groups":"auditors"}`:                  false,
		`{"realm_access":{"groups":"auditors"}}`: false,
	} {
		read, err := evaluation.ParseWithNulls([]byte(claims), evaluation.DefaultLimits())
		if err != nil {
			t.Fatalf("%s: %v", claims, err)
		}
		if got := grant.matches(read); got != want {
			t.Errorf("%s: got %v", claims, got)
		}
	}
}

// Nobody has a permission in a tenant that no single grant gives, whatever the caller is looked at for, and everybody has
// all that their grants give.
func TestGrantsNeverGiveTogetherWhatNoneGives(t *testing.T) {
	t.Parallel()
	names, groups := []string{"a", "b", "c"}, []string{"g0", "g1", "g2", "g3"}
	some := []Permission{Decide, Approve, LogRead, Explain}
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from []string) (picked []string) {
		for len(picked) == 0 {
			picked = slices.DeleteFunc(slices.Clone(from), func(string) bool { return random.IntN(2) == 0 })
		}
		return picked
	}
	apart := 0
	for range 2000 {
		entry := JWTIssuer{Issuer: testIssuer, Audience: testAudience, Principal: &PrincipalClaim{"User", "email"}}
		for _, group := range groups[:1+random.IntN(len(groups))] {
			tenants := pick(names)
			if random.IntN(5) == 0 {
				tenants = append(tenants, "*")
			}
			permissions := slices.DeleteFunc(slices.Clone(some), func(Permission) bool { return random.IntN(2) == 0 })
			if len(permissions) == 0 {
				permissions = some[:1]
			}
			entry.Grants = append(entry.Grants, ClaimGrant{Claim: "groups", Value: group, Tenants: tenants, Permissions: permissions})
		}
		of := pick(groups)
		list, err := evaluation.Texts(of)
		must(t, err)
		email, _ := evaluation.Text("alice")
		caller := entry.holder(testIssuer, "alice", evaluation.Object{}.With("groups", list).With("email", email))
		given := func(tenant string, p Permission) bool {
			return slices.ContainsFunc(entry.Grants, func(g ClaimGrant) bool { return slices.Contains(of, g.Value) && g.grant().Lets(tenant, p) })
		}
		if caller.Apart != nil {
			apart++
			if caller.AllTenants || len(caller.Tenants)+len(caller.Permissions) > 0 {
				t.Fatalf("%+v may do something before it is known what it is about", caller)
			}
		}
		looks := map[string]Caller{"": caller}
		for _, tenant := range names {
			looks["in "+tenant] = caller.In(tenant)
			for _, p := range some {
				looks["where "+string(p)] = caller.Where(p)
				looks["in "+tenant+" where "+string(p)] = caller.In(tenant).Where(p)
				looks["where "+string(p)+" in "+tenant] = caller.Where(p).In(tenant)
				if is := caller.In(tenant); given(tenant, p) != (is.Serves(tenant) && is.May(p)) {
					t.Fatalf("in %s, %s: got %+v of %+v for %q", tenant, p, is, entry.Grants, of)
				}
				if is := caller.Where(p); given(tenant, p) != (is.Serves(tenant) && is.May(p)) {
					t.Fatalf("where %s, in %s: got %+v of %+v for %q", p, tenant, is, entry.Grants, of)
				}
			}
		}
		for name, look := range looks {
			for _, tenant := range append(names, "elsewhere") {
				for _, p := range permissions {
					if look.Serves(tenant) && look.May(p) && !given(tenant, p) {
						t.Fatalf("%q: %s in %s, which %+v do not give to %q", name, p, tenant, entry.Grants, of)
					}
				}
			}
			if look.AllTenants != slices.Contains(look.Tenants, "*") {
				t.Fatalf("%q: %+v", name, look)
			}
			if !look.Is(caller) || !caller.Is(look) {
				t.Fatalf("%q: %+v is no more %+v", name, look, caller)
			}
		}
	}
	if apart < 500 || apart > 1900 {
		t.Errorf("%d of 2000 have not every permission in every tenant", apart)
	}
}

func TestWhoIsTheSameCaller(t *testing.T) {
	t.Parallel()
	base := Caller{Name: "jwt:i#s", Principal: mia}
	one := base.granted([]Grant{groupGrant("", "approve", "a").grant(), groupGrant("", "log.read", "b").grant()})
	for name, other := range map[string]Caller{
		"nothing":             base,
		"another tenant":      base.granted([]Grant{groupGrant("", "approve", "b").grant(), groupGrant("", "log.read", "a").grant()}),
		"one grant less":      base.granted([]Grant{groupGrant("", "approve", "a").grant()}),
		"the same everywhere": base.granted([]Grant{groupGrant("", "approve log.read", "a b").grant()}),
		"another name":        {Name: "jwt:i#t", Principal: mia, Apart: one.Apart},
	} {
		if one.Is(other) || other.Is(one) || one.In("a").Is(other.In("a")) {
			t.Errorf("%s: it is the same caller", name)
		}
	}
	tenants, permissions := one.Anywhere()
	if fmt.Sprint(tenants, permissions) != "[a b] [approve log.read]" {
		t.Errorf("got %v, %v", tenants, permissions)
	}
	if tenants, permissions := base.granted(nil).Anywhere(); len(tenants)+len(permissions) > 0 {
		t.Errorf("nobody has %v, %v", tenants, permissions)
	}
}

// Bearer tokens have the rights that their claims give, and only where the claims can be read in one way.
func TestGrantsOfBearerTokens(t *testing.T) {
	t.Parallel()
	c, s := clock.New(), newSigner(t, "1", jose.ES256)
	p := newProvider(t, httptest.NewServer, s)
	entry := JWTIssuer{
		Issuer: p.URL, Audience: testAudience, Algorithms: []string{"ES256"}, Principal: &PrincipalClaim{"User", "sub"},
		Grants: []ClaimGrant{groupGrant("approvers", "approve", "acme"), groupGrant("auditors", "log.read", "default")},
		Grant:  Grant{Obligations: []string{"log"}, Audiences: []string{"gw"}},
	}
	j, err := NewJWT([]JWTIssuer{entry}, JWTOptions{Now: c.Now})
	must(t, err)
	a := &Authenticator{JWT: j}
	ask := func(token string) (Caller, error) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		return a.Authenticate(r)
	}
	with := func(groups any) string {
		return s.token(t, claims(c, map[string]any{"iss": p.URL, "groups": groups}), nil)
	}
	caller, err := ask(with([]string{"auditors", "approvers"}))
	if err != nil || caller.Apart == nil || !caller.In("acme").May(Approve) || caller.In("acme").May(LogRead) || !caller.In("default").May(LogRead) ||
		!caller.Registered || !slices.Equal(caller.Obligations, []string{"log"}) || !slices.Equal(caller.In("acme").Audiences, []string{"gw"}) ||
		caller.Principal != (Principal{"User", "alice"}) || caller.Way != (evaluation.Way{}) {
		t.Errorf("got %+v, %v", caller, err)
	}
	if caller, err = ask(with("approvers")); err != nil || caller.Apart != nil || !caller.May(Approve) || !caller.Serves("acme") || caller.Serves("default") {
		t.Errorf("got %+v, %v", caller, err)
	}
	if caller, err = ask(with(nil)); err != nil || caller.Name == "" || len(caller.Permissions)+len(caller.Tenants)+len(caller.Apart) > 0 || caller.AllTenants {
		t.Errorf("got %+v, %v; want somebody who may do nothing", caller, err)
	}
	text := string(asJSON(t, claims(c, map[string]any{"iss": p.URL, "groups": "approvers"})))
	for name, claims := range map[string]string{
		"twice":    strings.Replace(text, "{", `{"groups":"auditors",`, 1),
		"no UTF-8": strings.Replace(text, "approvers", "approvers\xff", 1),
	} {
		caller, err := ask(signText(t, s, claims))
		mustRefuseLogin(t, name, caller, err)
	}
	name := "jwt:" + p.URL + "#alice"
	if !a.InForce("acme", name) || a.InForce("default", name) {
		t.Error("votes do not count as the grants say")
	}
}

// What a gateway brings is what the grants of its entry let people say there, in the tenants of both.
func TestGrantsOfPeopleBesideAGateway(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	entry := r.JWT.issuers[1].JWTIssuer
	entry.Grant = Grant{}
	entry.Grants = []ClaimGrant{groupGrant("staff", "approve", "acme"), groupGrant("leads", "approve", "default globex")}
	var err error
	if r.JWT, err = NewJWT([]JWTIssuer{entry}, JWTOptions{Now: r.clock.Now}); err != nil {
		t.Fatal(err)
	}
	for groups, want := range map[string]string{"staff": "acme", "leads": "default globex", "staff leads": "acme default globex", "others": ""} {
		token := r.token(t, map[string]any{"groups": strings.Fields(groups)}, "gateway")
		for key, cut := range map[string]string{"gateway": want, "narrow": strings.Join(slices.DeleteFunc(strings.Fields(want), func(s string) bool { return s != "acme" }), " ")} {
			caller, err := r.ask("Bearer "+r.key[key], token)
			if err != nil || caller.Apart != nil || caller.AllTenants || strings.Join(caller.Tenants, " ") != cut || caller.May(Approve) != (want != "") {
				t.Errorf("%s by %s: got %+v, %v; want %q", groups, key, caller, err, cut)
			}
		}
	}
	holder := "jwt:" + testIssuer + "#alice"
	if !r.RelayInForce("globex", holder, "key:gateway") || r.RelayInForce("acme-2", holder, "key:gateway") || r.RelayInForce("default", holder, "key:narrow") {
		t.Error("votes do not count as the grants say")
	}
	entry.Grants = append(entry.Grants, groupGrant("auditors", "approve log.read", "acme"))
	if _, err := NewJWT([]JWTIssuer{entry}, JWTOptions{}); err == nil || !strings.Contains(err.Error(), "good for approving alone") {
		t.Errorf("got %v", err)
	}
}

func TestGrantsThatAreNotTaken(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("g", maxGrantValue+1)
	for want, change := range map[string]func(*JWTIssuer){
		"grants is empty":                                 func(i *JWTIssuer) { i.Grants = []ClaimGrant{} },
		"grants stands in place of permissions":           func(i *JWTIssuer) { i.Tenants = []string{"acme"} },
		"grants stands in place of permissions and":       func(i *JWTIssuer) { i.Permissions = []Permission{Decide} },
		"grants[0]: claim is missing":                     func(i *JWTIssuer) { i.Grants[0].Claim = "" },
		"grants[0]: claim is missing or":                  func(i *JWTIssuer) { i.Grants[0].Claim = "a\nb" },
		"grants[0]: value is missing":                     func(i *JWTIssuer) { i.Grants[0].Value = "" },
		"grants[0]: value is missing, not printable":      func(i *JWTIssuer) { i.Grants[0].Value = "\u202e" },
		"grants[0]: value is missing, not printable or":   func(i *JWTIssuer) { i.Grants[0].Value = long },
		"grants[0]: permissions is missing":               func(i *JWTIssuer) { i.Grants[0].Permissions = nil },
		`grants[0]: there is no permission "all"`:         func(i *JWTIssuer) { i.Grants[0].Permissions = []Permission{"all"} },
		"grants[0]: permissions has relay":                func(i *JWTIssuer) { i.Grants[0].Permissions = []Permission{Relay} },
		"grants[0]: tenants is missing":                   func(i *JWTIssuer) { i.Grants[0].Tenants = nil },
		"is no legal tenant name":                         func(i *JWTIssuer) { i.Grants[0].Tenants = []string{"a/b"} },
		"grants[1]: permissions has approve, and nothing": func(i *JWTIssuer) { i.Principal = nil },
		"is no obligation type":                           func(i *JWTIssuer) { i.Obligations = []string{"a b", "-"} },
		"is no audience":                                  func(i *JWTIssuer) { i.Audiences = []string{"a b", "-"} },
	} {
		entry := decider("RS256")
		entry.Grant, entry.Principal = Grant{}, &PrincipalClaim{"User", "sub"}
		entry.Grants = []ClaimGrant{groupGrant("auditors", "log.read", "acme"), groupGrant("approvers", "approve", "acme")}
		must(t, entry.check())
		change(&entry)
		if err := entry.check(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "; ") && !strings.Contains(err.Error(), "try ") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestOIDCThatIsNotTaken(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*OIDC){
		"console.oidc: issuer is missing":      func(o *OIDC) { o.Issuer = "" },
		"console.oidc: issuer: keys are":       func(o *OIDC) { o.Issuer = "http://login.example.com" },
		"console.oidc: client_id is missing":   func(o *OIDC) { o.ClientID = "" },
		"client_id is missing, not printable":  func(o *OIDC) { o.ClientID = "a\nb" },
		"console.oidc: grants is missing":      func(o *OIDC) { o.Grants = nil },
		"console.oidc: grants[0]: value":       func(o *OIDC) { o.Grants[0].Value = "" },
		"grants[0]: permissions has approve":   func(o *OIDC) { o.Principal = nil },
		"principal.type is missing":            func(o *OIDC) { o.Principal.Type = "" },
		`the algorithm "HS256" is not taken`:   func(o *OIDC) { o.Algorithms = []string{"RS256", "HS256"} },
		`the algorithm "none" is not taken`:    func(o *OIDC) { o.Algorithms = []string{"none"} },
		"console.oidc: algorithms is missing":  func(o *OIDC) { o.Algorithms = []string{} },
		"grants[0]: permissions has relay, wh": func(o *OIDC) { o.Grants[0].Permissions = []Permission{Relay} },
	} {
		config := OIDC{Issuer: testIssuer, ClientID: loginClient, Principal: &PrincipalClaim{"User", "sub"}, Grants: []ClaimGrant{groupGrant("approvers", "approve", "acme")}}
		if _, err := NewConsole(config, nil, JWTOptions{}); err != nil {
			t.Fatal(err)
		}
		change(&config)
		if _, err := NewConsole(config, nil, JWTOptions{}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "console.oidc: ") || !strings.Contains(err.Error(), "; ") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	config := OIDC{Issuer: testIssuer, ClientID: testAudience}
	must(t, config.CheckBeside([]JWTIssuer{{Issuer: testIssuer, Audience: "other"}, {Issuer: otherIssuer, Audience: testAudience}}))
	if err := config.CheckBeside([]JWTIssuer{{Issuer: testIssuer, Audience: "other"}, decider("RS256")}); err == nil || !strings.Contains(err.Error(), "auth.jwt[1]") {
		t.Errorf("got %v", err)
	}
}
