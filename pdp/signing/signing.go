// Package signing keeps the service's own keys and signs with them. [Open] reads
// or makes the keys of a data directory, [Keys.Sign] signs a JWS with the one in
// force, and [Keys.JWKS] is what others verify it with.
//
// The package knows one algorithm, Ed25519, and nothing of what is signed: a typ
// keeps signatures for one purpose from passing for another. It does not decide
// how long a signature counts; what is signed says so itself.
package signing

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// File is the name, in the data directory, of the file with the keys.
const File = "signing.jwks"

// recheck is how long a change of the file may go unnoticed.
const recheck = time.Second

// Keys are the keys of one data directory, or of this process alone. They follow
// the file: a rotation counts within a second, without a restart.
type Keys struct {
	file string // "" where the key is in memory alone
	log  *slog.Logger

	mu      sync.Mutex // guards what follows
	current *Set
	content []byte // of the file when it was last looked at
	checked time.Time
}

// Open reads the keys of a data directory, and makes the first one where there is
// none yet. The directory must exist. The logger is told of every change.
func Open(dir string, log *slog.Logger) (*Keys, error) {
	file := filepath.Join(dir, File)
	content, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err = createFirst(file); err == nil {
			content, err = readFile(file) // perhaps another process's, which was first
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read or make the signing keys: %w; try another --data directory, or see to the permissions of this one", err)
	}
	set, err := parse(content)
	if err != nil {
		return nil, unusable(file, err)
	}
	return &Keys{file: file, log: log, current: set, content: content, checked: time.Now()}, nil
}

func unusable(file string, err error) error {
	return fmt.Errorf("the signing keys in %s cannot be used: %w; put back a copy, or move the file away to start with a new key, which no earlier signature verifies with", file, err)
}

// Ephemeral makes a key that ends with the process.
func Ephemeral() (*Keys, error) {
	key, err := generate()
	if err != nil {
		return nil, err
	}
	set, err := newSet(key, nil)
	return &Keys{current: set}, err
}

func generate() (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return key, err
}

// Current is the keys of this moment: what one answer is made from.
func (k *Keys) Current() *Set {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.file != "" && time.Since(k.checked) >= recheck {
		k.checked = time.Now()
		k.look()
	}
	return k.current
}

// look reads the file again. What cannot be used changes nothing but the log: a
// signature by the key before is worth more than none.
func (k *Keys) look() {
	content, err := readFile(k.file)
	if err == nil && bytes.Equal(content, k.content) {
		return
	}
	var set *Set
	if err == nil {
		k.content = content // looked at, whatever comes of it: told once
		set, err = parse(content)
	} else if k.content != nil {
		k.content = nil // so that its return counts as a change
	} else {
		return // told before
	}
	if err != nil {
		k.log.Error("the signing keys cannot be read; those before stay in force", "file", k.file, "error", err)
		return
	}
	if set.KeyID() != k.current.KeyID() {
		k.log.Info("signing key in force", "kid", set.KeyID())
	}
	k.current = set
}

// Sign signs with the key in force. See [Set.Sign].
func (k *Keys) Sign(payload []byte, typ string) (jws string, err error) {
	return k.Current().Sign(payload, typ)
}

// Verify checks a signature by one of the keys. See [Set.Verify].
func (k *Keys) Verify(jws, typ string) (payload []byte, err error) {
	return k.Current().Verify(jws, typ)
}

// JWKS is the public keys as a JWK Set. See [Set.JWKS].
func (k *Keys) JWKS() []byte { return k.Current().JWKS() }

// Rotate makes a new key the one that signs, and returns its id. The key it
// replaces loses its private half, and goes on verifying until the next rotation:
// rotating twice is how a key that was stolen is thrown out at once.
func Rotate(dir string) (kid string, err error) {
	file := filepath.Join(dir, File)
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("there are no signing keys to rotate: %w; serve makes the first one when it starts, so check --data", err)
	}
	unlock, err := lock(file)
	if err != nil {
		return "", err
	}
	defer unlock()
	content, err := readFile(file)
	if err != nil {
		return "", fmt.Errorf("cannot read the signing keys: %w; see to the permissions of the directory", err)
	}
	old, err := parse(content)
	if err != nil {
		return "", unusable(file, err)
	}
	key, err := generate()
	if err != nil {
		return "", err
	}
	set, err := newSet(key, old.key.Public().(ed25519.PublicKey))
	if err != nil {
		return "", err
	}
	if err := write(file, set.encode()); err != nil {
		return "", fmt.Errorf("cannot write the signing keys: %w; the key before is still in force: see to the disk, and try again", err)
	}
	return set.KeyID(), nil
}
