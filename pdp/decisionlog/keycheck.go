package decisionlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

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
