package auth

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"policy-service/pdp/pdptest/clock"
)

func TestClaimsOfAToken(t *testing.T) {
	t.Parallel()
	c, s := clock.New(), newSigner(t, "1", jose.ES256)
	j, _ := fromFile(t, c, s)
	exp := c.Now().Add(time.Minute).Truncate(time.Second)
	token := s.token(t, claims(c, map[string]any{
		"exp": exp.Unix(), "amount": json.RawMessage("9007199254740993"), "tax": json.RawMessage("1.10"), "groups": []string{"b", "a"},
		"act": map[string]any{"sub": "bot"}, "left": json.RawMessage("null"), "aud": []string{"other", testAudience}, "iat": nil,
	}), nil)
	got, err := j.Claims(t.Context(), token)
	if err != nil || got.Issuer != testIssuer || got.Subject != "alice" || !got.Expires.Equal(exp) || got.Login {
		t.Fatalf("got %+v, %v", got, err)
	}
	text, err := got.Claims.MarshalJSON()
	want := `{"act":{"sub":"bot"},"amount":9007199254740993,"aud":["other","pdp"],"exp":` + string(asJSON(t, exp.Unix())) +
		`,"groups":["b","a"],"iss":"https://issuer.example","left":null,"sub":"alice","tax":1.10}`
	if err != nil || string(text) != want {
		t.Errorf("got  %s\nwant %s, %v", text, want, err)
	}
}

func TestClaimsNeedWhatVerifyNeedsAndOneReading(t *testing.T) {
	t.Parallel()
	c, s := clock.New(), newSigner(t, "1", jose.ES256)
	j, _ := fromFile(t, c, s)
	good := string(asJSON(t, claims(c, nil)))
	for name, token := range map[string]string{
		"expired":       s.token(t, claims(c, map[string]any{"exp": 1}), nil),
		"no exp":        s.token(t, claims(c, map[string]any{"exp": nil}), nil),
		"foreign":       s.token(t, claims(c, map[string]any{"aud": "other"}), nil),
		"stranger":      newSigner(t, "1", jose.ES256).token(t, claims(c, nil), nil),
		"a name twice":  signText(t, s, strings.Replace(good, `{`, `{"sub":"bob",`, 1)),
		"twice below":   signText(t, s, strings.Replace(good, `{`, `{"act":{"sub":"a","sub":"b"},`, 1)),
		"no UTF-8":      signText(t, s, strings.Replace(good, "alice", "al\xffice", 1)),
		"no UTF-8 else": signText(t, s, strings.Replace(good, `{`, "{\"name\":\"\xff\",", 1)),
		"surrogate":     signText(t, s, strings.Replace(good, `{`, `{"name":"\ud800",`, 1)),
		"deep":          signText(t, s, strings.Replace(good, `{`, `{"x":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)+`,`, 1)),
	} {
		got, err := j.Claims(t.Context(), token)
		if refusal := (*Refusal)(nil); !errors.As(err, &refusal) || got.Subject != "" {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestIDTokensAreTold(t *testing.T) {
	t.Parallel()
	c, s := clock.New(), newSigner(t, "1", jose.ES256)
	j, _ := fromFile(t, c, s)
	type changes = map[string]any
	for name, test := range map[string]struct {
		header header
		claims changes
		login  bool
	}{
		"says nothing":                 {nil, nil, false},
		"nonce":                        {header{"typ": "JWT"}, changes{"nonce": "n"}, true},
		"at_hash":                      {nil, changes{"at_hash": "n"}, true},
		"c_hash":                       {nil, changes{"c_hash": ""}, true},
		"s_hash":                       {nil, changes{"s_hash": 1}, true},
		"nonce, and RFC 9068":          {header{"typ": "at+jwt"}, changes{"nonce": "n"}, false},
		"nonce, and RFC 9068 in full":  {header{"typ": "application/AT+JWT"}, changes{"nonce": "n"}, false},
		"Keycloak's ID token":          {header{"typ": "JWT"}, changes{"typ": "ID"}, true},
		"Keycloak's old access token":  {header{"typ": "JWT"}, changes{"typ": "Bearer", "nonce": "n"}, false},
		"Cognito's ID token":           {nil, changes{"token_use": "id"}, true},
		"Cognito's access token":       {nil, changes{"token_use": "access", "nonce": "n"}, false},
		"a typ that says nothing":      {nil, changes{"typ": "JWT", "nonce": "n"}, true},
		"a typ that says nothing else": {nil, changes{"typ": "JWT"}, false},
	} {
		got, err := j.Claims(t.Context(), s.token(t, claims(c, test.claims), test.header))
		if err != nil || got.Login != test.login {
			t.Errorf("%s: got %v, %v", name, got.Login, err)
		}
	}
}

// A token that was read is not read again, and is refused as soon as its time or its key is over, however many ask.
func TestATokenThatWasReadIsAskedForAgain(t *testing.T) {
	t.Parallel()
	c, s := clock.New(), newSigner(t, "1", jose.ES256)
	j, file := fromFile(t, c, s)
	token := s.token(t, claims(c, nil), nil)
	all := func(want bool) {
		t.Helper()
		var asking sync.WaitGroup
		for range 8 {
			asking.Go(func() {
				for range 50 {
					if got, err := j.Claims(t.Context(), token); (err == nil) != want || (got.Subject == "alice") != want {
						t.Errorf("got %+v, %v; want it good: %v", got, err, want)
					}
				}
			})
		}
		asking.Wait()
	}
	all(true)
	if _, there := j.read.Get(sha256.Sum256([]byte(token))); !there {
		t.Error("it was not remembered")
	}
	writeJWKS(t, file, newSigner(t, "1", jose.ES256)) // another key of that name
	c.Advance(fileEvery)
	all(false)
	writeJWKS(t, file, s)
	c.Advance(fileEvery)
	all(true)
	c.Advance(2 * time.Minute)
	all(false)
}

func TestLittleIsRemembered(t *testing.T) {
	t.Parallel()
	c, s := clock.New(), newSigner(t, "1", jose.EdDSA)
	j, _ := fromFile(t, c, s)
	first := ""
	for n := range 2*maxRead + 100 {
		token := s.token(t, claims(c, map[string]any{"jti": fmt.Sprint(n)}), nil)
		if _, err := j.Claims(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		first = cmp.Or(first, token)
		if _, there := j.read.Get(sha256.Sum256([]byte(token))); !there {
			t.Fatal("one is not remembered")
		}
	}
	if _, there := j.read.Get(sha256.Sum256([]byte(first))); there {
		t.Error("all are remembered")
	}
	large := s.token(t, claims(c, map[string]any{"x": strings.Repeat("a", maxRemembered)}), nil)
	if _, err := j.Claims(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	if _, there := j.read.Get(sha256.Sum256([]byte(large))); there {
		t.Error("a large one is remembered")
	}
}
