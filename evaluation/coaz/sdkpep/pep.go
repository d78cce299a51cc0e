package sdkpep

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/coaz"
	"policy-service/obligations"
)

// Middleware is the PEP of an MCP server. It asks the PDP by the mappings of b: that which the called tool declares, or
// the default of the method. Tools gives the definition of a tool as tools/list shows it, and more, where the SDK has no
// place for it ([Definition]). It is called for each call, and returns the definition as it is then. A tool that it does not
// have, or only by another spelling, cannot be called. Nil takes the server's own list as the caller sees it, and refuses all
// that is not in it.
//
// Add it to the server last, so that it stands before all other middleware.
func Middleware(b *coaz.Binding, pdp *authzenclient.Client, tools func(name string) (evaluation.Object, bool), options ...Option) mcp.Middleware {
	p := &pep{binding: b, pdp: pdp, tools: tools, methods: map[string]*coaz.Mapping{}, results: map[string]ResultHandler{}, log: slog.New(slog.DiscardHandler)}
	for _, option := range options {
		option(p)
	}
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			return p.handle(ctx, call{method: method, request: r, next: next})
		}
	}
}

// Option sets something of a [Middleware].
type Option func(*pep)

// WithHandlers gives handlers of obligations, by type. Without a handler for it, an allow that obliges to something is a
// deny.
func WithHandlers(handlers obligations.Handlers) Option {
	return func(p *pep) { p.handlers = handlers }
}

// ResultHandler discharges an obligation on the result of a request, such as redact. It returns the result that leaves.
type ResultHandler func(ctx context.Context, o evaluation.Obligation, result mcp.Result) (mcp.Result, error)

// WithResultHandler gives the handler of an obligation type that needs the result. If h fails or panics, or the request
// itself fails, the result is withheld. Messages of a tool before its result (progress, logs, questions to the user) do
// not come by h.
func WithResultHandler(obligationType string, h ResultHandler) Option {
	return func(p *pep) { p.results[obligationType] = h }
}

// WithMapping has a method asked about by a mapping that the server's operator wrote ([coaz.Binding.Compile]), also one
// that has no default, such as a method of the server's own, and one that otherwise passes. A mapping that a tool declares
// goes before it.
func WithMapping(method string, m *coaz.Mapping) Option {
	return func(p *pep) { p.methods[method] = m }
}

// WithClient chooses the client that asks about a request, such as that of [authzenclient.Client.ForTenant] for the tenant of
// its token, in place of the client of [Middleware], which may then be nil. An error, or no client, refuses the request.
func WithClient(choose func(ctx context.Context, r mcp.Request) (*authzenclient.Client, error)) Option {
	return func(p *pep) { p.choose = choose }
}

// WithLogger logs why requests are refused, for the operator's eyes, and the assertions of declared mappings.
func WithLogger(l *slog.Logger) Option { return func(p *pep) { p.log = l } }

// pep is one PEP.
type pep struct {
	binding  *coaz.Binding
	pdp      *authzenclient.Client
	choose   func(context.Context, mcp.Request) (*authzenclient.Client, error) // nil: pdp for all requests
	tools    func(name string) (evaluation.Object, bool)
	methods  map[string]*coaz.Mapping
	handlers obligations.Handlers
	results  map[string]ResultHandler
	log      *slog.Logger
	declared mappings
}

// call is one message.
type call struct {
	method  string
	request mcp.Request
	next    mcp.MethodHandler
}

// notifications are those that the SDK takes from a client. Its own methods of that name are requests.
var notifications = map[string]bool{
	"notifications/initialized": true, "notifications/cancelled": true, "notifications/progress": true, "notifications/roots/list_changed": true,
}

func (p *pep) handle(ctx context.Context, c call) (mcp.Result, error) {
	if p.passes(c.method) {
		return c.next(ctx, c.method, c.request)
	}
	pdp, refusal := p.client(ctx, c)
	var allowed authzenclient.Enforcements
	var owed *[]evaluation.Obligation
	if refusal == nil {
		allowed, owed, refusal = p.decide(ctx, pdp, c)
		defer pdp.ReportAll(ctx, &allowed)
	}
	if refusal != nil {
		if refusal.undecided != "" {
			p.log.WarnContext(ctx, "no decision came", slog.Group("", "reason", refusal.undecided, "method", c.method), "code", refusal.wire.Code, "why", refusal.why)
		} else {
			p.log.InfoContext(ctx, "refused", "method", c.method, "code", refusal.wire.Code, "why", refusal.why)
		}
		return nil, refusal.wire
	}
	until, cancel := ctx, func() {}
	if c.method == "subscriptions/listen" { // it goes on for long
		until, cancel = expiring(ctx, tokenOf(c.request))
	}
	defer cancel()
	result, err := c.next(until, c.method, c.request)
	if len(*owed) == 0 {
		return result, err
	}
	if err != nil { // its text may hold redacted values, and goes nowhere
		p.log.InfoContext(ctx, "withheld", "method", c.method, "why", "the request failed, and no handler changes an error")
		return nil, withheld()
	}
	for _, o := range *owed {
		if result, err = p.results[o.Type].change(ctx, o, result); err != nil {
			allowed.Break(o, err)
			p.log.WarnContext(ctx, "withheld", "method", c.method, "obligation", o.ID, "why", err)
			return nil, withheld()
		}
	}
	return result, nil
}

// passes reports whether a method needs no question.
func (p *pep) passes(method string) bool {
	_, verdict := p.binding.Default(method)
	return verdict == coaz.PassThrough && (method == "ping" || notifications[method]) && p.methods[method] == nil
}

// change has h change a result. As with other handlers, one that panics has failed, and so has one whose context has
// ended, also if it returns a result.
func (h ResultHandler) change(ctx context.Context, o evaluation.Obligation, result mcp.Result) (changed mcp.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			changed, err = nil, &obligations.Panic{Value: v, Stack: debug.Stack()}
		}
	}()
	changed, err = h(ctx, o, result)
	switch {
	case err != nil:
		return nil, err
	case changed == nil:
		return nil, errNoResult
	}
	return changed, ctx.Err()
}

// expiring ends when a token does.
func expiring(ctx context.Context, info *auth.TokenInfo) (context.Context, context.CancelFunc) {
	if info == nil || info.Expiration.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, info.Expiration)
}

func tokenOf(r mcp.Request) *auth.TokenInfo {
	if extra := r.GetExtra(); extra != nil {
		return extra.TokenInfo
	}
	return nil
}

// client returns the client for a message.
func (p *pep) client(ctx context.Context, c call) (*authzenclient.Client, *refusal) {
	if p.choose == nil {
		return p.pdp, nil
	}
	pdp, err := p.choose(ctx, c.request)
	if err == nil && pdp == nil {
		err = errors.New("WithClient has none")
	}
	if err != nil {
		return nil, noClient(err)
	}
	return pdp, nil
}

// decide asks the PDP, and discharges its obligations. Those on the result are in owed. The enforcements are of all
// questions, permitted or not.
func (p *pep) decide(ctx context.Context, pdp *authzenclient.Client, c call) (e authzenclient.Enforcements, owed *[]evaluation.Obligation, refused *refusal) {
	questions, dialect, refused := p.questions(ctx, c)
	if refused != nil {
		return e, nil, refused
	}
	owed = &[]evaluation.Obligation{}
	handlers := p.promises(owed)
	var all []authzenclient.Undischarged
	for _, q := range questions {
		answers := q.ask(ctx, pdp, handlers.Types())
		all = append(all, answers...)
		if denied(answers) {
			break // nothing more can come of it
		}
	}
	e = authzenclient.DischargeAll(ctx, handlers, all...)
	if !e.Permitted() {
		return e, nil, refusalOf(e.First(), dialect)
	}
	return e, owed, nil
}

// promises are the handlers, and for obligations on the result one that remembers them.
func (p *pep) promises(owed *[]evaluation.Obligation) obligations.Handlers {
	all := obligations.Handlers{}
	for name, h := range p.handlers {
		all[name] = h
	}
	for name, h := range p.results {
		if h == nil {
			continue
		}
		all[name] = func(_ context.Context, o evaluation.Obligation) error {
			*owed = append(*owed, o)
			return nil
		}
	}
	return all
}
