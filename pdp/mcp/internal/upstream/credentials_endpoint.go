package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
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
	// AllowNetworks are the networks of the endpoint if its address is not a public one, and RootsFile holds the roots of
	// its certificate: as [HTTPOptions] have them for an upstream.
	AllowNetworks []netip.Prefix
	RootsFile     string
	// Timeout bounds a question; 0 is ten seconds.
	Timeout time.Duration
	// Now is the clock; nil is that of the machine.
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
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	transport, err := newTransport(HTTPOptions{AllowNetworks: o.AllowNetworks, RootsFile: o.RootsFile}, u)
	if err != nil {
		return nil, err
	}
	return &endpoint{o, transport}, nil
}

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
