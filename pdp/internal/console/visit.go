package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/console/page"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/server/auth"
)

// visit is one request. The context of its request says to the API which person sends it.
type visit struct {
	*Console
	w  http.ResponseWriter
	r  *http.Request
	me inbox.Me // empty until the API has named the person
	// form and version are those of a request that sends a form. It is the form of this person's own page for this path, and
	// for that version.
	form    url.Values
	version int

	name string // of the person, as the provider has it
	// waiting is how many wait for the person; nil until the API was asked.
	waiting *inbox.Count

	session SessionID
	key     []byte // of the tokens in forms; nil without a session
}

// visiting handles requests as visits.
func (c *Console) visiting(serve func(*visit)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { serve(&visit{Console: c, w: w, r: r}) }
}

// enter finds the person who is logged in. If there is none, it answers, and reports false.
func (v *visit) enter() bool {
	on, err := v.recognize()
	if err != nil {
		v.unknown(err)
		return false
	}
	if !on {
		v.toLogin()
		return false
	}
	if err := v.ask(); err != nil {
		v.fail(err)
		return false
	}
	return true
}

// recognize finds the session of the request. It does not know whether the API still takes the credential.
func (v *visit) recognize() (bool, error) {
	t, ok := v.ticket()
	if !ok {
		return false, nil
	}
	found, ok, err := v.options.Sessions.Find(v.r.Context(), t.id(), !byItself(v.r))
	if ok {
		v.r = v.r.WithContext(found.Login.Context(v.r.Context()))
		v.name, v.session, v.key = found.Login.Name(), t.id(), t.formKey()
	}
	return ok, err
}

// unknown answers while sessions cannot be read or written. The browser keeps its cookie.
func (v *visit) unknown(err error) {
	if v.refusals.take(auth.AddressOf(v.r)) == 0 {
		v.options.Log.WarnContext(v.r.Context(), "the sessions of the console cannot be used", "error", err)
	}
	v.w.Header().Set("Retry-After", "2")
	v.problem(http.StatusServiceUnavailable)
}

// drop ends a session, with its stream at this process.
func (v *visit) drop(id SessionID) error {
	v.streams.end(id, errOver)
	return v.options.Sessions.Drop(v.r.Context(), id)
}

// byItself reports if a script of ours has the browser load a page anew, as far as the browser says, and no person does.
func byItself(r *http.Request) bool {
	return sameOrigin(r) && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-User") == ""
}

// ask asks the API for the person, as of now.
func (v *visit) ask() (err error) {
	v.me, err = v.api.Me(v.r.Context())
	return err
}

// waits is how many wait for the person. A page asks for it once.
func (v *visit) waits() inbox.Count {
	if v.waiting == nil {
		got, _, _ := v.api.Count(v.r.Context(), mine, onPage, "", 0) // without an answer the page has no number
		v.waiting = &got
	}
	return *v.waiting
}

func countOf(c inbox.Count) page.Count { return page.Count{N: c.N, More: c.More} }

// layout is the part that every page has, with the person if the API has named one.
func (v *visit) layout(title page.Label) page.Layout {
	now := v.options.Now()
	l := page.Layout{Title: title, Home: page.Href(v.link("")), Now: page.MomentOf(now, now)}
	if v.me.Caller == "" {
		return l
	}
	l.Section = sectionOf(below(v.r))
	l.Who = page.Line(cmp.Or(v.me.Principal, v.me.Caller))
	l.Name = page.Line(cmp.Or(v.name, idOf(v.me.Principal)))
	l.Records = len(v.me.Where(logRead)) > 0
	if len(v.me.Where(approver)) > 0 {
		waits := v.waits()
		l.Stream, l.Waiting, l.Tag = page.Href(v.link(streamPath)), countOf(waits), tagOf(waits.Tag)
	}
	l.AllTenants = slices.Contains(v.me.Tenants, "*")
	for _, tenant := range v.me.Tenants {
		l.Tenants = append(l.Tenants, page.Line(tenant))
	}
	l.Inbox = len(v.me.Where(approver)) > 0
	l.Capabilities = len(v.me.Where(capabilityAdmin)) > 0
	l.LogOut = page.Token(v.token(http.MethodPost, logoutPath, "", 0, ""))
	return l
}

// sections are the parts of the console, by the path that each begins with.
var sections = []page.Label{"approvals", "decisions", "capabilities"}

func sectionOf(path string) page.Label {
	for _, s := range sections {
		if rest, in := strings.CutPrefix(path, "/"+string(s)); in && (rest == "" || rest[0] == '/') {
			return s
		}
	}
	return ""
}

// idOf is the id in the name of an entity as policies have it, "" if it is not plain.
func idOf(entity string) string {
	_, quoted, _ := strings.Cut(entity, `::"`)
	id, whole := strings.CutSuffix(quoted, `"`)
	if !whole || strings.ContainsAny(id, `"\`) {
		return ""
	}
	return id
}

// logRead is the permission to read records.
const logRead = string(auth.LogRead)

// fail answers for an error of the API. What the API refuses with 409 is for the page that asked.
func (v *visit) fail(err error) {
	switch httpclient.StatusOf(err) {
	case http.StatusUnauthorized:
		v.lapsed()
	case http.StatusForbidden, http.StatusNotFound:
		v.problem(http.StatusNotFound)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		v.w.Header().Set("Retry-After", "2")
		v.problem(http.StatusServiceUnavailable)
	default:
		switch v.r.Context().Err() {
		case nil:
		case context.Canceled:
			return // no browser waits for the answer
		default:
			v.problem(http.StatusServiceUnavailable)
			return
		}
		v.options.Log.ErrorContext(v.r.Context(), "the API does not answer the console", "error", err)
		v.problem(http.StatusInternalServerError)
	}
}

// lapsed answers a person whose credential the API does not take any more. The session is over.
func (v *visit) lapsed() {
	if v.key != nil {
		_ = v.drop(v.session) // the API takes its credential no more
		http.SetCookie(v.w, v.cookie(sessionCookie, "", 0))
		v.options.Log.InfoContext(v.r.Context(), "a session of the console ended, because its credential no longer counts",
			"caller", v.me.Caller, "address", v.r.RemoteAddr)
	}
	v.me = inbox.Me{}
	v.toLogin()
}
