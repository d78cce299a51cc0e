package signing

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

func open(t *testing.T, dir string) *Keys {
	t.Helper()
	k, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// overdue makes the next use look at the file again.
func overdue(k *Keys) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.checked = time.Now().Add(-recheck)
}

func TestFirstStartMakesAKeyAndLaterOnesUseIt(t *testing.T) {
	dir := t.TempDir()
	first, again := open(t, dir), open(t, dir)
	if first.Current().KeyID() != again.Current().KeyID() || !bytes.Equal(first.JWKS(), again.JWKS()) {
		t.Error("two starts with one directory have two keys")
	}
	info, err := os.Stat(filepath.Join(dir, File))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	lock, err := os.Stat(filepath.Join(dir, File+".lock"))
	if err != nil || lock.Mode().Perm() != 0o600 {
		t.Errorf("lock: mode %v, %v; want 0600", lock.Mode(), err)
	}
	if other := open(t, t.TempDir()); other.Current().KeyID() == first.Current().KeyID() {
		t.Error("two directories have one key")
	}
}

func TestStartsTogetherUseOneKey(t *testing.T) {
	dir := t.TempDir()
	ids := make([]string, 8)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			if k, err := Open(dir, nil); err == nil {
				ids[i] = k.Current().KeyID()
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("got the keys %q, want one", ids)
		}
	}
}

func TestEphemeral(t *testing.T) {
	k, err := Ephemeral()
	if err != nil {
		t.Fatal(err)
	}
	jws, err := k.Sign([]byte("x"), "t")
	if err != nil {
		t.Fatal(err)
	}
	if payload, err := k.Verify(jws, "t"); err != nil || string(payload) != "x" {
		t.Errorf("got %q, %v", payload, err)
	}
}

// Whoever has the JWKS alone can verify, with any library.
func TestSignaturesVerifyWithTheJWKS(t *testing.T) {
	k := open(t, t.TempDir())
	jws, err := k.Sign([]byte(`{"a":1}`), "x+jwt")
	if err != nil {
		t.Fatal(err)
	}
	if same, _ := k.Sign([]byte(`{"a":1}`), "x+jwt"); same != jws {
		t.Error("the same payload gives other bytes")
	}
	var set struct {
		Keys []map[string]string `json:"keys"`
	}
	if err := json.Unmarshal(k.JWKS(), &set); err != nil || len(set.Keys) != 1 {
		t.Fatalf("%s: %v", k.JWKS(), err)
	}
	jwk := set.Keys[0]
	if jwk["kty"] != "OKP" || jwk["crv"] != "Ed25519" || jwk["alg"] != "EdDSA" || jwk["use"] != "sig" || jwk["d"] != "" || len(jwk) != 6 {
		t.Errorf("got the key %v", jwk)
	}
	public, _ := base64.RawURLEncoding.DecodeString(jwk["x"])
	at := strings.LastIndex(jws, ".")
	signature, _ := base64.RawURLEncoding.DecodeString(jws[at+1:])
	if !ed25519.Verify(public, []byte(jws[:at]), signature) {
		t.Error("the signature does not verify")
	}
	header, _, _ := strings.Cut(jws, ".")
	text, _ := base64.RawURLEncoding.DecodeString(header)
	if want := `{"alg":"EdDSA","kid":"` + jwk["kid"] + `","typ":"x+jwt"}`; string(text) != want {
		t.Errorf("header %s, want %s", text, want)
	}
}

func TestVerifyRefuses(t *testing.T) {
	k, other := open(t, t.TempDir()), open(t, t.TempDir())
	jws, _ := k.Sign([]byte("payload"), "t")
	parts := strings.Split(jws, ".")
	encode := base64.RawURLEncoding.EncodeToString
	foreign, _ := other.Sign([]byte("payload"), "t")
	hmac, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: k.JWKS(), KeyID: k.Current().KeyID()}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, _ := hmac.Sign([]byte("payload"))
	confused, _ := signed.CompactSerialize()
	forged, _ := other.Current().rename(k.Current().KeyID()).Sign([]byte("payload"), "t")
	// The last of the 86 letters of a signature has two bits, and four that count for nothing.
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(letters, jws[len(jws)-1])
	for name, bad := range map[string]string{
		"the same in other text": jws[:len(jws)-1] + letters[last^1:last^1+1],
		"more than it is":        jws + "\n",
		"another payload":        parts[0] + "." + encode([]byte("other")) + "." + parts[2],
		"another purpose":        must(k.Sign([]byte("payload"), "u")),
		"a stranger's key":       foreign,
		"a stranger by our name": forged,
		"no signature":           parts[0] + "." + parts[1] + ".",
		"alg none":               encode([]byte(`{"alg":"none","typ":"t"}`)) + "." + parts[1] + ".",
		"HMAC with public bytes": confused,
		"nothing":                "",
		"garbage":                "a.b.c",
	} {
		if payload, err := k.Verify(bad, "t"); err == nil {
			t.Errorf("%s: verified %q", name, payload)
		}
	}
}

func must(s string, err error) string {
	if err != nil {
		panic(err)
	}
	return s
}

// rename makes the set sign under another key's name.
func (s *Set) rename(id string) *Set {
	return &Set{key: s.key, keys: []jose.JSONWebKey{{KeyID: id, Key: s.keys[0].Key}}}
}

func TestRotate(t *testing.T) {
	dir := t.TempDir()
	k := open(t, dir)
	jws, _ := k.Sign([]byte("old"), "t")
	first := k.Current().KeyID()
	second, err := Rotate(dir)
	if err != nil {
		t.Fatal(err)
	}
	overdue(k)
	if got := k.Current().KeyID(); got != second || got == first {
		t.Errorf("signs with %s after the rotation of %s to %s", got, first, second)
	}
	if _, err := k.Verify(jws, "t"); err != nil {
		t.Errorf("what was signed before no longer verifies: %v", err)
	}
	content, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil || bytes.Count(content, []byte(`"d":`)) != 1 {
		t.Errorf("the private half of the old key is kept: %v", err)
	}
	if bytes.Contains(k.JWKS(), []byte(`"d":`)) || bytes.Count(k.JWKS(), []byte(`"kid":`)) != 2 {
		t.Errorf("JWKS %s, want two public keys", k.JWKS())
	}
	if _, err := Rotate(dir); err != nil {
		t.Fatal(err)
	}
	overdue(k)
	if _, err := k.Verify(jws, "t"); err == nil {
		t.Error("a key thrown out by a second rotation still verifies")
	}
	if reopened := open(t, dir); !bytes.Equal(reopened.JWKS(), k.JWKS()) {
		t.Error("a restart sees other keys than the running process")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRotateRefuses(t *testing.T) {
	if _, err := Rotate(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory without keys: got %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, File), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Rotate(dir); err == nil {
		t.Error("a file that is no key was rotated")
	}
}

func TestABrokenFileChangesNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, File)
	var log bytes.Buffer
	k, err := Open(dir, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	before := k.Current()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func() error{
		"cut":     func() error { return os.WriteFile(file, content[:len(content)/2], 0o600) },
		"removed": func() error { return os.Remove(file) },
	} {
		log.Reset()
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			overdue(k)
			if k.Current() != before {
				t.Errorf("%s: the key changed", name)
			}
		}
		if n := strings.Count(log.String(), "cannot be read"); n != 1 {
			t.Errorf("%s: told %d times:\n%s", name, n, &log)
		}
		if bytes.Contains(log.Bytes(), content[60:90]) {
			t.Errorf("%s: the log quotes the file", name)
		}
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	overdue(k)
	if k.Current().KeyID() != before.KeyID() {
		t.Error("the file is back, and its key is not in force")
	}
}

func TestOpenRefuses(t *testing.T) {
	whole := string(open(t, t.TempDir()).Current().encode())
	other := string(open(t, t.TempDir()).Current().encode())
	private := strings.Index(whole, `"d":"`) + len(`"d":"`)
	for name, content := range map[string]string{
		"empty":            "",
		"no key":           `{"keys":[]}`,
		"the public half":  string(open(t, t.TempDir()).JWKS()),
		"half a file":      whole[:len(whole)/2],
		"halves of two":    whole[:private] + other[private:],
		"two private":      strings.TrimSuffix(whole, "]}\n") + "," + strings.TrimPrefix(other, `{"keys":[`),
		"another kid":      strings.Replace(whole, `"kid":"`, `"kid":"x`, 1),
		"more than bounds": whole + strings.Repeat(" ", maxFile),
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, File), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir, nil)
		if err == nil {
			t.Errorf("%s: opened", name)
		} else if strings.Contains(err.Error(), whole[private:private+20]) {
			t.Errorf("%s: the error quotes the key", name)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, File), []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, File), 0o644); err != nil {
		t.Fatal(err)
	}
	_, atStart := Open(dir, nil)
	_, rotated := Rotate(dir)
	for _, err := range []error{atStart, rotated, Check(dir)} {
		if err == nil || !strings.Contains(err.Error(), "chmod 600") || strings.Contains(err.Error(), "new key") {
			t.Errorf("a file everybody may read: got %v", err)
		}
	}
	if _, err := Open(filepath.Join(dir, "nosuch"), nil); err == nil {
		t.Error("a directory that does not exist was opened")
	}
}
