package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// algorithms are those with which metadata can be signed so that anybody can
// check it: one with a shared secret cannot be, and "none" is no signature.
var algorithms = []jose.SignatureAlgorithm{
	jose.EdDSA, jose.ES256, jose.ES384, jose.ES512, jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
}

// checkSigned holds signed_metadata, where there is one, to its form: a
// JWT that names its issuer, does not hold itself, agrees with the metadata
// around it, and verifies by the keys that the PDP publishes. The specification
// does not say where keys are published; jwks_uri is where everybody does.
func (r *running) checkSigned(ctx context.Context, metadata any) error {
	token := at(metadata, "/signed_metadata")
	if token == absent {
		return nil
	}
	text, ok := token.(string)
	if !ok {
		return errors.New("/signed_metadata is not a string")
	}
	signed, err := jose.ParseSignedCompact(text, algorithms)
	if err != nil {
		return errors.New("/signed_metadata is not a JWT signed with an asymmetric algorithm")
	}
	payload, err := r.verified(ctx, signed, at(metadata, "/jwks_uri"))
	if err != nil {
		return err
	}
	var claims map[string]any
	if err := json.Unmarshal(payload, &claims); err != nil {
		return errors.New("the claims of /signed_metadata are not JSON")
	}
	return agree(claims, metadata.(map[string]any))
}

// verified returns the payload of a signature that holds.
func (r *running) verified(ctx context.Context, signed *jose.JSONWebSignature, uri any) ([]byte, error) {
	where, ok := uri.(string)
	if !ok {
		return signed.UnsafePayloadWithoutVerification(), nil // keys are published somewhere else
	}
	if !strings.HasPrefix(where, r.origin()+"/") {
		return nil, errors.New("/jwks_uri is on another origin than the PDP")
	}
	got, err := r.send(ctx, request{method: http.MethodGet, url: where, anonymous: true})
	if err != nil {
		return nil, fmt.Errorf("jwks_uri gives no answer: %w", err)
	}
	var keys jose.JSONWebKeySet
	if got.status != http.StatusOK || json.Unmarshal(got.body, &keys) != nil {
		return nil, fmt.Errorf("jwks_uri gives %d and no key set", got.status)
	}
	for _, key := range keys.Keys {
		if payload, err := signed.Verify(key.Public()); err == nil && key.Valid() {
			return payload, nil
		}
	}
	return nil, errors.New("no key of jwks_uri verifies /signed_metadata")
}

// agree compares the claims with the metadata around them.
func agree(claims, metadata map[string]any) error {
	if iss, _ := claims["iss"].(string); iss == "" {
		return errors.New("the claims of /signed_metadata have no iss")
	}
	if _, ok := claims["signed_metadata"]; ok {
		return errors.New("/signed_metadata holds itself")
	}
	var m matcher
	for name, claim := range claims {
		if beside, ok := metadata[name]; ok && !m.equal(claim, beside) {
			return fmt.Errorf("/%s is not what /signed_metadata says it is", name)
		}
	}
	return nil
}
