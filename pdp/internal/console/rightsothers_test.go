package console_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
)

// rightsNone is an id of nothing.
const rightsNone = "00000000-0000-7000-8000-000000000000"

// asks sends a GET with headers, as a script or a page elsewhere would have a browser send it.
func (b *rightsWeb) asks(to string, header http.Header) (status int, text string) {
	b.w.t.Helper()
	r, err := http.NewRequestWithContext(b.w.t.Context(), http.MethodGet, b.w.URL+"/console"+to, nil)
	rightsMust(b.w.t, err)
	r.Header = header
	got, err := b.client.Do(r)
	rightsMust(b.w.t, err)
	defer func() { _ = got.Body.Close() }()
	body, err := io.ReadAll(got.Body)
	rightsMust(b.w.t, err)
	return got.StatusCode, string(body)
}

// Records, requests and capabilities of another tenant are as if they were not there, for the API and in the console: byte
// for byte.
func TestOthersAreAsNone(t *testing.T) {
	t.Parallel()
	w, people, ids := openRightsPages(t)
	var paths []string
	for _, id := range append(w.recorded(), rightsNone) {
		paths = append(paths, "/decisions/"+id)
	}
	for _, id := range ids {
		paths = append(paths, "/approvals/"+id, "/approvals/"+id+"?whole")
	}
	for _, tenant := range []string{"default", "acme"} {
		for _, id := range rightsFound("capability", w.api("keeper", http.MethodGet, "/v1/capabilities?tenant="+tenant, "").Body) {
			paths = append(paths, "/capabilities/"+id)
		}
	}
	looked := 0
	for _, p := range people {
		if p.name != "log and explain in acme" && p.name != "log here, explain in acme" && p.name != "by issuer, of acme" && p.name != "admin in acme, log here" {
			continue
		}
		none := map[string]rightsPage{}
		for _, part := range []string{"decisions", "approvals", "capabilities"} {
			none[part] = p.web.get("/" + part + "/" + map[bool]string{true: "cap_0199f3a27c1e7d3a8f00c3b2a1908f7e", false: rightsNone}[part == "capabilities"])
		}
		unknown := w.api(p.name, http.MethodGet, "/v1/decisions/"+rightsNone+"/explain", "")
		for _, path := range paths {
			got := p.web.get(path)
			if got.status == http.StatusNotFound {
				looked++
				of := none[strings.Split(path, "/")[1]].text
				if got.text != of {
					t.Errorf("%s, %s: %s", p.name, path, rightsDifference(strings.Split(of, "\n"), strings.Split(got.text, "\n")))
				}
			}
			id, of := strings.CutPrefix(path, "/decisions/")
			if plain := w.api(p.name, http.MethodGet, "/v1/decisions/"+id, ""); of && plain.Status == http.StatusNotFound {
				if got := w.api(p.name, http.MethodGet, "/v1/decisions/"+id+"/explain", ""); got.Status != unknown.Status || got.Body != unknown.Body {
					t.Errorf("%s, %s: it is explained with %d %s, and of none it is %d %s", p.name, path, got.Status, got.Body, unknown.Status, unknown.Body)
				}
			}
		}
	}
	if looked < 60 {
		t.Errorf("%d pages were not there", looked)
	}
}

// Records, and the stream, are for a browser that goes there with the one cookie of a session that lasts.
func TestRecordsAreForTheirPages(t *testing.T) {
	t.Parallel()
	w, people, _ := openRightsPages(t)
	var p rightsKnown
	for _, one := range people {
		if one.name == "everything everywhere" {
			p = one
		}
	}
	paths := []string{"/decisions", "/decisions?kind=all", "/decisions/" + w.recorded()[0]}
	for _, path := range paths {
		if status, text := p.web.asks(path, http.Header{}); status != http.StatusOK || len(rightsFound("record", text))+len(rightsFound("word", text)) == 0 {
			t.Fatalf("%s is %d", path, status)
		}
		for name, header := range map[string]http.Header{
			"a frame":           {"Sec-Fetch-Dest": {"iframe"}, "Sec-Fetch-Mode": {"navigate"}},
			"a script":          {"Sec-Fetch-Dest": {"empty"}, "Sec-Fetch-Mode": {"cors"}, "Sec-Fetch-Site": {"same-origin"}},
			"an image":          {"Sec-Fetch-Dest": {"image"}, "Sec-Fetch-Mode": {"no-cors"}, "Sec-Fetch-Site": {"cross-site"}},
			"two destinations":  {"Sec-Fetch-Dest": {"document", "empty"}},
			"an unknown header": {"Sec-Fetch-Dest": {""}},
		} {
			if status, text := p.web.asks(path, header); status != http.StatusForbidden || len(rightsFound("word", text))+len(rightsFound("record", text)) > 0 {
				t.Errorf("%s asks for %s: %d", name, path, status)
			}
		}
		if got := p.web.do(http.MethodPost, path, url.Values{}); got.status != http.StatusMethodNotAllowed {
			t.Errorf("POST %s is %d", path, got.status)
		}
	}
	script := http.Header{"Sec-Fetch-Dest": {"empty"}, "Sec-Fetch-Mode": {"cors"}, "Sec-Fetch-Site": {"same-origin"}, "Accept": {"application/json"}}
	with := func(name, value string) http.Header {
		h := script.Clone()
		h.Set(name, value)
		return h
	}
	for name, header := range map[string]http.Header{
		"a page elsewhere": with("Sec-Fetch-Site", "cross-site"), "another port": with("Sec-Fetch-Site", "same-site"), "a person": with("Sec-Fetch-Dest", "document"),
		"an old browser": {},
	} {
		if status, text := p.web.asks("/approvals/stream", header); status != http.StatusForbidden || strings.Contains(text, `"n":`) {
			t.Errorf("%s opens the stream: %d", name, status)
		}
	}
	at, err := url.Parse(w.URL + "/console/")
	rightsMust(t, err)
	cookies := p.web.client.Jar.Cookies(at)
	if len(cookies) == 0 {
		t.Fatal("there is no cookie")
	}
	stranger := w.web(w.transport(""))
	again := func(header http.Header, values ...string) http.Header {
		h := header.Clone()
		for _, v := range values {
			h.Add("Cookie", cookies[0].Name+"="+v)
		}
		return h
	}
	own, other := cookies[0].Value, strings.Repeat("A", len(cookies[0].Value))
	session := func(want, wantStream int, values ...string) {
		t.Helper()
		if status, text := stranger.asks(paths[2], again(http.Header{}, strings.Join(values, "; "+cookies[0].Name+"="))); status != want || status != http.StatusOK && len(rightsFound("word", text)) > 0 {
			t.Errorf("with the cookies %d the page is %d, want %d", len(values), status, want)
		}
		if status, _ := stranger.asks("/approvals/stream", again(script, strings.Join(values, "; "+cookies[0].Name+"="))); status != wantStream {
			t.Errorf("with %d cookies the stream is %d, want %d", len(values), status, wantStream)
		}
	}
	session(http.StatusOK, http.StatusOK, own)
	session(http.StatusSeeOther, http.StatusUnauthorized, other)
	session(http.StatusSeeOther, http.StatusUnauthorized, own, other)
	session(http.StatusSeeOther, http.StatusUnauthorized, other, own)
	page := p.web.get("/decisions")
	form, known := rightsTokenFor(page, "/logout")
	if got := p.web.post("/logout", form); !known || got.status != http.StatusSeeOther {
		t.Fatalf("the logout is %d", got.status)
	}
	session(http.StatusSeeOther, http.StatusUnauthorized, own)
}

// The login leads on to the record that was opened.
func TestLoginLeadsToTheRecord(t *testing.T) {
	t.Parallel()
	w := openRights(t, []rightsPerson{{name: "reader", tenants: []string{"default"}, permissions: []auth.Permission{auth.LogRead}}}, func(c *server.Config) { c.PublicURL = rightsIssuer })
	w.records()
	to := "/decisions/" + w.recorded()[0]
	b := w.web(w.transport(""))
	sent := b.get(to)
	if at, err := url.Parse(sent.location); err != nil || sent.status != http.StatusSeeOther || at.Path != "/login" || at.Query().Get("next") != to {
		t.Fatalf("a stranger is sent to %d %s", sent.status, sent.location)
	}
	if got := b.post("/login", url.Values{"key": {w.secret["reader"]}, "next": {to}}); got.status != http.StatusSeeOther || got.location != to {
		t.Errorf("the login leads to %d %s", got.status, got.location)
	}
	for _, elsewhere := range []string{"/decisionsx", "//example.org/decisions/", "/decisions/../../v1/me", "/decisions/%2e%2e/x"} {
		if got := b.post("/login", url.Values{"key": {w.secret["reader"]}, "next": {elsewhere}}); got.location != "/approvals" {
			t.Errorf("%s leads to %s", elsewhere, got.location)
		}
	}
}
