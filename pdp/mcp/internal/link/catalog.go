package link

import (
	"errors"
	"maps"
	"sync"
	"time"

	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/lock"
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
