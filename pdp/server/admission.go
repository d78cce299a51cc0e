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
	// mostLargeBodies is how many bodies of more than that are held at once. Others wait
	// for their turn: a thousand megabytes need not be in memory together.
	mostLargeBodies = 64
)

// body reads the whole body, or refuses it by its size: by the one announced
// where there is one, else after one byte too many.
func (s *Server) body(c echo.Context) ([]byte, error) {
	limit := int64(s.config.Limits.Body)
	r := c.Request()
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	// An announced size is a promise; it gets room before the bytes only up to
	// what is usual.
	buf := bytes.NewBuffer(make([]byte, 0, bytes.MinRead+min(max(r.ContentLength, 0), smallBody)))
	if _, err := buf.ReadFrom(io.LimitReader(r.Body, min(smallBody, limit+1))); err != nil {
		return nil, cutShort()
	}
	if buf.Len() == smallBody {
		if err := s.largeBody(c, buf, io.LimitReader(r.Body, limit+1-smallBody)); err != nil {
			return nil, err
		}
	}
	if int64(buf.Len()) > limit {
		return nil, tooLarge(limit)
	}
	return buf.Bytes(), nil
}

// largeBody reads the rest of a body into buf. What nobody known has sent is read to
// its end, because its size is told of first, and not kept.
func (s *Server) largeBody(c echo.Context, buf *bytes.Buffer, rest io.Reader) error {
	if _, refusal := s.authenticate(c); refusal != nil {
		n, err := io.Copy(io.Discard, rest)
		switch limit := int64(s.config.Limits.Body); {
		case err != nil:
			return cutShort()
		case int64(buf.Len())+n > limit:
			return tooLarge(limit)
		}
		return refusal
	}
	turn, cancel := context.WithTimeout(c.Request().Context(), s.config.Load.RequestTime)
	defer cancel()
	select {
	case s.large <- struct{}{}:
		c.Response().Before(func() { <-s.large })
	case <-turn.Done():
		return s.limited(c, "large_bodies", time.Second, newProblem(http.StatusServiceUnavailable, "too many large bodies are sent at once; ask again after Retry-After seconds"))
	}
	if announced := c.Request().ContentLength; announced > 0 {
		buf.Grow(int(announced) - buf.Len() + bytes.MinRead)
	}
	if _, err := buf.ReadFrom(rest); err != nil {
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

// enter lets a request in that is to be worked on, or refuses it: first by how often
// its caller asks, then by how many are worked on. The place is given back when the
// answer begins to be written, so that who is slow to read it holds up nobody.
func (s *Server) enter(c echo.Context, caller Caller) error {
	if err := s.pace(c, caller); err != nil {
		return err
	}
	return s.place(c, caller)
}

// enterToRecord lets a request in that puts something on record because its caller asks, and
// not because a person decided something: that has room in any case.
func (s *Server) enterToRecord(c echo.Context, caller Caller) error {
	if err := s.pace(c, caller); err != nil {
		return err
	}
	if err := s.roomFor(c, caller); err != nil {
		return err
	}
	return s.place(c, caller)
}

// place takes a place among those that are worked on.
func (s *Server) place(c echo.Context, caller Caller) error {
	err := s.gate.enter(c.Request().Context(), caller.Name)
	if errors.Is(err, errBusy) {
		return s.limited(c, "concurrency", time.Second, newProblem(http.StatusServiceUnavailable, "more is asked at once than can be answered in time; ask again after Retry-After seconds"))
	}
	if err == nil {
		c.Response().Before(s.gate.leave)
	}
	return err
}

// pace refuses who asks too often.
func (s *Server) pace(c echo.Context, caller Caller) error {
	if wait, ok := s.rates.take(caller.Name); !ok {
		return s.limited(c, "rate", wait, newProblem(http.StatusTooManyRequests, "this caller asks more often than it may; ask again after Retry-After seconds"))
	}
	return nil
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
