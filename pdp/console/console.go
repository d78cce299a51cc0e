// Package console serves the pages where people approve. Start with [New], which makes the handler of all paths below
// /console/.
//
// A page is made of what the HTTP API answers: every datum comes by a request to /v1, as the person who looks at the
// page, and what a person may do is what the API lets that person do. The package reads no store, and decides nothing.
//
// A person logs in with an API key or at an OpenID provider, and is known by a cookie then. Whoever has a client
// certificate that the API knows needs no login. The cookie opens pages of the console, and nothing else.
package console

import (
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"policy-service/pdp/approval/inbox"
	"policy-service/pdp/httpclient"
)

// Options are how a console is reached, and for how long people stay logged in.
type Options struct {
	// PublicURL is the address of the console for browsers. Its path begins every link. A proxy may take away what
	// stands before /console.
	PublicURL string
	// Secure says that browsers come by https only.
	Secure bool
	// MaxSession is how long a session may last, and IdleSession how long one may last that nobody uses.
	MaxSession, IdleSession time.Duration
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Log takes who logs in and out; nil discards it.
	Log *slog.Logger
}

// Console is the pages.
type Console struct {
	options Options
	public  *url.URL
	inbox   *inbox.Inbox
	api     *httpclient.Server
	mux     *http.ServeMux
}

// nowhere is the address of the API, for the requests of the console alone. No name leads there, so that a transport
// that opens connections fails.
const nowhere = "https://console.invalid"

// New makes a console that asks the API by a transport, such as that of a server in the same process.
func New(api http.RoundTripper, o Options) (*Console, error) {
	public, err := url.Parse(o.PublicURL)
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Console{options: o, public: public, mux: http.NewServeMux()}
	to := httpclient.Options{Transport: carrier{api}}
	if c.inbox, err = inbox.New(nowhere, to); err != nil {
		return nil, err
	}
	if c.api, err = httpclient.New(nowhere, to); err != nil {
		return nil, err
	}
	c.routes()
	return c, nil
}

// root begins the paths that the handler is asked for.
const root = "/console"

func (c *Console) routes() {
	c.page("/approvals", (*visit).inbox)
	c.page("/approvals/{id}", (*visit).request)
	c.form("/approvals/{id}/decision", (*visit).decide)
	c.form("/approvals/{id}/revoke", (*visit).revoke)
	c.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { c.problem(w, r, http.StatusNotFound) })
}

// ServeHTTP answers a browser.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	below, ok := strings.CutPrefix(r.URL.Path, root)
	if ok && (below == "" || below == "/") {
		c.redirect(w, "/approvals")
		return
	}
	// The mux would send whoever asks for another path than the clean one to an address of its own making.
	if !ok || r.URL.RawPath != "" || path.Clean(below) != below {
		c.problem(w, r, http.StatusNotFound)
		return
	}
	c.mux.ServeHTTP(w, r)
}

// page serves a path to GET and HEAD for a person who is logged in.
func (c *Console) page(path string, serve func(*visit)) {
	c.only(path, http.MethodGet, func(w http.ResponseWriter, r *http.Request) {
		if v := c.enter(w, r); v != nil {
			serve(v)
		}
	})
}

// form serves a path to POST for a person who is logged in, once it is certain that the form is one of that person's
// own pages.
func (c *Console) form(path string, serve func(*visit)) {
	c.only(path, http.MethodPost, func(w http.ResponseWriter, r *http.Request) {
		if !sameOrigin(r) {
			c.problem(w, r, http.StatusForbidden)
		} else if v := c.enter(w, r); v != nil && v.readForm() {
			serve(v)
		}
	})
}

// only serves a path to one method. GET comes with HEAD.
func (c *Console) only(path, method string, serve http.HandlerFunc) {
	allow := method
	if method == http.MethodGet {
		allow += ", " + http.MethodHead
	}
	c.mux.HandleFunc(method+" "+root+path, serve)
	c.mux.HandleFunc(root+path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allow)
		c.problem(w, r, http.StatusMethodNotAllowed)
	})
}

// link is the address of a path of the console for browsers.
func (c *Console) link(path string) string { return strings.TrimSuffix(c.public.Path, "/") + path }

func (c *Console) redirect(w http.ResponseWriter, path string) {
	w.Header().Set("Location", c.link(path))
	w.WriteHeader(http.StatusSeeOther)
}
