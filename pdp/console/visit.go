package console

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"net/http"
	"net/url"
	"slices"

	"policy-service/pdp/approval/inbox"
	"policy-service/pdp/console/page"
	"policy-service/pdp/httpclient"
)

// visit is one request of one person. The context of its request says to the API who the person is.
type visit struct {
	w   http.ResponseWriter
	r   *http.Request
	api *inbox.Inbox // asked with the context of r
	me  inbox.Me
	// form and version are what was sent, in a request that sends a form. It is the form of this person's own page
	// for this path, and for that version.
	form    url.Values
	version int

	console *Console
	session *idHash // nil if the person is known by a certificate
	key     []byte  // of the tokens in forms
}

// enter begins a visit. If nobody is logged in, it answers by itself, and returns nil.
func (c *Console) enter(w http.ResponseWriter, r *http.Request) *visit {
	v := c.recognize(w, r)
	if v == nil {
		c.nobody(w, r)
		return nil
	}
	if err := v.ask(); err != nil {
		v.fail(err)
		return nil
	}
	return v
}

// recognize finds the session of a request, or else its certificate; nil if there is neither. Whether the API takes
// them is not known then.
func (c *Console) recognize(w http.ResponseWriter, r *http.Request) *visit {
	v := &visit{w: w, api: c.inbox, console: c}
	if id, ok := hashOf(c.sent(r, sessionCookie)); ok {
		if found, ok := c.sessions.use(id); ok {
			v.r, v.session, v.key = r.WithContext(found.login.Context(r.Context())), &id, found.key
			return v
		}
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	sum := sha256.Sum256(r.TLS.PeerCertificates[0].Raw)
	mac := hmac.New(sha256.New, c.secret)
	mac.Write(sum[:])
	v.r, v.key = r.WithContext(context.WithValue(r.Context(), certificate{}, r.TLS)), mac.Sum(nil)
	return v
}

// ask asks the API who the person is, now.
func (v *visit) ask() (err error) {
	v.me, err = v.api.Me(v.r.Context())
	return err
}

// layout is what every page for the person has.
func (v *visit) layout(title page.Label) page.Layout {
	l := v.console.layout(title)
	if v.me.Caller == "" {
		return l // the API does not answer
	}
	if l.Who = page.Line(v.me.Principal); l.Who.Empty() {
		l.Who = page.Line(v.me.Caller)
	}
	l.AllTenants = slices.Contains(v.me.Tenants, "*")
	for _, tenant := range v.me.Tenants {
		l.Tenants = append(l.Tenants, page.Line(tenant))
	}
	if v.session != nil {
		l.LogOut = page.Token(v.token(http.MethodPost, logoutPath, "", 0))
	}
	return l
}

// link is the address of a path of the console, such as /approvals, for browsers.
func (v *visit) link(path string) string { return v.console.link(path) }

// show answers with a page. Nothing is sent of a page that cannot be written whole.
func (v *visit) show(status int, view page.View) { v.console.show(v.w, v.r, status, view) }

// redirect sends the browser to a path of the console, such as /approvals.
func (v *visit) redirect(path string) { v.console.redirect(v.w, path) }

// notFound answers that there is no such page, or none that the person may see.
func (v *visit) notFound() { v.problem(http.StatusNotFound) }

// problem answers with a page that says what is wrong, in words for its status.
func (v *visit) problem(status int) {
	v.show(status, v.console.message(v.layout(titleOf(status)), status))
}

// fail answers for an error of the API. What the API refuses with 409 is for the page that asked.
func (v *visit) fail(err error) {
	switch httpclient.StatusOf(err) {
	case http.StatusUnauthorized:
		v.lapsed()
	case http.StatusForbidden, http.StatusNotFound:
		v.notFound()
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		v.w.Header().Set("Retry-After", "2")
		v.problem(http.StatusServiceUnavailable)
	default:
		switch v.r.Context().Err() {
		case nil:
		case context.Canceled:
			return // nobody waits for the answer
		default:
			v.problem(http.StatusServiceUnavailable)
			return
		}
		v.console.options.Log.ErrorContext(v.r.Context(), "the API does not answer the console", "error", err)
		v.problem(http.StatusInternalServerError)
	}
}

// lapsed answers a person whom the API does not know any more. The session is over.
func (v *visit) lapsed() {
	if v.session != nil {
		v.console.sessions.drop(*v.session)
		http.SetCookie(v.w, v.console.cookie(sessionCookie, "", 0))
		v.console.options.Log.InfoContext(v.r.Context(), "a session of the console ended, because its credential no longer counts",
			"caller", v.me.Caller, "address", v.r.RemoteAddr)
	}
	v.console.nobody(v.w, v.r)
}

// carrier brings requests to the API. Of a person without a session it brings the certificate.
type carrier struct{ api http.RoundTripper }

type certificate struct{}

func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	if state, ok := r.Context().Value(certificate{}).(*tls.ConnectionState); ok {
		r = r.WithContext(r.Context())
		r.TLS = state
	}
	return c.api.RoundTrip(r)
}
