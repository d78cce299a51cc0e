package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// fetchTimeout bounds one look at an issuer: discovery and keys.
const fetchTimeout = 5 * time.Second

// keyClient is how issuers are asked. What answers is outside, and gets neither
// unbounded time nor unbounded memory, nor does it send us to other hosts.
func keyClient(transport http.RoundTripper) *http.Client {
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.MaxResponseHeaderBytes = 64 << 10
		transport = own
	}
	return &http.Client{
		Transport:     boundedTransport{transport},
		CheckRedirect: sameHost,
		Timeout:       fetchTimeout,
	}
}

func sameHost(next *http.Request, before []*http.Request) error {
	first := before[0].URL
	if len(before) > 3 || next.URL.Host != first.Host || next.URL.Scheme != first.Scheme {
		return errors.New("refusing to be sent on to another host, or again and again")
	}
	return nil
}

// boundedTransport ends bodies that are larger than any set of keys.
type boundedTransport struct{ next http.RoundTripper }

func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxJWKS)
	}
	return response, err
}

// fetchKeys finds and reads the keys of an issuer. It asks for the place every
// time: issuers move it.
func fetchKeys(ctx context.Context, client *http.Client, issuer string) ([]jose.JSONWebKey, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, client), issuer)
	if err != nil {
		return nil, fmt.Errorf("discovery: %.200s", err) // it holds what the issuer sent
	}
	var metadata struct {
		JWKS string `json:"jwks_uri"`
	}
	if err := provider.Claims(&metadata); err != nil {
		return nil, errors.New("discovery: jwks_uri is not text")
	}
	if err := checkJWKSAddress(issuer, metadata.JWKS); err != nil {
		return nil, err
	}
	content, err := get(ctx, client, metadata.JWKS)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	return parseKeys(content)
}

// checkJWKSAddress lets the keys be on another host, as some issuers have them,
// but never fetches them in a weaker way than the document that names them.
func checkJWKSAddress(issuer, address string) error {
	keys, err := checkFetchable(address)
	if err != nil {
		return fmt.Errorf("jwks_uri: %w", err)
	}
	if from, err := checkFetchable(issuer); err != nil || from.Scheme != keys.Scheme && keys.Scheme != "https" {
		return errors.New("jwks_uri: it is http where the issuer is https")
	}
	return nil
}

func get(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", response.Status)
	}
	return io.ReadAll(response.Body)
}
