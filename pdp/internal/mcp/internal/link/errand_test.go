package link

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/doors"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/rates"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/pdptest/mcptest"
)

// An errand counts for its person even after its last waiter has left. The errands of one person are bounded, by all clients, and
// block no other person.
func TestErrandsAreBounded(t *testing.T) { synctest.Test(t, testErrandsAreBounded) }

func testErrandsAreBounded(t *testing.T) {
	g := withErrands(t, 2)
	goes := make(chan struct{})
	waits := func(context.Context) (int, error) { <-goes; return 7, nil }
	gone, end := context.WithCancel(t.Context())
	end()
	var all [4]errand[int]
	for n := range 2 {
		if _, _, err := sendOff(gone, g, account("alice"), &all[n], waits); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	another := account("alice")
	another.Key = "another client of alice"
	for _, who := range []*identity.Principal{account("alice"), another} {
		if _, _, err := sendOff(gone, g, who, &all[2], waits); !errors.As(err, new(*answer.Answer)) {
			t.Errorf("one more is %v", err)
		}
	}
	if _, _, err := sendOff(gone, g, account("bob"), &all[3], waits); !errors.Is(err, context.Canceled) {
		t.Errorf("another's is %v", err)
	}
	close(goes)
	synctest.Wait()
	if v, joined, err := sendOff(t.Context(), g, account("alice"), &all[2], waits); v != 7 || joined || err != nil {
		t.Errorf("when they are over it is %d, %v, %v", v, joined, err)
	}
}

// withErrands are servers that do so many errands of one person at a time.
func withErrands(t *testing.T, most int) *Servers {
	limiter, err := rates.New(rates.Options{Rate: rate.Inf, Burst: 1, Holds: map[string]int{Errands: most}})
	mcptest.Must(t, err)
	return New(doors.New(slog.New(slog.DiscardHandler)), Options{Rates: limiter})
}

// account is a principal whose rights last for an hour.
func account(who string) *identity.Principal {
	return &identity.Principal{Person: who, Key: who, Expires: time.Now().Add(time.Hour)}
}

// An errand is done once for all who want it, goes on without them, and leaves its place whatever becomes of it.
func TestErrand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, alice := withErrands(t, 1), account("alice")
		var e, other errand[int]
		gone, leave := context.WithCancel(t.Context())
		leave()
		goes, over := make(chan struct{}), make(chan error, 1)
		_, joined, err := sendOff(gone, g, alice, &e, func(ctx context.Context) (int, error) {
			<-goes
			over <- ctx.Err()
			return 0, nil
		})
		if alone := new(upstream.Error); joined || !errors.As(err, &alone) || !errors.Is(err, context.Canceled) {
			t.Fatalf("who does not wait gets %v, %v", joined, err)
		}
		if _, joined, err = sendOff(gone, g, alice, &e, nil); !joined || !errors.Is(err, context.Canceled) {
			t.Errorf("who joins gets %v, %v", joined, err)
		}
		if _, _, err := sendOff(t.Context(), g, alice, &other, nil); !errors.As(err, new(*answer.Answer)) {
			t.Errorf("beyond the places it is %v", err)
		}
		close(goes)
		if err := <-over; err != nil {
			t.Errorf("without anybody who waits it ends by %v", err)
		}
		synctest.Wait() // its place is free again
		seven := func(context.Context) (int, error) { return 7, nil }
		if v, joined, err := sendOff(t.Context(), g, alice, &other, seven); v != 7 || joined || err != nil {
			t.Errorf("who waits gets %d, %v, %v", v, joined, err)
		}
	})
}

// What panics, or is not done at all, leaves its place and is in nobody's way.
func TestBrokenErrand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, alice := withErrands(t, 1), account("alice")
		var e errand[int]
		breaks := func(context.Context) (int, error) { panic("what a server said") }
		if _, _, err := sendOff(t.Context(), g, alice, &e, breaks); err != ErrBroken {
			t.Errorf("what panics is %v", err)
		}
		synctest.Wait()
		eight := func(context.Context) (int, error) { return 8, nil }
		if v, joined, err := sendOff(t.Context(), g, alice, &e, eight); v != 8 || joined || err != nil {
			t.Errorf("the next is %d, %v, %v", v, joined, err)
		}
		g.doors.Close()
		for range 2 {
			if _, _, err := sendOff(t.Context(), g, alice, &e, eight); err != ErrClosed {
				t.Errorf("when all is over it is %v", err)
			}
		}
	})
}
