package door

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/server/auth"
)

const (
	// SmallBody is the size up to which bodies are not counted.
	SmallBody = 16 << 10
	// MostLargeBodies is how many larger bodies are held at once, and LargeOfOne how many of one caller. Others wait
	// for their turn: a thousand megabytes need not be in memory together.
	MostLargeBodies = 64
	LargeOfOne      = MostLargeBodies / 4
	// largeTime is what the rest of a large body has from the moment when there is room for it.
	largeTime = 15 * time.Second
	// refusedTime is how long the service waits for the body of a request that it refuses.
	refusedTime = time.Second
)

// readUpTo reads the whole body of a caller, or refuses it after one byte too many. It takes one of some places if it is
// large. A caller that is not known has a name for its share alone.
func (d *Door) readUpTo(c echo.Context, caller auth.Caller, large *Places, known bool, limit int64) ([]byte, error) {
	r := c.Request()
	if r.ContentLength != 0 {
		by := d.Carrier(c)
		d.Connections.Awaits(by, known)
		defer d.Connections.Came(by, known)
	}
	most := min(SmallBody, limit+1)
	size := most
	if r.ContentLength >= 0 {
		size = min(most, r.ContentLength+1) // so that the end is found
	}
	body, n, err := make([]byte, size), 0, error(nil)
	for read := 0; n < len(body) && err == nil; n += read {
		read, err = r.Body.Read(body[n:])
	}
	if body = body[:n]; err != io.EOF && int64(n) < most {
		return nil, cutShort()
	}
	if len(body) == SmallBody {
		if body, err = d.readLarge(c, caller, large, body, io.LimitReader(r.Body, limit+1-SmallBody)); err != nil {
			return nil, err
		}
	}
	if int64(len(body)) > limit {
		return nil, tooLarge(limit)
	}
	_ = r.Body.Close() // it is at its end, where net/http would read once more
	return body, nil
}

// unread is the answer to a request whose body is not wanted. That the body is too large goes before the refusal, as
// far as the body arrives soon. A stream of HTTP/2 ends without its body, and so need not be waited for at all.
func (d *Door) unread(c echo.Context, refusal error) error {
	r := c.Request()
	if r.ContentLength == 0 || r.ProtoMajor > 1 {
		return refusal
	}
	by := d.Carrier(c)
	d.Connections.Awaits(by, false)
	defer d.Connections.Came(by, false)
	_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Now().Add(refusedTime))
	limit := int64(d.Options.Limits.Body)
	if n, _ := io.Copy(io.Discard, io.LimitReader(r.Body, limit+1)); n > limit {
		return tooLarge(limit)
	}
	return refusal
}

// readLarge reads the rest of a large body, in its place among the large bodies.
func (d *Door) readLarge(c echo.Context, caller auth.Caller, large *Places, begun []byte, rest io.Reader) ([]byte, error) {
	turn, cancel := d.Within(c)
	defer cancel()
	control := http.NewResponseController(c.Response())
	place, err := large.Take(turn, caller.Name, func() { _ = control.SetReadDeadline(time.Unix(1, 0)) })
	if err != nil {
		return nil, TooMany("large_bodies", time.Second, http.StatusServiceUnavailable,
			"too many large bodies are sent at once; ask again after Retry-After seconds")
	}
	c.Response().Before(place.Leave)
	_ = control.SetReadDeadline(time.Now().Add(largeTime))
	// An announced size is a promise; it gets room before the bytes only now.
	announced := int(c.Request().ContentLength)
	buf := bytes.NewBuffer(make([]byte, 0, max(announced, len(begun))+bytes.MinRead))
	_, _ = buf.Write(begun)
	for err == nil {
		place.Waits()
		_, err = io.CopyN(buf, rest, SmallBody)
		d.Connections.Moved(d.Carrier(c))
	}
	place.Works()
	if place.WasPushed() {
		return nil, TooMany("slow_bodies", time.Second, http.StatusRequestTimeout,
			"the body came too slowly, and others waited for its place; send it faster, or ask again after Retry-After "+
				"seconds")
	}
	if err != io.EOF {
		return nil, cutShort()
	}
	return buf.Bytes(), nil
}

func tooLarge(limit int64) *Problem {
	return Beyond(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes; send less", limit))
}

func cutShort() *Problem {
	return NewProblem(http.StatusBadRequest, "the body could not be read to its end; send it whole, and in time")
}
