package flow

import (
	"context"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/seal"
)

// Lists show what their reader may use. What cannot be decided is an error, and never a shorter list: clients keep lists,
// and take them for the truth.

// listTools answers with all tools that the client may call with some arguments, in the order of the servers and in each
// server's order, as the servers define them.
func (x exchange) listTools(ctx context.Context) *answer.Answer {
	if x.Params.Get("cursor") != nil {
		return answer.Invalid("cursor is none of ours: all tools are on one page")
	}
	shelves, err := there(each(ctx, x, func(ctx context.Context, x exchange) (*shelf, error) { return x.shelf(ctx) }))
	if err != nil {
		return x.failed(err)
	}
	shown, refused := filtered(ctx, x, shelves)
	if refused != nil {
		return refused
	}
	result := rpc.Object{}.With("tools", rpc.Array(shown))
	if x.link == nil || len(shelves) == 0 {
		return x.listed(x.ours(result))
	}
	listed := shelves[0].value.Listing
	response := rpc.Answer(rpc.ID{}, listed.Rest.With("tools", rpc.Array(shown)).Value())
	return x.listed(x.translated(response, listed.Of))
}

// shelf are all tools of a server.
type shelf struct {
	*link.Listing
	offer
}

func (x exchange) shelf(ctx context.Context) (*shelf, error) {
	if err := x.mayOpen(ctx); err != nil {
		return nil, err
	}
	listed, err := x.link.Listed(ctx, x.Who, x.Client)
	if err != nil {
		return nil, err
	}
	s := &shelf{Listing: listed}
	for _, t := range listed.Tools {
		s.items, s.values = append(s.items, ask.Item{Tool: t.Tool, Server: x.link.Server.Name}), append(s.values, t.Entry)
	}
	return s, nil
}

// offer is what a server has for a list: what the PDP is asked about, and what a client is shown that may see it.
type offer struct {
	items  []ask.Item
	values []jsontext.Value
	keep   []bool
	err    *ask.Refusal
}

func (o *offer) offered() *offer { return o }

// filtered are those of what the servers offer that the client may see, in their order. If no question can be made about what
// one of several servers offers, that server is left out; if none can be made about any, that is an error.
func filtered[T interface{ offered() *offer }](ctx context.Context, x exchange, all []part[T]) (shown []jsontext.Value, refused *answer.Answer) {
	of := map[*link.Link]*offer{}
	for _, p := range all {
		of[p.of.link] = p.value.offered()
		of[p.of.link].err = answer.Internal(link.ErrBroken).Refusal // unless nobody panics
	}
	x.beside(func(l *link.Link) {
		if o := of[l]; o != nil {
			y := x.at(l)
			o.keep, o.err = x.g.o.Asker.Filter(ctx, y.operation(), o.items)
			requestable(ctx, y, o)
		}
	})
	asked, left := false, (*ask.Refusal)(nil) // why a server is left out
	for _, p := range all {
		o := of[p.of.link]
		switch {
		case o.err == nil:
			asked = true
		case o.err.Kind == ask.Unmapped && x.link == nil:
			x.g.o.Logger.Warn("a server is left out", "server", p.of.link.Server.Name, "method", x.Request.Method, "why", o.err.Why)
			left = o.err
			continue
		default:
			return nil, answer.Refuse(o.err)
		}
		for i, v := range o.values {
			if o.keep[i] {
				shown = append(shown, v)
			}
		}
	}
	if !asked {
		return nil, answer.Refuse(left)
	}
	return shown, nil
}

// ours is a result that several servers have a part in.
func (x *Call) ours(result rpc.Object) rpc.Message {
	m := x.Client.Says(x.Request.Method, result.Value())
	if x.Client.Era == era.Modern {
		m = era.WithServer(m, x.g.o.Self)
	}
	return m
}

// listed is a list as it leaves. It is for this client alone, and for as long as the operator says.
func (x exchange) listed(m rpc.Message) *answer.Answer {
	if result, err := m.ResultObject(); err == nil && x.Client.Era == era.Modern && x.g.o.TTL > 0 {
		m.Result = result.With("ttlMs", jsontext.Value(strconv.FormatInt(x.g.o.TTL.Milliseconds(), 10))).Value()
	}
	return x.result(m)
}

// lists are the other lists: what an item of one is known by, and which capability a server has that has some.
var lists = map[string]struct{ member, id, capability string }{
	"prompts/list":             {"prompts", "name", "prompts"},
	"resources/list":           {"resources", "uri", "resources"},
	"resources/templates/list": {"resourceTemplates", "uriTemplate", "resources"},
}

// mostItems is how many items a page of a server's may have: about each the PDP is asked.
const mostItems = 5000

// mostCursor is how large a cursor of one of several servers may be: the client's has those of all of them.
const mostCursor = 4 << 10

// listOther answers with a page of each server's, without what the client may not use. The cursor of ours that comes with it
// holds those of the servers that have more.
func (x exchange) listOther(ctx context.Context) *answer.Answer {
	cursors, refused := x.cursors()
	if refused != nil {
		return refused
	}
	pages, err := there(each(ctx, x, func(ctx context.Context, x exchange) (*page, error) { return x.page(ctx, cursors) }))
	if err != nil {
		return x.failed(err)
	}
	shown, refused := filtered(ctx, x, pages)
	if refused != nil {
		return refused
	}
	more := rpc.Object{}
	for _, p := range pages {
		if p.value.next != "" {
			more = more.With(p.of.link.Server.Name, rpc.String(p.value.next))
		}
	}
	result := rpc.Object{}
	if x.link != nil {
		result = pages[0].value.result
	}
	result = result.With(lists[x.Request.Method].member, rpc.Array(shown))
	if more.Len() > 0 {
		cursor, err := x.g.o.Ring.Seal(seal.Cursor, cursorBinding(x.Call), more.Value())
		if err != nil {
			return answer.Internal(err)
		}
		result = result.With("nextCursor", rpc.String(cursor))
	}
	if x.link == nil {
		return x.listed(x.ours(result))
	}
	return x.listed(rpc.Answer(rpc.ID{}, result.Value()))
}

// cursors are the servers' own cursors in that of the client, nil if it begins.
func (x Target) cursors() (*rpc.Object, *answer.Answer) {
	if x.Params.Get("cursor") == nil {
		return nil, nil
	}
	text, ok := x.g.o.Ring.Open(seal.Cursor, cursorBinding(x.Call), x.Params.GetString("cursor"))
	all, err := rpc.ParseObject(text)
	for name := range all.Members {
		ok = ok && x.Reach.To(name) != nil
	}
	if !ok || err != nil {
		return nil, answer.Invalid("cursor is none of ours; begin without it")
	}
	return &all, nil
}

// cursorBinding is what a cursor is bound to: it is good for no other list, and nobody else.
func cursorBinding(x *Call) []byte { return []byte(x.Who.Key + "\x00" + x.Request.Method) }

// page is one page of a server's.
type page struct {
	result rpc.Object // the server's own
	offer
	next string // the server's cursor
}

// page asks the server for its next page. Cursors are nil for the first.
func (x exchange) page(ctx context.Context, cursors *rpc.Object) (*page, error) {
	of, params, p := lists[x.Request.Method], x.Params, &page{}
	if cursors != nil {
		cursor := cursors.Get(x.link.Server.Name)
		if cursor == nil { // the server has no more
			return p, nil
		}
		params = params.With("cursor", cursor)
	}
	if x.g.several() {
		s, err := x.link.Opened(ctx, x.Who)
		if err != nil || !link.Offers(s, of.capability) {
			return p, err
		}
	}
	response, err := x.forward(ctx, params, nil)
	switch {
	case err != nil:
		return p, err
	case response.Error != nil:
		return p, answer.Of(response.Message)
	}
	p.result, err = response.ResultObject()
	values, err2 := rpc.Elements(p.result.Get(of.member))
	if err != nil || err2 != nil {
		return p, answer.Ambiguous("the server's list is no list")
	}
	if len(values) > mostItems {
		return p, answer.Ambiguous("the server lists too much on one page")
	}
	p.items, p.values = x.items(values)
	if p.next = p.result.GetString("nextCursor"); x.g.several() && len(p.next) > mostCursor {
		p.next = ""
		x.g.o.Logger.Warn("a list ends early: the server's cursor is too large", "server", x.link.Server.Name, "method", x.Request.Method)
	}
	return p, nil
}

// items are the values of a page that are the server's, and have a name, as clients see them.
func (x Target) items(values []jsontext.Value) (items []ask.Item, known []jsontext.Value) {
	by := lists[x.Request.Method].id
	for _, v := range values {
		o, err := rpc.ParseObject(v)
		id := o.GetString(by)
		switch {
		case err != nil || id == "", by != "name" && !x.link.Server.Owns(id):
			continue
		case by == "name" && x.g.several():
			id = link.PromptName(x.link.Server.Name, id)
			v = o.With("name", rpc.String(id)).Value()
		}
		items, known = append(items, ask.Item{ID: id, Server: x.link.Server.Name}), append(known, v)
	}
	return items, known
}
