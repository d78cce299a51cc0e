package segment

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/boltfile/pages"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/plainfile"
)

// segment is one bbolt file. Whoever reads it does so in short transactions:
// one that lasted would keep the writer from closing it.
type File struct {
	Number, First uint64
	Path          string
	Key           string // the public key in force when it was last written to
	Journal       Journaled

	mu     sync.RWMutex // held for reading while db is in use
	db     *bbolt.DB    // nil where it is not open
	active bool         // it is the writer's, who alone opens and closes it
	used   time.Time
	Size   int64
	sound  os.FileInfo // the file that was checked when it was opened last
}

// newFile returns a segment that is not open.
func NewFile(data string, number uint64) *File {
	return &File{Number: number, Path: Path(data, number)}
}

// own gives an open file to the writer, who alone closes it from now on.
func (s *File) Own(db *bbolt.DB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db, s.active = db, true
}

// written returns the open file, for the writer.
func (s *File) Written() *bbolt.DB { return s.db }

func Path(data string, number uint64) string {
	return filepath.Join(data, format.LogDir, fmt.Sprintf(format.SegmentName, number))
}

// segmentNumber is the number in a segment's name.
func NumberIn(name string) (uint64, bool) {
	if len(name) != len("00000001.db") || filepath.Ext(name) != ".db" {
		return 0, false
	}
	n, err := strconv.ParseUint(name[:8], 10, 64)
	return n, err == nil && n > 0
}

func OpenFile(path string, use boltfile.Use, options bbolt.Options) (*bbolt.DB, error) {
	if info, err := os.Stat(path); use != boltfile.ToWrite && (err != nil || info.Size() == 0) { // bbolt would write to it
		return nil, fmt.Errorf("segment %s: %w", path, errors.Join(err, fmt.Errorf("%w: %s is empty", record.ErrDamaged, path)))
	}
	db, err := boltfile.Open(path, record.ErrDamaged, use, options)
	return db, inFile(err, path)
}

// inFile says which file an error is of.
func inFile(err error, path string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, boltfile.ErrLocked):
		return fmt.Errorf("%w: %s", ErrLocked, path)
	}
	return fmt.Errorf("segment %s: %w", path, err)
}

// view runs f in a read transaction. What f keeps of it must be copied.
func (s *File) View(f func(*bbolt.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.db == nil && s.active:
		return fmt.Errorf("segment %s: %w", s.Path, ErrUnavailable)
	case s.db == nil:
		return errClosed
	}
	if err := Guard(func() error { return s.db.View(f) }); err != nil {
		return fmt.Errorf("segment %s: %w", s.Path, err)
	}
	return nil
}

// errClosed: a sealed segment is not open.
var errClosed = errors.New("the segment is not open")

// close closes the file once nobody reads it.
func (s *File) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closeLocked()
}

// retire closes a file that was written to and now can be opened by who reads.
func (s *File) Retire() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = false
	return s.closeLocked()
}

func (s *File) closeLocked() error {
	if s.db == nil {
		return nil
	}
	db := s.db
	s.db = nil
	return boltfile.Close(db, record.ErrDamaged)
}

// readMeta reads what never changes in a segment, and where it ends. Without a
// record it is empty.
func (s *File) readMeta(f *pages.File) (end uint64, err error) {
	buckets := map[string]pages.Bucket{}
	for _, name := range []string{format.BucketMeta, format.BucketRecords, format.BucketHashes, format.BucketIDs, format.BucketCheckpoints} {
		b, found, err := f.Bucket(name)
		if err != nil || !found {
			return 0, errors.Join(fmt.Errorf("%w: it has no bucket %s", record.ErrDamaged, name), err)
		}
		buckets[name] = b
	}
	last, found, err := buckets[format.BucketHashes].Cursor().Last()
	if err != nil || !found {
		return 0, err
	}
	meta, err := buckets[format.BucketMeta].Values(format.MetaFormat, format.MetaSegment, format.MetaFirst, format.MetaKey, format.MetaJournal)
	if err != nil {
		return 0, err
	}
	if version := string(meta[format.MetaFormat]); version != strconv.Itoa(format.Version) && version != strconv.Itoa(format.VersionJournaled) {
		return 0, fmt.Errorf("its format is %.20q, and this version reads %d and %d: %w, or it is damaged; run that version, or restore what was backed up before the upgrade",
			version, format.Version, format.VersionJournaled, ErrNewer)
	}
	n, _ := ReadNumber(meta[format.MetaSegment])
	first, ok := ReadNumber(meta[format.MetaFirst])
	seq, isNumber := ReadNumber(last.Key)
	if n != s.Number || !ok || !isNumber || seq < first || seq == 1<<64-1 {
		return 0, fmt.Errorf("%w: it does not say which segment it is", record.ErrDamaged)
	}
	s.First, s.Key, s.Size = first, string(meta[format.MetaKey]), f.Size()
	s.Journal, err = ReadJournaled(meta[format.MetaFormat], meta[format.MetaJournal])
	return seq + 1, err
}

func Guard(f func() error) error { return boltfile.Guard(record.ErrDamaged, f) }

// rename moves a file so that it has moved also after a crash.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return plainfile.SyncDir(filepath.Dir(to))
}

// FileDigest is the digest of a segment file, and the number of its bytes.
func FileDigest(r io.Reader) (digest string, size int64, err error) {
	sum := sha256.New()
	if size, err = io.Copy(sum, r); err != nil {
		return "", 0, fmt.Errorf("reading a segment: %w", err)
	}
	return format.DigestPrefix + hex.EncodeToString(sum.Sum(nil)), size, nil
}
