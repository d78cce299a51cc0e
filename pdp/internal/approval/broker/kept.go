package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/datakey"
	"policy-service/pdp/internal/decisionlog/segment"
)

// Key keeps a person who has the file of approvals from trying values against it.
var Key = datakey.Key{
	File:  "approvals.key",
	Of:    "approvals",
	Moved: "and nothing counts that was approved before",
}

// OpenKey reads the key of the approvals in a data directory, or makes it.
func OpenKey(data string) ([]byte, error) {
	if err := keyWithFile(data); err != nil {
		return nil, err
	}
	return Key.Open(data)
}

// keyWithFile refuses a file of approvals whose key is missing: nothing in it can be believed.
func keyWithFile(data string) error {
	name := filepath.Join(data, approval.FileName)
	if _, err := os.Lstat(name); Key.There(data) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("the key of approvals, %s, is missing, and without it nothing in %s can be believed; "+
		"put the key back from a backup, or move the file away to begin without any approval", Key.File, name)
}

// Look counts the approval requests of a data directory that wait. It touches nothing. The error is the one with which
// [OpenKey] or [Open] would refuse.
func Look(data string, log *segment.Reader) (pending int, err error) {
	if err := keyWithFile(data); err != nil {
		return 0, err
	}
	key, err := Key.Read(data)
	if err != nil || key == nil {
		return 0, err
	}
	if log == nil || log.Partial() { // records that the reader lacks may be known to the file
		return approval.Look(data, key, nil)
	}
	return approval.Look(data, key, log.Size)
}
