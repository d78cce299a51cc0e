package link

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// Wants is what a listener wants to hear.
type Wants struct {
	tools, prompts, resources bool
	URIs                      []string
}

func WantsOf(params rpc.Object) (w Wants) {
	o, _ := rpc.ParseObject(params.Get("notifications"))
	yes := func(name string) bool { return o.Get(name).Kind() == 't' }
	w.tools, w.prompts, w.resources = yes("toolsListChanged"), yes("promptsListChanged"), yes("resourcesListChanged")
	uris, _ := rpc.Elements(o.Get("resourceSubscriptions"))
	for _, v := range uris {
		if len(w.URIs) > mostSubscriptions {
			break // they are too many
		}
		if s, err := jsontext.AppendUnquote(nil, v); err == nil && v.Kind() == '"' && !slices.Contains(w.URIs, string(s)) {
			w.URIs = append(w.URIs, string(s))
		}
	}
	return w
}

// told are w as far as a server of the legacy era says that it tells of such things.
func (w Wants) told(s upstream.Session) Wants {
	server, _ := rpc.ParseObject(s.Server())
	can := server.GetObject("capabilities")
	yes := func(of, name string) bool { return can.GetObject(of).Get(name).Kind() == 't' }
	w.tools = w.tools && yes("tools", "listChanged")
	w.prompts = w.prompts && yes("prompts", "listChanged")
	w.resources = w.resources && yes("resources", "listChanged")
	if !yes("resources", "subscribe") {
		w.URIs = nil
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

func (w Wants) hear(m rpc.Message) bool {
	switch m.Method {
	case toolsChanged:
		return w.tools
	case promptsChanged:
		return w.prompts
	case resourcesChanged:
		return w.resources
	case resourceUpdated:
		params, _ := rpc.ParseObject(m.Params)
		return slices.Contains(w.URIs, params.GetString("uri"))
	}
	return false
}

// None reports whether nothing is wanted.
func (w Wants) None() bool { return !w.tools && !w.prompts && !w.resources && len(w.URIs) == 0 }

// Lists are w without single resources.
func (w Wants) Lists() Wants {
	return Wants{tools: w.tools, prompts: w.prompts, resources: w.resources}
}

// value is the filter in JSON.
func (w Wants) value() jsontext.Value { return w.Object().Value() }

func (w Wants) Object() rpc.Object {
	o := rpc.Object{}
	for _, v := range []struct {
		name string
		on   bool
	}{{"toolsListChanged", w.tools}, {"promptsListChanged", w.prompts}, {"resourcesListChanged", w.resources}} {
		if v.on {
			o = o.With(v.name, jsontext.Value("true"))
		}
	}
	if len(w.URIs) > 0 {
		o = o.With("resourceSubscriptions", texts(w.URIs))
	}
	return o
}

// and is what both want.
func (w Wants) and(v Wants) Wants {
	uris := slices.DeleteFunc(slices.Clone(w.URIs), func(uri string) bool { return !slices.Contains(v.URIs, uri) })
	return Wants{w.tools && v.tools, w.prompts && v.prompts, w.resources && v.resources, uris}
}

// Or is what one or the other wants.
func (w Wants) Or(v Wants) Wants {
	uris := slices.Clone(w.URIs)
	for _, uri := range v.URIs {
		if !slices.Contains(uris, uri) {
			uris = append(uris, uri)
		}
	}
	return Wants{w.tools || v.tools, w.prompts || v.prompts, w.resources || v.resources, uris}
}

const Acknowledged = "notifications/subscriptions/acknowledged"

func texts(all []string) jsontext.Value {
	values := make([]jsontext.Value, len(all))
	for i, s := range all {
		values[i] = rpc.String(s)
	}
	return rpc.Array(values)
}
