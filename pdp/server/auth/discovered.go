package auth

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"
)

// discovered are the keys of an issuer that publishes them. They are fetched
// when a token needs them, by at most one fetch at a time.
type discovered struct {
	issuer string
	client *http.Client
	now    func() time.Time
	log    *slog.Logger
	limit  *rate.Limiter
	known  time.Duration // for how long a key that was withdrawn may count; see keysFresh

	mu      sync.Mutex // guards what follows
	set     []jose.JSONWebKey
	fetched time.Time // when set was what the issuer said; zero for never
	err     error     // of the last fetch
	flight  chan struct{}
}

// A key that the issuer has withdrawn stops within jwks_refresh (keysKnown unless
// given) while the issuer answers, and within a part of that (keysFresh) where tokens
// come often. While it does not, its last keys are good for keysKept, and then none are.
//
// Tokens with a key id that nobody knows cost the issuer fetchBurst fetches, and
// then one every fetchEvery, however many come.
const (
	keysFresh  = 5 // th part of jwks_refresh
	keysKnown  = 5 * time.Minute
	keysKept   = time.Hour
	fetchEvery = 10 * time.Second
	fetchBurst = 3
)

func newDiscovered(config JWTIssuer, client *http.Client, options JWTOptions) *discovered {
	return &discovered{
		issuer: config.Issuer, client: client, now: options.Now, log: options.Logger,
		limit: rate.NewLimiter(rate.Every(fetchEvery), fetchBurst), known: cmp.Or(config.JWKSRefresh, keysKnown),
	}
}

// knows takes over what another knows of the same issuer.
func (d *discovered) knows(before *discovered) *discovered {
	before.mu.Lock()
	defer before.mu.Unlock()
	d.set, d.fetched, d.err = before.set, before.fetched, before.err
	return d
}

func (d *discovered) keys(ctx context.Context, fits func(jose.JSONWebKey) bool) ([]jose.JSONWebKey, error) {
	chosen, age, failing := d.choose(fits)
	if len(chosen) > 0 && age < d.known/keysFresh {
		return chosen, nil
	}
	landed := d.fetch()
	// A known key is not held up by an issuer that does not answer.
	if len(chosen) == 0 || age >= keysKept || age >= d.known && !failing {
		select {
		case <-landed:
		case <-ctx.Done():
		}
		chosen, age, _ = d.choose(fits)
	}
	if age >= keysKept {
		return nil, errors.New("the issuer's keys are not known")
	}
	return chosen, nil
}

// choose gives the keys that fit, how old what we know is, and whether the last
// fetch failed. What was never known is older than anything.
func (d *discovered) choose(fits func(jose.JSONWebKey) bool) ([]jose.JSONWebKey, time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	age := d.now().Sub(d.fetched)
	if d.fetched.IsZero() || age < 0 {
		age = keysKept
	}
	return choose(d.set, fits), age, d.err != nil
}

var landedAlready = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// fetch starts a fetch, or joins the one under way, or does nothing where there
// were too many. It outlives the request that wanted it: others wait for it too.
func (d *discovered) fetch() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flight != nil {
		return d.flight
	}
	if !d.limit.AllowN(d.now(), 1) {
		return landedAlready
	}
	d.flight = make(chan struct{})
	go d.fly(d.flight)
	return d.flight
}

func (d *discovered) fly(landed chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	started := d.now()
	set, err := fetchKeys(ctx, d.client, d.issuer)

	d.mu.Lock()
	before := d.err
	if d.err = err; err == nil {
		d.set, d.fetched = set, started
	}
	d.flight = nil
	d.mu.Unlock()
	defer close(landed)

	logChange(d.log.With("issuer", d.issuer), before, err,
		"the keys of an issuer cannot be fetched; those known count for an hour", "the keys of an issuer can be fetched again")
}
