package console

import (
	"context"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"policy-service/pdp/console/page"
	"policy-service/pdp/server/auth"
)

// Logins says who logs in. Every error is an [*auth.Refusal].
type Logins interface {
	LogInByKey(secret string) (auth.Login, error)
	LogInByToken(ctx context.Context, idToken, nonce string) (auth.Login, error)
}

const (
	loginPath  = "/login"
	logoutPath = "/logout"
	// What the form of the login sends.
	keyField  = "key"
	nextField = "next"
)

// loginPage shows how to log in. Whoever has logged in already goes on. A certificate is no login: whoever has one may want
// to be somebody else, because no certificate lets its holder approve.
func (c *Console) loginPage(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	next := safeNext(query.Get(nextField))
	if v := c.recognize(w, r); v != nil && v.session != nil && v.ask() == nil {
		v.redirect(next)
		return
	}
	c.showLogin(w, r, http.StatusOK, next, "")
}

func (c *Console) showLogin(w http.ResponseWriter, r *http.Request, status int, next string, problem page.Label) {
	view := page.Login{Layout: c.layout("Log in"), Key: true, Next: page.Typed(next), Problem: problem}
	if config := c.options.OIDC(); config != nil {
		if issuer, err := url.Parse(config.Issuer); err == nil {
			view.Provider = page.Line(issuer.Host)
		}
		view.OIDC = page.Href(c.link(oidcPath) + "?" + url.Values{nextField: {next}}.Encode())
	}
	c.show(w, r, status, view)
}

// logInByKey takes the form with an API key.
func (c *Console) logInByKey(w http.ResponseWriter, r *http.Request) {
	if !sameOrigin(r) {
		c.problem(w, r, http.StatusForbidden)
		return
	}
	form, status := readForm(w, r)
	if status != http.StatusOK {
		c.problem(w, r, status)
		return
	}
	next := safeNext(form.Get(nextField))
	login, err := c.options.Logins().LogInByKey(strings.TrimSpace(form.Get(keyField)))
	if err == nil { // a stranger's tries at the same address delay no right key
		c.begin(w, r, login, byKey, next)
		return
	}
	if wait := c.tries.take(auth.AddressOf(r)); wait > 0 {
		c.tooMany(w, r, byKey, wait)
		c.showLogin(w, r, http.StatusTooManyRequests, next, tooManyTries)
		return
	}
	c.refused(r, byKey, err.Error())
	c.showLogin(w, r, http.StatusUnauthorized, next, "The API key is not valid here. Ask the operator for one.")
}

const tooManyTries = "There were too many attempts from your address. Wait a minute."

// tooMany says that an address has no try left, before the page is shown.
func (c *Console) tooMany(w http.ResponseWriter, r *http.Request, by string, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	c.refused(r, by, "too many tries from its address")
}

// How people log in, as the log has it.
const (
	byKey  = "key"
	byOIDC = "oidc"
)

// refused logs an attempt to log in. Why is a text of ours, and holds nothing that was sent. Whoever is refused again and
// again does not fill the log.
func (c *Console) refused(r *http.Request, by, why string) {
	if c.refusals.take(auth.AddressOf(r)) > 0 {
		return
	}
	c.options.Log.InfoContext(r.Context(), "a login to the console was refused", "by", by, "address", host(r), "why", why)
}

// begin begins the session of somebody who has logged in, and ends the one of before. It has another id, so whoever
// gave the browser the id of before has nothing of it.
func (c *Console) begin(w http.ResponseWriter, r *http.Request, login auth.Login, by, next string) {
	who, err := c.inbox.Me(login.Context(r.Context()))
	if err != nil {
		c.refused(r, by, err.Error())
		v := visit{w: w, r: r, console: c}
		v.fail(err)
		return
	}
	if before, ok := hashOf(c.sent(r, sessionCookie)); ok {
		c.sessions.drop(before)
	}
	http.SetCookie(w, c.cookie(sessionCookie, c.sessions.begin(login, who.Caller), c.options.MaxSession))
	c.options.Log.InfoContext(r.Context(), "somebody logged in to the console", "caller", who.Caller, "by", by, "address", host(r))
	c.redirect(w, next)
}

// logOut ends the session.
func (v *visit) logOut() {
	if v.session != nil {
		v.console.sessions.drop(*v.session)
		http.SetCookie(v.w, v.console.cookie(sessionCookie, "", 0))
		v.console.options.Log.InfoContext(v.r.Context(), "somebody logged out of the console", "caller", v.me.Caller, "address", host(v.r))
	}
	v.redirect(loginPath)
}

// host is where a request comes from, without the port, for the log.
func host(r *http.Request) string {
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return at.Addr().Unmap().String()
	}
	return ""
}

// mostOfNext bounds the path to go to after the login. It is in a cookie.
const mostOfNext = 1 << 10

// nextOf is the path below /console, with a query, to which a login may lead; "" if it may not lead there.
func nextOf(below, query string) string {
	next := (&url.URL{Path: below, RawQuery: query}).String()
	if safeNext(next) != next {
		return ""
	}
	return next
}

// safeNext is a path to go to after the login if it is a page of ours about approvals, and otherwise the inbox. Whoever
// makes a link to the login writes it.
func safeNext(next string) string {
	if len(next) > mostOfNext || strings.ContainsFunc(next, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' || r == '#' }) {
		return approvalsPath
	}
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || strings.Contains(u.EscapedPath(), "%") || path.Clean(u.Path) != u.Path ||
		u.Path != approvalsPath && !strings.HasPrefix(u.Path, approvalsPath+"/") {
		return approvalsPath
	}
	return next
}
