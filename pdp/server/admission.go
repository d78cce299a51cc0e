package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
)

// What a request may cost is bounded by its size; what all of them together may cost is
// bounded here. Nobody is refused before it is known who asks.

const (
	// smallBody is what a body may have without anybody counting.
	smallBody = 16 << 10
	// mostLargeBodies is how many bodies of more than that are held at once, and
	// largeOfOne how many of one caller. Others wait for their turn: a thousand megabytes
	// need not be in memory together.
	mostLargeBodies = 64
	largeOfOne      = mostLargeBodies / 4
	// largeTime is what the rest of a large body has from when there is room for it.
	largeTime = 15 * time.Second
	// refusedTime is how long the body of who is refused is waited for.
	refusedTime = time.Second
)

// body reads the whole body, or refuses it by its size: by the one announced where there
// is one, else after one byte too many. Between the two may says whether who asks may
// send it, by what the header says alone: nothing is kept of anybody else.
func (s *Server) body(c echo.Context, may func() (Caller, error)) ([]byte, Caller, error) {
	limit := int64(s.config.Program.Limits.Body)
	r := c.Request()
	if r.ContentLength > limit {
		return nil, Caller{}, tooLarge(limit)
	}
	caller, refusal := may()
	if refusal != nil {
		return nil, Caller{}, s.unread(c, refusal)
	}
	if r.ContentLength != 0 {
		s.connections.awaits(r.Context(), true)
		defer s.connections.came(r.Context(), true)
	}
	// An announced size is a promise; it gets room before the bytes only up to
	// what is usual.
	buf := bytes.NewBuffer(make([]byte, 0, bytes.MinRead+min(max(r.ContentLength, 0), smallBody)))
	if _, err := buf.ReadFrom(io.LimitReader(r.Body, min(smallBody, limit+1))); err != nil {
		return nil, Caller{}, cutShort()
	}
	if buf.Len() == smallBody {
		if err := s.largeBody(c, caller, buf, io.LimitReader(r.Body, limit+1-smallBody)); err != nil {
			return nil, Caller{}, err
		}
	}
	if int64(buf.Len()) > limit {
		return nil, Caller{}, tooLarge(limit)
	}
	return buf.Bytes(), caller, nil
}

// unread is the answer to whose body is not wanted. A size that is too large is told of
// first, as far as the body comes soon. A stream of HTTP/2 ends without its body, and so
// need not be waited for at all.
func (s *Server) unread(c echo.Context, refusal error) error {
	r := c.Request()
	if r.ContentLength == 0 || r.ProtoMajor > 1 {
		return refusal
	}
	s.connections.awaits(r.Context(), false)
	defer s.connections.came(r.Context(), false)
	_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Now().Add(refusedTime))
	limit := int64(s.config.Program.Limits.Body)
	if n, _ := io.Copy(io.Discard, io.LimitReader(r.Body, limit+1)); n > limit {
		return tooLarge(limit)
	}
	return refusal
}

// largeBody reads the rest of a body into buf, in its place among those that are large.
func (s *Server) largeBody(c echo.Context, caller Caller, buf *bytes.Buffer, rest io.Reader) error {
	turn, cancel := s.within(c)
	defer cancel()
	control := http.NewResponseController(c.Response())
	place, err := s.large.take(turn, caller.Name, func() { _ = control.SetReadDeadline(time.Unix(1, 0)) })
	if err != nil {
		return s.limited(c, "large_bodies", time.Second, newProblem(http.StatusServiceUnavailable, "too many large bodies are sent at once; ask again after Retry-After seconds"))
	}
	c.Response().Before(place.leave)
	_ = control.SetReadDeadline(time.Now().Add(largeTime))
	if announced := c.Request().ContentLength; announced > 0 {
		buf.Grow(int(announced) - buf.Len() + bytes.MinRead)
	}
	for err == nil {
		place.waits()
		_, err = io.CopyN(buf, rest, smallBody)
		s.connections.heard(c.Request().Context())
	}
	place.works()
	if place.wasPushed() {
		return s.limited(c, "slow_bodies", time.Second, newProblem(http.StatusRequestTimeout, "the body came too slowly, and others waited for its place; send it faster, or ask again after Retry-After seconds"))
	}
	if err != io.EOF {
		return cutShort()
	}
	return nil
}

func tooLarge(limit int64) *Problem {
	return beyond(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes; send less", limit))
}

func cutShort() *Problem {
	return newProblem(http.StatusBadRequest, "the body could not be read to its end; send it whole, and in time")
}

// enter lets a request in that is to be worked on, or refuses it by how many there are.
// The place is given back when the answer begins to be written, so that who is slow to
// read it holds up nobody.
func (s *Server) enter(c echo.Context, caller Caller) error {
	err := s.gate.enter(c.Request().Context(), caller.Name)
	if errors.Is(err, errBusy) {
		return s.limited(c, "concurrency", time.Second, newProblem(http.StatusServiceUnavailable, "more is asked at once than can be answered in time; ask again after Retry-After seconds"))
	}
	if err == nil {
		c.Response().Before(func() { s.gate.leave(caller.Name) })
	}
	return err
}

// pace refuses who asks too often. It comes before the body is read, and after all that
// says whether who asks may ask at all.
func (s *Server) pace(c echo.Context, caller Caller) error {
	if wait, ok := s.rates.take(caller.Name); !ok {
		return s.limited(c, "rate", wait, newProblem(http.StatusTooManyRequests, "this caller asks more often than it may; ask again after Retry-After seconds"))
	}
	return nil
}

// paceToRecord is pace for what puts something on record because its caller asks, and not
// because a person decided something: that has room in any case.
func (s *Server) paceToRecord(c echo.Context, caller Caller) error {
	if err := s.pace(c, caller); err != nil {
		return err
	}
	return s.roomFor(c, caller)
}

// within is the time a request that was let in has for its answer; it ends as well
// where nobody waits for that any more.
func (s *Server) within(c echo.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Request().Context(), s.config.Load.RequestTime)
}

// limited is a refusal that says nothing of the request, only of how many there are.
// They are counted and not logged one by one: that is what a flood would like.
func (s *Server) limited(c echo.Context, limit string, wait time.Duration, p *Problem) *Problem {
	p.retry = strconv.Itoa(max(1, int(math.Ceil(wait.Seconds()))))
	p.counted = true
	s.tooMany(limit)
	return p
}

// tooMany counts a refusal by the limit that it was for, which is one of a few.
func (s *Server) tooMany(limit string) {
	s.refusals.add(limit)
	s.meters.limit(context.Background(), limit)
}
