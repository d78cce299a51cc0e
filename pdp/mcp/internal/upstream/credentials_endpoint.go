package upstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

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
