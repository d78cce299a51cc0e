package flow

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/doors"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/upstream/upstreamtest"
	"policy-service/pdp/internal/rpc"
)

// A request that panics gives up what it waits for.
func TestAPanicGivesUpTheStream(t *testing.T) {
	m := &upstreamtest.Mad{}
	r := &relay{exchange: exchange{}, session: m, stream: m, cancel: func() {}}
	func() {
		defer func() {
			if recover() != upstreamtest.ErrMad {
				t.Error("nobody has panicked")
			}
		}()
		_, _ = r.run(t.Context())
	}()
	if !m.Closed.Load() {
		t.Error("the stream is open")
	}
}

// An unsubscription that fails takes no subscription away that came after it.
func TestAnUnsubscriptionThatFailsTakesNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		log, who := slog.New(slog.DiscardHandler), &identity.Principal{Key: "k"}
		d := doors.New(log)
		s := &link.Server{Upstream: upstreamtest.One{Session: upstreamtest.Refusing{Slow: slow}}, Dropped: func(string) {}, URIs: []string{""}}
		servers := link.New(d, link.Options{All: []*link.Server{s}, Logger: log, Now: time.Now})
		reach := servers.Reach(who, link.Client{})
		l := reach.Only()
		const uri = "file:///a"
		l.Want([]string{uri}, true)
		ctx, giveUp := context.WithCancel(t.Context())
		over := make(chan rpc.Message, 1)
		go func() {
			c := &Call{g: New(d, servers, nil, Options{Now: time.Now, Logger: log}), Who: who, Reach: reach, Params: rpc.Object{}.With("uri", rpc.String(uri))}
			c.Request.Method = "resources/unsubscribe"
			over <- exchange{Target: Target{Call: c, link: l}, permit: &ask.Permit{}}.remember(ctx).Message
		}()
		synctest.Wait()
		l.Want([]string{uri}, true) // the client subscribes again, and then gives up
		giveUp()
		if m := <-over; m.Error == nil {
			t.Error("what was given up went well")
		}
		if !l.Wanted(uri) {
			t.Error("the subscription is gone")
		}
		reach.Close()
		close(slow)
		d.Close()
	})
}
