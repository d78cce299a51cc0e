// Package segment reads the decision log in a data directory: segments, which are bbolt files, and the files beside them.
// [OpenReader] reads all records that are there, [Read] reads them up to a checkpoint. What the writer of the log needs to
// write the same files stands here too, and the writer itself in package decisionlog.
//
//	file.go        one segment, and the names of files
//	reader.go      all segments of a log, opened as they are needed
//	records.go     records, by sequence and by ID
//	tree.go        the Merkle tree over the records
//	checkpoint.go  signed checkpoints, and witnessed ones
//	end.go         the end of the newest segment, and who wrote it
//	cut.go         whether the end of a log is missing
//	keys.go        the keys that sign a log
//	snapshot.go    the log up to a checkpoint, for one reader
//	removals.go    content that was redacted or retired
//	vouched.go     administrative records that the tree proves
//	walk.go        records, compared with the tree
//	bundles.go     the policies that decided
//
// The package never writes to a segment. It returns [record.ErrDamaged] for a file that is not as it was written,
// [ErrNewer] for one that a later release wrote, [ErrLocked] for one that a running server holds, and [ErrCut] for a log whose
// end is missing. Whether all records are those that were signed is checked by package verify.
package segment

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/boltfile/pages"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/plainfile"
)

// The errors of a log that is read or written.
var (
	// ErrUnavailable: nothing can be written now. What was to be recorded must
	// not be acted upon. The log tries again by itself.
	ErrUnavailable = errors.New("the decision log cannot be written")
	ErrLocked      = errors.New("the decision log is in use by another process")
	// ErrCut: the end of the log is gone, or all of it.
	ErrCut      = errors.New("the decision log does not go on where it ended")
	ErrNotFound = errors.New("no such record")
	// ErrNewer: a later release wrote the log.
	ErrNewer = journal.ErrNewer
	// ErrGone: the record was redacted or retired; its leaf hash is still there.
	ErrGone = errors.New("the record's content is gone")
)

// segment is one bbolt file. Whoever reads it does so in short transactions:
// one that lasted would keep the writer from closing it.
type File struct {
	Number, First uint64
	Path          string
	Key           string // the public key in force when it was last written to
	journal       JournalMark

	mu       sync.RWMutex // held for reading while db is in use
	db       *bbolt.DB    // nil where it is not open
	active   bool         // it is the writer's, who alone opens and closes it
	lastUsed time.Time
	Size     int64
	checked  os.FileInfo // the file that was checked when it was opened last
}

// newFile returns a segment that is not open.
func NewFile(data string, number uint64) *File {
	return &File{Number: number, Path: FilePath(data, number)}
}

// own gives an open file to the writer, who alone closes it from now on.
func (s *File) GiveToWriter(db *bbolt.DB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db, s.active = db, true
}

// written returns the open file, for the writer.
func (s *File) WriterDB() *bbolt.DB { return s.db }

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
func (s *File) TakeFromWriter() error {
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

func OpenFile(path string, use boltfile.Use, options bbolt.Options) (*bbolt.DB, error) {
	if info, err := os.Stat(path); use != boltfile.ToWrite && (err != nil || info.Size() == 0) { // bbolt would write to it
		return nil, fmt.Errorf("segment %s: %w", path, errors.Join(err, fmt.Errorf("%w: %s is empty", record.ErrDamaged, path)))
	}
	db, err := boltfile.Open(path, record.ErrDamaged, use, options)
	return db, namePath(err, path)
}

// inFile says which file an error is of.
func namePath(err error, path string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, boltfile.ErrLocked):
		return fmt.Errorf("%w: %s", ErrLocked, path)
	}
	return fmt.Errorf("segment %s: %w", path, err)
}

func Guard(f func() error) error { return boltfile.Guard(record.ErrDamaged, f) }

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
	n, _ := DecodeNumber(meta[format.MetaSegment])
	first, ok := DecodeNumber(meta[format.MetaFirst])
	seq, isNumber := DecodeNumber(last.Key)
	if n != s.Number || !ok || !isNumber || seq < first || seq == 1<<64-1 {
		return 0, fmt.Errorf("%w: it does not say which segment it is", record.ErrDamaged)
	}
	s.First, s.Key, s.Size = first, string(meta[format.MetaKey]), f.Size()
	s.journal, err = ParseJournalMark(meta[format.MetaFormat], meta[format.MetaJournal])
	return seq + 1, err
}

func FilePath(data string, number uint64) string {
	return filepath.Join(data, format.LogDir, fmt.Sprintf(format.SegmentName, number))
}

// segmentNumber is the number in a segment's name.
func ParseFileName(name string) (uint64, bool) {
	if len(name) != len("00000001.db") || filepath.Ext(name) != ".db" {
		return 0, false
	}
	n, err := strconv.ParseUint(name[:8], 10, 64)
	return n, err == nil && n > 0
}

// nextSuffix ends the name of a file that is to take the place of a segment.
const NextSuffix = ".next"

// isNext takes apart the name of a new file: which segment, and how many records
// there were when it was written.
func ParseNextName(name string) (segment, size uint64, ok bool) {
	base, ok := strings.CutSuffix(name, NextSuffix)
	if !ok {
		return 0, 0, false
	}
	n, err := fmt.Sscanf(base, format.SegmentName+".%d", &segment, &size)
	return segment, size, err == nil && n == 2 && fmt.Sprintf(format.SegmentName+".%d", segment, size) == base
}

// rename moves a file so that it has moved also after a crash.
func RenameSynced(from, to string) error {
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

func EncodeNumber(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// readNumber reads what number wrote; anything else is 0 and false.
func DecodeNumber(b []byte) (uint64, bool) {
	if len(b) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(b), true
}
