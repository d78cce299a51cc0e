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
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/singleflight"

	"policy-service/evaluation/recent"
	"policy-service/pdp/internal/mcp/internal/leak"
	"policy-service/pdp/internal/plainfile"
)

// HeaderFile is a credential in a file: one line with the value of a header. The file is read for each request, so a change
// counts at once.
type HeaderFile struct {
	Path string
	// Header is the header's name, one [ForCredentials]; "" is Authorization.
	Header string
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

const mostHeader = 16 << 10

// Authorize sets the header to the line of the file.
func (f *HeaderFile) Authorize(_ context.Context, h http.Header, _ Client) error {
	line, err := ReadSecret(f.Path)
	if err != nil {
		return fmt.Errorf("the credential for the upstream cannot be read: %w", err)
	}
	h.Set(cmp.Or(f.Header, "Authorization"), line)
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

// ReadSecret reads a file that holds one secret and nothing else: one line, of characters that every server reads alike.
func ReadSecret(path string) (string, error) {
	content, err := plainfile.ReadPrivate(path, mostHeader)
	if err != nil {
		return "", err
	}
	line := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if line == "" || strings.TrimSpace(line) != line || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", fmt.Errorf("%s is not one line of plain characters; write the value, and nothing else", path)
	}
	return line, nil
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
	Now     func() time.Time
}

const (
	mostToken  = 16 << 10
	mostAnswer = 64 << 10
)

type token struct {
	text string
	// ends is the end by its server's word, the zero time without one; of a kept token, the end of its use.
	ends time.Time
}

// tokens gets tokens from an endpoint, and keeps those that do not end soon.
type tokens struct {
	TokenEndpoint
	transport *http.Transport
	form      url.Values // of each question
	asking    singleflight.Group
	// kept are by their owners: the zero digest is the gateway's, any other one that of a principal and the token that it showed.
	kept recent.Texts[token]
}

// NewTokenExchange makes credentials for each principal: the authorization server gives a token for the upstream in exchange
// for the principal's own (RFC 8693), which goes nowhere else. It sends nothing before the first request needs a token.
func NewTokenExchange(o TokenEndpoint) (Credentials, error) {
	return newTokens(o, url.Values{"grant_type": {grantExchange}, "subject_token_type": {typeAccess}, "requested_token_type": {typeAccess}})
}

// NewClientCredentials makes credentials of the gateway's own, the same for all principals (RFC 6749, 4.4). It sends nothing
// before the first request needs a token.
func NewClientCredentials(o TokenEndpoint) (Credentials, error) {
	return newTokens(o, url.Values{"grant_type": {grantClient}})
}

// newTokens takes an endpoint that the configuration has checked.
func newTokens(o TokenEndpoint, form url.Values) (Credentials, error) {
	for _, scope := range o.Scopes {
		if scope == "" || !isToken(scope) {
			return nil, errors.New("a scope is one word; write a list of them")
		}
	}
	for name, value := range map[string]string{"audience": o.Audience, "resource": o.Resource, "scope": strings.Join(o.Scopes, " ")} {
		if value != "" {
			form.Set(name, value)
		}
	}
	u, err := url.Parse(o.TokenURL)
	if err != nil {
		return nil, errors.New("the token endpoint is no URL; write it like https://idp.example.com/token")
	}
	transport, err := newTransport(HTTPOptions{AllowNetworks: o.AllowNetworks, RootsFile: o.RootsFile}, u)
	if err != nil {
		return nil, err
	}
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	return &tokens{TokenEndpoint: o, transport: transport, form: form}, nil
}

// exchanges reports whether the tokens are made for principals. Otherwise all have the gateway's.
func (t *tokens) exchanges() bool { return t.form.Get("grant_type") == grantExchange }

const (
	// mostTokens is how many are kept at least, if there are so many, and twice as many at most.
	mostTokens = 5_000
	// early is how long before its end a token is not used any more.
	early = 30 * time.Second
)

// Authorize sets a token that is kept, or asks for another.
func (t *tokens) Authorize(ctx context.Context, h http.Header, c Client) error {
	var owner recent.Digest
	switch {
	case !t.exchanges():
		c.Token, c.Expires = "", t.Now().Add(longest)
	case c.Token == "" || c.Principal == "":
		return errors.New("the upstream needs a token in exchange for the client's, and the client has none")
	case !c.Expires.After(t.Now()):
		return errors.New("the client's token has ended, and is not exchanged")
	default:
		owner = sha256.Sum256([]byte(c.Principal + "\x00" + c.Token))
	}
	text := t.find(owner)
	if text == "" {
		// The first caller may leave while others wait for the same answer: so the question does not end with its context.
		answer := t.asking.DoChan(string(owner[:]), func() (any, error) {
			if text := t.find(owner); text != "" { // another question has just been answered
				return text, nil
			}
			got, err := t.ask(context.WithoutCancel(ctx), c.Token)
			if err != nil {
				return "", err
			}
			t.keep(owner, got, c.Expires)
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

func (t *tokens) find(owner recent.Digest) string {
	if k, ok := t.kept.Get(owner); ok && t.Now().Before(k.ends) {
		return k.text
	}
	return ""
}

// keep keeps a token until a time at most, unless its server does not say when it ends.
func (t *tokens) keep(owner recent.Digest, got token, until time.Time) {
	if ends := got.ends.Add(-early); ends.Before(until) {
		until = ends
	}
	t.kept.Put(owner, token{got.text, until}, mostTokens)
}

// ask sends a form, and reads the token of the answer. Errors quote nothing of the answer: it may repeat the form.
func (t *tokens) ask(ctx context.Context, subject string) (got token, err error) {
	secret, err := ReadSecret(t.ClientSecretFile)
	if err != nil {
		return got, fmt.Errorf("the secret for the token endpoint cannot be read: %w", err)
	}
	form := maps.Clone(t.form)
	if subject != "" {
		form.Set("subject_token", subject)
	}
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return got, errors.New("the token endpoint cannot be asked")
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	r.SetBasicAuth(url.QueryEscape(t.ClientID), url.QueryEscape(secret)) // RFC 6749, 2.3.1
	asked := t.Now()
	response, err := t.transport.RoundTrip(r) // which follows nothing
	if err != nil {
		return got, fmt.Errorf("the token endpoint did not answer: %w", reason(ctx, err))
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer+1))
	kind, _, kindErr := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case err != nil:
		return got, fmt.Errorf("the token endpoint did not answer: %w", reason(ctx, err))
	case len(body) > mostAnswer:
		return got, errors.New("the answer of the token endpoint is too large")
	case response.StatusCode != http.StatusOK:
		return got, refusal(response.StatusCode, body)
	case kindErr != nil || kind != jsonType:
		return got, errors.New("the answer of the token endpoint is no JSON")
	}
	return readToken(body, t.exchanges(), asked)
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

const longest = 24 * time.Hour

// isToken reports whether a text can be a bearer token in a header.
func isToken(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
