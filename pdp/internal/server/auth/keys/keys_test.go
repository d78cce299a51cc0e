package keys

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest/clock"
)

// secretLength is how many bytes end a key.
const secretLength = 43

func open(t testing.TB, dir string, c *clock.Clock) *Keys {
	t.Helper()
	k, err := OpenAt(dir, c.Now)
	must(t, err)
	return k
}

func add(t testing.TB, k *Keys, name string) string {
	t.Helper()
	secret, err := k.Add(Spec{Name: name})
	must(t, err)
	return secret
}

func find(k *Keys, secret string) (auth.Caller, bool) {
	caller, err := k.Find(auth.KeyID(secret), auth.KeyHash(secret))
	return caller, err == nil
}

func TestKeyHasItsDefaults(t *testing.T) {
	t.Parallel()
	k := open(t, t.TempDir(), clock.New())
	caller, found := find(k, add(t, k, "pep"))
	if !found || caller.Name != "key:pep" || caller.Registered || caller.AllTenants ||
		!caller.Serves("default") || caller.Serves("acme") || !caller.May(auth.Decide) || caller.May(auth.Search) {
		t.Errorf("got %v %+v, want key:pep that decides in default, without registration", found, caller)
	}
	secret, err := k.Add(Spec{Name: "all", Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Search, auth.LogRead}, Obligations: []string{}, Audiences: []string{"gw"}}})
	must(t, err)
	if caller, _ := find(k, secret); !caller.Serves("acme") || caller.May(auth.Decide) || !caller.May(auth.LogRead) || !caller.Registered || !slices.Equal(caller.Asker().Audiences, []string{"gw"}) {
		t.Errorf("got %+v, want what was asked for", caller)
	}
}

func TestKeysThatAreNotGood(t *testing.T) {
	t.Parallel()
	k := open(t, t.TempDir(), clock.New())
	good, other := add(t, k, "pep"), add(t, k, "other")
	elsewhere := add(t, open(t, t.TempDir(), clock.New()), "pep")
	secret := good[len(good)-secretLength:]
	for name, key := range map[string]string{
		"wrong":             good[:len(good)-secretLength] + strings.Repeat("A", secretLength),
		"of another store":  elsewhere,
		"truncated":         good[:len(good)-1],
		"longer":            good + "A",
		"secret of another": other[:len(other)-secretLength] + secret,
		"unknown id":        "psk_zzzzzzzz_" + secret,
		"no id":             "psk__" + secret,
		"no prefix":         strings.TrimPrefix(good, "psk_"),
		"upper case":        strings.ToUpper(good),
		"its id alone":      auth.KeyID(good),
		"huge":              "psk_" + strings.Repeat("a", 1<<16) + "_" + secret,
		"hash":              k.current().stored[0].SHA256,
		"empty":             "",
	} {
		if caller, found := find(k, key); found || caller.Name != "" {
			t.Errorf("%s: found %+v", name, caller)
		}
	}
	if _, found := find(k, good); !found {
		t.Error("the good one is not found")
	}
}

func TestRevokedElsewhereStopsWithinASecond(t *testing.T) {
	t.Parallel()
	dir, c := filepath.Join(t.TempDir(), "not", "yet"), clock.New()
	running := open(t, dir, c)
	if running.Configured() {
		t.Fatal("configured before there was a key")
	}
	command := open(t, dir, c)
	secret := add(t, command, "pep")
	c.Advance(checkAtMost)
	if _, found := find(running, secret); !found || !running.Configured() {
		t.Error("a key added elsewhere is not found, or the door is open")
	}
	must(t, command.Revoke("pep"))
	if _, found := find(command, secret); found {
		t.Error("revoked here, and still good here")
	}
	c.Advance(checkAtMost)
	if _, found := find(running, secret); found || !running.Configured() {
		t.Error("revoked elsewhere, and still good; or the door is open again")
	}
	if again := open(t, dir, c); !again.Configured() {
		t.Error("after a restart the door is open again")
	}
	if _, err := command.Add(Spec{Name: "pep"}); err == nil {
		t.Error("a name was used again")
	}
}

// A key counts as soon as it was added elsewhere. Of many wrong keys not each is a reason to read the file.
func TestAddedElsewhereCountsAtOnce(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), clock.New()
	command := open(t, dir, c)
	first := add(t, command, "first")
	running := open(t, dir, c)
	second := add(t, command, "second")
	if _, found := find(running, first); !found {
		t.Error("the first key is not found")
	}
	if _, found := find(running, second); found {
		t.Error("the file is read for each wrong key")
	}
	c.Advance(checkWrong)
	if _, found := find(running, second); !found {
		t.Error("the second key is not found")
	}
	must(t, command.Revoke("first"))
	c.Advance(checkWrong)
	if _, found := find(running, first); !found {
		t.Error("the file is read for each right key")
	}
	if _, found := find(running, add(t, open(t, t.TempDir(), c), "other")); found {
		t.Error("a wrong key is found")
	}
	if _, found := find(running, first); found {
		t.Error("what was read for a wrong key does not count")
	}
}

// A directory of before the lock told of keys is given the note at the first start.
func TestLostFileOfADirectoryOfBefore(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), clock.New()
	k := open(t, dir, c)
	must(t, k.Keep())
	if _, err := os.Stat(filepath.Join(dir, LockFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there are no keys, and a lock: %v", err)
	}
	add(t, k, "pep")
	must(t, os.Truncate(filepath.Join(dir, LockFile), 0))
	for range 2 {
		must(t, open(t, dir, c).Keep())
	}
	if text, err := os.ReadFile(filepath.Join(dir, LockFile)); err != nil || string(text) != keysWereHere {
		t.Errorf("the note is %q, %v", text, err)
	}
	must(t, os.Remove(filepath.Join(dir, File)))
	if _, err := OpenAt(dir, c.Now); err == nil {
		t.Error("a new server starts without the keys")
	}
	must(t, os.Remove(filepath.Join(dir, LockFile)))
	if open(t, dir, c).Configured() {
		t.Error("without both files there are credentials")
	}
}

func TestUnreadableFileRefusesEverybody(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(file string) error{
		"gone":           os.Remove,
		"empty":          func(file string) error { return os.WriteFile(file, nil, 0o600) },
		"cut":            func(file string) error { return os.Truncate(file, 20) },
		"of the future":  rewrite(`"format":1`, `"format":30`),
		"unknown member": rewrite(`"format":1`, `"format":1,"expires":"2026"`),
		"member twice":   rewrite(`"format":1`, `"format":1,"format":1`),
		"no hash":        rewrite(`"sha256":"`, `"sha256":"x`),
		"no tenants":     rewrite(`"tenants":["default"]`, `"tenants":[]`),
		"bad permission": rewrite(`"decide"`, `"everything"`),
		"a directory":    func(file string) error { return replace(file, func() error { return os.Mkdir(file, 0o700) }) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, c := t.TempDir(), clock.New()
			k := open(t, dir, c)
			secret := add(t, k, "pep")
			file := filepath.Join(dir, File)
			whole, err := os.ReadFile(file)
			must(t, err)
			var log strings.Builder
			k.LogTo(slog.New(slog.NewTextHandler(&log, nil)))
			must(t, harm(file))
			for range 3 {
				c.Advance(time.Second)
				if _, found := find(k, secret); found || !k.Configured() || k.Err() == nil {
					t.Fatal("a key is good, or the door open")
				}
			}
			if _, err := OpenAt(dir, c.Now); err == nil {
				t.Error("a new server starts with it")
			}
			if _, err := k.Add(Spec{Name: "new"}); err == nil || !strings.Contains(err.Error(), "; try ") {
				t.Errorf("adding: got %v, want an error that says what to try", err)
			}
			if n := strings.Count(log.String(), "\n"); n != 1 {
				t.Errorf("got %d log lines, want one: %s", n, log.String())
			}
			must(t, replace(file, func() error { return os.WriteFile(file, whole, 0o600) }))
			c.Advance(time.Second)
			if _, found := find(k, secret); !found {
				t.Errorf("put back, and not found: %v", k.Err())
			}
		})
	}
}

func replace(file string, with func() error) error {
	if err := os.RemoveAll(file); err != nil {
		return err
	}
	return with()
}

func rewrite(from, to string) func(string) error {
	return func(file string) error {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return os.WriteFile(file, []byte(strings.Replace(string(content), from, to, 1)), 0o600)
	}
}

func TestFindWhileKeysComeAndGo(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), clock.New()
	k, elsewhere := open(t, dir, c), open(t, dir, c)
	good := add(t, k, "good")
	var lookups sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		lookups.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				c.Advance(time.Millisecond)
				if _, found := find(k, good); !found {
					t.Error("a good key was not found")
					return
				}
			}
		})
	}
	for i := range 20 {
		name := fmt.Sprint("passing ", i)
		secret := add(t, elsewhere, name)
		c.Advance(time.Second)
		if _, found := find(k, secret); !found {
			t.Errorf("%s is not found", name)
		}
		must(t, elsewhere.Revoke(name))
		c.Advance(time.Second)
		if _, found := find(k, secret); found {
			t.Errorf("%s is found after it was revoked", name)
		}
	}
	close(done)
	lookups.Wait()
}

// TestProcessesAddAtOnce runs itself in the processes that add.
func TestProcessesAddAtOnce(t *testing.T) {
	t.Parallel()
	if dir, name := os.Getenv("AUTH_TEST_DIR"), os.Getenv("AUTH_TEST_NAME"); dir != "" {
		k, err := Open(dir)
		must(t, err)
		for i := range 10 {
			add(t, k, fmt.Sprint(name, i))
		}
		return
	}
	dir := filepath.Join(t.TempDir(), "data")
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		all.Go(func() {
			process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcessesAddAtOnce$")
			process.Env = append(os.Environ(), "AUTH_TEST_DIR="+dir, "AUTH_TEST_NAME="+name)
			if out, err := process.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	if n := len(open(t, dir, clock.New()).List()); n != 30 {
		t.Errorf("got %d keys, want 30", n)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// Whoever looks while another process makes the first key sees no file, and then that there were keys. They are not lost.
func TestFirstKeyWhileSomebodyLooks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := directory(dir)
	info, err := file.unlessLost(func() error {
		add(t, open(t, dir, clock.New()), "first")
		return file.lost()
	})
	if info == nil || err != nil {
		t.Errorf("got %v, %v", info, err)
	}
	must(t, os.Remove(filepath.Join(dir, File)))
	if info, err := file.unlessLost(file.lost); info != nil || err == nil {
		t.Errorf("the file is gone, and got %v, %v", info, err)
	}
}

func TestNamesThatNobodyMayHave(t *testing.T) {
	t.Parallel()
	k := open(t, t.TempDir(), clock.New())
	for _, name := range []string{"", " pep", "pep ", "-pep", "p\nep", "p\x00ep", "p\xffep", "psk_abc", strings.Repeat("x", 129)} {
		if _, err := k.Add(Spec{Name: name}); err == nil {
			t.Errorf("%q: no error", name)
		} else if strings.Contains(err.Error(), "psk_abc") {
			t.Errorf("%q: the error repeats it: %v", name, err)
		}
	}
	if k.Configured() {
		t.Error("a refused key closed the door")
	}
}

// What does finding the caller of a key cost, among ten thousand?
func BenchmarkFindKey(b *testing.B) {
	dir := b.TempDir()
	k, err := Open(dir)
	must(b, err)
	secret := add(b, k, "pep")
	file := document{Keys: k.current().stored}
	for i := range 10_000 {
		other := file.Keys[0]
		other.ID, other.Name = fmt.Sprint("x", i), fmt.Sprint("other ", i)
		file.Keys = append(file.Keys, other)
	}
	must(b, writeFile(dir, file))
	b.ReportAllocs()
	for b.Loop() {
		if _, found := find(k, secret); !found {
			b.Fatal("not found")
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
