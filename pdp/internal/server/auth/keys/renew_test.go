package keys

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest/clock"
)

func renew(t *testing.T, k *Keys, r Renewal) string {
	t.Helper()
	secret, err := k.Renew(r)
	must(t, err)
	return secret
}

// Both secrets of a key that was renewed have its name, the one before for as long as they overlap, and both end together.
func TestRenewedKey(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), clock.New()
	running, k := open(t, dir, c), open(t, dir, c)
	first, err := k.Add(Spec{Name: "mia", Principal: auth.Principal{Type: "user", ID: "mia"}, Grant: auth.Grant{Tenants: []string{"acme"}, Permissions: []auth.Permission{auth.Approve}}})
	must(t, err)
	second := renew(t, k, Renewal{Name: "mia", Overlap: time.Hour})
	good := func(want ...string) {
		t.Helper()
		c.Advance(checkAtMost)
		for name, secret := range map[string]string{"first": first, "second": second} {
			caller, found := find(running, secret)
			if wanted := strings.Contains(strings.Join(want, " "), name); found != wanted {
				t.Errorf("%s: found is %t", name, found)
			}
			if found && (caller.Name != "key:mia" || !caller.Serves("acme") || !caller.May(auth.Approve) || caller.Principal.ID != "mia") {
				t.Errorf("%s: %+v", name, caller)
			}
		}
		if got := running.Holds("acme", "mia", auth.Approve); got != (len(want) > 0) {
			t.Errorf("what is by the name counts: %t", got)
		}
		if got := len(running.Approvers("acme")); got != min(1, len(want)) {
			t.Errorf("%d approvers have the name", got)
		}
	}
	good("first", "second")
	c.Advance(time.Hour - 3*checkAtMost)
	good("first", "second")
	c.Advance(checkAtMost)
	good("second")
	before := second
	second = renew(t, k, Renewal{Name: "mia"})
	good("second")
	if _, found := find(running, before); found {
		t.Error("without an overlap the secret before is good")
	}
	renew(t, k, Renewal{Name: "mia", Overlap: time.Hour})
	must(t, k.Revoke("mia"))
	good()
	if _, err := k.Renew(Renewal{Name: "mia"}); err == nil || !strings.Contains(err.Error(), "try policy-service keys list") {
		t.Errorf("a revoked key is renewed: %v", err)
	}
	if _, err := open(t, t.TempDir(), c).Renew(Renewal{Name: "mia"}); err == nil {
		t.Error("a key that there never was is renewed")
	}
}

// A key that has expired is refused with that word to its holder alone, and its renewal counts.
func TestExpiredKey(t *testing.T) {
	t.Parallel()
	c := clock.New()
	k := open(t, t.TempDir(), c)
	secret, err := k.Add(Spec{Name: "pep", Lifetime: time.Hour})
	must(t, err)
	says := func(key string) string {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+key)
		if _, err := (&auth.Authenticator{Keys: k}).Authenticate(r); err != nil {
			return err.Error()
		}
		return "good"
	}
	if got := says(secret); got != "good" {
		t.Error(got)
	}
	c.Advance(time.Hour)
	const expired = "the API key has expired; ask the operator to renew it"
	if got := says(secret); got != expired {
		t.Error(got)
	}
	if got := says(secret[:len(secret)-secretLength] + strings.Repeat("A", secretLength)); got == expired {
		t.Error("a wrong secret learns that the key has expired")
	}
	secret = renew(t, k, Renewal{Name: "pep"})
	if got := says(secret); got != "good" {
		t.Error(got)
	}
	c.Advance(time.Hour)
	if got := says(secret); got != expired {
		t.Errorf("renewed, it lives longer than the one before: %s", got)
	}
	must(t, k.Revoke("pep"))
	if got := says(secret); got == expired {
		t.Error("a revoked key says that it has expired")
	}
}

// Without a server that put it on record, an older file does not have the secret before outlive its end.
func TestOlderFileAfterARenewal(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), clock.New()
	k := open(t, dir, c)
	first := add(t, k, "pep")
	older, err := os.ReadFile(filepath.Join(dir, File))
	must(t, err)
	renew(t, k, Renewal{Name: "pep", Overlap: time.Hour})
	must(t, os.WriteFile(filepath.Join(dir, File), older, 0o600))
	again := open(t, dir, c)
	must(t, again.Follow(OnRecord{}, nil, func(uint64, []Event) error { return nil }))
	if _, found := find(again, first); found {
		t.Error("the secret before is good by an older file")
	}
}

// The end of a key on record counts before that of its file.
func TestEndOnRecord(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), clock.New()
	k := open(t, dir, c)
	secret, err := k.Add(Spec{Name: "pep", Lifetime: time.Hour})
	must(t, err)
	known, record := OnRecord{}, func(uint64, []Event) error { return nil }
	must(t, k.Follow(known, nil, record))
	file := filepath.Join(dir, File)
	text, err := os.ReadFile(file)
	must(t, err)
	before, rest, _ := strings.Cut(string(text), `"expires":"`)
	_, after, _ := strings.Cut(rest, `",`)
	for what, put := range map[string]string{
		"no end":      before + after,
		"a later end": before + `"expires":"` + c.Now().Add(2*time.Hour).Format(time.RFC3339) + `",` + after,
	} {
		must(t, os.WriteFile(file, []byte(put), 0o600))
		edited := open(t, dir, c)
		must(t, edited.Follow(known, nil, record))
		if _, found := find(edited, secret); found {
			t.Errorf("%s: the key counts", what)
		}
		if wrong := known.Against(open(t, dir, c)); !strings.Contains(wrong["pep"], "its end is another than the one on record") {
			t.Errorf("%s: %v", what, wrong)
		}
	}
}

// A revocation counts whatever the clock of the server says: it may go back, or be behind the clock of the command.
func TestRevokedWhateverTheClockSays(t *testing.T) {
	t.Parallel()
	dir, c, ahead := t.TempDir(), clock.New(), clock.New()
	ahead.Advance(time.Hour)
	running := open(t, dir, c)
	must(t, running.Follow(OnRecord{}, nil, func(uint64, []Event) error { return nil }))
	command := open(t, dir, ahead)
	first := add(t, command, "pep")
	second := renew(t, command, Renewal{Name: "pep", Overlap: time.Minute})
	if c.Advance(checkAtMost); !running.Holds("default", "pep", auth.Decide) {
		t.Fatal("the key counts before it is revoked")
	}
	must(t, command.Revoke("pep"))
	for range 2 {
		c.Advance(checkAtMost)
		for name, secret := range map[string]string{"first": first, "second": second} {
			if _, found := find(running, secret); found {
				t.Errorf("the %s secret of a revoked key counts", name)
			}
		}
		if running.Holds("default", "pep", auth.Decide) {
			t.Error("the name of a revoked key counts")
		}
		if _, err := running.Renew(Renewal{Name: "pep"}); err == nil {
			t.Error("a revoked key is renewed")
		}
		running = open(t, dir, c) // and after a start
	}
}

// A renewal marks the end of the secret before only once its own secret is in the file: a crash between the two, or a disk
// that fills up there, must not leave a key without any.
func TestRenewalMarksLast(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k := open(t, dir, clock.New())
	add(t, k, "pep")
	watcher, err := fsnotify.NewBufferedWatcher(100)
	must(t, err)
	defer func() { _ = watcher.Close() }()
	must(t, watcher.Add(dir))
	renew(t, k, Renewal{Name: "pep", Overlap: time.Hour})
	var written []string
	for {
		select {
		case e := <-watcher.Events:
			if name := filepath.Base(e.Name); e.Has(fsnotify.Create) && (name == MarksFile || name == File) {
				written = append(written, name)
			}
			if slices.Equal(written, []string{MarksFile, File, MarksFile}) {
				return
			}
		case err := <-watcher.Errors:
			t.Fatal(err)
		case <-t.Context().Done():
			t.Fatal("no file of keys is written")
		}
	}
}
