// Package signing keeps the service's own keys and signs with them. [Open] reads
// or makes the keys of a data directory, [Keys.Sign] signs a JWS with the one in
// force, and [Keys.JWKS] is what others verify it with.
//
// The package has one algorithm, Ed25519, and knows nothing of what is signed: a typ keeps a signature for one purpose
// from passing for another. It does not decide how long a signature counts; the payload must hold that.
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

	"policy-service/pdp/internal/plainfile"
)

// File is the name, in the data directory, of the file with the keys.
const File = "signing.jwks"

// recheck is the longest time until a change of the file is noticed.
const recheck = time.Second

// Keys are the keys of one data directory, or of this process alone. They follow the file, so a rotation is in force
// within a second, without a restart.
type Keys struct {
	file string // "" if the key is in memory alone
	log  *slog.Logger

	mu      sync.Mutex // guards what follows
	current *Set
	content []byte // of the file when it was last read
	checked time.Time
}

// Open reads the keys of a data directory, and makes the first key if there is none. The directory must exist. Every
// change of the keys is logged.
func Open(dir string, log *slog.Logger) (*Keys, error) {
	file := filepath.Join(dir, File)
	set, content, err := read(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err := createFirst(file); err != nil {
			return nil, fmt.Errorf("cannot make the signing keys: %w; try another --data directory, or see to the permissions of this one", err)
		}
		set, content, err = read(file) // another process may have been first
	}
	if err != nil {
		return nil, err
	}
	return &Keys{file: file, log: log, current: set, content: content, checked: time.Now()}, nil
}

// read reads the keys of a file.
func read(file string) (set *Set, content []byte, err error) {
	content, err = plainfile.ReadPrivate(file, maxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // no reason to give up a key that may be sound
		return nil, content, fmt.Errorf("the signing keys in %s cannot be read: %w; see to the permissions of this file", file, err)
	}
	if err == nil {
		set, err = parse(content)
	}
	if err != nil {
		err = fmt.Errorf("the signing keys in %s cannot be used: %w; put back a copy, or move the file away to start with a new key, which no earlier signature verifies with", file, err)
	}
	return set, content, err
}

// Check returns the error with which [Open] would refuse the keys of a data directory. It changes nothing. A directory
// without keys is no error, because Open makes the first key.
func Check(dir string) error {
	_, _, err := read(filepath.Join(dir, File))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Ephemeral makes a key that ends with the process.
func Ephemeral() (*Keys, error) {
	set, err := generate(nil)
	return &Keys{current: set}, err
}

// generate makes a key that signs from now on.
func generate(before ed25519.PublicKey) (*Set, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return newSet(key, before)
}

// Current is the keys of this moment. One answer is made from one of these sets.
func (k *Keys) Current() *Set {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.file != "" && time.Since(k.checked) >= recheck {
		k.checked = time.Now()
		k.look()
	}
	return k.current
}

// look reads the file again. If the file cannot be used, look logs that and keeps the keys, because a signature by the
// previous key is worth more than none.
func (k *Keys) look() {
	set, content, err := read(k.file)
	if bytes.Equal(content, k.content) {
		return // if it cannot be used, that was logged before
	}
	k.content = content // nil if it cannot be read, so that its return counts as a change
	if err != nil {
		k.log.Error("the signing keys cannot be read; those before stay in force", "error", err)
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

// IDs are the ids of the keys, that of the key in force first.
func (k *Keys) IDs() (ids []string) {
	for _, key := range k.Current().keys {
		ids = append(ids, key.KeyID)
	}
	return ids
}

// JWKS is the public keys as a JWK Set. See [Set.JWKS].
func (k *Keys) JWKS() []byte { return k.Current().JWKS() }

// Rotate makes a new key that signs from now on, and returns its id. The key before it loses its private half, and
// verifies until the next rotation. To throw out a stolen key at once, rotate twice.
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
	old, _, err := read(file)
	if err != nil {
		return "", err
	}
	set, err := generate(old.key.Public().(ed25519.PublicKey))
	if err != nil {
		return "", err
	}
	if err := plainfile.Replace(file, set.encode()); err != nil {
		return "", fmt.Errorf("cannot write the signing keys: %w; the key before is still in force: see to the disk, and try again", err)
	}
	return set.KeyID(), nil
}
