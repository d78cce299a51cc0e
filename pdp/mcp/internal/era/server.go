package era

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
)

// tasks is the extension, and the legacy capability, that we do not relay.
const tasks = "tasks"

// Own begins the names that are the gateway's, in _meta and in capabilities.
const Own = "io.policy-service/"

// Initialized is a server's description of itself, in the handshake or in server/discover, as the result of initialize.
// Version is the revision that is spoken with the client, and ours are the extensions of the gateway's, which no server has.
func Initialized(server jsontext.Value, e Era, version string, ours []string) (jsontext.Value, error) {
	o, err := rpc.ParseObject(server)
	if err != nil {
		return nil, err
	}
	info := ServerInfo(server, e)
	o = announced(ofServer(o, e), "experimental", ours).With("protocolVersion", rpc.String(version))
	if info == nil { // a handshake cannot do without
		info = jsontext.Value(`{"name":"unnamed","version":"0"}`)
	}
	return o.With("serverInfo", info).Value(), nil
}

// Discovered is the same as the result of server/discover. The revisions are ours, and the result may not be kept for long.
func Discovered(server jsontext.Value, e Era, ours []string) (jsontext.Value, error) {
	o, err := rpc.ParseObject(server)
	if err != nil {
		return nil, err
	}
	info := ServerInfo(server, e)
	o = announced(ofServer(o, e), "extensions", ours).Without(func(name string) bool { return name == "protocolVersion" || name == "serverInfo" })
	o = o.With("supportedVersions", texts(Versions()))
	m := rpc.Answer(rpc.ID{}, answerOf("server/discover", o, Legacy, Modern).Value())
	return WithServer(m, info).Result, nil
}

// ofServer are the members that the results of both have: capabilities without tasks, and none of the other era's own.
func ofServer(o rpc.Object, e Era) rpc.Object {
	o = answerOf("server/discover", o, e, Legacy)
	o = o.Without(func(name string) bool { return name == "supportedVersions" })
	return o.With("capabilities", capabilities(o.Get("capabilities")))
}

// capabilities are those of a server that its client gets.
func capabilities(v jsontext.Value) jsontext.Value {
	o, err := rpc.ParseObject(v)
	if err != nil {
		return jsontext.Value(`{}`)
	}
	less := o.Without(func(name string) bool { return name == tasks })
	extensions := less.GetObject("extensions")
	if fewer := extensions.Without(func(name string) bool { return name == MetaPrefix+tasks }); fewer.Len() < extensions.Len() {
		less = less.With("extensions", fewer.Value())
	}
	if less = WithoutOwn(less); same(less, o) {
		return v
	}
	return less.Value()
}

// WithoutOwn are capabilities without those of the gateway's own extensions, which neither a client nor a server may claim.
func WithoutOwn(capabilities rpc.Object) rpc.Object {
	for _, member := range []string{"extensions", "experimental"} {
		all := capabilities.GetObject(member)
		fewer := all.Without(func(name string) bool { return strings.HasPrefix(name, Own) })
		if fewer.Len() < all.Len() {
			capabilities = capabilities.With(member, fewer.Value())
		}
	}
	return capabilities
}

// announced are the capabilities that a client gets, with the extensions of the gateway's in a member of the capabilities.
func announced(o rpc.Object, member string, ours []string) rpc.Object {
	if len(ours) == 0 {
		return o
	}
	can := o.GetObject("capabilities")
	all := can.GetObject(member)
	for _, name := range ours {
		all = all.With(name, jsontext.Value(`{}`))
	}
	return o.With("capabilities", can.With(member, all.Value()).Value())
}

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
	switch {
	case same(changed, o):
	case changed.Len() == 0:
		m.Params = nil
	default:
		m.Params = changed.Value()
	}
	return m
}
