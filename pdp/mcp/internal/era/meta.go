package era

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
)

// Meta describes a modern request and its client.
type Meta struct {
	Version string
	// LogLevel is from which level on the client wants log messages of this request, "" for none.
	LogLevel string
	// Client is nil if the client does not name itself. Capabilities is an object.
	Client, Capabilities jsontext.Value
}

// protocolKeys are the members of _meta that are of one hop: the sender of a message writes them.
var protocolKeys = []string{MetaVersion, MetaClient, MetaCapabilities, MetaLogLevel, MetaServer, MetaSubscription}

var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// mostSaid is how much a client may say of itself with each request, in bytes: it is kept as long as some come.
const mostSaid = 16 << 10

// ReadMeta reads the _meta of a modern request. Over HTTP the status of the error is 400.
func ReadMeta(params rpc.Object) (Meta, *rpc.Error) {
	meta, err := params.Object("_meta")
	if err != nil {
		return Meta{}, invalid("params._meta is missing, or no object: each request of this revision says what it is there")
	}
	m := Meta{
		Version:      meta.GetString(MetaVersion),
		LogLevel:     meta.GetString(MetaLogLevel),
		Client:       meta.Get(MetaClient),
		Capabilities: meta.Get(MetaCapabilities),
	}
	switch {
	case m.Version == "":
		return m, invalid(MetaVersion + " in params._meta is missing, or no string")
	case m.Capabilities.Kind() != '{':
		return m, invalid(MetaCapabilities + " in params._meta is missing, or no object")
	case m.Client != nil && m.Client.Kind() != '{':
		return m, invalid(MetaClient + " in params._meta is no object")
	case len(m.Client)+len(m.Capabilities) > mostSaid:
		return m, invalid(MetaClient + " and " + MetaCapabilities + " in params._meta are too large")
	case meta.Get(MetaLogLevel) != nil && !slices.Contains(logLevels, m.LogLevel):
		return m, invalid(MetaLogLevel + " in params._meta is no log level")
	}
	return m, nil
}

func invalid(text string) *rpc.Error { return &rpc.Error{Code: rpc.InvalidParams, Message: text} }

// Client describes the client to a modern server, in each request.
type Client struct {
	Version string
	// Info may be nil, and so may Capabilities: then the client has none.
	Info, Capabilities jsontext.Value
	LogLevel           string
}

// ToModern is params with the members that describe a modern request, in the place of those they had.
func ToModern(params rpc.Object, c Client) rpc.Object {
	meta := params.GetObject("_meta").Without(func(name string) bool { return slices.Contains(protocolKeys, name) })
	meta = meta.With(MetaVersion, rpc.String(c.Version))
	if c.Info != nil {
		meta = meta.With(MetaClient, c.Info)
	}
	if c.Capabilities == nil {
		c.Capabilities = jsontext.Value(`{}`)
	}
	meta = meta.With(MetaCapabilities, c.Capabilities)
	if c.LogLevel != "" {
		meta = meta.With(MetaLogLevel, rpc.String(c.LogLevel))
	}
	return params.With("_meta", meta.Value())
}

// ofOneHop is a result, or params of a notification, without the members that a server says to its own client alone. Within
// an era that is by which subscription a message comes.
func ofOneHop(o rpc.Object, from, to Era) rpc.Object {
	return withoutMeta(o, func(name string) bool {
		return name == MetaSubscription || from != to && slices.Contains(protocolKeys, name)
	})
}

// withoutMeta is o without some members of its _meta, and without _meta if that leaves none. A _meta that is no object has
// one reading, and stays.
func withoutMeta(o rpc.Object, drop func(name string) bool) rpc.Object {
	meta, err := o.Object("_meta")
	if err != nil {
		return o
	}
	less := meta.Without(drop)
	switch {
	case less.Len() == meta.Len():
		return o
	case less.Len() == 0:
		return o.Without(func(name string) bool { return name == "_meta" })
	}
	return o.With("_meta", less.Value())
}

// objectOf is a value that is an object, the empty one if it is none.
func objectOf(v jsontext.Value) rpc.Object {
	o, _ := rpc.ParseObject(v)
	return o
}

func texts(all []string) jsontext.Value {
	values := make([]jsontext.Value, len(all))
	for i, s := range all {
		values[i] = rpc.String(s)
	}
	return rpc.Array(values)
}
