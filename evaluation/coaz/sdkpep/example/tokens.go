package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/modelcontextprotocol/go-sdk/auth"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz/sdkpep"
)

// keysTime is for one request to the issuer.
const keysTime = 5 * time.Second

// algorithms may sign a token.
var algorithms = []string{oidc.ES256, oidc.RS256}

// tokens validates access tokens: signature, issuer, audience, expiry.
type tokens struct {
	issuer, audience string

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier
}

// verify is an [auth.TokenVerifier]. Its sender does not learn the fault of a token.
func (t *tokens) verify(ctx context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	verifier, err := t.keys()
	if err != nil {
		return nil, err
	}
	if !accessToken(token) {
		return nil, fmt.Errorf("%w: it is no access token", auth.ErrInvalidToken)
	}
	verified, err := verifier.Verify(ctx, token)
	if err != nil {
		return nil, fmt.Errorf("%w: its signature, issuer, audience or time is not good", auth.ErrInvalidToken)
	}
	var payload json.RawMessage
	if err := verified.Claims(&payload); err != nil {
		return nil, fmt.Errorf("%w: its claims cannot be read", auth.ErrInvalidToken)
	}
	claims, err := evaluation.ParseWithNulls(payload, evaluation.DefaultLimits())
	if err != nil {
		return nil, fmt.Errorf("%w: its claims can be read in two ways, or are too many", auth.ErrInvalidToken)
	}
	return sdkpep.WithClaims(auth.TokenInfo{Expiration: verified.Expiry}, claims), nil
}

// keys finds the issuer's keys the first time that they are needed: the issuer may come after this server.
func (t *tokens) keys() (*oidc.IDTokenVerifier, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.verifier != nil {
		return t.verifier, nil
	}
	config := &oidc.Config{ClientID: t.audience, SupportedSigningAlgs: algorithms}
	// Keys are fetched again when they change, which is later than any request.
	ctx := oidc.ClientContext(context.Background(), &http.Client{Timeout: keysTime})
	provider, err := oidc.NewProvider(ctx, t.issuer)
	if err != nil {
		return nil, errors.New("the issuer's keys cannot be found")
	}
	t.verifier = provider.Verifier(config)
	return t.verifier, nil
}

// accessToken reports whether the header's type is one that an access token has (RFC 9068), or none.
func accessToken(token string) bool {
	head, _, _ := strings.Cut(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(head)
	var header struct {
		Type string `json:"typ"`
	}
	if err != nil || json.Unmarshal(text, &header) != nil {
		return false
	}
	return slices.Contains([]string{"", "jwt", "at+jwt", "application/at+jwt"}, strings.ToLower(header.Type))
}
