package flow

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/seal"
)

// A list shows the items that its reader may use. An item that cannot be decided about is an error, and never a shorter list:
// clients keep lists, and take them as complete.

// listTools answers with all tools that the client may call with some arguments, in the order of the servers, and of each
// server's own list, as the servers define them.
func (x exchange) listTools(ctx context.Context) *answer.Answer {
	if x.Params.Get("cursor") != nil {
		return answer.Invalid("cursor is none of ours: all tools are on one page")
	}
	shelves, err := succeeded(each(ctx, x, func(ctx context.Context, x exchange) (*page, error) { return x.toolList(ctx) }))
	if err != nil {
		return x.failed(err)
	}
	shown, refused := filtered(ctx, x, shelves)
	if refused != nil {
		return refused
	}
	if x.link == nil || len(shelves) == 0 {
		return x.listed(x.gatewayResult(rpc.Object{}.With("tools", rpc.Array(shown))))
	}
	// The tools are added to the translated list, because they have members of the gateway's own.
	listed := shelves[0].value.listing
	response := x.link.Translated(x.Request.Method, rpc.Answer(rpc.ID{}, listed.Rest.Value()), listed.Of, x.Client.Era)
	if result, err := response.ResultObject(); err == nil {
		response.Result = result.With("tools", rpc.Array(shown)).Value()
	}
	return x.listed(response)
}

func (x exchange) toolList(ctx context.Context) (*page, error) {
	if err := x.mayOpen(ctx); err != nil {
		return nil, err
	}
	listed, err := x.link.Listed(ctx, x.Who, x.Client)
	if err != nil {
		return nil, err
	}
	p := &page{listing: listed}
	for _, t := range listed.Tools {
		p.items, p.values = append(p.items, ask.Item{Tool: t.Tool, Server: x.link.Server.Name}), append(p.values, t.Entry)
	}
	return p, nil
}

// page is the part of a list that one server has: the items about which the PDP is asked, and the values that a permitted
// client sees.
type page struct {
	items   []ask.Item
	values  []jsontext.Value
	keep    []bool
	err     *ask.Refusal
	listing *link.Listing // of tools
	result  rpc.Object    // the server's own, of other lists
	next    string        // the server's cursor
}

// filtered returns the values that the client may see, in the order of the servers. If no question can be made about
// the items of one of several servers, that server is left out. If none can be made about any server, that is an error.
func filtered(ctx context.Context, x exchange, all []part[*page]) (shown []jsontext.Value, refused *answer.Answer) {
	of := map[*link.Link]*page{}
	for _, p := range all {
		of[p.of.link] = p.value
		p.value.err = answer.Internal(link.ErrBroken).Refusal // stands if the filter panics
	}
	x.forEachLink(func(l *link.Link) {
		if o := of[l]; o != nil {
			y := x.forLink(l)
			o.keep, o.err = x.g.o.Asker.Filter(ctx, y.operation(), o.items)
			withNeeds(ctx, y, o)
			requestable(ctx, y, o)
		}
	})
	asked, left := false, (*ask.Refusal)(nil) // why a server is left out
	for _, p := range all {
		o := p.value
		switch {
		case o.err == nil:
			asked = true
		case o.err.Kind == ask.Unmapped && x.link == nil:
			x.g.o.Logger.Warn("a server is left out", slog.Group("", "server", p.of.link.Server.Name, "method", x.Request.Method), "why", o.err.Why)
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

// gatewayResult is the response for a result that several servers have a part in.
func (x *Call) gatewayResult(result rpc.Object) rpc.Message {
	m := x.Client.Result(x.Request.Method, result.Value())
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

// lists are the other lists, by method: the member that holds the items, the member that names an item, and the capability of
// servers that have such items.
var lists = map[string]struct{ member, id, capability string }{
	"prompts/list":             {"prompts", "name", "prompts"},
	"resources/list":           {"resources", "uri", "resources"},
	"resources/templates/list": {"resourceTemplates", "uriTemplate", "resources"},
}

// mostItems is how many items a page of a server may have: the PDP is asked about each.
const mostItems = 5000

// mostCursor is how large a cursor of one of several servers may be: the client's cursor contains the cursors of all of them.
const mostCursor = 4 << 10

// listOther answers with one page of each server, without the items that the client may not use. The gateway's cursor contains
// the cursors of the servers that have more.
func (x exchange) listOther(ctx context.Context) *answer.Answer {
	cursors, refused := x.cursors()
	if refused != nil {
		return refused
	}
	pages, err := succeeded(each(ctx, x, func(ctx context.Context, x exchange) (*page, error) { return x.page(ctx, cursors) }))
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
		return x.listed(x.gatewayResult(result))
	}
	return x.listed(rpc.Answer(rpc.ID{}, result.Value()))
}

// cursors are the servers' cursors in the client's cursor, nil if the client has none yet.
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

// cursorBinding binds a cursor to one list and one principal.
func cursorBinding(x *Call) []byte { return []byte(x.Who.Key + "\x00" + x.Request.Method) }

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
	if x.g.servers.Several() {
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
	if p.next = p.result.GetString("nextCursor"); x.g.servers.Several() && len(p.next) > mostCursor {
		p.next = ""
		x.g.o.Logger.Warn("a list ends early: the server's cursor is too large", slog.Group("", "server", x.link.Server.Name, "method", x.Request.Method))
	}
	return p, nil
}

// items are the items of a page that have a name and belong to the server, with their values as clients see them.
func (x Target) items(values []jsontext.Value) (items []ask.Item, known []jsontext.Value) {
	by, omitted := lists[x.Request.Method].id, link.Omissions{}
	for _, v := range values {
		o, err := rpc.ParseObject(v)
		id := o.GetString(by)
		switch {
		case err != nil || id == "":
			omitted.Add("no "+by, "", err)
			continue
		case by != "name" && !x.link.Server.Owns(id):
			omitted.Add("not below upstreams."+x.link.Server.Name+".uris", id, nil)
			continue
		case by == "name" && x.g.servers.Several():
			id = link.PromptName(x.link.Server.Name, id)
			v = o.With("name", rpc.String(id)).Value()
		}
		items, known = append(items, ask.Item{ID: id, Server: x.link.Server.Name}), append(known, v)
	}
	omitted.Log(x.g.o.Logger, x.link.Server.Name, x.Request.Method)
	return items, known
}

// forLink is the exchange with one of several servers. It drops the progress token: no single server knows the progress of all
// of them.
func (x exchange) forLink(l *link.Link) exchange {
	x.link = l
	if meta := x.Params.GetObject("_meta"); meta.Get("progressToken") != nil {
		c := *x.Call
		c.Params = link.WithMeta(c.Params, meta.Without(func(name string) bool { return name == "progressToken" }))
		x.Call = &c
	}
	return x
}

type none struct{}

type part[T any] struct {
	of    exchange
	value T
	err   error
}

// each calls ask for all servers at once, and returns the results in the order of the servers. A server that is away, or late,
// does not affect the others: its part is an error.
func each[T any](ctx context.Context, x exchange, ask func(context.Context, exchange) (T, error)) []part[T] {
	if x.link != nil {
		v, err := ask(ctx, x)
		if err == link.ErrForbidden {
			x.link.NotifyLater(x.Request.Method)
		}
		return []part[T]{{x, v, err}}
	}
	all := make([]part[T], len(x.Reach.Links))
	parts, came := make([]part[T], len(all)), make(chan int, len(all)) // a part is ready once its number comes
	asking, enough := x.g.doors.Within(ctx)
	defer enough()
	left := map[*link.Link]time.Duration{} // how long each server may take that has not answered
	for i, l := range x.Reach.Links {
		y := x.forLink(l)
		all[i], parts[i] = part[T]{of: y, err: link.ErrLate}, part[T]{of: y, err: link.ErrBroken}
		left[l] = l.Patience(x.Request.Method)
		run := func() {
			defer func() { came <- i }() // also after a panic
			parts[i].value, parts[i].err = ask(asking, y)
		}
		if !x.g.doors.Background(run) {
			parts[i].err = link.ErrClosed
			came <- i
		}
	}
	var first time.Time // when the first server has answered
	var over <-chan time.Time
	for n := 0; n < len(all); n++ {
		select {
		case i := <-came:
			all[i] = parts[i]
			delete(left, all[i].of.link)
			if all[i].err == nil && first.IsZero() {
				first = time.Now()
			}
		case <-over:
			n = len(all)
		case <-ctx.Done(): // a partial list would pass for a complete one
			for i := range all {
				all[i].err = upstream.ClientGone(ctx.Err())
			}
			return all
		}
		if !first.IsZero() {
			over = time.After(slices.Max(slices.AppendSeq([]time.Duration{0}, maps.Values(left))) - time.Since(first))
		}
	}
	owes := x.g.o.People.Owes(x.Who.Account())
	for i := range all {
		if owes && all[i].err == link.ErrLate { // the person may be the one that the work waits for
			all[i].err = upstream.ErrOwes
		}
		all[i].of.link.NoteAnswer(x.Request.Method, all[i].err)
	}
	return all
}

// succeeded returns the parts that have no error. If every part has one, it returns an error, unless a server is closed to the
// principal. It also returns an error if the PDP could not decide about a server, or was not asked because of a limit: an
// undecided part must not make a list shorter.
func succeeded[T any](all []part[T]) (came []part[T], err error) {
	closed := false
	for _, p := range all {
		if p.err == nil {
			came = append(came, p)
			continue
		}
		closed = closed || p.err == link.ErrForbidden
		a, _ := p.err.(*answer.Answer)
		if a.OfKind(ask.Unavailable) || a.OfKind(ask.RateLimited) || errors.Is(p.err, upstream.ErrOwes) {
			return nil, p.err
		}
		if err == nil {
			err = p.err
		}
	}
	if len(came) > 0 || closed {
		return came, nil
	}
	return nil, err
}

// introduction opens all links, and returns a server's description of itself, in the form of an era, as [upstream.Session.Server]
// does. With one server it is the server's own. With several it is the gateway's, and has the capabilities of all of them.
func (x exchange) introduction(ctx context.Context) (server jsontext.Value, of era.Era, err error) {
	all := each(ctx, x, func(ctx context.Context, x exchange) (upstream.Session, error) { return x.openServer(ctx) })
	came, err := succeeded(all)
	if err != nil {
		return nil, era.Legacy, err
	}
	if x.link != nil && len(came) > 0 {
		s := came[0].value
		return x.link.Introduces(s), s.Era(), nil
	}
	can, words := abilities{}, []string{}
	for _, p := range all {
		if p.err != nil { // it may have all this once it is back, or once some use of it is permitted
			can.add(p.of.link.Server, rpc.Object{}.With("tools", jsontext.Value(`{}`)).With("prompts", jsontext.Value(`{}`)).With("resources", jsontext.Value(`{}`)))
			continue
		}
		server, err := rpc.ParseObject(p.of.link.Introduces(p.value))
		if err != nil || len(server.Get("capabilities")) > mostCapabilities {
			x.g.o.Logger.Warn("what a server says of itself is left out: it cannot be read, or it is too large", slog.Group("", "server", p.of.link.Server.Name))
			continue
		}
		can.add(p.of.link.Server, server.GetObject("capabilities"))
		if said := server.GetString("instructions"); said != "" {
			words = append(words, instructions(p.of.link.Server.Name, said, mostInstructions/len(all)))
		}
	}
	o := rpc.Object{}.With("capabilities", can.value()).With("serverInfo", x.g.o.Self)
	if len(words) > 0 {
		o = o.With("instructions", rpc.String(strings.Join(words, "\n")))
	}
	return o.Value(), era.Legacy, nil
}

// openServer opens the session with a server. If no tools of the server are known yet, it lists them, and so makes them known
// for other principals.
func (x exchange) openServer(ctx context.Context) (upstream.Session, error) {
	if err := x.mayOpen(ctx); err != nil {
		return nil, err
	}
	s, err := x.link.Opened(ctx, x.Who)
	if err == nil && !x.g.onePerson() && link.Offers(s, "tools") {
		if _, listed := x.g.servers.KnownOf(x.link.Server); !listed {
			_, _ = x.link.Listed(ctx, x.Who, x.Client) // the client meets a failure of the server's tools when it lists them
		}
	}
	return s, err
}

// extensions are the extensions that the gateway has for a principal. That of capabilities names the issuer, for which the proof
// of a request is made, and the client's session.
func (x exchange) extensions(ctx context.Context) rpc.Object {
	none := jsontext.Value(`{}`)
	all := rpc.Object{}.With(era.Authorizations, none)
	if x.g.o.Asker.Requests() {
		all = all.With(era.ToolRequests, none)
	}
	if issuer, err := x.g.o.Asker.Issuer(ctx, x.Who); err == nil && issuer != "" {
		all = all.With(era.Capabilities, rpc.Object{}.With("issuer", rpc.String(issuer)).WithText("session", x.session()).Value())
	}
	return all
}

const (
	// mostCapabilities is how large the capabilities of one of several servers may be, in bytes.
	mostCapabilities = 16 << 10
	// mostInstructions is how large the instructions of all of several servers may be, in bytes. Each server has the same
	// share.
	mostInstructions = 32 << 10
)

// abilities are the capabilities of several servers. They have the form that clients know, whatever a server sends.
type abilities struct {
	tools, prompts, resources, subscribe, completions, logging bool
	extensions, experimental                                   rpc.Object
}

func (a *abilities) add(s *link.Server, o rpc.Object) {
	has := func(name string) bool { return o.Get(name).Kind() == '{' }
	a.tools = a.tools || has("tools")
	a.prompts = a.prompts || has("prompts")
	a.completions = a.completions || has("completions")
	a.logging = a.logging || has("logging")
	if has("resources") && len(s.URIs) > 0 {
		a.resources = true
		a.subscribe = a.subscribe || o.GetObject("resources").Get("subscribe").Kind() == 't'
	}
	a.extensions = withObjects(a.extensions, o.GetObject("extensions"))
	a.experimental = withObjects(a.experimental, o.GetObject("experimental"))
}

const mostExtensions = 64

func withObjects(o, more rpc.Object) rpc.Object {
	if more.Len() > mostExtensions {
		return o
	}
	for name, v := range more.Members {
		if v.Kind() == '{' && o.Get(name) == nil {
			o = o.With(name, v)
		}
	}
	return o
}

// value are the capabilities for clients. Any list may change at any time, when a server that was away comes back.
func (a *abilities) value() jsontext.Value {
	const changes = `{"listChanged":true}`
	resources := changes
	if a.subscribe {
		resources = `{"subscribe":true,"listChanged":true}`
	}
	o := rpc.Object{}
	for _, one := range []struct {
		has         bool
		name, value string
	}{
		{a.tools, "tools", changes}, {a.prompts, "prompts", changes}, {a.resources, "resources", resources},
		{a.completions, "completions", `{}`}, {a.logging, "logging", `{}`},
		{a.extensions.Len() > 0, "extensions", string(a.extensions.Value())}, {a.experimental.Len() > 0, "experimental", string(a.experimental.Value())},
	} {
		if one.has {
			o = o.With(one.name, jsontext.Value(one.value))
		}
	}
	return o.Value()
}

// instructions are the instructions of one of several servers for models: below its name and indented, so that no text in them
// passes for that of another server.
func instructions(server, said string, most int) string {
	if len(said) > most {
		said = strings.ToValidUTF8(said[:most], "") + "…"
	}
	lines := strings.FieldsFunc(said, func(r rune) bool { return strings.ContainsRune("\n\r\v\f\u0085\u2028\u2029", r) })
	return server + ":\n  " + strings.Join(lines, "\n  ")
}

// introduce answers the handshake of the legacy era, which begins a session, or server/discover of the modern one.
func (x exchange) introduce(ctx context.Context) *answer.Answer {
	server, of, err := x.introduction(ctx)
	if err != nil {
		return x.failed(err)
	}
	var result jsontext.Value
	begins := x.Request.Method == "initialize"
	if begins {
		result, err = era.Initialized(server, of, x.Client.Version, x.extensions(ctx))
	} else {
		result, err = era.Discovered(server, of, x.extensions(ctx))
	}
	if err != nil {
		return answer.Ambiguous("what the server says of itself cannot be read")
	}
	answer := x.result(rpc.Answer(rpc.ID{}, result))
	if begins && answer.Message.Error == nil {
		x.Reply.Begin(x.Session.ID)
	}
	return answer
}
