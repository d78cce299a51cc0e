package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/plainfile"
)

// TokenEndpoint is where an authorization server gives tokens, and what the gateway is to it.
type TokenEndpoint struct {
	// TokenURL is https, or http on this machine.
	TokenURL string
	// ClientFile holds {"client_id": …, "client_secret": …}. It is read for each token, so that a secret can be changed.
	ClientFile string
	// Transport is how the endpoint is reached; nil is without any proxy, and at any address.
	Transport http.RoundTripper
	// Timeout bounds a question; 0 is ten seconds.
	Timeout time.Duration
	// Now is the clock; nil is that of the machine.
	Now func() time.Time
}

const (
	mostToken  = 16 << 10
	mostAnswer = 64 << 10
)

// token is an access token, and when it ends.
type token struct {
	text string
	// ends is when its server says that it ends: the zero time if it does not say.
	ends time.Time
}

// endpoint asks a token endpoint.
type endpoint struct {
	TokenEndpoint
	client http.Client
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
	case o.ClientFile == "":
		return nil, errors.New("a token endpoint needs client_file, with client_id and client_secret")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Transport == nil {
		o.Transport = &http.Transport{
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			IdleConnTimeout:        time.Minute,
			MaxResponseHeaderBytes: mostAnswer,
			DisableCompression:     true,
		}
	}
	return &endpoint{o, http.Client{
		Transport:     o.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func loopbackName(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}

// clientFile is what a client file holds.
type clientFile struct {
	ID     string `json:"client_id"`
	Secret string `json:"client_secret"`
}

func (e *endpoint) readClient() (c clientFile, err error) {
	content, err := plainfile.ReadPrivate(e.ClientFile, mostToken)
	if err != nil {
		return c, fmt.Errorf("the client file of the token endpoint cannot be read: %w", err)
	}
	if json.Unmarshal(content, &c, json.RejectUnknownMembers(true)) != nil || c.ID == "" || c.Secret == "" {
		return c, fmt.Errorf(`%s is not {"client_id": "…", "client_secret": "…"}`, e.ClientFile)
	}
	return c, nil
}

// ask sends a form, and reads the token of the answer. What the answer says otherwise is not quoted: it may hold what was
// sent.
func (e *endpoint) ask(ctx context.Context, form url.Values) (t token, err error) {
	client, err := e.readClient()
	if err != nil {
		return t, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	r, err := http.NewRequestWithContext(traced, http.MethodPost, e.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return t, errors.New("the token endpoint cannot be asked")
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	r.SetBasicAuth(url.QueryEscape(client.ID), url.QueryEscape(client.Secret)) // RFC 6749, 2.3.1
	asked := e.Now()
	response, err := e.client.Do(r)
	if err != nil {
		return t, unreachable(ctx, err, connected.Load())
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer+1))
	switch {
	case err != nil:
		return t, unreachable(ctx, err, true)
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

// unreachable is why there is no answer. Before there was a connection nothing had been sent, so that nothing can have come
// back: only then the reason may be quoted.
func unreachable(ctx context.Context, err error, connected bool) error {
	var u *url.Error
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the token endpoint gave no answer in time: %w", ctx.Err())
	case connected:
		return errors.New("the token endpoint broke off, or its answer is no HTTP")
	case errors.As(err, &u):
		err = u.Err // without the URL
	}
	return fmt.Errorf("the token endpoint cannot be reached: %w", err)
}

// refusal is what an endpoint says that gives no token, if it is one of the words of the RFCs.
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

// readToken reads an answer. That of an exchange must say what it gave.
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

// longest is how long a token is kept at most.
const longest = 24 * time.Hour

// isToken reports whether a text can be a bearer token in a header.
func isToken(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
