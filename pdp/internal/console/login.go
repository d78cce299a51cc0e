package console

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"policy-service/pdp/internal/console/page"
	"policy-service/pdp/internal/server/auth"
)

// Logins check credentials. Every error is an [*auth.Refusal].
type Logins interface {
	LogInByKey(secret string) (auth.Login, error)
	LogInByToken(ctx context.Context, idToken, nonce string) (auth.Login, error)
}

const (
	loginPath  = "/login"
	logoutPath = "/logout"
	// The fields of the form of the login.
	keyField  = "key"
	nextField = "next"
)

// loginPage shows how to log in. A browser with a session goes on.
func (v *visit) loginPage() {
	next := safeNext(v.r.URL.Query().Get(nextField))
	if on, _ := v.recognize(); on && v.ask() == nil {
		v.redirect(next)
		return
	}
	v.showLogin(http.StatusOK, next, "")
}

func (v *visit) showLogin(status int, next string, problem page.Label) {
	view := page.Login{Layout: v.layout("Log in"), Next: page.Typed(next), Problem: problem}
	if config := v.options.OIDC(); config != nil {
		if issuer, err := url.Parse(config.Issuer); err == nil {
			view.Provider = page.Line(issuer.Host)
		}
		view.OIDC = page.Href(v.link(oidcPath) + "?" + url.Values{nextField: {next}}.Encode())
	}
	v.show(status, view)
}

// logInByKey takes the form with an API key.
func (v *visit) logInByKey() {
	if !sameOrigin(v.r) {
		v.problem(http.StatusForbidden)
		return
	}
	form, status := readForm(v.w, v.r)
	if status != http.StatusOK {
		v.problem(status)
		return
	}
	next := safeNext(form.Get(nextField))
	login, err := v.options.Logins().LogInByKey(strings.TrimSpace(form.Get(keyField)))
	if err == nil { // a stranger's tries at the same address delay no right key
		v.begin(login, byKey, next)
		return
	}
	if errors.Is(err, auth.ErrUnavailable) {
		v.w.Header().Set("Retry-After", "1")
		v.showLogin(http.StatusServiceUnavailable, next, "API keys cannot be checked at the moment. Try again in a moment.")
		return
	}
	if wait := v.tries.take(auth.AddressOf(v.r)); wait > 0 {
		v.tooMany(byKey, wait)
		v.showLogin(http.StatusTooManyRequests, next, tooManyTries)
		return
	}
	v.refused(byKey, err.Error())
	v.showLogin(http.StatusUnauthorized, next, "The API key is not valid here. Ask the operator for one.")
}

const tooManyTries = "There were too many attempts from your address. Wait a minute."

// tooMany refuses an address that has no try left, before the page is shown.
func (v *visit) tooMany(by string, wait time.Duration) {
	v.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	v.refused(by, "too many tries from its address")
}

// How people log in, as the log has it.
const (
	byKey  = "key"
	byOIDC = "oidc"
)

// refused logs an attempt to log in. Why is a text of ours, and holds nothing that was sent. Many refusals of one address
// do not fill the log.
func (v *visit) refused(by, why string) {
	if v.refusals.take(auth.AddressOf(v.r)) > 0 {
		return
	}
	v.options.Log.InfoContext(v.r.Context(), "a login to the console was refused", "by", by, "address", host(v.r), "why", why)
}

// begin begins the session of a login, and ends the one of before. It has another id, so that a person who gave the
// browser the id of before gains nothing by it.
func (v *visit) begin(login auth.Login, by, next string) {
	person, err := v.api.Me(login.Context(v.r.Context()))
	if err != nil {
		v.refused(by, err.Error())
		v.fail(err)
		return
	}
	now, t := v.options.Now(), newTicket()
	session := Session{Login: login, Caller: person.Caller, Used: now, End: now.Add(v.options.MaxSession)}
	if ends := login.Ends(); !ends.IsZero() && ends.Before(session.End) {
		session.End = ends
	}
	if before, ok := v.ticket(); ok {
		err = v.drop(before.id())
	}
	if err == nil {
		err = v.options.Sessions.Begin(v.r.Context(), t.id(), session)
	}
	if err != nil {
		v.unknown(err)
		return
	}
	http.SetCookie(v.w, v.cookie(sessionCookie, t.cookie(), v.options.MaxSession))
	v.options.Log.InfoContext(v.r.Context(), "somebody logged in to the console", "caller", person.Caller, "by", by, "address", host(v.r))
	v.redirect(next)
}

// logOut ends the session. If it cannot be ended, the browser keeps the cookie, so that the person can try again.
func (v *visit) logOut() {
	if err := v.drop(v.session); err != nil {
		v.unknown(err)
		return
	}
	http.SetCookie(v.w, v.cookie(sessionCookie, "", 0))
	v.options.Log.InfoContext(v.r.Context(), "somebody logged out of the console", "caller", v.me.Caller, "address", host(v.r))
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

// safeNext is a path to go to after the login if it is a page of ours about approvals, capabilities or records, and
// otherwise the inbox. It comes from links to the login, which any site can make.
func safeNext(next string) string {
	if len(next) > mostOfNext || strings.ContainsFunc(next, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' || r == '#' }) {
		return approvalsPath
	}
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || strings.Contains(u.EscapedPath(), "%") || path.Clean(u.Path) != u.Path ||
		!isBelow(u.Path, approvalsPath) && !isBelow(u.Path, capabilitiesPath) && !isBelow(u.Path, decisionsPath) {
		return approvalsPath
	}
	return next
}

func isBelow(at, path string) bool { return at == path || strings.HasPrefix(at, path+"/") }
