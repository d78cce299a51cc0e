package auth

import (
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.yaml.in/yaml/v3"

	"policy-service/pdp/pdptest/clock"
)

func TestChangedFileCountsWithinFourSeconds(t *testing.T) {
	t.Parallel()
	c := clock.New()
	first, second := newSigner(t, "1", jose.ES256), newSigner(t, "2", jose.ES256)
	j, file := fromFile(t, c, first)
	good := func(s signer) bool {
		_, err := j.Verify(t.Context(), s.token(t, claims(c, nil), nil))
		return err == nil
	}
	if !good(first) || good(second) {
		t.Fatal("the first key and no other should be good")
	}
	writeJWKS(t, file, second)
	c.Advance(4 * time.Second)
	if good(first) || !good(second) {
		t.Error("rotated out and still good, or the new one not known")
	}

	// A write in place is cut short for a moment; who takes the file away means it.
	must(t, os.WriteFile(file, []byte(`{"keys":[`), 0o600))
	c.Advance(fileEvery)
	if !good(second) {
		t.Error("half a file took the keys at once")
	}
	c.Advance(3 * time.Second)
	if good(second) {
		t.Error("half a file, and still good")
	}
	writeJWKS(t, file, second)
	c.Advance(fileEvery)
	if !good(second) {
		t.Error("the file is whole again, and its key not good")
	}
	must(t, os.Remove(file))
	c.Advance(4 * time.Second)
	if good(second) {
		t.Error("the file is gone, and its key still good")
	}
	writeJWKS(t, file)
	c.Advance(4 * time.Second)
	if good(second) {
		t.Error("the file is empty, and a key of the one before still good")
	}
}

func TestKeysThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	good := string(asJSON(t, newSigner(t, "good", jose.ES256).public()))
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	must(t, err)
	private := newSigner(t, "private", jose.ES256)
	encryption := newSigner(t, "enc", jose.ES256).public()
	encryption.Use = "enc"
	for name, key := range map[string]string{
		"symmetric":      `{"kty":"oct","k":"c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0","alg":"HS256"}`,
		"private":        string(asJSON(t, jose.JSONWebKey{Key: private.private, KeyID: "private"})),
		"short":          string(asJSON(t, jose.JSONWebKey{Key: short.Public()})),
		"for encryption": string(asJSON(t, encryption)),
		"of a new kind":  `{"kty":"AKP","alg":"ML-DSA-44","pub":"AA"}`,
		"off the curve":  `{"kty":"EC","crv":"P-256","x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","y":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}`,
		"no object":      `"key"`,
		"null":           `null`,
	} {
		keys, err := parseKeys([]byte(`{"keys":[` + key + `,` + good + `]}`))
		if err != nil || len(keys) != 1 || keys[0].KeyID != "good" {
			t.Errorf("%s: got %v, %v; want it passed over", name, keys, err)
		}
	}
	for name, set := range map[string]string{
		"nothing": "", "a key alone": good, "keys null": `{"keys":null}`, "keys an object": `{"keys":{}}`,
		"too many": `{"keys":[` + strings.Repeat(good+",", maxKeys) + good + `]}`,
	} {
		if keys, err := parseKeys([]byte(set)); err == nil {
			t.Errorf("%s: got %v, want an error", name, keys)
		}
	}
}

func TestFilesThatAServerDoesNotStartWith(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"empty":   `{"keys":[]}`,
		"secret":  `{"keys":[{"kty":"oct","k":"c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}]}`,
		"garbage": `PEM`,
		"large":   `{"keys":[]}` + strings.Repeat(" ", maxJWKS),
		"missing": "",
	} {
		issuer := decider("ES256")
		issuer.JWKSFile = filepath.Join(dir, name)
		if content != "" {
			must(t, os.WriteFile(issuer.JWKSFile, []byte(content), 0o600))
		}
		_, err := NewJWT([]JWTIssuer{issuer}, JWTOptions{})
		if err == nil || !strings.HasPrefix(err.Error(), "auth.jwt[0]: jwks_file ") || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%s: got %v, want an error that names the file", name, err)
		}
	}
}

func TestConfigurationOfIssuers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*JWTIssuer){
		"no issuer":                func(i *JWTIssuer) { i.Issuer = "" },
		"an issuer with a #":       func(i *JWTIssuer) { i.Issuer += "#a" },
		"an issuer on plain http":  func(i *JWTIssuer) { i.Issuer = "http://issuer.example" },
		"an issuer with user":      func(i *JWTIssuer) { i.Issuer = "https://me:hunter2@issuer.example" },
		"an issuer with a query":   func(i *JWTIssuer) { i.Issuer += "?a=b" },
		"an issuer that is no URL": func(i *JWTIssuer) { i.Issuer = "issuer" },
		"no audience":              func(i *JWTIssuer) { i.Audience = "" },
		"no algorithms":            func(i *JWTIssuer) { i.Algorithms = nil },
		"alg none":                 func(i *JWTIssuer) { i.Algorithms = []string{"RS256", "none"} },
		"alg HS256":                func(i *JWTIssuer) { i.Algorithms = []string{"HS256"} },
		"alg rs256":                func(i *JWTIssuer) { i.Algorithms = []string{"rs256"} },
		"no tenants":               func(i *JWTIssuer) { i.Tenants = nil },
		"an illegal tenant":        func(i *JWTIssuer) { i.Tenants = []string{".."} },
		"no permissions":           func(i *JWTIssuer) { i.Permissions = []Permission{} },
		"a permission misspelt":    func(i *JWTIssuer) { i.Permissions = []Permission{"Decide"} },
		"an empty obligation type": func(i *JWTIssuer) { i.Obligations = []string{""} },
		"an empty audience":        func(i *JWTIssuer) { i.Audiences = []string{"gw", ""} },
		"no audience of a list":    func(i *JWTIssuer) { i.Audiences = []string{} },
	} {
		issuer := decider("ES256")
		change(&issuer)
		_, err := NewJWT([]JWTIssuer{decider("RS256"), issuer}, JWTOptions{})
		if err == nil || !strings.HasPrefix(err.Error(), "auth.jwt[1]: ") || strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%s: got %v, want an error that says where and quotes no password", name, err)
		}
	}
	if _, err := NewJWT([]JWTIssuer{decider("RS256"), decider("ES256")}, JWTOptions{}); err == nil {
		t.Error("one issuer and audience twice: no error")
	}
}

func TestConfigurationAsItIsWritten(t *testing.T) {
	t.Parallel()
	var auth struct {
		JWT  []JWTIssuer `yaml:"jwt"`
		MTLS []MTLSRule  `yaml:"mtls"`
	}
	d := yaml.NewDecoder(strings.NewReader(`
jwt:
  - {issuer: "https://a.example", audience: pdp, jwks_file: f, algorithms: [ES256], tenants: ["*"], permissions: [decide, log.read], obligations: []}
mtls:
  - {san: pep.example, tenants: [acme], permissions: [search], audiences: [gw]}
`))
	d.KnownFields(true)
	must(t, d.Decode(&auth))
	jwt, mtls := auth.JWT[0], auth.MTLS[0]
	if err := errors.Join(jwt.check(), mtls.check()); err != nil || jwt.JWKSFile != "f" || mtls.SAN != "pep.example" {
		t.Errorf("got %+v, %+v, %v", jwt, mtls, err)
	}
	if jwt.caller("").Asker().Audiences != nil || !slices.Equal(mtls.caller("").Asker().Audiences, []string{"gw"}) {
		t.Error("the audiences are those of another caller")
	}
	if !jwt.caller("").Registered || mtls.caller("").Registered {
		t.Error("registered for nothing and not registered are not told apart")
	}
}
