package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"policy-service/pdp/approval"
	"policy-service/pdp/datakey"
	"policy-service/pdp/decisionlog"
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
	if name := filepath.Join(data, approval.FileName); !Key.There(data) {
		// Nothing in the file counts, and without the key nothing in it can be believed. The file is begun anew.
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s belongs to a key that is missing, and cannot be begun anew: %w; move it away",
				name, err)
		}
	}
	return Key.Open(data)
}

// keyWithFile refuses a file of approvals whose key is missing, if anything in the file waits or can be used.
func keyWithFile(data string) error {
	if Key.There(data) {
		return nil
	}
	name := filepath.Join(data, approval.FileName)
	missing := "the key of approvals, " + Key.File + ", is missing, and "
	const try = "put the key back from a backup, or move the file away to begin without any approval"
	open, err := approval.Unkeyed(data)
	switch {
	case errors.Is(err, approval.ErrLocked):
		return fmt.Errorf("%sanother process has %s open; %s", missing, name, try)
	case err != nil:
		return fmt.Errorf("%swithout it nothing in %s can be believed: %w; %s", missing, name, err, try)
	case open > 0:
		return fmt.Errorf("%s%s has %d approval requests that wait or can be used; %s", missing, name, open, try)
	}
	return nil
}

// Look counts the approvals of a data directory: how many approval requests wait, and the status in the log of
// each that the file is behind with. It touches nothing. The error says why [OpenKey] or [Open] would refuse.
func Look(
	ctx context.Context, data string, log *decisionlog.Reader,
) (pending int, behind map[string]approval.Status, err error) {
	if err := keyWithFile(data); err != nil {
		return 0, nil, err
	}
	key, err := Key.Read(data)
	if err != nil || key == nil {
		return 0, nil, err
	}
	pending, open, err := approval.Look(data, key)
	if err != nil || len(open) == 0 || log == nil {
		return pending, nil, err
	}
	behind, err = approval.Behind(ctx, open, approval.Log{
		Size:  log.Size,
		Steps: stepsIn(log.Approvals),
	})
	return pending, behind, err
}
