package seal_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/seal"
	"policy-service/pdp/pdptest/clock"
)

const resource = "https://mcp.example.com/mcp"

// secret is a key of 32 bytes, another for each n.
func secret(n byte) []byte {
	b := make([]byte, 32)
	for i := range b {
		b[i] = n + byte(i)
	}
	return b
}

func write(t testing.TB, name string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func open(t testing.TB, o seal.Options, secrets ...[]byte) *seal.Ring {
	t.Helper()
	var files []string
	for n, s := range secrets {
		files = append(files, write(t, filepath.Join(t.TempDir(), string(rune('a'+n))), s))
	}
	if o.Resource == "" {
		o.Resource = resource
	}
	r, err := seal.Open(files, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sealed(t testing.TB, r *seal.Ring, purpose seal.Purpose, binding, value string) string {
	t.Helper()
	text, err := r.Seal(purpose, []byte(binding), []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestWhatIsSealedOpens(t *testing.T) {
	for _, r := range []*seal.Ring{open(t, seal.Options{}, secret(1)), seal.Fresh(seal.Options{Resource: resource})} {
		for _, value := range []string{"", "v", strings.Repeat("v", seal.MaxValue)} {
			for _, binding := range []string{"", "alice"} {
				text := sealed(t, r, seal.Session, binding, value)
				if got, ok := r.Open(seal.Session, []byte(binding), text); !ok || string(got) != value {
					t.Errorf("got %d bytes, %v; want %d", len(got), ok, len(value))
				}
				if value == "v" && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
					t.Errorf("it is written %s", text)
				}
				if text == sealed(t, r, seal.Session, binding, value) {
					t.Error("two seals of one value are the same")
				}
			}
		}
		if text, err := r.Seal(seal.Session, nil, make([]byte, seal.MaxValue+1)); !errors.Is(err, seal.ErrTooLarge) || text != "" {
			t.Errorf("a value too large: %v", err)
		}
		text := sealed(t, r, seal.KeptToolRequest, "", strings.Repeat("v", seal.MaxKept))
		if got, ok := r.Open(seal.KeptToolRequest, nil, text); !ok || len(got) != seal.MaxKept || len(text) != evaluation.ToolRequestText {
			t.Errorf("kept: got %d bytes, %v, of a text of %d", len(got), ok, len(text))
		}
		if _, err := r.Seal(seal.KeptToolRequest, nil, make([]byte, seal.MaxKept+1)); !errors.Is(err, seal.ErrTooLarge) {
			t.Errorf("a value too large to be kept: %v", err)
		}
	}
}

func TestNothingElseOpens(t *testing.T) {
	r := open(t, seal.Options{}, secret(1))
	text := sealed(t, r, seal.RequestState, "alice", "value")
	same, other := open(t, seal.Options{}, secret(1)), open(t, seal.Options{}, secret(2))
	elsewhere := open(t, seal.Options{Resource: resource + "2"}, secret(1))
	if got, ok := same.Open(seal.RequestState, []byte("alice"), text); !ok || string(got) != "value" {
		t.Error("a replica does not open it")
	}
	for name, opened := range map[string]func() ([]byte, bool){
		"another purpose":  func() ([]byte, bool) { return r.Open(seal.Session, []byte("alice"), text) },
		"no purpose":       func() ([]byte, bool) { return r.Open(0, []byte("alice"), text) },
		"another binding":  func() ([]byte, bool) { return r.Open(seal.RequestState, []byte("alic"), text) },
		"no binding":       func() ([]byte, bool) { return r.Open(seal.RequestState, nil, text) },
		"longer binding":   func() ([]byte, bool) { return r.Open(seal.RequestState, []byte("alice\x00"), text) },
		"another key":      func() ([]byte, bool) { return other.Open(seal.RequestState, []byte("alice"), text) },
		"another resource": func() ([]byte, bool) { return elsewhere.Open(seal.RequestState, []byte("alice"), text) },
		"a fresh key": func() ([]byte, bool) {
			return seal.Fresh(seal.Options{Resource: resource}).Open(seal.RequestState, []byte("alice"), text)
		},
	} {
		if got, ok := opened(); ok || got != nil {
			t.Errorf("%s: got %q", name, got)
		}
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{
		"empty": "", "padded": text + "=", "a newline": text[:9] + "\n" + text[9:], "a newline behind": text + "\r\n", "a return": text[:9] + "\r" + text[9:], "a space": " " + text, "more": text + "A", "twice": text + text,
		"standard alphabet": base64.RawStdEncoding.EncodeToString(append(bytes.Clone(raw), 0xfb, 0xff, 0xfe)), "huge": strings.Repeat("A", 1<<20),
	}
	for n := range raw {
		bad["cut to "+string(rune('0'+n))] = base64.RawURLEncoding.EncodeToString(raw[:n])
		for bit := range 8 {
			flipped := bytes.Clone(raw)
			flipped[n] ^= 1 << bit
			bad["bit "+string(rune('0'+bit))+" of byte "+string(rune('0'+n))] = base64.RawURLEncoding.EncodeToString(flipped)
		}
	}
	for n := range text {
		bad["text cut to "+string(rune('0'+n))] = text[:n]
	}
	for name, forged := range bad {
		if got, ok := r.Open(seal.RequestState, []byte("alice"), forged); ok || got != nil {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// The last character of a text may have bits that stand for nothing: only one of its spellings opens.
func TestOneTextForOneValue(t *testing.T) {
	r := open(t, seal.Options{}, secret(1))
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for _, value := range []string{"", "a", "ab"} {
		text := sealed(t, r, seal.Cursor, "", value)
		opened := 0
		for _, c := range alphabet {
			if _, ok := r.Open(seal.Cursor, nil, text[:len(text)-1]+string(c)); ok {
				opened++
			}
		}
		if opened != 1 {
			t.Errorf("%q has %d texts", value, opened)
		}
	}
}

func TestRotation(t *testing.T) {
	older, newer := secret(1), secret(2)
	before, during, after := open(t, seal.Options{}, older), open(t, seal.Options{}, newer, older), open(t, seal.Options{}, newer)
	old := sealed(t, before, seal.Session, "alice", "old")
	fresh := sealed(t, during, seal.Session, "alice", "new")
	for name, test := range map[string]struct {
		ring *seal.Ring
		text string
		want bool
	}{
		"old by both": {during, old, true}, "new by both": {during, fresh, true}, "new by new": {after, fresh, true}, "old by new": {after, old, false}, "new by old": {before, fresh, false},
	} {
		if _, ok := test.ring.Open(seal.Session, []byte("alice"), test.text); ok != test.want {
			t.Errorf("%s: %v", name, ok)
		}
	}
}

// Key ids are one byte: of 300 keys some share one, and each opens its own.
func TestKeysThatShareAnID(t *testing.T) {
	ids := map[byte][]byte{}
	for n := range 300 {
		s := secret(0)
		s[0], s[1] = byte(n), byte(n>>8)
		text := sealed(t, open(t, seal.Options{}, s), seal.Session, "", "value")
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if other, there := ids[raw[0]]; there {
			if _, ok := open(t, seal.Options{}, other, s).Open(seal.Session, nil, text); !ok {
				t.Error("the second of two keys with one id does not open")
			}
			return
		}
		ids[raw[0]] = s
	}
	t.Error("no two of 300 keys share an id, so it is longer than a byte")
}

func TestJSONUntilItExpires(t *testing.T) {
	c := clock.New()
	r := open(t, seal.Options{Now: c.Now}, secret(1))
	type state struct {
		Round int    `json:"round"`
		Who   string `json:"who"`
	}
	expires := c.Now().Add(time.Minute)
	text, err := seal.SealJSON(r, seal.RequestState, []byte("alice"), state{3, "a\"b"}, expires)
	if err != nil {
		t.Fatal(err)
	}
	c.Advance(time.Minute - time.Nanosecond)
	if got, until, ok := seal.OpenJSON[state](r, seal.RequestState, []byte("alice"), text); !ok || got != (state{3, "a\"b"}) || !until.Equal(expires) {
		t.Errorf("got %+v, %v, %v", got, until, ok)
	}
	if got, _, ok := seal.OpenJSON[state](r, seal.Session, []byte("alice"), text); ok || got != (state{}) {
		t.Errorf("for another purpose: got %+v", got)
	}
	if got, _, ok := seal.OpenJSON[[]string](r, seal.RequestState, []byte("alice"), text); ok {
		t.Errorf("as another type: got %+v", got)
	}
	c.Advance(time.Nanosecond)
	if got, _, ok := seal.OpenJSON[state](r, seal.RequestState, []byte("alice"), text); ok || got != (state{}) {
		t.Errorf("after its time: got %+v", got)
	}
	// What was sealed without a time, and as no JSON, does not open either.
	for _, value := range []string{"", "null", "{}", `{"v":{"round":1}}`, `{"exp":1e99,"v":{}}`, `{"exp":9999999999,"exp":9999999999,"v":{}}`} {
		if got, _, ok := seal.OpenJSON[state](r, seal.RequestState, nil, sealed(t, r, seal.RequestState, "", value)); ok {
			t.Errorf("%s: got %+v", value, got)
		}
	}
	if _, err := seal.SealJSON(r, seal.Session, nil, strings.Repeat("v", seal.MaxValue), expires); !errors.Is(err, seal.ErrTooLarge) {
		t.Errorf("a value too large: %v", err)
	}
	if _, err := seal.SealJSON(r, seal.Session, nil, func() {}, expires); err == nil {
		t.Error("a function is sealed")
	}
}

func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	raw := secret(1)
	ends := secret(0)
	ends[31] = '\n'
	text := base64.RawURLEncoding.EncodeToString(raw)
	want := open(t, seal.Options{}, raw)
	for name, content := range map[string]string{
		"raw": string(raw), "text": text, "text with newline": text + "\n", "padded": text + "=\n", "text of Windows": text + "\r\n",
	} {
		r, err := seal.Open([]string{write(t, filepath.Join(dir, "key"), []byte(content))}, seal.Options{Resource: resource})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, ok := want.Open(seal.Session, nil, sealed(t, r, seal.Session, "", "v")); !ok {
			t.Errorf("%s: it is another key", name)
		}
	}
	open(t, seal.Options{}, ends) // a raw key may end in a newline

	for name, content := range map[string]string{
		"empty": "", "short": string(raw[:31]), "long": string(raw) + "\n", "hex": strings.Repeat("ab", 32), "standard base64": base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfb, 0xff}, 16)),
		"loose bits": text[:42] + "_", "zeros": strings.Repeat("\x00", 32), "zeros in text": strings.Repeat("A", 43), "large": strings.Repeat("a", 2000),
	} {
		_, err := seal.Open([]string{write(t, filepath.Join(dir, "key"), []byte(content))}, seal.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), "seal.key_files: ") || !strings.Contains(err.Error(), "; make a key with") || len(content) > 20 && strings.Contains(err.Error(), content[:20]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	open := write(t, filepath.Join(dir, "open"), raw)
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	good, again := write(t, filepath.Join(dir, "good"), raw), write(t, filepath.Join(dir, "again"), []byte(text))
	for name, files := range map[string][]string{"none": nil, "missing": {filepath.Join(dir, "none")}, "a directory": {dir}, "open to all": {open}, "one key twice": {good, again}, "many": make([]string, 17)} {
		if _, err := seal.Open(files, seal.Options{}); err == nil || !strings.HasPrefix(err.Error(), "seal.key_files") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestChangedFilesTakeEffect(t *testing.T) {
	c := clock.New()
	var log bytes.Buffer
	name := write(t, filepath.Join(t.TempDir(), "key"), secret(1))
	r, err := seal.Open([]string{name}, seal.Options{Resource: resource, Now: c.Now, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	old := sealed(t, r, seal.Session, "", "old")
	opens := func(text string) bool { _, ok := r.Open(seal.Session, nil, text); return ok }

	// A file that is gone, or half written, changes nothing, and is told once.
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", "half"} {
		if content != "" {
			write(t, name, []byte(content))
		}
		c.Advance(time.Second)
		if !opens(old) || !opens(sealed(t, r, seal.Session, "", "v")) {
			t.Error("the keys that were read are gone")
		}
	}
	if n := strings.Count(log.String(), "cannot be read"); n != 1 {
		t.Errorf("told %d times: %s", n, log.String())
	}

	write(t, name, secret(2))
	if !opens(old) {
		t.Error("the files are read more often than once a second")
	}
	c.Advance(time.Second)
	if opens(old) {
		t.Error("a key that was replaced still opens")
	}
	if !opens(sealed(t, r, seal.Session, "", "v")) || !strings.Contains(log.String(), "can be read again") {
		t.Errorf("the new key does not open: %s", log.String())
	}
}

func TestManySealAtOnce(t *testing.T) {
	c := clock.New()
	name := write(t, filepath.Join(t.TempDir(), "key"), secret(1))
	r, err := seal.Open([]string{name}, seal.Options{Resource: resource, Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				c.Advance(time.Second / 4)
				text, err := r.Seal(seal.Session, []byte("alice"), []byte("v"))
				if err != nil {
					t.Error(err)
				}
				if _, ok := r.Open(seal.Session, []byte("alice"), text); !ok {
					t.Error("it does not open")
				}
			}
		})
	}
	all.Wait()
}

// What one release sealed for alice, another opens.
const goldenState, goldenSession = "IIaf8ijdGm6TSS8R24RnHB7M6XzKYwKMUmXYXiMlMHfveA", "IB4jVIYAbzCDcveSFJFgR5_aHrc8sk9RE4bDUSVAysKpOQ"

// Whatever text, purpose and binding come, only what was sealed opens, and only so.
func FuzzOpen(f *testing.F) {
	r := open(f, seal.Options{}, secret(1), secret(2))
	for _, s := range []string{goldenState, goldenSession, "", "AAAA", goldenState + "=", goldenState[1:], strings.ToLower(goldenState)} {
		f.Add(uint8(seal.RequestState), []byte("alice"), s)
		f.Add(uint8(seal.Session), []byte("bob"), s)
	}
	f.Fuzz(func(t *testing.T, purpose uint8, binding []byte, s string) {
		got, ok := r.Open(seal.Purpose(purpose), binding, s)
		ours := map[string]seal.Purpose{goldenState: seal.RequestState, goldenSession: seal.Session}
		legal := string(binding) == "alice" && purpose != 0 && ours[s] == seal.Purpose(purpose)
		if ok != legal || ok && string(got) != "value" || !ok && got != nil {
			t.Errorf("got %q, %v", got, ok)
		}
	})
}

// What is derived is the same wherever the keys, the resource, the purpose and the binding are, and another wherever one differs.
func TestDerive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two := file("one", "0123456789abcdef0123456789abcdef"), file("two", "fedcba9876543210fedcba9876543210")
	derive := func(resource string, purpose seal.Purpose, binding string, files ...string) [][]byte {
		r, err := seal.Open(files, seal.Options{Resource: resource})
		if err != nil {
			t.Fatal(err)
		}
		all, err := r.Derive(purpose, []byte(binding))
		if err != nil || len(all) != len(files) {
			t.Fatalf("got %d, %v", len(all), err)
		}
		return all
	}
	first := derive("r", seal.HolderKey, "alice", one)[0]
	if again := derive("r", seal.HolderKey, "alice", two, one); !bytes.Equal(again[1], first) || bytes.Equal(again[0], first) {
		t.Error("a key that is no longer the first derives another")
	}
	for name, other := range map[string][]byte{
		"resource": derive("s", seal.HolderKey, "alice", one)[0],
		"purpose":  derive("r", seal.Session, "alice", one)[0],
		"binding":  derive("r", seal.HolderKey, "alicf", one)[0],
		"key":      derive("r", seal.HolderKey, "alice", two)[0],
	} {
		if bytes.Equal(first, other) || len(other) != 32 {
			t.Errorf("another %s derives the same", name)
		}
	}
}
