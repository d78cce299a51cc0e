package door

import (
	"context"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/server/listener"
)

// visit is the door's account of one request, from its header to the first byte of its answer. The context of the
// request holds it.
type visit struct {
	door    *Door
	carrier Carrier
	shift   Shift
	caller  string // has a place among the short requests, if inside is set
	inside  bool
	begun   bool // the answer is being written
}

type visitKey struct{}

// visitOf is the visit of a request. It begins here where [Door.Begin] did not come before.
func (d *Door) visitOf(c echo.Context) *visit {
	if v, ok := c.Request().Context().Value(visitKey{}).(*visit); ok {
		return v
	}
	return d.visits(c)
}

// visits begins the visit of a request.
func (d *Door) visits(c echo.Context) *visit {
	v := &visit{door: d, carrier: listener.CarrierOf(c.Request().Context())}
	Keep(c, visitKey{}, v)
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

// Keep has the context of a request hold a value.
func Keep(c echo.Context, key, value any) {
	r := c.Request()
	c.SetRequest(r.WithContext(context.WithValue(r.Context(), key, value)))
}
