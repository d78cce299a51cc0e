package link

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

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

// Says is a result of the gateway's own for a method, as the client's era has it.
func (c Client) Says(method string, result jsontext.Value) rpc.Message {
	return era.Response(method, rpc.Answer(rpc.ID{}, result), era.Legacy, c.Era)
}

// Knows reports whether a client has said that it knows an extension, in whichever way its era has for that.
func (c Client) Knows(extension string) bool {
	o, _ := rpc.ParseObject(c.Capabilities)
	return o.GetObject("extensions").Get(extension).Kind() == '{' || o.GetObject("experimental").Get(extension).Kind() == '{'
}

// SaysLess reports whether a server has a log, and has not been told to say as much of it.
func (l *Link) SaysLess(s upstream.Session, level string) bool {
	server, _ := rpc.ParseObject(s.Server())
	l.mu.Lock()
	defer l.mu.Unlock()
	told := slices.Index(LogLevels, l.log.level)
	return server.GetObject("capabilities").Get("logging") != nil && (l.log.told != s || told < 0 || told > slices.Index(LogLevels, level))
}

func (l *Link) Says(s upstream.Session, level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log.told, l.log.level = s, level
}

// LogLevels are from the one that says most on.
var LogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
