package conformance

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"policy-service/conformance/internal/wire"
)

func discoveryFaults() []fault {
	signed := func(claims func(base string) object) faulty {
		return describing(func(o object) { o["signed_metadata"] = sign(claims(o["policy_decision_point"].(string))) }).and(publishing(signer))
	}
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + ".e30."
	return []fault{
		{"no metadata", "c-6-6", after(func(r *http.Request, a *httptest.ResponseRecorder) {
			if strings.Contains(r.URL.Path, "well-known") {
				replace(a, 404, "")
			}
		})},
		{"metadata is text", "c-6-2", after(func(_ *http.Request, a *httptest.ResponseRecorder) { a.Header().Set("Content-Type", "text/plain") })},
		{"metadata is an array", "c-6-1", after(func(_ *http.Request, a *httptest.ResponseRecorder) { replace(a, 200, "[]") })},
		{"metadata of another PDP", "c-6-5", describing(func(o object) { o["policy_decision_point"] = "https://pdp.example.com" })},
		{"a base with a slash too many", "c-6-5", describing(func(o object) { o["policy_decision_point"] = o["policy_decision_point"].(string) + "/" })},
		{"endpoints over plain HTTP", "c-6-5-endpoints", describing(func(o object) {
			for name, v := range o {
				if url, ok := v.(string); ok {
					o[name] = strings.Replace(url, "https:", "http:", 1)
				}
			}
		})},
		{"endpoints are paths", "c-6-5-endpoints", describing(func(o object) { o["access_evaluation_endpoint"] = "/access/v1/evaluation" })},
		{"no evaluation endpoint", "c-6-3", describing(func(o object) { delete(o, "access_evaluation_endpoint") })},
		{"the draft's names", "c-6-3", describing(func(o object) { o["issuer"] = o["policy_decision_point"]; delete(o, "policy_decision_point") })},
		{"capabilities are a string", "c-6-4", describing(func(o object) { o["capabilities"] = "none" })},
		{"empty capabilities", "metadata-no-empty-members", describing(func(o object) { o["capabilities"] = []any{} })},
		{"unsigned signed_metadata", "c-6-5-signed", describing(func(o object) { o["signed_metadata"] = none })},
		{"signed_metadata without iss", "c-6-5-signed", signed(func(string) object { return object{} })},
		{"signed_metadata says something else", "c-6-5-signed", signed(func(base string) object {
			return object{"iss": base, "policy_decision_point": "https://pdp.example.com"}
		})},
		{"signed_metadata holds itself", "c-6-5-signed", signed(func(base string) object { return object{"iss": base, "signed_metadata": "x"} })},
		{"signed by another key", "c-6-5-signed", publishing()},
		{"believes X-Forwarded-Host", "metadata-host", after(func(r *http.Request, a *httptest.ResponseRecorder) {
			if host := r.Header.Get("X-Forwarded-Host"); host != "" {
				edited(a, func(o object) { o["policy_decision_point"] = "https://" + host })
			}
		})},
		{"an access request endpoint that is a number", "request-metadata", describing(func(o object) { o["access_request_endpoint"] = 7 })},
		{"access requests without the capability", "request-capability", requesting(func(o object) { delete(o, "capabilities") })},
		{"an access request endpoint that is not there", "request-without-denial", requesting(func(object) {})},
		{"no task is just a 404", "request-unknown-task", offering()},
		{"an access request endpoint that answers nobody", "request-unknown-task", requesting(func(object) {}).and(after(func(r *http.Request, a *httptest.ResponseRecorder) {
			if strings.Contains(r.URL.Path, "/requests") {
				replace(a, 500, "{}")
			}
		}))},
		{"takes a denial that nothing binds", "request-without-token", offering().and(after(func(r *http.Request, a *httptest.ResponseRecorder) {
			if strings.Contains(r.URL.Path, "/requests") {
				replace(a, 202, `{"task":{"id":"t","status":"pending","status_endpoint":"https://pdp.example.com/t"}}`)
			}
		}))},
		{"allows what an approval is asked for", "request-none-unapproved", allowing(`"publish"`)},
		{"believes in any approval", "request-approval-unknown", allowing(`"nobody-gave-this"`)},
		{"no Cache-Control", "metadata-cacheable", without("Cache-Control")},
		{"no ETag", "metadata-etag", without("Etag")},
		{"sends again what did not change", "metadata-etag", before(func(r *http.Request, body []byte) []byte {
			r.Header.Del("If-None-Match")
			return body
		})},
	}
}

func transportFaults() []fault {
	with := func(do http.HandlerFunc) faulty {
		return func(right http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					do(w, r)
					return
				}
				right.ServeHTTP(w, r)
			})
		}
	}
	return []fault{
		{"redirects", "c-2-2-1", with(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		})},
		{"hangs up", "c-2-2-1", with(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })},
		{"answers without end", "c-2-2-1", with(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(slices.Repeat([]byte(" "), wire.Most+1))
		})},
		{"204 for an allow", "c-2-2-1", with(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })},
	}
}

// requesting is a PDP that says that it takes access requests, and has no place for them.
func requesting(change func(object)) faulty {
	return describing(func(o object) {
		o["access_request_endpoint"] = o["policy_decision_point"].(string) + "/access/v1/requests"
		o["capabilities"] = []any{"urn:openid:authzen:capability:access-request"}
		change(o)
	}).and(after(func(r *http.Request, a *httptest.ResponseRecorder) {
		if strings.Contains(r.URL.Path, "/requests") {
			refuse(a, 404)
		}
	}))
}

// offering is one that also says of a denial that it can be requested.
func offering() faulty {
	return requesting(func(object) {}).and(saying(`"publish"`, `{"decision":false,"context":{"access_request":{"binding_token":"t","expires_at":"2099-01-01T00:00:00Z"}}}`))
}

// allowing is a PDP that allows whatever has a text in it.
func allowing(text string) faulty { return saying(text, `{"decision":true}`) }

// saying answers each question that has a text in it.
func saying(text, answer string) faulty {
	return after(func(r *http.Request, a *httptest.ResponseRecorder) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), text) {
			replace(a, 200, answer)
		}
	})
}

// signer signs metadata in place of the server's key. It is no secret: it is of a test.
var signer = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

func sign(claims object) string {
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: signer}, nil)
	if err != nil {
		panic(err)
	}
	payload, _ := json.Marshal(claims)
	signed, err := s.Sign(payload)
	if err != nil {
		panic(err)
	}
	text, _ := signed.CompactSerialize()
	return text
}

// publishing publishes the public halves of other keys than the server's.
func publishing(keys ...ed25519.PrivateKey) faulty {
	var set jose.JSONWebKeySet
	for _, k := range keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.Public(), KeyID: "1", Algorithm: "EdDSA"})
	}
	return after(func(r *http.Request, a *httptest.ResponseRecorder) {
		if strings.HasSuffix(r.URL.Path, "jwks.json") {
			text, _ := json.Marshal(set)
			replace(a, 200, string(text))
		}
	})
}
