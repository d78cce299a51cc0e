package ask

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/rpc"
)

// Item is one item of a list.
type Item struct {
	// Tool is set in tools/list.
	Tool *Tool
	// ID is the name of a prompt, the URI of a resource, or the template of URIs.
	ID     string
	Server string

	method string // if it is none of a list, but something that is for no tool
}

// Members of a question that are unknown when a call is listed; when its tool is unknown, too; and, where an operator's
// mapping may compute everything else from arguments, those as well.
var (
	unknownOfCall     = mustKnow("/context/arguments", "/context/pdp/approved", "/context/pdp/capability")
	unknownOfBareCall = mustKnow("/context/arguments", "/context/pdp/approved")
	unknownOfAny      = mustKnow("/context/arguments", "/context/pdp/approved", "/context/pdp/capability", "/resource/properties")
	unknownOfMapped   = mustKnow("/context", "/subject/properties", "/action/properties", "/resource/properties", "/context/pdp/approved", "/context/pdp/capability")
)

func mustKnow(pointers ...string) *evaluation.Unknown {
	u, err := evaluation.UnknownAt(pointers...)
	if err != nil {
		panic(err)
	}
	return u
}

// uses are the methods by which the items of lists are used.
var uses = map[string]string{toolsList: toolsCall, promptsList: promptsGet, resourcesList: resourcesRead, templatesList: resourcesRead}

// Filter says which items of a list the client is shown: those whose use may be permitted with some arguments, by the
// question that the use is asked about. Nothing is discharged and nothing is reported. Whether the list may be asked for at
// all is a question of its own, for [Asker.Ask].
//
// Some items are shown without asking. A template of URIs: the resources it leads to are not known yet, and each is asked
// about when it is read. A tool of which an operator's mapping can make no question without arguments. And a tool of whose
// calls its own mapping is asked alone: that is not asked when it is listed, and nothing else decides. By the letter of the
// binding no item is asked about at all.
func (a *Asker) Filter(ctx context.Context, op Operation, items []Item) (keep []bool, refusal *Refusal) {
	use, ok := uses[op.Method]
	if !ok {
		return nil, a.refuser(&op).unavailable(0, "the method is of no list")
	}
	return a.filter(ctx, op, use, items, unknownOfCall)
}

// filter filters by the question about a method. Unknown are the members that are not known of a call.
func (a *Asker) filter(ctx context.Context, op Operation, use string, items []Item, unknown *evaluation.Unknown) (keep []bool, refusal *Refusal) {
	l, refusal := a.list(op, use, items, unknown)
	if refusal == nil {
		refusal = l.decide(ctx)
	}
	if refusal != nil {
		return nil, refusal
	}
	return l.keep, nil
}

// MayCall reports whether a principal may be permitted to call any tool of some servers at all. It asks, as
// [Asker.Filter] does, about one tool of each server, with the name * and nothing else known. By the letter of the
// binding the PDP is not asked, and the answer is yes.
func (a *Asker) MayCall(ctx context.Context, who *identity.Principal, servers []string) (may bool, refusal *Refusal) {
	tools := make([]*Tool, len(servers))
	for n, server := range servers {
		tools[n] = a.Named(server, "*", "*")
	}
	return a.MayUse(ctx, Operation{Principal: who, Era: era.Modern, Method: toolsList}, tools, nil)
}

// Named is a tool of which nothing is known but its names.
func (a *Asker) Named(server, name, shown string) *Tool {
	e := evaluation.Entity{Type: "tool", ID: server + ":" + name}
	return &Tool{Server: server, Name: name, Shown: shown, any: true, resource: e, operator: cmp.Or(a.ofTools[e.ID], a.operator[toolsCall])}
}

// MayUse reports whether the client may be permitted the use of one of some tools, asked about as [Asker.Filter] does, or a
// method that is about nothing in particular. It asks no longer than until something may be. Without tools and methods the answer
// is no.
func (a *Asker) MayUse(ctx context.Context, op Operation, tools []*Tool, methods []string) (may bool, refusal *Refusal) {
	items := make([]Item, len(tools), len(tools)+len(methods))
	for n, t := range tools {
		items[n].Tool = t
	}
	for _, m := range methods {
		items = append(items, Item{method: m})
	}
	use := toolsCall
	if op.Method == toolsRequest {
		use = toolsRequest
	}
	for most := firstAsked; len(items) > 0 && !may; most *= moreAsked { // no more questions are made than are asked
		n := min(most, len(items))
		keep, refusal := a.filter(ctx, op, use, items[:n], unknownOfCall)
		if refusal != nil {
			return false, refusal
		}
		may, items = slices.Contains(keep, true), items[n:]
	}
	return may, nil
}

// firstAsked is how many items are asked about first where one that may be permitted is enough, and moreAsked how many times as
// many then.
const (
	firstAsked = 16
	moreAsked  = 4
)

// decide asks the questions. It writes one line about all that the PDP does not take: servers choose the items.
func (l *listing) decide(ctx context.Context) *Refusal {
	defer func() {
		if u := l.untaken; u.items > 0 {
			l.asker.o.Logger.WarnContext(ctx, "items are not listed: the PDP does not take the questions about them",
				slog.Group("", "server", l.op.Server, "method", l.use), "items", u.items, "first", line(u.first, mostReason), "why", u.why)
		}
	}()
	for from := 0; from < len(l.requests); {
		n := fitting(l.requests[from:])
		if refusal := l.asker.o.Admit(ctx, n); refusal != nil {
			return refusal
		}
		for i, d := range l.pdp.EvaluateBatch(ctx, evaluation.ExecuteAll, l.requests[from:from+n]...) {
			if err := l.answered(from+i, d); err != nil {
				return l.asker.refuser(&l.op).failed(err)
			}
		}
		from += n
	}
	return nil
}

type listing struct {
	asker    *Asker
	pdp      *authzenclient.Client
	op       Operation
	use      string
	unknown  *evaluation.Unknown
	keep     []bool
	requests []evaluation.Request
	of       []int // the item of each request
	untaken  untaken
}

// untaken counts the items that are hidden because the PDP does not take the questions about them.
type untaken struct {
	items int
	first string
	why   error
}

// list makes the questions about items, which are kept unless an answer says otherwise. By the letter of the binding there is no
// question.
func (a *Asker) list(op Operation, use string, items []Item, unknown *evaluation.Unknown) (*listing, *Refusal) {
	pdp, refusal := a.client(&op)
	if refusal != nil {
		return nil, refusal
	}
	l := &listing{asker: a, pdp: pdp, op: op, use: use, unknown: unknown, keep: slices.Repeat([]bool{true}, len(items))}
	if a.o.Strict && a.o.Ask == COAZ {
		return l, nil
	}
	var who *speaker
	if a.o.Ask != COAZ {
		s, err := a.speaker(&op, nil)
		if err != nil {
			return nil, a.refuser(&op).unmapped(err)
		}
		who = &s
	}
	for n, item := range items {
		template := op.Method == templatesList && strings.Contains(item.ID, "{")
		alone := use == toolsCall && a.o.Declared == Instead && item.Tool != nil && item.Tool.declared != nil
		if template || alone {
			continue
		}
		if err := l.ask(n, item, who); err != nil {
			return nil, a.refuser(&op).unmapped(err)
		}
	}
	return l, nil
}

func (l *listing) ask(n int, item Item, who *speaker) error {
	op := l.op
	op.Method, op.Server, op.Tool = cmp.Or(item.method, l.use), item.Server, item.Tool
	name, id := "name", item.ID
	switch {
	case item.method != "":
		name, id = "protocolVersion", era.LegacyVersions[0] // only initialize says it
	case l.use == resourcesRead:
		name = "uri"
	case OfTool(l.use):
		if item.Tool == nil {
			return errors.New("an item of tools/list is no tool")
		}
		id, op.Server = item.Tool.Shown, item.Tool.Server
	}
	op.Params, op.read = rpc.Object{}.With(name, rpc.String(id)), nil
	mapped := l.asker.operatorMapping(&op) != nil
	questions, err := l.asker.trusted(&op, who)
	if e := (*coaz.Error)(nil); errors.As(err, &e) && mapped {
		return nil
	}
	if err != nil {
		return err
	}
	for _, q := range questions {
		for _, r := range q.requests {
			switch r.Unknown = l.unknown; {
			case mapped, item.method != "":
				r.Unknown = unknownOfMapped
			case item.Tool != nil && item.Tool.any:
				r.Unknown = unknownOfAny
			case l.use == toolsRequest:
				r.Unknown = unknownOfRequest
			}
			l.requests, l.of = append(l.requests, r), append(l.of, n)
		}
	}
	return nil
}

// answered takes the answer to the question n. A question that the PDP does not take hides its item, and no other. An item
// that it could not decide for another reason leaves the whole list undecided.
func (l *listing) answered(n int, d authzenclient.Decision) error {
	var e *authzenclient.Error
	if err := d.Err(); errors.As(err, &e) && e.Kind == authzenclient.BadItem && aboutQuestion(e) {
		if l.untaken.items++; l.untaken.items == 1 {
			l.untaken.first, l.untaken.why = l.requests[n].Resource.ID, err
		}
	} else if err != nil {
		return err
	}
	l.keep[l.of[n]] = l.keep[l.of[n]] && d.Possible()
	return nil
}

// fitting is how many of the requests the PDP takes in one batch: at least one.
func fitting(requests []evaluation.Request) int {
	limits := boundsOf(0)
	size, values := 0, 0
	for n, q := range requests {
		text, err := q.MarshalJSON()
		if err == nil {
			size += len(text) + 1
			// Each value but the first of an object or array is behind a comma: there are no more than this.
			values += bytes.Count(text, []byte{','}) + 2*bytes.Count(text, []byte{'{'}) + 2*bytes.Count(text, []byte{'['})
		}
		if n > 0 && (n == limits.Batch || size > limits.Body || values > limits.Values) {
			return n
		}
	}
	return len(requests)
}
