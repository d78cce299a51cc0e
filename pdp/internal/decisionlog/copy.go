package decisionlog

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/plainfile"
)

// A Copied file is open, and stays as it was at the moment of the copy: redaction and retention put other files in
// its place.
type Copied struct {
	*os.File
	Name string // below the data directory, with slashes
}

// CloseAll closes files.
func CloseAll(files []Copied) {
	for _, f := range files {
		_ = f.Close()
	}
}

// Copy opens the files of a whole log: all that was answered before the call is in them, and the checkpoint covers all that
// is. It seals the active segment, so the copy needs no journal. A redaction or a retention that is under way comes first.
func (l *Log) Copy(ctx context.Context) (_ segment.Checkpoint, files []Copied, err error) {
	l.removals.Lock()
	defer l.removals.Unlock()
	defer func() {
		if err != nil {
			CloseAll(files)
		}
	}()
	if err = l.removals.finishLeft(ctx); err != nil {
		return segment.Checkpoint{}, nil, err
	}
	// Before the segment is sealed: a key that is signed in later is not in the copy.
	if files, err = appendOpened(files, l.data, format.PublicKeyFile); err != nil {
		return segment.Checkpoint{}, files, err
	}
	if err = l.Rotate(ctx); err != nil {
		return segment.Checkpoint{}, files, err
	}
	all := l.SegmentFiles()
	sealed, end := all[:len(all)-1], all[len(all)-1].First
	for _, s := range sealed {
		if files, err = appendOpened(files, l.data, path.Join(format.LogDir, filepath.Base(s.Path))); err != nil {
			return segment.Checkpoint{}, files, err
		}
	}
	if files, err = appendBundles(files, l.data); err != nil {
		return segment.Checkpoint{}, files, err
	}
	last, err := l.LastCheckpointWithin(end)
	return last, files, err
}

// ErrUnfilled means that a crash left records in the journal alone. A copy would have them where no reader finds them: only
// the log that goes on takes them out of the journal.
var ErrUnfilled = errors.New("a crash left records in its journal alone; start the server once, and stop it")

// CopyStopped is [Log.Copy] of a log that no process has open. The files are as they are, with the journal. No process
// opens the log before release. It refuses a log with [ErrUnfilled] whose journal has records that no segment has.
func CopyStopped(data string) (last segment.Checkpoint, files []Copied, release func(), err error) {
	if _, err = segment.VerifierKeys(data); err != nil { // or the lock would be made where no log is
		return last, nil, nil, err
	}
	lock, err := lockLog(data, 0)
	if err != nil {
		return last, nil, nil, err
	}
	release = func() { _ = boltfile.Unlock(lock) }
	if last, files, err = copyStopped(data); err != nil {
		CloseAll(files)
		release()
		return last, nil, nil, err
	}
	return last, files, release, nil
}

func copyStopped(data string) (last segment.Checkpoint, files []Copied, err error) {
	r, err := segment.OpenReader(data)
	if err != nil {
		return last, nil, err
	}
	left := r.Unfilled()
	last, err = r.LastCheckpoint()
	if err = errors.Join(err, r.Close()); err == nil && left != nil {
		err = ErrUnfilled
	}
	if err != nil {
		return last, nil, err
	}
	names, journals := []string{format.PublicKeyFile}, journal.Paths("")
	entries, err := os.ReadDir(filepath.Join(data, format.LogDir))
	for _, entry := range entries {
		name := entry.Name()
		_, isSegment := segment.ParseFileName(name)
		_, _, next := segment.ParseNextName(name)
		if isSegment || next || journals[0] == name || journals[1] == name {
			names = append(names, path.Join(format.LogDir, name))
		}
	}
	for _, name := range names {
		if err == nil {
			files, err = appendOpened(files, data, name)
		}
	}
	if err == nil {
		files, err = appendBundles(files, data)
	}
	return last, files, err
}

func appendOpened(files []Copied, data, name string) ([]Copied, error) {
	f, err := plainfile.Open(filepath.Join(data, filepath.FromSlash(name)))
	if err != nil {
		return files, err
	}
	return append(files, Copied{f, name}), nil
}

func appendBundles(files []Copied, data string) ([]Copied, error) {
	entries, err := os.ReadDir(segment.BundlesPath(data))
	if errors.Is(err, fs.ErrNotExist) {
		return files, nil
	}
	for _, entry := range entries {
		if err == nil && !strings.HasPrefix(entry.Name(), ".") {
			files, err = appendOpened(files, data, path.Join(segment.BundlesDir, entry.Name()))
		}
	}
	return files, err
}

// MoveAside moves all files of a log into another directory, which is then laid out as a data directory, and the files others
// before them. It calls first once no process can open the log.
func MoveAside(data, to string, first func() error, others ...string) error {
	lock, err := lockLog(data, 0)
	if err == nil {
		defer func() { _ = boltfile.Unlock(lock) }()
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) { // there is not even its directory
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

// moveOnce moves a file or directory, if there is one. If an earlier call, which was killed, has moved it, moveOnce removes what
// a refused start made in its place: a file, or a directory with nothing but a lock.
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
