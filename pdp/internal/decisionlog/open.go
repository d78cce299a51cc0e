package decisionlog

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/index"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/plainfile"
)

// Open opens the log in a data directory, or creates it. If its journal is damaged, the error is [ErrLost].
func Open(data string, options Options) (*Log, error) {
	return open(data, options, (*writer).replayJournal)
}

// open opens the log. replay fills the active segment with what only the journal has, and returns the number of these records.
func open(data string, options Options, replay func(*writer) (int, error)) (*Log, error) {
	if options = options.withDefaults(); options.Mode != Strict && options.Mode != BestEffort {
		return nil, fmt.Errorf("there is no mode %q: try %s or %s", options.Mode, Strict, BestEffort)
	}
	r := segment.NewReader(data)
	l := &Log{Reader: r, data: data, writer: newWriter(r, data, options)}
	l.index = index.New(data, l, index.Options{RetryEvery: options.RetryEvery, OnError: options.On.Failure})
	l.writer.told.index = l.index
	l.removals = removals{log: l, contents: map[uint64]int64{}}
	if err := l.openWriter(replay); err != nil {
		l.abandon()
		return nil, fmt.Errorf("opening the decision log: %w", err)
	}
	if c, err := r.LastCheckpointWithin(r.Size()); err == nil {
		l.writer.told.signed.Store(&c)
	}
	l.origin = l.writer.key.Name()
	go l.writer.run()
	l.removals.Lock()
	err := errors.Join(l.index.Sweep(), l.removals.finishLeft(context.Background()))
	l.removals.Unlock()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the decision log: %w", err), l.Close())
	}
	if options.Index {
		l.index.Start()
	}
	return l, nil
}

// abandon closes everything, whatever state it is in.
func (l *Log) abandon() {
	l.writer.closeActive()
	l.writer.frames.refuseCalls(ErrClosed)
	_ = l.Reader.Close()
	if l.lock != nil {
		_ = boltfile.Unlock(l.lock)
	}
}

// openWriter takes the lock, checks the end of the log, replays the journal, and begins a new journal.
func (l *Log) openWriter(replay func(*writer) (int, error)) (err error) {
	if err := os.MkdirAll(filepath.Join(l.data, format.LogDir), 0o700); err != nil {
		return err
	}
	if l.lock, err = lockLog(l.data, l.writer.options.LockTimeout); err != nil {
		return err
	}
	crashed, err := l.writer.openTail()
	if err == nil {
		err = l.writer.checkEdge()
	}
	if err == nil {
		err = l.CheckNotCut()
	}
	if err != nil {
		return err
	}
	doubt, had := l.writer.tail.doubt, l.writer.tail.Edge.Size
	replayed, err := replay(l.writer)
	if err != nil {
		return err
	}
	l.lastTime = l.writer.tail.Time
	named := len(l.writer.tails)
	calls := l.writer.settleDoubt()
	l.foundUnsigned = l.writer.tails[named:]
	if crashed || replayed > 0 || doubt != "" { // all that a crash left may be in the journal
		calls = append(calls, l.writer.recordCrash(had, replayed))
	}
	if len(calls) > 0 {
		if err := l.writer.transact(transaction{calls: calls}); err != nil {
			return err
		}
	}
	return l.writer.startJournal(transaction{})
}

// lockLog takes the lock of a log's directory. bbolt's own lock is on the active segment, and
// would let a second writer in while the first one rotates.
func lockLog(data string, timeout time.Duration) (*os.File, error) {
	// One file open for writing keeps a file system from being remounted, so this one is not.
	f, err := plainfile.OpenFile(filepath.Join(data, format.LockFile), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := boltfile.Lock(f, true, timeout); err != nil {
		_ = boltfile.Unlock(f)
		if errors.Is(err, boltfile.ErrLocked) {
			err = segment.ErrLocked
		}
		return nil, err
	}
	return f, nil
}

// openTail opens the last segment for writing, and checks its end. The rest of the log
// was checked when it was the end, and verify checks all of it. A log without segments is created.
func (w *writer) openTail() (crashed bool, err error) {
	drafts, err := filepath.Glob(filepath.Join(w.data, format.LogDir, ".prepared-*"))
	for _, name := range drafts {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		return false, err
	}
	if err := w.reader.Scan(); err != nil {
		return false, err
	}
	all := w.reader.SegmentFiles()
	if w.reader.Partial() {
		return false, segment.ErrLocked
	}
	if len(all) == 0 {
		if err := segment.CheckNeverBegun(w.data); err != nil {
			return false, err
		}
		return false, w.createLog()
	}
	s := all[len(all)-1]
	if w.key, err = segment.OpenKey(w.data, s.Key); err != nil {
		return false, err
	}
	if err := os.Chmod(s.Path, 0o600); err != nil { // it may have been sealed before a crash
		return false, err
	}
	db, err := segment.OpenFile(s.Path, boltfile.ToWrite, w.writeOptions())
	if err != nil {
		return false, err
	}
	db.AllocSize = allocSize
	s.GiveToWriter(db)
	a, clean := &active{File: s, opened: w.options.Now()}, false
	w.active = a
	err = s.View(func(tx *bbolt.Tx) (err error) {
		meta := tx.Bucket([]byte(format.BucketMeta))
		clean = segment.ClosedCleanly(meta, w.reader.Size())
		if at, ok := segment.ParseTime(tx.Bucket([]byte(format.BucketRecords)).Get(segment.EncodeNumber(s.First))); ok {
			a.opened = at
		}
		end, err := segment.CheckEnd(tx, s, w.reader.Size())
		if err != nil {
			return err
		}
		w.tail = tail{CheckedEnd: end, checkpointedAt: time.Now(), appended: time.Now()}
		if w.tail.journal, err = segment.ParseJournalMark(meta.Get([]byte(format.MetaFormat)), meta.Get([]byte(format.MetaJournal))); err != nil {
			return err
		}
		w.tails = segment.ReadUnsignedTails(tx)
		w.tail.keys, _ = segment.DecodeNumber(meta.Get([]byte(format.MetaKeys)))
		w.tail.doubt, err = w.key.CompareHead(s.Number, w.tail.Edge, meta)
		if err != nil {
			return err
		}
		if w.tail.doubt != "" {
			w.tail.keys = math.MaxUint64
		}
		a.charged = readActiveCharges(tx, s.First, w.tail.Checkpointed, w.reader.Size())
		s.Size = tx.Size()
		w.accounts.recountActive(a.charged, contentBytes(s.Size, w.reader.Size()-s.First))
		return nil
	})
	if err == nil {
		makeReadOnly(all[:len(all)-1])
	}
	return !clean, err
}

// makeReadOnly takes the right to write from sealed segments. verify beside a server takes a segment that can be written to for the
// active one. A rotation sets the mode last, so a crash, or a transaction that only seemed to fail, can come before.
func makeReadOnly(sealed []*segment.File) {
	const write = 0o222
	for _, s := range sealed {
		if info, err := os.Stat(s.Path); err == nil && info.Mode()&write != 0 {
			_ = os.Chmod(s.Path, info.Mode().Perm()&^write) // not needed for safety, as in rotate
		}
	}
}

// checkEdge compares the edge of a segment without a checkpoint with the last checkpoint
// of the segment before it, unless that segment was moved away. Each segment is sealed with a checkpoint.
func (w *writer) checkEdge() error {
	s := w.active
	if w.tail.Note != nil || len(w.reader.SegmentFiles()) < 2 {
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
	err = s.View(func(tx *bbolt.Tx) (err error) { before, err = segment.ReadEdgeBefore(tx, s.First); return err })
	if err != nil {
		return err
	}
	if root, err = before.Root(); err != nil || root != last.Root {
		return errors.Join(fmt.Errorf("%w: the edge of segment %d is not what was signed", record.ErrDamaged, s.Number), err)
	}
	return nil
}

// createLog begins a log. The key's file gets its name last.
func (w *writer) createLog() (err error) {
	var random [8]byte
	_, _ = rand.Read(random[:])
	origin := cmp.Or(w.options.Origin, "policy-service/"+hex.EncodeToString(random[:]))
	if w.key, err = segment.NewKey(origin); err != nil {
		return err
	}
	if err := w.key.WriteNext(w.data); err != nil {
		return err
	}
	first, err := w.prepareSegment(1)
	if err != nil {
		return err
	}
	w.tail = tail{}
	about := map[string]any{"format": format.Version, "origin": w.key.Name(), "key": w.key.Public}
	if err := w.beginSegment(first, format.EventCreated, about, nil); err != nil {
		_ = first.Close() // or its lock would keep this process from opening the log again
		boltfile.DropCache(first.Path)
		return err
	}
	_, err = segment.OpenKey(w.data, w.key.Public)
	return err
}

// settleDoubt ends the doubt about unsigned records. It returns the record that names them, which must be written next, or nil
// if there were none.
func (w *writer) settleDoubt() []*call {
	from, to, cause := w.firstUnsigned(), w.tail.Edge.Size, w.tail.doubt
	w.tail.doubt = ""
	if cause == "" || from >= to {
		return nil
	}
	found := record.UnsignedTail{From: from, To: to - 1, Cause: cause}
	w.tails = append(w.tails, found)
	return []*call{w.ownRecord("", format.EventUnsigned, found)}
}

// firstUnsigned returns the first record that no checkpoint covers. All before the active segment is signed.
func (w *writer) firstUnsigned() uint64 { return max(w.active.First, w.tail.Checkpointed) }

// recordCrash returns the record of a start after a crash. size is the number of records before the journal was replayed.
func (w *writer) recordCrash(size uint64, replayed int) *call {
	c, files := w.options.Checkpoints, int64(len(journal.Paths("")))
	about := map[string]any{
		"size":        size,
		"cut_bytes":   c.Bytes + files*w.options.Journal.Limit(),
		"cut_seconds": int64(c.Every.Seconds()),
	}
	if replayed > 0 {
		about["replayed"] = replayed
	}
	if signed := min(size, w.firstUnsigned()); signed > 0 {
		about["signed"] = signed
	}
	return w.ownRecord("", format.EventCrash, about)
}

// Close writes what waits, signs a last checkpoint and closes the log.
func (l *Log) Close() error {
	w := l.writer
	if !w.queue.close() {
		<-w.life.done
		return nil
	}
	l.index.Stop()
	w.frames.closeToCalls()
	close(w.life.stop)
	<-w.life.done
	return errors.Join(w.closeLog(), l.Reader.Close(), boltfile.Unlock(l.lock))
}

// closeLog ends the log with a clean end. If the log failed, closeLog first tries to open it again.
func (w *writer) closeLog() error {
	if w.failed != nil {
		w.resumeWriting()
	}
	if err := w.unavailable(); err != nil {
		return err
	}
	w.options.On.Step(StepClose)
	w.frames.releaseFlights()
	if err := w.fillUntilIdle(); err != nil { // no call joins any more, and this waits for all that have
		return err
	}
	if err := w.eraseJournal(); err != nil {
		return err
	}
	lost, _ := w.state.takeLost() // dropped when nothing was written any more
	err := w.transact(transaction{calls: w.recordDropped(lost), checkpoint: true, clean: true, journal: &segment.JournalMark{}})
	w.options.On.Step(StepClosed)
	w.closeActive()
	w.frames.refuseCalls(ErrClosed)
	return err
}
