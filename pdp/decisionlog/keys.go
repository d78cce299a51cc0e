package decisionlog

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"policy-service/pdp/plainfile"
)

// maxKeyFile bounds a file of keys; a rotation adds a hundred bytes.
const maxKeyFile = 16 << 20

// key is a private key, with its public half as log.pub writes it.
type key struct {
	note.Signer
	private, public string
}

func newKey(origin string) (key, error) {
	private, public, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		return key{}, fmt.Errorf("making a key for %q: %w", origin, err)
	}
	signer, err := note.NewSigner(private)
	return key{signer, private, public}, err
}

func randomOrigin() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return "policy-service/" + hex.EncodeToString(b[:])
}

// readKey reads a private key, unless strangers could have read it too.
func readKey(name string) (key, error) {
	f, err := plainfile.Open(name)
	if err != nil {
		return key{}, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return key{}, err
	}
	if info.Mode().Perm()&0o007 != 0 {
		return key{}, fmt.Errorf("%s is open to every user of this machine: chmod 600 it, and rotate it if anybody may have read it", name)
	}
	content, err := plainfile.ReadAll(f, maxKeyFile)
	if err != nil {
		return key{}, err
	}
	k := key{private: strings.TrimSpace(string(content))}
	if k.Signer, err = note.NewSigner(k.private); err != nil {
		return key{}, fmt.Errorf("%s is no private key of a log", name) // the cause would quote it
	}
	parts := strings.SplitN(k.private, "+", 5)
	seed, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return key{}, fmt.Errorf("%s is no private key of a log", name)
	}
	public := ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey)
	k.public, err = note.NewEd25519VerifierKey(k.Name(), public)
	return k, err
}

// openKey reads the key in force. inForce is what the log says it is, "" where
// there is no log: then a key is made.
func openKey(data, origin, inForce string) (key, error) {
	name, next := filepath.Join(data, KeyFile), filepath.Join(data, NextKeyFile)
	k, err := readKey(name)
	if errors.Is(err, fs.ErrNotExist) && inForce == "" {
		return createKey(data, origin)
	}
	if err == nil && (k.public == inForce || inForce == "") {
		_ = os.Remove(next) // a rotation that came to nothing
		return k, publish(data, k.public)
	}
	// A crash between the record of a new key and the renaming of its file.
	if n, nextErr := readKey(next); nextErr == nil && n.public == inForce {
		return n, errors.Join(rename(next, name), publish(data, n.public))
	}
	if err != nil {
		return key{}, fmt.Errorf("the private key of the log: %w; restore it from a backup", err)
	}
	return key{}, fmt.Errorf("%s is another key than the log was signed with (%s); restore that one", name, inForce)
}

func createKey(data, origin string) (key, error) {
	if origin == "" {
		origin = randomOrigin()
	}
	k, err := newKey(origin)
	if err != nil {
		return key{}, err
	}
	return k, errors.Join(writeFile(filepath.Join(data, KeyFile), k.private+"\n"), publish(data, k.public))
}

// publish adds a public key to log.pub where it is not there yet.
func publish(data, public string) error {
	keys, err := VerifierKeys(data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if slices.Contains(keys, public) {
		return nil
	}
	return writeFile(filepath.Join(data, PublicKeyFile), strings.Join(append(keys, public), "\n")+"\n")
}

// VerifierKeys are the public keys of all times, oldest first. They are what
// stands beside the log: who verifies it brings a key from elsewhere.
func VerifierKeys(data string) ([]string, error) {
	content, err := plainfile.Read(filepath.Join(data, PublicKeyFile), maxKeyFile)
	return strings.Fields(string(content)), err
}

// CheckKey says why [Open] would refuse the private key in a data directory, and
// touches nothing. That there is neither a log nor a key yet is no reason: Open makes both.
func CheckKey(data string) error {
	inForce, err := publicKeyInForce(data)
	if err != nil {
		return err
	}
	k, err := readKey(filepath.Join(data, KeyFile))
	switch {
	case errors.Is(err, fs.ErrNotExist) && inForce == "":
		return nil
	case err == nil && (inForce == "" || k.public == inForce):
		return nil
	}
	// As Open: a crash between the record of a new key and the renaming of its file.
	if next, nextErr := readKey(filepath.Join(data, NextKeyFile)); nextErr == nil && next.public == inForce {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the private key of the log: %w; restore it from a backup", err)
	}
	return fmt.Errorf("%s is another key than the log was signed with (%s); restore that one", filepath.Join(data, KeyFile), inForce)
}

// publicKeyInForce is what the newest segment says, which counts for Open; where that
// cannot be read, as beside a server, the newest of log.pub; "" where there is neither.
func publicKeyInForce(data string) (string, error) {
	if r, err := OpenReader(data); err == nil {
		all, partial := r.all(), r.Partial()
		_ = r.Close()
		if !partial && len(all) > 0 {
			return all[len(all)-1].key, nil
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
