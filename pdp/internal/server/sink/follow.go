package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server/telemetry"
)

// sink hands the records of the decision log on. It follows the log, so its records are durable, and
// no decision waits for it: its queue is the log itself. If more than queue records wait, the sink
// leaves the oldest of them out.
type sink struct {
	name  string
	queue uint64
	send  Send
	from  *decisionlog.Log
	log   *slog.Logger

	handedOn, dropped metric.Int64Counter
	attributes        metric.MeasurementOption

	mu      sync.Mutex
	waiting uint64             // the first record that waits, unless the log ends there
	sending uint64             // the first record that is being sent
	upTo    uint64             // the first record after those that are being sent
	sent    record.Inheritance // of the records that were sent; only the goroutine of run uses it
	trouble trouble
}

// trouble is what the operator knows of a sink that does not hand everything on.
type trouble struct {
	unknown uint64           // records left out that are not logged yet
	dropped telemetry.Seldom // of records left out
	failed  telemetry.Seldom // of attempts
}

const (
	// At most so much is handed on together, so that a receiver that bounds its requests takes it.
	sinkRecords = 512
	sinkBytes   = 4 << 20
	// sinkAttempt is how long an attempt may take. Then the operator hears that it does not end,
	// and it begins anew.
	sinkAttempt = time.Minute
	// sinkAgain is how long after a failed attempt the next one begins. Each further failure
	// doubles it, up to sinkAgainMost.
	sinkAgain     = 250 * time.Millisecond
	sinkAgainMost = 30 * time.Second
)

// run hands on the records from the first that waits. When stopping ends it goes on to the end of
// the log, and no longer than ctx.
func (s *sink) run(ctx, stopping context.Context) {
	var trimming sync.WaitGroup
	defer trimming.Wait()
	trimming.Go(func() { s.trim(stopping) })
	for ctx.Err() == nil && s.from.Beyond(stopping, s.position()) == nil {
		s.take()
		s.deliver(ctx, stopping)
	}
}

func (s *sink) position() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// trim keeps the queue within its bound while an attempt takes long.
func (s *sink) trim(ctx context.Context) {
	for s.from.Beyond(ctx, s.position()+s.queue) == nil {
		s.mu.Lock()
		var late uint64
		if end := s.from.Size(); end > s.waiting+s.queue {
			late = end - s.queue - s.waiting
			s.waiting += late
		}
		s.mu.Unlock()
		s.drop(late, "too many wait")
	}
}

// take chooses the records to send next: all that wait, but at most sinkRecords of them.
func (s *sink) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending, s.upTo = s.waiting, min(s.from.Size(), s.waiting+sinkRecords)
	s.waiting = s.upTo
}

// deliver sends what was taken, and tries again until that is done.
func (s *sink) deliver(ctx, stopping context.Context) {
	again, hurry := sinkAgain, stopping.Done()
	for s.sending < s.upTo {
		next, err := s.attempt(ctx)
		if err == nil {
			s.mu.Lock()
			s.sending = next
			s.mu.Unlock()
			again = sinkAgain
			continue
		}
		if ctx.Err() != nil {
			return
		}
		s.tried(err)
		timer := time.NewTimer(again)
		again = min(2*again, sinkAgainMost)
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-hurry: // there is little time left, and the receiver may be back
			hurry, again = nil, sinkAgain
		}
		timer.Stop()
	}
}

// attempt sends once, and returns the first record that was not sent with it.
func (s *sink) attempt(ctx context.Context) (next uint64, err error) {
	records, next, sent, err := s.read(ctx)
	if err != nil || len(records) == 0 {
		return next, err
	}
	ctx, cancel := context.WithTimeout(ctx, sinkAttempt)
	defer cancel()
	err = s.send(ctx, records)
	taken := 0
	for _, r := range records {
		if r.Sequence >= s.sending { // else it was left out and counted; see lacks
			taken++
		}
	}
	if refused := (*telemetry.Refusal)(nil); errors.As(err, &refused) {
		lost := min(refused.Records, taken)
		taken -= lost
		s.drop(uint64(lost), refused.Why)
	} else if err != nil {
		return next, err
	}
	s.sent = sent
	s.handedOn.Add(ctx, int64(taken), s.attributes)
	if taken > 0 {
		s.tried(nil)
	}
	return next, nil
}

// read reads the records to send in one request: at most sinkBytes of them, but at least one. It passes over those
// whose content is gone. An item of a batch leaves out what its batch's record has, so that record goes before the
// item, even if drop was called for that record before. next is the first record after them, and sent says which
// batch's record the receiver has once it has them. They are read anew for every attempt: a record that is redacted
// while a receiver is away must not wait for it here. An error after the first record is left to the next attempt.
func (s *sink) read(ctx context.Context) (records []record.Record, next uint64, sent record.Inheritance, err error) {
	size, next, sent := 0, s.sending, s.sent
	for r, err := range s.from.Records(ctx, s.sending, s.upTo) {
		with := sent
		var batch record.Record
		if err == nil && r.Line != nil {
			batch, err = s.lacks(&with, r.Line)
		}
		size += len(batch.Line) + len(r.Line)
		switch {
		case err != nil && len(records) == 0:
			return nil, next, sent, fmt.Errorf("the decision log cannot be read: %w", err)
		case err != nil, size > sinkBytes && len(records) > 0:
			return records, next, sent, nil
		}
		for _, one := range []record.Record{batch, r} {
			if one.Line != nil {
				records = append(records, one)
			}
		}
		sent = with
		next++
	}
	return records, next, sent, nil
}

// lacks is the record of a batch that is to be sent before a record, if the receiver lacks it, and notes it in sent.
func (s *sink) lacks(sent *record.Inheritance, line []byte) (record.Record, error) {
	id, err := sent.MissingBatch(line)
	if err != nil || id == "" {
		return record.Record{}, err
	}
	return s.from.Batch(line)
}

// drop counts records that are not handed on, and logs them now and then.
func (s *sink) drop(n uint64, why string) {
	if n == 0 {
		return
	}
	s.dropped.Add(context.Background(), int64(n), s.attributes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble.unknown += n
	if s.trouble.dropped.Now() {
		s.logDropped(why)
	}
}

// logDropped is called with the lock held.
func (s *sink) logDropped(why string) {
	s.log.Warn("a sink left records out; the decision log has them", "sink", s.name, "records", s.trouble.unknown, "why", why)
	s.trouble.unknown = 0
}

// tried logs the outcome of attempts, now and then.
func (s *sink) tried(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.trouble.failed.Tells(err):
	case err == nil:
		s.log.Info("a sink takes records again", "sink", s.name)
	default:
		s.log.Warn("a sink does not take records; it is tried again, and the decision log has them", "sink", s.name, "error", err)
	}
}

// ended counts and logs what was not handed on before the end.
func (s *sink) ended() {
	s.mu.Lock()
	left := s.upTo - s.sending + s.from.Size() - s.waiting
	s.trouble.dropped = telemetry.Seldom{} // it is the last time
	s.mu.Unlock()
	s.drop(left, "the server stopped")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble.unknown > 0 {
		s.logDropped("the server stopped")
	}
}
