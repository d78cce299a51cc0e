package flow

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/arguments"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// ask has the PDP decide, with what people have said before, if they have. Its permit is for one time that something is sent.
func (x exchange) ask(ctx context.Context, answered ask.Answered) (exchange, *answer.Answer) {
	op := x.operation()
	op.Answered = answered
	if x.permit != nil {
		x.permit.Done(context.WithoutCancel(ctx))
	}
	var refused *ask.Refusal
	begun := x.g.o.Now()
	if x.permit, refused = x.g.o.Asker.Ask(ctx, op); refused == nil { // what was done of what it owes is reported, also if something panics
		permit := x.permit
		x.holds.lasts(func() { permit.Done(context.WithoutCancel(ctx)) })
	}
	x.g.o.Meters.Asked(ctx, x.g.o.Now().Sub(begun))
	x.g.o.Asker.Note(refused)
	if refused == nil && !x.permit.Passes() {
		if x.link == nil {
			x.Reach.Silence()
		} else {
			x.link.Silence()
		}
	}
	return x, answer.Refuse(refused)
}

// bring reads what the client brings with the request, for people or a server that have asked before.
func (x exchange) bring() (_ exchange, refused *answer.Answer) {
	if x, refused = readFulfilment(x); refused != nil {
		return x, refused
	}
	if x.brought, refused = bring(x); refused != nil {
		return x, refused
	}
	if x.fulfils != nil && x.brought.forServer() {
		refused = answer.Invalid("a call that fulfils a request has no second round: leave inputResponses and requestState out")
	}
	return x, refused
}

// general are the methods whose permit is for no server in particular.
var general = map[string]bool{"initialize": true, "server/discover": true, "tools/list": true, "subscriptions/listen": true, "logging/setLevel": true}

// mayOpen is nil if a session with the server may be opened. That is so if the request has a permit and names something of this
// server, or if the PDP may permit some use of the server. If no tools of the server are known, any permit is enough; without a
// permit the PDP is asked about initialize.
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
	if !x.unsettled || !refused.OfKind(ask.Denied) {
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

// find finds the tool that is called.
func (x exchange) find(ctx context.Context) (Target, *answer.Answer) {
	name := x.Params.GetString("name")
	if len(x.Params.Get("arguments")) > x.g.o.Arguments {
		return x.Target, answer.Invalid("the arguments are larger than " + strconv.Itoa(x.g.o.Arguments) + " bytes")
	}
	spends := x.Params.Get("requestState") != nil || x.Params.Get("inputResponses") != nil // by people's word, which is spent once
	if s, _ := x.link.Current(); s == nil && !x.g.ofOne() && !spends {
		if known := x.g.servers.KnownTool(x.link.Server, name); known != nil {
			return Target{x.Call, x.link, known, true}, nil
		}
	}
	switch err := x.mayOpen(ctx).(type) {
	case nil:
		return x.findThere(ctx)
	case *answer.Answer:
		return x.Target, err
	default:
		return x.Target, answer.Refuse(ask.UnknownTool())
	}
}

// findThere finds the tool that is called among those that the server lists for the principal.
func (x exchange) findThere(ctx context.Context) (Target, *answer.Answer) {
	listed, err := x.link.Listed(ctx, x.Who, x.Client)
	if err != nil { // what the server says of it is for nobody yet: nothing is decided
		return x.Target, answer.Silent(err)
	}
	t := listed.ByName[x.Params.GetString("name")]
	if t == nil {
		return x.Target, answer.Refuse(ask.UnknownTool())
	}
	return Target{Call: x.Call, link: x.link, tool: t}, nil
}

// fits ends a call whose headers or arguments are not those of the tool.
func (x exchange) fits(ctx context.Context) *answer.Answer {
	if x.Client.Era == era.Modern && x.tool != nil && x.Request.Method == "tools/call" {
		if fault := era.CheckParamHeaders(x.Header, x.tool.Headers, x.Params.Get("arguments")); fault != nil {
			return &answer.Answer{Message: rpc.Failure(rpc.ID{}, *fault), Status: http.StatusBadRequest, Outcome: answer.Unusable}
		}
	}
	return x.misfit(ctx)
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

// looksAgain finds the tool as the server shows it to the principal, and reports whether the PDP is asked something else about
// that.
func (x exchange) looksAgain(ctx context.Context) (now Target, another bool, refused *answer.Answer) {
	if now, refused = x.findThere(ctx); refused != nil {
		return now, false, refused
	}
	return now, now.tool.Digest != x.tool.Digest || now.tool.Pinned != x.tool.Pinned, nil
}

// route finds the server that a request is for, and the tool that is called. What is for all servers it leaves alone.
func (x exchange) route(ctx context.Context) (Target, *answer.Answer) {
	if x.Request.Method == wire.MethodToolRequest && !x.g.o.Asker.Requests() { // there is no such method
		return x.Target, nil
	}
	s, what := Route(x.g.servers.All(), x.Request.Method, x.Params)
	switch {
	case what == "":
		return x.Target, nil
	case s != nil:
		x.link = x.Reach.To(s.Name)
	case what == "tool":
		return x.Target, answer.Refuse(ask.UnknownTool())
	default:
		return x.Target, nobodys(what, x.Client.Era)
	}
	if what == "tool" {
		return x.find(ctx)
	}
	return x.Target, nil
}

// Route is the server that a request is for, by what it names: a tool, prompt, resource or reference. What is "" if it names
// nothing, and is for all servers. S is nil if no server has such names.
func Route(all []*link.Server, method string, params rpc.Object) (s *link.Server, what string) {
	if ask.OfTool(method) {
		return named(all, params), "tool"
	}
	switch method {
	case "prompts/get":
		return named(all, params), "prompt"
	case "completion/complete":
		return referred(all, params.GetObject("ref")), "reference"
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return owner(all, params.GetString("uri")), "resource"
	}
	return nil, ""
}

// nobodys refuses what no server has.
func nobodys(what string, e era.Era) *answer.Answer {
	code := rpc.InvalidParams
	if what == "resource" && e == era.Legacy {
		code = era.ResourceNotFound
	}
	return answer.New(ask.Unknown, code, "unknown "+what, "no server has such a "+what)
}

// named is the server that the name of a tool or prompt names.
func named(all []*link.Server, o rpc.Object) *link.Server {
	if len(all) == 1 {
		return all[0]
	}
	server, _, ok := link.Apart(o.GetString("name"))
	n := slices.IndexFunc(all, func(s *link.Server) bool { return s.Name == server })
	if !ok || n < 0 {
		return nil
	}
	return all[n]
}

// referred is the server that has what is to be completed.
func referred(all []*link.Server, ref rpc.Object) *link.Server {
	switch ref.GetString("type") {
	case "ref/prompt":
		return named(all, ref)
	case "ref/resource":
		return owner(all, ref.GetString("uri"))
	}
	if len(all) == 1 {
		return all[0]
	}
	return nil
}

// owner is the server whose resource it is, nil if it is nobody's.
func owner(all []*link.Server, uri string) *link.Server {
	if n := slices.IndexFunc(all, func(s *link.Server) bool { return s.Owns(uri) }); n >= 0 {
		return all[n]
	}
	return nil
}

// own are params in which a server finds its own name for what clients of several servers call by another. All else stays
// as it is.
func (x Target) own(params rpc.Object) rpc.Object {
	if !x.g.several() {
		return params
	}
	switch ref := params.GetObject("ref"); {
	case x.tool != nil:
		return params.With("name", rpc.String(x.tool.Name))
	case x.Request.Method == "prompts/get":
		return ownPrompt(params)
	case x.Request.Method == "completion/complete" && ref.GetString("type") == "ref/prompt":
		return params.With("ref", ownPrompt(ref).Value())
	}
	return params
}

func ownPrompt(o rpc.Object) rpc.Object {
	_, name, _ := link.Apart(o.GetString("name"))
	return o.With("name", rpc.String(name))
}
