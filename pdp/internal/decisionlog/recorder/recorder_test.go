package recorder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
)

// kept is a log that keeps entries in memory, and in which order a Recorder called what it has.
type kept struct {
	entries []record.Entry
	calls   []string
	refused int // the call at which GoOn fails; 0 is none
}

var errGoOn = errors.New("no more")

func (k *kept) Append(_ context.Context, entries []record.Entry) error {
	k.calls = append(k.calls, "Append")
	k.entries = append(k.entries, entries...)
	return nil
}

func testRecorder(t testing.TB) (*Recorder, *kept) {
	t.Helper()
	m, err := mask.New(bytes.Repeat([]byte{1}, mask.KeySize), []string{"/context/arguments/*/pin"})
	if err != nil {
		t.Fatal(err)
	}
	k := &kept{}
	return &Recorder{
		Log:  k,
		Mask: func(context.Context) *mask.Masker { return m },
		GoOn: func(ctx context.Context) error {
			k.calls = append(k.calls, "GoOn")
			if len(k.calls) == k.refused {
				return errGoOn
			}
			return ctx.Err()
		},
		Waits: func(context.Context) { k.calls = append(k.calls, "Waits") },
	}, k
}

// Others may go first before each item of a batch, once while its secrets are gathered and once while it is masked. The
// log is waited for at the end, once. If a batch may not go on, nothing of it is on record.
func TestABatchLetsOthersGoFirst(t *testing.T) {
	t.Parallel()
	records := make([]pdp.Record, 3)
	for n := range records {
		records[n].Item = pdp.Item{Batch: "1", Size: 1 << 20}
	}
	r, k := testRecorder(t)
	want := append(slices.Repeat([]string{"GoOn"}, 2*len(records)), "Waits", "Append")
	if err := r.Record(t.Context(), records); err != nil || !slices.Equal(k.calls, want) {
		t.Errorf("got %v, %v; want %v", k.calls, err, want)
	}
	for n := 1; n <= 2*len(records); n++ {
		r, k := testRecorder(t)
		k.refused = n
		if err := r.Record(t.Context(), records); !errors.Is(err, errGoOn) || !slices.Equal(k.calls, want[:n]) {
			t.Errorf("it may not go on at call %d: got %v, %v", n, k.calls, err)
		}
	}
	r, k = testRecorder(t)
	if err := r.Record(t.Context(), []pdp.Record{{}}); err != nil || !slices.Equal(k.calls, []string{"Waits", "Append"}) {
		t.Errorf("a single decision: got %v, %v", k.calls, err)
	}
}

// scattered makes objects whose strings and names hold secrets, each of which stands
// under a telling name somewhere.
type scattered struct {
	*rand.Rand
	secrets []string
}

func (s *scattered) text() string {
	text := strings.Repeat("x", s.IntN(3))
	for range s.IntN(3) {
		text += s.secrets[s.IntN(len(s.secrets))] + strings.Repeat("\"", s.IntN(2))
	}
	return text
}

func (s *scattered) value(depth int) any {
	switch n := s.IntN(5); {
	case n < 2 || depth == 0:
		return s.text()
	case n == 2:
		return []any{s.text(), map[string]any{"list": s.text()}}
	}
	members := map[string]any{}
	for range s.IntN(4) {
		members[s.text()+"m"] = s.value(depth - 1)
	}
	return members
}

func (s *scattered) object(t *testing.T, more map[string]any) evaluation.Object {
	t.Helper()
	members := map[string]any{"a": s.value(3), "b": s.text()}
	for name, v := range more {
		members[name] = v
	}
	o, err := evaluation.NewObject(members)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Wherever a secret stands in a request, an obligation, a text or an error: it is not
// in what is handed to the log.
func TestNoSecretIsHandedToTheLog(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		r, k := testRecorder(t)
		s := &scattered{Rand: rand.New(rand.NewPCG(seed, 3))}
		for n := range 6 {
			s.secrets = append(s.secrets, fmt.Sprintf("S%d-%x\\é", n, s.Uint64()))
		}
		request := evaluation.Request{
			Tenant: "default", Subject: evaluation.Entity{Type: "user", ID: "alice", Properties: s.object(t, map[string]any{"Password": s.secrets[0], "apiKeys": s.secrets[1:3]})},
			Action:   evaluation.Action{Name: "read", Properties: s.object(t, map[string]any{"x": map[string]any{"cookie": s.secrets[3]}})},
			Resource: evaluation.Entity{Type: "doc", ID: "1", Properties: s.object(t, nil)},
			Context:  s.object(t, map[string]any{"arguments": map[string]any{"card": map[string]any{"pin": s.secrets[4]}}}),
		}
		d := evaluation.Decision{
			Allow: true, ReasonUser: s.text(),
			Obligations: []evaluation.Obligation{{ID: "tell", Type: "notification", Properties: s.object(t, map[string]any{"token": s.secrets[5]})}},
			Malformed:   evaluation.Malformed("not an object", "", "context", s.text()),
		}
		call := pdp.Call{Request: request}
		err := r.Record(t.Context(), []pdp.Record{{ID: "1", Call: call, Decision: d}, {ID: "2", Call: call, Kind: evaluation.SubjectSearch, Search: &pdp.SearchAnswer{}}})
		if err != nil {
			t.Fatal(err)
		}
		text := handed(t, k.entries...)
		// The search has no obligations, so its record alone need not hide what only they call a token.
		for n, secret := range s.secrets {
			if n < 5 && bytes.Contains(text, []byte(secret[:len(secret)-3])) {
				t.Fatalf("seed %d: %q is in %s", seed, secret, text)
			}
		}
		if first := handed(t, k.entries[0]); bytes.Contains(first, []byte(s.secrets[5][:10])) {
			t.Fatalf("seed %d: %q is in %s", seed, s.secrets[5], first)
		}
	}
}

// handed is all that is in entries.
func handed(t *testing.T, entries ...record.Entry) (all []byte) {
	t.Helper()
	for _, e := range entries {
		parts := []any{e}
		if e.Request != nil {
			parts = append(parts, e.Request.Asked)
		}
		for _, part := range parts {
			text, err := json.Marshal(part)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, text...)
		}
	}
	return all
}

// A megabyte of defaults and a thousand items would be a gigabyte on record.
func TestABatchThatIsTooMuchToRecordIsRefused(t *testing.T) {
	t.Parallel()
	body := `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"context":{"x":"` + strings.Repeat("x", 100_000) + `"},"evaluations":[` +
		strings.TrimSuffix(strings.Repeat(`{"resource":{"type":"doc","id":"1"}},`, 1000), ",") + `]}`
	batch, err := evaluation.DecodeBatch([]byte(body), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	r, k := testRecorder(t)
	records := make([]pdp.Record, len(batch.Items))
	for n, item := range batch.Items {
		records[n].Call.Request = item.Request
		records[n].Item = pdp.Item{Batch: "1", Size: batch.Size}
	}
	var bad *evaluation.Error
	if err := r.Record(t.Context(), records); !errors.As(err, &bad) || !bad.TooLarge || len(k.entries) > 0 {
		t.Errorf("whoever does not say what was inherited: got %v with %d entries", err, len(k.entries))
	}
	for n, item := range batch.Items {
		records[n].Item.Inherits = item.Inherits()
	}
	if err := r.Record(t.Context(), records); err != nil || len(k.entries) != 1001 {
		t.Errorf("got %v with %d entries", err, len(k.entries))
	}
	if err := (&Recorder{}).Record(t.Context(), records[:1]); !errors.Is(err, errNoLog) {
		t.Errorf("before there is a log: got %v", err)
	}
}
