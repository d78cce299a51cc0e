package turn_test

import (
	"context"
	"errors"
	"testing"

	"policy-service/pdp/mcp/internal/turn"
)

// places are how many errands of a sender may be under way.
type places chan struct{}

func (p places) sender(over bool) turn.Sender {
	return turn.Sender{
		Hold: func() (func(), bool) {
			select {
			case p <- struct{}{}:
				return func() { <-p }, true
			default:
				return nil, false
			}
		},
		Context: context.WithCancel,
		Background: func(what func()) bool {
			if over {
				return false
			}
			go func() {
				defer func() { _ = recover() }()
				what()
			}()
			return true
		},
	}
}

// An errand is done once for all who want it, goes on without them, and leaves its place whatever becomes of it.
func TestErrand(t *testing.T) {
	own := make(places, 1)
	var e, other turn.Errand[int]
	gone, leave := context.WithCancel(t.Context())
	leave()
	goes, over := make(chan struct{}), make(chan error, 1)
	_, joined, err := e.Do(gone, own.sender(false), func(ctx context.Context) (int, error) {
		<-goes
		over <- ctx.Err()
		return 0, nil
	})
	if joined || !errors.Is(err, turn.ErrAlone) || !errors.Is(err, context.Canceled) {
		t.Fatalf("who does not wait gets %v, %v", joined, err)
	}
	if _, joined, err = e.Do(gone, own.sender(false), nil); !joined || !errors.Is(err, turn.ErrAlone) {
		t.Errorf("who joins gets %v, %v", joined, err)
	}
	if _, _, err := other.Do(t.Context(), own.sender(false), nil); !errors.Is(err, turn.ErrMany) {
		t.Errorf("beyond the places it is %v", err)
	}
	close(goes)
	if err := <-over; err != nil {
		t.Errorf("without anybody who waits it ends by %v", err)
	}
	own <- struct{}{} // its place is free again
	<-own
	if v, joined, err := other.Do(t.Context(), own.sender(false), func(context.Context) (int, error) { return 7, nil }); v != 7 || joined || err != nil {
		t.Errorf("who waits gets %d, %v, %v", v, joined, err)
	}
}

// What panics, or is not done at all, leaves its place and is in nobody's way.
func TestBrokenErrand(t *testing.T) {
	own := make(places, 1)
	var e turn.Errand[int]
	if _, _, err := e.Do(t.Context(), own.sender(true), nil); !errors.Is(err, turn.ErrOver) {
		t.Errorf("when all is over it is %v", err)
	}
	released := make(chan struct{})
	s := own.sender(false)
	hold := s.Hold
	s.Hold = func() (func(), bool) {
		release, ok := hold()
		return func() { release(); close(released) }, ok
	}
	if _, _, err := e.Do(t.Context(), s, func(context.Context) (int, error) { panic("what a server said") }); !errors.Is(err, turn.ErrBroken) {
		t.Errorf("what panics is %v", err)
	}
	<-released
	if v, joined, err := e.Do(t.Context(), own.sender(false), func(context.Context) (int, error) { return 8, nil }); v != 8 || joined || err != nil {
		t.Errorf("the next is %d, %v, %v", v, joined, err)
	}
}
