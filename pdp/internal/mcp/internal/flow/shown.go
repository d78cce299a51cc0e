package flow

import (
	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// takeShown reads the capability that a call shows, and takes it out: from here on neither servers nor mappings nor people see
// it, and it is no part of what a repeated call has to be equal to. A client that shows one where 001 has it speaks MCPx.
func (x exchange) takeShown() (exchange, *answer.Answer) {
	if !ask.OfTool(x.Request.Method) {
		return x, nil
	}
	meta := x.Params.GetObject("_meta")
	shown, refusal := wire.ReadShown(x.Params.Get, meta.Get)
	if refusal != nil {
		return x, answer.Refuse(x.g.o.Asker.RefuseShown(x.operation(), refusal))
	}
	if x.shown = shown; shown == (evaluation.CapabilityShown{}) {
		return x, nil
	}
	x.shown.Session = x.session()
	c := *x.Call
	if c.Params = c.Params.Without(wire.ShowsCapability); c.Params.Len() < x.Params.Len() {
		x.Reach.MCPx.Store(true)
	}
	if rest := meta.Without(wire.ShowsCapability); rest.Len() < meta.Len() {
		c.Params = link.WithMeta(c.Params, rest)
	}
	c.Request.Params = c.Params.Value()
	x.Call = &c
	return x, nil
}

// withNonce is a response to a client whose next proof needs a nonce, if its permit says so.
func withNonce(p *ask.Permit, m rpc.Message) rpc.Message {
	nonce := p.Nonce()
	if nonce == "" || m.Result == nil {
		return m
	}
	if result, err := m.ResultObject(); err == nil {
		m.Result = link.WithMeta(result, result.GetObject("_meta").With(wire.MetaNonce, rpc.String(nonce))).Value()
	}
	return m
}
