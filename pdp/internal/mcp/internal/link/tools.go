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
	"golang.org/x/sync/semaphore"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/visible"
)

// Each link has its own listing of a server's tools. A server may show different tools to different clients, and a decision
// about a call is about the tool that this client was shown.
const (
	mostTools = 1000
	mostPages = 100
	// mostListing is the size of all their definitions in bytes.
	mostListing = 16 << 20
)

// toolbox holds the tools of a server as one client sees them.
type toolbox struct {
	mu      sync.Mutex
	listed  *Listing
	until   time.Time
	loading *semaphore.Weighted
	loads   errand[*Listing]
	// version counts the events that made a listing out of date. A listing that began before such an event is not kept.
	version int
	drifts  sightings
}

// Listing is one answer to tools/list, of all pages. It does not change once it is made.
type Listing struct {
	Tools  []*Tool          // in the server's order
	ByName map[string]*Tool // by the names for clients
	taken  map[string]*Tool // by alike; nil for a tool that is left out
	Rest   rpc.Object       // the other members of the result, around an empty list of tools
	Of     upstream.Session
	locking
	omitted Omissions
}

// LooksLikeAnother reports whether a person could take a tool for another one in the listing, by its name.
func (l *Listing) LooksLikeAnother(tool *Tool) bool {
	if l == nil || tool == nil {
		return false
	}
	var others []string
	for _, t := range l.Tools {
		if t.Name != tool.Name {
			others = append(others, t.Name)
		}
	}
	_, alike := visible.NewKnown(others).Like(tool.Name)
	return alike
}

func (t *toolbox) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.version++
	t.listed = nil
}

// sweep drops a listing that is out of date. It only saved the next one work, and its client may never want another.
func (t *toolbox) sweep(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !now.Before(t.until) {
		t.listed = nil
	}
}

// Listed returns the listing of the server. With several servers, listing goes on when no request waits for it any longer,
// and a server may have no tools.
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
	if joined && err == nil && !l.tools.holds(listed, g.o.Lock.current()) { // it began before this request, and is out of date
		listed, _, err = sendOff(ctx, g, who, &l.tools.loads, load)
	}
	return listed, err
}

// Offers reports whether a server declares a capability.
func Offers(s upstream.Session, capability string) bool {
	server, _ := rpc.ParseObject(s.Server())
	return server.GetObject("capabilities").Get(capability).Kind() == '{'
}

// list returns a listing that is no older than the gateway's setting. It makes one at a time.
func (g *Servers) list(ctx context.Context, l *Link, who *identity.Principal, c Client) (*Listing, error) {
	t := &l.tools
	locked := g.o.Lock.current()
	if listed, _, _ := t.fresh(g.o.Now(), locked); listed != nil {
		return listed, nil
	}
	if err := t.loading.Acquire(ctx, 1); err != nil {
		return nil, upstream.ClientGone(err)
	}
	defer t.loading.Release(1)
	listed, before, version := t.fresh(g.o.Now(), locked)
	if listed != nil { // another request has made it
		return listed, nil
	}
	listed, err := g.fetch(ctx, l, who, c, locked, before)
	l.Server.tried(ctx, err)
	if err == nil {
		g.compare(l, listed)
		g.learn(l.Server, l.client.Person, listed)
		t.keep(listed, version, g.o.Now().Add(g.o.Cache))
	}
	return listed, err
}

// fresh returns the listing if it is recent and was compared with this lock, and otherwise the listing before.
func (t *toolbox) fresh(now time.Time, locked *lock.File) (listed, before *Listing, version int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listed != nil && now.Before(t.until) && t.listed.file == locked {
		return t.listed, nil, t.version
	}
	return nil, t.listed, t.version
}

// holds reports whether a listing is the kept one, and was compared with this lock.
func (t *toolbox) holds(l *Listing, locked *lock.File) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.listed == l && l.file == locked
}

// keep keeps a listing, unless it is out of date already.
func (t *toolbox) keep(l *Listing, version int, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if version == t.version {
		t.listed, t.until = l, until
	}
}

// fetch lists all tools. Tools that are unchanged since before are not compiled again.
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
			rest := result.Without(func(name string) bool { return name == "nextCursor" }).With("tools", rpc.Array(nil))
			if all.Rest, err = rpc.ParseObject(rest.Value()); err != nil { // a copy: parts of the page would keep all of it
				return nil, err
			}
		}
		if size += len(response.Result); len(all.Tools)+len(definitions) > mostTools || size > mostListing {
			return nil, fmt.Errorf("the server lists more than %d tools, or more than %d bytes of them", mostTools, mostListing)
		}
		for _, d := range definitions {
			g.add(all, l.Server, d, before)
		}
		next := result.GetString("nextCursor")
		if next == "" || next == cursor {
			all.omitted.Log(g.o.Logger, l.Server.Name, "tools/list")
			return all, nil
		}
		cursor = next
	}
}

// add adds a tool to a listing. A tool that cannot be decided about is left out: it is neither listed nor callable. Of two
// tools with one name it is unknown which a call would reach, so both are left out.
func (g *Servers) add(all *Listing, s *Server, definition jsontext.Value, before *Listing) {
	o, err := rpc.ParseObject(definition)
	name := o.GetString("name")
	if err != nil || name == "" {
		all.omitted.Add("no name", "", err)
		return
	}
	if s.Hidden[name] { // its name stays free for another tool
		return
	}
	shown := g.ToolName(s.Name, name)
	alike := g.alike(shown)
	if other, twice := all.taken[alike]; twice {
		all.omitted.Add("two by one name, or by names that clients could take for one", name, nil)
		if other != nil {
			all.Tools = slices.DeleteFunc(all.Tools, func(t *Tool) bool { return t == other })
			delete(all.ByName, other.Shown)
			all.taken[alike] = nil
		}
		all.again(name, definition)
		return
	}
	var t *Tool
	if before != nil {
		t = before.compiled[name]
	}
	if !t.is(definition, all) {
		t = s.catalog.shown(shown)
	}
	if !t.is(definition, all) {
		if t, err = g.compile(s, shown, o, definition, all); err != nil {
			all.omitted.Add("unusable", name, err)
			all.taken[alike] = nil // another tool of this name is left out too
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

// is reports whether a tool has the same definition, and is still locked or still not locked.
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
	made := &Tool{Tool: t, Entry: era.WithoutOwnMeta(t.Definition), Headers: headers, Pinned: in.pins(t)}
	if in.file != nil {
		made.Tool = t.Pinned(made.Pinned)
	}
	if shown != t.Name {
		entry, err := rpc.ParseObject(made.Entry)
		if err != nil {
			return nil, err
		}
		made.Entry = entry.With("name", rpc.String(shown)).Value()
	}
	if made.Pinned {
		made.Schema, err = g.schema(in.file, s.Name, t.Name)
	}
	return made, err
}

// Request sends a request of the gateway's own, and waits for the response.
func (l *Link) Request(ctx context.Context, who *identity.Principal, c Client, method string, params rpc.Object) (response rpc.Message, of upstream.Session, err error) {
	if err := pay(ctx, 1); err != nil {
		return response, of, err
	}
	session, stream, err := l.Send(ctx, who, func(s upstream.Session) upstream.Request {
		return upstream.Request{Method: method, Params: outgoing(s.Era(), l.Server, c, params)}
	})
	if err != nil {
		return response, of, err
	}
	if response, err = l.response(ctx, session, stream, method, c.Era); err != nil {
		return response, of, err
	}
	if e := era.Relayed(method, l.Server.Name, response, session.Era(), c.Era).Error; e != nil {
		return response, of, &upstream.Error{Detail: "the server answered " + method + " with an error, or with no result of that method", Answer: e}
	}
	return response, session, nil
}

const listTimeout = 30 * time.Second

// The gateway does nothing at a server for a principal that may do nothing there. It opens no session, starts no program,
// exchanges no token, and sends nothing of the client. So the PDP decides by the tools that the gateway knows from the lock
// and from other principals.
//
// A call of a known tool is decided by its known definition. With a permit the session is opened and the server's tools are
// listed for this principal. If the tool differs there, the PDP decides again. A request for no particular tool or resource
// goes to the servers of which the PDP may permit the principal some use.

// catalog holds the known tools of a server: the locked ones, and those that any principal was shown lately.
type catalog struct {
	mu    sync.Mutex
	file  *lock.File
	tools map[string]catalogTool // by the names for clients
	until time.Time              // of the last listing; zero if there was none
	// changes counts the listings that changed tools.
	changes int
}

// Known stands for what is known of a server's tools. It changes with them, and with the lock.
type Known struct {
	file    *lock.File
	changes int
}

// Known returns what stands for the known tools of a server now.
func (g *Servers) Known(s *Server) Known {
	k := &s.catalog
	k.mu.Lock()
	defer k.mu.Unlock()
	g.relock(s)
	return Known{k.file, k.changes}
}

type catalogTool struct {
	*Tool
	until time.Time // zero for a locked tool
	by    string    // the account that alone was shown a tool of that name, "" if several were
}

// catalogLife is the time for which the catalog keeps a listing. A tool that is new since then is decided by its name first.
const catalogLife = time.Minute

// learn adds a listing for an account to the catalog.
func (g *Servers) learn(s *Server, account string, all *Listing) {
	k, now := &s.catalog, g.o.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if all.file != g.o.Lock.current() { // it was compared with another lock
		return
	}
	g.relock(s)
	changed := now.After(k.until) // nothing was known before
	k.until = now.Add(catalogLife)
	count := len(k.tools)
	maps.DeleteFunc(k.tools, func(_ string, t catalogTool) bool { return t.gone(now) })
	changed = changed || len(k.tools) != count
	for name, t := range all.ByName {
		if old := k.tools[name]; old.Tool == nil || !old.until.IsZero() {
			by := account
			if old.Tool != nil && old.by != by {
				by = ""
			}
			k.tools[name], changed = catalogTool{t, k.until, by}, changed || old.Tool != t
		}
	}
	changed = k.bound(account, all) || changed
	if changed {
		k.changes++
	}
}

// bound forgets tools of a server that lists other tools each time, and reports whether it did: first what the account was shown
// before the listing, so that nobody's clients push out what others were shown, and then what is more than an equal share.
func (k *catalog) bound(account string, all *Listing) (forgot bool) {
	counts, over := map[string]int{}, -2*mostTools
	for _, t := range k.tools {
		if !t.until.IsZero() {
			counts[t.by]++
			over++
		}
	}
	forget := func(whether func(string, catalogTool) bool) {
		maps.DeleteFunc(k.tools, func(name string, t catalogTool) bool {
			if over <= 0 || t.until.IsZero() || !whether(name, t) {
				return false
			}
			counts[t.by]--
			over--
			forgot = true
			return true
		})
	}
	forget(func(name string, t catalogTool) bool { return t.by == account && all.ByName[name] == nil })
	share := 2 * mostTools / max(1, len(counts))
	forget(func(_ string, t catalogTool) bool { return counts[t.by] > share })
	return forgot
}

func (t catalogTool) gone(now time.Time) bool { return !t.until.IsZero() && now.After(t.until) }

// relock starts the catalog with the locked tools, also when the lock changes.
func (g *Servers) relock(s *Server) {
	if k, locked := &s.catalog, g.o.Lock.current(); k.tools == nil || k.file != locked {
		k.file, k.tools, k.until = locked, g.lockedTools(s, locked), time.Time{}
	}
}

// KnownOf returns the known tools of a server, by the names for clients. Listed is set if any principal was shown its tools.
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

// KnownTool returns a known tool, nil if it is unknown. It copies nothing: a client may open a session for each call.
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

func (g *Servers) lockedTools(s *Server, file *lock.File) map[string]catalogTool {
	all := map[string]catalogTool{}
	if file == nil || !g.o.Lock.Enforce { // without Enforce, tools that differ from the lock are there, too
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

// shown returns the tool that was last shown under a name, so that equal tools are kept once.
func (k *catalog) shown(name string) *Tool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tools[name].Tool
}

// ErrForbidden is the error for a server of which the PDP permits the principal nothing.
var ErrForbidden = errors.New("the principal may be permitted nothing of the server")
