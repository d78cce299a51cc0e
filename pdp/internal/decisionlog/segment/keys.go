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

// maxKeyFile is the maximum size of a key file. A rotation adds a hundred bytes.
const maxKeyFile = 16 << 20

// Key is a private key, its public half as log.pub has it, and the MAC keys derived from it.
type Key struct {
	note.Signer
	Public    string
	private   string
	headKey   [sha256.Size]byte // for the heads of segments: see [Key.ComputeHead]
	FramesKey journal.Key
}

// NewKey generates a key for a log with a name.
func NewKey(origin string) (Key, error) {
	private, _, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		return Key{}, fmt.Errorf("making a key for %q: %w", origin, err)
	}
	return parseKey(private)
}

// errNoKey wraps no cause, because the cause would quote the key.
var errNoKey = errors.New("no private key of a log")

// The labels with which MAC keys are derived from a private key.
const (
	headLabel   = "policy-service decision log: head of a segment"
	framesLabel = "policy-service decision log: frames of the journal"
)

// parseKey parses a private key and derives the MAC keys.
func parseKey(private string) (Key, error) {
	k := Key{private: private}
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

// readKey reads a private key. It refuses a file that other users can read.
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

// OpenKey reads the key in force, whose public half the log names. It completes an interrupted rotation: the private key
// gets its file name, and log.pub the public half.
func OpenKey(data, inForce string) (Key, error) {
	k, isNext, err := readKeyInForce(data, inForce)
	name, next := filepath.Join(data, format.KeyFile), filepath.Join(data, format.NextKeyFile)
	switch {
	case err != nil:
		return Key{}, err
	case isNext:
		err = plainfile.Rename(next, name)
	default:
		_ = os.Remove(next) // left by a rotation that was not recorded
	}
	return k, errors.Join(err, PublishKey(data, k.Public))
}

// WriteNext writes the private key to the file of the next key.
func (k *Key) WriteNext(data string) error {
	return plainfile.Replace(filepath.Join(data, format.NextKeyFile), []byte(k.private+"\n"))
}

// readKeyInForce reads the key in force. isNext reports that the key is still in the file of the next key, because a crash
// came between recording the new key and renaming its file.
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

// PublishKey adds a public key to log.pub unless it is already there.
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

// VerifierKeys returns all public keys that the log ever had, oldest first, from the file beside the log. To verify a log,
// use a key from elsewhere.
func VerifierKeys(data string) ([]string, error) {
	content, err := plainfile.Read(filepath.Join(data, format.PublicKeyFile), maxKeyFile)
	return strings.Fields(string(content)), err
}

// CheckKey returns the error with which [decisionlog.Open] would refuse the private key in a data directory, without changing
// anything. It accepts a directory with neither a log nor a key: Open creates both. Unless a server is running, it also
// returns the error of [Reader.CheckNotCut]. It holds no lock.
func CheckKey(data string) error {
	before, _ := Mark(data)
	r, err := OpenUnlocked(data)
	switch {
	case err == nil:
		err = errors.Join(r.CheckNotCut(), r.Close())
	case errors.Is(err, fs.ErrNotExist):
		err = CheckNeverBegun(data)
	default:
		err = nil // not an error of keys
	}
	if now, live := Mark(data); err != nil && now == before && !live { // otherwise a server runs, or ran meanwhile
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

// readPublicKeyInForce returns the public key in the newest segment, which is the one that Open goes by. If that segment
// cannot be read, for instance beside a server, it returns the newest key of log.pub. It returns "" if there is neither.
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
