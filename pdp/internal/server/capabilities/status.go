package capabilities

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	store "policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/capability/broker"
	"policy-service/pdp/internal/server/door"
)

// StatusPath begins the paths of status lists.
const StatusPath = Path + "/status/"

const (
	// mostWaiting is how many requests wait for a change at once, and waitingOfOne how many of one caller.
	mostWaiting, waitingOfOne = 500, 50
	// longestWait ends before the time that an answer may take.
	longestWait = 30 * time.Second

	statusListType = "application/statuslist+jwt"
)

// status answers a status list, without a credential: it is signed, and says nothing to a reader without a token. Only a caller can
// wait for a change.
func (s *Capabilities) status(c echo.Context) error {
	if c.QueryParam("wait") != "" {
		return s.statusChange(c)
	}
	if _, err := s.Door.Recognize(c); err != nil {
		return err
	}
	if err := s.absent(); err != nil {
		return err
	}
	ctx, cancel := s.Door.Within(c)
	defer cancel()
	list, err := s.Broker.StatusList(ctx, c.Param("list"))
	return s.answerList(c, list, err)
}

// statusChange answers as soon as the list says something else than the one that the caller has, or when the wait is over.
func (s *Capabilities) statusChange(c echo.Context) error {
	a, err := s.Door.Admit(c, door.Need{Parameters: []string{"wait"}, Absent: s.absent()})
	if err != nil {
		return err
	}
	defer a.Shift.End()
	wait, err := time.ParseDuration(a.Given["wait"])
	if err != nil || wait < 0 {
		return door.BadParameter("wait", "is no time; write it like 30s, which is the longest")
	}
	valid, done := s.Door.WhileInForce(c, a.Caller)
	defer done()
	ctx, cancel := context.WithTimeout(valid, min(wait, longestWait))
	defer cancel()
	go func() {
		select {
		case <-s.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	if s.waiting.Enter(ctx, a.Caller.Name) != nil { // a wait for a place is part of the wait
		return door.TooMany("waiting", time.Second, http.StatusServiceUnavailable,
			"too many are waiting at once; ask again after Retry-After seconds, or without wait")
	}
	defer s.waiting.Leave(a.Caller.Name)
	list, err := s.Broker.StatusList(ctx, c.Param("list"))
	if err == nil && door.Matches(c.Request().Header.Values("If-None-Match"), door.EntityTag([]byte(list.Text))) {
		list, err = s.Broker.StatusChange(ctx, c.Param("list"), list.Version)
	}
	if lapsed := valid.Lapsed(); lapsed != nil {
		return lapsed
	}
	return s.answerList(c, list, err)
}

func (s *Capabilities) answerList(c echo.Context, list broker.SignedList, err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return door.NewProblem(http.StatusNotFound, "no such status list; the address of one stands in a token, and ends with the last token that is in it")
	case errors.Is(err, broker.ErrUnsettled):
		return door.TooMany("status", time.Second, http.StatusServiceUnavailable,
			"the policies have changed, and are still asked about what was granted; ask again after Retry-After seconds")
	case err != nil:
		return unstored()
	}
	header, tag := c.Response().Header(), door.EntityTag([]byte(list.Text))
	header.Set(echo.HeaderCacheControl, "public, max-age="+strconv.Itoa(int(list.TTL/time.Second)))
	header.Set("ETag", tag)
	if door.Matches(c.Request().Header.Values("If-None-Match"), tag) {
		return c.NoContent(http.StatusNotModified)
	}
	return c.Blob(http.StatusOK, statusListType, []byte(list.Text))
}
