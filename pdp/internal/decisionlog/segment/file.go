// Package segment reads the decision log in a data directory: segments, which are bbolt files, and the files beside them.
// [OpenReader] reads all records of the segments, except those of a segment that a running server writes to; [Read] reads them up to a
// checkpoint. What the writer needs to write the same files is here too; the writer itself is in package decisionlog.
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
// Readers never write to a segment. The package returns [record.ErrDamaged] for a file that is not as it was written,
// [ErrNewer] for one that a later release wrote, [ErrLocked] for one that a running server holds, and [ErrCut] for a log whose
// end is missing. It checks the records that it vouches for; package verify checks all of a log.
package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
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
)

// The errors of a log that is read or written.
var (
	// ErrUnavailable means that nothing can be written now. The caller must not act on what it could not record. The log
	// tries again by itself.
	ErrUnavailable = errors.New("the decision log cannot be written")
	ErrLocked      = errors.New("the decision log is in use by another process")
	// ErrCut means that the end of the log is missing, or all of it.
	ErrCut      = errors.New("the decision log does not go on where it ended")
	ErrNotFound = errors.New("no such record")
	// ErrNewer means that a later release wrote the log.
	ErrNewer = journal.ErrNewer
	// ErrGone means that a record was redacted or retired. Its leaf hash is still there.
	ErrGone = errors.New("the record's content is gone")
)

// File is one segment, which is a bbolt file. Read it in short transactions: the writer cannot close a file while a
// transaction is open.
type File struct {
	Number, First uint64
	Path          string
	Key           string // the public key in force at the last write
	journal       JournalMark

	mu       sync.RWMutex // held for reading while db is in use
	db       *bbolt.DB    // nil if the file is not open
	active   bool         // only the writer opens and closes the file
	lastUsed time.Time
	Size     int64
	checked  os.FileInfo // the file whose pages were checked when it was last opened
}

// NewFile returns the segment with a number. It does not open the file.
func NewFile(data string, number uint64) *File {
	return &File{Number: number, Path: FilePath(data, number)}
}

// GiveToWriter hands an open file to the writer. From then on only the writer opens and closes it.
func (s *File) GiveToWriter(db *bbolt.DB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db, s.active = db, true
}

// WriterDB returns the open file. Only the writer may call it.
func (s *File) WriterDB() *bbolt.DB { return s.db }

// View runs f in a read transaction. f must copy what it keeps.
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

// errClosed means that a sealed segment is not open.
var errClosed = errors.New("the segment is not open")

// Close waits for the transactions of readers and closes the file.
func (s *File) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closeLocked()
}

// TakeFromWriter closes a file that the writer had. From then on readers open it.
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

// OpenFile opens the bbolt file of a segment. It refuses to read an empty file, because bbolt would initialize it.
func OpenFile(path string, use boltfile.Use, options bbolt.Options) (*bbolt.DB, error) {
	if info, err := os.Stat(path); use != boltfile.ToWrite && (err != nil || info.Size() == 0) { // bbolt would initialize it
		return nil, fmt.Errorf("segment %s: %w", path, errors.Join(err, fmt.Errorf("%w: %s is empty", record.ErrDamaged, path)))
	}
	db, err := boltfile.Open(path, record.ErrDamaged, use, options)
	return db, namePath(err, path)
}

// namePath adds the path of the file to an error.
func namePath(err error, path string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, boltfile.ErrLocked):
		return fmt.Errorf("%w: %s", ErrLocked, path)
	}
	return fmt.Errorf("segment %s: %w", path, err)
}

// Guard runs f and returns [record.ErrDamaged] if bbolt panics on a damaged file.
func Guard(f func() error) error { return boltfile.Guard(record.ErrDamaged, f) }

// readMeta reads the metadata of a segment, which only the writer changes, and the sequence after its last record. end is 0 if
// the segment has no record.
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

// FilePath returns the path of a segment.
func FilePath(data string, number uint64) string {
	return filepath.Join(data, format.LogDir, fmt.Sprintf(format.SegmentName, number))
}

// ParseFileName returns the number in the name of a segment. ok is false for the name of any other file.
func ParseFileName(name string) (uint64, bool) {
	if len(name) != len("00000001.db") || filepath.Ext(name) != ".db" {
		return 0, false
	}
	n, err := strconv.ParseUint(name[:8], 10, 64)
	return n, err == nil && n > 0
}

// NextSuffix ends the name of a file that is written to replace a segment.
const NextSuffix = ".next"

// ParseNextName splits the name of a file that replaces a segment. It returns the number of the segment and the number of
// records that the log had when the file was written.
func ParseNextName(name string) (segment, size uint64, ok bool) {
	base, ok := strings.CutSuffix(name, NextSuffix)
	if !ok {
		return 0, 0, false
	}
	n, err := fmt.Sscanf(base, format.SegmentName+".%d", &segment, &size)
	return segment, size, err == nil && n == 2 && fmt.Sprintf(format.SegmentName+".%d", segment, size) == base
}

// EncodeNumber encodes a sequence or another number as it stands in keys and values of a segment: big-endian, so that
// bbolt sorts keys by number.
func EncodeNumber(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// DecodeNumber decodes the result of [EncodeNumber]. It returns 0 and false for anything else.
func DecodeNumber(b []byte) (uint64, bool) {
	if len(b) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(b), true
}
