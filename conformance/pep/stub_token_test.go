package pep

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

var errToken = errors.New("no good token")

// authenticate returns the claims of the token of a request.
func (s *stub) authenticate(r *http.Request) (object, error) {
	if s.wrong["knows nobody"] {
		return object{"sub": alice, "aud": s.resource, "client_id": client}, nil
	}
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok && s.wrong["takes tokens from the query"] {
		text = r.URL.Query().Get("access_token")
	}
	payload, err := s.verified(text)
	if err != nil {
		return nil, err
	}
	claims, err := parseObject(payload)
	if err != nil {
		return nil, err
	}
	if _, there := claims["sub"].(string); !there && s.wrong["calls nobody somebody"] {
		claims["sub"] = "anonymous"
	}
	return claims, s.valid(claims)
}

// verified is the payload of a token whose signature is good.
func (s *stub) verified(text string) ([]byte, error) {
	parts := strings.Split(text, ".")
	if s.wrong["takes unsigned tokens"] && len(parts) == 3 && parts[2] == "" || s.wrong["does not verify signatures"] && len(parts) == 3 {
		return base64.RawURLEncoding.DecodeString(parts[1])
	}
	signed, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.ES256, jose.RS256, jose.HS256})
	if err != nil {
		return nil, err
	}
	if signed.Signatures[0].Header.Algorithm == "HS256" && s.wrong["takes the algorithm from the token"] {
		k, err := keys()
		if err != nil {
			return nil, err
		}
		mac, err := byPublic(k.rsa).sign([]byte(parts[0] + "." + parts[1]))
		if err != nil || base64.RawURLEncoding.EncodeToString(mac) != parts[2] {
			return nil, errToken
		}
		return signed.UnsafePayloadWithoutVerification(), nil
	}
	if _, critical := signed.Signatures[0].Header.ExtraHeaders["crit"]; critical {
		return nil, errToken
	}
	set, err := s.keySet()
	if err != nil {
		return nil, err
	}
	for _, key := range set.Keys {
		if s.wrong["knows one algorithm"] && key.Algorithm == "RS256" {
			continue
		}
		if key.KeyID == signed.Signatures[0].Header.KeyID && key.Algorithm == signed.Signatures[0].Header.Algorithm {
			return signed.Verify(key)
		}
	}
	return nil, errToken
}

// fetchKeys asks the issuer, as its metadata says.
func (s *stub) fetchKeys() (set jose.JSONWebKeySet, err error) {
	var metadata struct {
		Keys string `json:"jwks_uri"`
	}
	if err := s.get(s.wiring.Issuer+"/.well-known/openid-configuration", &metadata); err != nil {
		return set, err
	}
	return set, s.get(metadata.Keys, &set)
}

func (s *stub) get(url string, into any) error {
	resp, err := s.patient.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return errToken
	}
	return json.NewDecoder(bytes.NewReader(text)).Decode(into)
}

// valid holds the claims to who signs, whom they are for, and when.
func (s *stub) valid(claims object) error {
	audiences, isList := claims["aud"].([]any)
	if !isList {
		audiences = []any{claims["aud"]}
	}
	mine := slices.Contains(audiences, any(s.resource))
	if s.wrong["compares audiences by prefix"] {
		first, _ := audiences[0].(string)
		mine = mine || strings.HasPrefix(first, s.resource)
	}
	switch {
	case claims["iss"] != s.wiring.Issuer && !s.wrong["takes any issuer"]:
		return errToken
	case !mine && !s.wrong["takes any audience"]:
		return errToken
	case !s.wrong["takes expired tokens"] && !after(claims["exp"], false):
		return errToken
	case !s.wrong["takes tokens of tomorrow"] && after(claims["nbf"], false):
		return errToken
	}
	return nil
}

// after reports if a time is still to come.
func after(v any, missing bool) bool {
	n, ok := v.(number)
	if !ok {
		return missing
	}
	at, _ := n.exact().Float64()
	return at > float64(time.Now().Unix())
}
