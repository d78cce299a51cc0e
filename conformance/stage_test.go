package conformance

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/inside/server"
)

// stage is our server with a place in front of it, where it can be made wrong. It is asked over TLS, because discovery is
// held to https there.
type stage struct {
	front *httptest.Server
	right http.Handler
	now   atomic.Pointer[http.Handler]
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{}
	s.front = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*s.now.Load()).ServeHTTP(w, r) }))
	t.Cleanup(s.front.Close)
	ours := pdptest.Start(t, pdp.Dir("bundle"), func(c *server.Config) { c.PublicURL = s.front.URL })
	to, err := url.Parse(ours.URL)
	if err != nil {
		t.Fatal(err)
	}
	s.right = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	return s
}

// judge judges the server while it is wrong. Header is sent with each request.
func (s *stage) judge(t *testing.T, wrong faulty, header http.Header, cases []Case) Report {
	t.Helper()
	pdp := wrong(s.right)
	s.now.Store(&pdp)
	report, err := judgeAll(t.Context(), Target{URL: s.front.URL, Client: s.front.Client(), Header: header, Timeout: time.Minute}, cases)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func text(t *testing.T, r Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
