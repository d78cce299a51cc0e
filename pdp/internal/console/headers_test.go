package console_test

import (
	"net/http"
	"strings"
	"testing"
)

// Every answer has the headers, and every path takes its methods alone.
func TestHeadersAndMethods(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{oidc: true})
	id := c.waits("deploy")
	in := c.browser()
	in.logIn("mia")
	paths := map[string]string{ // what each allows; "" is 404
		"": "GET, HEAD", "/": "GET, HEAD", "/approvals": "GET, HEAD", "/approvals/" + id: "GET, HEAD", "/approvals/nosuch": "GET, HEAD",
		"/approvals/" + id + "/decision": "POST", "/approvals/" + id + "/revoke": "POST",
		"/login": "GET, HEAD, POST", "/login/oidc": "GET", "/login/callback": "GET", "/logout": "POST",
		"/style.css": "GET, HEAD", "/console.js": "GET, HEAD", "/icon.svg": "GET, HEAD",
		"/nowhere": "", "/approvals/": "", "/login/": "", "//approvals": "", "/approvals/../login": "", "/%61pprovals": "*", "/style.css/": "",
		"/approvals/" + id + "/": "", "/approvals%2f" + id: "", "/.": "",
	}
	for path, allow := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"} {
			for _, b := range []*coreBrowser{c.browser(), in} {
				got := b.do(method, path, "")
				where := method + " " + path
				coreHeaders(t, where, got)
				switch {
				case allow == "" && got.Status != http.StatusNotFound:
					t.Errorf("%s: got %d", where, got.Status)
				case allow != "" && allow != "*" && !strings.Contains(", "+allow+",", ", "+method+","):
					if got.Status != http.StatusMethodNotAllowed || got.Header.Get("Allow") != allow {
						t.Errorf("%s: got %d, allowed %q", where, got.Status, got.Header.Get("Allow"))
					}
				case allow != "" && got.Status == http.StatusMethodNotAllowed:
					t.Errorf("%s: got 405", where)
				}
				if method == "HEAD" && got.Body != "" {
					t.Errorf("%s: got %q", where, got.Body)
				}
			}
		}
	}
}

// coreHeaders checks those of B.1, one of each.
func coreHeaders(t *testing.T, where string, got coreAnswer) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
		"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		if all := got.Header[name]; len(all) != 1 || all[0] != want {
			t.Errorf("%s: %s is %q", where, name, all)
		}
	}
	cached := "no-store"
	if strings.HasSuffix(where, ".css") || strings.HasSuffix(where, ".js") || strings.HasSuffix(where, ".svg") {
		if got.Status == http.StatusOK {
			cached = "no-cache"
		}
	}
	if got.Header.Get("Cache-Control") != cached {
		t.Errorf("%s: Cache-Control is %q", where, got.Header.Get("Cache-Control"))
	}
	if media := got.Header.Get("Content-Type"); got.To == "" && !strings.HasSuffix(media, "; charset=utf-8") {
		t.Errorf("%s: Content-Type is %q", where, media)
	}
	if len(got.Header["Permissions-Policy"]) != 1 || got.Header.Get("Strict-Transport-Security") != "" {
		t.Errorf("%s: got %v", where, got.Header)
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{})
	b := c.browser()
	for path, media := range map[string]string{"/style.css": "text/css; charset=utf-8", "/console.js": "text/javascript; charset=utf-8", "/icon.svg": "image/svg+xml; charset=utf-8"} {
		got := b.get(path)
		if got.Status != http.StatusOK || got.Header.Get("Content-Type") != media || got.Body == "" {
			t.Errorf("%s: got %d %v", path, got.Status, got.Header)
		}
		if again := b.get(path, "If-None-Match", got.Header.Get("ETag")); again.Status != http.StatusNotModified || again.Body != "" {
			t.Errorf("%s: got %d", path, again.Status)
		}
		b.get(path, "If-None-Match", `"x"`).is(t, path, http.StatusOK)
		for _, part := range []string{"bytes=99999999-", "bytes=0-1"} {
			whole := b.get(path, "Range", part)
			coreHeaders(t, path, whole)
			if whole.Status != http.StatusOK || whole.Body != got.Body {
				t.Errorf("%s, of which %s: got %d", path, part, whole.Status)
			}
		}
	}
}

// An API that has no time, or no answer, is said to be so, and no word of it is shown. A session that it does not take
// is over, and stays so.
func TestAPIInTrouble(t *testing.T) {
	t.Parallel()
	trouble := &coreTrouble{}
	c := openCore(t, coreWith{api: func(api http.RoundTripper) http.RoundTripper { trouble.RoundTripper = api; return trouble }})
	id := c.waits("deploy")
	b := c.browser()
	b.logIn("mia")
	for status, want := range map[int]int{429: 503, 503: 503, 500: 500, 302: 500, coreAway: 500, 403: 404, 404: 404} {
		trouble.answers("", status)
		for _, path := range []string{"/approvals", "/approvals/" + id} {
			got := b.get(path)
			coreHeaders(t, path, got)
			if got.Status != want || strings.Contains(got.Body, "SECRET") || (got.Header.Get("Retry-After") != "") != (want == 503) {
				t.Errorf("%d: got %d %v", status, got.Status, got.Header)
			}
		}
		if got := c.browser().send("/login", "key", c.key["eve"]); got.Status != want || got.Header.Get("Set-Cookie") != "" {
			t.Errorf("%d: the login gets %d", status, got.Status)
		}
	}
	trouble.answers("", 401)
	if b.isIn() {
		t.Error("it is in")
	}
	trouble.answers("", 0)
	if b.isIn() {
		t.Error("it is in again")
	}
}
