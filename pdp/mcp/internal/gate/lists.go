package gate

import (
	"context"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/seal"
)

// Lists show what their reader may use. What cannot be decided is an error, and never a shorter list: clients keep lists,
// and take them for the truth.

// listTools answers with all tools that the client may call with some arguments, in the server's order, as the server
// defines them.
func (x *exchange) listTools(ctx context.Context) (rpc.Message, int) {
	if x.params.Get("cursor") != nil {
		return x.refused(invalid("cursor is none of ours: all tools are on one page"))
	}
	listed, err := x.g.list(ctx, x.link, x.who, x.client)
	if err != nil {
		return x.failed(err)
	}
	items := make([]ask.Item, len(listed.tools))
	for i, t := range listed.tools {
		items[i] = ask.Item{Tool: t.Tool, Server: x.link.server.Name}
	}
	keep, refused := x.g.o.Asker.Filter(ctx, x.operation(), items)
	if refused != nil {
		return x.refused(refused)
	}
	var shown []jsontext.Value
	for i, t := range listed.tools {
		if keep[i] {
			shown = append(shown, t.Definition)
		}
	}
	response := rpc.Answer(rpc.ID{}, listed.rest.With("tools", rpc.Array(shown)).Value())
	return x.listed(x.translated(response, listed.of))
}

// listed is a list as it leaves. It is for this client alone, and for as long as the operator says.
func (x *exchange) listed(m rpc.Message) (rpc.Message, int) {
	if result, err := m.ResultObject(); err == nil && x.client.era == era.Modern && x.g.o.Lists.TTL > 0 {
		m.Result = result.With("ttlMs", jsontext.Value(strconv.FormatInt(x.g.o.Lists.TTL.Milliseconds(), 10))).Value()
	}
	return x.result(m)
}

// lists are the other lists, and what an item of one is known by.
var lists = map[string]struct{ member, id string }{
	"prompts/list":             {"prompts", "name"},
	"resources/list":           {"resources", "uri"},
	"resources/templates/list": {"resourceTemplates", "uriTemplate"},
}

// mostItems is how many items a page of a server's may have: about each the PDP is asked.
const mostItems = 5000

// listOther answers with a page of the server's, without what the client may not use.
func (x *exchange) listOther(ctx context.Context) (rpc.Message, int) {
	params, binding := x.params, []byte(x.who.Key+"\x00"+x.link.server.Name+"\x00"+x.request.Method)
	if params.Get("cursor") != nil {
		cursor, ok := x.g.o.Ring.Open(seal.Cursor, binding, params.GetString("cursor"))
		if !ok {
			return x.refused(invalid("cursor is none of ours; begin without it"))
		}
		params = params.With("cursor", rpc.String(string(cursor)))
	}
	response, err := x.forward(ctx, params, nil)
	if err != nil {
		return x.failed(err)
	}
	if response.Error != nil {
		return x.result(response)
	}
	of := lists[x.request.Method]
	result, err := response.ResultObject()
	values, err2 := rpc.Elements(result.Get(of.member))
	if err != nil || err2 != nil {
		return x.refused(ambiguous("the server's list is no list"))
	}
	if len(values) > mostItems {
		return x.refused(ambiguous("the server lists too much on one page"))
	}
	items, known := make([]ask.Item, 0, len(values)), values[:0]
	for _, v := range values {
		o, err := rpc.ParseObject(v)
		if id := o.GetString(of.id); err == nil && id != "" {
			items, known = append(items, ask.Item{ID: id, Server: x.link.server.Name}), append(known, v)
		}
	}
	keep, refused := x.g.o.Asker.Filter(ctx, x.operation(), items)
	if refused != nil {
		return x.refused(refused)
	}
	var shown []jsontext.Value
	for i, v := range known {
		if keep[i] {
			shown = append(shown, v)
		}
	}
	result = result.With(of.member, rpc.Array(shown))
	if next := result.GetString("nextCursor"); next != "" {
		cursor, err := x.g.o.Ring.Seal(seal.Cursor, binding, []byte(next))
		if err != nil {
			return x.refused(unsealed(err))
		}
		result = result.With("nextCursor", rpc.String(cursor))
	}
	response.Result = result.Value()
	return x.listed(response)
}

func texts(all []string) jsontext.Value {
	values := make([]jsontext.Value, len(all))
	for i, s := range all {
		values[i] = rpc.String(s)
	}
	return rpc.Array(values)
}
