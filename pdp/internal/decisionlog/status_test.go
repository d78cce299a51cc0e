package decisionlog

import (
	"bytes"
	"fmt"
	"policy-service/pdp/internal/decisionlog/record"
	"sync/atomic"
	"testing"
	"time"
)

// TestLossesMeanwhile: what is dropped while a record about others is being written
// keeps its own dates, whether that record can be written or not.
func TestLossesMeanwhile(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
	var s state
	none, _ := s.takeLost()
	s.countDropped(2, at(5))
	if one, _ := s.takeLost(); none != (loss{}) || one != (loss{2, at(5), at(5)}) {
		t.Errorf("after a record of nothing: %v %v", none, one)
	}
	s.countDropped(1, at(1))
	s.countDropped(1, at(3))
	lost, _ := s.takeLost()
	s.countDropped(3, at(2)) // it waited in the queue the longer
	s.countDropped(1, at(7))
	s.giveBackLost(lost)
	if all, _ := s.takeLost(); all != (loss{6, at(1), at(7)}) {
		t.Errorf("with what could not be recorded: %v", all)
	}
	s.giveBackLost(loss{})
	if all, _ := s.takeLost(); all != (loss{}) || s.current().Dropped != 8 {
		t.Errorf("%v, %d dropped", all, s.current().Dropped)
	}
}

// TestDroppedLast: what is dropped after the last of what is written is on record too.
func TestDroppedLast(t *testing.T) {
	t.Parallel()
	data := memory(t)
	l := mustOpen(t, data, Options{Mode: BestEffort})
	l.writer.state.countDropped(3, l.writer.options.Now())
	must(t, l.Close())
	lines := verify(t, data)
	if last := lines[len(lines)-1]; !bytes.Contains(last, []byte(`"dropped":3,"dropped_first":"20`)) {
		t.Errorf("the last record is %s", last)
	}
}

// TestSizeCountsEachRecordOnce: what was answered counts, whether the journal has it or the segment.
func TestSizeCountsEachRecordOnce(t *testing.T) {
	t.Parallel()
	var filled atomic.Int64
	l := mustOpen(t, memory(t), Options{On: Hooks{Fill: func(time.Duration) { filled.Add(1) }}})
	base, fills := l.Status().Size, filled.Load()
	var asked, answered atomic.Uint64
	done := make(chan error, 1)
	go func() {
		var err error
		for n := 0; err == nil && (n < 300 || filled.Load() == fills); n++ {
			asked.Add(1)
			err = l.Append(t.Context(), []record.Entry{entry(fmt.Sprint("id", n))})
			answered.Add(1)
			l.writer.frames.wakeWriter() // so that much is filled meanwhile
		}
		done <- err
	}()
	for ended := false; !ended; {
		select {
		case err := <-done:
			if ended = true; err != nil {
				t.Error(err)
			}
		default:
		}
		least := base + answered.Load()
		if s := l.Status(); s.Size < least || s.Size > base+asked.Load() || s.Unfilled > int(s.Size-base) || s.Behind < 0 {
			t.Fatalf("%d records, of which %d are not filled, for %d since %v", s.Size-base, s.Unfilled, s.Behind, least-base)
		}
	}
	if err := l.waitUntilFilled(t.Context()); err != nil {
		t.Error(err)
	}
	if s := l.Status(); s.Unfilled != 0 || s.Behind != 0 || s.Size != base+answered.Load() || s.Size != l.Size() {
		t.Errorf("all is filled, and the status is %+v", s)
	}
}
