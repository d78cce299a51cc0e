package console

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/console/page"
)

// show answers with a page. Nothing is sent of a page that cannot be written whole.
func (v *visit) show(status int, view page.View) {
	text, err := page.Render(view)
	if err != nil {
		v.options.Log.ErrorContext(v.r.Context(), "a page of the console cannot be written", "error", err)
		status = http.StatusInternalServerError
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(text)
}

// redirect sends the browser to a path of the console, such as /approvals.
func (v *visit) redirect(path string) {
	v.w.Header().Set("Location", v.link(path))
	v.w.WriteHeader(http.StatusSeeOther)
}

// problem answers with a page that explains a status.
func (v *visit) problem(status int) { v.show(status, v.message(status)) }

// The texts of pages that have nothing else to show, by status: a title, and the way on.
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

func (v *visit) message(status int) page.Message {
	title := titleOf(status)
	if v.waiting == nil { // the API may be why there is no other page
		v.waiting = &inbox.Count{}
	}
	m := page.Message{Layout: v.layout(title), Heading: title, Says: []page.Text{page.Of(problems[status].says)},
		Link: page.Href(v.link("/approvals")), LinkText: "To the inbox"}
	if !m.Layout.Inbox && m.Layout.Records {
		m.Link, m.LinkText = page.Href(v.link(decisionsPath)), "To the records"
	}
	m.Layout.Section = "" // of all that a person may not see there is one page
	if status == http.StatusUnauthorized {
		m.Link, m.LinkText = page.Href(v.link(loginPath)), "Log in"
	}
	return m
}

// toLogin answers a browser without a session. From the login it goes on to the page that it opened.
func (v *visit) toLogin() {
	at := below(v.r)
	if v.r.Method != http.MethodGet && v.r.Method != http.MethodHead {
		m := v.message(http.StatusUnauthorized)
		m.Link = page.Href(v.link(loginTo(nextOf(path.Dir(at), "")))) // the page that has the form
		v.show(http.StatusUnauthorized, m)
		return
	}
	v.redirect(loginTo(nextOf(at, v.r.URL.RawQuery)))
}

// loginTo is the path of a login that leads to a path; "" is the inbox.
func loginTo(next string) string {
	if next == "" || next == approvalsPath {
		return loginPath
	}
	return loginPath + "?" + url.Values{nextField: {next}}.Encode()
}

// file serves a file that pages load. A browser asks each time whether it has changed.
func file(media, content string) func(*visit) {
	sum := sha256.Sum256([]byte(content))
	tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:]) + `"`
	return func(v *visit) {
		header := v.w.Header()
		header.Set("Cache-Control", "no-cache")
		header.Set("ETag", tag)
		header.Set("Content-Type", media+"; charset=utf-8")
		v.r.Header.Del("Range") // the answer to a wrong one would lack headers
		http.ServeContent(v.w, v.r, "", time.Time{}, strings.NewReader(content))
	}
}

// The headers of every answer. A page loads from the console alone, runs no script but its file, is in no frame, and
// sends nothing elsewhere.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'",
	"X-Frame-Options":              "DENY",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	// A browser passes over a value without names as one that it cannot read.
	"Permissions-Policy": "camera=(), display-capture=(), geolocation=(), hid=(), microphone=(), midi=(), payment=(), " +
		"serial=(), usb=()",
	"Cache-Control": "no-store",
}

func setHeaders(h http.Header) {
	for name, value := range headers {
		h.Set(name, value)
	}
}
