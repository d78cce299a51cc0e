package door

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/server/auth"
)

const (
	// mostPages is how many pages are made at once, and pagesOfOne how many for one address. They are not counted among
	// the short requests, but the requests of a page are.
	mostPages  = 32
	pagesOfOne = mostPages / 2
	// mostForm bounds the body of a form.
	mostForm = 64 << 10
)

// Pages is the way in for browsers: for requests whose caller the pages find out, and not the door. Each takes
// a place that no other request needs, once its body has arrived, and until its answer begins to be written. A large body
// arrives in such a place, too: anybody can send one, and callers wait for the others.
func (d *Door) Pages(pages http.Handler) echo.HandlerFunc {
	gate := &Gate{Limit: mostPages, Share: pagesOfOne, Queue: LongQueue, Patience: d.Options.Load.RequestTime}
	large := &Places{Gate: Gate{Limit: mostPages, Share: pagesOfOne, Queue: LongQueue}}
	return func(c echo.Context) error {
		r := c.Request()
		address := auth.AddressOf(r).String()
		if r.ContentLength > mostForm {
			return d.unread(c, tooLarge(mostForm))
		}
		body, err := d.readUpTo(c, auth.Caller{Name: "page:" + address}, large, false, mostForm)
		if err != nil {
			return err
		}
		ctx, cancel := d.Within(c)
		defer cancel()
		if err := gate.Enter(ctx, address); errors.Is(err, ErrBusy) {
			return TooMany("console", time.Second, http.StatusServiceUnavailable,
				"more pages are asked for at once than can be made in time; ask again after Retry-After seconds")
		} else if err != nil {
			return err
		}
		leave := sync.OnceFunc(func() { gate.Leave(address) })
		defer leave()
		c.Response().Before(leave)
		r = r.WithContext(ctx)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		pages.ServeHTTP(c.Response(), r)
		return nil
	}
}
