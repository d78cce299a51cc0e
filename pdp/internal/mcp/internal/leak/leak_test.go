package leak_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"policy-service/pdp/internal/mcp/internal/leak"
)

// escaped writes each character of a text as an escape of JSON, as servers do that write ASCII alone.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r > 0xffff {
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
			continue
		}
		fmt.Fprintf(&b, `\u%04X`, r)
	}
	return b.String()
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b[1 : len(b)-1])
}

// writings are how a server may write a secret in a string of JSON.
var writings = map[string]func(string) string{
	"quoted":         quoted,
	"slashes":        func(s string) string { return strings.ReplaceAll(quoted(s), "/", `\/`) },
	"escaped":        escaped,
	"JSON in JSON":   func(s string) string { return quoted(`{"a":"` + quoted(s) + `"}`) },
	"twice in JSON":  func(s string) string { return quoted(`"` + quoted(`"`+quoted(s)+`"`) + `"`) },
	"query of a URL": func(s string) string { return quoted(url.QueryEscape(s)) },
	"path of a URL":  func(s string) string { return quoted(url.PathEscape(s)) },
	"small hex": func(s string) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			fmt.Fprintf(&b, "%%%02x", c)
		}
		return b.String()
	},
	"Base64":            func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"Base64 of URLs":    func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("{" + s + "}")) },
	"Base64 in the mid": func(s string) string { return quoted(base64.StdEncoding.EncodeToString([]byte("ab" + s + "cd"))) },
}

var alphabets = []string{"abcABC012", "ab/+=_-", "a b", "a%2f", `a"\n`, "a\n\t", "é🔑a", "<&>'"}

func randomSecret(r *rand.Rand) string {
	from := []rune(alphabets[r.IntN(len(alphabets))])
	var b strings.Builder
	for b.Len() < leak.Least+r.IntN(40) {
		b.WriteRune(from[r.IntN(len(from))])
	}
	return b.String()
}

// TestNoWritingOfASecretIsLeft: a secret in a message is masked however it is written, the message stays JSON, and every
// byte beside the secret is as it was.
func TestNoWritingOfASecretIsLeft(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		secret := randomSecret(r)
		m := leak.New("another secret of the gateway", secret)
		for name, write := range writings {
			before, after := `{"a\u0020b" : 1.0e0, "text":"C:\\ \u00e9\n100% `, `\" %zz %41"}`
			text := before + write(secret) + after
			got, places := m.In([]byte(text))
			kept, ok := strings.CutPrefix(string(got), before)
			kept, ok2 := strings.CutSuffix(kept, after)
			if !ok || !ok2 || places == 0 || !json.Valid(got) || !strings.Contains(kept, leak.Mask) || len(kept) > len(leak.Mask)+16 {
				t.Fatalf("seed %d, %s of %q: %s becomes %s (%d)", seed, name, secret, text, got, places)
			}
		}
	}
}

func TestATextWithoutASecretIsTheSame(t *testing.T) {
	t.Parallel()
	secret := "0123456789abcdefXYZ"
	var none leak.Masks
	for _, text := range []string{"", secret[:15], secret[:18] + `\n` + secret[:18], strings.Repeat(secret[1:], 50), `\u003`, `%3`, `\`} {
		for _, m := range []*leak.Masks{leak.New(secret, "short"), &none} {
			got, places := m.In([]byte(text))
			if string(got) != text || places != 0 {
				t.Errorf("%q becomes %q", text, got)
			}
		}
	}
	text := []byte(`{"short":"short"}`)
	if got, _ := leak.New(secret, "short").In(text); &got[0] != &text[0] {
		t.Error("it is copied")
	}
}

// TestSecretsThatOverlapAreMaskedWhole: one inside the other, one that goes on where the other ends, and one repeated.
func TestSecretsThatOverlapAreMaskedWhole(t *testing.T) {
	t.Parallel()
	m := leak.New("aaaaaaaaaaaaaaaabbbb", "bbbbcccccccccccccccc", "aaaaaaaaaaaaaaaa")
	got, places := m.In([]byte("-aaaaaaaaaaaaaaaabbbbcccccccccccccccc-aaaaaaaaaaaaaaaaaaaaaaaaa-"))
	if string(got) != "-[masked]-[masked]-" || places != 2 {
		t.Errorf("%s (%d)", got, places)
	}
}

// TestASecretAtTheEndOfABeginIsMaskedWhole: what is cut off behind a number of bytes leaves no part of a secret.
func TestASecretAtTheEndOfABeginIsMaskedWhole(t *testing.T) {
	t.Parallel()
	secret := "0123456789abcdef"
	m := leak.New(secret)
	for before := range 64 {
		got, _ := m.Begin([]byte(strings.Repeat("x", before)+secret+"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"), 32)
		if bytes.ContainsAny(got, "0123456789") || before <= 32 && !bytes.HasPrefix(got, []byte(strings.Repeat("x", before))) {
			t.Errorf("%d: %s", before, got)
		}
	}
}

// TestTheNewestSecretsAreMasked: those that a credential had before, too, and no endless number of them.
func TestTheNewestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	var m leak.Masks
	secret := func(n int) string { return fmt.Sprintf("secret-number-%04d", n) }
	for n := range 20 {
		m.Learn(secret(n))
	}
	for n := range 20 {
		if _, places := m.In([]byte(secret(n))); places != min(1, n/12) {
			t.Errorf("secret %d: %d", n, places)
		}
	}
}

func BenchmarkWithoutASecret(b *testing.B) {
	m := leak.New("ghp_0123456789abcdefghijklmnopqrstuvwxyz", "postgres://gateway:correct-horse@db/x", "8c2f1e0d-5a7b-4c3d-9e8f-0a1b2c3d4e5f")
	plain := bytes.Repeat([]byte(`{"id":17,"name":"a thing of the server","tags":["one","two"]},`), 1<<20/62)
	for name, text := range map[string][]byte{"plain": plain, "quoted": []byte(quoted(string(plain)))} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				m.In(text)
			}
		})
	}
}
