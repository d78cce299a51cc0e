package decisionlog

import (
	"context"
	"errors"
)

// Shown is a record with the policies that decided it, as they were then.
type Shown struct {
	// Record is the record as it is stored, with what it inherits.
	Record   Recorded
	LeafHash string
	// Files are the policies, by path. They are nil if the record names no bundle, or one
	// that is not kept.
	Files map[string][]byte
}

// Show finds a record by its id.
func (s *Snapshot) Show(_ context.Context, id string) (Shown, error) {
	l, err := s.find(id)
	if err != nil {
		return Shown{}, err
	}
	shown := Shown{LeafHash: l.Leaf.String()}
	if shown.Record, err = s.Recorded(l.Line); err != nil || shown.Record.Bundle == "" {
		return shown, err
	}
	shown.Files, err = s.Bundle(shown.Record.Bundle)
	return shown, err
}

// Bundle are the files of a bundle, nil for one that was never kept: a record stays
// readable without its policies.
func (s *Snapshot) Bundle(digest string) (map[string][]byte, error) {
	files, err := (&Bundles{dir: bundlesDir(s.data)}).Files(digest)
	if errors.Is(err, ErrNoSuchBundle) {
		return nil, nil
	}
	return files, err
}
