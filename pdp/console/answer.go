package console

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"path"

	"policy-service/pdp/console/page"
)

// show answers with a page. Nothing is sent of a page that cannot be written whole.
func (c *Console) show(w http.ResponseWriter, r *http.Request, status int, view page.View) {
	text, err := page.Render(view)
	if err != nil {
		c.options.Log.ErrorContext(r.Context(), "a page of the console cannot be written", "error", err)
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// redirect sends the browser to a path of the console, such as /approvals.
func (c *Console) redirect(w http.ResponseWriter, path string) {
	w.Header().Set("Location", c.link(path))
	w.WriteHeader(http.StatusSeeOther)
}

// layout is what every page has, for whoever looks at it.
func (c *Console) layout(title page.Label) page.Layout {
	return page.Layout{Title: title, Home: page.Href(c.link("")), Now: page.MomentOf(c.options.Now(), c.options.Now())}
}

// problem answers with a page that says what is wrong, in words for its status.
func (c *Console) problem(w http.ResponseWriter, r *http.Request, status int) {
	c.show(w, r, status, c.message(c.layout(titleOf(status)), status))
}

// What pages say that have nothing else to show, by status: a title, and what to do.
var problems = map[int]struct {
	title page.Label
	says  string
}{
	http.StatusBadRequest:            {"Not understood", "The form cannot be read. Nothing was changed. Open the page again."},
	http.StatusUnauthorized:          {"Not logged in", "Nothing was changed. Log in, and do it again."},
	http.StatusForbidden:             {"Refused", "The form was not sent from your own page of this console, or that page is out of date, or a page asks for it that is none of this console. Nothing was changed. Open the page again."},
	http.StatusNotFound:              {"Not found", "There is no such page, or you may not see it."},
	http.StatusMethodNotAllowed:      {"Not possible", "This address does not take such a request. Nothing was changed."},
	http.StatusRequestEntityTooLarge: {"Too large", "The form is too large. Nothing was changed. Write less."},
	http.StatusUnsupportedMediaType:  {"Not understood", "This is no form of this console. Nothing was changed."},
	http.StatusMisdirectedRequest:    {"Wrong address", "Without TLS the console answers only at the name localhost or at a loopback address."},
	http.StatusServiceUnavailable:    {"Busy", "The service has too much to do at the moment. Try again in a few seconds."},
	http.StatusInternalServerError:   {"Something went wrong", "The page cannot be shown. The operator finds the cause in the log."},
}

func titleOf(status int) page.Label { return problems[status].title }

func (c *Console) message(l page.Layout, status int) page.Message {
	m := page.Message{Layout: l, Heading: titleOf(status), Says: []page.Text{page.Of(problems[status].says)},
		Link: page.Href(c.link("/approvals")), LinkText: "To the inbox"}
	if status == http.StatusUnauthorized {
		m.Link, m.LinkText = page.Href(c.link(loginPath)), "Log in"
	}
	return m
}

// nobody answers somebody who is not logged in. Whoever opens a page goes there after the login.
func (c *Console) nobody(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		m := c.message(c.layout(titleOf(http.StatusUnauthorized)), http.StatusUnauthorized)
		m.Link = page.Href(c.link(loginTo(nextOf(path.Dir(below(r)), "")))) // the page that has the form
		c.show(w, r, http.StatusUnauthorized, m)
		return
	}
	c.redirect(w, loginTo(nextOf(below(r), r.URL.RawQuery)))
}

// loginTo is the path of a login that leads to a path; "" is the inbox.
func loginTo(next string) string {
	if next == "" || next == approvalsPath {
		return loginPath
	}
	return loginPath + "?" + url.Values{nextField: {next}}.Encode()
}

// file serves what pages load. A browser asks each time whether it has changed.
func file(media, content string) http.HandlerFunc {
	sum := sha256.Sum256([]byte(content))
	tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:]) + `"`
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", tag)
		if cmp.Or(r.Header.Get("If-None-Match"), "none") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Type", media+"; charset=utf-8")
		_, _ = w.Write([]byte(content))
	}
}
