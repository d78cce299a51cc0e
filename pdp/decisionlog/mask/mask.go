// Package mask keeps secrets off the record: [New] says what is one, and
// [Masker.Of] reads the secrets of one request and hands back the request, its
// obligations and its texts without them.
//
// What is masked:
//
//   - a value a JSON Pointer pattern of the configuration addresses, and a member
//     whose name says that it is a secret (see names.go); an object or array whole;
//   - wherever else it occurs in that request's properties and context, in its
//     obligations and in texts, as a whole or as a part, a masked string of eight
//     or more bytes, and a masked number of as many digits, which templates of
//     obligations turn into text. Names of members are searched like texts;
//   - the same in a string that holds JSON, and in JSON that this holds in a string; see
//     inside.go. It is written anew, so that the secret alone is masked. A string that
//     quotes the name of a secret before a colon and cannot be read is masked whole.
//
// What goes on record together, as a batch does, is one in this: a secret of any of its
// requests is masked in all of them. See [Masker.Gather].
//
// What is not: tenant, caller, types, ids and action names, which say who asked
// what; strings of less than eight bytes in other places; a secret in another
// spelling, base64 or a URL's; and names inside a value that is masked whole are
// not secrets of their own, or every member called "username" would be one.
//
// A masked value becomes "masked:" and 22 characters of a keyed digest
// (HMAC-SHA-256, 128 bits): the same value has the same digest in every record, and
// nobody without the key can try values against it. What cannot be masked is
// removed.
//
// The package is pure: it reads no file and keeps nothing.
package mask

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"sync"
)

// KeySize is the length of a key in bytes.
const KeySize = 32

// Prefix is what every masked value begins with. Whoever sends a string that begins
// like this is not lied about: its digest is not one of the key's.
const Prefix = "masked:"

// Masker knows what to mask. It is safe for concurrent use.
type Masker struct {
	patterns []pattern
	digests  sync.Pool // of hash.Hash, each with the key in it
}

// New makes a Masker. The key makes digests: those of two keys cannot be joined.
func New(key []byte, patterns []string) (*Masker, error) {
	if len(key) != KeySize {
		return nil, errors.New("the key of the mask must have 32 bytes")
	}
	m := &Masker{digests: sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
	for _, text := range patterns {
		p, err := parsePattern(text)
		if err != nil {
			return nil, err
		}
		m.patterns = append(m.patterns, p)
	}
	return m, nil
}

// digest is what stands for a value of that form; see appendForm.
func (m *Masker) digest(form []byte) string {
	h := m.digests.Get().(hash.Hash)
	defer m.digests.Put(h)
	h.Reset()
	_, _ = h.Write(form)
	var sum [sha256.Size]byte
	return Prefix + base64.RawURLEncoding.EncodeToString(h.Sum(sum[:0])[:16])
}

func (m *Masker) digestOfText(text string) string { return m.digest(appendText(nil, text)) }
