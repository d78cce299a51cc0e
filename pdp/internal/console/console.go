// Package console serves the pages where people approve, and where they take capabilities back. Start with [New], which
// makes the handler of all paths below /console/.
//
// A page is made of what the HTTP API answers: every datum comes by a request to /v1, as the person who looks at the
// page, and what a person may do is what the API lets that person do. The package reads no store, and decides nothing.
//
// A person logs in with an API key or at an OpenID provider, and is known by a cookie then. The cookie opens pages of the
// console, and nothing else.
package console

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/console/page"
	"policy-service/pdp/internal/decisionlog/remote"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/seal"
	"policy-service/pdp/internal/server/auth"
)

// Options are the address of a console, its logins, and their lengths. All must be there, unless they say otherwise.
type Options struct {
	// Logins checks credentials by the configuration in force.
	Logins func() Logins
	// OIDC is the provider where people log in, by the configuration in force; nil is none.
	OIDC func() *auth.OIDC
	// PublicURL is the address of the console for browsers. Its path begins every link. A proxy may take away what
	// stands before /console.
	PublicURL string
	// Server is the address of the API, as commands on these pages have it; "" if it is not known.
	Server string
	// Secure says that browsers come by https only. Otherwise the console answers at loopback alone.
	Secure bool
	// MaxSession is how long a session may last, and IdleSession how long an unused one may last.
	MaxSession, IdleSession time.Duration
	// Sessions are those of all replicas; nil are those of this process alone.
	Sessions Sessions
	// Key seals logins that wait for the provider, at all replicas alike; nil is a key of this process.
	Key []byte
	// Now is the clock, and Log takes the logins and logouts.
	Now func() time.Time
	Log *slog.Logger
}

// Console is the pages.
type Console struct {
	options Options
	base    string // the path of PublicURL, without a slash at its end
	api     *inbox.Inbox
	server  *httpclient.Server // the same API, for all that is not about approvals
	records *remote.Log        // the decision log, by the same API
	mux     *http.ServeMux
	streams streams
	// tries are those with a wrong key, exchanges those of a code that come to nothing.
	tries, exchanges *tries
	refusals         *tries // that are logged
	answers          *answers
	provider         *provider
	seal             *seal.Ring

	stopping context.Context // ends with Stop
	stop     context.CancelFunc
}

// Stop ends the streams.
func (c *Console) Stop() { c.stop() }

// nowhere is the address of the API, for the requests of the console alone. No name leads there, so that a transport
// that opens connections fails.
const nowhere = "https://console.invalid"

// New makes a console that asks the API by a transport, such as that of a server in the same process.
func New(api http.RoundTripper, o Options) (*Console, error) {
	public, err := url.Parse(o.PublicURL)
	if err != nil {
		return nil, err
	}
	c := &Console{
		options:   o,
		base:      strings.TrimSuffix(public.Path, "/"),
		mux:       http.NewServeMux(),
		streams:   streams{of: map[SessionID]*context.CancelCauseFunc{}},
		tries:     newTries(o.Now, mostTries),
		exchanges: newTries(o.Now, mostTries),
		refusals:  newTries(o.Now, mostRefusals),
		answers:   newAnswers(o.Now, mostAnswers),
		provider:  newProvider(o.Now),
	}
	// Without a key of all replicas, a restart ends the logins that wait for a provider.
	if sealing := (seal.Options{Resource: o.PublicURL, Now: o.Now}); o.Key == nil {
		c.seal = seal.Fresh(sealing)
	} else if c.seal, err = seal.With(o.Key, sealing); err != nil {
		return nil, err
	}
	if c.options.Sessions == nil {
		c.options.Sessions = newMemory(o.IdleSession, o.Now)
	}
	c.stopping, c.stop = context.WithCancel(context.Background())
	if c.api, err = inbox.New(nowhere, httpclient.Options{Transport: api}); err != nil {
		return nil, err
	}
	if c.server, err = httpclient.New(nowhere, httpclient.Options{Transport: api}); err != nil {
		return nil, err
	}
	c.records = remote.Over(c.server)
	c.routes()
	return c, nil
}

// root begins the paths that the handler is asked for. The files that pages load hold nothing of a person.
const (
	root       = "/console"
	stylePath  = "/style.css"
	scriptPath = "/console.js"
	iconPath   = "/icon.svg"
)

// files are the paths that pages load. All else is a page.
var files = []string{root + stylePath, root + scriptPath, root + iconPath}

func (c *Console) routes() {
	toInbox := func(v *visit) { v.redirect(approvalsPath) }
	c.read("", toInbox)
	c.read("/{$}", toInbox)
	c.page(approvalsPath, (*visit).inbox)
	c.page(approvalsPath+"/{id}", (*visit).request)
	c.take(streamPath, methods{http.MethodGet: (*visit).stream})
	c.form(approvalsPath+"/{id}/decision", (*visit).decide)
	c.form(approvalsPath+"/{id}/revoke", (*visit).revoke)
	c.page(capabilitiesPath, (*visit).capabilities)
	c.page(capabilitiesPath+"/{id}", (*visit).capability)
	c.form(capabilitiesPath+"/{id}/revoke", (*visit).revokeCapability)
	c.page(decisionsPath, (*visit).decisions)
	c.page(decisionsPath+"/{id}", (*visit).decision)
	c.form(logoutPath, (*visit).logOut)
	c.take(loginPath, methods{http.MethodGet: (*visit).loginPage, http.MethodHead: (*visit).loginPage, http.MethodPost: (*visit).logInByKey})
	// Both change the browser's cookies, so a HEAD is no harmless GET.
	c.take(oidcPath, methods{http.MethodGet: (*visit).toProvider})
	c.take(callbackPath, methods{http.MethodGet: (*visit).fromProvider})
	c.read(stylePath, file("text/css", page.Style))
	c.read(scriptPath, file("text/javascript", page.Script))
	c.read(iconPath, file("image/svg+xml", page.Icon))
	c.mux.HandleFunc("/", c.visiting(func(v *visit) { v.problem(http.StatusNotFound) }))
}

// ServeHTTP answers a browser.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	v := &visit{Console: c, w: w, r: r}
	switch at := r.URL.Path; {
	case !c.options.Secure && !atLoopback(r.Host): // a page elsewhere can have its own name lead here
		v.problem(http.StatusMisdirectedRequest)
	// The mux would send a browser that asks for another path than the clean one to an address of its own making.
	case r.URL.RawPath != "" || path.Clean(at) != at && at != root+"/":
		v.problem(http.StatusNotFound)
	case at == root+streamPath && !fetches(r),
		at != root+streamPath && !navigates(r) && !slices.Contains(files, at):
		v.problem(http.StatusForbidden)
	default:
		c.mux.ServeHTTP(w, r)
	}
}

// atLoopback reports if a Host is this machine.
func atLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	return auth.IsLoopbackName(host)
}

// page serves a path to GET and HEAD for a person who is logged in.
func (c *Console) page(path string, serve func(*visit)) {
	c.read(path, func(v *visit) {
		if v.enter() {
			serve(v)
		}
	})
}

// read serves a path to GET and HEAD.
func (c *Console) read(path string, serve func(*visit)) {
	c.take(path, methods{http.MethodGet: serve, http.MethodHead: serve})
}

// form serves a path to POST for a person who is logged in, once it is certain that the form is one of that person's
// own pages.
func (c *Console) form(path string, serve func(*visit)) {
	c.take(path, methods{http.MethodPost: func(v *visit) {
		if !sameOrigin(v.r) {
			v.problem(http.StatusForbidden)
		} else if v.enter() && v.readForm() {
			serve(v)
		}
	}})
}

// methods serve a path, by method. There is no other.
type methods map[string]func(*visit)

func (c *Console) take(path string, by methods) {
	allow := strings.Join(slices.Sorted(maps.Keys(by)), ", ")
	c.mux.HandleFunc(root+path, c.visiting(func(v *visit) {
		serve, there := by[v.r.Method]
		if !there {
			v.w.Header().Set("Allow", allow)
			v.problem(http.StatusMethodNotAllowed)
			return
		}
		serve(v)
	}))
}

// below is the path of a request below /console.
func below(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, root) }

// link is the address of a path of the console for browsers.
func (c *Console) link(path string) string { return c.base + path }
