package door

import (
	"context"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/server/listener"
)

// visit is the door's account of one request, from its header to the first byte of its answer. It is the context of the
// request, so that a request takes no second copy of itself.
type visit struct {
	context.Context // without the visit
	door            *Door
	carrier         Carrier
	shift           Shift
	caller          string // has a place among the short requests, if inside is set
	inside          bool
	known           string // the caller by its name; "" if it is not known
	decides         bool   // it asks for a decision, or for another thing that is put on record
	begun           bool   // the answer is being written
	kept            any    // by [Door.Keep]
}

type visitKey struct{}

// Value implements [context.Context].
func (v *visit) Value(key any) any {
	if key == (visitKey{}) {
		return v
	}
	return v.Context.Value(key)
}

// visitOf is the visit of a request. It begins here where [Door.Begin] did not come before.
func (d *Door) visitOf(c echo.Context) *visit {
	if v, ok := c.Request().Context().Value(visitKey{}).(*visit); ok {
		return v
	}
	return d.visits(c)
}

// visits begins the visit of a request.
func (d *Door) visits(c echo.Context) *visit {
	r := c.Request()
	v := &visit{Context: r.Context(), door: d, carrier: listener.CarrierOf(r.Context())}
	c.SetRequest(r.WithContext(v))
	c.Response().Before(v.begins)
	return v
}

// Carrier is the connection of a request. A route reports the progress of the request to [Door.Connections].
type Carrier = listener.Carrier

// Carrier is that of a request.
func (d *Door) Carrier(c echo.Context) Carrier { return d.visitOf(c).carrier }

// Begin and End are around all that happens to a request: the door knows of it from its header to the first byte of its
// answer.
func (d *Door) Begin(c echo.Context) { d.Connections.Works(d.visits(c).carrier) }

// End comes after [Door.Begin].
func (d *Door) End(c echo.Context) { d.visitOf(c).begins() }

// begins gives back what a request holds until its answer begins.
func (v *visit) begins() {
	if v.begun {
		return
	}
	v.begun = true
	v.door.Connections.Answers(v.carrier)
	if v.inside {
		v.door.Short.Leave(v.caller)
	}
}

// KnownAs is the name of the caller of a request; "" if it is not known.
func (d *Door) KnownAs(c echo.Context) string { return d.visitOf(c).known }

// Keep has a request hold a value, and Kept returns it; nil if the context belongs to no request.
func (d *Door) Keep(c echo.Context, value any) { d.visitOf(c).kept = value }

// Kept is the value of [Door.Keep].
func Kept(ctx context.Context) any {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		return v.kept
	}
	return nil
}
