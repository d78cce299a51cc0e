package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/turn"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/mcp/lock"
)

// A server's tools are listed for each link apart: a server may show one client what it does not show another, and what a
// call is asked about is what this client was shown.
const (
	mostTools = 1000
	mostPages = 100
	// mostListing is the size of all their definitions in bytes.
	mostListing = 16 << 20
)

// toolbox holds the tools of a server as one client is shown them.
type toolbox struct {
	mu      sync.Mutex
	listed  *Listing
	until   time.Time
	loading turn.Turn
	loads   turn.Errand[*Listing]
	// version counts what made the listing old, so that one that was begun before is not kept.
	version int
	drifts  sightings
}

// Listing is one answer to tools/list, of all pages. It is not changed once it is made.
type Listing struct {
	Tools  []*Tool          // in the server's order
	ByName map[string]*Tool // by the names that clients use
	taken  map[string]*Tool // by what is alike for them, nil for one that is left out
	Rest   rpc.Object       // the other members of the result
	Of     upstream.Session
	locking
	// nameless is how many tools are left out because they have no name.
	nameless int
}

func (t *toolbox) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.version++
	t.listed = nil
}

// Listed is the listing of the server. One of several servers goes on listing when no request waits for it any longer, and may
// have no tools.
func (l *Link) Listed(ctx context.Context, who *identity.Principal, c Client) (*Listing, error) {
	g := l.of
	list := func(ctx context.Context) (*Listing, error) { return g.list(ctx, l, who, c) }
	if !g.Several() {
		return list(ctx)
	}
	if listed, _, _ := l.tools.fresh(g.o.Now(), g.o.Lock.current()); listed != nil {
		return listed, nil
	}
	s, err := l.Opened(ctx, who)
	if err != nil {
		return nil, err
	}
	if !Offers(s, "tools") {
		return &Listing{Of: s}, nil
	}
	load := func(ctx context.Context) (*Listing, error) {
		listed, err := list(ctx)
		if err == nil {
			l.answered("tools/list")
		}
		return listed, err
	}
	listed, joined, err := sendOff(ctx, g, who, &l.tools.loads, load)
	if joined && err == nil && !l.tools.holds(listed, g.o.Lock.current()) { // it was begun before we came, and is old
		listed, _, err = sendOff(ctx, g, who, &l.tools.loads, load)
	}
	return listed, err
}

// Offers reports whether a server says that it has a capability.
func Offers(s upstream.Session, capability string) bool {
	server, _ := rpc.ParseObject(s.Server())
	return server.GetObject("capabilities").Get(capability).Kind() == '{'
}

// list is the listing, no older than the gateway's setting. At most one is made at a time.
func (g *Servers) list(ctx context.Context, l *Link, who *identity.Principal, c Client) (*Listing, error) {
	t := &l.tools
	locked := g.o.Lock.current()
	if listed, _, _ := t.fresh(g.o.Now(), locked); listed != nil {
		return listed, nil
	}
	if err := t.loading.Take(ctx); err != nil {
		return nil, &upstream.Error{Detail: "the client has gone", Err: err}
	}
	defer t.loading.Leave()
	listed, before, version := t.fresh(g.o.Now(), locked)
	if listed != nil { // somebody had the turn before
		return listed, nil
	}
	listed, err := g.fetch(ctx, l, who, c, locked, before)
	l.Server.tried(ctx, err)
	if err == nil {
		g.compare(l, listed)
		g.learn(l.Server, listed)
		t.keep(listed, version, g.o.Now().Add(g.o.Cache))
	}
	return listed, err
}

// fresh is the listing if it is not too old and was compared with what is locked, and otherwise the one before it.
func (t *toolbox) fresh(now time.Time, locked *lock.File) (listed, before *Listing, version int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listed != nil && now.Before(t.until) && t.listed.file == locked {
		return t.listed, nil, t.version
	}
	return nil, t.listed, t.version
}

// holds reports whether a listing was kept, and compared with what is locked.
func (t *toolbox) holds(l *Listing, locked *lock.File) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.listed == l && l.file == locked
}

// keep keeps a listing, unless it was begun before something changed.
func (t *toolbox) keep(l *Listing, version int, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if version == t.version {
		t.listed, t.until = l, until
	}
}

// fetch lists all tools. What has not changed since before is not compiled again.
func (g *Servers) fetch(ctx context.Context, l *Link, who *identity.Principal, c Client, locked *lock.File, before *Listing) (*Listing, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	all := &Listing{ByName: map[string]*Tool{}, taken: map[string]*Tool{}, locking: newLocking(locked)}
	cursor, size := "", 0
	for page := 0; ; page++ {
		if page == mostPages {
			return nil, fmt.Errorf("the server lists its tools on more than %d pages", mostPages)
		}
		var params rpc.Object
		if cursor != "" {
			params = params.With("cursor", rpc.String(cursor))
		}
		response, of, err := l.Request(ctx, who, c, "tools/list", params)
		if err != nil {
			return nil, err
		}
		result, err := response.ResultObject()
		if err != nil {
			return nil, errors.New("the server does not list its tools")
		}
		definitions, err := rpc.Elements(result.Get("tools"))
		if err != nil {
			return nil, errors.New("the server's list of tools is no list")
		}
		if page == 0 {
			all.Of = of
			all.Rest = result.Without(func(name string) bool { return name == "nextCursor" })
		}
		if size += len(response.Result); len(all.Tools)+len(definitions) > mostTools || size > mostListing {
			return nil, fmt.Errorf("the server lists more than %d tools, or more than %d bytes of them", mostTools, mostListing)
		}
		for _, d := range definitions {
			g.add(all, l.Server, d, before)
		}
		next := result.GetString("nextCursor")
		if next == "" || next == cursor {
			if all.nameless > 0 {
				g.o.Logger.Warn("tools are left out: they have no name", "server", l.Server.Name, "tools", all.nameless)
			}
			return all, nil
		}
		cursor = next
	}
}

// add adds a tool to a listing. One that cannot be decided about is not there: it is neither listed nor callable. Of two by
// one name it is not known which is called, and neither is there.
func (g *Servers) add(all *Listing, s *Server, definition jsontext.Value, before *Listing) {
	o, err := rpc.ParseObject(definition)
	name := o.GetString("name")
	if err != nil || name == "" {
		all.nameless++
		return
	}
	if s.Hidden[name] { // it takes no other's name away
		return
	}
	shown := g.ToolName(s.Name, name)
	alike := g.alike(shown)
	if other, twice := all.taken[alike]; twice {
		g.o.Logger.Warn("a tool is left out: the server lists two by that name, or by names that clients could take for one", "server", s.Name, "tool", name)
		if other != nil {
			all.Tools = slices.DeleteFunc(all.Tools, func(t *Tool) bool { return t == other })
			delete(all.ByName, other.Shown)
			all.taken[alike] = nil
		}
		all.again(name, definition)
		return
	}
	t := before.compiledTool(name)
	if !t.is(definition, all) {
		t = s.catalog.shown(shown)
	}
	if !t.is(definition, all) {
		if t, err = g.compile(s, shown, o, definition, all); err != nil {
			g.o.Logger.Warn("a tool is left out", "server", s.Name, "tool", name, "why", err)
			all.taken[alike] = nil // and stays out, if another is listed by that name
			all.differs(definition)
			return
		}
	}
	if !all.admits(t, g.o.Lock) {
		all.taken[alike] = nil
		return
	}
	all.ByName[shown], all.taken[alike] = t, t
	all.Tools = append(all.Tools, t)
}

// compiledTool is a tool of a listing by the server's name, nil if there is none.
func (l *Listing) compiledTool(name string) *Tool {
	if l == nil {
		return nil
	}
	return l.compiled[name]
}

// is reports whether a tool is defined as it was, and locked or not as it was.
func (t *Tool) is(definition jsontext.Value, now *Listing) bool {
	return t != nil && bytes.Equal(t.Definition, definition) && t.Pinned == now.pins(t.Tool)
}

func (g *Servers) compile(s *Server, shown string, o rpc.Object, definition jsontext.Value, in *Listing) (*Tool, error) {
	t, err := g.o.Asker.Tool(s.Name, shown, definition, s.Labels[o.GetString("name")])
	if err != nil {
		return nil, err
	}
	if o.GetObject("execution").GetString("taskSupport") == "required" { // no call of it could be passed on
		return nil, errors.New("it can be called by tasks only, which the gateway does not pass on")
	}
	headers, err := era.HeaderParams(o.Get("inputSchema"))
	if err != nil {
		return nil, err
	}
	made := &Tool{Tool: t, Entry: t.Definition, Headers: headers, Pinned: in.pins(t)}
	if in.file != nil {
		made.Tool = t.Pinned(made.Pinned)
	}
	if shown != t.Name {
		made.Entry = o.With("name", rpc.String(shown)).Value()
	}
	if made.Pinned {
		made.Schema, err = g.o.Lock.schemas.of(in.file, s.Name, t.Name)
	}
	return made, err
}

// Request sends a request of the gateway's own, and waits for the response. Whatever comes before it is dropped.
func (l *Link) Request(ctx context.Context, who *identity.Principal, c Client, method string, params rpc.Object) (response rpc.Message, of upstream.Session, err error) {
	session, stream, err := l.Send(ctx, who, func(s upstream.Session) upstream.Request {
		return upstream.Request{Method: method, Params: outgoing(s.Era(), l.Server, c, params)}
	})
	if err != nil {
		return response, of, err
	}
	defer stream.Close()
	for {
		m, err := stream.Next()
		switch {
		case err != nil:
			return m, of, err
		case m.IsRequest():
			l.NotPassed(ctx, session, m, c.Era, &Unasked{Why: "the gateway itself sent " + method + ", and answers nothing"})
		case m.IsResponse():
			if e := era.Relayed(method, l.Server.Name, m, session.Era(), c.Era).Error; e != nil {
				return m, of, &upstream.Error{Detail: "the server answered " + method + " with an error, or with no result of that method", Answer: e}
			}
			return m, session, nil
		case IsChange(m.Method):
			l.Publish(Notification{m, session.Era()})
		}
	}
}

const listTimeout = 30 * time.Second

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
	*Tool
	until time.Time // zero for one that is locked
}

// catalogLife is how long a listing is known to others. A tool that is new since then is found by its name before.
const catalogLife = time.Minute

// learn notes what somebody was shown.
func (g *Servers) learn(s *Server, all *Listing) {
	k, now := &s.catalog, g.o.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if all.file != g.o.Lock.current() { // it was compared with another lock
		return
	}
	g.relock(s)
	k.until = now.Add(catalogLife)
	many := len(k.tools)+len(all.ByName) > 2*mostTools // a server that lists others each time has no more of them kept
	maps.DeleteFunc(k.tools, func(_ string, t catalogTool) bool { return t.gone(now) || many && !t.until.IsZero() })
	for name, t := range all.ByName {
		if old := k.tools[name]; old.Tool == nil || !old.until.IsZero() {
			k.tools[name] = catalogTool{t, k.until}
		}
	}
}

func (t catalogTool) gone(now time.Time) bool { return !t.until.IsZero() && now.After(t.until) }

// relock begins with what is locked, also when that changes.
func (g *Servers) relock(s *Server) {
	if k, locked := &s.catalog, g.o.Lock.current(); k.tools == nil || k.file != locked {
		k.file, k.tools, k.until = locked, g.lockedTools(s, locked), time.Time{}
	}
}

// KnownOf is what is known of a server's tools, by the names that clients use. Listed is set if somebody was shown its tools.
func (g *Servers) KnownOf(s *Server) (tools map[string]*Tool, listed bool) {
	k, now := &s.catalog, g.o.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	g.relock(s)
	tools = map[string]*Tool{}
	for name, t := range k.tools {
		if !t.gone(now) {
			tools[name] = t.Tool
		}
	}
	return tools, len(tools) > 0 || now.Before(k.until)
}

// KnownTool is what is known of one tool, nil if that is nothing.
func (g *Servers) KnownTool(s *Server, name string) *Tool {
	k := &s.catalog
	k.mu.Lock()
	defer k.mu.Unlock()
	g.relock(s)
	if t := k.tools[name]; t.Tool != nil && !t.gone(g.o.Now()) {
		return t.Tool
	}
	return nil
}

// lockedTools are those of the lock.
func (g *Servers) lockedTools(s *Server, file *lock.File) map[string]catalogTool {
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
		shown := g.ToolName(s.Name, name)
		if t, err := g.compile(s, shown, o, text, &Listing{locking: in}); err == nil {
			all[shown] = catalogTool{Tool: t}
		}
	}
	return all
}

// shown is the tool that others were shown last by a name, so that equal ones are kept once.
func (k *catalog) shown(name string) *Tool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tools[name].Tool
}

// ErrForbidden is of a server of which nothing may be permitted.
var ErrForbidden = errors.New("the principal may be permitted nothing of the server")
