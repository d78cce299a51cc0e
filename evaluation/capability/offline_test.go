package capability_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/pdptest/bound"
)

const listURI = "https://pdp.example.com/v1/capabilities/status/abc"

// offline is a token that has a place in the list.
func offline(index int) capability.Token {
	return granted(func(t *capability.Token) {
		t.Verify, t.Status = capability.Offline, capability.Listed{URI: listURI, Index: index}
	})
}

// listed is the list, in which 7 is invalid and 9 is suspended.
func listed() *capability.StatusList {
	l := capability.NewStatusList(listURI, now, 15*time.Second)
	l.Set(7, capability.StateInvalid)
	l.Set(9, capability.StateSuspended)
	return l
}

func signedList(l *capability.StatusList) string {
	return signedBy(service, kidOf(service), capability.TypeList, string(l.Claims()))
}

// packed is a list with these bytes as ZLIB compresses them.
func packed(b []byte) string {
	var to bytes.Buffer
	w, _ := zlib.NewWriterLevel(&to, zlib.BestCompression)
	_, _ = w.Write(b)
	_ = w.Close()
	return base64.RawURLEncoding.EncodeToString(to.Bytes())
}

// listVector is one text that is a status list, or is none.
type listVector struct {
	Name string `json:"name"`
	List string `json:"list"`
	// States are those of some places: 0 for valid, 1 for invalid, 2 for suspended. There are none if it is no list.
	States map[string]int `json:"states,omitempty"`
}

func listVectors() (all []listVector) {
	good := listed()
	states := map[string]int{"0": 0, "7": 1, "8": 0, "9": 2, "65535": 0}
	all = append(all, listVector{"a list", signedList(good), states})
	claims := string(good.Claims())
	with := func(old, new string) string {
		if !strings.Contains(claims, old) {
			panic("no " + old + " in " + claims)
		}
		return signedBy(service, kidOf(service), capability.TypeList, strings.Replace(claims, old, new, 1))
	}
	_, lst, _ := strings.Cut(claims, `"lst":"`)
	lst, _, _ = strings.Cut(lst, `"`)
	all = append(all, listVector{"more claims are passed over", with(`"sub"`, `"more":{"a":1},"sub"`), states})
	for name, text := range ordered(map[string]string{
		"another type":        signedBy(service, kidOf(service), capability.TypeToken, claims),
		"of another key":      signedBy(seeded(9), kidOf(service), capability.TypeList, claims),
		"of an unknown key":   signedBy(seeded(9), kidOf(seeded(9)), capability.TypeList, claims),
		"a header more":       raw(service, `{"alg":"EdDSA","jku":"https://evil.example.com","kid":"`+kidOf(service)+`","typ":"statuslist+jwt"}`, claims),
		"no algorithm":        raw(service, `{"alg":"none","kid":"`+kidOf(service)+`","typ":"statuslist+jwt"}`, claims),
		"a line break":        signedList(good) + "\n",
		"a token":             signed(offline(0)),
		"one bit a place":     with(`"bits":2`, `"bits":1`),
		"no exp":              with(`"exp":`, `"expires":`),
		"no sub":              with(`"sub":`, `"subject":`),
		"exp is text":         with(`"exp":1763650360`, `"exp":"1763650360"`),
		"ttl is 0":            with(`"ttl":15`, `"ttl":0`),
		"a member twice":      with(`"sub":`, `"sub":"x","sub":`),
		"a bomb":              with(lst, packed(make([]byte, 8<<20))),
		"a byte too many":     with(lst, packed(make([]byte, capability.ListSize/4+1))),
		"truncated":           with(lst, lst[:len(lst)-8]),
		"of another checksum": with(lst, lst[:len(lst)-6]+"AAAAAA"),
		"not compressed":      with(lst, base64.RawURLEncoding.EncodeToString(make([]byte, 64))),
		"no list":             with(`"lst":"`+lst+`"`, `"lst":5`),
		"too large":           with(lst, strings.Repeat("A", capability.MaxList)),
		"empty":               "",
	}) {
		all = append(all, listVector{Name: name, List: text})
	}
	return all
}

// TestStatusLists: of a list each place has its state, and what is no list says nothing.
func TestStatusLists(t *testing.T) {
	t.Parallel()
	for _, v := range listVectors() {
		l, err := capability.ReadStatusList(t.Context(), published, v.List)
		if (err == nil) != (v.States != nil) || (l != nil) != (err == nil) {
			t.Errorf("%s: %v, %v", v.Name, l, err)
			continue
		}
		for place, want := range v.States {
			index := 0
			_, _ = fmt.Sscan(place, &index)
			if got := l.State(index, now); got != capability.State(want+1) || l.URI != listURI || l.TTL != 15*time.Second {
				t.Errorf("%s: place %s is %d, want %d", v.Name, place, got, want+1)
			}
		}
	}
	short, err := capability.ReadStatusList(t.Context(), published, signedList(listed()))
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]capability.State{
		"when it has ended": short.State(0, now.Add(time.Minute)),
		"before the first":  short.State(-1, now),
		"after the last":    short.State(capability.ListSize, now),
	} {
		if got != capability.StateUnknown {
			t.Errorf("%s: %d", name, got)
		}
	}
	if got := short.State(0, now.Add(time.Minute-time.Second)); got != capability.StateValid {
		t.Errorf("a second before its end: %d", got)
	}
	small := signedBy(service, kidOf(service), capability.TypeList, `{"exp":1763650360,"iat":1763650300,"status_list":{"bits":2,"lst":"`+packed([]byte{0b11_10_01_00})+`"},"sub":"x","ttl":15}`)
	l, err := capability.ReadStatusList(t.Context(), published, small)
	if err != nil {
		t.Fatal(err)
	}
	for index, want := range []capability.State{capability.StateValid, capability.StateInvalid, capability.StateSuspended, capability.StateUnknown, capability.StateUnknown} {
		if got := l.State(index, now); got != want {
			t.Errorf("place %d of a small list is %d, want %d", index, got, want)
		}
	}
}

// FuzzStatusList: nothing but the service's own list is one, and none of it takes much memory.
func FuzzStatusList(f *testing.F) {
	for _, v := range listVectors() {
		_, payload, ok := strings.Cut(v.List, ".")
		payload, _, _ = strings.Cut(payload, ".")
		if b, err := base64.RawURLEncoding.DecodeString(payload); ok && err == nil && len(b) < 4096 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, claims []byte) {
		l, err := capability.ReadStatusList(t.Context(), published, raw(service, `{"alg":"EdDSA","kid":"`+kidOf(service)+`","typ":"statuslist+jwt"}`, string(claims)))
		if (l == nil) != (err != nil) {
			t.Fatalf("%s: %v, %v", claims, l, err)
		}
		if err != nil {
			return
		}
		again, err := capability.ReadStatusList(t.Context(), published, signedList(l))
		if err != nil || !again.SaysSame(l) || again.URI != l.URI || !again.Expires.Equal(l.Expires) {
			t.Errorf("%s becomes another list: %v", claims, err)
		}
		if _, err := capability.ReadStatusList(t.Context(), published, raw(seeded(9), `{"alg":"EdDSA","kid":"`+kidOf(service)+`","typ":"statuslist+jwt"}`, string(claims))); err == nil {
			t.Error("a list of another key is taken")
		}
	})
}

// status answers for one list, and counts.
type status struct {
	list  *capability.StatusList
	asked atomic.Int64
	err   error
}

func (s *status) Of(_ context.Context, at capability.Listed) (capability.State, error) {
	s.asked.Add(1)
	if s.err != nil {
		return capability.StateUnknown, s.err
	}
	if at.URI != s.list.URI {
		return capability.StateUnknown, nil
	}
	return s.list.State(at.Index, now), nil
}

func offlineVerifier(t testing.TB, change func(*capability.OfflineOptions)) *capability.OfflineVerifier {
	t.Helper()
	o := capability.OfflineOptions{
		Options: capability.Options{
			Issuer: issuer, Audience: []string{gateway}, Servers: []string{"agent-b"}, Keys: published, Now: func() time.Time { return now },
		},
		Status: &status{list: listed()}, Alone: true, Before: now.Add(-time.Hour),
	}
	if change != nil {
		change(&o)
	}
	v, err := capability.NewOfflineVerifier(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestOfflineVerifier: rows 2 to 4, 11, 12, 16 and 31 of the threats.
func TestOfflineVerifier(t *testing.T) {
	t.Parallel()
	at := func(index int) capability.Call {
		c := good(agent)
		c.token = signed(offline(index))
		return c.call()
	}
	alone := func(o *capability.OfflineOptions) {
		began := now.Add(-time.Hour)
		o.Now = func() time.Time { defer func() { began = now }(); return began }
	}
	for name, c := range map[string]struct {
		call   capability.Call
		change func(*capability.OfflineOptions)
		want   capability.Code
	}{
		"good":                     {at(0), alone, ""},
		"11: revoked":              {at(7), alone, capability.Revoked},
		"12: suspended":            {at(9), alone, capability.Suspended},
		"3: made before the start": {at(0), nil, capability.NonceRequired},
		"4: one of several":        {at(0), func(o *capability.OfflineOptions) { alone(o); o.Alone = false }, capability.NonceRequired},
		"16: online":               {good(agent).call(), alone, capability.OnlineOnly},
		"31: no list":              {at(0), func(o *capability.OfflineOptions) { alone(o); o.Status = &status{err: errNoAnswer} }, capability.StatusStale},
		"31: the list has ended": {at(0), func(o *capability.OfflineOptions) {
			alone(o)
			o.Status = &status{list: capability.NewStatusList(listURI, now.Add(-time.Minute), 15*time.Second)}
		}, capability.StatusStale},
		"31: another list": {at(0), func(o *capability.OfflineOptions) {
			alone(o)
			o.Status = &status{list: capability.NewStatusList("x", now, time.Minute)}
		}, capability.StatusStale},
		"2: no room to remember it": {at(0), func(o *capability.OfflineOptions) { alone(o); o.Seen = fullSeen{} }, capability.Unavailable},
	} {
		checked, err := offlineVerifier(t, c.change).Verify(t.Context(), c.call)
		if got := codeOf(t, err); got != c.want || (checked.Token.ID != "") != (c.want == "") {
			t.Errorf("%s: %q (%v), want %q", name, got, err, c.want)
		}
	}

	// Each refusal of a good token or proof is what Check refuses, and nothing is remembered of it.
	s := &status{list: listed()}
	v := offlineVerifier(t, func(o *capability.OfflineOptions) { alone(o); o.Status = s })
	for _, c := range trials() {
		if c.now != now.Unix() || c.want == "" || len(c.audience) == 0 || c.servers[0] != "agent-b" {
			continue
		}
		if _, err := v.Verify(t.Context(), c.call()); codeOf(t, err) != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if n := s.asked.Load(); n != 0 {
		t.Errorf("the list was looked at %d times for calls that are not covered", n)
	}
}

// fullSeen has no room.
type fullSeen struct{}

func (fullSeen) First(context.Context, string, evaluation.Ref, [sha256.Size]byte, time.Time) (bool, error) {
	return false, capability.ErrFull
}

// TestOfflineOnce: of many at once, each with the nonce of this verifier, one is taken, and a verifier that begins anew takes
// none of them.
func TestOfflineOnce(t *testing.T) {
	t.Parallel()
	several := func(o *capability.OfflineOptions) { o.Alone = false }
	v := offlineVerifier(t, several)
	c := good(agent)
	c.token = signed(offline(0))
	_, err := v.Verify(t.Context(), c.call())
	var refusal *capability.Refusal
	if !errors.As(err, &refusal) || refusal.Nonce == "" {
		t.Fatalf("without a nonce: %v", err)
	}
	made := claim(staging)
	made.Nonce = refusal.Nonce
	call := c.call()
	call.Proof = proved(agent, made)
	var taken atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			checked, err := v.Verify(t.Context(), call)
			if code := codeOf(t, err); code == "" && checked.Nonce != "" {
				taken.Add(1)
			} else if code != capability.ProofReplayed {
				t.Errorf("another: %v", err)
			}
		})
	}
	all.Wait()
	if taken.Load() != 1 {
		t.Errorf("taken %d times", taken.Load())
	}
	if _, err := offlineVerifier(t, several).Verify(t.Context(), call); codeOf(t, err) != capability.NonceRequired {
		t.Errorf("after a start: %v", err)
	}
}

// TestOfflineOptions: what would check less than it seems to is refused.
func TestOfflineOptions(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*capability.OfflineOptions){
		"no status":   func(o *capability.OfflineOptions) { o.Status = nil },
		"no audience": func(o *capability.OfflineOptions) { o.Audience = nil },
		"no issuer":   func(o *capability.OfflineOptions) { o.Issuer = "" },
		"no keys":     func(o *capability.OfflineOptions) { o.Keys = nil },
		"no before":   func(o *capability.OfflineOptions) { o.Alone = true },
	} {
		o := capability.OfflineOptions{
			Options: capability.Options{Issuer: issuer, Audience: []string{gateway}, Keys: published}, Status: &status{list: listed()},
		}
		change(&o)
		if _, err := capability.NewOfflineVerifier(o); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// rotating is a service that has its key until it rotates it twice.
type rotating struct{ gone atomic.Bool }

func (r *rotating) Key(ctx context.Context, kid string) (ed25519.PublicKey, bool, error) {
	if r.gone.Load() {
		return nil, false, nil
	}
	return published.Key(ctx, kid)
}

// TestOfflineAfterRotation (row 32): a token that was verified before ends with the key.
func TestOfflineAfterRotation(t *testing.T) {
	t.Parallel()
	var keys rotating
	v := verifier(func(o *capability.Options) { o.Keys = &keys })
	c := good(agent)
	for n, want := range []capability.Code{"", "", capability.BadSignature} {
		keys.gone.Store(n == 2)
		if _, err := v.Check(t.Context(), c.call()); codeOf(t, err) != want {
			t.Errorf("call %d: %v, want %q", n, err, want)
		}
	}
}

// TestTokenForOffline: one for offline has a place in a list, and no uses that are counted.
func TestTokenForOffline(t *testing.T) {
	t.Parallel()
	token := offline(capability.ListSize - 1)
	text, err := token.Claims()
	if err != nil {
		t.Fatal(err)
	}
	if got, refusal := capability.ParseClaims(text); refusal != nil || got.Status != token.Status || got.Verify != capability.Offline {
		t.Errorf("%s is read as %+v, %v", text, got, refusal)
	}
	for name, change := range map[string]func(*capability.Token){
		"without a place":  func(t *capability.Token) { t.Status = capability.Listed{} },
		"beyond the list":  func(t *capability.Token) { t.Status.Index = capability.ListSize },
		"before the list":  func(t *capability.Token) { t.Status.Index = -1 },
		"with max_uses":    func(t *capability.Token) { t.MaxUses = 5 },
		"somewhere":        func(t *capability.Token) { t.Verify = "somewhere" },
		"without verify":   func(t *capability.Token) { t.Verify = "" },
		"without its list": func(t *capability.Token) { t.Status.URI = "" },
	} {
		token := offline(3)
		if change(&token); name != "" {
			if text, err := token.Claims(); err == nil {
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}

// TestAskForOffline: it is part of what the proof is about, and nobody counts uses offline.
func TestAskForOffline(t *testing.T) {
	t.Parallel()
	decode := func(more string) (capability.Ask, error) {
		return capability.DecodeAsk([]byte(strings.Replace(strings.Replace(askBody, "gTl3DyAqD_RqGQcpM5PkSoTv4tAw8XADOzl2vXaDFoQ", xOf(agent.Key()), 1), "{", "{"+more, 1)), evaluation.DefaultLimits())
	}
	digests := map[string]bool{}
	for more, want := range map[string]bool{`"offline":true,`: true, `"offline":false,`: false, ``: false, `"offline":null,`: false} {
		a, err := decode(more)
		if err != nil || a.Offline != want {
			t.Errorf("%s is read as %t, %v", more, a.Offline, err)
		}
		digests[a.Digest()] = true
	}
	if len(digests) != 2 {
		t.Errorf("there are %d digests of two requests", len(digests))
	}
	for _, more := range []string{`"offline":"yes",`, `"offline":1,`, `"offline":true,"max_uses":3,`} {
		if _, err := decode(more); err == nil || !strings.Contains(err.Error(), "offline") {
			t.Errorf("%s: %v", more, err)
		}
	}
}

// BenchmarkOffline holds a verification offline to what it has to compute: two signatures, and one for a token that was verified
// before.
func BenchmarkOffline(b *testing.B) {
	c := good(agent)
	c.token = signed(offline(0))
	call, message := c.call(), bytes.Repeat([]byte("m"), 400)
	public, signature := service.Public().(ed25519.PublicKey), ed25519.Sign(service, message)
	const each = 50
	signatures := func() {
		for range each {
			if !ed25519.Verify(public, message, signature) {
				b.Fatal("the signature is not good")
			}
		}
	}
	for name, of := range map[string]struct {
		warm       bool
		signatures float64
		most       float64
	}{"cold": {false, 2, 1.6}, "warm": {true, 1, 1.9}} {
		b.Run(name, func(b *testing.B) {
			var passes bound.Passes
			began := now.Add(-time.Hour) // so that no proof needs a nonce
			v := offlineVerifier(b, func(o *capability.OfflineOptions) {
				o.Now = func() time.Time { defer func() { began = now }(); return began }
			})
			b.ReportAllocs()
			for n := 0; b.Loop(); {
				b.StopTimer()
				var calls []func() error
				for range each {
					n++
					one, made, token := call, claim(staging), offline(0)
					made.ID = fmt.Sprintf("proof-%020d", n)
					if !of.warm {
						token.ID = fmt.Sprintf("cap_%032d", n)
						made.Capability, one.Token = token.ID, signed(token)
					}
					one.Proof = proved(agent, made)
					calls = append(calls, func() error { _, err := v.Verify(b.Context(), one); return err })
				}
				if of.warm {
					if err := calls[0](); err != nil {
						b.Fatal(err)
					}
					calls = calls[1:]
				}
				start := time.Now()
				signatures()
				raw := time.Since(start)
				b.StartTimer()
				start = time.Now()
				for _, verify := range calls {
					if err := verify(); err != nil {
						b.Fatal(err)
					}
				}
				passes.Against(time.Since(start), time.Duration(float64(raw)*of.signatures*float64(len(calls))/each))
			}
			bound.Check(b, passes.Median(), "of-signatures", of.most)
		})
	}
}
