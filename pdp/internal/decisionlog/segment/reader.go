package segment

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/boltfile/pages"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/plainfile"
)

// Reader reads a log. It is safe for concurrent use, and a [tlog.HashReader].
type Reader struct {
	data    string
	partial atomic.Bool
	size    atomic.Uint64

	mu       sync.RWMutex
	segments []*File // those with records, in order
	// unfilled receives what only the journal has. It is nil if that is not to be read.
	unfilled *Unfilled
	unlocked boltfile.Use // boltfile.Unlocked, or 0

	Opening sync.Mutex // held to open or close sealed segments; locked before the mutex of a File
}

// MaxOpen is the number of sealed segments that stay open after they were read.
const MaxOpen = 8

// readerWait is how long a reader waits for a segment that another process is opening.
const readerWait = 100 * time.Millisecond

// NewReader returns a reader that has no segments before [Reader.Scan].
func NewReader(data string) *Reader { return &Reader{data: data} }

// OpenReader opens the log in a data directory. While another process writes to the log, its active segment cannot be
// read: then [Reader.Size] is the first sequence of that segment, and [Reader.Partial] is true.
func OpenReader(data string) (*Reader, error) {
	r := NewReader(data)
	r.unfilled = &Unfilled{}
	if err := r.Scan(); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// OpenUnlocked is [OpenReader] for a caller that only looks: a server can start while the reader is open. Then what is
// read may be torn, or a removal may replace a segment: the caller must compare [Mark] from before with Mark after all reading.
func OpenUnlocked(data string) (*Reader, error) {
	r, err := OpenReader(data)
	if err == nil {
		r.unlocked = boltfile.Unlocked
	}
	return r, err
}

// Mark returns a text that changes when a segment of the log in a data directory does. Each start of a server writes to one.
// Live reports whether another process writes to the log now: the mark is without the segments that it holds.
func Mark(data string) (mark string, live bool) {
	entries, _ := os.ReadDir(filepath.Join(data, format.LogDir)) // what cannot be read has no mark
	for _, e := range entries {
		if n, ok := ParseFileName(e.Name()); ok {
			info, err := boltfile.Ask(FilePath(data, n))
			if errors.Is(err, boltfile.ErrLocked) {
				return mark, true
			}
			if err == nil {
				mark += fmt.Sprintln(n, info.Size(), info.ModTime())
			}
		}
	}
	return mark, false
}

// Scan finds the segments and checks that each continues the one before.
func (r *Reader) Scan() error {
	entries, err := os.ReadDir(filepath.Join(r.data, format.LogDir))
	if err != nil {
		return fmt.Errorf("reading the log: %w", err)
	}
	partial := false
	var found []*File
	var size uint64
	for _, e := range entries { // sorted by name, and so by number
		n, ok := ParseFileName(e.Name())
		if !ok {
			continue
		}
		s, end := NewFile(r.data, n), uint64(0)
		err := namePath(boltfile.Look(s.Path, record.ErrDamaged, readerWait, func(f *pages.File) (err error) {
			// If a server writes meanwhile, Look returns ErrLocked, and what the journal says is not used.
			if end, err = s.readMeta(f); err == nil && end > 0 && r.unfilled != nil {
				err = r.unfilled.readJournal(r.data, s)
			}
			return err
		}), s.Path)
		if errors.Is(err, ErrLocked) {
			partial = true
			break // the writer holds this segment and all later ones
		}
		if err != nil {
			return err
		}
		if end == 0 { // prepared in advance; it must be the last
			continue
		}
		if len(found) > 0 { // the first segments may be missing: they can be moved to an archive
			if last := found[len(found)-1]; s.Number != last.Number+1 || s.First != size {
				return fmt.Errorf("%w: segment %d begins with record %d, the one before it is %d and ends before %d",
					record.ErrDamaged, s.Number, s.First, last.Number, size)
			}
		}
		found, size = append(found, s), end
	}
	r.partial.Store(partial)
	r.mu.Lock()
	r.segments = found
	r.mu.Unlock()
	r.size.Store(size)
	return nil
}

// View runs f in a read transaction on a segment. It opens the segment if necessary.
func (r *Reader) View(s *File, f func(*bbolt.Tx) error) error {
	for {
		if err := r.openToRead(s); err != nil {
			return err
		}
		if err := s.View(f); err != errClosed { // another reader closed it to open a different segment
			return err
		}
	}
}

// openToRead opens a sealed segment if it is not open. If too many are open, it first closes the one that was not read for
// the longest time. The pages of a file are checked when it is opened, but not again while the file is unchanged.
func (r *Reader) openToRead(s *File) error {
	r.Opening.Lock()
	defer r.Opening.Unlock()
	s.mu.RLock()
	open, active := s.db != nil, s.active
	s.mu.RUnlock()
	s.lastUsed = time.Now()
	if open || active {
		return nil
	}
	var oldest *File
	n := 0
	for _, other := range r.SegmentFiles() {
		other.mu.RLock()
		if other.db != nil && !other.active {
			if n++; oldest == nil || other.lastUsed.Before(oldest.lastUsed) {
				oldest = other
			}
		}
		other.mu.RUnlock()
	}
	if n >= MaxOpen {
		_ = oldest.Close()
	}
	use, info := boltfile.ToRead, s.checked
	if named, err := os.Stat(s.Path); err == nil && boltfile.Unchanged(named, s.checked) {
		use = boltfile.ToReadAgain // its pages were checked when it was opened before
	}
	db, err := OpenFile(s.Path, use|r.unlocked, bbolt.Options{
		Timeout: readerWait,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			f, err := plainfile.OpenFile(name, flag, mode)
			if err == nil && use == boltfile.ToRead { // the file with this name may have been replaced
				info, _ = f.Stat()
			}
			return f, err
		},
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db, s.checked = db, info
	return nil
}

// SegmentFiles returns the segments that have records, in order. The caller must not modify the slice.
func (r *Reader) SegmentFiles() []*File {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.segments // replaced, never modified
}

// AddFile appends a new segment, so that readers see it.
func (r *Reader) AddFile(s *File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.segments = append(slices.Clone(r.segments), s)
}

// FindFile returns the segment that contains a sequence. The error is [ErrGone] if the segment was moved away.
func (r *Reader) FindFile(sequence uint64) (*File, error) {
	s, _, err := r.findFileAndEnd(sequence)
	return s, err
}

// findFileAndEnd returns the segment that contains a sequence and the sequence after its last record.
func (r *Reader) findFileAndEnd(sequence uint64) (s *File, end uint64, err error) {
	size := r.size.Load() // before the segments, because a segment is added before the size grows
	all := r.SegmentFiles()
	i, exact := slices.BinarySearchFunc(all, sequence, func(s *File, n uint64) int { return cmp.Compare(s.First, n) })
	switch {
	case sequence >= size:
		return nil, 0, fmt.Errorf("record %d: %w", sequence, ErrNotFound)
	case exact:
		i++
	case i == 0:
		return nil, 0, fmt.Errorf("record %d: %w: its segment is not here", sequence, ErrGone)
	}
	if end = size; i < len(all) {
		end = min(end, all[i].First)
	}
	return all[i-1], end, nil
}

// EndOfFile returns the sequence after the last record of a segment.
func (r *Reader) EndOfFile(s *File) uint64 {
	all := r.SegmentFiles()
	if i := slices.Index(all, s); i >= 0 && i+1 < len(all) {
		return all[i+1].First
	}
	return r.Size()
}

// Size returns the number of records. The sequences of records are below it.
func (r *Reader) Size() uint64 { return r.size.Load() }

// SetSize makes the records below a sequence visible.
func (r *Reader) SetSize(size uint64) { r.size.Store(size) }

// Partial reports whether another process holds the active segment.
func (r *Reader) Partial() bool { return r.partial.Load() }

// Close closes all open segments.
func (r *Reader) Close() (err error) {
	r.Opening.Lock()
	defer r.Opening.Unlock()
	for _, s := range r.SegmentFiles() {
		err = errors.Join(err, s.Close())
	}
	return err
}

// Info describes a segment.
type Info struct {
	Number  uint64
	Path    string
	First   uint64
	Records uint64
	Size    int64 // of the file
	Sealed  bool
}

// Segments describes the segments in order.
func (r *Reader) Segments() []Info {
	all, end := r.SegmentFiles(), r.Size()
	list := make([]Info, len(all))
	for i, s := range slices.Backward(all) {
		list[i] = Info{
			Number:  s.Number,
			Path:    s.Path,
			First:   s.First,
			Records: end - s.First,
			Sealed:  i < len(all)-1 || r.partial.Load(),
		}
		if info, err := os.Stat(s.Path); err == nil {
			list[i].Size = info.Size()
		}
		end = s.First
	}
	return list
}

// Unfilled describes records that are only in the journal of a log, because a crash came before they were copied to a
// segment. Their callers were answered. The next start of the server records them, unless something is damaged.
type Unfilled struct {
	Records uint64 `json:"records"`          // readable records
	Damage  string `json:"damage,omitempty"` // what is damaged; then more records may be lost, and no server starts
}

// readJournal counts the records in the journal of a segment. Without the private key it cannot tell who wrote the frames.
func (u *Unfilled) readJournal(data string, s *File) error {
	on := s.journal
	if *u = (Unfilled{}); on == (JournalMark{}) || on.Aside != 0 {
		return nil
	}
	var key *journal.Key
	if k, _, err := readKeyInForce(data, s.Key); err == nil {
		key = &k.FramesKey
	}
	read, err := journal.Read(filepath.Join(data, format.LogDir), on.ID, on.Number, key)
	if damage := (*journal.Damage)(nil); errors.As(err, &damage) {
		u.Damage = damage.Error()
	} else if err != nil {
		return err
	}
	u.Records = journal.Records(read)
	return nil
}

// Unfilled returns what only the journal has. It returns nil if there are no such records, and while a server is running,
// because then nobody can tell.
func (r *Reader) Unfilled() *Unfilled {
	if r.Partial() || r.unfilled == nil || *r.unfilled == (Unfilled{}) {
		return nil
	}
	return r.unfilled
}
