package server_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/server/doctor"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/memorydisk"
)

// keyFile reads the file of API keys, or puts it back as it was: a backup, or what somebody else wrote.
func keyFile(t *testing.T, data string, put ...string) string {
	t.Helper()
	name := filepath.Join(data, keys.File)
	for _, text := range put {
		must(t, os.WriteFile(name+".tmp", []byte(text), 0o600))
		must(t, os.Rename(name+".tmp", name))
	}
	text, err := os.ReadFile(name)
	must(t, err)
	return string(text)
}

func revokeKey(t *testing.T, data, name string) {
	t.Helper()
	apiKeys, err := keys.Open(data)
	must(t, err)
	must(t, apiKeys.Revoke(name))
}

// TestNoRevokedKeyComesBack: whatever becomes of the file of keys, and whether a server ran or not as the key was revoked, what the log says of
// it counts.
func TestNoRevokedKeyComesBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		revokedWhileServing, againWhileServing bool
		rotates                                bool
	}{
		"revoked and put back while a server runs":       {true, true, false},
		"revoked while a server runs, put back after it": {true, false, false},
		"revoked without a server":                       {false, false, false},
		"revoked without a server, and put back later":   {false, true, false},
		"segments later":                                 {true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			key := addKey(t, data, "pep", auth.Grant{})
			other := addKey(t, data, "other", auth.Grant{})
			start := func() *pdptest.Server {
				return pdptest.Start(t, bundle(t), withData(data), func(c *server.Config) {
					if test.rotates {
						server.TuneLog(c, func(o *decisionlog.Options, keep *decisionlog.Retention) { o.SegmentBytes, keep.Bytes = 128<<10, 1<<20 })
					}
				})
			}
			asks := func(s *pdptest.Server, key string) int {
				return s.Post(evaluationPath, readQuestion, "Authorization", key).Status
			}
			s := start()
			if asks(s, key) != http.StatusOK {
				t.Fatal("the key is not good")
			}
			old := keyFile(t, data)
			if !test.revokedWhileServing {
				stopAndWait(t, s)
			}
			revokeKey(t, data, "pep")
			if test.revokedWhileServing {
				eventually(t, "it is revoked", func() bool { return asks(s, key) == http.StatusUnauthorized })
				eventually(t, "that is on record", func() bool { return s.Recorded("api_key_revoked") })
				if large := strings.TrimSuffix(readQuestion, "}") + `,"context":{"note":"` + strings.Repeat("x", 16<<10) + `"}}`; test.rotates {
					eventually(t, "the record of that is dropped", func() bool {
						s.Post(evaluationPath, large, "Authorization", other)
						return !s.Recorded("api_key_revoked")
					})
				}
			}
			if !test.againWhileServing {
				if test.revokedWhileServing {
					stopAndWait(t, s)
				}
				keyFile(t, data, old)
			}
			if test.againWhileServing != test.revokedWhileServing || !test.againWhileServing {
				s = start()
			}
			if test.againWhileServing {
				keyFile(t, data, old)
			}
			eventually(t, "it is on record that the key was put back", func() bool { return s.Recorded("api_key_restored") })
			if got := asks(s, key); got != http.StatusUnauthorized {
				t.Errorf("the revoked key is good again: %d", got)
			}
			if got := asks(s, other); got != http.StatusOK {
				t.Errorf("the other key is good no more: %d", got)
			}
			stopAndWait(t, s)
			all := lines(t, data)
			if got := events(all, "api_key_restored"); len(got) != 1 || got[0].Details["in_force"] != false || !strings.Contains(fmt.Sprint(got[0].Details["after"]), "name:pep") {
				t.Errorf("%+v", got)
			}
			if got := events(all, "api_key_revoked"); (len(got) != 1) != test.rotates {
				t.Errorf("revoked: %+v", got)
			}
			bites := func(f finding.Finding) bool {
				return f.Check == "keys" && f.Bites && strings.Contains(f.Message, `"pep" is not in force`)
			}
			if got := doctor.Examine(t.Context(), doctor.Patient{Config: server.Config{Data: data}}); !slices.ContainsFunc(got, bites) {
				t.Errorf("the doctor says %+v", got)
			}
		})
	}
}

// TestNoKeyIsGoodForWhatTheLogDoesNotSay: a changed secret is no key's, every other change is on record before it counts, and it holds at the
// next start as well.
func TestNoKeyIsGoodForWhatTheLogDoesNotSay(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	key, forged := addKey(t, data, "pep", auth.Grant{}), addKey(t, data, "forger", auth.Grant{})
	s := pdptest.Start(t, bundle(t), withData(data))
	asks := func(key, path string) int { return s.Post(path, readQuestion, "Authorization", key).Status }
	hash := func(name string) string {
		_, rest, _ := strings.Cut(keyFile(t, data), `"name":"`+name+`"`)
		_, rest, _ = strings.Cut(rest, `"sha256":"`)
		return rest[:64]
	}
	mine, theirs := hash("pep"), hash("forger")
	good := keyFile(t, data)
	// A key of that id, whose hash anybody can make who can write the file.
	forgery := strings.Replace(forged, idOf(forged), idOf(key), 1)
	keyFile(t, data, strings.Replace(good, mine, hashOf(forgery), 1))
	eventually(t, "the change is on record", func() bool { return s.Recorded("api_key_changed") })
	for _, one := range []string{forgery, key} {
		if got := asks(one, evaluationPath); got != http.StatusUnauthorized {
			t.Errorf("a key is good whose secret changed: %d", got)
		}
	}
	keyFile(t, data, good)
	eventually(t, "the key is good again", func() bool { return asks(key, evaluationPath) == http.StatusOK })

	// Nor does another key get the name, whoever has its secret: votes that were given by the name would be its own.
	keyFile(t, data, strings.Replace(strings.Replace(good, mine, hashOf(strings.Replace(forged, idOf(forged), "other", 1)), 1), `"id":"`+idOf(key)+`"`, `"id":"other"`, 1))
	eventually(t, "the taken name is on record", func() bool { return s.CountRecorded("api_key_changed") == 2 })
	if got := asks(strings.Replace(forged, idOf(forged), "other", 1), evaluationPath); got != http.StatusUnauthorized {
		t.Errorf("another key has the name: %d", got)
	}
	keyFile(t, data, good)
	eventually(t, "the key is good once more", func() bool { return asks(key, evaluationPath) == http.StatusOK })

	more := strings.Replace(good, `"permissions":["decide"]`, `"permissions":["decide","explain"]`, 1)
	if more == good {
		t.Fatal(good)
	}
	keyFile(t, data, more)
	eventually(t, "the other change is on record", func() bool { return s.CountRecorded("api_key_changed") == 3 })
	more = strings.Replace(more, `,"explain"]`, `,"explain"],"audiences":["gw"]`, 1)
	keyFile(t, data, more)
	eventually(t, "its name as a verifier is on record", func() bool { return s.CountRecorded("api_key_changed") == 4 })
	stopAndWait(t, s)
	keyFile(t, data, strings.Replace(more, theirs, mine, 1))
	s = pdptest.Start(t, bundle(t), withData(data))
	if got := asks(forged, evaluationPath); got != http.StatusUnauthorized {
		t.Errorf("after a start a key is good whose secret changed: %d", got)
	}
	stopAndWait(t, s)
	changed := events(lines(t, data), "api_key_changed")
	var told []string
	for _, one := range changed {
		before, _ := one.Details["before"].(map[string]any)
		after, _ := one.Details["after"].(map[string]any)
		told = append(told, fmt.Sprint(before["name"], one.Details["in_force"], before["permissions"], after["permissions"], before["digest"] == after["digest"]))
	}
	want := []string{"pepfalse [decide] [decide] false", "pepfalse [decide] [decide] false", "pep<nil> [decide] [decide explain] true",
		"pep<nil> [decide explain] [decide explain] true", "forgerfalse [decide] [decide] false"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
}

// TestRenewedKeysOnRecord: a renewal is on record before it counts; neither an older file nor an edited one brings back the secret
// before, or gives the name to another.
func TestRenewedKeysOnRecord(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	first, forger := addKey(t, data, "pep", auth.Grant{}), addKey(t, data, "forger", auth.Grant{})
	renewed := func() string {
		apiKeys, err := keys.Open(data)
		must(t, err)
		secret, err := apiKeys.Renew(keys.Renewal{Name: "pep", Overlap: time.Hour})
		must(t, err)
		return "Bearer " + secret
	}
	s := pdptest.Start(t, bundle(t), withData(data))
	asks := func(key string) int { return s.Post(evaluationPath, readQuestion, "Authorization", key).Status }
	becomes := func(what, key string, want int) {
		t.Helper()
		eventually(t, what, func() bool { return asks(key) == want })
	}
	older := keyFile(t, data)
	second := renewed()
	becomes("the second secret is good", second, http.StatusOK)
	becomes("the first one still is", first, http.StatusOK)

	good := keyFile(t, data)
	keyFile(t, data, older)
	becomes("the first secret of an older file is not", first, http.StatusUnauthorized)
	becomes("nor is one that this file has not", second, http.StatusUnauthorized)
	keyFile(t, data, good)
	becomes("the file that was renewed counts again", second, http.StatusOK)
	becomes("for both", first, http.StatusOK)

	// Another has the file, and makes a second secret of that name by hand: with no proof, and with that of another.
	entry := good[strings.LastIndex(good, `{"id":`):strings.LastIndex(good, "]")]
	_, hash, _ := strings.Cut(entry, `"sha256":"`)
	unproved := entry[:strings.Index(entry, `,"proof"`)] + "}"
	for n, mine := range []string{entry, unproved} {
		id := fmt.Sprint("mine", n)
		forged := strings.Replace(forger, idOf(forger), id, 1)
		mine = strings.Replace(strings.Replace(mine, idOf(second), id, 1), hash[:64], hashOf(forged), 1)
		keyFile(t, data, good[:strings.LastIndex(good, "]")]+","+mine+"]}\n")
		eventually(t, "the forgery is on record", func() bool { return s.CountRecorded("api_key_changed") == n+1 })
		if got := asks(forged); got != http.StatusUnauthorized {
			t.Errorf("a forged renewal is good: %d", got)
		}
		becomes("the others stay good", second, http.StatusOK)
		keyFile(t, data, good)
		becomes("and so they are without it", second, http.StatusOK)
	}
	stopAndWait(t, s)

	third := renewed() // twice, and no server runs
	fourth := renewed()
	s = pdptest.Start(t, bundle(t), withData(data))
	for what, key := range map[string]string{"second": second, "third": third, "fourth": fourth} {
		if got := asks(key); got != http.StatusOK {
			t.Errorf("after a start the %s is not good: %d", what, got)
		}
	}
	revokeKey(t, data, "pep")
	for _, key := range []string{first, second, third, fourth} {
		becomes("a revocation ends all", key, http.StatusUnauthorized)
	}
	stopAndWait(t, s)
	keyFile(t, data, good)
	s = pdptest.Start(t, bundle(t), withData(data))
	for _, key := range []string{first, second, third, fourth} {
		if got := asks(key); got != http.StatusUnauthorized {
			t.Errorf("an older file has a revoked secret good: %d", got)
		}
	}
	stopAndWait(t, s)
	var forgeries int
	for _, one := range events(lines(t, data), "api_key_changed") {
		if one.Details["in_force"] == false {
			forgeries++
		}
	}
	if added := events(lines(t, data), "api_key_added"); forgeries != 2 || len(added) != 3 || added[0].Details["renews"] != idOf(first) {
		t.Errorf("%d forgeries on record, and added are %+v", forgeries, added)
	}
}

func idOf(credential string) string { return strings.Split(credential, "_")[1] }

func hashOf(credential string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.TrimPrefix(credential, "Bearer "))))
}

// TestNoKeyCountsWhileAChangeHasNoRecord: on a full disk, a key that was added is not good yet and one that was revoked is no longer,
// also where decisions are answered without a record. Nor is any other: it is not known which of the file count.
func TestNoKeyCountsWhileAChangeHasNoRecord(t *testing.T) {
	t.Parallel()
	data := memorydisk.New(t, "size=24m")
	old := addKey(t, data, "old", auth.Grant{})
	before := keyFile(t, data)
	added := addKey(t, data, "added", auth.Grant{})
	with := keyFile(t, data)
	marks := filepath.Join(data, keys.MarksFile)
	unmarked, err := os.ReadFile(marks)
	must(t, err)
	revokeKey(t, data, "old")
	without := keyFile(t, data)
	marked, err := os.ReadFile(marks)
	must(t, err)
	must(t, os.WriteFile(marks, unmarked, 0o600))
	keyFile(t, data, before)
	s := pdptest.Start(t, bundle(t), withData(data), func(c *server.Config) {
		c.DecisionLog.Mode = decisionlog.BestEffort
		server.TuneLog(c, func(o *decisionlog.Options, _ *decisionlog.Retention) { o.RetryEvery = time.Millisecond })
	})
	asks := func(key string) int {
		return s.Post(evaluationPath, readQuestion, "Authorization", key).Status
	}
	if asks(old) != http.StatusOK {
		t.Fatal("the key is not good")
	}
	next := filepath.Join(data, keys.File+".tmp")
	put := func(text string) {
		t.Helper()
		must(t, os.WriteFile(next, []byte(text), 0o600))
		room := filled(t, data)
		eventually(t, "the log cannot be written", func() bool {
			asks(old)
			return strings.Contains(s.Get("/readyz", "Authorization", old).Body, "degraded")
		})
		must(t, os.Rename(next, filepath.Join(data, keys.File)))
		eventually(t, "no key is good", func() bool { return asks(old) == http.StatusUnauthorized && asks(added) == http.StatusUnauthorized })
		room()
		eventually(t, "the change is on record", func() bool { return asks(added) == http.StatusOK })
	}
	put(with)
	must(t, os.WriteFile(marks, marked, 0o600))
	put(without)
	if asks(old) == http.StatusOK {
		t.Error("a revoked key is good")
	}
	stopAndWait(t, s)
	all := lines(t, data)
	if added, revoked := len(events(all, "api_key_added")), len(events(all, "api_key_revoked")); added != 1 || revoked != 1 {
		t.Errorf("on record are %d and %d", added, revoked)
	}
}
