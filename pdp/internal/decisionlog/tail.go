package decisionlog

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/plainfile"
)

// openTail opens the log for writing, and checks the end of it. The rest
// was checked when it was the end, and verify checks all of it.
func (w *writer) openTail() (crashed bool, err error) {
	if err := w.removePrepared(); err != nil {
		return false, err
	}
	if err := w.reader.Scan(); err != nil {
		return false, err
	}
	all := w.reader.Files()
	if w.reader.Partial() {
		return false, segment.ErrLocked
	}
	if len(all) == 0 {
		if err := segment.CheckNoneBegun(w.data); err != nil {
			return false, err
		}
		return false, w.create()
	}
	s := all[len(all)-1]
	if w.key, err = segment.OpenKey(w.data, s.Key); err != nil {
		return false, err
	}
	if err := os.Chmod(s.Path, 0o600); err != nil { // it may have been sealed before a crash
		return false, err
	}
	db, err := segment.OpenFile(s.Path, boltfile.ToWrite, w.writing())
	if err != nil {
		return false, err
	}
	db.AllocSize = allocSize
	s.Own(db)
	a, clean := &active{File: s, opened: w.options.Now()}, false
	w.active = a
	err = s.View(func(tx *bbolt.Tx) (err error) {
		clean = segment.IsClean(tx.Bucket([]byte(format.BucketMeta)), w.reader.Size())
		if at, ok := segment.TimeOf(tx.Bucket([]byte(format.BucketRecords)).Get(segment.Number(s.First))); ok {
			a.opened = at
		}
		end, err := segment.CheckEnd(tx, s, w.reader.Size())
		if err != nil {
			return err
		}
		w.tail = tail{End: end, checkpointedAt: time.Now(), appended: time.Now()}
		meta := tx.Bucket([]byte(format.BucketMeta))
		if w.tail.journal, err = segment.ReadJournaled(meta.Get([]byte(format.MetaFormat)), meta.Get([]byte(format.MetaJournal))); err != nil {
			return err
		}
		w.tails = segment.ReadTails(tx)
		w.tail.keys, _ = segment.ReadNumber(meta.Get([]byte(format.MetaKeys)))
		w.tail.doubt, err = w.key.Doubt(s.Number, w.tail.Edge, meta)
		if err != nil {
			return err
		}
		if w.tail.doubt != "" {
			w.tail.keys = math.MaxUint64
		}
		a.charged = activeCharges(tx, s.First, w.tail.Checkpointed, w.reader.Size())
		s.Size = tx.Size()
		w.accounts.reopen(a.charged, contentOf(s.Size, w.reader.Size()-s.First))
		return nil
	})
	if err == nil {
		makeReadOnly(all[:len(all)-1])
	}
	return !clean, err
}

// makeReadOnly gives sealed segments the mode of sealed segments again, by which verify tells them from the active one beside
// a server. A rotation sets it last, so a crash, or a transaction that only seemed to fail, can come before.
func makeReadOnly(sealed []*segment.File) {
	for _, s := range sealed {
		if info, err := os.Lstat(s.Path); err == nil && info.Mode().IsRegular() && info.Mode().Perm() != sealedMode {
			_ = os.Chmod(s.Path, sealedMode) // a courtesy, as in rotate
		}
	}
}

// checkEdge holds the edge of a segment that has no checkpoint yet against the last one
// of the segment before it, if that is here: it was sealed with one.
func (w *writer) checkEdge() error {
	s := w.active
	if w.tail.Note != nil || len(w.reader.Files()) < 2 {
		return nil
	}
	last, err := w.reader.LastCheckpoint()
	if err != nil {
		return err
	}
	verifier, err := note.NewVerifier(w.key.Public)
	if err == nil {
		last, err = segment.ParseCheckpoint(last.Note, note.VerifierList(verifier))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", record.ErrDamaged, err)
	}
	root, err := tlog.TreeHash(int64(last.Size), w.reader)
	if err != nil || last.Size != s.First || root != last.Root {
		return errors.Join(fmt.Errorf(
			"%w: segment %d does not continue what was signed of the one before it", record.ErrDamaged, s.Number), err)
	}
	var before segment.Edge
	err = s.View(func(tx *bbolt.Tx) (err error) { before, err = segment.EdgeBefore(tx, s.First); return err })
	if err != nil {
		return err
	}
	if root, err = before.Root(); err != nil || root != last.Root {
		return errors.Join(fmt.Errorf("%w: the edge of segment %d is not what was signed", record.ErrDamaged, s.Number), err)
	}
	return nil
}

// create begins a log. Its key gets its name last.
func (w *writer) create() (err error) {
	if w.key, err = segment.NewKey(cmp.Or(w.options.Origin, randomOrigin())); err != nil {
		return err
	}
	if err := plainfile.Replace(filepath.Join(w.data, format.NextKeyFile), []byte(w.key.Private+"\n")); err != nil {
		return err
	}
	first, err := w.prepareSegment(1)
	if err != nil {
		return err
	}
	w.tail = tail{}
	about := map[string]any{"format": format.Version, "origin": w.key.Name(), "key": w.key.Public}
	if err := w.begin(first, format.EventCreated, about, nil); err != nil {
		_ = first.Close() // or its lock would keep this process from opening the log again
		return err
	}
	_, err = segment.OpenKey(w.data, w.key.Public)
	return err
}

func randomOrigin() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return "policy-service/" + hex.EncodeToString(b[:])
}

// fail closes what is open after an error of writing, and returns what callers get. Until
// [writer.recover] has gone well everything is refused: a file whose sync failed can read
// differently from the page cache and from the disk.
func (w *writer) fail(err error) error {
	w.failed, w.tried = err, time.Now()
	w.letGo()
	w.state.fail(err, w.options.Now())
	w.options.On.State(err)
	w.frames.refuse(err)
	return w.unavailable()
}

// letGo closes what the writer has open, whatever state it is in.
func (w *writer) letGo() {
	if s := w.active; s != nil {
		_ = s.Close() // it failed already
		boltfile.DropCache(s.Path)
	}
	w.active = nil
}

// recover opens the log again, as a new process would, and writes a record: that proves that
// the disk takes what is written.
func (w *writer) recover() {
	if err := w.reopen(); err != nil {
		_ = w.fail(err)
		return
	}
	w.failed = nil
	w.state.resume()
	w.options.On.State(nil)
}

func (w *writer) reopen() error {
	size, status, segments := w.reader.Size(), w.state.now(), len(w.reader.Files())
	if err := w.openAgain(); err != nil {
		return err
	}
	if len(w.reader.Files()) != segments { // what failed was the beginning of one, and it is there
		w.limit(w.accounts.keep)
	}
	if now := w.reader.Size(); now < size {
		return fmt.Errorf("%w: it had %d records and has %d", record.ErrDamaged, size, now)
	}
	if err := w.fillAgain(); err != nil {
		return err
	}
	if err := w.transact(order{journal: &segment.Journaled{}}); err != nil {
		return err
	}
	lost, refused := w.state.take()
	about := lost.details(map[string]any{
		"failed_at":  status.Since.UTC().Format(format.TimeLayout),
		"resumed_at": w.options.Now().UTC().Format(format.TimeLayout),
		"error":      classify(status.Err),
		"refused":    refused,
	})
	// Nothing says that it resumed before there is a journal to answer with.
	err := w.startJournal(order{calls: append(w.settle(), w.own("", format.EventResumed, about)), checkpoint: true})
	if err != nil {
		w.state.giveBack(lost)
	}
	return err
}

// openAgain keeps readers from opening the segment that the writer wants alone.
func (w *writer) openAgain() error {
	w.reader.Opening.Lock()
	defer w.reader.Opening.Unlock()
	for _, s := range w.reader.Files() {
		_ = s.Close()
	}
	_, err := w.openTail()
	return err
}

// finish ends the log in good order. If the log failed, it tries once more to open it.
func (w *writer) finish() error {
	if w.failed != nil {
		w.recover()
	}
	if err := w.unavailable(); err != nil {
		return err
	}
	w.options.On.Step(StepClose)
	w.frames.release()
	if err := w.rest(); err != nil { // no call joins any more, and this waits for all that have
		return err
	}
	if err := w.eraseJournal(); err != nil {
		return err
	}
	lost, _ := w.state.take() // dropped when nothing was written any more
	err := w.transact(order{calls: w.dropped(lost), checkpoint: true, clean: true, journal: &segment.Journaled{}})
	w.options.On.Step(StepClosed)
	w.letGo()
	w.frames.refuse(ErrClosed)
	return err
}

// classify names an error without its text, which holds file names.
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
