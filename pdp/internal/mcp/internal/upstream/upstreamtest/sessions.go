// Package upstreamtest has sessions with servers that are no servers, for tests of the rooms that send and listen by them.
package upstreamtest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
)

// One opens the same session for all clients.
type One struct {
	upstream.Upstream
	upstream.Session
}

func (o One) Open(context.Context, upstream.Client) (upstream.Session, error) { return o.Session, nil }

func (o One) Close() error { return nil }

// Modern is a session of the modern era with a server that says nothing of itself.
type Modern struct{ upstream.Session }

func (Modern) Close()                 {}
func (Modern) Era() era.Era           { return era.Modern }
func (Modern) Server() jsontext.Value { return jsontext.Value(`{}`) }

// Refusing is a session with a server that refuses whatever is sent, once Slow has something or is closed. It is the stream of each
// answer, too.
type Refusing struct {
	Modern
	Slow chan struct{}
}

func (r Refusing) Send(context.Context, upstream.Request) (upstream.Stream, error) { return r, nil }

func (r Refusing) Next() (rpc.Message, error) {
	<-r.Slow
	return rpc.Failure(rpc.ID{}, rpc.Error{Code: -32000, Message: "no"}), nil
}

// Mad is a session of the legacy era that panics with ErrMad when its stream is read, which it is, too.
type Mad struct {
	upstream.Session
	Closed atomic.Bool
}

// ErrMad is what Mad panics with.
var ErrMad = errors.New("mad")

func (m *Mad) Close() { m.Closed.Store(true) }

func (m *Mad) Era() era.Era { return era.Legacy }

func (m *Mad) Server() jsontext.Value { return jsontext.Value(`{}`) }

func (m *Mad) Listen(context.Context) (upstream.Stream, error) { return m, nil }

func (m *Mad) Next() (rpc.Message, error) { panic(ErrMad) }
