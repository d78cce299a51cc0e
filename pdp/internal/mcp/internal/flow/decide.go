package flow

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/arguments"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// ask lets the PDP decide, with the answers of people, if there are any. The permit is for sending once.
func (x exchange) ask(ctx context.Context, answered ask.Answered) (exchange, *answer.Answer) {
	op := x.operation()
	op.Answered = answered
	if x.permit != nil {
		x.permit.Done(context.WithoutCancel(ctx))
	}
	var refused *ask.Refusal
	begun := x.g.o.Now()
	// The outcome of the obligations is reported, also after a panic.
	if x.permit, refused = x.g.ask(ctx, op, x.shown); refused == nil {
		permit := x.permit
		x.cleanups.add(func() { permit.Done(context.WithoutCancel(ctx)) })
	}
	x.g.o.Meters.Asked(ctx, x.g.o.Now().Sub(begun))
	x.g.o.Asker.Note(refused)
	if refused == nil && !x.permit.Passes() {
		if x.link == nil {
			x.Reach.PassChangesOnly()
		} else {
			x.link.PassChangesOnly()
		}
	}
	return x, answer.Refuse(refused)
}

// read reads the parts of the request that answer earlier questions, of people or of a server.
func (x exchange) read(ctx context.Context) (_ exchange, refused *answer.Answer) {
	if x, refused = readFulfilment(ctx, x); refused != nil {
		return x, refused
	}
	if x.followUp, refused = readFollowUp(x); refused != nil {
		return x, refused
	}
	if x.fulfils != nil && x.followUp.server {
		refused = answer.Invalid("a call that fulfils a request has no second round: leave inputResponses and requestState out")
	}
	return x, refused
}

// general are the methods whose permit names no server.
var general = map[string]bool{"initialize": true, "server/discover": true, "tools/list": true, "subscriptions/listen": true, "logging/setLevel": true}

// mayOpen returns nil if a session with the server may be opened: if the request has a permit and names something of this server,
// or if the PDP may permit some use of the server. If no tools of the server are known, any permit is enough. Without a permit
// the PDP is asked about the tool that the request names, or else about initialize.
func (x exchange) mayOpen(ctx context.Context) error {
	permitted := x.permit != nil
	if s, err := x.link.Current(); s != nil || err != nil {
		return err
	}
	if x.g.onePerson() || permitted && (!general[x.Request.Method] || x.wantsServerResource()) {
		return nil
	}
	may, refused := x.mayUse(ctx, permitted)
	x.g.o.Asker.Note(refused)
	switch {
	case refused != nil:
		return answer.Refuse(refused)
	case !may:
		return link.ErrForbidden
	}
	return nil
}

// mayUse reports whether the PDP may permit some use of the server. The answer is kept for a while, unless the request names a
// tool: then the PDP is asked about that tool.
func (x exchange) mayUse(ctx context.Context, permitted bool) (may bool, refused *ask.Refusal) {
	op, ofTool := x.operation(), ask.OfTool(x.Request.Method)
	op.Tool = nil
	if ofTool && !x.g.o.Asker.Instead() { // else the tool may be one of whose calls its own mapping is asked alone
		return x.g.o.Asker.MayUse(ctx, op, []*ask.Tool{x.named()}, nil)
	}
	by := x.useOf(permitted)
	if may, kept := x.g.usable.of(by, x.g.o.Now()); kept && !ofTool {
		return may, nil
	}
	tools, listed := x.g.servers.KnownOf(x.link.Server)
	if permitted && !listed {
		return true, nil
	}
	var items []*ask.Tool
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		items = append(items, tools[name].Tool)
	}
	var methods []string
	switch {
	case ofTool:
		items = append(items, x.named())
	case len(items) == 0:
		methods = []string{"initialize"}
	case x.Request.Method != "tools/list": // prompts and resources that the server may have
		methods = []string{"prompts/list", "resources/list"}
	}
	may, refused = x.g.o.Asker.MayUse(ctx, op, items, methods)
	if by.requests && !may && refused == nil {
		op.Method = wire.MethodToolRequest
		may, refused = x.g.o.Asker.MayUse(ctx, op, items, nil)
	}
	if refused == nil && !ofTool && by == x.useOf(permitted) { // the same policies, lock and tools as before the questions
		x.g.usable.keep(by, may, x.g.o.Now())
	}
	return may, refused
}

// named returns the tool that the request names, of which nothing is known but its name.
func (x Target) named() *ask.Tool {
	shown := x.Params.GetString("name")
	name := shown
	if x.g.servers.Several() {
		_, name, _ = link.Apart(shown)
	}
	return x.g.o.Asker.Named(x.link.Server.Name, name, shown)
}

// wantsServerResource reports whether a listener wants to hear of a resource of the server.
func (x Target) wantsServerResource() bool {
	return x.Request.Method == "subscriptions/listen" && slices.ContainsFunc(link.WantsOf(x.Params).URIs, x.link.Server.Owns)
}

// decideKnown lets the PDP decide about a call. If the tool is known only from a listing for other principals, a denial does
// not yet stand: the tool may be another one for this principal. If some definition of it could be permitted, the tool is found
// again in the server's list for this principal. If it differs, the PDP decides about that one. The same happens before people
// are asked about the call, so that nobody approves a call to a server that is away.
func (x exchange) decideKnown(ctx context.Context, answered ask.Answered) (exchange, *answer.Answer) {
	x, refused := x.ask(ctx, answered)
	if !x.unconfirmed || !refused.OfKind(ask.Denied) {
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
	now, another, gone := x.findAgain(ctx)
	if gone != nil {
		return x, gone
	}
	if x.Target = now; !another {
		return x, refused
	}
	if end := x.checkFit(ctx); end != nil {
		x.noteRefusal(end)
		return x, answer.Invalid("the arguments do not fit the tool as the server has it now; list the tools again")
	}
	return x.ask(ctx, answered)
}

// confirm lists the tools of the server for the principal, if the tool of a permitted call or request is known only from a listing
// for others. If the tool differs, the arguments are checked again, and the PDP decides again.
func (x exchange) confirm(ctx context.Context) (exchange, *answer.Answer) {
	if !x.unconfirmed {
		return x, nil
	}
	now, another, refused := x.findAgain(ctx)
	if refused != nil {
		return x, refused
	}
	if x.Target = now; !another {
		return x, nil
	}
	if end := x.checkFit(ctx); end != nil {
		return x, end
	}
	return x.ask(ctx, continuationOf(x.permit))
}

func (x exchange) find(ctx context.Context) (Target, *answer.Answer) {
	name := x.Params.GetString("name")
	if len(x.Params.Get("arguments")) > x.g.o.Arguments {
		named := strings.ToValidUTF8(name[:min(len(name), mostNamed)], "")
		return x.Target, answer.Invalid("the arguments of " + strconv.Quote(named) + " are larger than " + strconv.Itoa(x.g.o.Arguments) + " bytes (limits.max_arguments)")
	}
	// People approve a call for one use, and a proof is for one question, so a call that may spend either gets the tool from the
	// server first.
	spends := x.Params.Get("requestState") != nil || x.Params.Get("inputResponses") != nil || x.shown != evaluation.CapabilityShown{}
	if s, _ := x.link.Current(); s == nil && !x.g.onePerson() && !spends {
		if known := x.g.servers.KnownTool(x.link.Server, name); known != nil {
			return Target{Call: x.Call, link: x.link, tool: known, unconfirmed: true}, nil
		}
	}
	return x.findOpened(ctx)
}

// mostNamed is how much of the name of a tool stands in an error, in bytes.
const mostNamed = 128

// findOpened finds the called tool in the list that the server has for the principal, if a session with it may be opened. If it
// may not, the PDP decides about the tool that is known from others, or about its name if nothing is known of the server's tools,
// and so says why not.
func (x exchange) findOpened(ctx context.Context) (Target, *answer.Answer) {
	switch err := x.mayOpen(ctx).(type) {
	case nil:
		return x.findListed(ctx)
	case *answer.Answer:
		return x.Target, err
	default:
		t := x.g.servers.KnownTool(x.link.Server, x.Params.GetString("name"))
		if t == nil {
			if _, listed := x.g.servers.KnownOf(x.link.Server); listed {
				return x.Target, answer.Refuse(ask.UnknownTool())
			}
			t = &link.Tool{Tool: x.named(), Unlisted: true}
		}
		return Target{Call: x.Call, link: x.link, tool: t, unconfirmed: true}, nil
	}
}

// findListed finds the called tool in the list that the server has for the principal.
func (x exchange) findListed(ctx context.Context) (Target, *answer.Answer) {
	listed, err := x.link.Listed(ctx, x.Who, x.Client)
	if err != nil { // the server's own error is shown to no client yet: nothing is decided
		return x.Target, answer.Silent(err)
	}
	t := listed.ByName[x.Params.GetString("name")]
	if t == nil {
		return x.Target, answer.Refuse(ask.UnknownTool())
	}
	return Target{Call: x.Call, link: x.link, tool: t, listing: listed}, nil
}

// findShown finds a tool that is known only from a listing for others as the server shows it to the principal, before the PDP
// has decided, and checks that the call fits it.
func (x exchange) findShown(ctx context.Context) (_ exchange, refused *answer.Answer) {
	if x.Target, refused = x.findOpened(ctx); refused == nil {
		refused = x.checkFit(ctx)
	}
	return x, refused
}

func (x exchange) checkFit(ctx context.Context) *answer.Answer {
	if refused := x.checkHeaders(); refused != nil {
		return refused
	}
	return x.checkArguments(ctx)
}

// checkHeaders ends a call whose headers do not say what its arguments say.
func (x exchange) checkHeaders() *answer.Answer {
	if x.Client.Era == era.Modern && x.tool != nil && !x.tool.Unlisted && x.Request.Method == "tools/call" {
		if fault := era.CheckParamHeaders(x.Header, x.tool.Headers, x.Params.Get("arguments")); fault != nil {
			return &answer.Answer{Message: rpc.Failure(rpc.ID{}, *fault), Status: http.StatusBadRequest, Outcome: answer.Unusable}
		}
	}
	return nil
}

// checkArguments answers a call of a locked tool whose arguments do not fit its inputSchema. It is nil if they fit, or if the
// tool is not locked.
//
// Such a call is never forwarded, and no approval is requested for it. The result names the problems of the arguments, so that
// a model can mend them. Only callers that may list the tool see the schema: others get the PDP's refusal, as for all their
// calls of it. A call that fits costs no additional question to the PDP.
func (x exchange) checkArguments(ctx context.Context) *answer.Answer {
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
	if refused := x.checkListable(ctx); refused != nil {
		return refused
	}
	text := arguments.Text(problems)
	if err != nil {
		text = "The arguments cannot be held against the inputSchema of the tool: " + err.Error()
	}
	x.g.o.Logger.Info("arguments do not fit", slog.Group("", "tool", x.tool.Name, "server", x.tool.Server), "problems", len(problems), "costly", errors.Is(err, arguments.ErrCostly), "principal", x.Who.Key)
	return &answer.Answer{Message: x.Client.Result(x.Request.Method, answer.ToolError(text).Value()), Status: http.StatusOK, Outcome: answer.Unusable}
}

// checkListable refuses a caller that may not list the tool, with the same refusal as for any other arguments.
func (x exchange) checkListable(ctx context.Context) *answer.Answer {
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

// findAgain finds the tool in the list that the server has for the principal. It reports whether the tool differs, so that the
// PDP must decide again. A call that fulfils a request is of the requested tool alone.
func (x exchange) findAgain(ctx context.Context) (now Target, another bool, refused *answer.Answer) {
	if now, refused = x.findListed(ctx); refused != nil {
		return now, false, refused
	}
	another = now.tool.Digest != x.tool.Digest || now.tool.Pinned != x.tool.Pinned
	if another && x.fulfils != nil {
		refused = answer.Invalid("the tool is not the one that was requested any more")
	}
	return now, another, refused
}

// route finds the server of a request, and the called tool. A request for all servers keeps its target.
func (x exchange) route(ctx context.Context) (Target, *answer.Answer) {
	if x.Request.Method == wire.MethodToolRequest && !x.g.o.Asker.Requests() { // the method does not exist
		return x.Target, nil
	}
	s, kind := Route(x.g.servers.All(), x.Request.Method, x.Params)
	switch {
	case kind == "":
		return x.Target, nil
	case s != nil:
		x.link = x.Reach.To(s.Name)
	case kind == "tool":
		return x.Target, answer.Refuse(ask.UnknownTool())
	default:
		code := rpc.InvalidParams
		if kind == "resource" && x.Client.Era == era.Legacy {
			code = era.ResourceNotFound
		}
		return x.Target, answer.New(ask.Unknown, code, "unknown "+kind, "no server has such a "+kind)
	}
	if kind == "tool" {
		return x.find(ctx)
	}
	return x.Target, nil
}

// Route returns the server of a request, by the tool, prompt, resource or reference that it names. Kind is "" if the request
// names none of them, and so is for all servers. S is nil if no server has such a name.
func Route(all []*link.Server, method string, params rpc.Object) (s *link.Server, kind string) {
	if ask.OfTool(method) {
		return serverByName(all, params), "tool"
	}
	switch method {
	case "prompts/get":
		return serverByName(all, params), "prompt"
	case "completion/complete":
		return serverOfRef(all, params.GetObject("ref")), "reference"
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return serverOfURI(all, params.GetString("uri")), "resource"
	}
	return nil, ""
}

// serverByName is the server in the name of a tool or prompt.
func serverByName(all []*link.Server, o rpc.Object) *link.Server {
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

// serverOfRef is the server of the reference that is to be completed.
func serverOfRef(all []*link.Server, ref rpc.Object) *link.Server {
	switch ref.GetString("type") {
	case "ref/prompt":
		return serverByName(all, ref)
	case "ref/resource":
		return serverOfURI(all, ref.GetString("uri"))
	}
	if len(all) == 1 {
		return all[0]
	}
	return nil
}

// serverOfURI is the server that owns a resource, nil if no server owns it.
func serverOfURI(all []*link.Server, uri string) *link.Server {
	if n := slices.IndexFunc(all, func(s *link.Server) bool { return s.Owns(uri) }); n >= 0 {
		return all[n]
	}
	return nil
}

// withServerNames returns the params with the server's own names instead of those that clients of several servers use. The
// other params stay the same.
func (x Target) withServerNames(params rpc.Object) rpc.Object {
	if !x.g.servers.Several() {
		return params
	}
	switch ref := params.GetObject("ref"); {
	case x.tool != nil:
		return params.With("name", rpc.String(x.tool.Name))
	case x.Request.Method == "prompts/get":
		return withPromptName(params)
	case x.Request.Method == "completion/complete" && ref.GetString("type") == "ref/prompt":
		return params.With("ref", withPromptName(ref).Value())
	}
	return params
}

func withPromptName(o rpc.Object) rpc.Object {
	_, name, _ := link.Apart(o.GetString("name"))
	return o.With("name", rpc.String(name))
}
