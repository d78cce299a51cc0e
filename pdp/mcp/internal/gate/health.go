package gate

import (
	"errors"
	"sync/atomic"

	"policy-service/pdp/mcp/internal/ask"
)

// health is what the last requests have shown of those whom the gateway needs.
type health struct{ pdp, server atomic.Bool }

var (
	errNoPDP    = errors.New("the PDP did not answer the last question: requests are refused")
	errNoServer = errors.New("the MCP server did not answer the last request")
)

// Ready reports what the gateway cannot do just now. Nobody is asked for it: it is what the last requests have shown.
func (g *Gateway) Ready() error {
	var errs []error
	if g.health.pdp.Load() {
		errs = append(errs, errNoPDP)
	}
	if g.health.server.Load() {
		errs = append(errs, errNoServer)
	}
	if g.o.Lock.File != nil {
		errs = append(errs, g.o.Lock.File.Err(), g.drifts.Err())
	}
	return errors.Join(errs...)
}

// asked notes how a question ended.
func (h *health) asked(r *ask.Refusal) { h.pdp.Store(r != nil && r.Kind == ask.Unavailable) }

// sent notes how a request to the server ended.
func (h *health) sent(err error) { h.server.Store(err != nil) }
