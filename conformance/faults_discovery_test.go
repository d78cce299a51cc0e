package conformance

import (
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
	signed := func(claims func(base string) object) http.Handler {
		return describing(func(o object) { o["signed_metadata"] = signStub(claims(o["policy_decision_point"].(string))) })
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
				o[name] = strings.Replace(v.(string), "https:", "http:", 1)
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
		{"signed by another key", "c-6-5-signed", after(func(r *http.Request, a *httptest.ResponseRecorder) {
			if strings.HasSuffix(r.URL.Path, "jwks.json") {
				text, _ := json.Marshal(jose.JSONWebKeySet{})
				replace(a, 200, string(text))
			}
		})},
		{"believes X-Forwarded-Host", "metadata-host", &stub{metadataHost: true}},
		{"an access request endpoint that is a number", "request-metadata", describing(func(o object) { o["access_request_endpoint"] = 7 })},
		{"access requests without the capability", "request-capability", requesting(func(o object) { delete(o, "capabilities") })},
		{"an access request endpoint that is not there", "request-without-denial", requesting(func(object) {})},
		{"no task is just a 404", "request-unknown-task", offering()},
		{"an access request endpoint that answers nobody", "request-unknown-task", wrap(requesting(func(object) {}), func(r *http.Request, a *httptest.ResponseRecorder) {
			if strings.Contains(r.URL.Path, "/requests") {
				replace(a, 500, "{}")
			}
		})},
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
	with := func(do http.HandlerFunc) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				do(w, r)
				return
			}
			(&stub{}).ServeHTTP(w, r)
		})
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

// requesting is a PDP that says that it takes access requests.
func requesting(change func(object)) http.Handler {
	return describing(func(o object) {
		o["access_request_endpoint"] = o["policy_decision_point"].(string) + "/access/v1/requests"
		o["capabilities"] = []any{"urn:openid:authzen:capability:access-request"}
		change(o)
	})
}

// offering is one that also says of a denial that it can be requested.
func offering() http.Handler {
	return wrap(requesting(func(object) {}), func(r *http.Request, a *httptest.ResponseRecorder) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"publish"`) {
			replace(a, 200, `{"decision":false,"context":{"access_request":{"binding_token":"t","expires_at":"2099-01-01T00:00:00Z"}}}`)
		}
	})
}

// allowing is a PDP that allows whatever has a text in it.
func allowing(text string) http.Handler {
	return after(func(r *http.Request, a *httptest.ResponseRecorder) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), text) {
			replace(a, 200, `{"decision":true}`)
		}
	})
}
