package keys

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/pdptest/clock"
)

// keyStates are the files of a directory after each of some changes: revoked was revoked by the last but one, kept never.
type keyStates struct {
	file, marks   [][]byte
	key           []byte
	revoked, kept string
	revokedBefore int // the first state in which it is revoked
}

func newKeyStates(t *testing.T) (s keyStates) {
	t.Helper()
	dir := t.TempDir()
	k := open(t, dir, clock.New())
	take := func() {
		for name, to := range map[string]*[][]byte{File: &s.file, MarksFile: &s.marks} {
			content, err := os.ReadFile(filepath.Join(dir, name))
			must(t, err)
			*to = append(*to, content)
		}
	}
	s.revoked, s.kept = add(t, k, "revoked"), add(t, k, "kept")
	take()
	renew(t, k, Renewal{Name: "kept", Overlap: time.Hour})
	take()
	must(t, k.Revoke("revoked"))
	s.revokedBefore = 2
	take()
	add(t, k, "later")
	take()
	var err error
	s.key, err = os.ReadFile(filepath.Join(dir, RenewKey.File))
	must(t, err)
	return s
}

// put makes a directory of files; nil is none.
func (s keyStates) put(t *testing.T, file, marks, key []byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string][]byte{File: file, MarksFile: marks, RenewKey.File: key} {
		if content != nil {
			must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		}
	}
	return dir
}

// TestFileAndMarksOfTwoMoments: whichever of the two is older, altered or gone, no revoked key is good. The marks are the
// newer ones after a command that was killed, so that costs nobody a key.
func TestFileAndMarksOfTwoMoments(t *testing.T) {
	t.Parallel()
	s := newKeyStates(t)
	for f, file := range s.file {
		for m, marks := range s.marks {
			k, err := OpenAt(s.put(t, file, marks, s.key), clock.New().Now)
			if (err != nil) != (m < f) {
				t.Errorf("the file of %d and the marks of %d: %v", f, m, err)
			}
			if err != nil {
				continue
			}
			if damage := k.Damage(); (damage != nil) != (m > f) {
				t.Errorf("the file of %d and the marks of %d: the damage is %v", f, m, damage)
			}
			_, revoked := find(k, s.revoked)
			_, kept := find(k, s.kept)
			if revoked != (m < s.revokedBefore) || !kept && (f > 0 || m == 0) {
				t.Errorf("the file of %d and the marks of %d: the revoked key %v, the other %v", f, m, revoked, kept)
			}
		}
		last := len(s.marks) - 1
		for what, dir := range map[string]string{
			"without marks":          s.put(t, file, nil, s.key),
			"without their key":      s.put(t, file, s.marks[last], nil),
			"with the key of others": s.put(t, file, s.marks[last], bytes.Repeat([]byte{7}, 32)),
		} {
			if k, err := OpenAt(dir, clock.New().Now); err == nil || !strings.Contains(err.Error(), "from one backup") {
				t.Errorf("%s: %v %v", what, k, err)
			}
		}
	}
}

// TestNoByteBringsARevocationBack alters each byte of either file.
func TestNoByteBringsARevocationBack(t *testing.T) {
	t.Parallel()
	s := newKeyStates(t)
	last := len(s.file) - 1
	for what, of := range map[string][]byte{File: s.file[last], MarksFile: s.marks[last], RenewKey.File: s.key} {
		dir := s.put(t, s.file[last], s.marks[last], s.key)
		for n := range of {
			for _, flip := range []byte{1, 0x20} {
				altered := slices.Clone(of)
				altered[n] ^= flip
				must(t, os.WriteFile(filepath.Join(dir, what), altered, 0o600))
				k, err := OpenAt(dir, clock.New().Now)
				if err != nil {
					continue
				}
				if what != File {
					t.Fatalf("byte %d of %s is altered, and nobody knows", n, what)
				}
				if _, good := find(k, s.revoked); good {
					t.Errorf("byte %d of %s brings the key back", n, what)
				}
			}
		}
	}
}

// TestCommandsKilledBetweenTwoWrites: what a killed command leaves is mended by the next, and keeps what it revoked.
func TestCommandsKilledBetweenTwoWrites(t *testing.T) {
	t.Parallel()
	s := newKeyStates(t)
	for n := 1; n < len(s.file); n++ {
		dir := s.put(t, s.file[n-1], s.marks[n], s.key)
		must(t, os.WriteFile(filepath.Join(dir, LockFile), []byte(keysWereHere), 0o600))
		k := open(t, dir, clock.New())
		if k.Damage() == nil {
			t.Errorf("after change %d: no damage", n)
		}
		add(t, k, "another")
		k = open(t, dir, clock.New())
		_, revoked := find(k, s.revoked)
		if damage := k.Damage(); damage != nil || revoked != (n < s.revokedBefore) {
			t.Errorf("after change %d and another: %v, the revoked key is good: %v", n, damage, revoked)
		}
	}
	// The first change of all: nothing but marks is there.
	dir := t.TempDir()
	add(t, open(t, dir, clock.New()), "first")
	must(t, os.Remove(filepath.Join(dir, File)))
	if _, err := OpenAt(dir, clock.New().Now); err == nil {
		t.Error("the file of keys is gone, and nobody says so")
	}
	must(t, os.Remove(filepath.Join(dir, LockFile)))
	k := open(t, dir, clock.New())
	if k.Configured() {
		t.Error("a first key that was never written keeps a server from starting")
	}
	add(t, k, "again")
	must(t, k.Revoke("again"))
	must(t, os.Remove(filepath.Join(dir, File)))
	must(t, os.Remove(filepath.Join(dir, LockFile)))
	if _, err := OpenAt(dir, clock.New().Now); err == nil {
		t.Error("marks without a file of keys open the door")
	}
}

// TestKeysOfABackupWithoutSecrets: marks that were restored without their key count again.
func TestKeysOfABackupWithoutSecrets(t *testing.T) {
	t.Parallel()
	s := newKeyStates(t)
	last := len(s.file) - 1
	for what, dir := range map[string]string{
		"an older file": s.put(t, s.file[0], s.marks[last], nil),
		"the newest":    s.put(t, s.file[last], s.marks[last], nil),
		"no marks":      s.put(t, s.file[last], nil, nil),
	} {
		must(t, SealRestored(dir))
		k := open(t, dir, clock.New())
		_, revoked := find(k, s.revoked)
		if (k.Damage() != nil) != (what == "an older file") || revoked {
			t.Errorf("%s: %v, the revoked key is good: %v", what, k.Damage(), revoked)
		}
	}
	must(t, SealRestored(t.TempDir()))
}
