package webhook_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/approval/webhook"
)

// TestInFlight has more messages than may be under way, and a receiver that keeps each waiting.
func TestInFlight(t *testing.T) {
	t.Parallel()
	const most = 3
	arrived, let := make(chan struct{}, 100), make(chan struct{})
	i := receives(t, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-let })
	w := sends(t, i.URL, loopback, func(o *webhook.Options) { o.InFlight = most; o.Timeout = time.Minute })
	var all sync.WaitGroup
	send := func(ctx context.Context, n int, want error) {
		if err := w.Send(ctx, "msg_"+strconv.Itoa(n), "e", []byte(body)); !errors.Is(err, want) {
			t.Errorf("message %d: %v", n, err)
		}
	}
	for n := range most {
		all.Go(func() { send(t.Context(), n, nil) })
	}
	for range most {
		await(t, arrived)
	}
	// Without the bound, this is time enough for one more to arrive.
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	send(short, most, context.DeadlineExceeded)
	if got := len(i.deliveries()); got != most {
		t.Errorf("%d are under way", got)
	}
	for n := range 4 {
		all.Go(func() { send(t.Context(), most+1+n, nil) })
	}
	close(let)
	all.Wait()
	if got := len(i.deliveries()); got != most+4 {
		t.Errorf("%d of %d messages arrived", got, most+4)
	}
}

// TestWaiting has one message more than may wait: it is given up, and the others are not.
func TestWaiting(t *testing.T) {
	t.Parallel()
	const most = 3
	arrived, let := make(chan struct{}, 100), make(chan struct{})
	i := receives(t, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-let })
	w := sends(t, i.URL, loopback, func(o *webhook.Options) { o.Waiting = most; o.Timeout = time.Minute })
	var all sync.WaitGroup
	for range most {
		all.Go(func() { w.send(t) })
		await(t, arrived)
	}
	w.send(t)
	if !strings.Contains(w.log.String(), "too many wait already") {
		t.Errorf("log:\n%s", w.log)
	}
	close(let)
	all.Wait()
	w.send(t)
	if got := len(i.deliveries()); got != most+1 {
		t.Errorf("%d messages arrived", got)
	}
}

func await(t testing.TB, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatal("nothing happens")
	}
}

// TestOutOfTime has a message whose hour passes while another is under way.
func TestOutOfTime(t *testing.T) {
	t.Parallel()
	arrived, let, asked := make(chan struct{}, 1), make(chan struct{}), make(chan struct{}, 100)
	i := receives(t, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-let })
	var w world
	w = sends(t, i.URL, loopback, func(o *webhook.Options) {
		o.InFlight, o.Timeout = 1, time.Minute
		o.Now = func() time.Time { defer func() { asked <- struct{}{} }(); return w.Now() }
	})
	var both sync.WaitGroup
	both.Go(func() { w.send(t) })
	await(t, arrived)
	await(t, asked) // when it came
	await(t, asked) // when it was signed
	both.Go(func() { w.send(t) })
	await(t, asked)
	_ = w.Wait(t.Context(), 2*time.Hour)
	close(let)
	both.Wait()
	if got := len(i.deliveries()); got != 1 || !strings.Contains(w.log.String(), "its time was up") {
		t.Errorf("%d requests; log:\n%s", got, w.log)
	}
}

// TestSeveralReceivers has one that answers when the others have what they are sent, one that fails, and one that is gone.
func TestSeveralReceivers(t *testing.T) {
	t.Parallel()
	had := make(chan struct{})
	good := receives(t, func(http.ResponseWriter, *http.Request) { close(had) })
	slow := receives(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-had:
		case <-r.Context().Done():
		}
	})
	bad, gone := receives(t, answers(500), answers(500), answers(200)), receives(t, answers(410))
	o, _, log := options(t)
	var configs []webhook.Config
	for _, i := range []*inbox{slow, bad, gone, good} {
		configs = append(configs, webhook.Config{URL: i.URL + path, SecretFile: secretFile(t, secret), Allow: loopback})
	}
	s, err := webhook.New(configs, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(t.Context(), "msg_1", "e", []byte(body)); err != nil {
		t.Error(err)
	}
	for n, i := range []*inbox{slow, bad, gone, good} {
		if got, want := len(i.deliveries()), []int{1, 3, 1, 1}[n]; got != want {
			t.Errorf("receiver %d had %d requests, not %d; log:\n%s", n, got, want, log)
		}
	}
}

// TestStop ends the context in each place where a message waits.
func TestStop(t *testing.T) {
	t.Parallel()
	t.Run("before", func(t *testing.T) {
		i := receives(t, answers(200))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := sends(t, i.URL, loopback).Send(ctx, "msg_1", "e", nil); !errors.Is(err, context.Canceled) || len(i.deliveries()) != 0 {
			t.Errorf("%v after %d requests", err, len(i.deliveries()))
		}
	})
	t.Run("between attempts", func(t *testing.T) {
		i := receives(t, answers(503))
		ctx, cancel := context.WithCancel(t.Context())
		w := sends(t, i.URL, loopback, func(o *webhook.Options) {
			o.Wait = nil // the real one, of an hour
			o.Backoff = webhook.Backoff{First: time.Hour, Most: time.Hour, Within: 9 * time.Hour, Tries: 9}
			o.Jitter = func() float64 { cancel(); return 0.5 }
		})
		if err := w.Send(ctx, "msg_1", "e", nil); !errors.Is(err, context.Canceled) || len(i.deliveries()) != 1 {
			t.Errorf("%v after %d requests", err, len(i.deliveries()))
		}
	})
	t.Run("during one", func(t *testing.T) {
		arrived := make(chan struct{}, 1)
		i := receives(t, func(_ http.ResponseWriter, r *http.Request) { arrived <- struct{}{}; <-r.Context().Done() })
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-arrived; cancel() }()
		w := sends(t, i.URL, loopback, func(o *webhook.Options) { o.Timeout = time.Minute })
		if err := w.Send(ctx, "msg_1", "e", nil); !errors.Is(err, context.Canceled) || w.log.String() != "" {
			t.Errorf("%v; log:\n%s", err, w.log)
		}
	})
}

func TestIDs(t *testing.T) {
	t.Parallel()
	i := receives(t, answers(200))
	w := sends(t, i.URL, loopback)
	for _, id := range []string{"", "a.b", "a b", "a\r\nB: c", "é", string(make([]byte, 129))} {
		if err := w.Send(t.Context(), id, "e", nil); err == nil {
			t.Errorf("%q is taken for an id", id)
		}
	}
	if got := len(i.deliveries()); got != 0 {
		t.Errorf("%d requests", got)
	}
}
