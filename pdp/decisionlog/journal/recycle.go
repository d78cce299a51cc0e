package journal

import (
	"crypto/rand"
	"fmt"
)

// Recycle begins the other file again if all of its frames are filled, so that Write need not do so. It makes the file
// longer first, up to twice its size, if the disk has the space. A Write that wants the file meanwhile waits for
// little. Whoever fills the log calls Recycle after Filled; if there is nothing to do, it costs next to nothing.
func (j *Journal) Recycle() error {
	j.other.Lock()
	defer j.other.Unlock()
	s := j.now()
	if s.err != nil {
		return s.err
	}
	which := 1 - j.current
	f := j.files[which]
	want := j.want.Load()
	if f.last > s.filled || f.begun && f.header.size >= want {
		return nil
	}
	j.want.CompareAndSwap(want, 0)
	to := want
	if !f.begun {
		to = max(want, 2*f.header.size)
	}
	size := j.grow(f, min(to, j.options.Size))
	if f.begun && size == f.header.size {
		return nil
	}
	if err := j.begin(which, size); err != nil {
		return j.fail(err)
	}
	return nil
}

// share is how large a file may be: a sixteenth of what is free on the disk, and never more than the options say.
func (j *Journal) share() int64 {
	free, known := freeSpace(j.dir)
	if !known {
		return j.options.Size
	}
	return min(j.options.Size, free/16/block*block)
}

// growsBy is how much of a file is written and synced at once when it is made longer: little, so that a frame does not
// wait long for the file, or for the disk.
const growsBy = 1 << 20

// grow makes a file longer that has no pending frames, and returns its size. If that fails, the file stays as it is. If a
// frame wants the file, it grows no further.
func (j *Journal) grow(f *file, to int64) int64 {
	size := f.header.size
	to = (min(to, j.share()) + block - 1) / block * block
	reached := size
	for reached < to && !j.hurry.Load() {
		j.options.Step(StepGrow)
		next := min(to, reached+growsBy)
		err := writeZeros(f, reached, next, func() {})
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			_ = f.Truncate(size) // the disk needs the space; the header says no other size
			return size
		}
		reached = next
	}
	if reached > size {
		j.options.Step(StepGrown)
	}
	return reached
}

// begin begins a new round of a file that has no pending frames. The file has this size.
func (j *Journal) begin(which int, size int64) error {
	f := j.files[which]
	j.mu.Lock()
	j.state.round++
	s := j.state
	j.mu.Unlock()
	h := header{which: uint32(which), id: j.id, round: s.round, frames: s.last, records: s.records, size: size}
	_, _ = rand.Read(h.mark[:]) // which never fails
	b := h.encode()
	f.begun = false
	for i := range int64(copies) {
		j.options.Step(StepBegin)
		if err := writeAt(f, b, i*block); err != nil {
			return err
		}
		j.options.Step(StepBegunWritten)
		if err := f.Sync(); err != nil {
			return err
		}
		j.options.Step(StepBegun)
	}
	f.header, f.seed, f.at, f.last, f.begun = h, h.seed(), framesAt, 0, true
	f.clean, f.dirty = framesAt, max(f.dirty, framesAt)
	return nil
}

// Erase overwrites all frames in both files with zeros. All of them must be filled. Then no file has a byte of a record,
// and the journal can be written to as before.
func (j *Journal) Erase() error {
	j.frames.Lock()
	defer j.frames.Unlock()
	j.other.Lock()
	defer j.other.Unlock()
	s := j.now()
	if s.err != nil {
		return s.err
	}
	if s.filled != s.last {
		return fmt.Errorf("%w: %d frames", ErrPending, s.last-s.filled)
	}
	for i, f := range j.files {
		if f.clean == f.dirty {
			continue
		}
		err := writeZeros(f, f.clean, f.dirty, func() { j.options.Step(StepErase) })
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			return j.fail(err)
		}
		f.clean, f.dirty = framesAt, framesAt
		if i == j.current {
			f.clean, f.dirty = f.at, f.at
		}
	}
	j.options.Step(StepErased)
	return nil
}
