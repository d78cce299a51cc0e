package conformance

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// The stub's metadata.

// stubKey signs metadata. It is no secret: the stub is a test.
var stubKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

// base is what the stub calls itself: it is asked at its own address only.
func base(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// wellKnown answers discovery.
func (s *stub) wellKnown(w http.ResponseWriter, r *http.Request) {
	tenant, isMetadata := strings.CutPrefix(r.URL.Path, "/.well-known/authzen-configuration")
	name := base(r)
	if host := r.Header.Get("X-Forwarded-Host"); s.metadataHost && host != "" {
		name = "https://" + host
	}
	switch {
	case r.URL.Path == "/.well-known/jwks.json":
		send(w, 200, "application/json", jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: stubKey.Public(), KeyID: "1", Algorithm: "EdDSA"}}})
	case !isMetadata || tenant == "/tenants/default":
		refuse(w, 404, "", "nothing here")
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, 405, "", "GET only")
	case r.Header.Get("If-None-Match") == `"1"`:
		w.WriteHeader(304)
	default:
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("ETag", `"1"`)
		send(w, 200, "application/json", metadata(name, name+tenant))
	}
}

func metadata(origin, base string) object {
	m := object{"policy_decision_point": base, "jwks_uri": origin + "/.well-known/jwks.json"}
	for _, e := range paths {
		m[e.metadata] = base + e.path
	}
	delete(m, "access_request_endpoint") // it has no people to ask
	m["signed_metadata"] = signStub(object{"iss": base, "policy_decision_point": base})
	return m
}

func signStub(claims object) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: stubKey}, nil)
	if err != nil {
		panic(err)
	}
	payload, _ := json.Marshal(claims)
	signed, err := signer.Sign(payload)
	if err != nil {
		panic(err)
	}
	text, _ := signed.CompactSerialize()
	return text
}
