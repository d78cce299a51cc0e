package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"

	"policy-service/pdp/internal/plainfile"
)

// keySet are the keys of an issuer, from discovery or from a jwks_file. They are loaded when a token needs them, by at
// most one load at a time. The key set of go-oidc never forgets a key that the issuer has withdrawn, and asks the issuer
// for each token with an unknown key id.
type keySet struct {
	load        func(context.Context) ([]jose.JSONWebKey, error)
	now         func() time.Time
	log         *slog.Logger
	fails       string // for the log
	limit       *rate.Limiter
	fresh       time.Duration // for how long the keys are not loaded again
	known, kept time.Duration // for how long they count while loads succeed, and while they fail

	mu     sync.Mutex // guards the fields below
	set    []jose.JSONWebKey
	loaded time.Time // when set was right; zero for never
	err    error     // of the last load
	flight chan struct{}
}

// A key that the issuer has withdrawn stops within keysKnown while the issuer answers, and within keysFresh where tokens come
// often. While it does not, its last keys are good for keysKept, and then none are.
//
// Tokens with an unknown key id cost the issuer fetchBurst fetches, and then one every fetchEvery, however many come.
const (
	keysFresh  = time.Minute
	keysKnown  = 5 * time.Minute
	keysKept   = time.Hour
	fetchEvery = 10 * time.Second
	fetchBurst = 3
)

// An edit of a jwks_file counts after fileEvery. Keys outlive a file that cannot be read for fileGrace: that long takes a
// write in place. After the file is removed no token passes.
const (
	fileEvery = time.Second
	fileGrace = 2 * time.Second
	maxJWKS   = 1 << 20
)

// newKeySet reads the jwks_file, if there is one: without a key in it there is no start.
func newKeySet(config JWTIssuer, client *http.Client, options JWTOptions) (*keySet, error) {
	k := &keySet{
		load: func(ctx context.Context) ([]jose.JSONWebKey, error) { return fetchKeys(ctx, client, config.Issuer) },
		now:  options.Now, log: options.Logger.With("issuer", config.Issuer), fails: "the keys of an issuer cannot be fetched; those known count for an hour",
		limit: rate.NewLimiter(rate.Every(fetchEvery), fetchBurst),
		fresh: keysFresh, known: keysKnown, kept: keysKept,
	}
	if config.JWKSFile == "" {
		return k, nil
	}
	k.log = k.log.With("file", config.JWKSFile)
	k.load, k.fails = fileLoader(config.JWKSFile), "the jwks_file cannot be read; in a moment none of its keys count"
	k.limit, k.fresh, k.known, k.kept = rate.NewLimiter(rate.Every(fileEvery), 1), fileEvery, fileEvery, fileGrace
	k.set, k.err = k.load(context.Background())
	if k.err == nil && len(k.set) == 0 {
		k.err = errors.New("it holds no public key that can be used")
	}
	if k.err != nil {
		return nil, fmt.Errorf("jwks_file %s: %w; put a JWK Set with the issuer's public keys there, or leave jwks_file out for discovery", config.JWKSFile, k.err)
	}
	k.loaded = k.now()
	return k, nil
}

// fileLoader reads a jwks_file again and again. It compares content, so that edits in place, renames and the symlinks of
// Kubernetes are all the same to it.
func fileLoader(name string) func(context.Context) ([]jose.JSONWebKey, error) {
	var read []byte
	var set []jose.JSONWebKey
	return func(context.Context) ([]jose.JSONWebKey, error) {
		content, err := plainfile.Read(name, maxJWKS)
		if err != nil || read != nil && bytes.Equal(content, read) {
			return set, err
		}
		keys, err := parseKeys(content)
		if err == nil {
			set, read = keys, content
		}
		return keys, err
	}
}

// keys are those that fit. If none does it may look for new ones. An error means that the keys are not known.
func (k *keySet) keys(ctx context.Context, fits func(jose.JSONWebKey) bool) ([]jose.JSONWebKey, error) {
	chosen, age, failing := k.choose(fits)
	if len(chosen) > 0 && age < k.fresh {
		return chosen, nil
	}
	landed := k.start()
	// A known key is not held up by an issuer that does not answer.
	if len(chosen) == 0 || age >= k.kept || age >= k.known && !failing {
		select {
		case <-landed:
		case <-ctx.Done():
		}
		chosen, age, _ = k.choose(fits)
	}
	if age >= k.kept {
		return nil, errors.New("the issuer's keys are not known")
	}
	return chosen, nil
}

// choose returns the keys that fit, their age, and whether the last load failed. Keys that were never known are older than
// anything.
func (k *keySet) choose(fits func(jose.JSONWebKey) bool) (chosen []jose.JSONWebKey, age time.Duration, failing bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if age = k.now().Sub(k.loaded); k.loaded.IsZero() || age < 0 {
		age = k.kept
	}
	for _, key := range k.set {
		if fits(key) {
			chosen = append(chosen, key)
		}
	}
	return chosen, age, k.err != nil
}

var landedAlready = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// start starts a load, or joins the one under way, or does nothing if there were too many. A load outlives the request that
// wanted it: others wait for it, too.
func (k *keySet) start() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.flight != nil {
		return k.flight
	}
	if !k.limit.AllowN(k.now(), 1) {
		return landedAlready
	}
	k.flight = make(chan struct{})
	go k.fly(k.flight)
	return k.flight
}

func (k *keySet) fly(landed chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	defer close(landed)
	started := k.now()
	set, err := k.load(ctx)

	k.mu.Lock()
	before := k.err
	if k.err = err; err == nil {
		k.set, k.loaded = set, started
	}
	k.flight = nil
	k.mu.Unlock()
	switch { // a state that stays is not logged again
	case err != nil && before == nil:
		k.log.Error(k.fails, "error", err)
	case err == nil && before != nil:
		k.log.Info("the keys can be loaded again")
	}
}
