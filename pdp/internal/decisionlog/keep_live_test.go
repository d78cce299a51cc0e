package decisionlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"sync"
	"testing"
	"time"
)

// Beside a server an export ends with the last sealed segment, and says so.
func TestExportBesideAServer(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	k.append("a-1", "a-2")
	k.ok(k.log.Redact(t.Context(), "", "a-2", "on request"))
	k.append("a-3")
	var b bytes.Buffer
	var done Exported
	k.ok(segment.Read(k.data, func(s *segment.Snapshot) (err error) {
		done, err = WriteExport(t.Context(), s, &b, ExportOptions{})
		k.ok(err)
		if err := WriteProof(t.Context(), s, io.Discard, "a-3"); err == nil {
			t.Error("a record of the active segment was proved")
		}
		return nil
	}))
	if !done.Live || done.Size != 5 || done.Redacted != 1 || done.Uncovered != 0 {
		t.Errorf("%+v", done)
	}
	k.ok(JudgeExport(b.Bytes()))
	k.ok(JudgeDirectory(k.data))
	if err := Redact(t.Context(), k.data, "a-1", "on request", Options{LockTimeout: time.Millisecond}); err == nil {
		t.Error("redacted beside a server")
	}
}

// Content goes also from a segment that was sealed a moment ago, and that the writer
// has not come to closing yet.
func TestRemovalFromWhatIsStillOpen(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	k.append("a-1", "a-2")
	k.ok(k.log.writer.runHeld(t.Context(), func() error { // as rotate does, all but its end
		next, err := k.log.writer.prepareSegment(2)
		k.ok(err)
		return k.log.writer.sealActive(next)
	}))
	k.ok(k.log.Redact(t.Context(), "", "a-2", "on request"))
	k.gone[2] = format.WhyRedacted // after log_created
	k.check()
}

// While content goes, what is asked of the log goes on, and the writer is kept no
// longer than it may be.
func TestRemovalsKeepNobodyWaiting(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	for i := range 3 {
		k.append(fmt.Sprintf("a-%d", i), fmt.Sprintf("b-%d", i))
		k.ok(k.log.Rotate(t.Context()))
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 50 {
				if err := k.log.Append(t.Context(), []record.Entry{entryOf(fmt.Sprintf("w-%d-%d", w, i), true)}); err != nil {
					t.Error(err)
				}
				// Its segment may be retired by then.
				if _, err := k.log.ByID(fmt.Sprintf("w-%d-0", w)); err != nil && !errors.Is(err, segment.ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}
	k.ok(k.log.Redact(t.Context(), "", "b-2", "on request"))
	_, err := k.log.Retain(t.Context(), Retention{Bytes: 1}, time.Now())
	wg.Wait()
	k.ok(err)
	for record, err := range k.log.Records(t.Context(), 0, k.log.Size()) {
		k.ok(err)
		if record.Line == nil {
			k.gone[int64(record.Sequence)] = format.WhyRetired
		}
	}
	k.check()
	if k.gone[0] != format.WhyRetired || k.holds("content-of-b-2") != nil {
		t.Error("it was not retired")
	}
}
