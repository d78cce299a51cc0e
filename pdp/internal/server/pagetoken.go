package server

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server/auth"
)

// A page token is base64url(nonce ‖ AES-256-GCM(JSON of pageToken)). What it is bound to (endpoint, query,
// page.properties, tenant, caller) is not in it but authenticated beside it: with anything else it does not open. A
// member may be added to the JSON: a token lives an hour, so no token is older than a release.

// pageToken is where a search goes on.
type pageToken struct {
	Limit  int     `json:"limit"`
	Last   *string `json:"last"` // nil: at the beginning
	Expiry int64   `json:"expiry"`
}

const pageTokenLife = time.Hour

func (t pageToken) next(last *string, now time.Time) pageToken {
	return pageToken{Limit: t.Limit, Last: last, Expiry: now.Add(pageTokenLife).Unix()}
}

// pager seals and opens page tokens.
type pager struct{ sealer }

// newPager uses a key of 32 bytes.
func newPager(key []byte) (*pager, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &pager{sealer{aead}}, err
}

// sealer seals texts that callers are given and send back. What a text is bound to begins with what it is for, so that
// no text passes for one of another use.
type sealer struct{ aead cipher.AEAD }

// Seal implements [broker.Sealer].
func (s sealer) Seal(text, binding []byte) (token string) {
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, binding))
}

// Open implements [broker.Sealer].
func (s sealer) Open(token string, binding []byte) (text []byte, ok bool) {
	// Strict: bits that mean nothing must be zero, or two tokens would be one.
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return nil, false
	}
	text, err = s.aead.Open(nil, nil, sealed, binding)
	return text, err == nil
}

// begin says where a page begins, and how much it holds at most.
func (p *pager) begin(page evaluation.Page, binding []byte, now time.Time) (t pageToken, err error) {
	t.Limit = page.Limit
	if page.Token != "" {
		opened, ok := p.open(page.Token, binding, now)
		if !ok || page.Limit >= 0 && page.Limit != opened.Limit {
			return t, evaluation.Malformed("this token is not for this page of this query",
				"send the token of the answer before with the very same query, within an hour; or begin again without a token",
				"page", "token")
		}
		t = opened
	}
	if t.Limit < 0 {
		t.Limit = evaluation.MaxPage
	}
	return t, nil
}

func (p *pager) seal(t pageToken, binding []byte) string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // two numbers and a string that came from an id; ids are valid UTF-8
	}
	return p.Seal(text, binding)
}

func (p *pager) open(token string, binding []byte, now time.Time) (pageToken, bool) {
	var t pageToken
	text, ok := p.Open(token, binding)
	if !ok || json.Unmarshal(text, &t) != nil {
		return t, false
	}
	return t, now.Unix() < t.Expiry
}

// searchBinding is all that a token is for.
func searchBinding(s evaluation.Search, caller auth.Caller) []byte {
	properties, _ := s.Page.Properties.MarshalJSON()
	h := sha256.New()
	for _, part := range []string{string(s.Kind), string(s.Hash[:]), string(properties), s.Request.Tenant, caller.Name} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}
