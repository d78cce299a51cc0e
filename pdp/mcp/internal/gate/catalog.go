package gate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/lock"
	"policy-service/pdp/mcp/wire"
)

// Nothing happens at a server for a principal that may do nothing there: no session is opened, no program started, no token
// exchanged, and nothing of the client reaches it. So the PDP decides by what is known of the server's tools from others.
//
// A call of a known tool is decided about as it is known. With a permit the session is opened and the server's tools are
// listed for this principal; if the tool is another one there, the PDP decides again. What is for no tool and no resource
// in particular is for the servers of which the principal may be permitted some use.

// catalog is what the gateway knows of a server's tools: those that are locked, and those that anybody was shown lately.
type catalog struct {
	mu    sync.Mutex
	file  *lock.File
	tools map[string]catalogTool // by the names that clients use
	until time.Time              // of the last listing; the zero time if there was none
}

type catalogTool struct {
	*tool
	until time.Time // zero for one that is locked
}

// catalogLife is how long a listing is known to others. A tool that is new since then is found by its name before.
const catalogLife = time.Minute

// learn notes what somebody was shown.
func (g *servers) learn(s *Server, all *listing) {
	k, now := &s.catalog, g.o.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if all.file != g.o.Lock.current() { // it was compared with another lock
		return
	}
	g.relock(s)
	k.until = now.Add(catalogLife)
	many := len(k.tools)+len(all.byName) > 2*mostTools // a server that lists others each time has no more of them kept
	maps.DeleteFunc(k.tools, func(_ string, t catalogTool) bool { return t.gone(now) || many && !t.until.IsZero() })
	for name, t := range all.byName {
		if old := k.tools[name]; old.tool == nil || !old.until.IsZero() {
			k.tools[name] = catalogTool{t, k.until}
		}
	}
}

func (t catalogTool) gone(now time.Time) bool { return !t.until.IsZero() && now.After(t.until) }

// relock begins with what is locked, also when that changes.
func (g *servers) relock(s *Server) {
	if k, locked := &s.catalog, g.o.Lock.current(); k.tools == nil || k.file != locked {
		k.file, k.tools, k.until = locked, g.lockedTools(s, locked), time.Time{}
	}
}

// knownOf is what is known of a server's tools, by the names that clients use. Listed is set if somebody was shown its tools.
func (g *servers) knownOf(s *Server) (tools map[string]*tool, listed bool) {
	k, now := &s.catalog, g.o.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	g.relock(s)
	tools = map[string]*tool{}
	for name, t := range k.tools {
		if !t.gone(now) {
			tools[name] = t.tool
		}
	}
	return tools, len(tools) > 0 || now.Before(k.until)
}

// knownTool is what is known of one tool, nil if that is nothing.
func (g *servers) knownTool(s *Server, name string) *tool {
	k := &s.catalog
	k.mu.Lock()
	defer k.mu.Unlock()
	g.relock(s)
	if t := k.tools[name]; t.tool != nil && !t.gone(g.o.Now()) {
		return t.tool
	}
	return nil
}

// lockedTools are those of the lock.
func (g *servers) lockedTools(s *Server, file *lock.File) map[string]catalogTool {
	all := map[string]catalogTool{}
	if file == nil || !g.o.Lock.Enforce { // what is not as it is locked is there all the same
		return all
	}
	in := newLocking(file)
	for name, locked := range file.Servers[s.Name].Tools {
		text := locked.Text()
		o, err := rpc.ParseObject(text)
		if err != nil || s.Hidden[name] {
			continue
		}
		shown := g.toolName(s, name)
		if t, err := g.compile(s, shown, o, text, &listing{locking: in}); err == nil {
			all[shown] = catalogTool{tool: t}
		}
	}
	return all
}

// shown is the tool that others were shown last by a name, so that equal ones are kept once.
func (k *catalog) shown(name string) *tool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tools[name].tool
}

// errClosed is of a server of which nothing may be permitted.
var errClosed = errors.New("the principal may be permitted nothing of the server")

// general are the methods whose permit is for no server in particular.
var general = map[string]bool{"initialize": true, "server/discover": true, "tools/list": true, "subscriptions/listen": true, "logging/setLevel": true}

// mayOpen is nil if a session may be opened with the server: the request is permitted and names something of it, or something
// of it may be permitted. Of a server of which nothing is known that is any permit, and without one that of a session.
func (x exchange) mayOpen(ctx context.Context) error {
	permitted := x.permit != nil
	if s, err := x.link.current(); s != nil || err != nil {
		return err
	}
	if x.g.ofOne() || permitted && (!general[x.request.Method] || x.wantsOwn()) {
		return nil
	}
	tools, listed := x.g.knownOf(x.link.server)
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
	case x.request.Method != "tools/list" && !ask.OfTool(x.request.Method): // what else it may have
		methods = []string{"prompts/list", "resources/list"}
	}
	if name := x.params.GetString("name"); ask.OfTool(x.request.Method) && tools[name] == nil {
		own := name
		if x.g.several() {
			_, own, _ = apart(name)
		}
		items = append(items, x.g.o.Asker.Named(x.link.server.Name, own, name))
	}
	op := x.operation()
	op.Tool = nil
	may, refused := x.g.o.Asker.MayUse(ctx, op, items, methods)
	if op.Method == "tools/list" && x.client.knows(toolRequests) && !may && refused == nil {
		op.Method = wire.MethodToolRequest
		may, refused = x.g.o.Asker.MayUse(ctx, op, items, nil)
	}
	x.g.health.asked(refused)
	switch {
	case refused != nil:
		return refuse(refused)
	case !may:
		return errClosed
	}
	return nil
}

// wantsOwn reports whether a listener wants to hear of a resource of the server.
func (x Target) wantsOwn() bool {
	return x.request.Method == "subscriptions/listen" && slices.ContainsFunc(wantsOf(x.params).uris, x.link.server.owns)
}

// decideKnown has the PDP decide about a call. A denial of a tool as others were shown it does not stand where the tool may be
// another one for this principal: if some definition of it could be permitted, the server is asked which it is. So it is before
// people are asked about the call: nobody approves a call of a server that is away.
func (x exchange) decideKnown(ctx context.Context, answered ask.Answered) (exchange, *Answer) {
	x, refused := x.ask(ctx, answered)
	if !x.unsettled || !refused.is(ask.Denied) {
		return x, refused
	}
	if refused.refusal.Wanted == nil {
		op := x.operation()
		op.Tool = nil
		may, unanswered := x.g.o.Asker.MayUse(ctx, op, []*ask.Tool{x.g.o.Asker.Named(x.tool.Server, x.tool.Name, x.tool.Shown)}, nil)
		if !may {
			return x, cmp.Or(refuse(unanswered), refused)
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
		return x, invalid("the arguments do not fit the tool as the server has it now; list the tools again")
	}
	return x.ask(ctx, answered)
}

// looksAgain finds the tool as the server shows it to the principal, and reports whether the PDP is asked something else about
// that.
func (x exchange) looksAgain(ctx context.Context) (now Target, another bool, refused *Answer) {
	if now, refused = x.findThere(ctx); refused != nil {
		return now, false, refused
	}
	return now, now.tool.Digest != x.tool.Digest || now.tool.pinned != x.tool.pinned, nil
}

// settle lists the tools of the server for the principal that may call one as it is known. If it is another one there, all is
// looked at again, and the PDP decides again.
func (x exchange) settle(ctx context.Context) (exchange, *Answer) {
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
		return x, invalid("the tool is not the one that was requested any more")
	}
	if end := x.fits(ctx); end != nil {
		return x, end
	}
	return x.ask(ctx, goesOn(x.permit))
}
