package server_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/written"
)

// bank is a wallet beside issuers whose tokens are exchanged.
type bank struct {
	*wallet
	issuer *pdptest.Issuer
}

// The issuers that a bank knows, which sign with one key, and one audience of each kind of token.
const (
	ofAgents  = "https://agents.example"
	ofPersons = "https://persons.example"
	ofJAGs    = "https://idp.example"
	ofSVIDs   = "https://spire.example"
	ofBearers = "https://bearers.example"
	ofShared  = "https://shared.example" // whose tokens are of the client
)

func openBank(t *testing.T, options ...pdptest.Option) *bank {
	t.Helper()
	b := &bank{issuer: pdptest.NewIssuer(t)}
	entry := func(iss, audience string, exchange *auth.Exchange, typ, claim string, tenants ...string) auth.JWTIssuer {
		return auth.JWTIssuer{
			Issuer: iss, Audience: audience, JWKSFile: b.issuer.File, Algorithms: []string{"EdDSA"}, Exchange: exchange,
			Principal: &auth.PrincipalClaim{Type: typ, Claim: claim},
			Grant:     auth.Grant{Tenants: tenants, Permissions: []auth.Permission{auth.Capability}},
		}
	}
	issuers := []auth.JWTIssuer{
		entry(ofAgents, "pdp", &auth.Exchange{Kind: auth.AccessToken}, "agent", "sub", "default"),
		entry(ofPersons, "pdp", &auth.Exchange{Kind: auth.AccessToken, Person: "user"}, "agent", "client_id", "*"),
		entry(ofJAGs, issuer, &auth.Exchange{Kind: auth.IDJAG, Person: "user"}, "agent", "client_id", "*"),
		entry(ofSVIDs, "pdp", &auth.Exchange{Kind: auth.SVID, TrustDomain: "example.org"}, "agent", "sub", "*"),
		entry(ofBearers, "pdp", nil, "agent", "sub", "*"),
		entry(ofShared, "pdp", nil, "agent", "client_id", "*"),
	}
	b.wallet = openWallet(t, append(options, func(c *server.Config) { c.Auth.JWT = issuers })...)
	b.welcome("desktop", "", auth.Capability)
	return b
}

type claimSet = map[string]any

// token is a token that is good for five minutes.
func (b *bank) token(typ, iss, sub string, more claimSet) string {
	own := claimSet{"iss": iss, "sub": sub, "aud": "pdp", "exp": b.Now().Add(5 * time.Minute).Unix(), "iat": b.Now().Unix()}
	return b.issuer.Typed(typ, own, more)
}

const tokenType = "urn:ietf:params:oauth:token-type:"

// form is a request that is granted, for agent bot, but for a change of what is asked.
func (b *bank) form(subject, kind string, change func(*capability.Ask), tools ...string) url.Values {
	b.t.Helper()
	a := b.asking(change, tools...)
	d := map[string]any{
		"type": "tool_capability", "locations": []string{a.Audience}, "actions": []string{"tools/call"}, "datatypes": a.Tools,
		"duration": int(a.Duration / time.Second), "key": a.Key, "proof": a.Proof,
	}
	if a.MaxUses > 0 {
		d["max_uses"] = a.MaxUses
	}
	if a.ApprovalID != "" {
		d["approval_id"] = a.ApprovalID
	}
	if a.Arguments != nil {
		d["arguments"] = a.Arguments
	}
	text, err := json.Marshal([]any{d})
	must(b.t, err)
	return url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {a.Audience}, "authorization_details": {string(text)},
		"subject_token": {subject}, "subject_token_type": {tokenType + kind},
	}
}

// exchanged is the answer to an exchange.
type exchanged struct {
	text        string
	Token       string `json:"access_token"`
	ExpiresIn   int    `json:"expires_in"`
	Error       string `json:"error"`
	Description string `json:"error_description"`
	Approval    struct {
		ID string `json:"id"`
	} `json:"approval"`
}

// exchange sends a form, for nobody by itself and else with the key of a client, and wants an error, "" for none.
func (b *bank) exchange(who, want string, form url.Values, path ...string) (e exchanged) {
	b.t.Helper()
	header := []string{"Content-Type", "application/x-www-form-urlencoded"}
	if who != "" {
		header = append(header, "Authorization", b.key[who])
	}
	r := b.Do("POST", strings.Join(append(path, "/v1/token"), ""), form.Encode(), header...)
	status, text := r.Status, r.Body
	must(b.t, json.Unmarshal([]byte(text), &e))
	e.text = text
	if e.Error != want || (status == http.StatusOK) != (want == "") {
		b.t.Errorf("got %d %s, want %q", status, text, want)
	}
	return e
}

// changedTo is a form with other parameters; "" is none.
func changedTo(form url.Values, pairs ...string) url.Values {
	changed := url.Values{}
	for name, values := range form {
		changed[name] = values
	}
	for n := 0; n < len(pairs); n += 2 {
		if changed.Set(pairs[n], pairs[n+1]); pairs[n+1] == "" {
			changed.Del(pairs[n])
		}
	}
	return changed
}

// TestTokenExchange: the token of an agent alone gets it a capability that counts for its calls, as those do that it asks for.
func TestTokenExchange(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.Advance(time.Minute)
	constrained := func(a *capability.Ask) {
		a.MaxUses, a.Arguments = 2, capability.Arguments{"target": constraintOf(t, `"staging"`), "n": constraintOf(t, `{"constraint_type":"range","min":1}`)}
	}
	for typ, kind := range map[string]string{"at+jwt": "access_token", "": "jwt"} {
		e := b.exchange("", "", b.form(b.token(typ, ofAgents, "bot", nil), kind, constrained, "read", "write"))
		has(t, e.text, `"issued_token_type":"urn:ietf:params:oauth:token-type:jwt","token_type":"N_A"`, `"datatypes":["b:read","b:write"]`,
			`"locations":["b"],"max_uses":2`, `"constraint_type":"range","min":1`, `"expires_in":3600`)
		token, refusal := capability.ParseToken(e.Token)
		if refusal != nil || token.Holder != (evaluation.Ref{Type: "agent", ID: "bot"}) || token.Key.Thumbprint() != b.holder.Key().Thumbprint() {
			t.Errorf("%v, %+v", refusal, token)
		}
		g := granted{ID: token.ID, Token: e.Token}
		s := b.call(g, "b:read")
		b.is("allow", s)
		b.is("proof_replayed", s)
		b.is("allow", b.call(g, "b:write"))
		b.is("used_up", b.call(g, "b:read"))
	}
	// A client with a key brings the token, and so does one that speaks Basic.
	good := b.form(b.token("", ofAgents, "bot", nil), "access_token", nil, "read")
	b.exchange("wallet", "", good)
	b.exchange("desktop", "", b.form(b.token("", ofAgents, "bot", nil), "access_token", nil, "read"))
	// A resource names the server, too.
	of := func(a *capability.Ask) { a.Audience = "https://b.example" }
	b.exchange("", "access_denied", changedTo(b.form(b.token("", ofAgents, "bot", nil), "access_token", of, "x"), "audience", "", "resource", "https://b.example"))
}

// TestTokenExchangeChain: those behind a holder are on record with each question, and those who decide about it.
func TestTokenExchangeChain(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	person := evaluation.PersonOf(ofPersons, "mia")
	act := claimSet{"client_id": "bot", "act": claimSet{"sub": "relay", "iss": ofPersons, "act": claimSet{"sub": "first"}}}
	chain := func(refs ...string) string {
		for n, ref := range refs {
			typ, id, _ := strings.Cut(ref, "/")
			refs[n] = fmt.Sprintf(`{"id":%q,"type":%q}`, id, typ)
		}
		return `"on_behalf_of":[` + strings.Join(refs, ",") + `],"person":"`
	}
	// of has a token exchanged, and wants the chain on record, and somebody for context.person.
	of := func(form url.Values, want, person string) {
		t.Helper()
		e := b.exchange("wallet", "", form)
		token, _ := capability.ParseToken(e.Token)
		if token.Holder.ID != "bot" {
			t.Errorf("the holder is %+v", token.Holder)
		}
		lines := b.onRecord(token.ID)
		if len(lines) == 0 || !strings.Contains(lines[0], want+person) {
			t.Errorf("on record is %q, want %s", lines, want+person)
		}
	}
	of(b.form(b.token("", ofPersons, "mia", act), "access_token", nil, "read"), chain("agent/relay", "agent/first", "user/mia"), person)
	of(b.form(b.token("", ofAgents, "bot", claimSet{"act": claimSet{"sub": "bot"}}), "access_token", nil, "read"), `"context":{"person":"`, evaluation.PersonOf(ofAgents, "bot"))
	acting := changedTo(b.form(b.token("", ofPersons, "mia", claimSet{"client_id": "relay"}), "access_token", nil, "read"),
		"actor_token", b.token("", ofAgents, "bot", claimSet{"act": claimSet{"sub": "before"}}), "actor_token_type", tokenType+"access_token")
	both := `["` + person + `","` + evaluation.PersonOf(ofAgents, "bot") + `"]`
	acts := strings.TrimSuffix(chain("agent/before", "agent/relay", "user/mia"), `"`)
	of(acting, acts, both)

	// People: the person behind it has no say, and an approval grants it once they have decided.
	waits := b.exchange("", "authorization_pending", b.form(b.token("", ofPersons, "mia", act), "access_token", nil, "danger"))
	b.says("mia", waits.Approval.ID, "decision", yes, http.StatusNotFound) // none that she may decide about
	subject := b.token("", ofPersons, "zoe", act)
	waits = b.exchange("", "authorization_pending", b.form(subject, "access_token", nil, "danger"))
	pending := func(a *capability.Ask) { a.ApprovalID = waits.Approval.ID }
	b.exchange("", "authorization_pending", b.form(subject, "access_token", pending, "danger"))
	b.says("mia", waits.Approval.ID, "decision", yes, http.StatusOK)
	other := b.exchange("", "authorization_pending", b.form(b.token("", ofPersons, "eve", act), "access_token", pending, "danger"))
	if other.Approval.ID == waits.Approval.ID {
		t.Error("an approval counts for somebody else")
	}
	first := b.exchange("", "", b.form(subject, "access_token", pending, "danger"))
	again := b.exchange("", "", b.form(subject, "access_token", pending, "danger"))
	if first.Token != again.Token {
		t.Error("the same approval grants it twice")
	}
	// Renewed by a client, it is asked for on behalf of the same.
	mia := b.token("", ofPersons, "mia", claimSet{"client_id": "bot"})
	form := b.form(mia, "access_token", nil, "read")
	token, _ := capability.ParseToken(b.exchange("wallet", "", form).Token)
	b.renews(granted{ID: token.ID}, http.StatusCreated, nil, "read")
	ofTwo := changedTo(b.form(b.token("", ofPersons, "mia", claimSet{"client_id": "relay"}), "access_token", nil, "read"),
		"actor_token", b.token("", ofAgents, "bot", nil), "actor_token_type", tokenType+"access_token")
	two, _ := capability.ParseToken(b.exchange("wallet", "", ofTwo).Token)
	b.renews(granted{ID: two.ID}, http.StatusCreated, nil, "read")
	renewed := b.onRecord(`"action":{"name":"capability.grant"`)
	has(t, renewed[len(renewed)-1], `"person":`+both, two.ID)
	lines := renewed[:len(renewed)-2]
	if has(t, lines[len(lines)-1], `"on_behalf_of":[{"id":"mia","type":"user"}],"person":"`+person); !strings.Contains(lines[len(lines)-1], token.ID) {
		t.Errorf("the last is %s", lines[len(lines)-1])
	}
}

// TestTokenExchangeRefused: a token that is not good for it is refused, and nothing is granted.
func TestTokenExchangeRefused(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	exp := func(d time.Duration) claimSet { return claimSet{"exp": b.Now().Add(d).Unix()} }
	agent := func(typ string, more claimSet) string { return b.token(typ, ofAgents, "bot", more) }
	jag := func(typ string, more claimSet) string {
		own := claimSet{"aud": issuer, "client_id": "desktop"}
		for name, v := range more {
			own[name] = v
		}
		return b.token(typ, ofJAGs, "mia", own)
	}
	const jagTyp = "oauth-id-jag+jwt"
	forged := func(alg string, sign func(signed string) []byte) string {
		payload := strings.Split(agent("", nil), ".")[1]
		signed := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"`+alg+`","kid":"1"}`)) + "." + payload
		return signed + "." + base64.RawURLEncoding.EncodeToString(sign(signed))
	}
	other := pdptest.NewIssuer(t)
	of := func(sub string) string { return b.token("", ofSVIDs, sub, nil) }
	for name, test := range map[string]struct{ token, kind, want, says string }{
		"expired":                            {agent("", exp(-2*time.Minute)), "access_token", "invalid_request", "subject_token: the token has expired"},
		"never expires":                      {agent("", claimSet{"exp": nil}), "access_token", "invalid_request", "never expires"},
		"another audience":                   {agent("", claimSet{"aud": "other"}), "access_token", "invalid_request", "another audience"},
		"an unknown issuer":                  {b.token("", "https://unknown.example", "bot", nil), "access_token", "invalid_request", "not valid here"},
		"an issuer for other things":         {b.token("", ofBearers, "bot", nil), "access_token", "invalid_request", "not exchanged here"},
		"a key of somebody else":             {other.Token(claimSet{"iss": ofAgents, "sub": "bot", "aud": "pdp"}, exp(time.Minute)), "access_token", "invalid_request", "not valid here"},
		"no signature":                       {forged("none", func(string) []byte { return nil }), "access_token", "invalid_request", "not valid here"},
		"the public key as a secret":         {hmacToken(t, b.issuer.Public(), agent("", nil)), "access_token", "invalid_request", "not valid here"},
		"no JWT":                             {"abc", "access_token", "invalid_request", "not valid here"},
		"an ID token":                        {agent("", claimSet{"nonce": "n"}), "access_token", "invalid_request", "ID token"},
		"another type":                       {agent("", nil), "id-jag", "invalid_request", "another type"},
		"a refresh token":                    {agent("", nil), "refresh_token", "invalid_request", "subject_token_type"},
		"a logout token":                     {agent("logout+jwt", nil), "access_token", "invalid_request", "not valid here"},
		"an ID-JAG as an access token":       {agent(jagTyp, nil), "access_token", "invalid_request", "not valid here"},
		"an ID-JAG said to be a JWT":         {jag(jagTyp, nil), "jwt", "invalid_request", "another type"},
		"an access token as an ID-JAG":       {jag("at+jwt", nil), "id-jag", "invalid_request", "not valid here"},
		"a JWT as an ID-JAG":                 {jag("", nil), "id-jag", "invalid_request", "not valid here"},
		"an ID-JAG for two":                  {jag(jagTyp, claimSet{"aud": []string{issuer, "other"}}), "id-jag", "invalid_request", "one audience"},
		"an ID-JAG for no client":            {jag(jagTyp, claimSet{"client_id": nil}), "id-jag", "invalid_request", "does not name its holder"},
		"an ID-JAG without its client":       {jag(jagTyp, nil), "id-jag", "invalid_client", "for a client"},
		"a foreign trust domain":             {of("spiffe://example.com/bot"), "jwt", "invalid_request", "trust domain"},
		"a trust domain that begins alike":   {of("spiffe://example.org.evil/bot"), "jwt", "invalid_request", "trust domain"},
		"an SVID of the domain itself":       {of("spiffe://example.org"), "jwt", "invalid_request", "trust domain"},
		"an SVID with a path that climbs":    {of("spiffe://example.org/a/../bot"), "jwt", "invalid_request", "trust domain"},
		"an SVID with a query":               {of("spiffe://example.org/bot?x"), "jwt", "invalid_request", "trust domain"},
		"an SVID in capitals":                {of("SPIFFE://example.org/bot"), "jwt", "invalid_request", "trust domain"},
		"an SVID as an access token":         {of("spiffe://example.org/bot"), "access_token", "invalid_request", "another type"},
		"an access token in an SVID's place": {b.token("at+jwt", ofSVIDs, "spiffe://example.org/bot", nil), "jwt", "invalid_request", "not valid here"},
		"no holder":                          {b.token("", ofPersons, "mia", nil), "access_token", "invalid_request", "does not name its holder"},
		"bound to another key":               {agent("", claimSet{"cnf": claimSet{"jkt": newHolder(t, 2).Key().Thumbprint()}}), "access_token", "invalid_request", "bound to another key"},
		"bound by a certificate":             {agent("", claimSet{"cnf": claimSet{"x5t#S256": "x"}}), "access_token", "invalid_request", "another way than by jkt"},
		"bound twice":                        {agent("", claimSet{"cnf": claimSet{"jkt": b.holder.Key().Thumbprint(), "x5t#S256": "x"}}), "access_token", "invalid_request", "another way than by jkt"},
	} {
		e := b.exchange("", test.want, b.form(test.token, test.kind, nil, "read"))
		if !strings.Contains(e.Description, test.says) {
			t.Errorf("%s: %s, want %s", name, e.Description, test.says)
		}
	}
	chain := `{"sub":"x"}`
	for range 9 {
		chain = `{"sub":"x","act":` + chain + `}`
	}
	for _, act := range []string{
		`"bot"`, `7`, `true`, `[]`, `[{"sub":"x"}]`, `{}`, `{"sub":7}`, `{"sub":""}`, `{"sub":"a\nb"}`, `{"sub":null}`, `{"client_id":"x"}`,
		`{"sub":"x","client_id":"x"}`, `{"sub":"x","iss":"https://else.example"}`, `{"sub":"x","iss":null}`, `{"sub":"x","act":"y"}`,
		`{"sub":"x","act":{}}`, `{"sub":"x","act":{"sub":"y","more":1}}`, `{"sub":"` + strings.Repeat("x", 300) + `"}`, chain,
	} {
		token := agent("", claimSet{"act": jsonText(act)})
		has(t, b.exchange("", "invalid_request", b.form(token, "access_token", nil, "read")).Description, "subject_token: ")
		acting := changedTo(b.form(agent("", nil), "access_token", nil, "read"), "actor_token", token, "actor_token_type", tokenType+"access_token")
		has(t, b.exchange("", "invalid_request", acting).Description, "actor_token: ")
	}
	for _, may := range []string{`{}`, `"bot"`, `[]`, `{"sub":"other"}`, `{"sub":["bot"]}`, `{"sub":"bot"}`, `{"sub":"bot","iss":"` + ofAgents + `","aud":"x"}`} {
		subject := b.token("", ofPersons, "mia", claimSet{"client_id": "x", "may_act": jsonText(may)})
		acting := changedTo(b.form(subject, "access_token", nil, "read"), "actor_token", agent("", nil), "actor_token_type", tokenType+"access_token")
		has(t, b.exchange("", "invalid_request", acting).Description, "does not let this one act")
	}
	// None of them was granted anything, and what is good is granted.
	if n := len(b.onRecord(`"event":"granted"`)); n != 0 {
		t.Errorf("on record are %d grants", n)
	}
	bound := claimSet{"cnf": claimSet{"jkt": b.holder.Key().Thumbprint()}}
	b.exchange("", "", b.form(agent("", bound), "access_token", nil, "read"))
	may := claimSet{"client_id": "x", "may_act": claimSet{"sub": "bot", "iss": ofAgents}}
	b.exchange("", "", changedTo(b.form(b.token("", ofPersons, "mia", may), "access_token", nil, "read"), "actor_token", agent("", nil), "actor_token_type", tokenType+"access_token"))
	b.exchange("desktop", "", b.form(jag(jagTyp, nil), "id-jag", nil, "read"))
	b.exchange("wallet", "invalid_client", b.form(jag(jagTyp, nil), "id-jag", nil, "read"))
	svid := b.exchange("", "", b.form(of("spiffe://example.org/ns/a/bot"), "jwt", nil, "read"))
	if token, _ := capability.ParseToken(svid.Token); token.Holder.ID != "spiffe://example.org/ns/a/bot" {
		t.Errorf("the holder is %+v", token.Holder)
	}
}

// jsonText is JSON that a claim has as it stands.
type jsonText string

func (j jsonText) MarshalJSON() ([]byte, error) { return []byte(j), nil }

// hmacToken signs the claims of a token with a public key, as if that was a secret.
func hmacToken(t *testing.T, public ed25519.PublicKey, token string) string {
	t.Helper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	must(t, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(public)}, (&jose.SignerOptions{}).WithHeader("kid", "1"))
	must(t, err)
	signed, err := signer.Sign(payload)
	must(t, err)
	text, err := signed.CompactSerialize()
	must(t, err)
	return text
}

// TestTokenExchangeForm: a request that is not as RFC 8693 and RFC 9396 have it gets the error that they name.
func TestTokenExchangeForm(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	good := func() url.Values { return b.form(b.token("", ofAgents, "bot", nil), "access_token", nil, "read") }
	for name, test := range map[string]struct {
		pairs      []string
		want, says string
	}{
		"no grant type":           {[]string{"grant_type", ""}, "unsupported_grant_type", ""},
		"another grant type":      {[]string{"grant_type", "client_credentials"}, "unsupported_grant_type", ""},
		"no token":                {[]string{"subject_token", ""}, "invalid_request", "subject_token is missing"},
		"no type":                 {[]string{"subject_token_type", ""}, "invalid_request", "subject_token_type"},
		"an actor without type":   {[]string{"actor_token", "x"}, "invalid_request", "actor_token_type"},
		"a type without actor":    {[]string{"actor_token_type", tokenType + "jwt"}, "invalid_request", "actor_token"},
		"a scope":                 {[]string{"scope", "all"}, "invalid_scope", ""},
		"a secret":                {[]string{"client_secret", "x"}, "invalid_request", "Authorization"},
		"an access token wanted":  {[]string{"requested_token_type", tokenType + "access_token"}, "invalid_request", "requested_token_type"},
		"no target":               {[]string{"audience", ""}, "invalid_target", ""},
		"two targets":             {[]string{"resource", "https://b.example"}, "invalid_target", ""},
		"a resource that is none": {[]string{"audience", "", "resource", "b"}, "invalid_target", ""},
		"another audience":        {[]string{"audience", "c"}, "invalid_authorization_details", "/locations"},
		"no details":              {[]string{"authorization_details", ""}, "invalid_authorization_details", ""},
		"details that end early":  {[]string{"authorization_details", `[{"type":"x"}],"more":[]`}, "invalid_authorization_details", "JSON array"},
		"no entry":                {[]string{"authorization_details", `[]`}, "invalid_authorization_details", "JSON array"},
		"an unknown parameter":    {[]string{"client_id", "x"}, "", ""},
	} {
		if e := b.exchange("", test.want, changedTo(good(), test.pairs...)); !strings.Contains(e.Description, test.says) {
			t.Errorf("%s: %s, want %s", name, e.Description, test.says)
		}
	}
	changed := func(from, to string) url.Values {
		form := good()
		text := form.Get("authorization_details")
		if !strings.Contains(text, from) {
			t.Fatalf("%s has no %s", text, from)
		}
		return changedTo(form, "authorization_details", strings.Replace(text, from, to, 1))
	}
	for name, test := range map[string]struct{ from, to, says string }{
		"another type":               {`tool_capability`, `other`, "/type"},
		"two entries":                {`}]`, `},{}]`, "JSON array"},
		"two actions":                {`"tools/call"`, `"tools/call","x"`, "/actions"},
		"two locations":              {`"locations":["b"`, `"locations":["b","c"`, "/locations"},
		"tools by another name":      {`"datatypes"`, `"tools"`, "it has a member"},
		"another tenant":             {`"type":"tool`, `"tenant_id":"acme","type":"tool`, "it has a member"},
		"another holder":             {`"type":"tool`, `"holder":{"type":"agent","id":"x"},"type":"tool`, "it has a member"},
		"no tools":                   {`["read"]`, `[]`, "/datatypes"},
		"a tool of another":          {`"read"`, `"c:read"`, "/datatypes"},
		"tools that were not proved": {`"read"`, `"write"`, "/proof: "},
		"no proof":                   {`"proof"`, `"reason"`, "/proof: "},
		"a lifetime of nothing":      {`"duration":3600`, `"duration":0`, "/duration"},
	} {
		if e := b.exchange("", "invalid_authorization_details", changed(test.from, test.to)); !strings.Contains(e.Description, test.says) {
			t.Errorf("%s: %s, want %s", name, e.Description, test.says)
		}
	}
	form := good()
	b.exchange("", "", form)
	has(t, b.exchange("", "invalid_authorization_details", form).Description, "proof_replayed")
	has(t, b.exchange("", "access_denied", b.form(b.token("", ofAgents, "bot", nil), "access_token", nil, "secret")).text, `"refused":["b:secret"]`)
	double := good().Encode() + "&subject_token=x"
	_, text := b.do("wallet", "POST", "/v1/token", double, "Content-Type", "application/x-www-form-urlencoded")
	has(t, text, "invalid_request", "more than once")
	_, text = b.do("wallet", "POST", "/v1/token", `{}`)
	has(t, text, "invalid_request", "Content-Type")
	_, text = b.do("wallet", "POST", "/v1/token", good().Encode(), "Content-Type", "application/x-www-form-urlencoded", "DPoP", "x")
	has(t, text, "invalid_request", "DPoP")
}

// TestTokenExchangeCallers: who may bring a token, where, and that it counts nowhere else.
func TestTokenExchangeCallers(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.welcome("agent", `agent::"other"`, auth.Capability)
	agent := b.token("", ofAgents, "bot", nil)
	b.exchange("pep", "unauthorized_client", b.form(agent, "access_token", nil, "read"))
	b.exchange("agent", "unauthorized_client", b.form(agent, "access_token", nil, "read"))
	status, text := b.do("wallet", "POST", "/v1/token", b.form(agent, "access_token", nil, "read").Encode(),
		"Content-Type", "application/x-www-form-urlencoded", "Authorization", "Bearer "+agent)
	if status != http.StatusUnauthorized || !strings.Contains(text, "invalid_client") || strings.Contains(text, agent) {
		t.Errorf("by itself: %d %s", status, text)
	}
	b.reply("wallet", "POST", "/v1/capabilities", "{}", "Authorization", "Bearer "+agent).is(t, "no bearer token", http.StatusUnauthorized, "is to be exchanged")
	// Tenants: that of the path, where the entry lists it.
	acme := func(a *capability.Ask) { a.Tenant = "acme" }
	b.exchange("wallet", "unauthorized_client", b.form(agent, "access_token", acme, "read"), "/tenants/acme")
	b.exchange("", "invalid_request", b.form(agent, "access_token", acme, "read"), "/tenants/acme") // that tenant is not its own
	person := b.token("", ofPersons, "mia", claimSet{"client_id": "bot"})
	e := b.exchange("", "", b.form(person, "access_token", acme, "read"), "/tenants/acme")
	if token, _ := capability.ParseToken(e.Token); token.Issuer != issuer+"/tenants/acme" {
		t.Errorf("%+v", token)
	}
	b.exchange("", "invalid_authorization_details", b.form(person, "access_token", nil, "read"), "/tenants/acme") // the proof is for the other
	_, text = b.do("wallet", "GET", "/.well-known/authzen-configuration/tenants/acme", "")
	has(t, text, `"capability_token_endpoint":"`+issuer+`/tenants/acme/v1/token"`)
	// Where no issuer is for it, there is nothing to exchange.
	w := openWallet(t)
	plain := &bank{wallet: w}
	plain.exchange("wallet", "unsupported_grant_type", url.Values{"grant_type": {"x"}})
	plain.exchange("", "invalid_client", url.Values{"grant_type": {"x"}})
	if _, text = w.do("wallet", "GET", "/.well-known/authzen-configuration", ""); strings.Contains(text, "capability_token_endpoint") {
		t.Error(text)
	}
}

// TestTokenExchangeLimits: one that asks too often waits.
func TestTokenExchangeLimits(t *testing.T) {
	t.Parallel()
	b := openBank(t, func(c *server.Config) { c.Capabilities.NewPerMinutePerHolder = 2 })
	for _, want := range []string{"", "", "temporarily_unavailable"} {
		b.exchange("", want, b.form(b.token("", ofAgents, "bot", nil), "access_token", nil, "read"))
	}
	form := b.form(b.token("", ofAgents, "bot", nil), "access_token", nil, "read")
	r := b.Do("POST", "/v1/token", form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
	if r.Status != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%+v", r)
	}
}

// TestTokenExchangeLeavesNoSecret: no token that was sent, and no payload of one, is anywhere but in the answer.
func TestTokenExchangeLeavesNoSecret(t *testing.T) {
	t.Parallel()
	var log written.Text
	b := openBank(t, logTo(&log))
	var secrets []string
	sent := func(jws string) string {
		secrets = append(secrets, jws, strings.Split(jws, ".")[1], strings.Split(jws, ".")[2])
		return jws
	}
	person := sent(b.token("", ofPersons, "mia", claimSet{"client_id": "relay"}))
	form := changedTo(b.form(person, "access_token", nil, "read"), "actor_token", sent(b.token("", ofAgents, "bot", nil)), "actor_token_type", tokenType+"jwt")
	sent(b.exchange("", "", form).Token)
	texts := []string{
		b.exchange("", "invalid_authorization_details", form).text,
		b.exchange("", "invalid_request", b.form(sent(b.token("", ofAgents, "bot", claimSet{"aud": "x"})), "access_token", nil, "read")).text,
		b.exchange("", "access_denied", b.form(sent(b.token("", ofAgents, "bot", nil)), "access_token", nil, "secret")).text,
		strings.Join(b.onRecord(""), "\n"),
	}
	must(t, b.Stop(t.Context()))
	texts = append(texts, log.String())
	for _, file := range everyFile(t, b.data) {
		texts = append(texts, file[1])
	}
	for n, text := range texts {
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%d has %s", n, secret)
			}
		}
	}
}
