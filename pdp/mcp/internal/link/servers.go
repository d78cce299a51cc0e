// Package link is the way to the servers: sessions with them, the tools that they list, how those differ from the lock, and what
// servers say and ask by themselves.
//
// [Servers] are all servers, a [Reach] is one client's way to them, and a [Link] its way to one. The package asks for no decision.
// A caller of [Link.Open], [Link.Send] or [Link.Listed] has asked before; listeners ask by [Listening.MayOpen].
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

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/doors"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rates"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/turn"
	"policy-service/pdp/mcp/internal/upstream"
)

// Servers are those behind the gateway: what they list, what of it is locked, and what is said to them that no client sends.
type Servers struct {
	doors  *doors.Doors
	o      Options
	drifts drifts
}

// Options are what servers are reached by.
type Options struct {
	All   []*Server
	Lock  Lock
	Asker *ask.Asker
	Rates *rates.Limiter
	// People bounds how often one person asks, by whatever clients. Nil is any number.
	People *rates.Limiter
	// Cache is how long a server's list of tools is kept.
	Cache  time.Duration
	Logger *slog.Logger
	Now    func() time.Time
}

// New are the servers, of which none is connected yet.
func New(d *doors.Doors, o Options) *Servers {
	o.Lock.schemas = &schemas{members: o.Lock.Arguments, logger: o.Logger}
	return &Servers{doors: d, o: o, drifts: drifts{now: o.Now}}
}

// Several reports whether there is more than one server.
func (g *Servers) Several() bool { return len(g.o.All) > 1 }

// All are the servers, sorted by their names.
func (g *Servers) All() []*Server { return g.o.All }

// Names are those of all servers.
func (g *Servers) Names() (all []string) {
	for _, s := range g.o.All {
		all = append(all, s.Name)
	}
	return all
}

// Ready reports what did not answer the last requests, and which servers are not as they are locked.
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

// Close ends the upstreams of all servers. Each takes its time.
func (g *Servers) Close() error {
	errs := make([]error, len(g.o.All))
	var all sync.WaitGroup
	for i, s := range g.o.All {
		all.Go(func() { errs[i] = s.Upstream.Close() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Errands are what requests of a principal have sent off: they count also if nobody waits for them any longer.
const Errands = "errands"

// sendOff has an errand done on the account of a principal, and waits for what it brings.
func sendOff[T any](ctx context.Context, g *Servers, who *identity.Principal, e *turn.Errand[T], what func(context.Context) (T, error)) (value T, joined bool, err error) {
	value, joined, err = e.Do(ctx, turn.Sender{
		Hold: func() (func(), bool) { return g.o.Rates.Hold(who.Key, Errands) },
		Context: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, expire := who.Context(ctx)
			stop := context.AfterFunc(g.doors.Context, expire)
			return ctx, func() {
				stop()
				expire()
			}
		},
		Background: g.doors.Background,
	}, what)
	switch {
	case errors.Is(err, turn.ErrMany):
		err = answer.Limited("", time.Second)
	case errors.Is(err, turn.ErrOver):
		err = ErrClosed
	case errors.Is(err, turn.ErrBroken):
		err = ErrBroken
	case errors.Is(err, turn.ErrAlone):
		err = &upstream.Error{Detail: "nobody waits for the server any longer", Err: ctx.Err()}
	}
	return value, joined, err
}

// Server is the MCP server as the gateway knows it.
type Server struct {
	Name     string
	Upstream upstream.Upstream
	// Key is what the server is called in the configuration.
	Key string
	// Labels are the operator's, of tools by their own names.
	Labels map[string]map[string]string
	// Hidden are tools that the gateway does not have.
	Hidden map[string]bool
	// Asks says what the server may ask of clients.
	Asks Relays
	// Dropped counts what came from the server and went nowhere.
	Dropped func(reason string)
	// URIs are how the resources begin that are the server's; "" begins all.
	URIs []string
	// Idle is how long its program runs on for a session whose client closed its stream; 0 is for as long as the session.
	Idle time.Duration
	// Program is set if each session has a process of its own.
	Program bool

	away    atomic.Bool // it did not answer when it was last asked
	late    lateness
	catalog catalog
	noted   noted
}

// Answers reports whether the server answered when it was last asked.
func (s *Server) Answers() bool { return !s.away.Load() }

// Sent notes how a request to the server ended.
func (s *Server) Sent(err error) { s.away.Store(err != nil) }

// tried notes how something ended that the gateway wanted of the server, unless it was given up. What the server answers with
// an error, it has answered.
func (s *Server) tried(ctx context.Context, err error) {
	e := (*upstream.Error)(nil)
	if ctx.Err() == nil {
		s.away.Store(errors.As(err, &e) && e.Answer == nil)
	}
}

// Relays says which requests of a server reach its clients.
type Relays struct {
	Elicitation, Sampling, Roots bool
	// Hosts are those that a URL may lead to which a server has a person open.
	Hosts []string
}

// With one server its names are the clients' names. With several a client sees the server's name, [between] and the
// server's own name for it. A server's name has no [between] in it, and does not end with half of it: so the first [between]
// is where it ends, and no server has a name for something that another has.

const (
	// between is what stands between a server's name and the name of what it has.
	between = "__"
	// mostName is how long a tool's name may be for the clients that people use.
	mostName = 64
	// digestSize is how many bytes of a digest tell shortened names apart.
	digestSize = 4
)

// ToolName is how clients call a tool of one of several servers. A name that common clients would not take is shortened:
// what they do not take in it becomes _, and a digest of the whole name is behind it.
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

// PromptName is how clients call a prompt of one of several servers. People choose prompts: any name will do.
func PromptName(server, prompt string) string { return server + between + prompt }

// Apart are the server's name in what a client calls something of one of several servers, and what stands behind it.
func Apart(name string) (server, rest string, ok bool) { return strings.Cut(name, between) }

func isPlain(name string) bool {
	return len(name) <= mostName && !strings.ContainsFunc(name, func(r rune) bool { return !isPlainRune(r) })
}

func isPlainRune(r rune) bool {
	return r < utf8.RuneSelf && (r == '_' || r == '-' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z')
}

// ToolName is how clients call a tool of a server's.
func (g *Servers) ToolName(server, tool string) string {
	if g.Several() {
		return ToolName(server, tool)
	}
	return tool
}

// alike is the same for names that people would take for one: with several servers or a lock that is what differs in case
// alone.
func (g *Servers) alike(name string) string {
	if g.Several() || g.o.Lock.File != nil {
		return strings.ToLower(name)
	}
	return name
}

// Owns reports whether a resource, or a template of some, is the server's. Where the operator says how the URIs begin, none
// leads elsewhere.
func (s *Server) Owns(uri string) bool {
	return slices.ContainsFunc(s.URIs, func(begin string) bool { return strings.HasPrefix(uri, begin) && (begin == "" || !climbs(uri)) })
}

// climbs reports whether a URI can be read as that of another place: it has a segment of dots, a backslash or a
// control character, as it is or escaped, once or again.
func climbs(uri string) bool {
	for range mostEscapes {
		if strings.ContainsFunc(uri, func(r rune) bool { return r == '\\' || r < ' ' || r == 0x7f }) {
			return true
		}
		for segment := range strings.FieldsFuncSeq(uri, func(r rune) bool { return strings.ContainsRune("/?#;", r) }) {
			if segment == "." || segment == ".." {
				return true
			}
		}
		plain := unescaped(uri)
		if plain == uri {
			return false
		}
		uri = plain
	}
	return true
}

const mostEscapes = 4

// unescaped is a URI with its escapes read, and other percent signs left.
func unescaped(uri string) string {
	var b strings.Builder
	for n := 0; n < len(uri); n++ {
		if uri[n] == '%' && n+2 < len(uri) {
			if c, err := hex.DecodeString(uri[n+1 : n+3]); err == nil {
				b.WriteByte(c[0])
				n += 2
				continue
			}
		}
		b.WriteByte(uri[n])
	}
	return b.String()
}

// WithMeta is o with another _meta, or without one if that is empty.
func WithMeta(o, meta rpc.Object) rpc.Object {
	if meta.Len() == 0 {
		return o.Without(func(name string) bool { return name == "_meta" })
	}
	return o.With("_meta", meta.Value())
}

// Outgoing are params of a client with what the era of a server wants in them.
func (l *Link) Outgoing(s upstream.Session, c Client, params rpc.Object) rpc.Object {
	if c.Era == era.Legacy { // which says once what it wants of logs
		c.LogLevel = l.level()
	}
	return outgoing(s.Era(), l.Server, c, params)
}

// outgoing are params with what the era of a server wants in them.
func outgoing(e era.Era, s *Server, c Client, params rpc.Object) rpc.Object {
	if e == era.Modern {
		return era.ToModern(params, era.Client{Version: era.ModernVersions[0], Info: c.Info, Capabilities: s.able(c.Capabilities), LogLevel: c.LogLevel})
	}
	return params
}

// able are the capabilities of a client as a server is told them: it is not to know of what it may not use. What is between the
// client and us another gateway behind us would take for its own.
func (s *Server) able(capabilities jsontext.Value) jsontext.Value {
	o, _ := rpc.ParseObject(capabilities)
	return era.WithoutOwn(o).Without(func(name string) bool {
		switch name {
		case "elicitation":
			return !s.Asks.Elicitation
		case "sampling":
			return !s.Asks.Sampling
		case "roots":
			return !s.Asks.Roots
		}
		return name == "tasks"
	}).Value()
}

// Client is what a client says of itself: once in the legacy era, with each request in the modern one.
type Client struct {
	Era                era.Era
	Version            string
	Info, Capabilities jsontext.Value
	// LogLevel is which messages of a server's log it wants, "" if none.
	LogLevel string
}

// Kept is a client without the request in which it says what it is.
func (c Client) Kept() Client {
	c.Info, c.Capabilities = c.Info.Clone(), c.Capabilities.Clone()
	return c
}

// SetSessionLevel is a result of the gateway's own for a method, as the client's era has it.
func (c Client) Result(method string, result jsontext.Value) rpc.Message {
	return era.Response(method, rpc.Answer(rpc.ID{}, result), era.Legacy, c.Era)
}

// Knows reports whether a client has said that it knows an extension, in whichever way its era has for that.
func (c Client) Knows(extension string) bool {
	o, _ := rpc.ParseObject(c.Capabilities)
	return o.GetObject("extensions").Get(extension).Kind() == '{' || o.GetObject("experimental").Get(extension).Kind() == '{'
}

// NeedsLevel reports whether a server has a log, and has not been told to say as much of it.
func (l *Link) NeedsLevel(s upstream.Session, level string) bool {
	server, _ := rpc.ParseObject(s.Server())
	l.mu.Lock()
	defer l.mu.Unlock()
	told := slices.Index(LogLevels, l.log.level)
	return server.GetObject("capabilities").Get("logging") != nil && (l.log.session != s || told < 0 || told > slices.Index(LogLevels, level))
}

func (l *Link) SetSessionLevel(s upstream.Session, level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log.session, l.log.level = s, level
}

// LogLevels are from the one that says most on.
var LogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
