package flow

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/arguments"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/wire"
)

// general are the methods whose permit is for no server in particular.
var general = map[string]bool{"initialize": true, "server/discover": true, "tools/list": true, "subscriptions/listen": true, "logging/setLevel": true}

// mayOpen is nil if a session may be opened with the server: the request is permitted and names something of it, or something
// of it may be permitted. Of a server of which nothing is known that is any permit, and without one that of a session.
func (x exchange) mayOpen(ctx context.Context) error {
	permitted := x.permit != nil
	if s, err := x.link.Current(); s != nil || err != nil {
		return err
	}
	if x.g.ofOne() || permitted && (!general[x.Request.Method] || x.wantsOwn()) {
		return nil
	}
	tools, listed := x.g.servers.KnownOf(x.link.Server)
	if permitted && !listed {
		return nil
	}
	var items []*ask.Tool
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		items = append(items, tools[name].Tool)
	}
	var methods []string
	switch {
	case len(items) == 0:
		methods = []string{"initialize"}
	case x.Request.Method != "tools/list" && !ask.OfTool(x.Request.Method): // what else it may have
		methods = []string{"prompts/list", "resources/list"}
	}
	if name := x.Params.GetString("name"); ask.OfTool(x.Request.Method) && tools[name] == nil {
		own := name
		if x.g.several() {
			_, own, _ = link.Apart(name)
		}
		items = append(items, x.g.o.Asker.Named(x.link.Server.Name, own, name))
	}
	op := x.operation()
	op.Tool = nil
	may, refused := x.g.o.Asker.MayUse(ctx, op, items, methods)
	if op.Method == "tools/list" && x.Client.Knows(era.ToolRequests) && !may && refused == nil {
		op.Method = wire.MethodToolRequest
		may, refused = x.g.o.Asker.MayUse(ctx, op, items, nil)
	}
	x.g.o.Asker.Note(refused)
	switch {
	case refused != nil:
		return answer.Refuse(refused)
	case !may:
		return link.ErrForbidden
	}
	return nil
}

// wantsOwn reports whether a listener wants to hear of a resource of the server.
func (x Target) wantsOwn() bool {
	return x.Request.Method == "subscriptions/listen" && slices.ContainsFunc(link.WantsOf(x.Params).URIs, x.link.Server.Owns)
}

// decideKnown has the PDP decide about a call. A denial of a tool as others were shown it does not stand where the tool may be
// another one for this principal: if some definition of it could be permitted, the server is asked which it is. So it is before
// people are asked about the call: nobody approves a call of a server that is away.
func (x exchange) decideKnown(ctx context.Context, answered ask.Answered) (exchange, *answer.Answer) {
	x, refused := x.ask(ctx, answered)
	if !x.unsettled || !refused.Is(ask.Denied) {
		return x, refused
	}
	if refused.Refusal.Wanted == nil {
		op := x.operation()
		op.Tool = nil
		may, unanswered := x.g.o.Asker.MayUse(ctx, op, []*ask.Tool{x.g.o.Asker.Named(x.tool.Server, x.tool.Name, x.tool.Shown)}, nil)
		if !may {
			return x, cmp.Or(answer.Refuse(unanswered), refused)
		}
	}
	now, another, gone := x.looksAgain(ctx)
	if gone != nil {
		return x, gone
	}
	if x.Target = now; !another {
		return x, refused
	}
	if end := x.fits(ctx); end != nil {
		x.note(end)
		return x, answer.Invalid("the arguments do not fit the tool as the server has it now; list the tools again")
	}
	return x.ask(ctx, answered)
}

// looksAgain finds the tool as the server shows it to the principal, and reports whether the PDP is asked something else about
// that.
func (x exchange) looksAgain(ctx context.Context) (now Target, another bool, refused *answer.Answer) {
	if now, refused = x.findThere(ctx); refused != nil {
		return now, false, refused
	}
	return now, now.tool.Digest != x.tool.Digest || now.tool.Pinned != x.tool.Pinned, nil
}

// settle lists the tools of the server for the principal that may call one as it is known. If it is another one there, all is
// looked at again, and the PDP decides again.
func (x exchange) settle(ctx context.Context) (exchange, *answer.Answer) {
	if !x.unsettled {
		return x, nil
	}
	now, another, refused := x.looksAgain(ctx)
	if refused != nil {
		return x, refused
	}
	if x.Target = now; !another {
		return x, nil
	}
	if x.fulfils != nil {
		return x, answer.Invalid("the tool is not the one that was requested any more")
	}
	if end := x.fits(ctx); end != nil {
		return x, end
	}
	return x.ask(ctx, goesOn(x.permit))
}

// misfit answers a call of a locked tool whose arguments do not fit its inputSchema. It is nil if they fit, or the tool is not
// locked.
//
// Such a call is never forwarded, and no approval is requested for it. The result of the tool names the problems of the
// arguments, so that a model can mend them. The schema is only for callers who may list the tool: others get the PDP's refusal,
// as for all of their calls of it. A call that fits costs no additional question.
func (x exchange) misfit(ctx context.Context) *answer.Answer {
	if x.tool == nil || x.tool.Schema == nil {
		return nil
	}
	given := x.Params.Get("arguments")
	if given != nil && given.Kind() != '{' {
		return answer.Invalid("the arguments are not an object")
	}
	problems, err := x.tool.Schema.Check(given)
	if err == nil && len(problems) == 0 {
		return nil
	}
	if refused := x.listable(ctx); refused != nil {
		return refused
	}
	text := arguments.Text(problems)
	if err != nil {
		text = "The arguments cannot be held against the inputSchema of the tool: " + err.Error()
	}
	x.g.o.Logger.Info("arguments do not fit", "tool", x.tool.Name, "server", x.tool.Server, "problems", len(problems), "costly", errors.Is(err, arguments.ErrCostly), "principal", x.Who.Key)
	return &answer.Answer{Message: x.Client.Says(x.Request.Method, answer.ToolError(text).Value()), Status: http.StatusOK, Outcome: answer.Unusable}
}

// listable refuses a caller that does not see the tool in a list, as with any other arguments.
func (x exchange) listable(ctx context.Context) *answer.Answer {
	list := x.operation()
	list.Method, list.Tool = "tools/list", nil
	filter := x.g.o.Asker.Filter
	if x.Request.Method == wire.MethodToolRequest {
		filter = x.g.o.Asker.FilterRequests
	}
	keep, refused := filter(ctx, list, []ask.Item{{Tool: x.tool.Tool, Server: x.tool.Server}})
	x.g.o.Asker.Note(refused)
	if refused != nil || keep[0] {
		return answer.Refuse(refused)
	}
	_, no := x.ask(ctx, ask.Answered{})
	return no
}
