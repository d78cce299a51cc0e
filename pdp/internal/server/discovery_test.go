package server_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/signing"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
	"policy-service/schemas"
)

const (
	metadataPath = "/.well-known/authzen-configuration"
	jwksPath     = "/.well-known/jwks.json"
)

// known is a data directory with the signing key of the goldens, which makes the
// signatures in them the same every time.
func known(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	key, err := os.ReadFile("testdata/discovery/" + signing.File)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, signing.File), key, 0o600))
	return dir
}

// addKey adds an API key and returns the header that shows it.
func addKey(t *testing.T, dir, name string, grant auth.Grant) string {
	t.Helper()
	apiKeys, err := keys.Open(dir)
	must(t, err)
	key, err := apiKeys.Add(keys.Spec{Name: name, Grant: grant})
	must(t, err)
	return "Bearer " + key
}

func TestDiscoveryWire(t *testing.T) {
	t.Parallel()
	goldens(t, "testdata/discovery", func(t *testing.T) *pdptest.Server {
		dir := known(t)
		addKey(t, dir, "pep", auth.Grant{})
		return pdptest.Start(t, bundle(t), func(c *server.Config) {
			c.Data = dir
			c.PublicURL = "https://pdp.example.com/authz/"
		})
	})
}

// Every copy that a client may still have verifies with the keys, and counts.
func TestSignedMetadata(t *testing.T) {
	t.Parallel()
	for name, point := range map[string]string{"default": "", "acme": "/tenants/acme", "nosuch": "/tenants/nosuch"} {
		data := t.TempDir()
		addKey(t, data, "pep", auth.Grant{})
		s := pdptest.Start(t, bundle(t), withData(data), func(c *server.Config) { c.PublicURL = "https://pdp.example.com" })
		plain := map[string]any{}
		must(t, json.Unmarshal([]byte(s.Get(metadataPath+point).Body), &plain))
		var keys jose.JSONWebKeySet
		must(t, json.Unmarshal([]byte(s.Get(jwksPath).Body), &keys))
		token, err := jwt.ParseSigned(plain["signed_metadata"].(string), []jose.SignatureAlgorithm{jose.EdDSA})
		must(t, err)
		var times jwt.Claims
		signed := map[string]any{}
		if err := token.Claims(keys, &times, &signed); err != nil {
			t.Fatalf("%s: the signature does not verify: %v", name, err)
		}
		if err := times.ValidateWithLeeway(jwt.Expected{Issuer: "https://pdp.example.com" + point, Time: pdptest.Now.Add(20 * time.Hour)}, 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if times.IssuedAt.Time().After(pdptest.Now) || plain["policy_decision_point"] != times.Issuer {
			t.Errorf("%s: issued at %v by %s for %s", name, times.IssuedAt.Time(), times.Issuer, plain["policy_decision_point"])
		}
		for _, claim := range []string{"iss", "iat", "exp"} {
			delete(signed, claim)
		}
		delete(plain, "signed_metadata")
		if diff := cmp.Diff(plain, signed); diff != "" {
			t.Errorf("%s: plain and signed metadata differ:\n%s", name, diff)
		}
	}
}

func TestMetadataIsSignedAnew(t *testing.T) {
	t.Parallel()
	at := clock.At(pdptest.Now)
	s := pdptest.Start(t, bundle(t), func(c *server.Config) { c.Program.PDP.Now = at.Now })
	first := s.Get(metadataPath)
	at.Advance(pdptest.Now.Truncate(time.Hour).Add(time.Hour - 1).Sub(pdptest.Now))
	if same := s.Get(metadataPath); same.Body != first.Body || same.Header.Get("ETag") != first.Header.Get("ETag") {
		t.Error("within the hour the bytes changed")
	}
	at.Advance(1)
	next := s.Get(metadataPath, "If-None-Match", first.Header.Get("ETag"))
	if next.Status != 200 || next.Body == first.Body || next.Header.Get("ETag") == first.Header.Get("ETag") {
		t.Errorf("in the next hour: got %d, tag %s then %s", next.Status, first.Header.Get("ETag"), next.Header.Get("ETag"))
	}
}

// What the service says of itself is its listener's address, whatever was asked for.
func TestMetadataNamesTheListener(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	addKey(t, data, "pep", auth.Grant{}) // else what a proxy sends is refused
	s := pdptest.Start(t, bundle(t), withData(data), func(c *server.Config) { c.Listen = "localhost:0" })
	for _, host := range []string{"localhost", "127.0.0.7:99", "[::1]:99"} {
		got := exchange(t, s.Addr(), rawRequest([]byte("GET "+metadataPath+" HTTP/1.1\nHost: "+host+"\nX-Forwarded-Host: evil.example\nX-Forwarded-Proto: https")))
		if !strings.Contains(got, "\n\n{\"policy_decision_point\":\"http://"+s.Addr()+"\",") || strings.Contains(got, "evil") {
			t.Errorf("%s: got %s", host, got)
		}
	}
}

func TestSigningKeyOutlivesTheServerInItsDataDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "data")
	kid := func(data string) string {
		s := pdptest.Start(t, bundle(t), func(c *server.Config) { c.Data = data })
		defer stopAndWait(t, s)
		var keys jose.JSONWebKeySet
		if err := json.Unmarshal([]byte(s.Get(jwksPath).Body), &keys); err != nil || len(keys.Keys) != 1 {
			t.Fatalf("%d keys: %v", len(keys.Keys), err)
		}
		return keys.Keys[0].KeyID
	}
	first := kid(dir)
	if again := kid(dir); again != first {
		t.Error("a restart changed the key")
	}
	if info, err := os.Stat(dir); err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("the data directory: %v, %v", info.Mode(), err)
	}
	if a, b := kid(""), kid(""); a == b || a == first {
		t.Error("servers without a data directory share a key")
	}
}

func TestOpenAPIIsServed(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t))
	if got := s.Get("/openapi.yaml"); got.Status != 200 || got.Body != string(schemas.OpenAPI) || got.Header.Get("Content-Type") != "application/yaml" {
		t.Errorf("got %d %s of %d bytes", got.Status, got.Header.Get("Content-Type"), len(got.Body))
	}
}
