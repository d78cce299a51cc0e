package door

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/server/listener"
)

// visit is what the door keeps of one request, from its header to the first byte of its answer. All of it is one value,
// which stands in the way of the answer: so a request takes no copy with another context, and no function for each of
// those who want to know when the answer begins.
type visit struct {
	http.ResponseWriter
	door    *Door
	carrier Carrier // none before [Door.Begin]
	ctx     visitContext
	first   allotted // of the first [Door.Within]
	shift   Shift
	caller  string // has a place among the short requests, if inside is set
	inside  bool
	begun   bool // the answer is being written

	kept [2]struct{ key, value any } // what [Door.Keep] was told
}

// visitOf is the visit of a request, which begins with the first question for it.
func (d *Door) visitOf(c echo.Context) *visit {
	answer := c.Response()
	if v, ok := answer.Writer.(*visit); ok {
		return v
	}
	v := &visit{ResponseWriter: answer.Writer, door: d}
	answer.Writer = v
	return v
}

// Carrier is what carries a request. What it does meanwhile is said to [Door.Connections].
type Carrier = listener.Carrier

// Carrier is that of a request.
func (d *Door) Carrier(c echo.Context) Carrier { return d.visitOf(c).carrier }

// Begin and End are around all that happens to a request: the door knows of it from its header to the first byte of its
// answer.
func (d *Door) Begin(c echo.Context) {
	v := d.visitOf(c)
	v.carrier = listener.CarrierOf(c.Request().Context())
	d.Connections.Works(v.carrier)
}

// End is what [Door.Begin] says.
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

// WriteHeader implements [http.ResponseWriter].
func (v *visit) WriteHeader(status int) {
	v.begins()
	v.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (v *visit) Unwrap() http.ResponseWriter { return v.ResponseWriter }

// Keep has the context of a request hold a value, two at most, and comes before the first [Door.Context].
func (d *Door) Keep(c echo.Context, key, value any) {
	v := d.visitOf(c)
	n := 0
	if v.kept[n].key != nil {
		n = 1
	}
	v.kept[n].key, v.kept[n].value = key, value
}

// Context is the context of a request. The context of its [http.Request] has less: not what [Door.Keep] was told.
func (d *Door) Context(c echo.Context) context.Context {
	v := d.visitOf(c)
	if v.ctx.Context == nil {
		v.ctx = visitContext{c.Request().Context(), v}
	}
	return &v.ctx
}

// visitContext is the context of a request.
type visitContext struct {
	context.Context
	of *visit
}

type shiftKey struct{}

// Value implements [context.Context].
func (c *visitContext) Value(key any) any {
	switch key {
	case c.of.kept[0].key:
		return c.of.kept[0].value
	case c.of.kept[1].key:
		return c.of.kept[1].value
	case shiftKey{}:
		return &c.of.shift
	}
	return c.Context.Value(key)
}
