package decisionlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/plainfile"
)

// cutTry ends the errors of a log that was cut.
const cutTry = "; put back what is missing, or see policy-service log begin --help"

// keepCheckpoint keeps the newest checkpoint outside of the segments. It is not synced, and may fail: a start that finds an
// older one, or none, accepts a shorter log.
func keepCheckpoint(data string, signed []byte) {
	name := filepath.Join(data, format.CheckpointFile)
	_ = os.Remove(name + ".new") // it may be a pipe, which would hold up the writer
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return
	}
	_, err = f.Write(signed)
	if errors.Join(err, f.Close()) == nil {
		_ = os.Rename(name+".new", name)
	}
}

// begun returns an error if a directory without segments had a log.
func begun(data string) error {
	for _, name := range []string{format.KeyFile, format.PublicKeyFile, format.CheckpointFile, format.WitnessedFile} {
		if _, err := os.Lstat(filepath.Join(data, name)); err == nil {
			return fmt.Errorf("%w: %s is there, and no segment"+cutTry, ErrCut, name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// goesOn returns an error if the log ends before a checkpoint of it that stands outside of the segments, or is not of its
// tree. A file that is not a checkpoint of this log counts as missing: whoever can write it can remove it, too.
func (r *Reader) goesOn() error {
	all := r.all()
	if r.Partial() {
		return nil
	}
	if len(all) == 0 {
		return begun(r.data)
	}
	for _, name := range []string{format.WitnessedFile, format.CheckpointFile} {
		signed, err := plainfile.Read(filepath.Join(r.data, name), format.MaxCheckpointBytes)
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

// moveOnce moves a file or directory, if there is one. If a call that was killed has moved it, what a refused start has made in
// its place goes: a file, or a directory with nothing but a lock.
func moveOnce(from, to string) (err error) {
	if _, moved := os.Lstat(to); moved == nil {
		_ = os.Remove(filepath.Join(from, filepath.Base(format.LockFile)))
		err = os.Remove(from)
	} else {
		err = os.Rename(from, to)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// MoveAside moves all that there is of a log into another directory, which is then laid out as a data directory, and other
// files before it. It calls first once no process can open the log.
func MoveAside(data, to string, first func() error, others ...string) error {
	lock, err := plainfile.OpenFile(filepath.Join(data, format.LockFile), os.O_CREATE|os.O_RDONLY, 0o600)
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
	for _, name := range append(others, format.LogDir, format.NextKeyFile, format.CheckpointFile, format.PublicKeyFile, format.KeyFile) {
		if err == nil {
			err = moveOnce(filepath.Join(data, name), filepath.Join(to, name))
		}
	}
	if err == nil {
		err = errors.Join(plainfile.SyncDir(to), plainfile.SyncDir(data))
	}
	return err
}
