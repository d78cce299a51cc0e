package console_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path"
	"strings"

	"golang.org/x/net/html"

	"policy-service/pdp/internal/console/oidctest"
)

// rightsWeb is the browser of a person, as far as a server can tell.
type rightsWeb struct {
	w      *rightsWorld
	client *http.Client
}

// web is a new browser, for somebody whose connections are of a transport; nil is the default.
func (w *rightsWorld) web(transport http.RoundTripper) *rightsWeb {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	rightsMust(w.t, err)
	return &rightsWeb{w, &http.Client{
		Transport: transport, Jar: jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// rightsPage is an answer of the console.
type rightsPage struct {
	status   int
	location string // without what stands before /console
	root     *html.Node
	text     string
}

func (b *rightsWeb) do(method, to string, form url.Values) rightsPage {
	b.w.t.Helper()
	r, err := http.NewRequestWithContext(b.w.t.Context(), method, b.w.URL+"/console"+to, strings.NewReader(form.Encode()))
	rightsMust(b.w.t, err)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	got, err := b.client.Do(r)
	rightsMust(b.w.t, err)
	defer func() { _ = got.Body.Close() }()
	body, err := io.ReadAll(got.Body)
	rightsMust(b.w.t, err)
	root, err := html.Parse(strings.NewReader(string(body)))
	rightsMust(b.w.t, err)
	where, _ := url.Parse(got.Header.Get("Location"))
	return rightsPage{got.StatusCode, strings.TrimPrefix(where.RequestURI(), "/console"), root, string(body)}
}

func (b *rightsWeb) get(to string) rightsPage { b.w.t.Helper(); return b.do(http.MethodGet, to, nil) }

func (b *rightsWeb) post(to string, form url.Values) rightsPage {
	b.w.t.Helper()
	return b.do(http.MethodPost, to, form)
}

// logIn logs in with an API key.
func (b *rightsWeb) logIn(secret string) rightsPage {
	b.w.t.Helper()
	return b.post("/login", url.Values{"key": {secret}})
}

// logInAtProvider has somebody go to the provider, and come back.
func (b *rightsWeb) logInAtProvider(p rightsPerson) rightsPage {
	b.w.t.Helper()
	b.w.provider.Change(func(at *oidctest.Provider) { at.Person = map[string]any{"sub": p.principal, "groups": p.groups} })
	sent := b.get("/login/oidc")
	asked, err := url.Parse(sent.location)
	if err != nil || asked.Path != "/authorize" {
		b.w.t.Fatalf("the browser is sent to %d %s", sent.status, sent.location)
	}
	answer := url.Values{"state": {asked.Query().Get("state")}, "code": {b.w.provider.Code(asked.Query())}, "iss": {b.w.provider.URL}}
	return b.get("/login/callback?" + answer.Encode())
}

// rightsForm is a form of a page, with what it sends besides what a person writes and presses.
type rightsForm struct {
	to      string
	hidden  url.Values
	buttons []rightsButton
}

type rightsButton struct{ text, name, value string }

// forms are the forms of a page that are sent by POST.
func (p rightsPage) forms() (all []rightsForm) {
	for n := range p.root.Descendants() {
		if n.Data != "form" || rightsAttr(n, "method") != "post" {
			continue
		}
		f := rightsForm{to: strings.TrimPrefix(rightsAttr(n, "action"), "/console"), hidden: url.Values{}}
		for in := range n.Descendants() {
			switch {
			case in.Data == "input" && rightsAttr(in, "type") == "hidden":
				f.hidden.Set(rightsAttr(in, "name"), rightsAttr(in, "value"))
			case in.Data == "button":
				f.buttons = append(f.buttons, rightsButton{rightsTextOf(in), rightsAttr(in, "name"), rightsAttr(in, "value")})
			}
		}
		all = append(all, f)
	}
	return all
}

// button finds the form that has a button, by the text on it.
func (p rightsPage) button(text string) (rightsForm, rightsButton, bool) {
	for _, f := range p.forms() {
		for _, b := range f.buttons {
			if b.text == text {
				return f, b, true
			}
		}
	}
	return rightsForm{}, rightsButton{}, false
}

// rows are the ids of the approval requests that a page lists, in order.
func (p rightsPage) rows() (ids []string) {
	for n := range p.root.Descendants() {
		if n.Data == "tr" {
			for in := range n.Descendants() {
				if in.Data == "a" {
					ids = append(ids, path.Base(rightsAttr(in, "href")))
				}
			}
		}
	}
	return ids
}

func rightsAttr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func rightsTextOf(n *html.Node) string {
	var b strings.Builder
	for in := range n.Descendants() {
		if in.Type == html.TextNode {
			b.WriteString(in.Data)
		}
	}
	return strings.TrimSpace(b.String())
}
