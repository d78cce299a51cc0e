package console

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"policy-service/pdp/internal/console/page"
	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/seal"
	"policy-service/pdp/internal/server/auth"
)

const (
	oidcPath     = loginPath + "/oidc"
	callbackPath = loginPath + "/callback"
	// loginFor is how long a login may take at the provider.
	loginFor = 10 * time.Minute
	// mostOfSecret bounds the file with the secret of the client.
	mostOfSecret = 4 << 10
)

// pending is a login that the provider has yet to answer, as it is sealed in a cookie of the browser. It is JSON, and
// replicas of two versions may open it, so that its form only grows.
type pending struct {
	State, Nonce, Verifier string
	Next                   string
	Issuer, Client         string
}

// toProvider sends the browser to the provider. Of logins in several tabs the last one counts.
func (v *visit) toProvider() {
	config := v.options.OIDC()
	if config == nil {
		v.problem(http.StatusNotFound)
		return
	}
	client, _, err := v.client(v.r.Context(), config)
	if err != nil {
		v.providerFailed(err)
		return
	}
	p := pending{
		State: oauth2.GenerateVerifier(), Nonce: oauth2.GenerateVerifier(), Verifier: oauth2.GenerateVerifier(),
		Next:   safeNext(v.r.URL.Query().Get(nextField)),
		Issuer: config.Issuer, Client: config.ClientID,
	}
	sealed, err := seal.SealJSON(v.seal, seal.Login, nil, p, v.options.Now().Add(loginFor))
	if err != nil { // the issuer's name is too long
		v.providerFailed(err)
		return
	}
	http.SetCookie(v.w, v.cookie(loginCookie, sealed, loginFor))
	v.w.Header().Set("Location", client.AuthCodeURL(p.State,
		oauth2.S256ChallengeOption(p.Verifier), oauth2.SetAuthURLParam("nonce", p.Nonce)))
	v.w.WriteHeader(http.StatusSeeOther)
}

// fromProvider takes the answer of the provider, which the browser brings.
func (v *visit) fromProvider() {
	p, until, sealed := seal.OpenJSON[pending](v.seal, seal.Login, nil, v.sent(loginCookie))
	http.SetCookie(v.w, v.cookie(loginCookie, "", 0))
	config := v.options.OIDC()
	if config == nil {
		v.problem(http.StatusNotFound)
		return
	}
	said, err := answerOf(v.r.URL.RawQuery)
	switch {
	case err != nil || !sealed || p.Issuer != config.Issuer || p.Client != config.ClientID,
		subtle.ConstantTimeCompare([]byte(said.state), []byte(p.State)) != 1,
		!v.answers.first(p.State, until): // a copy of the cookie is good for nothing here
		v.refused(byOIDC, "the answer is to no login that waits for one")
		v.again(http.StatusBadRequest, page.Of("This is not the answer to the login that you began last here. Begin again."))
		return
	case said.errorCode != "":
		v.refused(byOIDC, "the provider answers with an error")
		v.again(http.StatusForbidden, page.Of("The provider did not log you in. It says:"), page.Line(said.errorCode))
		return
	}
	client, about, err := v.client(v.r.Context(), config)
	if err != nil {
		v.providerFailed(err)
		return
	}
	// A provider that the console did not ask may have sent the browser here, with a code of its own.
	if said.issuer != nil && *said.issuer != config.Issuer || said.issuer == nil && about.namesItself {
		v.refused(byOIDC, "the answer is of another issuer")
		v.again(http.StatusBadRequest, page.Of("This is the answer of another provider than the one you were sent to. Begin again."))
		return
	}
	v.exchange(client, said.code, p)
}

// exchange asks the provider for the person, for a code.
func (v *visit) exchange(client *oauth2.Config, code string, p pending) {
	from := auth.AddressOf(v.r)
	if wait := v.exchanges.take(from); wait > 0 {
		v.tooMany(byOIDC, wait)
		v.again(http.StatusTooManyRequests, page.Of(tooManyTries))
		return
	}
	ctx := context.WithValue(v.r.Context(), oauth2.HTTPClient, v.provider.client)
	token, err := client.Exchange(ctx, code, oauth2.VerifierOption(p.Verifier))
	if err != nil {
		v.providerFailed(exchangeError(err))
		return
	}
	idToken, _ := token.Extra("id_token").(string)
	if idToken == "" {
		v.providerFailed(errors.New("the answer of the token endpoint has no id_token"))
		return
	}
	login, err := v.options.Logins().LogInByToken(v.r.Context(), idToken, p.Nonce)
	if err != nil {
		v.refused(byOIDC, err.Error())
		v.again(http.StatusForbidden, page.Of("What the provider says of you is not accepted here. The operator finds the cause in the log."))
		return
	}
	v.exchanges.succeeded(from)
	v.begin(login, byOIDC, p.Next)
}

// answers are the logins that the provider has answered at this process. Each is answered once: later, a copy of the browser's cookie
// would do as well as the cookie. At another replica, or after a restart with replicas, the provider alone refuses the code.
type answers struct {
	now  func() time.Time
	most int

	mu           sync.Mutex // guards the rest
	newer, older map[string]struct{}
	turned       time.Time // since when newer is filled
	forgotten    time.Time // answers of before may be forgotten, so logins that ended by then count as answered
}

// mostAnswers is how many answers are known at least. They are forgotten when the logins are over anyhow, but in a flood.
const mostAnswers = 20_000

func newAnswers(now func() time.Time, most int) *answers { return &answers{now: now, most: most} }

// first takes the answer to a login that may be answered until a time. It reports false if it may be the second one.
func (a *answers) first(state string, until time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.now(); a.newer == nil || len(a.newer) >= a.most || now.Sub(a.turned) > loginFor {
		a.older, a.newer = a.newer, map[string]struct{}{}
		a.forgotten, a.turned = a.turned, now
	}
	_, newer := a.newer[state]
	_, older := a.older[state]
	if began := until.Add(-loginFor); newer || older || !began.After(a.forgotten) {
		return false
	}
	a.newer[state] = struct{}{}
	return true
}

// providerAnswer is the answer of the provider, which the browser brings.
type providerAnswer struct {
	state, code, errorCode string
	issuer                 *string
}

// answerOf reads it. A parameter that is there twice may mean one thing to us and another to a program before us.
func answerOf(query string) (a providerAnswer, err error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return a, err
	}
	for _, name := range []string{"state", "code", "error", "iss"} {
		if len(values[name]) > 1 {
			return a, fmt.Errorf("%s is there twice", name)
		}
	}
	a = providerAnswer{state: values.Get("state"), code: values.Get("code"), errorCode: values.Get("error")}
	if values.Has("iss") {
		issuer := values.Get("iss")
		a.issuer = &issuer
	}
	if a.state == "" || a.code == "" && a.errorCode == "" {
		return a, errors.New("there is no state, or neither a code nor an error")
	}
	return a, nil
}

// client is the console as a client of the provider, with the provider's metadata. The file of the secret is read each
// time, so that another secret counts at once.
func (c *Console) client(ctx context.Context, config *auth.OIDC) (*oauth2.Config, metadata, error) {
	about, err := c.provider.about(ctx, config.Issuer)
	if err != nil {
		return nil, about, err
	}
	client := &oauth2.Config{
		ClientID:    config.ClientID,
		Endpoint:    about.endpoint,
		RedirectURL: strings.TrimSuffix(c.options.PublicURL, "/") + callbackPath,
		Scopes:      about.scopes,
	}
	if config.ClientSecretFile == "" {
		client.Endpoint.AuthStyle = oauth2.AuthStyleInParams
		return client, about, nil
	}
	secret, err := plainfile.Read(config.ClientSecretFile, mostOfSecret)
	if err != nil {
		return nil, about, fmt.Errorf("client_secret_file: %w", err)
	}
	client.ClientSecret = strings.TrimRight(string(secret), "\r\n")
	return client, about, nil
}

// exchangeError is the reason for a missing token, without anything that was sent or answered.
func exchangeError(err error) error {
	if refused := (*oauth2.RetrieveError)(nil); errors.As(err, &refused) {
		return fmt.Errorf("the token endpoint answers %d %s", refused.Response.StatusCode, plainCode(refused.ErrorCode))
	}
	if dialled := (*net.OpError)(nil); errors.As(err, &dialled) {
		return fmt.Errorf("the token endpoint cannot be reached: %w", dialled)
	}
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return errors.New("the token endpoint does not answer in time")
	}
	return errors.New("the answer of the token endpoint cannot be read")
}

// plainCode is an error code of OAuth, if it looks like one.
func plainCode(code string) string {
	if len(code) > 64 || strings.ContainsFunc(code, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
		return ""
	}
	return code
}

// providerFailed answers for a provider that does not do its part.
func (v *visit) providerFailed(err error) {
	if v.refusals.take(auth.AddressOf(v.r)) == 0 { // any browser can ask for it
		v.options.Log.WarnContext(v.r.Context(), "nobody can log in to the console at the provider", "address", host(v.r), "error", err.Error())
	}
	v.again(http.StatusBadGateway, page.Of("The provider cannot log you in at the moment. Try again in a minute; the operator finds the cause in the log."))
}

// again answers that a login came to nothing, and leads to another try.
func (v *visit) again(status int, says ...page.Text) {
	v.show(status, page.Message{
		Layout: v.layout("Not logged in"), Heading: "Not logged in", Says: says,
		Link: page.Href(v.link(loginPath)), LinkText: "Log in",
	})
}
