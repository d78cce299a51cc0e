package console_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-json-experiment/json"

	"policy-service/pdp/pdptest"
	"policy-service/pdp/server"
	"policy-service/pdp/server/auth"
)

// flowProvider is an OpenID provider where whoever comes chooses who to be. It is of another site than the console:
// its name is localhost, and the console's 127.0.0.1.
type flowProvider struct {
	url    string
	now    func() time.Time
	signer jose.Signer

	mu    sync.Mutex
	codes map[string]url.Values // what was asked for, by the code that it was answered with
}

// flowClient is the name of the console at the provider.
const flowClient = "console-of-shop"

// flowPeople are the claims of those who have an account.
var flowPeople = map[string]map[string]any{
	"alice": {"sub": "4711", "login": "alice", "groups": []string{"staff", "approvers"}},
	"guest": {"sub": "4712", "login": "guest", "groups": []string{"guests"}},
}

func openProvider(t testing.TB) *flowProvider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	flowMust(t, err)
	p := &flowProvider{codes: map[string]url.Values{}, now: time.Now}
	p.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", "k1"))
	flowMust(t, err)
	answer := func(w http.ResponseWriter, body any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.MarshalWrite(w, body)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"issuer": p.url, "authorization_endpoint": p.url + "/authorize", "token_endpoint": p.url + "/token",
			"jwks_uri": p.url + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"}, "response_types_supported": []string{"code"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k1", Algorithm: "RS256", Use: "sig"}}})
	})
	mux.HandleFunc("GET /authorize", p.choose)
	mux.HandleFunc("POST /authorize", p.authorize)
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		claims, err := p.redeem(r)
		if err != nil {
			http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
			return
		}
		token, _ := jwt.Signed(p.signer).Claims(claims).Serialize()
		answer(w, map[string]any{"id_token": token, "access_token": "of no use here", "token_type": "Bearer", "expires_in": 300})
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	p.url = strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	return p
}

// choose is the page where somebody says who they are.
func (p *flowProvider) choose(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	fmt.Fprint(w, `<!doctype html><html lang=en><title>Who are you?</title><form method=post>`)
	for name, values := range r.URL.Query() {
		fmt.Fprintf(w, `<input type=hidden name="%s" value="%s">`, html.EscapeString(name), html.EscapeString(values[0]))
	}
	for who := range flowPeople {
		fmt.Fprintf(w, `<button name=who value=%s>I am %[1]s</button>`, who)
	}
	fmt.Fprint(w, `</form>`)
}

func (p *flowProvider) authorize(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	code := rand.Text()
	p.mu.Lock()
	p.codes[code] = r.Form
	p.mu.Unlock()
	back := url.Values{"code": {code}, "state": {r.Form.Get("state")}}
	http.Redirect(w, r, r.Form.Get("redirect_uri")+"?"+back.Encode(), http.StatusSeeOther)
}

// redeem takes a code, once, from who can show what the login began with.
func (p *flowProvider) redeem(r *http.Request) (map[string]any, error) {
	_ = r.ParseForm()
	p.mu.Lock()
	asked, known := p.codes[r.Form.Get("code")]
	delete(p.codes, r.Form.Get("code"))
	p.mu.Unlock()
	sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
	if !known || asked.Get("code_challenge_method") != "S256" || asked.Get("redirect_uri") != r.Form.Get("redirect_uri") ||
		asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
		return nil, fmt.Errorf("not yours: %v", r.Form)
	}
	claims := maps.Clone(flowPeople[asked.Get("who")])
	maps.Copy(claims, map[string]any{"iss": p.url, "aud": asked.Get("client_id"), "nonce": asked.Get("nonce"),
		"iat": p.now().Unix(), "exp": p.now().Add(time.Minute).Unix()})
	return claims, nil
}

// logsIn has the console log people in at the provider. The clocks of both agree.
func (p *flowProvider) logsIn(now func() time.Time) pdptest.Option {
	p.now = now
	return func(c *server.Config) {
		c.Console.OIDC = &auth.OIDC{Issuer: p.url, ClientID: flowClient,
			Principal: &auth.PrincipalClaim{Type: "User", Claim: "login"},
			Grants:    []auth.ClaimGrant{{Claim: "groups", Value: "approvers", Permissions: []auth.Permission{auth.Approve}, Tenants: []string{"default"}}},
		}
	}
}
