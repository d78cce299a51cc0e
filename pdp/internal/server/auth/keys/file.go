package keys

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/server/auth"
)

// document is the file of API keys in the data directory, one JSON document:
//
//	{"format":1,"number":12,"keys":[{"id":"…","name":"…","principal":"User::\"mia\"","via":"console","tenants":["default"],
//	 "permissions":["decide"],"obligations":["…"],"audiences":["…"],"created":"…","expires":"…","revoked":"…","renews":"…",
//	 "sha256":"…","proof":"…"}]}
//
// sha256 is of the whole key, in lower-case hex. principal is absent if the holder is no entity of policies, via if the key
// relays no votes or those of a gateway's form, obligations and audiences if none are registered, expires if it never does,
// and revoked while no end of the key is settled: a key that was renewed ends at that time, which may be to come. renews
// and proof are of a renewal alone: the id of the first key of that name, and [proof]. All times are RFC 3339. Keys
// stand in the order they were added. A revoked one stays, so that its name is never used again. number is that of the
// change that wrote the file, by which it belongs to its marks: see [MarksFile].
//
// It grows by a new number of format: a member that a reader does not know could
// be a restriction, so unknown members and formats refuse the whole file.
type document struct {
	Format int         `json:"format"`
	Number uint64      `json:"number,omitzero"`
	Keys   []storedKey `json:"keys"`
}

const (
	// File is the name, in the data directory, of the file with the API keys.
	File = "api-keys.json"
	// LockFile is the name of the lock of that file, which notes whether there were keys.
	LockFile = "api-keys.lock"
)

const (
	keyFormat = 1
	// maxFile is room for some hundred thousand keys.
	maxFile = 64 << 20
)

type storedKey struct {
	Info
	SHA256 string `json:"sha256"`
	// Proof is that of a renewal.
	Proof string `json:"proof,omitzero"`

	refused bool // it is not in force, whatever the file says
}

// store is where keys are kept.
type store interface {
	// place names it, for errors.
	place() string
	// due reports whether a view of so long ago is to be looked at again, if that is done every so often.
	due(age, every time.Duration) bool
	// look brings a view up to date, and reports whether anything is new. An error says what to try.
	look(view *snapshot) (news bool, err error)
	// edit changes the keys from what they are then. What two processes change at once, both is changed.
	edit(k *Keys, e edit) error
	// prover is the key that proves renewals, nil if there is none yet; make makes it.
	prover(make bool) ([]byte, error)
	// keep notes that there are keys.
	keep(view *snapshot) error
	close() error
}

// edit is a change of keys.
type edit struct {
	apply func(*document) error
	// missing is the error if there never was a key; nil has the edit add the first.
	missing error
	// afterwards has revocations marked only once the keys are changed.
	afterwards bool
}

// directory is the [store] of a data directory.
type directory string

func (dir directory) place() string { return string(dir) }

func (directory) close() error { return nil }

func (directory) due(age, every time.Duration) bool { return age < 0 || age >= every }

func (dir directory) look(view *snapshot) (news bool, err error) {
	info, err := os.Stat(dir.file(File))
	if errors.Is(err, fs.ErrNotExist) && view.info == nil {
		info, err = dir.unlessLost(dir.lost)
	}
	switch {
	case info == nil: // by an error, or there is no key yet, and perhaps no directory
	case view.err == nil && view.odd == view.older && sameFile(view.info, info):
	default:
		// Between its two writes another process has a higher number in its marks, for a moment: it is looked at twice.
		odd := view.odd || view.info == nil
		view.info, news = info, true
		err = view.read(string(dir))
		view.older = view.odd && odd
	}
	if err != nil {
		err = fmt.Errorf("cannot read the API keys in %s: %w; try the data directory the keys were added to, as the user who did, or put %s, %s and %s "+
			"back from one backup: keys that were revoked since then stay revoked, and keys that were added since then are gone", dir, err, File, MarksFile, RenewKey.File)
	}
	return news, err
}

func (dir directory) file(name string) string { return filepath.Join(string(dir), name) }

// read reads the file and the marks beside it, which another process writes first.
func (v *snapshot) read(dir string) (err error) {
	if v.stored, v.byID, v.number, err = readFile(dir); err != nil {
		return err
	}
	if v.marks, err = readMarks(dir); err != nil {
		return err
	}
	if v.marks.number == 0 {
		return fmt.Errorf("%s is missing, without which nobody knows which keys were revoked", MarksFile)
	}
	if v.marks.number < v.number {
		return fmt.Errorf("%s is of change %d of the keys, and %s is of change %d: nobody knows which keys were revoked since then", File, v.number, MarksFile, v.marks.number)
	}
	v.odd = v.marks.number > v.number
	for n := range v.stored {
		stored := &v.stored[n]
		if at, marked := v.marks.ended[stored.ID]; marked && sooner(at, stored.Revoked) {
			stored.refused, v.byID[stored.ID].refused = true, true
		}
	}
	return nil
}

// unlessLost looks again for a file that was not there, if lost says that there were keys: that is noted after the file
// was made, and the first key may have come between the two looks.
func (dir directory) unlessLost(lost func() error) (fs.FileInfo, error) {
	err := lost()
	if err == nil {
		return nil, nil
	}
	if info, missing := os.Stat(dir.file(File)); missing == nil {
		return info, nil
	}
	return nil, err
}

// sameFile needs no content: every change makes a new file.
func sameFile(a, b fs.FileInfo) bool {
	return a != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// readFile reads the file of a data directory, with its keys by their ids, and its number.
func readFile(dir string) ([]storedKey, map[string]*key, uint64, error) {
	content, err := plainfile.Read(filepath.Join(dir, File), maxFile)
	if err != nil {
		return nil, nil, 0, err
	}
	file, err := parseFile(content)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("%s: %w", File, err)
	}
	byID, err := indexByID(file.Keys)
	return file.Keys, byID, file.Number, err
}

// indexByID returns the keys of a store by their ids.
func indexByID(keys []storedKey) (map[string]*key, error) {
	revokeForGood(keys)
	byID := make(map[string]*key, len(keys))
	for _, stored := range keys {
		hash, err := stored.hash()
		if err != nil {
			return nil, err
		}
		byID[stored.ID] = &key{hash: hash, caller: stored.KeyCaller(stored.Name, stored.Principal, stored.Via), info: stored.Info}
	}
	return byID, nil
}

// revokeForGood marks the keys of each name whose last key is revoked. A renewal revokes only keys before the one that it adds.
func revokeForGood(keys []storedKey) {
	over := make(map[string]bool)
	for i := len(keys) - 1; i >= 0; i-- {
		stored := &keys[i]
		if _, seen := over[stored.Name]; !seen {
			over[stored.Name] = !stored.Revoked.IsZero()
		}
		stored.forGood = over[stored.Name]
	}
}

func parseFile(content []byte) (document, error) {
	var said struct { // of a newer format the other members may be of any kind
		Format int `json:"format"`
	}
	if err := json.Unmarshal(content, &said); err == nil && said.Format > keyFormat {
		return document{}, fmt.Errorf("its format is %d, and this version reads %d: a newer version made it; run that version, or restore what was backed up before the upgrade", said.Format, keyFormat)
	}
	var file document
	if err := json.Unmarshal(content, &file, json.RejectUnknownMembers(true)); err != nil {
		return document{}, unreadable(err)
	}
	if file.Format != keyFormat {
		return document{}, fmt.Errorf("its format is %d, which no version had; put back the file that was there", file.Format)
	}
	ids, first := make(map[string]bool), make(map[string]string)
	for i, k := range file.Keys {
		if err := k.check(); err != nil {
			return document{}, fmt.Errorf("keys[%d]: %w", i, err)
		}
		// A name is one key's and that of its renewals.
		if ids[k.ID] || first[k.Name] != k.Renews {
			return document{}, fmt.Errorf("keys[%d]: its id or name is that of one before, or it renews none", i)
		}
		ids[k.ID], first[k.Name] = true, cmp.Or(first[k.Name], k.ID)
	}
	return file, nil
}

// unreadable says where, and not what stands there.
func unreadable(err error) error {
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		return fmt.Errorf("it is no JSON from byte %d on", syntax.ByteOffset)
	}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		return fmt.Errorf("%s is not as it should be", semantic.JSONPointer)
	}
	return errors.New("it is no document of API keys")
}

func (k storedKey) check() error {
	if _, err := k.hash(); err != nil {
		return err
	}
	if !auth.IsKeyID(k.ID) || !auth.IsName(k.Name) {
		return errors.New("its id or name is not legal")
	}
	return k.CheckHolder(k.Principal, k.Via)
}

func (k storedKey) hash() (hash [sha256.Size]byte, err error) {
	b, err := hex.DecodeString(k.SHA256)
	if err != nil || len(b) != len(hash) {
		return hash, errors.New("its sha256 is none")
	}
	return [sha256.Size]byte(b), nil
}

// writeFile puts the file in place durably: a key that was revoked must not come back after a power failure.
func writeFile(dir string, file document) error {
	file.Format = keyFormat
	content, err := json.Marshal(file, json.Deterministic(true))
	if err != nil {
		return err
	}
	return plainfile.Replace(filepath.Join(dir, File), append(content, '\n'))
}
