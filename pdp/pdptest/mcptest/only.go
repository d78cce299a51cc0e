package mcptest

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
)

// modern is the revision of the era without a handshake.
const modern = "2026-07-28"

// OnlyLegacy is what the server at a URL would be if it did not know the modern era: it refuses such requests in words
// that no modern server says.
func OnlyLegacy(t testing.TB, target string) (url string) {
	return only(t, target, func(revision string) string {
		if revision == modern {
			return `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: unsupported protocol version"}}`
		}
		return ""
	})
}

// OnlyModern is what it would be if it knew nothing else.
func OnlyModern(t testing.TB, target string) (url string) {
	return only(t, target, func(revision string) string {
		if revision != modern {
			return `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["` + modern + `"],"requested":"legacy"}}}`
		}
		return ""
	})
}

// only lets through what refuses has no answer to.
func only(t testing.TB, target string, refuses func(revision string) (answer string)) string {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	proxy := Proxy(to)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := refuses(r.Header.Get("Mcp-Protocol-Version"))
		if answer == "" {
			proxy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Proxy hands everything on as it is, at once, and sends the Host that the client sent.
func Proxy(to *url.URL) http.Handler {
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}, ErrorLog: log.New(io.Discard, "", 0)} // clients that go are no news
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without this the first byte of an answer closes the body of the request. Whoever then still wants to read its end
		// gets an error, and gives up the connection in the midst of the answer.
		_ = http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	})
}
