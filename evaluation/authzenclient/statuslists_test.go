package authzenclient_test

import (
	"context"
	"crypto/ed25519"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/capability"
	"policy-service/pdp/pdptest"
)

// signedList is the text of a list, by the key whose bytes are all the same.
func signedList(t *testing.T, l *capability.StatusList, kid string, b byte) string {
	t.Helper()
	key := jose.JSONWebKey{Key: ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(b), 32))), KeyID: kid}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: key}, new(jose.SignerOptions).WithType(capability.TypeList))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(l.Claims())
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestStatusListsReplayed: once a list said that a token was revoked, none that is older, of another address, or by a key that
// is gone or another's takes that back, though its signature is good. When the list has ended nobody knows.
func TestStatusListsReplayed(t *testing.T) {
	t.Parallel()
	const place, ttl = 7, 15 * time.Second
	var mu sync.Mutex // guards what follows
	now, keys, list := pdptest.Now.Truncate(time.Second), jwkSet(jwk("a", 'a'), jwk("b", 'b')), ""
	locked := func(do func()) {
		mu.Lock()
		defer mu.Unlock()
		do()
	}
	url := stub(t, func(w http.ResponseWriter, r *http.Request) {
		locked(func() {
			if r.URL.Path == "/.well-known/jwks.json" {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(keys))
				return
			}
			if r.Header.Get("Cache-Control") != "no-cache" {
				t.Error("a cache may answer")
			}
			w.Header().Set("Content-Type", "application/statuslist+jwt")
			_, _ = w.Write([]byte(list))
		})
	})
	waits, goOn := make(chan time.Duration), make(chan bool)
	client := newClient(t, url, authzenclient.WithRequestIDs(nil, false), authzenclient.WithClock(func() (is time.Time) {
		locked(func() { is = now })
		return is
	}, func(ctx context.Context, d time.Duration) error {
		select {
		case waits <- d:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return ctx.Err()
	}))
	uri := url + "/v1/capabilities/status/list"
	lists := client.StatusLists(t.Context())
	says := func(kid string, of string, ago time.Duration, is capability.State) string {
		l := capability.NewStatusList(of, now.Add(-ago), ttl)
		l.Set(place, is)
		return signedList(t, l, kid, kid[0])
	}
	for n, step := range []struct {
		name  string
		later time.Duration
		list  func() string
		want  capability.State
		pause time.Duration
	}{
		{"the first", 0, func() string { return says("a", uri, 0, capability.StateValid) }, capability.StateValid, ttl},
		{"revoked", ttl, func() string { return says("a", uri, 0, capability.StateInvalid) }, capability.StateInvalid, ttl},
		{"an older one", ttl, func() string { return says("a", uri, ttl+time.Second, capability.StateValid) }, capability.StateInvalid, 5 * time.Second},
		{"of another name", 0, func() string { return says("a", uri+"2", 0, capability.StateValid) }, capability.StateInvalid, 5 * time.Second},
		{"of another service", 0, func() string {
			return says("a", "https://other.example/v1/capabilities/status/list", 0, capability.StateValid)
		}, capability.StateInvalid, 5 * time.Second},
		{"by a key of others", 0, func() string {
			l := capability.NewStatusList(uri, now, ttl)
			return signedList(t, l, "a", 'c')
		}, capability.StateInvalid, 5 * time.Second},
		{"its key is rotated away", time.Minute - 2*ttl, func() string { keys = jwkSet(jwk("b", 'b')); return says("a", uri, 0, capability.StateValid) }, capability.StateInvalid, 5 * time.Second},
		{"until it ends", ttl, func() string { return list }, capability.StateUnknown, 5 * time.Second},
		{"by the new key", 0, func() string { return says("b", uri, 0, capability.StateSuspended) }, capability.StateSuspended, ttl},
		{"valid again", ttl, func() string { return says("b", uri, 0, capability.StateValid) }, capability.StateValid, ttl},
	} {
		locked(func() {
			now = now.Add(step.later)
			list = step.list()
		})
		if n > 0 {
			goOn <- true
			if pause := <-waits; pause != step.pause {
				t.Errorf("%s: fetched again after %v, want %v", step.name, pause, step.pause)
			}
		}
		state, err := lists.Of(t.Context(), capability.Listed{URI: uri, Index: place})
		if state != step.want || (err != nil) != (step.want == capability.StateUnknown) {
			t.Errorf("%s: %v, %v; want %v", step.name, state, err, step.want)
		}
		if n == 0 {
			<-waits
		}
	}
}
