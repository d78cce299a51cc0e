package authzenclient

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// How long the keys of the service are kept.
const (
	keysFresh = time.Minute // as the service says
	keysAgain = 10 * time.Second
	// keysKept is how long they count while they cannot be fetched. A key that was stolen, and rotated away, ends even if
	// its thief keeps the new ones from coming.
	keysKept = 15 * time.Minute

	maxKeys, maxKeySet = 16, 64 << 10
)

// Keys are the keys that the service signs with, which it publishes. They are a [capability.Keys].
type Keys struct {
	client *Client

	mu      sync.Mutex // guards the following
	keys    map[string]ed25519.PublicKey
	fetched time.Time     // when those came
	tried   time.Time     // when they were asked for last
	failure *Error        // of that attempt, nil if there was none
	asking  chan struct{} // of an attempt that is under way, closed at its end
}

// Keys are those of the service whose PDP this is. All callers of one client share them.
//
// They are fetched when one is looked for: again after a minute, and at most each 10 s for a key that is not among them. A
// key that is not among those that came last is not found. If they cannot be fetched, those that came before count for a
// quarter of an hour, and to look for another is an error.
func (c *Client) Keys() *Keys { return c.keys }

// Key implements [capability.Keys].
func (k *Keys) Key(ctx context.Context, kid string) (key ed25519.PublicKey, found bool, err error) {
	for waited := false; ; waited = true {
		key, found, failure, asking := k.look(ctx, kid, !waited)
		switch {
		case asking == nil && failure != nil: // a nil *Error would be an error that is not nil
			return nil, false, failure
		case asking == nil:
			return key, found, nil
		}
		select {
		case <-asking:
		case <-ctx.Done():
			e := broken(ctx, ctx.Err(), nil, false)
			e.Op = opKeys
			return nil, false, e
		}
	}
}

const opKeys = "keys"

// look finds a key among those that are known. If that is not enough it starts a fetch, and returns its end.
func (k *Keys) look(ctx context.Context, kid string, mayFetch bool) (ed25519.PublicKey, bool, *Error, chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.client.clock.now()
	key, found := k.keys[kid]
	age := now.Sub(k.fetched)
	if found && 0 <= age && age < keysFresh {
		return key, true, nil, nil
	}
	since := now.Sub(k.tried)
	switch due := since < 0 || since >= keysAgain; {
	case !mayFetch:
	case k.asking == nil && due:
		k.tried, k.asking = now, make(chan struct{})
		go k.fetch(context.WithoutCancel(ctx), k.asking) // others wait for it, too
		return nil, false, nil, k.asking
	case k.asking != nil:
		return nil, false, nil, k.asking
	}
	switch {
	case k.failure == nil:
		return key, found, nil, nil
	case found && 0 <= age && age < keysKept:
		return key, true, nil, nil
	}
	return nil, false, k.failure, nil
}

func (k *Keys) fetch(ctx context.Context, done chan struct{}) {
	c, keys := k.client, map[string]ed25519.PublicKey(nil)
	a := asking{op: opKeys, url: c.endpoint.Load().keys, method: http.MethodGet, public: true, repeat: unanswered, breaker: &breaker{}}
	_, err := c.ask(ctx, a, func(r reply) (err *Error) {
		keys, err = readKeys(r.body)
		return err
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failure = err; err == nil {
		k.keys, k.fetched = keys, k.tried
	} else {
		err.Op = opKeys
	}
	k.asking = nil
	close(done)
}

// readKeys reads the keys of Ed25519 of a JWK Set (RFC 7517). Others are passed over: the service signs with none.
func readKeys(body []byte) (map[string]ed25519.PublicKey, *Error) {
	var set struct {
		Keys []struct {
			Type  string `json:"kty"`
			Curve string `json:"crv"`
			ID    string `json:"kid"`
			X     string `json:"x"`
		} `json:"keys"`
	}
	if len(body) > maxKeySet || json.Unmarshal(body, &set) != nil || len(set.Keys) > maxKeys {
		return nil, odd("it is no JWK Set, or too large a one")
	}
	keys := map[string]ed25519.PublicKey{}
	for _, one := range set.Keys {
		if one.Type != "OKP" || one.Curve != "Ed25519" {
			continue
		}
		x, err := base64.RawURLEncoding.Strict().DecodeString(one.X)
		if _, twice := keys[one.ID]; err != nil || len(x) != ed25519.PublicKeySize || one.ID == "" || twice {
			return nil, odd("a key of Ed25519 has no kid of its own, or no x of 32 bytes")
		}
		keys[one.ID] = x
	}
	if len(keys) == 0 {
		return nil, odd("it has no key of Ed25519")
	}
	return keys, nil
}
