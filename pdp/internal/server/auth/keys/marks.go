package keys

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/server/auth"
)

// MarksFile is the name, in the data directory, of the file with the marks of revocations, which is older than no
// revocation: an older file of keys may be put back, and a server may not have put the revocation on record yet.
//
//	number 12
//	ID TIME, a line for each key that was ever revoked, by id: from when on
//	mac, HMAC-SHA256 of the lines above by the key of [RenewKey], in lower-case hex
//
// Each change of the keys raises the number, here first and then in the file of keys. So a crash leaves the higher number
// here, and so does an older file of keys: then the marks are complete. Marks with the lower number, or none, are older than
// the file, and nobody knows which keys were revoked since.
const MarksFile = "api-keys.revoked"

// maxMarks is room for some hundred thousand marks.
const maxMarks = 8 << 20

// marks say when keys were revoked, by their ids.
type marks struct {
	number uint64
	ended  map[string]time.Time
}

// readMarks reads the marks of a directory. If there is no file, the number is 0.
func readMarks(dir string) (m marks, err error) {
	text, err := plainfile.Read(filepath.Join(dir, MarksFile), maxMarks)
	if errors.Is(err, fs.ErrNotExist) {
		return marks{}, nil
	}
	var key []byte
	if err == nil {
		key, err = RenewKey.Read(dir)
	}
	if err != nil {
		return m, err
	}
	signed, mac, _ := bytes.Cut(text, []byte("mac "))
	if key == nil || !hmac.Equal(bytes.TrimSuffix(mac, []byte("\n")), macOf(key, signed)) {
		return m, fmt.Errorf("%s was not written with %s", MarksFile, RenewKey.File)
	}
	return parseMarks(string(signed))
}

func parseMarks(text string) (m marks, err error) {
	m.ended = map[string]time.Time{}
	for line := range strings.Lines(text) {
		id, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if m.number == 0 && id == "number" {
			m.number, err = strconv.ParseUint(value, 10, 63)
		} else {
			m.ended[id], err = time.Parse(time.RFC3339, value)
		}
		if err != nil || !auth.IsKeyID(id) {
			return m, fmt.Errorf("%s has a line that is not the id of a key and a time", MarksFile)
		}
	}
	return m, nil
}

// macOf returns the MAC of the marks in lower-case hex.
func macOf(key, signed []byte) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "marks\n%s", signed)
	return hex.AppendEncode(nil, mac.Sum(nil))
}

// write puts the marks in place durably.
func (m marks) write(dir string) error {
	key, err := RenewKey.Open(dir)
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, "number %d\n", m.number)
	for _, id := range slices.Sorted(maps.Keys(m.ended)) {
		text = fmt.Appendf(text, "%s %s\n", id, m.ended[id].UTC().Format(time.RFC3339))
	}
	return plainfile.Replace(filepath.Join(dir, MarksFile), fmt.Appendf(text, "mac %s\n", macOf(key, text)))
}

// mark adds the revocations in a file of keys.
func (m *marks) mark(file *document) {
	for _, stored := range file.Keys {
		if !stored.Revoked.IsZero() {
			m.ended[stored.ID] = soonest(m.ended[stored.ID], stored.Revoked)
		}
	}
}

// SealRestored makes the marks of a restored directory again, with a key of its own, if the backup has none of either. It
// believes what is in the backup.
func SealRestored(dir string) error {
	stored, _, number, err := readFile(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	text, missing := plainfile.Read(filepath.Join(dir, MarksFile), maxMarks)
	switch {
	case err != nil:
		return err
	case missing == nil && RenewKey.There(dir):
		return nil
	case missing != nil && !errors.Is(missing, fs.ErrNotExist):
		return missing
	}
	signed, _, _ := strings.Cut(string(text), "mac ")
	m, err := parseMarks(signed)
	if err != nil {
		return err
	}
	m.number = max(m.number, number, 1)
	m.mark(&document{Keys: stored})
	return m.write(dir)
}
