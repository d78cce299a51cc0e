package server_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/server/doctor"
	"policy-service/pdp/pdptest"
)

// revokedDirs are a data directory before and after the key pep was revoked. The newest record of all keys has pep in force:
// what says otherwise is one record behind it, the file of keys, and its marks. The key late came after that record, too.
type revokedDirs struct {
	before, after    string
	pep, other, late string
}

func newRevokedDirs(t *testing.T) (d revokedDirs) {
	t.Helper()
	d.after, d.before = t.TempDir(), filepath.Join(t.TempDir(), "before")
	d.pep, d.other = addKey(t, d.after, "pep", auth.Grant{}), addKey(t, d.after, "other", auth.Grant{})
	s := pdptest.Start(t, bundle(t), withData(d.after))
	s.Post(evaluationPath, readQuestion, "Authorization", d.pep)
	stopAndWait(t, s)
	copyDir(t, d.before, d.after)
	s = pdptest.Start(t, bundle(t), withData(d.after))
	d.late = addKey(t, d.after, "late", auth.Grant{})
	eventually(t, "the key counts", func() bool {
		return s.Post(evaluationPath, readQuestion, "Authorization", d.late).Status == http.StatusOK
	})
	revokeKey(t, d.after, "pep")
	eventually(t, "that is on record", func() bool { return s.Recorded("api_key_revoked") })
	stopAndWait(t, s)
	return d
}

func copyDir(t *testing.T, to, from string) {
	t.Helper()
	must(t, os.CopyFS(to, os.DirFS(from)))
	must(t, filepath.WalkDir(to, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			err = os.Chmod(path, 0o600)
		}
		return err
	}))
}

// attacks are what somebody can do to the files of a directory who has an older copy, and not the keys.
func (d revokedDirs) attacks(t *testing.T) map[string]func(data string) {
	back := func(name string) func(string) {
		return func(data string) {
			content, err := os.ReadFile(filepath.Join(d.before, name))
			must(t, err)
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(data, name)), 0o700))
			must(t, os.WriteFile(filepath.Join(data, name), content, 0o600))
		}
	}
	gone := func(names ...string) func(string) {
		return func(data string) {
			for _, name := range names {
				must(t, os.RemoveAll(filepath.Join(data, name)))
			}
		}
	}
	words := func(from, to string) func(string) {
		return func(data string) { replaceInSegment(t, data, from, to) }
	}
	inSegment := func(do func(tx *bbolt.Tx) error) func(string) {
		return func(data string) {
			name := newestSegment(data)
			if name == "" {
				return
			}
			db, err := bbolt.Open(name, 0o600, nil)
			must(t, err)
			must(t, db.Update(do))
			must(t, db.Close())
		}
	}
	return map[string]func(string){
		"the older file of keys": back(keys.File),
		"the older marks":        back(keys.MarksFile),
		"no marks":               gone(keys.MarksFile),
		"no file of keys":        gone(keys.File, keys.LockFile),
		"no key of the marks":    gone(keys.RenewKey.File),
		"the log alone":          gone(keys.File, keys.LockFile, keys.MarksFile, keys.RenewKey.File),
		"no revocation in the file": func(data string) {
			name := filepath.Join(data, keys.File)
			text, err := os.ReadFile(name)
			if before, rest, found := bytes.Cut(text, []byte(`,"revoked":"`)); err == nil && found {
				_, rest, _ = bytes.Cut(rest, []byte{'"'})
				must(t, os.WriteFile(name, append(bytes.Clone(before), rest...), 0o600))
			}
		},
		"another event":         words(`"event":"api_key_revoked"`, `"event":"api_key_revisit"`),
		"another kind":          words(`"kind":"admin","event":"api_key_revoked"`, `"kind":"audit","event":"api_key_revoked"`),
		"another key":           words(`"event":"api_key_revoked","details":{"id":"`+idOf(d.pep), `"event":"api_key_revoked","details":{"id":"`+idOf(d.late)),
		"another member":        words(`"revoked":"`, `"created":"`),
		"no record of all keys": words(`"event":"api_keys"`, `"event":"no_keys_"`),
		"no records of keys": inSegment(func(tx *bbolt.Tx) error {
			c := tx.Bucket([]byte(format.BucketRecords)).Cursor()
			for k, v := c.First(); k != nil; k, v = c.Next() {
				if bytes.Contains(v, []byte(`"api_key`)) {
					if err := c.Delete(); err != nil {
						return err
					}
				}
			}
			return nil
		}),
		"another number": inSegment(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(format.BucketMeta)).Put([]byte(format.MetaKeys), []byte{0, 0, 0, 0, 0, 0, 0, 1})
		}),
		"no head": inSegment(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(format.BucketMeta)).Delete([]byte(format.MetaHead))
		}),
		"the older segment":    back("log/00000001.db"),
		"no segment":           func(data string) { _ = os.Remove(filepath.Join(data, "log/00000001.db")) },
		"no log":               gone("log"),
		"no keys of the log":   gone(format.KeyFile, format.PublicKeyFile),
		"no checkpoint":        gone(format.CheckpointFile),
		"the older checkpoint": back(format.CheckpointFile),
		"a restore that never was": func(data string) {
			apiKeys, err := keys.Open(d.before)
			must(t, err)
			must(t, apiKeys.Follow(keys.OnRecord{}, nil, func(uint64, []keys.Event) error { return nil }))
			text, err := json.Marshal(map[string]any{"record": map[string]any{}, "keys": apiKeys.OnRecord()})
			must(t, err)
			must(t, os.WriteFile(filepath.Join(data, "restored.json"), text, 0o600))
		},
	}
}

func newestSegment(data string) string {
	all, _ := filepath.Glob(filepath.Join(data, "log", "*.db"))
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// replaceInSegment alters words of the newest segment in place.
func replaceInSegment(t *testing.T, data, from, to string) {
	t.Helper()
	name := newestSegment(data)
	if name == "" {
		return
	}
	if len(from) != len(to) {
		t.Fatal(from, to)
	}
	content, err := os.ReadFile(name)
	must(t, err)
	must(t, os.WriteFile(name, bytes.ReplaceAll(content, []byte(from), []byte(to)), 0o600))
}

// TestNoAttackBringsARevokedKeyBack does one, two and three things to a directory, and starts a server on it. Three are not
// enough to put back file, marks and log of one moment.
func TestNoAttackBringsARevokedKeyBack(t *testing.T) {
	t.Parallel()
	d := newRevokedDirs(t)
	attacks := d.attacks(t)
	names := slices.Sorted(maps.Keys(attacks))
	sets := [][]string{nil}
	for n, first := range names {
		sets = append(sets, []string{first})
		for _, second := range names[n+1:] {
			sets = append(sets, []string{first, second})
		}
		if first != "the older file of keys" && first != "the older marks" {
			sets = append(sets, []string{"the older file of keys", "the older marks", first})
		}
	}
	if testing.Short() { // each alone, and some of three
		sets = slices.DeleteFunc(sets, func(set []string) bool {
			return len(set) == 2 || len(set) == 3 && !slices.Contains([]string{"another event", "no records of keys", "another number", "no segment", "a restore that never was"}, set[2])
		})
	}
	started, good := 0, 0
	for _, set := range sets {
		data := filepath.Join(t.TempDir(), "data")
		copyDir(t, data, d.after)
		for _, name := range set {
			attacks[name](data)
		}
		findings := doctor.Examine(t.Context(), doctor.Patient{Config: server.Config{Data: data}})
		bites := slices.ContainsFunc(findings, func(f finding.Finding) bool { return f.Bites && (f.Check == "keys" || f.Check == "log") })
		s, err := pdptest.TryStart(t, bundle(t), withData(data))
		if err != nil {
			continue
		}
		started++
		if got := s.Post(evaluationPath, readQuestion, "Authorization", d.pep).Status; got != http.StatusUnauthorized {
			t.Errorf("%q: the revoked key is answered %d", set, got)
		}
		if got := s.Post(evaluationPath, readQuestion).Status; got != http.StatusUnauthorized {
			t.Errorf("%q: nobody's question is answered %d", set, got)
		}
		other := s.Post(evaluationPath, readQuestion, "Authorization", d.other).Status
		if other == http.StatusOK {
			good++
		}
		degraded := strings.Contains(s.Get("/readyz", "Authorization", d.other).Body, "degraded")
		if degraded && !bites {
			t.Errorf("%q: it is degraded, and the doctor says %+v", set, findings)
		}
		stopAndWait(t, s)
	}
	t.Logf("of %d directories a server started on %d, and another key was good on %d", len(sets), started, good)
	if started < 10 || good < 5 {
		t.Errorf("it started %d of %d times, and another key was good %d times", started, len(sets), good)
	}
}

// TestNoByteOfTheLogBringsARevokedKeyBack alters each byte of the records of keys, with the older file and its marks put back.
func TestNoByteOfTheLogBringsARevokedKeyBack(t *testing.T) {
	t.Parallel()
	d := newRevokedDirs(t)
	data := filepath.Join(t.TempDir(), "data")
	copyDir(t, data, d.after)
	for _, name := range []string{"the older file of keys", "the older marks"} {
		d.attacks(t)[name](data)
	}
	name := newestSegment(data)
	whole, err := os.ReadFile(name)
	must(t, err)
	step, tried := 1, 0
	if testing.Short() {
		step = 41
	}
	for _, event := range []string{"api_keys", "api_key_added", "api_key_revoked"} {
		at := bytes.LastIndex(whole, fmt.Appendf(nil, `"event":%q`, event))
		if at < 0 {
			t.Fatal(event)
		}
		for n := at - 150; n < at+700; n += step {
			altered := slices.Clone(whole)
			altered[n] ^= 1
			must(t, os.WriteFile(name, altered, 0o600))
			reader, err := segment.OpenReader(data)
			if err != nil {
				continue // a start is refused
			}
			apiKeys, err := keys.Open(data)
			must(t, err)
			known, _, err := keys.ReadLog(t.Context(), reader, apiKeys)
			must(t, reader.Close())
			if err != nil {
				continue
			}
			tried++
			must(t, apiKeys.Follow(known, nil, func(uint64, []keys.Event) error { return nil }))
			secret := strings.TrimPrefix(d.pep, "Bearer ")
			if _, err := apiKeys.Find(auth.KeyID(secret), auth.KeyHash(secret)); err == nil {
				t.Errorf("byte %d of %s brings it back", n-at, event)
			}
		}
	}
	if tried == 0 {
		t.Error("nothing was read")
	}
}

// TestAStartForgetsNoNumberOfTheKeys starts a server on the older files of the keys before the words of the log are altered.
func TestAStartForgetsNoNumberOfTheKeys(t *testing.T) {
	t.Parallel()
	d := newRevokedDirs(t)
	data := filepath.Join(t.TempDir(), "data")
	copyDir(t, data, d.after)
	attacks := d.attacks(t)
	for _, set := range [][]string{{"the older file of keys", "the older marks"}, {"another member", "another event"}} {
		for _, name := range set {
			attacks[name](data)
		}
		s := pdptest.Start(t, bundle(t), withData(data))
		if got := s.Post(evaluationPath, readQuestion, "Authorization", d.pep).Status; got != http.StatusUnauthorized {
			t.Errorf("after %q the revoked key is answered %d", set, got)
		}
		stopAndWait(t, s)
	}
}
