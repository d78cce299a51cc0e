package keys

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server/auth"
)

// Spec is a key to add.
type Spec struct {
	// Name says whose key it is; a name is used once.
	Name string
	// Principal is the entity of its holder in policies; the zero value is none.
	Principal auth.Principal
	// Via is by which way votes come that the holder relays: the console, or nothing for the form
	// of a gateway.
	Via evaluation.Via
	// Lifetime is how long the key counts; 0 is without an end.
	Lifetime time.Duration
	// Grant has tenant default where it names none, and permission decide.
	auth.Grant
}

// Info is a key as it is listed: not the key.
type Info struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Principal is the entity of its holder in policies, and left out if there is none.
	Principal auth.Principal `json:"principal,omitzero"`
	// Via is console for a key that relays votes of people in a console for approvers.
	Via evaluation.Via `json:"via,omitzero"`
	auth.Grant
	Created time.Time `json:"created"`
	// Expires is when the key ends by itself; the zero time is never. It is set as the key is made, and stays.
	Expires time.Time `json:"expires,omitzero"`
	// Revoked is from when on the key is not in force, which may be to come if it was renewed. The zero time is never.
	Revoked time.Time `json:"revoked,omitzero"`
	// Renews is the id of the first key of that name, if this is not the first.
	Renews string `json:"renews,omitzero"`

	// forGood says that the name is revoked, and not renewed: then no clock that goes back, or that is behind the one of
	// the command, puts the key in force.
	forGood bool
}

// Ended reports whether the key has expired or is revoked, if it is now that now.
func (k Info) Ended(now time.Time) bool {
	end := k.End()
	return k.forGood || !end.IsZero() && !now.Before(end)
}

// Renewed reports whether the key ends later because it was renewed, if it is now that now.
func (k Info) Renewed(now time.Time) bool { return !k.forGood && now.Before(k.Revoked) }

// End is when the key ends, or has ended. The zero time is never.
func (k Info) End() time.Time { return soonest(k.Expires, k.Revoked) }

// sooner reports whether a time comes before another one, of which the zero time is never.
func sooner(a, b time.Time) bool { return !a.IsZero() && (b.IsZero() || a.Before(b)) }

func soonest(a, b time.Time) time.Time {
	if sooner(a, b) {
		return a
	}
	return b
}

// Add makes a key. It is returned once, here: only its hash is stored.
func (k *Keys) Add(spec Spec) (secret string, err error) {
	if len(spec.Tenants) == 0 {
		spec.Tenants = []string{evaluation.DefaultTenant}
	}
	if len(spec.Permissions) == 0 {
		spec.Permissions = []auth.Permission{auth.Decide}
	}
	if !auth.IsName(spec.Name) || strings.HasPrefix(spec.Name, auth.KeyPrefix) {
		return "", errors.New("the name of a key is up to 128 bytes of printable text that begins with neither space nor hyphen nor psk_; try the name of the PEP")
	}
	if err := spec.CheckHolder(spec.Principal, spec.Via); err != nil {
		return "", err
	}
	err = k.store.edit(k, edit{apply: func(file *document) error {
		if slices.ContainsFunc(file.Keys, func(s storedKey) bool { return s.Name == spec.Name }) {
			return fmt.Errorf("there is or was a key named %q, and records name it; try another name", spec.Name)
		}
		secret = k.make(file, Info{Name: spec.Name, Principal: spec.Principal, Via: spec.Via, Grant: spec.Grant}, spec.Lifetime)
		return nil
	}})
	if err != nil {
		return "", err
	}
	return secret, nil
}

// newKeyID returns 40 random bits: enough that a clash, which is looked for, is rare.
func newKeyID() string { return strings.ToLower(rand.Text()[:8]) }

func newKey(id string) string {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails: the process ends instead
	return auth.KeyPrefix + id + "_" + base64.RawURLEncoding.EncodeToString(secret[:])
}

// make adds a key to a file, with a secret that no other has.
func (k *Keys) make(file *document, info Info, lifetime time.Duration) (secret string) {
	for info.ID == "" || slices.ContainsFunc(file.Keys, func(s storedKey) bool { return s.ID == info.ID }) {
		info.ID = newKeyID()
	}
	secret = newKey(info.ID)
	hash := auth.KeyHash(secret)
	if info.Created = k.stamp(); lifetime > 0 {
		info.Expires = info.Created.Add(lifetime)
	}
	file.Keys = append(file.Keys, storedKey{Info: info, SHA256: hex.EncodeToString(hash[:])})
	return secret
}

// Revoke ends a key, here at once and elsewhere a moment later. Revoking it
// again changes nothing.
func (k *Keys) Revoke(name string) error {
	// The name is not repeated: some will write the key itself in its place.
	missing := errors.New("there is no key of that name; try policy-service keys list")
	return k.store.edit(k, edit{missing: missing, apply: func(file *document) error {
		if !k.end(file, name, k.stamp()) {
			return missing
		}
		return nil
	}})
}

// RevokeAll revokes all keys, and returns the names of those that were in force.
func (k *Keys) RevokeAll() (names []string, err error) {
	none := errors.New("there are no keys")
	err = k.store.edit(k, edit{missing: none, apply: func(file *document) error {
		for i := range file.Keys {
			if stored := &file.Keys[i]; !stored.Ended(k.now()) && !slices.Contains(names, stored.Name) {
				names = append(names, stored.Name)
			}
			file.Keys[i].Revoked = soonest(k.stamp(), file.Keys[i].Revoked)
		}
		return nil
	}})
	if errors.Is(err, none) {
		err = nil
	}
	return names, err
}

// end revokes all keys of a name from a time on, unless they are revoked before it.
func (k *Keys) end(file *document, name string, at time.Time) (found bool) {
	for i := range file.Keys {
		if stored := &file.Keys[i]; stored.Name == name {
			stored.Revoked, found = soonest(at, stored.Revoked), true
		}
	}
	return found
}

// List lists all keys there ever were, in the order they were added.
func (k *Keys) List() []Info {
	list := []Info{}
	for _, s := range k.current().stored {
		list = append(list, s.Info)
	}
	return list
}

func (k *Keys) stamp() time.Time { return k.now().UTC().Truncate(time.Second) }

// takeLock takes the lock that every process takes that changes the file.
func (dir directory) takeLock() (*lockedfile.File, error) {
	lock, err := lockedfile.OpenFile(dir.file(LockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the API keys: %w; try it as the user the service runs as", err)
	}
	return lock, nil
}

// edit changes the file under a lock that every process takes, from its content then: two at once lose nothing.
func (dir directory) edit(k *Keys, e edit) error {
	if e.missing == nil {
		if err := os.MkdirAll(string(dir), 0o700); err != nil {
			return fmt.Errorf("cannot make the data directory: %w; try another", err)
		}
	} else if _, err := os.Stat(dir.file(File)); errors.Is(err, os.ErrNotExist) {
		return e.missing // and no lock is left in a directory named by mistake
	}
	lock, err := dir.takeLock()
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	k.mu.Lock()
	defer k.mu.Unlock()
	view := k.look(k.view.Load())
	if view.err != nil {
		return view.err
	}
	marks, err := readMarks(string(dir)) // again: another process may have ended between its two writes
	if err != nil {
		return err
	}
	file := document{Number: max(view.number, marks.number) + 1, Keys: slices.Clone(view.stored)}
	if view.info == nil && len(marks.ended) == 0 {
		file.Number = 1 // a first change that was killed between its two writes is made again
	}
	if marks.number = file.Number; marks.ended == nil {
		marks.ended = map[string]time.Time{}
	}
	for n := range file.Keys { // an older file may have been put back
		one := &file.Keys[n]
		one.Revoked = soonest(marks.ended[one.ID], one.Revoked)
	}
	if err := e.apply(&file); err != nil {
		return err
	}
	if !e.afterwards {
		marks.mark(&file)
	}
	err = marks.write(string(dir))
	if err == nil {
		err = writeFile(string(dir), file)
	}
	if err == nil && e.afterwards {
		marks.mark(&file)
		err = marks.write(string(dir))
	}
	if err != nil {
		return fmt.Errorf("cannot write the API keys: %w; try it as the user the service runs as, and look for space on the disk", err)
	}
	// A note that fails now is no reason to lose a key that is made: no server starts before Keep has made it.
	_ = mark(lock)
	return k.look(k.view.Load()).err
}

// The lock's file is empty until there are keys. From then on it has a mark that there were some, so that a server that
// starts without the file of keys does not take that for a directory without any, and open the door.
const keysWereHere = "There are API keys in this directory. Without their file nobody is let in.\n"

// mark notes, durably, that there are keys. It is called with the lock held.
func mark(lock *lockedfile.File) error {
	if info, err := lock.Stat(); err != nil || info.Size() > 0 {
		return err
	}
	if _, err := lock.WriteString(keysWereHere); err != nil {
		return err
	}
	return lock.Sync()
}

// Keep notes that there are keys, unless that is noted. A server calls it before it lets callers in.
func (k *Keys) Keep() error { return k.store.keep(k.current()) }

func (dir directory) keep(view *snapshot) error {
	if view.info == nil {
		return nil
	}
	lock, err := dir.takeLock()
	if err != nil {
		return err
	}
	if err := errors.Join(mark(lock), lock.Close()); err != nil {
		return fmt.Errorf("cannot note that there are API keys: %w; try it as the user the service runs as, and look for space on the disk", err)
	}
	return nil
}

// lost is an error where there were keys, and their file is not there. The first change ends in the middle if a crash
// leaves its marks alone.
func (dir directory) lost() error {
	info, err := os.Stat(dir.file(LockFile))
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		m, err := readMarks(string(dir))
		if err != nil || m.number <= 1 && len(m.ended) == 0 {
			return err
		}
	} else if err != nil {
		return err
	}
	return fmt.Errorf("%s is gone, and %s and %s say that there were keys (to begin without keys and credentials, remove them too)", File, LockFile, MarksFile)
}
