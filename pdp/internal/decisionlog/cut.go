package decisionlog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/plainfile"
)

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
			err = segment.ErrLocked
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

// KeepWitnessed keeps a checkpoint for [segment.Reader.Witnessed].
func (l *Log) KeepWitnessed(signed []byte) error {
	return plainfile.Replace(filepath.Join(l.data, format.WitnessedFile), signed)
}
