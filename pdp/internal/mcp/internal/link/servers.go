// Package link connects clients to the servers: it keeps sessions, lists tools, compares them with the lock, and reads the
// notifications and requests that servers send by themselves.
//
// [Servers] are all servers, a [Reach] connects one client to them, and a [Link] connects it to one of them. The package asks
// for no decision. A caller of [Link.Open], [Link.Send] or [Link.Listed] has asked before; listeners ask by
// [Listening.MayOpen].
package link

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/doors"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/rates"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
)

// Servers are the servers behind the gateway: their tools, the comparison with the lock, and the requests that the gateway
// sends itself.
type Servers struct {
	doors   *doors.Doors
	o       Options
	drifts  drifts
	schemas schemas
}

// Options configure the access to the servers.
type Options struct {
	All   []*Server
	Lock  Lock
	Asker *ask.Asker
	Rates *rates.Limiter
	// People bounds the requests of one person, across all clients. Nil sets no bound.
	People *rates.Limiter
	// Cache is the time for which a server's list of tools is kept.
	Cache  time.Duration
	Logger *slog.Logger
	Now    func() time.Time
}

// New returns the servers. None of them is connected yet.
func New(d *doors.Doors, o Options) *Servers {
	return &Servers{doors: d, o: o, drifts: drifts{now: o.Now}}
}

// Several reports whether there is more than one server.
func (g *Servers) Several() bool { return len(g.o.All) > 1 }

// Programs reports whether a server is a program that runs for one session.
func (g *Servers) Programs() bool {
	return slices.ContainsFunc(g.o.All, func(s *Server) bool { return s.Program })
}

// All returns the servers, sorted by name.
func (g *Servers) All() []*Server { return g.o.All }

// Names returns the names of all servers.
func (g *Servers) Names() (all []string) {
	for _, s := range g.o.All {
		all = append(all, s.Name)
	}
	return all
}

// Ready returns an error if the PDP or a server did not answer the last request, or if a server differs from the lock.
func (g *Servers) Ready() error {
	var errs []error
	if g.o.Asker.Away() {
		errs = append(errs, ask.ErrAway)
	}
	for _, s := range g.o.All {
		if !s.Answers() {
			errs = append(errs, fmt.Errorf("the MCP server %s did not answer the last request", s.Name))
		}
	}
	if g.o.Lock.File != nil {
		errs = append(errs, g.o.Lock.File.Err(), g.drifts.err())
	}
	return errors.Join(errs...)
}

// Close ends the upstreams of all servers at the same time.
func (g *Servers) Close() error {
	errs := make([]error, len(g.o.All))
	var all sync.WaitGroup
	for i, s := range g.o.All {
		all.Go(func() { errs[i] = s.Upstream.Close() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Server is an MCP server behind the gateway.
type Server struct {
	Name     string
	Upstream upstream.Upstream
	// Key is the server's place in the configuration.
	Key string
	// Labels are the operator's labels of tools, by the tools' own names.
	Labels map[string]map[string]string
	// Hidden are tools that the gateway leaves out.
	Hidden map[string]bool
	// Asks are the requests that the server may send to clients.
	Asks Relays
	// Params are the members of params that go on to the server, besides those of MCP.
	Params []string
	// Logger gets a line about each member of params that does not.
	Logger *slog.Logger
	// Dropped counts messages of the server that reached no client.
	Dropped func(reason string)
	// URIs are the prefixes of the server's resources; "" is a prefix of all.
	URIs []string
	// Idle is the time for which its program runs on after a client has closed the stream of its session; 0 is as long as the
	// session.
	Idle time.Duration
	// Program is set if each session has a process of its own.
	Program bool

	away    atomic.Bool // it did not answer the last request
	late    lateness
	catalog catalog
	noted   sync.Map // for each key, the *rate.Sometimes of log lines about refused requests
	leftOut leftOut
	// withheld is for the line that the server is told that clients take no questions.
	withheld sync.Once
}

// leftOut are the members of params that the log has said are left out.
type leftOut struct {
	mu    sync.Mutex
	names map[string]bool
}

// mostLeftOut is the number of members that the log names for one server: clients choose the names. mostLeftOutName is how
// much of a name it has, in bytes.
const (
	mostLeftOut     = 64
	mostLeftOutName = 64
)

// TakesParam reports whether the operator lets a member of params that MCP does not have go on to the server. If not, the
// first request with it is noted in the log.
func (s *Server) TakesParam(method, name string) bool {
	if slices.Contains(s.Params, name) {
		return true
	}
	name = strings.ToValidUTF8(name[:min(len(name), mostLeftOutName)], "")
	s.leftOut.mu.Lock()
	defer s.leftOut.mu.Unlock()
	said := len(s.leftOut.names)
	if s.leftOut.names[name] || said > mostLeftOut {
		return false
	}
	if s.leftOut.names == nil {
		s.leftOut.names = map[string]bool{}
	}
	s.leftOut.names[name] = true
	if said == mostLeftOut {
		s.Logger.Warn("members of params are left out, and the log names no more of them for this server", "server", s.Name)
		return false
	}
	s.Logger.Warn("a member of params is left out, because the client's revision of MCP does not have it; if the server needs it, name it in the key",
		"server", s.Name, "method", method, "member", name, "key", s.Key+".params")
	return false
}

// Answers reports whether the server answered the last request.
func (s *Server) Answers() bool { return !s.away.Load() }

// Sent notes the end of a request to the server.
func (s *Server) Sent(err error) {
	if !ofPerson(err) {
		s.away.Store(err != nil)
	}
}

// ofPerson reports whether an error says nothing about the server: its person has reached a limit, and nothing was sent.
func ofPerson(err error) bool {
	return errors.Is(err, upstream.ErrOwes) || errors.Is(err, upstream.ErrManyOfPerson)
}

// tried notes the end of a request of the gateway itself, unless its context has ended. An error that the server sent is an
// answer.
func (s *Server) tried(ctx context.Context, err error) {
	e := (*upstream.Error)(nil)
	if ctx.Err() == nil && !ofPerson(err) {
		s.away.Store(errors.As(err, &e) && e.Answer == nil)
	}
}

// Relays are the requests of a server that reach its clients.
type Relays struct {
	// May says for each capability that they need, as [capabilityOf] names it, whether the operator lets them through.
	May map[string]bool
	// Hosts are the hosts of the pages that a server may ask a person to open.
	Hosts []string
}

// With one server, clients use the server's own names. With several, a name for clients is the server's name, [between], and
// the server's own name for the thing. A server's name contains no [between] and does not end with half of one. So the
// server's name ends at the first [between], and two servers never share a name for clients.

const (
	// between separates a server's name from the name of its tool or prompt.
	between = "__"
	// mostName is the length of a tool's name that common clients accept.
	mostName = 64
	// digestSize is the number of bytes of the digest that keeps shortened names apart.
	digestSize = 4
)

// ToolName is the name for clients of a tool of one of several servers. A name that common clients would refuse is shortened:
// _ replaces the characters that they refuse, and a digest of the whole name follows.
func ToolName(server, tool string) string {
	name := server + between + tool
	if isPlain(name) {
		return name
	}
	sum := sha256.Sum256([]byte(server + ":" + tool))
	tail := "_" + hex.EncodeToString(sum[:digestSize])
	plain := strings.Map(func(r rune) rune {
		if isPlainRune(r) {
			return r
		}
		return '_'
	}, tool)
	return server + between + plain[:max(0, min(len(plain), mostName-len(tail)-len(server)-len(between)))] + tail
}

// PromptName is the name for clients of a prompt of one of several servers. People choose prompts, so any name will do.
func PromptName(server, prompt string) string { return server + between + prompt }

// Apart splits a name for clients into the server's name and the server's own name for the thing.
func Apart(name string) (server, rest string, ok bool) { return strings.Cut(name, between) }

func isPlain(name string) bool {
	return len(name) <= mostName && !strings.ContainsFunc(name, func(r rune) bool { return !isPlainRune(r) })
}

func isPlainRune(r rune) bool {
	return r < utf8.RuneSelf && (r == '_' || r == '-' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z')
}

// ToolName is the name for clients of a server's tool.
func (g *Servers) ToolName(server, tool string) string {
	if g.Several() {
		return ToolName(server, tool)
	}
	return tool
}

// alike maps names that people could confuse to one. With several servers or a lock those are names that differ only in case.
func (g *Servers) alike(name string) string {
	if g.Several() || g.o.Lock.File != nil {
		return strings.ToLower(name)
	}
	return name
}

// WithMeta returns o with another _meta, or without one if that is empty.
func WithMeta(o, meta rpc.Object) rpc.Object {
	if meta.Len() == 0 {
		return o.Without(func(name string) bool { return name == "_meta" })
	}
	return o.With("_meta", meta.Value())
}

// Outgoing returns params of a client with the members that the era of a server requires.
func (l *Link) Outgoing(s upstream.Session, c Client, params rpc.Object) rpc.Object {
	if c.Era == era.Legacy { // it sets its log level once
		l.mu.Lock()
		c.LogLevel = l.level
		l.mu.Unlock()
	}
	return outgoing(s.Era(), l.Server, c, params)
}

func outgoing(e era.Era, s *Server, c Client, params rpc.Object) rpc.Object {
	if e == era.Modern {
		return era.ToModern(params, era.Meta{Version: era.ModernVersions[0], Client: c.Info, Capabilities: s.able(c.Capabilities), LogLevel: c.LogLevel})
	}
	return params
}

// able returns the capabilities of a client for a server, without those that the server may not use. It removes the
// extensions between the client and this gateway, because a gateway behind this one would take them for its own.
func (s *Server) able(capabilities jsontext.Value) jsontext.Value {
	o, _ := rpc.ParseObject(capabilities)
	return era.WithoutOwn(o).Without(func(name string) bool {
		switch name {
		case "elicitation", "sampling", "roots":
			return !s.Asks.May[name]
		}
		return name == "tasks"
	}).Value()
}

// noteWithheld writes one line for each server that is told that clients take no questions, because the configuration refuses
// them: the server then blames the client.
func (g *Servers) noteWithheld(s *Server, c Client) {
	const key = "server_requests.elicitation"
	if o, _ := rpc.ParseObject(c.Capabilities); s.Asks.May["elicitation"] || o.Get("elicitation").Kind() != '{' {
		return
	}
	s.withheld.Do(func() {
		g.o.Logger.Info("clients take questions for their people, and the server is told that they take none, because the configuration refuses them", "server", s.Name, "key", s.Key+"."+key)
	})
}

// Client is the client's description of itself: sent once in the legacy era, with each request in the modern era.
type Client struct {
	Era                era.Era
	Version            string
	Info, Capabilities jsontext.Value
	// LogLevel is the lowest level of a server's log messages that the client wants, "" for none.
	LogLevel string
}

// Kept returns a copy of the client that holds nothing of the request that described it.
func (c Client) Kept() Client {
	c.Info, c.Capabilities = c.Info.Clone(), c.Capabilities.Clone()
	return c
}

// Result returns a result of the gateway's own for a method, in the form of the client's era.
func (c Client) Result(method string, result jsontext.Value) rpc.Message {
	return era.Response(method, rpc.Answer(rpc.ID{}, result), era.Legacy, c.Era)
}

// Knows reports whether a client has declared an extension, in one of the ways of its era.
func (c Client) Knows(extension string) bool {
	o, _ := rpc.ParseObject(c.Capabilities)
	return o.GetObject("extensions").Get(extension).Kind() == '{' || o.GetObject("experimental").Get(extension).Kind() == '{'
}

// SpeaksMCPx reports whether a client has declared an extension with messages of the gateway's own.
func (c Client) SpeaksMCPx() bool { return c.Knows(era.Authorizations) || c.Knows(era.ToolRequests) }

// NeedsLevel reports whether a server has a log and must get a level to send as much of it.
func (l *Link) NeedsLevel(s upstream.Session, level string) bool {
	server, _ := rpc.ParseObject(s.Server())
	l.mu.Lock()
	defer l.mu.Unlock()
	told := slices.Index(era.LogLevels, l.level)
	return server.GetObject("capabilities").Get("logging") != nil && (l.leveled != s || told < 0 || told > slices.Index(era.LogLevels, level))
}

func (l *Link) SetSessionLevel(s upstream.Session, level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leveled, l.level = s, level
}
