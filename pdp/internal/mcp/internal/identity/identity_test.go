package identity_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest/clock"
)

func TestPrincipal(t *testing.T) {
	p := newProvider(t, clock.New())
	e := p.issuer()
	e.Tenant, e.SubjectType, e.AgentType, e.IDPrefix = "acme", "employee", "bot", "corp:"
	g := newGate(t, identity.Options{Issuers: []identity.Issuer{e}, Now: p.clock.Now})
	exp := p.clock.Now().Add(5 * time.Minute)
	token := p.token(claims{"exp": exp.Unix(), "amount": json.RawMessage("9007199254740993"), "roles": []string{"a"}, "null": json.RawMessage("null")})
	got := g.holder(token)
	if got.Issuer != p.URL || got.Subject != "alice" || got.Client != "desktop" || got.Tenant != "acme" || got.Token != token || !got.Expires.Equal(exp) {
		t.Errorf("got %+v", got)
	}
	if got.User != (identity.Entity{Type: "employee", ID: "corp:alice"}) || got.Agent != (identity.Entity{Type: "bot", ID: "corp:desktop"}) {
		t.Errorf("got %+v, %+v", got.User, got.Agent)
	}
	amount, _ := got.Claims.Get("amount")
	if _, null := got.Claims.Lookup("null"); amount.Text() != "9007199254740993" || !null {
		t.Errorf("the claims are %v", got.Claims)
	}
	sum := sha256.Sum256([]byte(p.URL + "\x00alice"))
	if want := base64.RawURLEncoding.EncodeToString(sum[:]); got.Person != want {
		t.Errorf("the person is %s, want %s", got.Person, want)
	}
}

// The PDP reads the same person from a token as questions name.
func TestThePersonIsThePDPs(t *testing.T) {
	p := newProvider(t, clock.New())
	pdp, err := auth.NewJWT([]auth.JWTIssuer{{
		Issuer: p.URL, Audience: resource, Algorithms: []string{"ES256"},
		Grant: auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Decide}},
	}}, auth.JWTOptions{Now: p.clock.Now})
	must(t, err)
	e := p.issuer()
	e.IDPrefix = "corp:"
	g := newGate(t, identity.Options{Issuers: []identity.Issuer{e}, SubjectClaim: "email", Now: p.clock.Now})
	for _, sub := range []string{"alice", "a#b", "#", "ü 1"} {
		token := p.token(claims{"sub": sub, "email": "a@example.com"})
		asks := httptest.NewRequest(http.MethodGet, "/", nil)
		asks.Header.Set("Authorization", "Bearer "+token)
		caller, err := (&auth.Authenticator{JWT: pdp}).Authenticate(asks)
		must(t, err)
		if got, answer := g.bearer(token); got == nil || got.Person != (&auth.Authenticator{}).Persons(caller.Name, auth.Principal{})[0] || got.Person == "" || got.User.ID != "corp:a@example.com" {
			t.Errorf("%q: got %+v, %+v; the PDP has %s", sub, got, answer, (&auth.Authenticator{}).Persons(caller.Name, auth.Principal{})[0])
		}
	}
}

func TestTokensThatCount(t *testing.T) {
	p, g := newProviderAndGate(t)
	type agent = identity.Entity
	for name, test := range map[string]struct {
		token string
		agent agent
	}{
		"plain":               {p.token(nil), agent{Type: "agent", ID: "desktop"}},
		"aud among others":    {p.token(claims{"aud": []string{"https://other.example.com", resource}}), agent{Type: "agent", ID: "desktop"}},
		"aud with a slash":    {p.token(claims{"aud": resource + "/"}), agent{Type: "agent", ID: "desktop"}},
		"both forms":          {p.token(claims{"aud": []string{resource + "/", resource}}), agent{Type: "agent", ID: "desktop"}},
		"RFC 9068":            {p.sign(p.key, header{"typ": "at+jwt"}, p.claims(claims{"nonce": "n"})), agent{Type: "agent", ID: "desktop"}},
		"azp alone":           {p.token(claims{"client_id": nil, "azp": "desk"}), agent{Type: "agent", ID: "desk"}},
		"azp too":             {p.token(claims{"azp": "desktop"}), agent{Type: "agent", ID: "desktop"}},
		"no client":           {p.token(claims{"client_id": nil}), agent{}},
		"client null":         {p.token(claims{"client_id": json.RawMessage("null")}), agent{}},
		"15 KiB":              {p.token(claims{"x": strings.Repeat("a", 11300)}), agent{Type: "agent", ID: "desktop"}},
		"its own kid missing": {p.signWith(jose.SigningKey{Algorithm: jose.ES256, Key: p.key}, nil, text(t, p.claims(nil))), agent{Type: "agent", ID: "desktop"}},
	} {
		if got, answer := g.bearer(test.token); got == nil || got.Agent != test.agent || got.User != (identity.Entity{Type: "user", ID: "alice"}) || got.Tenant != "default" {
			t.Errorf("%s: got %+v, %+v", name, got, answer)
		}
	}
	for _, scheme := range []string{"bearer", "BEARER", "Bearer  "} {
		if got, answer := g.send("?a=b", http.Header{"Authorization": {scheme + " " + p.token(nil)}}); got == nil {
			t.Errorf("%s: %+v", scheme, answer)
		}
	}
}

func TestClaimsThatName(t *testing.T) {
	p := newProvider(t, clock.New())
	g := newGate(t, identity.Options{Issuers: []identity.Issuer{p.issuer()}, SubjectClaim: "/https:~1~1x.example~1who/id", AgentClaim: "cid", Now: p.clock.Now})
	who := func(id any) claims {
		return claims{"https://x.example/who": map[string]any{"id": id}, "azp": "not asked for"}
	}
	if got, answer := g.bearer(p.token(who("bob"))); got == nil || got.Subject != "bob" || got.User.ID != "bob" || got.Client != "" {
		t.Errorf("got %+v, %+v", got, answer)
	}
	for _, id := range []any{nil, "", 7, []string{"bob"}, map[string]any{"id": "bob"}, "b\x00b", strings.Repeat("b", 1025)} {
		if got, _ := g.bearer(p.token(who(id))); got != nil {
			t.Errorf("%v: got %+v", id, got)
		}
	}
	if got, _ := g.bearer(p.token(nil)); got != nil {
		t.Errorf("without the claim: got %+v", got)
	}
}

// Two issuers with the same sub share no key, no person, no tenant or entity.
func TestTheSameSubOfTwoIssuersSharesNothing(t *testing.T) {
	c := clock.New()
	one, two := newProvider(t, c), newProvider(t, c)
	for name, change := range map[string]func(a, b *identity.Issuer){
		"tenants":  func(a, b *identity.Issuer) { b.Tenant = "partner" },
		"types":    func(a, b *identity.Issuer) { b.SubjectType, b.AgentType = "partner", "partner-agent" },
		"prefixes": func(a, b *identity.Issuer) { a.IDPrefix, b.IDPrefix = "own:", "partner:" },
	} {
		a, b := one.issuer(), two.issuer()
		change(&a, &b)
		g := newGate(t, identity.Options{Issuers: []identity.Issuer{a, b}, Now: c.Now})
		first, _ := g.bearer(one.token(nil))
		second, _ := g.bearer(two.token(nil))
		if first == nil || second == nil {
			t.Fatalf("%s: got %+v, %+v", name, first, second)
		}
		if first.Key == second.Key || first.Person == second.Person {
			t.Errorf("%s: got %+v and %+v", name, first, second)
		}
		if first.Tenant == second.Tenant && (first.User == second.User || first.Agent == second.Agent) {
			t.Errorf("%s: both are %+v, %+v", name, first.User, first.Agent)
		}
		// A token of one, with the other's name, has no valid signature.
		if got, _ := g.bearer(one.sign(one.key, nil, two.claims(nil))); got != nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestIssuersThatCouldNameOneEntityAreRefused(t *testing.T) {
	type change = func(a, b *identity.Issuer)
	for name, change := range map[string]change{
		"nothing":                   func(a, b *identity.Issuer) {},
		"the default, said":         func(a, b *identity.Issuer) { b.Tenant, b.SubjectType = "default", "user" },
		"clients alike":             func(a, b *identity.Issuer) { b.SubjectType = "partner" },
		"people alike":              func(a, b *identity.Issuer) { b.AgentType = "partner" },
		"one without":               func(a, b *identity.Issuer) { b.IDPrefix = "partner:" },
		"one begins with the other": func(a, b *identity.Issuer) { a.IDPrefix, b.IDPrefix = "p", "partner:" },
		"the same":                  func(a, b *identity.Issuer) { a.IDPrefix, b.IDPrefix = "p:", "p:" },
		"a client like a person":    func(a, b *identity.Issuer) { b.SubjectType, b.AgentType = "agent", "partner" },
		"a person like a client":    func(a, b *identity.Issuer) { a.SubjectType, a.AgentType, b.AgentType = "x", "y", "x" },
		"one issuer twice":          func(a, b *identity.Issuer) { b.Issuer, b.Tenant = a.Issuer, "partner" },
		"for two audiences":         func(a, b *identity.Issuer) { b.Issuer, b.Tenant, b.Audience = a.Issuer, "partner", "x" },
	} {
		a := identity.Issuer{Issuer: "https://one.example", Algorithms: []string{"ES256"}}
		b := identity.Issuer{Issuer: "https://two.example", Algorithms: []string{"ES256"}}
		change(&a, &b)
		for _, issuers := range [][]identity.Issuer{{a, b}, {b, a}} {
			_, err := identity.New(identity.Options{Resource: resource, Issuers: issuers})
			if err == nil || !strings.HasPrefix(err.Error(), "identity.issuers[1]: ") || !strings.Contains(err.Error(), "; ") {
				t.Errorf("%s: %v", name, err)
			}
			if n, early := identity.Apart(identity.Options{Issuers: issuers}); n != 1 || early == nil || !strings.Contains(err.Error(), early.Error()) {
				t.Errorf("%s: without reading a file it is %d, %v", name, n, early)
			}
		}
	}
}

// Of whatever issuers are taken, no two give one name, whatever their tokens say.
func TestNoTwoIssuersNameOneEntity(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	type name struct {
		tenant string
		identity.Entity
	}
	taken := 0
	for range 3000 {
		var issuers []identity.Issuer
		for n := range 3 {
			issuers = append(issuers, identity.Issuer{
				Issuer: "https://" + string(rune('a'+n)) + ".example", Algorithms: []string{"ES256"}, Tenant: pick("", "default", "x"),
				SubjectType: pick("", "user", "u"), AgentType: pick("", "agent", "u", "a"), IDPrefix: pick("", "p", "pq", "q", "qp:"),
			})
		}
		if _, err := identity.New(identity.Options{Resource: resource, Issuers: issuers}); err != nil {
			continue
		}
		taken++
		by := map[name]string{}
		for _, e := range issuers {
			for _, sub := range []string{"p", "q", "qp", "pq", ":", "p:", "qp:", "pqp", "qqp:", "qp:p"} {
				for _, typ := range []string{cmp.Or(e.SubjectType, "user"), cmp.Or(e.AgentType, "agent")} {
					of := name{cmp.Or(e.Tenant, "default"), identity.Entity{Type: typ, ID: e.IDPrefix + sub}}
					if other, there := by[of]; there && other != e.Issuer {
						t.Fatalf("%+v is of %s and of %s: %+v", of, other, e.Issuer, issuers)
					}
					by[of] = e.Issuer
				}
			}
		}
	}
	if taken < 50 {
		t.Errorf("only %d were taken, so nothing is known", taken)
	}
}

func TestKeysAreOfOnePrincipalAlone(t *testing.T) {
	p := newProvider(t, clock.New())
	g := newGate(t, identity.Options{Issuers: []identity.Issuer{p.issuer()}, SubjectClaim: "name", Now: p.clock.Now})
	seen := map[string]claims{}
	for _, changes := range []claims{
		{"sub": "a", "name": "b", "client_id": "c"},
		{"sub": "ab", "name": "b", "client_id": "c"},
		{"sub": "a", "name": "bc", "client_id": nil},
		{"sub": "a", "name": "b", "client_id": nil},
		{"sub": "a", "name": "b", "client_id": "cc"},
		{"sub": "b", "name": "a", "client_id": "c"},
		{"sub": "c", "name": "b", "client_id": "a"},
		{"sub": "abc", "name": "b", "client_id": nil},
	} {
		got := g.holder(p.token(changes))
		if other, there := seen[got.Key]; there {
			t.Errorf("%v and %v share a key", other, changes)
		}
		seen[got.Key] = changes
		again, _ := g.bearer(p.token(map[string]any{"sub": changes["sub"], "name": changes["name"], "client_id": changes["client_id"], "jti": "2", "roles": "x"}))
		if again == nil || again.Key != got.Key {
			t.Errorf("%v: another token of the same principal has another key", changes)
		}
	}
}

func TestKeysFromAFile(t *testing.T) {
	p := newProvider(t, clock.New())
	e := identity.Issuer{Issuer: "issuer of tests", Algorithms: []string{"ES256"}, JWKSFile: writeKeys(t, p)}
	g := newGate(t, identity.Options{Issuers: []identity.Issuer{e}, Now: p.clock.Now})
	if got, answer := g.bearer(p.token(claims{"iss": "issuer of tests"})); got == nil {
		t.Error(answer)
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	good := identity.Issuer{Issuer: "https://one.example", Algorithms: []string{"ES256"}}
	with := func(change func(*identity.Issuer)) []identity.Issuer {
		e := good
		change(&e)
		return []identity.Issuer{e}
	}
	static, err := evaluation.NewObject(map[string]any{"sub": "local"})
	must(t, err)
	for want, o := range map[string]identity.Options{
		"no absolute URL":                  {Issuers: []identity.Issuer{good}},
		"resource is plain HTTP":           {Resource: "http://mcp.example.com/mcp", Issuers: []identity.Issuer{good}},
		"resource has a fragment":          {Resource: "https://mcp.example.com/mcp#x", Issuers: []identity.Issuer{good}},
		"resource is no plain address":     {Resource: "https://mcp.example.com/mcp?x=1", Issuers: []identity.Issuer{good}},
		"no plain address":                 {Resource: "https://mcp.example.com/a/../mcp", Issuers: []identity.Issuer{good}},
		"resource is no absolute URL":      {Resource: "https://u:p@mcp.example.com/mcp", Issuers: []identity.Issuer{good}},
		"identity.scopes[1]":               {Resource: resource, Issuers: []identity.Issuer{good}, Scopes: []string{"a", `b"`}},
		"identity.subject_claim":           {Resource: resource, Issuers: []identity.Issuer{good}, SubjectClaim: "/~"},
		"identity.agent_claim":             {Resource: resource, Issuers: []identity.Issuer{good}, AgentClaim: "/~"},
		"nobody could ask":                 {Resource: resource},
		"issuers and static are both":      {Resource: resource, Issuers: []identity.Issuer{good}, Static: static, Private: true},
		"listens on more than loopback":    {Resource: resource, Static: static},
		"issuers[0]: tenant is no":         {Resource: resource, Issuers: with(func(e *identity.Issuer) { e.Tenant = "../x" })},
		"issuers[0]: subject_type and":     {Resource: resource, Issuers: with(func(e *identity.Issuer) { e.SubjectType = "agent" })},
		"issuers[0]: subject_type, ":       {Resource: resource, Issuers: with(func(e *identity.Issuer) { e.IDPrefix = "\n" })},
		"issuers[0]: algorithms is":        {Resource: resource, Issuers: with(func(e *identity.Issuer) { e.Algorithms = nil })},
		"issuers[0]: the algorithm":        {Resource: resource, Issuers: with(func(e *identity.Issuer) { e.Algorithms = []string{"HS256"} })},
		"issuers[0]: jwks_file":            {Resource: resource, Issuers: with(func(e *identity.Issuer) { e.JWKSFile = "/nowhere" })},
		"issuers[0]: issuer: keys are":     {Resource: resource, Issuers: with(func(e *identity.Issuer) { e.Issuer = "http://one.example" })},
		"issuers[0]: issuer is missing or": {Resource: resource, Issuers: with(func(e *identity.Issuer) { e.Issuer = "" })},
	} {
		if _, err := identity.New(o); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

func TestAContextEndsWithTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &identity.Principal{Expires: time.Now().Add(time.Minute)}
		ctx, cancel := p.Context(t.Context())
		defer cancel()
		time.Sleep(time.Minute - time.Nanosecond) // of the bubble: it takes no time
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatalf("too early: %v", ctx.Err())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), identity.ErrExpired) || ctx.Err() == nil {
			t.Errorf("got %v", context.Cause(ctx))
		}
	})
}

func TestAContextGoesByTheGatewaysClock(t *testing.T) {
	p, g := newProviderAndGate(t)
	who := g.holder(p.token(nil))
	ctx, cancel := who.Context(t.Context())
	if ctx.Err() != nil {
		t.Error("it ends at once")
	}
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 5*time.Minute {
		t.Errorf("it ends at %v", deadline)
	}
	cancel()
	p.clock.Advance(5 * time.Minute)
	ctx, cancel = who.Context(t.Context())
	defer cancel()
	if !errors.Is(context.Cause(ctx), identity.ErrExpired) {
		t.Errorf("it has not ended: %v", context.Cause(ctx))
	}
}

func TestOnBehalfOf(t *testing.T) {
	p := newProvider(t, clock.New())
	user, agent := func(id string) identity.Entity { return identity.Entity{Type: "user", ID: "c:" + id} }, func(id string) identity.Entity { return identity.Entity{Type: "agent", ID: "c:" + id} }
	type entities = []identity.Entity
	e := p.issuer()
	e.IDPrefix = "c:"
	for _, test := range []struct {
		subject, act string
		client       any
		want         entities
	}{
		{"", `null`, "desktop", entities{user("alice")}},
		{"", `null`, nil, nil},
		{"", `null`, "alice", entities{user("alice")}},
		{"", `{"sub":"bot"}`, nil, entities{agent("bot")}},
		{"", `{"sub":"desktop"}`, "desktop", entities{user("alice")}},
		{"", `{"sub":"bot","iss":"ISS"}`, "desktop", entities{agent("bot"), user("alice")}},
		{"", `{"sub":"desktop","act":{"sub":"b","act":{"sub":"c"}}}`, "desktop", entities{agent("b"), agent("c"), user("alice")}},
		{"", `{"sub":"b","act":{"sub":"b"}}`, "desktop", entities{agent("b"), user("alice")}},
		{"/act/sub", `{"sub":"bot"}`, "desktop", entities{agent("bot"), user("bot"), user("alice")}},
		{"/act/sub", `{"sub":"bot","act":{"sub":"c"}}`, "desktop", entities{agent("bot"), agent("c"), user("bot"), user("alice")}},
		{"/act/sub", `{"sub":"bot","act":{"sub":"c"}}`, nil, entities{agent("bot"), agent("c"), user("alice")}},
	} {
		g := newGate(t, identity.Options{Issuers: []identity.Issuer{e}, SubjectClaim: test.subject, Now: p.clock.Now})
		act := json.RawMessage(strings.ReplaceAll(test.act, "ISS", p.URL))
		who := g.holder(p.token(claims{"act": act, "client_id": test.client}))
		if got, err := who.OnBehalfOf(); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, %v; want %v", test.act, got, err, test.want)
		}
	}
	g := newGate(t, identity.Options{Issuers: []identity.Issuer{e}, Now: p.clock.Now})
	for _, act := range []string{
		`"bot"`, `[]`, `[{"sub":"bot"}]`, `{}`, `7`, `true`, `{"sub":7}`, `{"sub":""}`, `{"sub":"a\nb"}`, `{"client_id":"bot"}`, `{"sub":"bot","client_id":"x"}`,
		`{"sub":"bot","iss":"https://issuer.example"}`, `{"sub":"bot","iss":null}`, `{"sub":"bot","act":"x"}`, `{"sub":"bot","act":{}}`, `{"sub":"bot","act":{"sub":"b","iss":"x"}}`,
	} {
		who := g.holder(p.token(claims{"act": json.RawMessage(act)}))
		if got, err := who.OnBehalfOf(); err == nil || got != nil {
			t.Errorf("%s: got %v", act, got)
		}
	}
}

// The cost of a request's token, if it is not the first with it.
func BenchmarkAuthenticate(b *testing.B) {
	p := newProvider(b, clock.New())
	i, err := identity.New(identity.Options{Resource: resource, Issuers: []identity.Issuer{p.issuer()}, Now: p.clock.Now})
	must(b, err)
	r := httptest.NewRequest(http.MethodPost, "/mcp", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+p.token(claims{"roles": []string{"a", "b"}, "department_id": "c", "scope": "mcp:tools", "jti": "1", "iat": 1}))
	b.ReportAllocs()
	for b.Loop() {
		if _, challenge := i.Authenticate(r); challenge != nil {
			b.Fatal(challenge)
		}
	}
}

func fixed(t *testing.T, members map[string]any) (*identity.Identity, error) {
	t.Helper()
	static, err := evaluation.NewObject(members)
	must(t, err)
	return identity.New(identity.Options{Resource: "http://127.0.0.1:8181/mcp", Static: static, StaticToken: "known", Private: true, DefaultTenant: "acme"})
}

func TestAFixedIdentity(t *testing.T) {
	i, err := fixed(t, map[string]any{"iss": "https://one.example", "sub": "alice", "client_id": "desktop", "act": map[string]any{"sub": "bot"}})
	must(t, err)
	p := i.Fixed()
	if p == nil || p.Issuer != "https://one.example" || p.Subject != "alice" || p.Client != "desktop" || p.Tenant != "acme" || p.Key == "" || p.Token != "known" || !p.Expires.IsZero() {
		t.Fatalf("got %+v", p)
	}
	if p.User != (identity.Entity{Type: "user", ID: "alice"}) || p.Agent != (identity.Entity{Type: "agent", ID: "desktop"}) || p.Person != evaluation.PersonOf("https://one.example", "alice") {
		t.Errorf("got %+v", p)
	}
	if chain, err := p.OnBehalfOf(); err != nil || !slices.Equal(chain, []identity.Entity{{Type: "agent", ID: "bot"}, {Type: "user", ID: "alice"}}) {
		t.Errorf("got %v, %v", chain, err)
	}
	if i.Metadata() != nil || i.MetadataPaths() != nil {
		t.Errorf("got %s, %q", i.Metadata(), i.MetadataPaths())
	}
	ctx, cancel := p.Context(t.Context())
	if _, ends := ctx.Deadline(); ends || ctx.Err() != nil {
		t.Error("it ends by itself")
	}
	if cancel(); ctx.Err() == nil {
		t.Error("it does not end")
	}
}

func TestFixedIdentitiesThatAreRefused(t *testing.T) {
	for _, members := range []map[string]any{
		{"client_id": "desktop"}, {"sub": ""}, {"sub": 7}, {"sub": "a", "client_id": 7}, {"sub": "a", "iss": 7}, {"sub": "a", "iss": ""}, {"sub": "a", "iss": "a#b"}, {"sub": "a\nb"},
	} {
		if i, err := fixed(t, members); err == nil || !strings.HasPrefix(err.Error(), "identity.static: ") || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%v: got %+v, %v", members, i, err)
		}
	}
}

// A request from another machine is not the fixed person.
func TestAFixedIdentityIsForThisMachine(t *testing.T) {
	i, err := fixed(t, map[string]any{"sub": "alice"})
	must(t, err)
	if p := i.Fixed(); p.Person != "" || p.Agent != (identity.Entity{}) || p.User.ID != "alice" { // no issuer names it
		t.Errorf("got %+v", p)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, challenge := i.Authenticate(r)
		if (p == nil) == (challenge == nil) {
			t.Errorf("got %v and %v; want exactly one of them", p, challenge)
		}
		if challenge != nil {
			forwarded := r.Host == r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()
			if challenge.Header != "" || strings.Contains(challenge.Detail, "a proxy") != forwarded {
				t.Errorf("got %+v", challenge)
			}
			w.WriteHeader(challenge.Status)
		}
	}))
	t.Cleanup(server.Close)
	for name, test := range map[string]struct {
		host, header string
		want         int
	}{
		"this machine":       {"", "", http.StatusOK},
		"localhost":          {"localhost:1", "", http.StatusOK},
		"with a token":       {"", "Authorization", http.StatusOK},
		"rebound":            {"evil.example", "", http.StatusForbidden},
		"a proxy":            {"", "X-Forwarded-For", http.StatusForbidden},
		"another proxy":      {"", "Via", http.StatusForbidden},
		"a standard's proxy": {"", "Forwarded", http.StatusForbidden},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
		must(t, err)
		r.Host = test.host
		if test.header != "" {
			r.Header.Set(test.header, "x")
		}
		w, err := server.Client().Do(r)
		must(t, err)
		if _ = w.Body.Close(); w.StatusCode != test.want {
			t.Errorf("%s: got %d", name, w.StatusCode)
		}
	}
}

func TestMetadata(t *testing.T) {
	issuers := []identity.Issuer{
		{Issuer: "https://two.example/realm", Algorithms: []string{"ES256"}, Tenant: "two"},
		{Issuer: "https://one.example", Algorithms: []string{"ES256"}},
	}
	for id, paths := range map[string][]string{
		"https://mcp.example.com/mcp":        {"/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"},
		"https://mcp.example.com/a/b.c/":     {"/.well-known/oauth-protected-resource/a/b.c/", "/.well-known/oauth-protected-resource"},
		"https://mcp.example.com":            {"/.well-known/oauth-protected-resource"},
		"https://mcp.example.com/":           {"/.well-known/oauth-protected-resource"},
		"https://mcp.example.com:8443/mcp":   {"/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"},
		"http://[::1]:8181/mcp":              {"/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"},
		"http://localhost:8181/.x/-y/~z/_/1": {"/.well-known/oauth-protected-resource/.x/-y/~z/_/1", "/.well-known/oauth-protected-resource"},
	} {
		i, err := identity.New(identity.Options{Resource: id, Name: "Tickets", Issuers: issuers, Scopes: []string{"mcp:tools", "x"}})
		must(t, err)
		want := `{"resource":"` + id + `","authorization_servers":["https://one.example","https://two.example/realm"],"bearer_methods_supported":["header"],` +
			`"scopes_supported":["mcp:tools","x"],"resource_name":"Tickets"}`
		if got := string(i.Metadata()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if got := i.MetadataPaths(); !slices.Equal(got, paths) {
			t.Errorf("%s: got %q, want %q", id, got, paths)
		}
		if i.Fixed() != nil {
			t.Errorf("got %+v", i.Fixed())
		}
	}
}

// The SDK finds from a refusal where to get a token.
func TestTheSDKFollowsAChallenge(t *testing.T) {
	p := newProvider(t, clock.New())
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	id := server.URL + "/mcp"
	hidden := identity.Issuer{Issuer: "no address", Algorithms: []string{"ES256"}, JWKSFile: writeKeys(t, p), Tenant: "other"}
	i, err := identity.New(identity.Options{Resource: id, Issuers: []identity.Issuer{p.issuer(), hidden}, Scopes: []string{"a", "b"}, Now: p.clock.Now})
	must(t, err)
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		_, challenge := i.Authenticate(r)
		w.Header().Set("WWW-Authenticate", challenge.Header)
		w.WriteHeader(challenge.Status)
	})
	for _, path := range i.MetadataPaths() {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(i.Metadata())
		})
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, id, http.NoBody)
	must(t, err)
	w, err := server.Client().Do(r)
	must(t, err)
	_ = w.Body.Close()
	challenges, err := oauthex.ParseWWWAuthenticate(w.Header.Values("WWW-Authenticate"))
	if err != nil || len(challenges) != 1 || challenges[0].Params["scope"] != "a b" || challenges[0].Params["error"] != "" {
		t.Fatalf("got %+v, %v", challenges, err)
	}
	for _, address := range []string{challenges[0].Params["resource_metadata"], server.URL + "/.well-known/oauth-protected-resource"} {
		document, err := oauthex.GetProtectedResourceMetadata(t.Context(), address, id, server.Client())
		if err != nil || !slices.Equal(document.AuthorizationServers, []string{p.URL}) || !slices.Equal(document.ScopesSupported, []string{"a", "b"}) {
			t.Errorf("%s: got %+v, %v", address, document, err)
		}
	}
}
