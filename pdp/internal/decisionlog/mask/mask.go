// Package mask keeps secrets off the record. [New] takes what counts as a secret. [Masker.Apply] masks one
// request, and then its obligations and texts by the same secrets.
//
// What is masked:
//
//   - a value a JSON Pointer pattern of the configuration addresses, and a member
//     whose name says that it is a secret (see [evaluation.SecretName]); an object or array whole;
//   - wherever else it occurs in that request's properties and context, in its
//     obligations and in texts, as a whole or as a part, a masked string of eight
//     or more bytes, and a masked number of as many digits, which templates of
//     obligations turn into text. Names of members are searched like texts;
//   - the same in a string that holds JSON, and in JSON that this holds in a string; see
//     inside.go. It is written anew, so that the secret alone is masked. A string that
//     quotes the name of a secret before a colon and cannot be read is masked whole.
//
// Requests that go on record together, as those of a batch do, share their secrets: a secret of one of them is masked
// in all of them. See [Masker.Gather].
//
// What is not masked: tenant, caller, types, ids and action names, because a record must
// show who asked what; a string of less than eight bytes in other places; and a secret in
// another spelling, such as base64 or that of a URL. Names inside a value that is masked
// whole are no secrets, or every member called "username" would be one.
//
// A masked value becomes "masked:" and 22 characters of a keyed digest
// (HMAC-SHA-256, 128 bits). The same value has the same digest in every record, and
// only with the key can one try values against it. What cannot be masked is removed.
//
// What is made of masked values and stands beside them, such as a hash, is written by [Masking.Evidence].
//
// The package is pure: it reads no file and keeps nothing.
package mask

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"strings"
	"sync"

	"policy-service/evaluation"
	"policy-service/pdp/internal/evidence"
)

// KeySize is the length of a key in bytes, and KeyFile the name of its file below the data directory.
const (
	KeySize = 32
	KeyFile = "mask.key"
)

// Prefix is what every masked value begins with. A caller can send a string that begins with it, but cannot make a
// digest of the key.
const Prefix = evaluation.MaskPrefix

// Masker masks by one key and one set of patterns. It is safe for concurrent use.
type Masker struct {
	key      []byte
	patterns []pattern
	grants   []pattern // for questions whether a capability may be granted; see ofConstraints
	digests  sync.Pool // of hash.Hash, each with the key in it
}

// New makes a Masker. Digests are made with the key, so records with digests of two keys cannot be joined.
func New(key []byte, patterns []string) (*Masker, error) {
	if len(key) != KeySize {
		return nil, errors.New("the key of the mask must have 32 bytes")
	}
	m := &Masker{key: bytes.Clone(key), digests: sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
	for _, text := range patterns {
		p, err := parsePattern(text)
		if err != nil {
			return nil, err
		}
		m.patterns = append(m.patterns, p)
		m.grants = append(append(m.grants, p), p.ofConstraints()...)
	}
	return m, nil
}

// Evidence returns the key by which a tenant's hashes of masked values are written; nil, which writes none, if it cannot
// be made.
func (m *Masker) Evidence(tenant string) *evidence.Key {
	key, err := evidence.NewKey(m.key, tenant)
	if err != nil {
		return nil
	}
	return key
}

// Hides reports if what stands at a place below the context, or below another object of a request, is masked wherever
// it stands: by a pattern, or because a name on the way to it says that it is a secret. A nil Masker has no patterns.
func (m *Masker) Hides(root string, path ...string) bool {
	var a at
	if m != nil {
		a, _ = at(m.patterns).in(root)
	}
	for _, name := range path {
		inner, whole := a.in(name)
		if whole || evaluation.SecretName(name) {
			return true
		}
		a = inner
	}
	return false
}

// digestLength is the length of a digest behind [Prefix].
const digestLength = 22

// digest is the text in the place of a value with that form; see appendForm.
func (m *Masker) digest(form []byte) string {
	h := m.digests.Get().(hash.Hash)
	defer m.digests.Put(h)
	h.Reset()
	_, _ = h.Write(form)
	var sum [sha256.Size]byte
	return Prefix + base64.RawURLEncoding.EncodeToString(h.Sum(sum[:0])[:16])
}

func (m *Masker) digestOfText(text string) string { return m.digest(appendText(nil, text)) }

// replace puts digests in the places of parts of a text. The parts are in order and do not overlap.
func (m *Masker) replace(text string, parts []span) string {
	var b strings.Builder
	end := 0
	for _, part := range parts {
		b.WriteString(text[end:part.from])
		b.WriteString(m.digestOfText(text[part.from:part.to]))
		end = part.to
	}
	return b.String() + text[end:]
}
