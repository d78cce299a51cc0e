package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/server/auth/keys"
)

// begunAnew are the details of the record with which a log begins in the place of one that is damaged or gone. They say of
// that log what its newest checkpoint outside of the segments said, if there was one.
type begunAnew struct {
	Origin string   `json:"origin,omitzero"`
	Size   uint64   `json:"size,omitzero"`
	Root   string   `json:"root,omitzero"`
	Ended  []string `json:"api_keys"` // the names
}

// BeginLog has the next start begin another log in a directory whose log does not go on. What there is of the old one is in
// [RestoredDir] from then on. Nobody knows what the old log had on record, so all API keys are revoked, and approval requests,
// capabilities and the keys that sign tokens are put aside with it. It returns the names of the keys that it revoked.
func BeginLog(data string) (ended []string, err error) {
	if IsReplica(data) {
		return nil, errors.New("it is the directory of a replica; settle its log as lost, and begin another replica with an empty directory")
	}
	old, note := filepath.Join(data, RestoredDir), filepath.Join(data, restoredFile)
	before, err := readRestored(data)
	switch {
	case err != nil:
		return nil, err
	case before == nil:
		_ = os.Remove(old) // a call that was killed left it empty
		if err := os.Mkdir(old, 0o700); err != nil {
			return nil, fmt.Errorf("cannot make the directory for the old log: %w; move another one away, and keep it", err)
		}
	case before.Begun == nil: // else a call ended in the middle
		return nil, errors.New("what was restored here is not on record yet; start the server once")
	}
	first := func() error {
		apiKeys, err := keys.Open(data)
		if err != nil {
			return err
		}
		if ended, err = apiKeys.RevokeAll(); err != nil {
			return err
		}
		if before != nil {
			ended = append(before.Begun.Ended, ended...)
		}
		about := begunAnew{Ended: ended}
		if signed, err := plainfile.Read(filepath.Join(data, format.CheckpointFile), format.MaxCheckpointBytes); err == nil {
			if c, err := segment.ParseCheckpoint(signed, nil); err == nil {
				about.Origin, about.Size, about.Root = c.Origin, c.Size, c.Root.String()
			}
		}
		content, err := json.Marshal(restoredBefore{Begun: &about}, json.Deterministic(true))
		if err != nil {
			return err
		}
		return plainfile.Replace(note, append(content, '\n'))
	}
	var others []string
	for _, one := range append(storeFiles, privateFiles...) {
		if !one.anyLog && one.name != format.KeyFile && one.name != format.NextKeyFile {
			others = append(others, one.name)
		}
	}
	if err = decisionlog.MoveAside(data, old, first, others...); err != nil {
		_ = os.Remove(old) // if it is empty
	}
	if errors.Is(err, segment.ErrLocked) {
		err = fmt.Errorf("%w; stop the server that runs on %s, and try again", err, data)
	}
	return ended, err
}
