package gate

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// wants is what a listener wants to hear.
type wants struct {
	tools, prompts, resources bool
	uris                      []string
}

func wantsOf(params rpc.Object) (w wants) {
	o, _ := rpc.ParseObject(params.Get("notifications"))
	yes := func(name string) bool { return o.Get(name).Kind() == 't' }
	w.tools, w.prompts, w.resources = yes("toolsListChanged"), yes("promptsListChanged"), yes("resourcesListChanged")
	uris, _ := rpc.Elements(o.Get("resourceSubscriptions"))
	for _, v := range uris {
		if len(w.uris) > mostSubscriptions {
			break // they are too many
		}
		if s, err := jsontext.AppendUnquote(nil, v); err == nil && v.Kind() == '"' && !slices.Contains(w.uris, string(s)) {
			w.uris = append(w.uris, string(s))
		}
	}
	return w
}

// told are w as far as a server of the legacy era says that it tells of such things.
func (w wants) told(s upstream.Session) wants {
	server, _ := rpc.ParseObject(s.Server())
	can := server.GetObject("capabilities")
	yes := func(of, name string) bool { return can.GetObject(of).Get(name).Kind() == 't' }
	w.tools = w.tools && yes("tools", "listChanged")
	w.prompts = w.prompts && yes("prompts", "listChanged")
	w.resources = w.resources && yes("resources", "listChanged")
	if !yes("resources", "subscribe") {
		w.uris = nil
	}
	return w
}

// withoutWords is what says that something has changed, and no more than what. It is not ok for anything else.
func withoutWords(m rpc.Message) (rpc.Message, bool) {
	var params jsontext.Value
	switch m.Method {
	case toolsChanged, promptsChanged, resourcesChanged:
	case resourceUpdated:
		said, err := rpc.ParseObject(m.Params)
		if err != nil {
			return m, false
		}
		params = rpc.Object{}.With("uri", rpc.String(said.GetString("uri"))).Value()
	default:
		return m, false
	}
	return rpc.Message{Method: m.Method, Params: params}, true
}

func (w wants) hear(m rpc.Message) bool {
	switch m.Method {
	case toolsChanged:
		return w.tools
	case promptsChanged:
		return w.prompts
	case resourcesChanged:
		return w.resources
	case resourceUpdated:
		params, _ := rpc.ParseObject(m.Params)
		return slices.Contains(w.uris, params.GetString("uri"))
	}
	return false
}

// value is the filter in JSON.
func (w wants) value() jsontext.Value {
	o := rpc.Object{}
	for _, v := range []struct {
		name string
		on   bool
	}{{"toolsListChanged", w.tools}, {"promptsListChanged", w.prompts}, {"resourcesListChanged", w.resources}} {
		if v.on {
			o = o.With(v.name, jsontext.Value("true"))
		}
	}
	if len(w.uris) > 0 {
		o = o.With("resourceSubscriptions", texts(w.uris))
	}
	return o.Value()
}

// and is what both want.
func (w wants) and(v wants) wants {
	uris := slices.DeleteFunc(slices.Clone(w.uris), func(uri string) bool { return !slices.Contains(v.uris, uri) })
	return wants{w.tools && v.tools, w.prompts && v.prompts, w.resources && v.resources, uris}
}

// or is what one or the other wants.
func (w wants) or(v wants) wants {
	uris := slices.Clone(w.uris)
	for _, uri := range v.uris {
		if !slices.Contains(uris, uri) {
			uris = append(uris, uri)
		}
	}
	return wants{w.tools || v.tools, w.prompts || v.prompts, w.resources || v.resources, uris}
}
