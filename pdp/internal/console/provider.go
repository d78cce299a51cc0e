package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"policy-service/pdp/internal/server/auth"
)

// provider asks the OpenID provider where people log in. Its answers are from outside, and are bounded.
type provider struct {
	client *http.Client
	now    func() time.Time
	flight singleflight.Group // by issuer

	mu      sync.Mutex // guards the rest
	issuer  string
	known   metadata
	err     error
	fetched time.Time
}

// metadata is the provider's description of itself.
type metadata struct {
	endpoint    oauth2.Endpoint
	scopes      []string
	namesItself bool // in each answer (RFC 9207)
}

const (
	providerTimeout = 10 * time.Second
	mostOfProvider  = 1 << 20
	// Metadata counts for metadataFor, and an error for awayFor.
	metadataFor = 10 * time.Minute
	awayFor     = 5 * time.Second
)

func newProvider(now func() time.Time) *provider {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = 64 << 10
	return &provider{now: now, client: &http.Client{
		Transport:     bounded{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       providerTimeout,
	}}
}

// bounded ends bodies that are larger than any answer to a login.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.next.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, mostOfProvider)
	}
	return answer, err
}

// about is the metadata of the provider. Logins share what one of them fetches. One that ends ends no other's.
func (p *provider) about(ctx context.Context, issuer string) (metadata, error) {
	p.mu.Lock()
	known, err, age := p.known, p.err, p.now().Sub(p.fetched)
	fresh := p.issuer == issuer && age >= 0 && (err == nil && age < metadataFor || err != nil && age < awayFor)
	p.mu.Unlock()
	if fresh {
		return known, err
	}
	landed := p.flight.DoChan(issuer, func() (any, error) {
		found, err := p.fetch(issuer)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.issuer, p.known, p.err, p.fetched = issuer, found, err, p.now()
		return found, err
	})
	select {
	case got := <-landed:
		return got.Val.(metadata), got.Err
	case <-ctx.Done():
		return metadata{}, ctx.Err()
	}
}

func (p *provider) fetch(issuer string) (metadata, error) {
	found, err := oidc.NewProvider(oidc.ClientContext(context.Background(), p.client), issuer)
	if err != nil {
		return metadata{}, fmt.Errorf("discovery: %.200s", err) // it quotes the provider's answer
	}
	var said struct {
		Scopes  []string `json:"scopes_supported"`
		Methods []string `json:"token_endpoint_auth_methods_supported"`
		Names   bool     `json:"authorization_response_iss_parameter_supported"`
	}
	if err := found.Claims(&said); err != nil {
		return metadata{}, errors.New("discovery: what the provider supports cannot be read")
	}
	m := metadata{endpoint: found.Endpoint(), scopes: scopes(said.Scopes), namesItself: said.Names}
	for _, address := range []string{m.endpoint.AuthURL, m.endpoint.TokenURL} {
		if err := checkEndpoint(issuer, address); err != nil {
			return metadata{}, err
		}
	}
	m.endpoint.AuthStyle, err = authStyle(said.Methods)
	return m, err
}

// scopes are those that every provider has, and groups if the provider has it.
func scopes(supported []string) []string {
	wanted := []string{oidc.ScopeOpenID, "profile", "email"}
	if slices.Contains(supported, "groups") {
		wanted = append(wanted, "groups")
	}
	return wanted
}

// authStyle is how a client shows its secret. A provider that says nothing takes it in a header.
func authStyle(methods []string) (oauth2.AuthStyle, error) {
	switch {
	case len(methods) == 0 || slices.Contains(methods, "client_secret_basic"):
		return oauth2.AuthStyleInHeader, nil
	case slices.Contains(methods, "client_secret_post"), slices.Contains(methods, "none"):
		return oauth2.AuthStyleInParams, nil
	}
	return 0, errors.New("discovery: the provider takes no client_secret, neither in a header nor in a form")
}

// checkEndpoint refuses an endpoint for which a machine on the way could answer.
func checkEndpoint(issuer, address string) error {
	from, err := url.Parse(issuer)
	if err != nil {
		return errors.New("the issuer is no URL")
	}
	to, err := url.Parse(address)
	if err != nil || to.Host == "" || to.User != nil || to.Fragment != "" ||
		to.Scheme != "https" && (to.Scheme != "http" || from.Scheme != "http" || !auth.IsLoopbackName(to.Hostname())) {
		return errors.New("discovery: an endpoint has another address than https, or than http on loopback as the issuer has")
	}
	return nil
}
