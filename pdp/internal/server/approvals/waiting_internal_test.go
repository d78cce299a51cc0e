package approvals

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/keyedmutex"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// However many one caller has wait, there is room for others, and after all that there
// is room again.
func TestRoomToWait(t *testing.T) {
	w := newWaiting(time.Second)
	places := func(caller string) (n int, limit string) {
		for limit = w.place(caller); limit == ""; limit = w.place(caller) {
			n++
		}
		return n, limit
	}
	for _, caller := range []string{"key:a", "key:b", "key:c", "key:d"} {
		if n, limit := places(caller); n != MostWaiting/4 || limit != "waiting_share" {
			t.Errorf("%d of %s wait, and then there is %s", n, caller, limit)
		}
	}
	if n, limit := places("key:e"); n != 0 || limit != "waiting" {
		t.Errorf("%d of one too many wait, and then there is %s", n, limit)
	}
	w.leave("key:a")
	if limit := w.place("key:e"); limit != "" {
		t.Error("who left is still counted")
	}
	for range WaitingOfOne - 1 {
		w.leave("key:a")
	}
	if _, known := w.of["key:a"]; known {
		t.Error("who does not wait is remembered")
	}
}

// A caller makes one page at a time, and lets others between whenever it has had its time.
func TestACallerMakesOnePageAtATime(t *testing.T) {
	w := newWaiting(time.Minute)
	take := func(ctx context.Context, caller string) *turn {
		t.Helper()
		one, err := w.turn(ctx, caller)
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	first := take(t.Context(), "key:a")
	over, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := w.turn(over, "key:a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a second page of one caller: %v", err)
	}
	second := take(t.Context(), "key:b") // the other place
	order := make(chan string, 3)
	var others sync.WaitGroup
	for _, caller := range []string{"key:c", "key:a", "key:a"} {
		others.Go(func() {
			one, err := w.turn(t.Context(), caller)
			if err != nil {
				t.Error(err)
			}
			order <- caller
			one.done()
		})
	}
	waits := func(n int) {
		t.Helper()
		for {
			now := 0
			for _, waiting := range w.pages.Waiting() {
				now += waiting
			}
			if now == n {
				return
			}
			runtime.Gosched()
		}
	}
	waits(1) // c, as a's own wait for a
	first.Since = time.Now().Add(time.Hour)
	if err := first.GoOn(t.Context()); err != nil || len(order) != 0 {
		t.Errorf("before its time is up: %v, and %d came", err, len(order))
	}
	first.Since = time.Now().Add(-door.ShiftTime)
	if err := first.GoOn(t.Context()); err != nil {
		t.Error(err)
	}
	if got := <-order; got != "key:c" {
		t.Errorf("%s comes first", got)
	}
	inside, leave, left := make(chan bool), make(chan bool), make(chan bool)
	go func() {
		defer close(left)
		one, err := w.turn(t.Context(), "key:d")
		if err != nil {
			t.Error(err)
			return
		}
		close(inside)
		<-leave
		one.done()
	}()
	waits(1)
	ended, end := context.WithCancel(t.Context())
	end()
	first.Since = time.Now().Add(-door.ShiftTime)
	if err := first.GoOn(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("without time it goes on: %v", err)
	}
	<-inside // where first was
	close(leave)
	<-left
	first.done()
	second.done()
	for range 2 {
		if got := <-order; got != "key:a" {
			t.Errorf("then comes %s", got)
		}
	}
	others.Wait()
	if w.pages.Inside() > 0 {
		t.Error("a place is not given back")
	}
}

// While a caller makes a page, 250 more requests of it wait for their turn. One more is refused at once.
func TestWaitingForATurnIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting(time.Minute)
		first, err := w.turn(t.Context(), "key:a")
		if err != nil {
			t.Fatal(err)
		}
		took := 0 // guarded by the turn
		for range 250 {
			go func() {
				one, err := w.turn(t.Context(), "key:a")
				if err != nil {
					t.Error(err)
					return
				}
				took++
				one.done()
			}()
		}
		synctest.Wait()
		over, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.turn(over, "key:a"); !errors.Is(err, keyedmutex.ErrFull) {
			t.Errorf("one more than may wait: %v", err)
		}
		first.done()
		synctest.Wait()
		if took != 250 {
			t.Errorf("%d had their turn", took)
		}
	})
}

// known authenticates every request as one caller.
type known auth.Caller

func (k known) Authenticate(*http.Request) (auth.Caller, error) { return auth.Caller(k), nil }

// A look that panics is an error to all who wait, and not the end of the service. Its value may quote a request, so the
// log has the type alone.
func TestALookThatPanics(t *testing.T) {
	store, err := approval.Open(t.TempDir(), approval.Options{
		Key:      make([]byte, 32),
		Record:   func(context.Context, approval.Step) error { return nil },
		Recorded: func(string) (bool, error) { return false, nil },
		Withdraw: func(context.Context, approval.Withdrawal) error { return nil },
		Attest:   func(context.Context, string) (s approval.Step, found bool, err error) { return },
		Steps:    func(context.Context, uint64, map[string]bool) (map[string][]approval.Step, error) { return nil, nil },
		Size:     func() uint64 { return 0 },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	var log bytes.Buffer
	caller := auth.Caller{Name: "key:a"}
	a := New(Options{
		Door: door.New(door.Options{
			Load:       door.LoadConfig{RequestTime: time.Minute},
			Log:        slog.New(slog.NewTextHandler(&log, nil)),
			LogContext: (*http.Request).Context,
			Callers:    func(context.Context) door.Authenticator { return known(caller) },
		}),
		Broker: &broker.Broker{Store: store},
	})
	c := echo.New().NewContext(httptest.NewRequest("GET", "/v1/approvals?wait=30s", nil), httptest.NewRecorder())
	err = a.longPoll(c, caller, question{
		wait: time.Minute,
		look: func(context.Context) answer { panic("hunter2") },
	})
	if err == nil || err.Error() != "panic: string" {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(log.String(), "msg=panic cause=string ") || strings.Contains(log.String(), "hunter2") {
		t.Errorf("the log has %s", log.String())
	}
}
