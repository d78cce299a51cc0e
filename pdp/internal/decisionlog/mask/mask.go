// Package mask keeps secrets off the record. [New] takes the patterns of secrets. [Masker.Apply] masks a
// request, and the [Masking] that it returns masks the obligations and texts of the same record.
//
// Masked are:
//
//   - a value that a JSON Pointer pattern of the configuration addresses, and a member
//     whose name says that it is a secret (see [evaluation.SecretName]); an object or array is masked whole;
//   - a masked string of eight or more bytes, and a masked number of as many digits, wherever
//     else it occurs in the request's properties and context, in its obligations and in texts, whole or
//     as a part: templates of obligations turn numbers into text. Names of members are searched like texts;
//   - secrets in a string that holds JSON, and in JSON that a string within that JSON holds; see
//     inside.go. The JSON is written again with only the secret masked. A string that
//     quotes the name of a secret before a colon and cannot be read is masked whole.
//
// Requests that go on record together, such as those of a batch, share their secrets: a secret of one request is masked
// in all of them. See [Masker.Gather].
//
// Not masked are: tenant, caller, types, ids and action names, because a record must
// show who asked what; a string of less than eight bytes in other places; and a secret in
// another spelling, such as base64 or URL encoding. Names inside a value that is masked
// whole are no secrets, or every member called "username" would be one.
//
// A masked value becomes "masked:" and 22 characters of a keyed digest
// (HMAC-SHA-256, 128 bits). Equal values have the same digest in every record, and
// values can be tried against a digest only with the key. A value that cannot be masked is removed.
//
// Hashes and signatures of masked values are written with the key that [Masking.Evidence] returns.
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

// The key of the masks.
const (
	KeySize = 32         // bytes
	KeyFile = "mask.key" // below the data directory
)

// Prefix begins every masked value. A caller can send a string that begins with it, but cannot make a digest with the
// key.
const Prefix = evaluation.MaskPrefix

// Masker masks by one key and one set of patterns. It is safe for concurrent use.
type Masker struct {
	key      []byte
	patterns at
	roots    [len(places)]at // the patterns that apply below each of places
	grants   [len(places)]at // the same in a question whether a capability may be granted; see ofConstraints
	digests  sync.Pool       // of hash.Hash, each with the key in it
}

// New returns a Masker. Digests with different keys differ, so records with digests of two keys cannot be joined.
func New(key []byte, patterns []string) (*Masker, error) {
	if len(key) != KeySize {
		return nil, errors.New("the key of the mask must have 32 bytes")
	}
	m := &Masker{key: bytes.Clone(key), digests: sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
	var grants at
	for _, text := range patterns {
		p, err := parsePattern(text)
		if err != nil {
			return nil, err
		}
		m.patterns = append(m.patterns, p)
		grants = append(append(grants, p), p.ofConstraints()...)
	}
	for n, place := range places {
		m.roots[n], m.grants[n] = m.patterns.into(place), grants.into(place)
	}
	return m, nil
}

// Evidence returns the key that writes a tenant's hashes of masked values, or nil, which writes none, if there can be no
// such key.
func (m *Masker) Evidence(tenant string) *evidence.Key {
	key, err := evidence.NewKey(m.key, tenant)
	if err != nil {
		return nil
	}
	return key
}

// Hides reports whether any value at a path below root, such as "context", is masked: by a pattern, or because a name
// on the path says that it is a secret. A nil Masker has no patterns.
func (m *Masker) Hides(root string, path ...string) bool {
	var a at
	if m != nil {
		a, _ = m.patterns.in(root)
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

// digestLength is the length of the text of a digest, without [Prefix].
const digestLength = 22

// digest returns the mask of a value, of which appendForm made form.
func (m *Masker) digest(form []byte) string {
	h := m.digests.Get().(hash.Hash)
	defer m.digests.Put(h)
	h.Reset()
	_, _ = h.Write(form)
	var sum [sha256.Size]byte
	return Prefix + base64.RawURLEncoding.EncodeToString(h.Sum(sum[:0])[:16])
}

func (m *Masker) digestOfText(text string) string { return m.digest(appendText(nil, text)) }

// replace replaces parts of a text by their digests. The parts are in order and do not overlap.
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
