package decisionlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// replayJournal fills the active segment with the frames that only the journal has: answered calls, and what was written a
// moment before a crash. It returns the number of their records.
func (w *writer) replayJournal() (records int, err error) {
	on := w.tail.journal
	switch {
	case on == (segment.JournalMark{}):
		return 0, nil
	case on.Aside != 0:
		return 0, w.moveJournalAside()
	}
	w.options.On.Step(StepReplay)
	read, err := journal.Read(w.journalDir(), on.ID, on.Number, &w.key.FramesKey)
	if damage := (*journal.Damage)(nil); errors.As(err, &damage) {
		return 0, fmt.Errorf("%w: %w", ErrLost, err)
	}
	if err != nil {
		return 0, err
	}
	w.frames.addRecovered(framesRead(read))
	if err := w.fillSegment(nil, false); err != nil {
		return 0, err
	}
	if err := w.transact(transaction{journal: &segment.JournalMark{}}); err != nil {
		return 0, err
	}
	w.options.On.Step(StepReplayed)
	return int(journal.Records(read)), nil
}

// framesRead returns the frames that were read of a journal, ready to be filled.
func framesRead(read []journal.Frame) (some []*frame) {
	for _, one := range read {
		f := &frame{number: one.Number}
		for _, c := range one.Calls {
			made := &call{payer: c.Payer, weight: c.Weight}
			for _, r := range c.Records {
				made.entries = append(made.entries, fromJournal(r.ID, r.Body))
				made.size += int64(len(r.ID) + len(r.Body))
			}
			f.time = c.Time
			f.add(made)
		}
		some = append(some, f)
	}
	return some
}

// Loss is what a damaged journal lost, as the log records it.
type Loss struct {
	File   string `json:"file"` // where the damage begins
	Offset int64  `json:"offset"`
	Reason string `json:"reason"`
	// Frames are the numbers of frames that cannot be read, as pairs of a first and a last number. There may be more.
	Frames [][2]uint64 `json:"frames,omitempty"`
	// Lost is how many records cannot be read, nil if nobody knows. Kept is how many could be, and are on record.
	Lost *int64 `json:"lost,omitempty"`
	Kept uint64 `json:"kept"`
	// Files are what the journal's files are called since.
	Files []string `json:"files"`
}

// Recover opens a log whose journal is damaged. It keeps what can be read of the journal, puts the loss of the rest on
// record, and moves the journal's files aside, which the next redaction or retention removes. If the journal is not
// damaged, it changes nothing and returns [ErrNoLoss].
func Recover(data string, options Options) (Loss, error) {
	var loss Loss
	l, err := open(data, options, func(w *writer) (kept int, err error) {
		loss, err = w.acceptLoss()
		return int(loss.Kept), err
	})
	if err != nil {
		return loss, err
	}
	return loss, l.Close()
}

// acceptLoss replays a damaged journal. The records that could be read, the record of the loss and the order to move the
// files aside are one transaction: after a crash either all of that is still to be done, or only the files are to be moved.
func (w *writer) acceptLoss() (Loss, error) {
	on := w.tail.journal
	if on == (segment.JournalMark{}) || on.Aside != 0 {
		return Loss{}, ErrNoLoss
	}
	read, err := journal.Read(w.journalDir(), on.ID, on.Number, &w.key.FramesKey)
	var damage *journal.Damage
	switch {
	case err == nil:
		return Loss{}, ErrNoLoss
	case !errors.As(err, &damage):
		return Loss{}, err
	}
	on.Aside = w.options.Now().UnixNano()
	loss := Loss{File: damage.File, Offset: damage.Offset, Reason: damage.Reason, Frames: damage.Missing, Kept: journal.Records(read), Files: []string{}}
	if damage.Records >= 0 {
		loss.Lost = &damage.Records
	}
	aside := journal.Aside(w.journalDir(), time.Unix(0, on.Aside))
	for i, path := range journal.Paths(w.journalDir()) {
		if _, err := os.Lstat(path); err == nil {
			loss.Files = append(loss.Files, filepath.Base(aside[i]))
		}
	}
	some := framesRead(read)
	w.frames.addRecovered(some)
	if err := w.transact(transaction{frames: some, calls: []*call{w.ownRecord("", format.EventLoss, loss)}, checkpoint: true, journal: &on}); err != nil {
		return loss, err
	}
	return loss, w.moveJournalAside()
}

// moveJournalAside moves the files of a journal aside once its loss is on record.
func (w *writer) moveJournalAside() error {
	if _, err := journal.MoveAside(w.journalDir(), time.Unix(0, w.tail.journal.Aside)); err != nil {
		return err
	}
	return w.transact(transaction{journal: &segment.JournalMark{}})
}

// fail closes what is open after an error of writing, and returns the error that callers get. Until
// [writer.resumeWriting] succeeds, every call is refused: a file whose sync failed can read
// differently from the page cache and from the disk.
func (w *writer) fail(err error) error {
	w.failed, w.tried = err, time.Now()
	w.closeActive()
	w.state.setFailed(err, w.options.Now())
	w.options.On.State(err)
	w.frames.refuseCalls(err)
	return w.unavailable()
}

// closeActive closes the active segment, whatever state it is in.
func (w *writer) closeActive() {
	if s := w.active; s != nil {
		_ = s.Close() // it failed already
		boltfile.DropCache(s.Path)
	}
	w.active = nil
}

// resumeWriting opens the log again, as a new process would, and writes a record, which proves that
// the disk takes writes again.
func (w *writer) resumeWriting() {
	if err := w.reopen(); err != nil {
		_ = w.fail(err)
		return
	}
	w.failed = nil
	w.state.setResumed()
	w.options.On.State(nil)
}

// reopen opens the end of the log again, fills the segment with the frames that it lacks, and starts a new journal.
func (w *writer) reopen() error {
	size, status, segments := w.reader.Size(), w.state.current(), len(w.reader.SegmentFiles())
	if err := w.openAgain(); err != nil {
		return err
	}
	if len(w.reader.SegmentFiles()) != segments { // the beginning of a segment failed, and the segment is there
		w.setLimits(w.accounts.keep)
	}
	if now := w.reader.Size(); now < size {
		return fmt.Errorf("%w: it had %d records and has %d", record.ErrDamaged, size, now)
	}
	// The segment may have some of the frames that were to be filled: it says up to which number.
	if on := w.tail.journal; on != (segment.JournalMark{}) {
		had := w.frames.durableUpTo(on.Number)
		for _, one := range had {
			for _, c := range one.calls {
				w.accounts.giveBackComing(c) // openTail counted all that the segment has
			}
		}
		w.frames.forgetFilled(had, func() {})
	}
	if err := w.fillSegment(nil, false); err != nil {
		return err
	}
	if err := w.transact(transaction{journal: &segment.JournalMark{}}); err != nil {
		return err
	}
	lost, refused := w.state.takeLost()
	about := lost.addTo(map[string]any{
		"failed_at":  status.Since.UTC().Format(format.TimeLayout),
		"resumed_at": w.options.Now().UTC().Format(format.TimeLayout),
		"error":      classify(status.Err),
		"refused":    refused,
	})
	// No record says that the log resumed before there is a journal to answer with.
	err := w.startJournal(transaction{calls: append(w.settleDoubt(), w.ownRecord("", format.EventResumed, about)), checkpoint: true})
	if err != nil {
		w.state.giveBackLost(lost)
	}
	return err
}

// openAgain opens the end of the log while no reader can open a segment, because the writer needs the last one alone.
func (w *writer) openAgain() error {
	w.reader.Opening.Lock()
	defer w.reader.Opening.Unlock()
	for _, s := range w.reader.SegmentFiles() {
		_ = s.Close()
	}
	_, err := w.openTail()
	return err
}

// classify returns a name for an error, for the record. The error's text would hold file names.
func classify(err error) string {
	if err == nil {
		return "other"
	}
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if strings.Contains(err.Error(), full.Error()) { // bbolt keeps the text only
			return "disk_full"
		}
	}
	var errno syscall.Errno
	switch {
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return "read_only"
	case errors.As(err, &errno):
		return "io"
	}
	return "other"
}
