package era

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/rpc"
)

// tasks is the extension, and the legacy capability, that we do not relay.
const tasks = "tasks"

// Own begins the names that are the gateway's, in _meta and in capabilities.
const Own = "io.policy-service/"

// What the gateway can beside its servers, as it says and as clients say that they know of it.
const (
	// Authorizations are that people hear of what waits for them, and decide by messages.
	Authorizations = Own + "authorization"
	// ToolRequests are that an agent asks others to call a tool.
	ToolRequests = Own + "tool-requests"
	// Capabilities are that an agent asks for capabilities.
	Capabilities = Own + "capabilities"
)

// MetaTool is the member of a tool's _meta in which the gateway describes capabilities for the tool.
const MetaTool = Own + "tool"

// Initialized is a server's description of itself, in the handshake or in server/discover, as the result of initialize.
// Version is the revision that is spoken with the client, and ours are the extensions of the gateway's, which no server has.
func Initialized(server jsontext.Value, e Era, version string, ours rpc.Object) (jsontext.Value, error) {
	o, info, err := described(server, e, "experimental", ours)
	if err != nil {
		return nil, err
	}
	if info == nil { // a handshake cannot do without
		info = jsontext.Value(`{"name":"unnamed","version":"0"}`)
	}
	return o.With("protocolVersion", rpc.String(version)).With("serverInfo", info).Value(), nil
}

// Discovered is the same as the result of server/discover. The revisions are ours, and the result may not be kept for long.
func Discovered(server jsontext.Value, e Era, ours rpc.Object) (jsontext.Value, error) {
	o, info, err := described(server, e, "extensions", ours)
	if err != nil {
		return nil, err
	}
	o = o.Without(func(name string) bool { return name == "protocolVersion" || name == "serverInfo" })
	o = o.With("supportedVersions", rpc.Strings(Versions()))
	m := rpc.Answer(rpc.ID{}, answerOf("server/discover", o, Legacy, Modern).Value())
	return WithServer(m, info).Result, nil
}

// described are the members that the results of both have, and the server's name. Capabilities are without tasks, and have the
// extensions of the gateway's in a member; no member is of one era alone.
func described(server jsontext.Value, e Era, member string, ours rpc.Object) (o rpc.Object, info jsontext.Value, err error) {
	if o, err = rpc.ParseObject(server); err == nil {
		o, err = rpc.ParseObject(WithoutOwnMeta(server))
	}
	if err != nil {
		return o, nil, err
	}
	o = answerOf("server/discover", o, e, Legacy).Without(func(name string) bool { return name == "supportedVersions" })
	o = o.With("capabilities", capabilities(o.Get("capabilities")))
	if ours.Len() > 0 {
		can := o.GetObject("capabilities")
		all := can.GetObject(member).And(ours) // the server has none of these names left
		o = o.With("capabilities", can.With(member, all.Value()).Value())
	}
	return o, ServerInfo(server, e), nil
}

func capabilities(v jsontext.Value) jsontext.Value {
	o, err := rpc.ParseObject(v)
	if err != nil {
		return jsontext.Value(`{}`)
	}
	less := o.Without(func(name string) bool { return name == tasks })
	less = withoutIn(less, "extensions", func(name string) bool { return name == MetaPrefix+tasks })
	return WithoutOwn(less).Text()
}

// withoutIn is o without some members of the object that a member is.
func withoutIn(o rpc.Object, member string, drop func(name string) bool) rpc.Object {
	inner := o.GetObject(member)
	if less := inner.Without(drop); less.Len() < inner.Len() {
		return o.With(member, less.Value())
	}
	return o
}

// WithoutOwn are capabilities without those of the gateway's own extensions, which neither a client nor a server may claim.
func WithoutOwn(capabilities rpc.Object) rpc.Object {
	for _, member := range []string{"extensions", "experimental"} {
		capabilities = withoutIn(capabilities, member, isOwn)
	}
	return capabilities
}

func isOwn(name string) bool { return strings.HasPrefix(name, Own) }

// WithoutOwnMeta returns what a server sends without the gateway's own names in _meta, at any depth: in the result itself, and
// in each content, tool and resource within it. Clients take these names for the gateway's word.
func WithoutOwnMeta(v jsontext.Value) jsontext.Value { return rpc.WithoutInMeta(v, Own) }

// ServerInfo is the name and version that a server gave in the handshake, or in server/discover; nil if it gave none.
func ServerInfo(server jsontext.Value, e Era) jsontext.Value {
	o, _ := rpc.ParseObject(server)
	info := o.Get("serverInfo")
	if e == Modern {
		info = o.GetObject("_meta").Get(MetaServer)
	}
	if info.Kind() != '{' {
		return nil
	}
	return info
}

// WithServer is a response that says, as modern ones do, whose it is, if its server has not said so.
func WithServer(m rpc.Message, info jsontext.Value) rpc.Message {
	if info == nil {
		return m
	}
	o, err := m.ResultObject()
	meta, err2 := o.Object("_meta")
	if err != nil || err2 != nil && o.Get("_meta") != nil || meta.Get(MetaServer) != nil {
		return m
	}
	m.Result = o.With("_meta", meta.With(MetaServer, info).Value()).Value()
	return m
}

// Notification is a notification of a server as a client gets it. Id is that of the request by which a modern client
// listens, and zero for one that belongs to another request.
func Notification(m rpc.Message, from, to Era, id rpc.ID) rpc.Message {
	o, err := m.ParamsObject()
	if err != nil && m.Params != nil {
		return m
	}
	changed := ofOneHop(o, from, to)
	if to == Modern && !id.IsZero() {
		changed = changed.With("_meta", changed.GetObject("_meta").With(MetaSubscription, id.Text()).Value())
	}
	if !changed.Is(m.Params) {
		m.Params = changed.Params()
	}
	return m
}

// Meta describes a modern request and its client.
type Meta struct {
	Version string
	// LogLevel is from which level on the client wants log messages of this request, "" for none.
	LogLevel string
	// Client is nil if the client does not name itself. Capabilities is an object, nil on the way to a server that is shown none.
	Client, Capabilities jsontext.Value
}

// protocolKeys are the members of _meta that are of one hop: the sender of a message writes them.
var protocolKeys = []string{MetaVersion, MetaClient, MetaCapabilities, MetaLogLevel, MetaServer, MetaSubscription}

// LogLevels are sorted from the most messages to the fewest.
var LogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

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
	case !slices.Contains(ModernVersions, m.Version):
		return m, Unsupported(m.Version)
	case m.Capabilities.Kind() != '{':
		return m, invalid(MetaCapabilities + " in params._meta is missing, or no object")
	case !IsClientInfo(m.Client):
		return m, invalid(MetaClient + " in params._meta is no object with the strings name and version")
	case len(m.Client)+len(m.Capabilities) > mostSaid:
		return m, invalid(MetaClient + " and " + MetaCapabilities + " in params._meta are too large")
	case meta.Get(MetaLogLevel) != nil && !slices.Contains(LogLevels, m.LogLevel):
		return m, invalid(MetaLogLevel + " in params._meta is no log level")
	}
	return m, nil
}

// IsClientInfo reports whether info is missing, or names a client as MCP has it. Servers refuse a handshake with any other, as
// they refuse one of an era that they do not speak.
func IsClientInfo(info jsontext.Value) bool {
	if info == nil {
		return true
	}
	o, err := rpc.ParseObject(info)
	return err == nil && o.Get("name").Kind() == '"' && o.Get("version").Kind() == '"'
}

func invalid(text string) *rpc.Error { return &rpc.Error{Code: rpc.InvalidParams, Message: text} }

// ToModern is params with the members that describe a modern request, in the place of those they had.
func ToModern(params rpc.Object, m Meta) rpc.Object {
	meta := params.GetObject("_meta").Without(func(name string) bool { return slices.Contains(protocolKeys, name) })
	meta = meta.With(MetaVersion, rpc.String(m.Version))
	if m.Client != nil {
		meta = meta.With(MetaClient, m.Client)
	}
	if m.Capabilities == nil {
		m.Capabilities = jsontext.Value(`{}`)
	}
	meta = meta.With(MetaCapabilities, m.Capabilities).WithText(MetaLogLevel, m.LogLevel)
	return params.With("_meta", meta.Value())
}

// ofOneHop is a result, or params of a notification, without the members that a server says to its own client alone. Within
// an era that is by which subscription a message comes.
func ofOneHop(o rpc.Object, from, to Era) rpc.Object {
	return withoutMeta(o, func(name string) bool {
		return name == MetaSubscription || from != to && slices.Contains(protocolKeys, name)
	})
}

// withoutMeta is o without some members of its _meta, or without it if none is left. A _meta that is no object stays: it has one reading.
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
