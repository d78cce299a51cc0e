package console_test

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/browsertest"
)

// flowForm is the form of a request page that decides, as it is sent.
type flowForm struct {
	action string
	fields map[string]string
}

// formOf reads the form that approves, on the page of an approval request. Whoever forges one knows all of it.
func formOf(p *browsertest.Page) flowForm {
	form := flowForm{fields: browsertest.Eval[map[string]string](p, `Object.fromEntries(new FormData(document.querySelector("form.deciding")))`)}
	form.action = browsertest.Eval[string](p, `document.querySelector("form.deciding").action`)
	form.fields["decision"], form.fields["reason"] = "approve", "forged"
	return form
}

func (f flowForm) html(method string) string {
	var text strings.Builder
	fmt.Fprintf(&text, `<form method=%s action="%s">`, method, html.EscapeString(f.action))
	for name, value := range f.fields {
		fmt.Fprintf(&text, `<input type=hidden name="%s" value="%s">`, html.EscapeString(name), html.EscapeString(value))
	}
	return text.String() + `<button>Win a prize</button></form>`
}

func (f flowForm) encoded() string {
	values := url.Values{}
	for name, value := range f.fields {
		values.Set(name, value)
	}
	return values.Encode()
}

const flowPage = `<!doctype html><html lang=en><title>Prizes</title>`

// elsewhere serves one page at another port of the same host: the browser sends it the same cookies.
func elsewhere(t *testing.T, page string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, flowPage+page) }))
	t.Cleanup(s.Close)
	return s.URL
}

// TestBrowserForgedPosts sends the whole form of alice, with a good token, from where no page of the console is.
func TestBrowserForgedPosts(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func(t *testing.T, p *browsertest.Page, form flowForm){
		"another port": func(t *testing.T, p *browsertest.Page, form flowForm) {
			p.Goto(elsewhere(t, form.html("post")))
			p.Answers(http.StatusForbidden, func() { p.Click("button", "Win a prize") })
		},
		"data page": func(t *testing.T, p *browsertest.Page, form flowForm) {
			p.GotoUnanswered("data:text/html," + url.PathEscape(flowPage+form.html("post")))
			p.Answers(http.StatusForbidden, func() { p.Click("button", "Win a prize") })
		},
		"GET": func(t *testing.T, p *browsertest.Page, form flowForm) {
			p.Refused(form.action+"?"+form.encoded(), http.StatusMethodNotAllowed)
		},
		"sandboxed frame": func(t *testing.T, p *browsertest.Page, form flowForm) {
			p.Goto(elsewhere(t, `<iframe title=f sandbox="allow-forms allow-scripts" srcdoc="`+html.EscapeString(flowPage+form.html("post")+`<script>document.forms[0].submit()</script>`)+`"></iframe>`))
			framed(p)
		},
		"frame of another port": func(t *testing.T, p *browsertest.Page, form flowForm) {
			p.Goto(elsewhere(t, `<iframe title=f name=f></iframe>`+strings.Replace(form.html("post"), "<form", "<form target=f", 1)+`<script>document.forms[0].submit()</script>`))
			framed(p)
		},
		"fetch": func(t *testing.T, p *browsertest.Page, form flowForm) {
			p.Goto(elsewhere(t, ""))
			p.Expect("load failed: Fetch", "log: network", "log: javascript: Access to fetch", "issue: ")
			for _, mode := range []string{"no-cors", "cors"} {
				browsertest.Eval[string](p, fmt.Sprintf(`fetch(%q, {method: "POST", mode: %q, credentials: "include",
					headers: {"Content-Type": "application/x-www-form-urlencoded"}, body: %q}).then(r => r.type, e => "refused")`, form.action, mode, form.encoded()))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := openFlow(t)
			id := f.push("agent-release")
			p := f.open("alice", browsertest.Anywhere())
			p.Goto("/console/approvals/" + id)
			form := formOf(p)
			forge(t, p, form)
			f.untouched(id)
			// The same form from its own page counts, so that it was not the form that was refused.
			p.Goto("/console/approvals/" + id)
			p.Type(flowReason)
			p.Loads(func() { p.Click("button", "Approve") })
			f.decided(id, "approved", byConsole("approve", "alice", flowReason))
		})
	}
}

// framed waits until the browser has refused to show an answer of the console in a frame. It says so in several ways.
func framed(p *browsertest.Page) {
	p.Await("load failed: Document")
	p.Expect("ERR_BLOCKED_BY_RESPONSE", "frame")
}

// TestBrowserPageOfTheHostReadsNoPage has a script of the console's origin, as another program on the host could serve one,
// ask for a page of alice's.
func TestBrowserPageOfTheHostReadsNoPage(t *testing.T) {
	t.Parallel()
	f := openFlow(t)
	id := f.push("agent-release")
	p := f.open("alice")
	p.Goto("/console/approvals/" + id)
	p.Expect("load failed: Fetch 403")
	for _, mode := range []string{"same-origin", "cors", "no-cors"} {
		got := browsertest.Eval[string](p, fmt.Sprintf(`fetch(location.href, {mode: %q}).then(async r => r.status + await r.text())`, mode))
		if !strings.HasPrefix(got, "403") || strings.Contains(got, "token") || strings.Contains(got, "agent-release") {
			t.Errorf("%s: it reads %s", mode, got)
		}
	}
	f.untouched(id)
}
