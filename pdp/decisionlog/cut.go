package decisionlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/boltfile"
	"policy-service/pdp/plainfile"
)

// cutTry ends the errors of a log that was cut.
const cutTry = "; put back what is missing, or see policy-service log begin --help"

// keepCheckpoint keeps the newest checkpoint outside of the segments. It is not synced, and may fail: a start that finds an
// older one, or none, accepts a shorter log.
func keepCheckpoint(data string, signed []byte) {
	name := filepath.Join(data, CheckpointFile)
	if os.WriteFile(name+".new", signed, 0o600) == nil {
		_ = os.Rename(name+".new", name)
	}
}

// begun returns an error if a directory without segments had a log.
func begun(data string) error {
	for _, name := range []string{KeyFile, PublicKeyFile, CheckpointFile, WitnessedFile} {
		if _, err := os.Lstat(filepath.Join(data, name)); err == nil {
			return fmt.Errorf("%w: %s is there, and no segment"+cutTry, ErrCut, name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// goesOn returns an error if the log ends before a checkpoint of it that stands outside of the segments, or is not of its
// tree. What is no checkpoint of this log is passed over, as a file that is not there: that costs no more.
func (r *Reader) goesOn() error {
	all := r.all()
	if r.Partial() {
		return nil
	}
	if len(all) == 0 {
		return begun(r.data)
	}
	for _, name := range []string{WitnessedFile, CheckpointFile} {
		signed, err := plainfile.Read(filepath.Join(r.data, name), MaxCheckpointBytes)
		if err != nil {
			continue
		}
		c, err := r.OfThisLog(signed)
		newest := all[len(all)-1]
		switch {
		case err != nil || c.Size < newest.first: // older segments may be altered, or elsewhere
			continue
		case c.Size > r.Size():
			return fmt.Errorf("%w: %s is of %d records, and the segments have %d"+cutTry, ErrCut, name, c.Size, r.Size())
		}
		var root tlog.Hash
		err = r.view(newest, func(tx *bbolt.Tx) error {
			hashes, err := segmentHashes(tx, newest.first)
			if err == nil {
				root, err = tlog.TreeHash(int64(c.Size), hashes)
			}
			return err
		})
		if err != nil {
			return err
		}
		if root != c.Root {
			return fmt.Errorf("%w: %s is of %d other records"+cutTry, ErrCut, name, c.Size)
		}
	}
	return nil
}

// MoveAside moves all that there is of a log into another directory, which is then laid out as a data directory, and other
// files before it. It calls first once no process can open the log.
func MoveAside(data, to string, first func() error, others ...string) error {
	lock, err := plainfile.OpenFile(filepath.Join(data, LockFile), os.O_CREATE|os.O_RDONLY, 0o600)
	switch {
	case err == nil:
		defer func() { _ = boltfile.Unlock(lock) }()
		if err = boltfile.Lock(lock, true, 0); errors.Is(err, boltfile.ErrLocked) {
			err = ErrLocked
		}
	case errors.Is(err, fs.ErrNotExist): // not even its directory
		err = nil
	}
	if err == nil {
		err = first()
	}
	for _, name := range append(others, LogDir, NextKeyFile, CheckpointFile, PublicKeyFile, KeyFile) {
		if err == nil {
			if err = os.Rename(filepath.Join(data, name), filepath.Join(to, name)); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
	}
	if err == nil {
		err = errors.Join(plainfile.SyncDir(to), plainfile.SyncDir(data))
	}
	return err
}
