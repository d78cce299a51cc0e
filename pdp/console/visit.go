package console

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/url"

	"policy-service/pdp/approval/inbox"
	"policy-service/pdp/httpclient"
)

// visit is one request of one person. The context of its request says to the API who the person is.
type visit struct {
	w   http.ResponseWriter
	r   *http.Request
	api *inbox.Inbox // asked with the context of r
	me  me
	// form and version are what was sent, in a request that sends a form. It is the form of this person's own page
	// for this path, and for that version.
	form    url.Values
	version int

	console *Console
	key     []byte // of the tokens in forms
}

// me is what the API says of the person.
type me struct {
	Caller      string   `json:"caller"`
	Principal   string   `json:"principal"`
	Tenants     []string `json:"tenants"`
	Permissions []string `json:"permissions"`
	Via         string   `json:"via"`
}

// enter begins a visit. If nobody is logged in, it answers by itself, and returns nil.
func (c *Console) enter(w http.ResponseWriter, r *http.Request) *visit {
	v := &visit{w: w, r: r, api: c.inbox, console: c}
	var err error
	v.me, err = httpclient.GetJSON[me](r.Context(), c.api, "/v1/me", nil, 1<<20, "caller")
	if err != nil {
		v.fail(err)
		return nil
	}
	return v
}

// link is the address of a path of the console, such as /approvals, for browsers.
func (v *visit) link(path string) string { return v.console.link(path) }

// show answers with a page. Nothing is sent of a page that cannot be written whole.
func (v *visit) show(status int, write func(io.Writer) error) {
	v.console.show(v.w, v.r, status, write)
}

func (c *Console) show(w http.ResponseWriter, r *http.Request, status int, write func(io.Writer) error) {
	var page bytes.Buffer
	if err := write(&page); err != nil {
		c.options.Log.ErrorContext(r.Context(), "a page of the console cannot be written", "error", err)
		status = http.StatusInternalServerError
		page.Reset()
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes())
}

// redirect sends the browser to a path of the console, such as /approvals.
func (v *visit) redirect(path string) { v.console.redirect(v.w, path) }

// notFound answers that there is no such page, or none that the person may see.
func (v *visit) notFound() { v.console.problem(v.w, v.r, http.StatusNotFound) }

// fail answers for an error of the API. What the API refuses with 409 is for the page that asked.
func (v *visit) fail(err error) {
	switch status := httpclient.StatusOf(err); status {
	case http.StatusUnauthorized:
		v.console.problem(v.w, v.r, status)
	case http.StatusForbidden, http.StatusNotFound:
		v.notFound()
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		v.w.Header().Set("Retry-After", "2")
		v.console.problem(v.w, v.r, http.StatusServiceUnavailable)
	default:
		v.console.options.Log.ErrorContext(v.r.Context(), "the API does not answer the console", "error", err)
		v.console.problem(v.w, v.r, http.StatusInternalServerError)
	}
}

// problem answers with a page that says what is wrong, in words for its status.
func (c *Console) problem(w http.ResponseWriter, r *http.Request, status int) {
	c.show(w, r, status, func(to io.Writer) error {
		_, err := io.WriteString(to, http.StatusText(status))
		return err
	})
}

// carrier brings requests to the API. Of a person without a session it brings the certificate.
type carrier struct{ api http.RoundTripper }

type certificate struct{}

func withCertificate(ctx context.Context, state *tls.ConnectionState) context.Context {
	return context.WithValue(ctx, certificate{}, state)
}

func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	if state, ok := r.Context().Value(certificate{}).(*tls.ConnectionState); ok {
		r = r.WithContext(r.Context())
		r.TLS = state
	}
	return c.api.RoundTrip(r)
}
