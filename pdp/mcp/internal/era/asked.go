package era

import (
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
)

// Methods by which servers ask clients, in the legacy era by a request of their own, in the modern era within a result.
const (
	Elicit = "elicitation/create"
	Sample = "sampling/createMessage"
	Roots  = "roots/list"
)

// Takes reports whether a client that has these capabilities has said that it takes a request of a server.
func Takes(capabilities jsontext.Value, m rpc.Message) bool {
	can, params := objectOf(capabilities), objectOf(m.Params)
	switch m.Method {
	case Roots:
		return can.Get("roots").Kind() == '{'
	case Sample:
		withTools := params.Get("tools") != nil || params.Get("toolChoice") != nil
		return can.Get("sampling").Kind() == '{' && (!withTools || can.GetObject("sampling").Get("tools").Kind() == '{')
	case Elicit:
		return can.Get("elicitation").Kind() == '{' && takesMode(can.GetObject("elicitation"), params)
	}
	return false
}

// takesMode reports whether a client takes an elicitation of this mode. One that names no mode takes forms.
func takesMode(can, params rpc.Object) bool {
	form, url := can.Get("form").Kind() == '{', can.Get("url").Kind() == '{'
	switch mode := params.Get("mode"); {
	case mode == nil, params.GetString("mode") == "form":
		return form || !url
	case params.GetString("mode") == "url":
		return url
	}
	return false
}

// Asked is a request of a server as a client of an era takes it. A legacy client knows a page that it opens by an id, which
// is ours; a modern one does not. No client answers by a task.
func Asked(m rpc.Message, to Era, id string) rpc.Message {
	o, err := m.ParamsObject()
	if err != nil {
		return m
	}
	changed := o.Without(func(name string) bool { return name == "task" || name == "elicitationId" && m.Method == Elicit })
	if to == Legacy && m.Method == Elicit && o.GetString("mode") == "url" {
		changed = changed.With("elicitationId", rpc.String(id))
	}
	m.Params = rewritten(m.Params, o, changed)
	return m
}

// ShowPages is an error of code [URLRequired] as a legacy client is shown it: each page as show says. It is not ok if the
// error is another, or if a page is not to be shown.
func ShowPages(v jsontext.Value, show func(rpc.Message) (shown rpc.Message, ok bool)) (jsontext.Value, bool) {
	e, err := rpc.ReadError(v)
	data, err2 := rpc.ParseObject(e.Data)
	pages, err3 := rpc.Elements(data.Get("elicitations"))
	if err != nil || err2 != nil || err3 != nil || e.Code != URLRequired || len(pages) == 0 {
		return nil, false
	}
	var shown []jsontext.Value
	for _, page := range pages {
		if objectOf(page).GetString("mode") != "url" {
			return nil, false
		}
		m, ok := show(rpc.Message{Method: Elicit, Params: page})
		if !ok {
			return nil, false
		}
		shown = append(shown, m.Params)
	}
	e.Data = data.With("elicitations", rpc.Array(shown)).Value()
	return e.Value(), true
}
