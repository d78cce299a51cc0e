package upstream

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/singleflight"

	"policy-service/pdp/mcp/internal/leak"
	"policy-service/pdp/plainfile"
)

// HeaderFile is a credential in a file: one line with the value of a header. The file is read for each request, so a change
// counts at once.
type HeaderFile struct {
	Path string
	// Header is the header's name; "" is Authorization.
	Header string
}

// NewHeaderFile makes credentials of a file. The header is one [ForCredentials].
func NewHeaderFile(f HeaderFile) Credentials {
	f.Header = cmp.Or(f.Header, "Authorization")
	return &f
}

// ForCredentials reports whether a header can hold a credential: it has no meaning of its own for HTTP, for MCP, or for
// proxies.
func ForCredentials(name string) bool {
	lower := strings.ToLower(name)
	for _, prefix := range []string{"mcp-", "content-", "accept", "sec-", "x-forwarded-", "proxy-", "transfer-", "if-"} {
		if strings.HasPrefix(lower, prefix) {
			return false
		}
	}
	switch lower {
	case "host", "connection", "keep-alive", "te", "trailer", "upgrade", "expect", "forwarded", "via", "date", "range",
		"origin", "referer", "user-agent", "cookie", "last-event-id", "traceparent", "tracestate", "baggage":
		return false
	}
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' && r != '_'
	})
}

// mostHeader bounds the value of a header.
const mostHeader = 16 << 10

// Authorize sets the header to the line of the file.
func (f *HeaderFile) Authorize(_ context.Context, h http.Header, _, _ string, _ time.Time) error {
	line, err := readLine(f.Path)
	if err != nil {
		return fmt.Errorf("the credential for the upstream cannot be read: %w", err)
	}
	h.Set(f.Header, line)
	return nil
}

// learn masks the credential in h in all messages of the server: the part behind the scheme, or all of it.
func (u *httpUpstream) learn(h http.Header) {
	for _, values := range h {
		_, credential, _ := strings.Cut(values[0], " ")
		if len(credential) < leak.Least {
			credential = values[0]
		}
		u.masks.Learn(credential)
	}
	if _, password, ok := (&http.Request{Header: h}).BasicAuth(); ok {
		u.masks.Learn(password)
	}
}

// CheckSecret returns the error of a file that is to hold one secret and nothing else.
func CheckSecret(path string) error {
	_, err := readLine(path)
	return err
}

// readLine reads a file that holds one secret and nothing else.
func readLine(path string) (string, error) {
	content, err := plainfile.ReadPrivate(path, mostHeader)
	if err != nil {
		return "", err
	}
	line := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if strings.TrimSpace(line) != line || !isHeaderValue(line) {
		return "", fmt.Errorf("%s is not one line of plain characters; write the value, and nothing else", path)
	}
	return line, nil
}

// isHeaderValue reports whether a text is not empty and has only characters that every server reads alike.
func isHeaderValue(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// NewTokenExchange makes credentials for each principal: the authorization server gives a token for the upstream in exchange
// for the principal's own (RFC 8693), which goes nowhere else. It sends nothing before the first request needs a token.
func NewTokenExchange(o TokenEndpoint) (Credentials, error) {
	if o.Audience == "" && o.Resource == "" {
		return nil, errors.New("a token exchange needs the audience or the resource that the token is for")
	}
	t, err := newTokens(grantExchange, o)
	if err != nil {
		return nil, err
	}
	t.form.Set("subject_token_type", typeAccess)
	t.form.Set("requested_token_type", typeAccess)
	return &exchange{t}, nil
}

// NewClientCredentials makes credentials of the gateway's own, the same for all principals (RFC 6749, 4.4). It sends nothing
// before the first request needs a token.
func NewClientCredentials(o TokenEndpoint) (Credentials, error) {
	t, err := newTokens(grantClient, o)
	if err != nil {
		return nil, err
	}
	return &ownToken{t}, nil
}

func newTokens(grant string, o TokenEndpoint) (*tokens, error) {
	form := url.Values{"grant_type": {grant}}
	for _, scope := range o.Scopes {
		if scope == "" || !isToken(scope) {
			return nil, errors.New("a scope is one word; write a list of them")
		}
	}
	if o.Audience != "" {
		form.Set("audience", o.Audience)
	}
	if o.Resource != "" { // RFC 8707
		form.Set("resource", o.Resource)
	}
	if len(o.Scopes) > 0 {
		form.Set("scope", strings.Join(o.Scopes, " "))
	}
	e, err := newEndpoint(o)
	if err != nil {
		return nil, err
	}
	return &tokens{from: e, form: form, kept: map[tokenOf]token{}}, nil
}

type exchange struct{ *tokens }

// Authorize exchanges the token of a principal, or takes the result of an earlier exchange.
func (x *exchange) Authorize(ctx context.Context, h http.Header, principal, subject string, expires time.Time) error {
	switch {
	case subject == "" || principal == "":
		return errors.New("the upstream needs a token in exchange for the client's, and the client has none")
	case !expires.After(x.from.Now()):
		return errors.New("the client's token has ended, and is not exchanged")
	}
	form := maps.Clone(x.form)
	form.Set("subject_token", subject)
	return x.authorize(ctx, h, tokenOf{principal, sha256.Sum256([]byte(subject))}, form, expires)
}

type ownToken struct{ *tokens }

// Authorize takes the gateway's token, and gets another before it ends.
func (o *ownToken) Authorize(ctx context.Context, h http.Header, _, _ string, _ time.Time) error {
	return o.authorize(ctx, h, tokenOf{}, o.form, o.from.Now().Add(longest))
}

// tokenOf is the owner of a token: a principal with the token that it was exchanged for, or, if zero, the gateway.
type tokenOf struct {
	principal string
	subject   [sha256.Size]byte
}

func (o tokenOf) key() string { return o.principal + "\x00" + string(o.subject[:]) }

// tokens keeps tokens that do not end soon.
type tokens struct {
	from   *endpoint
	form   url.Values // of each question
	asking singleflight.Group

	mu   sync.Mutex
	kept map[tokenOf]token // ends is the end of its use
}

const (
	mostTokens = 10_000
	// early is how long before its end a token is not used any more.
	early = 30 * time.Second
)

// authorize sets the token of an owner, which is kept until a time at most.
func (t *tokens) authorize(ctx context.Context, h http.Header, of tokenOf, form url.Values, until time.Time) error {
	text := t.find(of)
	if text == "" {
		// The first caller may leave while others wait for the same answer: so the question does not end with its context.
		answer := t.asking.DoChan(of.key(), func() (any, error) {
			if text := t.find(of); text != "" { // another question has just been answered
				return text, nil
			}
			got, err := t.from.ask(context.WithoutCancel(ctx), form)
			if err != nil {
				return "", err
			}
			t.keep(of, got, until)
			return got.text, nil
		})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-answer:
			if r.Err != nil {
				return r.Err
			}
			text = r.Val.(string)
		}
	}
	h.Set("Authorization", "Bearer "+text)
	return nil
}

// find is the text of a usable token, "" if there is none.
func (t *tokens) find(of tokenOf) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, ok := t.kept[of]
	if !ok || !t.from.Now().Before(k.ends) {
		return ""
	}
	return k.text
}

// keep keeps a token, unless its server does not say when it ends.
func (t *tokens) keep(of tokenOf, got token, until time.Time) {
	if ends := got.ends.Add(-early); ends.Before(until) {
		until = ends
	}
	now := t.from.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.kept) >= mostTokens {
		maps.DeleteFunc(t.kept, func(_ tokenOf, k token) bool { return !now.Before(k.ends) })
	}
	room := len(t.kept) < mostTokens
	for other := range t.kept { // any: it is exchanged again
		if room {
			break
		}
		delete(t.kept, other)
		room = len(t.kept) <= mostTokens*15/16
	}
	if now.Before(until) {
		t.kept[of] = token{got.text, until}
	} else {
		delete(t.kept, of)
	}
}

// TokenEndpoint is the address where an authorization server gives tokens, and the gateway's credential there.
//
// golang.org/x/oauth2 is not used: its errors quote answers, which may hold secrets, it takes ambiguous JSON, other content
// types and statuses, and it has no exchange of tokens.
type TokenEndpoint struct {
	// TokenURL is https, or http on this machine.
	TokenURL string
	// ClientID is the gateway's name there, and ClientSecretFile holds its secret, on one line. The file is read for each
	// token, so a changed secret counts at once.
	ClientID         string
	ClientSecretFile string
	// Audience and Resource are the authorization server's names of the upstream; either may be "".
	Audience, Resource string
	Scopes             []string
	// AllowNetworks are the networks of the endpoint if its address is not a public one, and RootsFile holds the roots of
	// its certificate: as [HTTPOptions] have them for an upstream.
	AllowNetworks []netip.Prefix
	RootsFile     string
	// Timeout bounds a question; 0 is ten seconds.
	Timeout time.Duration
	// Now is the clock.
	Now func() time.Time
}

const (
	mostToken  = 16 << 10
	mostAnswer = 64 << 10
)

// token is an access token with its end.
type token struct {
	text string
	// ends is the end by its server's word, the zero time without one.
	ends time.Time
}

// endpoint asks a token endpoint.
type endpoint struct {
	TokenEndpoint
	transport *http.Transport
}

func newEndpoint(o TokenEndpoint) (*endpoint, error) {
	u, err := url.Parse(o.TokenURL)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("the token endpoint is no URL; write it like https://idp.example.com/token")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the URL of the token endpoint has a password, a query or a fragment; leave them out")
	case u.Scheme == "http" && !loopbackName(u.Hostname()):
		return nil, errors.New("plain http to another machine shows the client secret to anybody on the way; use https")
	case o.ClientID == "" || o.ClientSecretFile == "":
		return nil, errors.New("a token endpoint needs client_id and client_secret_file: it gives no token to somebody unknown")
	}
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	transport, err := newTransport(HTTPOptions{AllowNetworks: o.AllowNetworks, RootsFile: o.RootsFile}, u)
	if err != nil {
		return nil, err
	}
	return &endpoint{o, transport}, nil
}

// loopbackName reports whether a host is this machine, whatever the resolver says.
func loopbackName(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}

// ask sends a form, and reads the token of the answer. Errors quote nothing of the answer: it may repeat the form.
func (e *endpoint) ask(ctx context.Context, form url.Values) (t token, err error) {
	secret, err := readLine(e.ClientSecretFile)
	if err != nil {
		return t, fmt.Errorf("the secret for the token endpoint cannot be read: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return t, errors.New("the token endpoint cannot be asked")
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	r.SetBasicAuth(url.QueryEscape(e.ClientID), url.QueryEscape(secret)) // RFC 6749, 2.3.1
	asked := e.Now()
	response, err := e.transport.RoundTrip(r) // which follows nothing
	if err != nil {
		return t, fmt.Errorf("the token endpoint did not answer: %w", reason(ctx, err))
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer+1))
	switch {
	case err != nil:
		return t, fmt.Errorf("the token endpoint did not answer: %w", reason(ctx, err))
	case len(body) > mostAnswer:
		return t, errors.New("the answer of the token endpoint is too large")
	case response.StatusCode != http.StatusOK:
		return t, refusal(response.StatusCode, body)
	}
	if kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return t, errors.New("the answer of the token endpoint is no JSON")
	}
	return readToken(body, form.Get("grant_type") == grantExchange, asked)
}

// refusal is the error of an endpoint that gives no token, with its reason if that is a word of the RFCs.
func refusal(status int, body []byte) error {
	var answer struct {
		Error string `json:"error"`
	}
	words := []string{"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
		"invalid_scope", "invalid_target", "access_denied", "temporarily_unavailable", "server_error"}
	if json.Unmarshal(body, &answer) != nil || !slices.Contains(words, answer.Error) {
		answer.Error = "no reason"
	}
	return fmt.Errorf("the token endpoint gives no token: status %d, %s", status, answer.Error)
}

const (
	grantClient   = "client_credentials"
	grantExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	typeAccess    = "urn:ietf:params:oauth:token-type:access_token"
	typeJWT       = "urn:ietf:params:oauth:token-type:jwt"
)

// readToken reads an answer. The answer to an exchange must name the type of its token.
func readToken(body []byte, exchanged bool, asked time.Time) (t token, err error) {
	var answer struct {
		Token   string   `json:"access_token"`
		Type    string   `json:"token_type"`
		Issued  string   `json:"issued_token_type"`
		Expires *float64 `json:"expires_in"`
	}
	if json.Unmarshal(bytes.TrimSpace(body), &answer) != nil {
		return t, errors.New("the answer of the token endpoint is not one JSON object without ambiguities")
	}
	wrong := ""
	switch {
	case answer.Token == "" || len(answer.Token) > mostToken || !isToken(answer.Token):
		wrong = "access_token"
	case !strings.EqualFold(answer.Type, "Bearer"):
		wrong = "token_type"
	case exchanged && answer.Issued != typeAccess && answer.Issued != typeJWT:
		wrong = "issued_token_type"
	case answer.Expires != nil && *answer.Expires <= 0:
		wrong = "expires_in"
	}
	if wrong != "" {
		return t, fmt.Errorf("the answer of the token endpoint is no token that can be used: look at its %s", wrong)
	}
	t.text = answer.Token
	if answer.Expires != nil {
		t.ends = asked.Add(time.Duration(min(*answer.Expires, longest.Seconds())) * time.Second)
	}
	return t, nil
}

// longest is the longest time that a token is kept.
const longest = 24 * time.Hour

// isToken reports whether a text can be a bearer token in a header.
func isToken(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
