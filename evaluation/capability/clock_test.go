package capability_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"policy-service/evaluation/capability"
	"policy-service/pdp/pdptest/clock"
)

// lasting is a token for this verifier that never ends in a test.
var lasting = func() string {
	t := offline(0)
	t.NotBefore, t.Expires = now.Add(-1000*time.Hour), now.Add(100_000*time.Hour)
	return signed(t)
}()

// timed is a verifier that goes by a clock.
func timed(t testing.TB, c *clock.Clock, before time.Time, always bool) *capability.OfflineVerifier {
	return offlineVerifier(t, func(o *capability.OfflineOptions) {
		o.Now, o.Elapsed, o.Before, o.Alone = c.Now, c.Elapsed, before, !always
	})
}

// shows has a verifier take a proof, and returns why it does not, with a nonce if it needs one.
func shows(t testing.TB, v *capability.OfflineVerifier, proof string) (code capability.Code, nonce string) {
	t.Helper()
	call := good(agent).call()
	call.Token, call.Proof = lasting, proof
	checked, err := v.Verify(t.Context(), call)
	if refusal := (*capability.Refusal)(nil); errors.As(err, &refusal) {
		return refusal.Code, refusal.Nonce
	}
	if err != nil {
		t.Fatal(err)
	}
	return "", checked.Nonce
}

func madeAt(at time.Time, id, nonce string) string {
	c := claim(staging)
	c.IssuedAt, c.ID, c.Nonce = at, id, nonce
	return proved(agent, c)
}

// TestTheClockIsPutRight: a clock that was ahead while a proof was taken, or after that, has it taken no second time, also by a
// verifier that started since. Who makes a proof after a step shorter than a proof's life needs no nonce.
func TestTheClockIsPutRight(t *testing.T) {
	t.Parallel()
	const life = 70 * time.Second
	for name, c := range map[string]struct {
		then  func(*clock.Clock)
		again func(*clock.Clock) // before the proof comes again
		start bool               // a verifier starts in between
		want  capability.Code
	}{
		"ahead by more than its life and put right": {
			func(c *clock.Clock) { c.Set(life + 2*time.Second) }, func(c *clock.Clock) { c.Set(-life) }, false, capability.ProofReplayed,
		},
		"the same, and its life is over": {
			func(c *clock.Clock) { c.Set(2 * life); c.Advance(life + 2*time.Second) }, func(c *clock.Clock) { c.Set(-3 * life) }, false, capability.NonceRequired,
		},
		"its life is over, and the clock put back": {
			func(c *clock.Clock) { c.Advance(life + 2*time.Second) }, func(c *clock.Clock) { c.Set(-life) }, false, capability.NonceRequired,
		},
		"put back before its life is over": {
			func(c *clock.Clock) { c.Set(-life); c.Advance(life + 2*time.Second) }, func(c *clock.Clock) {}, false, capability.ProofReplayed,
		},
		"a start while the clock is put right": {
			func(*clock.Clock) {}, func(c *clock.Clock) { c.Set(-time.Hour); c.Advance(time.Hour) }, true, capability.NonceRequired,
		},
	} {
		clock := clock.At(now)
		v := timed(t, clock, now.Add(-time.Hour), false)
		clock.Advance(time.Minute)
		proof := madeAt(clock.Now(), "the-very-same-proof", "")
		if code, _ := shows(t, v, proof); code != "" {
			t.Errorf("%s: at first it is %q", name, code)
		}
		last := clock.Now()
		c.then(clock)
		for n := range 200 { // which have it forgotten, if anything does
			_, _ = shows(t, v, madeAt(clock.Now(), fmt.Sprint("another-proof-of-then-", n), ""))
		}
		if c.start {
			clock.Set(-time.Hour)
			v = timed(t, clock, last, false)
			clock.Set(time.Hour)
		}
		c.again(clock)
		if code, _ := shows(t, v, proof); code != c.want {
			t.Errorf("%s: it comes again and is %q, want %q", name, code, c.want)
		}
	}

	clock := clock.At(now)
	v := timed(t, clock, now.Add(-time.Hour), false)
	for n := range 1000 {
		clock.Advance(life + 2*time.Second)
		if n%2 == 1 {
			clock.Set(-life + time.Second)
		}
		if code, _ := shows(t, v, madeAt(clock.Now(), fmt.Sprint("the-proof-with-number-", n), "")); code != "" {
			t.Fatalf("step %d costs a proof: %s", n, code)
		}
	}
}

// TestNoClockTakesAProofTwice sets the clock at random, by seconds and by hours, while proofs of any age come, with nonces and
// without, and again and again, and verifiers start anew.
func TestNoClockTakesAProofTwice(t *testing.T) {
	t.Parallel()
	codes := map[capability.Code]int{}
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 6))
		clock := clock.At(now)
		high, always := clock.Now(), seed%3 == 0
		set := func(d time.Duration) {
			if clock.Set(d); clock.Now().After(high) {
				high = clock.Now()
			}
		}
		v, nonce, taken := timed(t, clock, high, always), "", map[string]int{}
		var proofs []string
		for step := range 400 {
			switch random.IntN(12) {
			case 0:
				set(time.Duration(random.IntN(180)-90) * time.Second)
			case 1:
				if random.IntN(4) == 0 {
					set(time.Duration(random.IntN(3)-1) * time.Hour)
				}
			case 2:
				if random.IntN(8) == 0 {
					v = timed(t, clock, high, always)
				}
			case 3, 4:
				clock.Advance(time.Duration(random.IntN(50)) * time.Second)
				set(0)
			case 5, 6, 7:
				made := clock.Now().Add(time.Duration(random.IntN(90)-70) * time.Second)
				proofs = append(proofs, madeAt(made, fmt.Sprintf("proof-%08d-%08d", step, seed), []string{"", nonce}[random.IntN(2)]))
				fallthrough
			default:
				if len(proofs) == 0 {
					continue
				}
				proof := proofs[max(0, len(proofs)-1-random.IntN(6))]
				code, given := shows(t, v, proof)
				if codes[code]++; given != "" {
					nonce = given
				}
				if code != "" {
					continue
				}
				if taken[proof]++; taken[proof] > 1 {
					t.Fatalf("seed %d, step %d: a proof is taken %d times", seed, step, taken[proof])
				}
			}
		}
	}
	if t.Log(codes); codes[""] < 200 || codes[capability.NonceRequired] < 200 || codes[capability.ProofReplayed] < 200 {
		t.Error("the test tries too little")
	}
}
