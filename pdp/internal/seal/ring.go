package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"policy-service/pdp/internal/plainfile"
)

// Ring has the keys of a gateway or a console. The first seals, and all open.
type Ring struct {
	resource string
	files    []string
	now      func() time.Time
	log      *slog.Logger
	keys     atomic.Pointer[[]key]

	mu      sync.Mutex // guards the fields below
	looked  time.Time
	content [][]byte
	err     error
}

// Options of a [Ring], for tests and a gateway.
type Options struct {
	// Resource is the gateway's own identifier: a text that one gateway seals opens at no other, even with the same key.
	Resource string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger takes failures to read changed files; nil discards them.
	Logger *slog.Logger
}

const (
	keySize = 32
	maxKeys = 16
	// A changed file counts after fileEvery.
	fileEvery = time.Second
	maxFile   = 1 << 10
)

// Open reads the keys of files, one from each: 32 random bytes, or their base64url. A changed file takes effect without a
// restart. While one cannot be read, the keys read last stay: a key that must go is replaced by another.
func Open(files []string, o Options) (*Ring, error) {
	if len(files) == 0 || len(files) > maxKeys {
		return nil, fmt.Errorf("seal.key_files lists %d files; list 1 to %d, the one to seal with first, or leave it out", len(files), maxKeys)
	}
	r := newRing(o)
	r.files = slices.Clone(files)
	if r.look(); r.err != nil {
		return nil, r.err
	}
	return r, nil
}

// Fresh makes a key that this process alone has. A text that it sealed opens in no other, and not after a restart.
func Fresh(o Options) *Ring {
	random := make([]byte, keySize)
	_, _ = rand.Read(random) // never fails: it ends the program instead
	r, err := With(random, o)
	if err != nil {
		panic(err) // 32 random bytes are a key
	}
	return r
}

// With has one key, of 32 bytes.
func With(secret []byte, o Options) (*Ring, error) {
	k, err := newKey(secret)
	if err != nil {
		return nil, err
	}
	r := newRing(o)
	r.keys.Store(&[]key{k})
	return r, nil
}

func newRing(o Options) *Ring {
	r := &Ring{resource: o.Resource, now: o.Now, log: o.Logger}
	if r.now == nil {
		r.now = time.Now
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r
}

// current are the keys as the files have them now. Only one caller looks at the files at a time, and no other waits.
func (r *Ring) current() []key {
	if len(r.files) > 0 && r.mu.TryLock() {
		if age := r.now().Sub(r.looked); age < 0 || age >= fileEvery {
			r.look()
		}
		r.mu.Unlock()
	}
	return *r.keys.Load()
}

// look reads the files. Its caller has the lock, or the ring alone.
func (r *Ring) look() {
	r.looked = r.now()
	before := r.err
	content, err := r.read()
	if r.err = err; err == nil {
		r.content = content
	}
	switch {
	case err != nil && before == nil:
		r.log.Error("the files of seal.key_files cannot be read; the keys read last stay", "error", err)
	case err == nil && before != nil:
		r.log.Info("the files of seal.key_files can be read again")
	}
}

// read reads the files, and takes their keys if all are good.
func (r *Ring) read() (content [][]byte, err error) {
	for _, name := range r.files {
		text, err := plainfile.ReadPrivate(name, maxFile)
		if err != nil {
			return nil, fmt.Errorf("seal.key_files: %w; make a key with: (umask 077; head -c 32 /dev/urandom >%s)", err, name)
		}
		content = append(content, text)
	}
	if slices.EqualFunc(content, r.content, bytes.Equal) {
		return content, nil
	}
	var keys []key
	var seen [][]byte
	for n, name := range r.files {
		secret, err := parse(content[n])
		if err == nil && slices.ContainsFunc(seen, func(other []byte) bool { return bytes.Equal(other, secret) }) {
			err = errors.New("it holds the key of a file before it")
		}
		if err != nil {
			return nil, fmt.Errorf("seal.key_files: %s: %w; make a key with: (umask 077; head -c 32 /dev/urandom >%s)", name, err, name)
		}
		k, err := newKey(secret)
		if err != nil {
			return nil, err
		}
		keys, seen = append(keys, k), append(seen, secret)
	}
	r.keys.Store(&keys)
	return content, nil
}

// parse reads a key from the content of its file.
func parse(content []byte) ([]byte, error) {
	secret := content
	if len(content) != keySize {
		text := bytes.TrimRight(bytes.TrimRight(content, "\r\n"), "=")
		secret = make([]byte, base64.RawURLEncoding.DecodedLen(len(text)))
		n, err := base64.RawURLEncoding.Strict().Decode(secret, text)
		if err != nil || n != keySize {
			return nil, errors.New("it holds neither 32 bytes nor their base64url")
		}
	}
	if bytes.Count(secret, secret[:1]) == keySize { // such as the zeros that a crash leaves
		return nil, errors.New("it holds 32 bytes that are all the same, which are no key")
	}
	return secret, nil
}

func newKey(secret []byte) (key, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return key{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return key{}, err
	}
	digest := sha256.Sum256(append([]byte(version+" key id\x00"), secret...))
	root, err := hkdf.Extract(sha256.New, secret, []byte(version+" derive"))
	return key{digest[0], aead, root}, err
}
