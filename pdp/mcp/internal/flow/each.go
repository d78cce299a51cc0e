package flow

import (
	"context"
	"time"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/upstream"
)

// at is the exchange as far as one of several servers has to do with it. None of them says how far all are.
func (x exchange) at(l *link.Link) exchange {
	x.link = l
	if meta := x.Params.GetObject("_meta"); meta.Get("progressToken") != nil {
		c := *x.Call
		c.Params = link.WithMeta(c.Params, meta.Without(func(name string) bool { return name == "progressToken" }))
		x.Call = &c
	}
	return x
}

// none is all that comes of what is told, and not asked.
type none struct{}

// part is what came of asking one server.
type part[T any] struct {
	of    exchange
	value T
	err   error
}

// each asks all servers at once, and gives what came of each, in their order. A server that is away, or late, leaves the
// others as they are: its part is an error.
func each[T any](ctx context.Context, x exchange, ask func(context.Context, exchange) (T, error)) []part[T] {
	if x.link != nil {
		v, err := ask(ctx, x)
		if err == link.ErrForbidden {
			x.link.Owe(x.Request.Method)
		}
		return []part[T]{{x, v, err}}
	}
	all := make([]part[T], len(x.Reach.Links))
	came := make(chan func(), len(all)) // each puts one part into its place
	asking, enough := context.WithCancel(ctx)
	defer enough()
	defer context.AfterFunc(x.g.Context, enough)()
	left := map[*link.Link]time.Duration{} // how long each may take that has not answered
	for i, l := range x.Reach.Links {
		y := x.at(l)
		all[i] = part[T]{of: y, err: link.ErrLate}
		left[l] = l.Patience(x.Request.Method)
		run := func() {
			p := part[T]{of: y, err: link.ErrBroken}
			defer func() { came <- func() { all[i] = p } }() // also if somebody panics
			p.value, p.err = ask(asking, y)
		}
		if !x.g.Background(run) {
			came <- func() { all[i].err = link.ErrClosed }
		}
	}
	var first time.Time // when somebody has answered
	var over <-chan time.Time
	for n := 0; n < len(all); n++ {
		select {
		case put := <-came:
			put()
		case <-over:
			n = len(all)
		case <-ctx.Done(): // what some have said is no answer for all
			for i := range all {
				all[i].err = &upstream.Error{Detail: "the client has gone", Err: ctx.Err()}
			}
			return all
		}
		for _, p := range all {
			if p.err != link.ErrLate {
				delete(left, p.of.link)
			}
			if p.err == nil && first.IsZero() {
				first = time.Now()
			}
		}
		if !first.IsZero() {
			over = time.After(longest(left) - time.Since(first))
		}
	}
	for _, p := range all {
		p.of.link.HeardFrom(x.Request.Method, p.err)
	}
	return all
}

// longest is how long whoever is left may take.
func longest(left map[*link.Link]time.Duration) (wait time.Duration) {
	for _, one := range left {
		wait = max(wait, one)
	}
	return wait
}

// there are the parts that came. It is an error if none did, unless a server is closed, and also if the PDP could not decide
// about one: what cannot be decided is no shorter list.
func there[T any](all []part[T]) (came []part[T], err error) {
	closed := false
	for _, p := range all {
		if p.err == nil {
			came = append(came, p)
			continue
		}
		closed = closed || p.err == link.ErrForbidden
		if a, ok := p.err.(*answer.Answer); ok && a.Is(ask.Unavailable) {
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
