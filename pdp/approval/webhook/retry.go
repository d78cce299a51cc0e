package webhook

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// Backoff is when attempts are made. The pause after the first attempt is about First. It doubles each time, up to
// about Most, which is also the longest pause that a receiver can ask for. There are at most Tries attempts, and none
// later than Within after the message came.
type Backoff struct {
	First, Most, Within time.Duration
	Tries               int
}

// deliver sends a message to one receiver until the receiver has it or is given up. The error is that of ctx.
func (s *Sender) deliver(ctx context.Context, r *receiver, m message) error {
	log := s.o.Logger.With("receiver", r.name, "event", m.event, "id", m.id)
	for n := 1; ; n++ {
		o := s.try(ctx, r, m)
		if o.kind == stopped {
			return ctx.Err()
		}
		r.report(log, o)
		if o.kind != later {
			return nil
		}
		pause := s.pause(n, o)
		if n >= s.o.Backoff.Tries || s.o.Now().Add(pause).After(m.end) {
			log.Error("a webhook is given up: its receiver took it neither at once nor later", "attempts", n, "why", o.why)
			return nil
		}
		if err := s.o.Wait(ctx, pause); err != nil {
			return err
		}
	}
}

// try waits for a slot of the receiver and makes one attempt.
func (s *Sender) try(ctx context.Context, r *receiver, m message) outcome {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return outcome{kind: stopped}
	}
	now := s.o.Now()
	switch {
	case ctx.Err() != nil:
		return outcome{kind: stopped}
	case now.After(m.end):
		return outcome{kind: never, why: "its time was up before its turn came"}
	}
	attempt, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	answer, err := r.post(attempt, m, now)
	switch {
	case err != nil && ctx.Err() != nil:
		return outcome{kind: stopped}
	case err != nil:
		return outcome{kind: later, why: reason(err)}
	}
	return judge(answer, s.o.Now())
}

// pause is how long to wait after attempt n, counted from 1.
func (s *Sender) pause(n int, o outcome) time.Duration {
	b := s.o.Backoff
	base := min(b.First<<min(n-1, 20), b.Most) // bounded so that no number of attempts overflows
	pause := time.Duration((0.5 + s.o.Jitter()) * float64(base))
	return max(pause, min(o.after, b.Most))
}

// outcome is the result of one attempt.
type outcome struct {
	kind  kind
	why   string
	after time.Duration // how long the receiver asks us to wait
}

type kind int

const (
	later   kind = iota // another attempt may succeed
	never               // no attempt will succeed
	gone                // the same, and the receiver wants no more messages
	taken               // the receiver has the message
	stopped             // ctx has ended
)

// judge reads the outcome from an answer. After a redirect no attempt is made, because only the operator can change the
// URL.
func judge(answer *http.Response, now time.Time) outcome {
	o := outcome{why: "it answers " + strconv.Itoa(answer.StatusCode)}
	switch status := answer.StatusCode; {
	case status >= 200 && status < 300:
		o.kind = taken
	case status == http.StatusGone:
		o.kind = gone
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		o.kind, o.after = later, retryAfter(answer.Header.Get("Retry-After"), now)
	case status >= 300 && status < 400:
		o.kind, o.why = never, o.why+", and redirects are not followed; give the URL that it redirects to"
	default:
		o.kind = never
	}
	return o
}

// retryAfter reads a number of seconds, or a date. Without either it is 0.
func retryAfter(text string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(at.Sub(now), 0)
}

// report logs changes. That a receiver is down, or wants no messages, is logged once, and not for every message. That a
// message is given up is logged for each.
func (r *receiver) report(log *slog.Logger, o outcome) {
	switch o.kind {
	case taken:
		r.gone.Store(false)
		if r.failing.CompareAndSwap(true, false) {
			log.Info("a receiver of webhooks takes them again")
		}
	case later:
		if r.failing.CompareAndSwap(false, true) {
			log.Warn("a receiver of webhooks does not take them; they are sent again", "why", o.why)
		}
	case never:
		log.Error("a webhook is given up", "why", o.why)
	case gone:
		if r.gone.CompareAndSwap(false, true) {
			log.Error("a receiver of webhooks wants none any more (410); each is given up until it takes one")
		}
	}
}

// Once makes one attempt at every receiver. It is an error unless each of them takes the message: for a caller that has to
// know at once.
func (s *Sender) Once(ctx context.Context, id string, body []byte) error {
	if !isID(id) {
		return errID
	}
	m := message{id: id, body: body, end: s.o.Now().Add(s.o.Timeout)}
	var all errgroup.Group
	for _, r := range s.receivers {
		all.Go(func() error {
			o := s.try(ctx, r, m)
			r.report(s.o.Logger, o)
			switch o.kind {
			case taken:
				return nil
			case stopped:
				return ctx.Err()
			}
			return errors.New("webhook: the receiver did not take the message: " + o.why)
		})
	}
	return all.Wait()
}
