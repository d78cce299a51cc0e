package flow

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/doors"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// mad is a server's session whose stream nobody can read without a panic.
type mad struct {
	upstream.Session
	closed atomic.Bool
}

var errMad = errors.New("mad")

func (m *mad) Era() era.Era { return era.Legacy }

func (m *mad) Next() (rpc.Message, error) { panic(errMad) }

func (m *mad) Close() { m.closed.Store(true) }

// A request that panics gives up what it waits for.
func TestAPanicGivesUpTheStream(t *testing.T) {
	m := &mad{}
	r := &relay{exchange: exchange{}, session: m, stream: m, cancel: func() {}}
	func() {
		defer func() {
			if recover() != errMad {
				t.Error("nobody has panicked")
			}
		}()
		_, _ = r.run(t.Context())
	}()
	if !m.closed.Load() {
		t.Error("the stream is open")
	}
}

// opens has one session.
type opens struct {
	upstream.Upstream
	upstream.Session
}

func (o opens) Open(context.Context, upstream.Client) (upstream.Session, error) {
	return o.Session, nil
}
func (o opens) Close() error { return nil }

// refusing is a server of the modern era that tells nobody of anything, and takes its time to say so.
type refusing struct {
	upstream.Session
	slow chan struct{}
}

func (r refusing) Close()                 {}
func (r refusing) Era() era.Era           { return era.Modern }
func (r refusing) Server() jsontext.Value { return jsontext.Value(`{}`) }

func (r refusing) Send(context.Context, upstream.Request) (upstream.Stream, error) { return r, nil }

func (r refusing) Next() (rpc.Message, error) {
	<-r.slow
	return rpc.Failure(rpc.ID{}, rpc.Error{Code: -32000, Message: "no"}), nil
}

// An unsubscription that fails takes no subscription away that came after it.
func TestAnUnsubscriptionThatFailsTakesNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		log, who := slog.New(slog.DiscardHandler), &identity.Principal{Key: "k"}
		d := doors.New(log)
		s := &link.Server{Upstream: opens{Session: refusing{slow: slow}}, Dropped: func(string) {}, URIs: []string{""}}
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
