package link

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/doors"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rates"
	"policy-service/pdp/mcp/internal/turn"
)

// An errand counts for its principal even after its last waiter has left. The errands of one principal are bounded, and block
// no other principal.
func TestErrandsAreBounded(t *testing.T) { synctest.Test(t, testErrandsAreBounded) }

func testErrandsAreBounded(t *testing.T) {
	limiter, err := rates.New(rates.Options{Rate: rate.Inf, Burst: 1, Holds: map[string]int{Errands: 2}})
	if err != nil {
		t.Fatal(err)
	}
	g := New(doors.New(slog.New(slog.DiscardHandler)), Options{Rates: limiter})
	goes := make(chan struct{})
	waits := func(context.Context) (int, error) { <-goes; return 7, nil }
	of := func(who string) *identity.Principal {
		return &identity.Principal{Key: who, Expires: time.Now().Add(time.Hour)}
	}
	gone, end := context.WithCancel(t.Context())
	end()
	var all [4]turn.Errand[int]
	for n := range 2 {
		if _, _, err := sendOff(gone, g, of("alice"), &all[n], waits); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if _, _, err := sendOff(gone, g, of("alice"), &all[2], waits); !errors.As(err, new(*answer.Answer)) {
		t.Errorf("one more is %v", err)
	}
	if _, _, err := sendOff(gone, g, of("bob"), &all[3], waits); !errors.Is(err, context.Canceled) {
		t.Errorf("another's is %v", err)
	}
	close(goes)
	synctest.Wait()
	if v, joined, err := sendOff(t.Context(), g, of("alice"), &all[2], waits); v != 7 || joined || err != nil {
		t.Errorf("when they are over it is %d, %v, %v", v, joined, err)
	}
}
