package decisionlog

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"
)

// Shown is a record with the policies that decided it, as they were then.
type Shown struct {
	Sequence int64
	LeafHash string
	// Recorded is the record as it is stored, with what it inherits.
	Recorded
	// Bundle is the digest of the policies, Files are they, by path; nil where
	// the record names no bundle or the bundle is not kept.
	Bundle string
	Files  map[string][]byte
}

// Show finds a record by its id.
func (s *Snapshot) Show(_ context.Context, id string) (Shown, error) {
	l, err := s.find(id)
	if err != nil {
		return Shown{}, err
	}
	shown := Shown{Sequence: l.Sequence, LeafHash: l.Hash.String()}
	if shown.Recorded, err = s.Recorded(l.Line); err != nil {
		return Shown{}, err
	}
	var r seen
	if err := json.Unmarshal(l.Line, &r); err != nil || r.Bundle == "" {
		return shown, err
	}
	shown.Bundle = r.Bundle
	shown.Files, err = bundleFiles(s.data, r.Bundle)
	return shown, err
}

// bundleFiles is nil for a bundle that was never kept: a record stays readable
// without its policies.
func bundleFiles(data, digest string) (map[string][]byte, error) {
	files, err := (&Bundles{dir: bundlesDir(data)}).Files(digest)
	if errors.Is(err, ErrNoSuchBundle) {
		return nil, nil
	}
	return files, err
}
