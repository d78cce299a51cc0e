package decisionlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/segment"
)

// replay fills the active segment with what a journal has that the segment has not: what was answered, and a moment
// before a crash. It returns how many records that were.
func (w *writer) replay() (records int, err error) {
	on := w.tail.journal
	switch {
	case on == (segment.Journaled{}):
		return 0, nil
	case on.Aside != 0:
		return 0, w.setAside()
	}
	w.options.On.Step(StepReplay)
	read, err := journal.Read(w.journalDir(), on.ID, on.Number, &w.key.Frames)
	if err != nil {
		return 0, unreadable(err)
	}
	w.frames.recovered(pending(read))
	if err := w.fillAll(nil, false); err != nil {
		return 0, err
	}
	if err := w.transact(order{journal: &segment.Journaled{}}); err != nil {
		return 0, err
	}
	w.options.On.Step(StepReplayed)
	return int(journal.Records(read)), nil
}

// unreadable is the error of a journal that cannot be read. If records are lost, it is [ErrLost].
func unreadable(err error) error {
	if damage := (*journal.Damage)(nil); errors.As(err, &damage) {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// pending are the frames that were read of a journal.
func pending(read []journal.Frame) (some []*frame) {
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

// Loss is what a damaged journal had lost, as it stands on record.
type Loss struct {
	File   string `json:"file"` // where the damage begins
	Offset int64  `json:"offset"`
	Reason string `json:"reason"`
	// Frames are the numbers of those that cannot be read, from the first to the second of each pair. There may be more.
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

// acceptLoss is replay of a journal that is damaged. What could be read, the record of the loss and the order to move the
// files aside are one transaction: a crash leaves all of them to be done, or the files alone.
func (w *writer) acceptLoss() (Loss, error) {
	on := w.tail.journal
	if on == (segment.Journaled{}) || on.Aside != 0 {
		return Loss{}, ErrNoLoss
	}
	read, err := journal.Read(w.journalDir(), on.ID, on.Number, &w.key.Frames)
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
	some := pending(read)
	w.frames.recovered(some)
	if err := w.transact(order{frames: some, calls: []*call{w.own("", format.EventLoss, loss)}, checkpoint: true, journal: &on}); err != nil {
		return loss, err
	}
	return loss, w.setAside()
}

// setAside moves the files of a journal aside whose loss is on record.
func (w *writer) setAside() error {
	if _, err := journal.MoveAside(w.journalDir(), time.Unix(0, w.tail.journal.Aside)); err != nil {
		return err
	}
	return w.transact(order{journal: &segment.Journaled{}})
}

// fillAgain is fillAll after writing failed. The segment may have some of the frames: it says up to which one.
func (w *writer) fillAgain() error {
	if on := w.tail.journal; on != (segment.Journaled{}) {
		had := w.frames.upTo(on.Number)
		for _, one := range had {
			for _, c := range one.calls {
				w.accounts.giveBack(c) // what the segment has was counted when it was opened
			}
		}
		w.frames.filled(had, func() {})
	}
	return w.fillAll(nil, false)
}

// startJournal makes a journal, and names it in the active segment, together with what o says, before anything is
// written to it. What any other had is filled by then, and no other counts.
func (w *writer) startJournal(o order) error {
	options := w.options.Journal
	options.Key = w.key.Frames
	j, err := journal.Create(w.journalDir(), options)
	if err != nil {
		return err
	}
	o.journal = &segment.Journaled{ID: j.ID()}
	if err := w.transact(o); err != nil {
		_ = j.Close()
		return err
	}
	w.frames.resume(j)
	return nil
}

// eraseJournal overwrites all of the journal. It is an order: all is filled then, and nothing is written meanwhile.
func (w *writer) eraseJournal() error {
	if err := w.frames.erase(); err != nil {
		return w.fail(fmt.Errorf("the journal: %w", err))
	}
	return nil
}

func (w *writer) journalDir() string { return filepath.Join(w.data, format.LogDir) }
