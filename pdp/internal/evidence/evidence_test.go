package evidence_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"policy-service/pdp/internal/evidence"
)

const secret = "abcdefghijklmnopqrstuvwxyz012345"

func key(t *testing.T, secret, tenant string) *evidence.Key {
	t.Helper()
	k, err := evidence.NewKey([]byte(secret), tenant)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// No writer of ours writes a text without a key, wherever it stands.
func TestTextHasNoForm(t *testing.T) {
	text := evidence.Of("the-hash")
	inside := map[string]any{"a": struct{ T evidence.Text }{text}, "b": []evidence.Text{text}, "c": &text}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		_, _ = fmt.Fprintf(&out, verb+" "+verb+"\n", text, inside)
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("m", "text", text, "inside", inside)
	}
	written, err := json.Marshal(inside)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(written)
	if got := out.String(); strings.Contains(got, "hash") || strings.Contains(got, fmt.Sprintf("%x", "the-hash")) {
		t.Errorf("it is written:\n%s", got)
	}
}

// What cannot be written with a key is left out, and never plain.
func TestNothingIsWrittenWithoutAKey(t *testing.T) {
	const nothing = ""
	if _, err := evidence.NewKey([]byte("short"), "t"); err == nil {
		t.Error("a short secret is taken")
	}
	var none *evidence.Key
	text, k := evidence.Of("the-hash"), key(t, secret, "t")
	if none.Plain(text) != nothing || none.Hash(text) != nothing || none.Seal("r", text) != nothing {
		t.Error("it is written without a key")
	}
	large := evidence.Of(strings.Repeat("x", evidence.MostSealed))
	if k.Seal("r", large) != nothing {
		t.Error("more is sealed than a record may have")
	}
	other := key(t, secret, "u")
	if h := k.Hash(text); h != k.Hash(evidence.Of("the-hash")) || h == other.Hash(text) || h == key(t, strings.ToUpper(secret), "t").Hash(text) || !strings.HasPrefix(h, evidence.Prefix) {
		t.Errorf("the hash %s does not tell apart keys and tenants, or texts that are equal", h)
	}
	sealed := k.Seal("r", text, evidence.Of("two"))
	if got, err := k.Open("r", sealed); err != nil || len(got) != 2 || got[0] != "the-hash" || got[1] != "two" {
		t.Errorf("opened: %q, %v", got, err)
	}
	for name, open := range map[string]func() ([]string, error){
		"another record": func() ([]string, error) { return k.Open("s", sealed) },
		"another tenant": func() ([]string, error) { return other.Open("r", sealed) },
		"nothing":        func() ([]string, error) { return k.Open("r", nothing) },
	} {
		if got, err := open(); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
	if again := k.Seal("r", text, evidence.Of("two")); again == sealed {
		t.Error("equal texts are sealed alike, so that they can be told apart from others")
	}
}
