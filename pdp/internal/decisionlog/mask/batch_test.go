package mask_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/pdptest/night"
)

func object(t testing.TB, members map[string]any) evaluation.Object {
	t.Helper()
	o, err := evaluation.NewObject(members)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestNoSecretSurvivesABatch: a secret of what items share, or of any of them, is left in
// none of their records, and each is masked where it would be if it were recorded alone.
func TestNoSecretSurvivesABatch(t *testing.T) {
	t.Parallel()
	m := masker(t)
	for seed := range uint64(night.Cases(3_000)) {
		r := rand.New(rand.NewPCG(seed, 2))
		some := func() evaluation.Object {
			return object(t, map[string]any{"x": generated(r, 3), "token": generated(r, 2), "y": generated(r, 3)})
		}
		shared := evaluation.Request{Context: some(), Subject: evaluation.Entity{Properties: some()}}
		items, owed := make([]evaluation.Request, 3), make([]evaluation.Object, 3)
		found := map[string]bool{}
		secrets(shared.Context.Value(), false, found)
		secrets(shared.Subject.Properties.Value(), false, found)
		g := m.Gather()
		for n := range items {
			items[n].Resource.Properties, owed[n] = some(), some()
			secrets(items[n].Resource.Properties.Value(), false, found)
			secrets(owed[n].Value(), false, found)
			g.Add(items[n], owed[n])
		}
		g.Add(shared)
		k := g.Apply(shared)
		masked := []evaluation.Object{k.Request.Context, k.Request.Subject.Properties}
		for n, item := range items {
			one := k.With(item)
			masked = append(masked, one.Request.Resource.Properties, one.Object(owed[n]))
			whole := shared
			whole.Resource = item.Resource
			alone := m.Apply(whole, owed[n])
			for _, o := range []evaluation.Object{whole.Context, whole.Subject.Properties, whole.Resource.Properties, owed[n]} {
				texts(o.Value(), func(s string) {
					if alone.Text(s) != s && one.Text(s) == s {
						t.Errorf("%q is masked in a request alone, and not in a batch", s)
					}
				})
			}
		}
		for _, o := range masked {
			texts(o.Value(), func(s string) {
				for secret := range found {
					if strings.Contains(s, secret) {
						t.Errorf("%q is left in %q", secret, s)
					}
				}
			})
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestASecretOfAnItemIsNoneOfWhatIsShared: what one item calls a secret stands in the open
// in what all inherit.
func TestASecretOfAnItemIsNoneOfWhatIsShared(t *testing.T) {
	t.Parallel()
	m := masker(t)
	shared := evaluation.Request{Context: object(t, map[string]any{"note": "use hunter22 or correct-horse"})}
	item := evaluation.Request{Subject: evaluation.Entity{Properties: object(t, map[string]any{"password": "hunter22"})}}
	g := m.Gather()
	g.Add(item, object(t, map[string]any{"proof": "correct-horse"}))
	g.Add(shared)
	text, err := g.Apply(shared).Request.Context.MarshalJSON()
	if err != nil || strings.Contains(string(text), "hunter") || strings.Contains(string(text), "horse") {
		t.Errorf("got %s, %v", text, err)
	}
}

// TestNamesThatItemsShareAreShown: a pointer of an item may name a member that it inherits.
func TestNamesThatItemsShareAreShown(t *testing.T) {
	t.Parallel()
	m := masker(t)
	shared := evaluation.Request{Context: object(t, map[string]any{"ours": map[string]any{"inner": 1}, "token": map[string]any{"hidden": 1}})}
	item := evaluation.Request{Resource: evaluation.Entity{Properties: object(t, map[string]any{"own": 1})}}
	g := m.Gather()
	g.Add(item)
	g.Add(shared)
	k := g.Apply(shared).With(item)
	for _, pointer := range []string{"/context/ours/inner", "/evaluations/0/resource/properties/own"} {
		if got := k.Pointer(pointer, ""); got != pointer {
			t.Errorf("%s becomes %s", pointer, got)
		}
	}
	for _, pointer := range []string{"/context/token/hidden", "/context/hunter22"} {
		if got := k.Pointer(pointer, ""); got == pointer || !strings.Contains(got, mask.Prefix) {
			t.Errorf("%s becomes %s", pointer, got)
		}
	}
}

// TestWhatItemsShareIsReadOnce: 900 KB with a secret are read, searched and masked once,
// and not for each of a thousand items. What is allocated tells, whatever the machine.
func TestWhatItemsShareIsReadOnce(t *testing.T) {
	night.Measures(t)
	m := masker(t)
	long := strings.Repeat("abcdefgh ", 50_000)
	shared := evaluation.Request{Context: object(t, map[string]any{"token": long, "note": long})}
	cost := func(items int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		g := m.Gather()
		for n := range items {
			g.Add(evaluation.Request{Resource: evaluation.Entity{Properties: object(t, map[string]any{"n": n, "password": fmt.Sprintf("hunter-%04d", n)})}})
		}
		g.Add(shared)
		k := g.Apply(shared)
		for n := range items {
			one := k.With(evaluation.Request{Resource: evaluation.Entity{Properties: object(t, map[string]any{"n": n})}})
			one.Pointer("/context/other", "")
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	once, all := cost(1), cost(1000)
	t.Logf("%d bytes for one item, %d for a thousand", once, all)
	if all > 2*once {
		t.Errorf("one item costs %d bytes, a thousand %d", once, all)
	}
}

// TestAThousandItemsHaveSecretsOfTheirOwn: they are looked for in what all share, in one
// pass for all of them.
func TestAThousandItemsHaveSecretsOfTheirOwn(t *testing.T) {
	t.Parallel()
	m := masker(t)
	members := map[string]any{}
	g := m.Gather()
	for n := range 1000 {
		secret := fmt.Sprintf("hunter-%04d-zebra", n)
		maps.Copy(members, map[string]any{fmt.Sprint("m", n): "it is " + secret + "!"})
		g.Add(evaluation.Request{Resource: evaluation.Entity{Properties: object(t, map[string]any{"token": secret})}})
	}
	shared := evaluation.Request{Context: object(t, members)}
	g.Add(shared)
	texts(g.Apply(shared).Request.Context.Value(), func(s string) {
		if strings.Contains(s, "hunter") || strings.Contains(s, "zebra") {
			t.Errorf("%q is left", s)
		}
	})
}
