package gate

import (
	"errors"
	"fmt"
	"sync/atomic"

	"policy-service/pdp/mcp/internal/ask"
)

// health is what the last requests have shown of those whom the gateway needs.
type health struct{ pdp atomic.Bool }

var errNoPDP = errors.New("the PDP did not answer the last question: requests are refused")

// Ready reports what the gateway cannot do just now. Nobody is asked for it: it is what the last requests have shown.
func (g *Gateway) Ready() error {
	var errs []error
	if g.health.pdp.Load() {
		errs = append(errs, errNoPDP)
	}
	for _, s := range g.o.Servers {
		if s.away.Load() {
			errs = append(errs, fmt.Errorf("the MCP server %s did not answer the last request", s.Name))
		}
	}
	if g.o.Lock.File != nil {
		errs = append(errs, g.o.Lock.File.Err(), g.drifts.Err())
	}
	return errors.Join(errs...)
}

// asked notes how a question ended.
func (h *health) asked(r *ask.Refusal) { h.pdp.Store(r != nil && r.Kind == ask.Unavailable) }
