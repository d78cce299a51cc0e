package segment

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/plainfile"
)

// maxKeyFile bounds a file of keys; a rotation adds a hundred bytes.
const maxKeyFile = 16 << 20

// key is a private key, with its public half as log.pub writes it, and the keys of MACs that are made of it.
type Key struct {
	note.Signer
	Private, Public string
	headKey         [sha256.Size]byte // of a segment: see [mark]
	FramesKey       journal.Key
}

func NewKey(origin string) (Key, error) {
	private, _, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		return Key{}, fmt.Errorf("making a key for %q: %w", origin, err)
	}
	return parseKey(private)
}

// errNoKey has no cause, which would quote the key.
var errNoKey = errors.New("no private key of a log")

// The labels of the keys that are made of a private key.
const (
	headLabel   = "policy-service decision log: head of a segment"
	framesLabel = "policy-service decision log: frames of the journal"
)

func parseKey(private string) (Key, error) {
	k := Key{Private: private}
	var err error
	if k.Signer, err = note.NewSigner(private); err != nil {
		return Key{}, errNoKey
	}
	parts := strings.SplitN(private, "+", 5)
	seed, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return Key{}, errNoKey
	}
	seed = seed[1:]
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	k.Public, err = note.NewEd25519VerifierKey(k.Name(), public)
	head, err2 := hkdf.Key(sha256.New, seed, nil, headLabel, len(k.headKey))
	frames, err3 := hkdf.Key(sha256.New, seed, nil, framesLabel, len(k.FramesKey))
	copy(k.headKey[:], head)
	copy(k.FramesKey[:], frames)
	return k, errors.Join(err, err2, err3)
}

// readKey reads a private key, unless strangers could have read it too.
func readKey(name string) (Key, error) {
	content, err := plainfile.ReadPrivate(name, maxKeyFile)
	if err != nil {
		return Key{}, err
	}
	k, err := parseKey(strings.TrimSpace(string(content)))
	if err != nil {
		return Key{}, fmt.Errorf("%s is %w", name, err)
	}
	return k, nil
}

// openKey reads the key in force, which the log says, and gives it its name and its public half their places.
func OpenKey(data, inForce string) (Key, error) {
	k, isNext, err := readKeyInForce(data, inForce)
	name, next := filepath.Join(data, format.KeyFile), filepath.Join(data, format.NextKeyFile)
	switch {
	case err != nil:
		return Key{}, err
	case isNext:
		err = RenameSynced(next, name)
	default:
		_ = os.Remove(next) // a rotation that came to nothing
	}
	return k, errors.Join(err, PublishKey(data, k.Public))
}

// keyInForce reads the key in force. isNext says that it is still in the file of the next key, because a
// crash came between the record of a new key and the renaming of its file.
func readKeyInForce(data, inForce string) (k Key, isNext bool, err error) {
	name := filepath.Join(data, format.KeyFile)
	k, err = readKey(name)
	if err == nil && (k.Public == inForce || inForce == "") {
		return k, false, nil
	}
	if next, nextErr := readKey(filepath.Join(data, format.NextKeyFile)); nextErr == nil && next.Public == inForce {
		return next, true, nil
	}
	if err != nil {
		return Key{}, false, fmt.Errorf("the private key of the log: %w; restore it from a backup", err)
	}
	return Key{}, false, fmt.Errorf("%s is another key than the log was signed with (%s); restore that one", name, inForce)
}

// publish adds a public key to log.pub if it is not there yet.
func PublishKey(data, public string) error {
	keys, err := VerifierKeys(data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if slices.Contains(keys, public) {
		return nil
	}
	content := strings.Join(append(keys, public), "\n") + "\n"
	return plainfile.Replace(filepath.Join(data, format.PublicKeyFile), []byte(content))
}

// VerifierKeys are the public keys of all times, oldest first. They are what
// stands beside the log. To verify it, bring a key from elsewhere.
func VerifierKeys(data string) ([]string, error) {
	content, err := plainfile.Read(filepath.Join(data, format.PublicKeyFile), maxKeyFile)
	return strings.Fields(string(content)), err
}

// CheckKey says why [decisionlog.Open] would refuse the private key in a data directory, and
// touches nothing. That there is neither a log nor a key yet is no reason: Open makes both. It also says whether the log goes
// on where it ended, unless a server is running.
func CheckKey(data string) error {
	r, err := OpenReader(data)
	switch {
	case err == nil:
		err = errors.Join(r.CheckNotCut(), r.Close())
	case errors.Is(err, fs.ErrNotExist):
		err = CheckNeverBegun(data)
	default:
		err = nil // what is wrong with the log is no matter of keys
	}
	if err != nil {
		return err
	}
	inForce, err := readPublicKeyInForce(data)
	if err != nil {
		return err
	}
	if _, _, err = readKeyInForce(data, inForce); errors.Is(err, fs.ErrNotExist) && inForce == "" {
		return nil
	}
	return err
}

// publicKeyInForce is what the newest segment says, which counts for Open. If that
// cannot be read, as beside a server, it is the newest of log.pub, and "" if there is neither.
func readPublicKeyInForce(data string) (string, error) {
	if r, err := OpenReader(data); err == nil {
		all, partial := r.SegmentFiles(), r.Partial()
		_ = r.Close()
		if !partial && len(all) > 0 {
			return all[len(all)-1].Key, nil
		}
	}
	keys, err := VerifierKeys(data)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil || len(keys) == 0 {
		return "", err
	}
	return keys[len(keys)-1], nil
}
