package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"policy-service/pdp/plainfile"
)

// keysFromFile reads a jwks_file again and again. It compares content, so that
// edits in place, renames and the symlinks of Kubernetes are all the same to it.
type keysFromFile struct {
	name string
	now  func() time.Time
	log  *slog.Logger

	mu      sync.Mutex
	looked  time.Time
	content []byte
	set     []jose.JSONWebKey
	good    time.Time // when set was what the file said
	err     error
}

// What stands in the file counts after fileEvery. Keys outlive a file that
// cannot be read for fileGrace: that long takes a write in place. Whoever takes
// the file away wants nobody to pass.
const (
	fileEvery = time.Second
	fileGrace = 2 * time.Second
	maxJWKS   = 1 << 20
)

func newKeysFromFile(name string, options JWTOptions) (*keysFromFile, error) {
	f := &keysFromFile{name: name, now: options.Now, log: options.Logger}
	f.look(f.now())
	if f.err == nil && len(f.set) == 0 {
		f.err = errors.New("it holds no public key that can be used")
	}
	if f.err != nil {
		return nil, fmt.Errorf("jwks_file %s: %w; put a JWK Set with the issuer's public keys there, or leave jwks_file out for discovery", name, f.err)
	}
	return f, nil
}

func (f *keysFromFile) keys(_ context.Context, fits func(jose.JSONWebKey) bool) ([]jose.JSONWebKey, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if age := now.Sub(f.looked); age < 0 || age >= fileEvery {
		f.look(now)
	}
	if f.err != nil && now.Sub(f.good) > fileGrace {
		return nil, f.err
	}
	return choose(f.set, fits), nil
}

func (f *keysFromFile) look(now time.Time) {
	f.looked = now
	before := f.err
	content, err := plainfile.Read(f.name, maxJWKS)
	if err == nil && (f.content == nil || !bytes.Equal(content, f.content)) {
		var set []jose.JSONWebKey
		if set, err = parseKeys(content); err == nil {
			f.set, f.content = set, content
		}
	}
	if f.err = err; err == nil {
		f.good = now
	}
	logChange(f.log.With("file", f.name), before, err,
		"the jwks_file cannot be read; in a moment none of its keys count", "the jwks_file can be read again")
}

// logChange logs that something fails from now on, or works again. A state that stays is not logged again.
func logChange(log *slog.Logger, before, now error, fails, works string) {
	switch {
	case now != nil && before == nil:
		log.Error(fails, "error", now)
	case now == nil && before != nil:
		log.Info(works)
	}
}
