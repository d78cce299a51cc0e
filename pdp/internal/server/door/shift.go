package door

import (
	"context"
	"time"
)

// ShiftTime is how long a request works before other callers are let in.
const ShiftTime = 5 * time.Millisecond

// Shift is the time that one request spends inside a gate at which callers take turns even in the middle of their
// requests. The zero value is the shift of a request that needs none.
type Shift struct {
	Gate   *Gate
	Caller string
	Since  time.Time // when the current turn began; set by Begin
	inside bool
}

// Begin waits for a turn.
func (s *Shift) Begin(ctx context.Context) error {
	err := s.Gate.Enter(ctx, s.Caller)
	s.Since, s.inside = time.Now(), err == nil
	return err
}

// End lets the next request in, and reports whether the shift was still going on.
func (s *Shift) End() bool {
	if !s.inside {
		return false
	}
	s.inside = false
	s.Gate.Leave(s.Caller)
	return true
}

// GoOn is called between two parts of a request. If this turn has lasted long enough, other callers get theirs first.
func (s *Shift) GoOn(ctx context.Context) error {
	if time.Since(s.Since) < ShiftTime || !s.Gate.wanted(s.Caller) {
		return ctx.Err()
	}
	s.End()
	return s.Begin(ctx)
}

// GoOn is [Shift.GoOn] of the request that a context belongs to. A request without a shift just goes on.
func GoOn(ctx context.Context) error {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok && v.shift.inside {
		return v.shift.GoOn(ctx)
	}
	return ctx.Err()
}

// EndShift ends the shift of the request that a context belongs to, if it has one: the rest of the request is to wait.
func EndShift(ctx context.Context) {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		v.shift.End()
	}
}
