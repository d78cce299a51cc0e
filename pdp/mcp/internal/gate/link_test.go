package gate

import (
	"context"
	"errors"
	"testing"
	"time"

	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// breaking is a server on whose first word somebody panics.
type breaking struct{ opened int }

var errAway = errors.New("away")

func (b *breaking) Open(context.Context, upstream.Client) (upstream.Session, error) {
	if b.opened++; b.opened == 1 {
		panic("what the server said")
	}
	return nil, errAway
}

func (b *breaking) Close() error { return nil }

// While a call fulfils somebody's request, nobody answers the server beside it.
func TestRequestServerAsksBeside(t *testing.T) {
	l := newLink(&Server{Upstream: new(breaking)}, "k", client{})
	_, stop := l.hear(func(context.Context, upstream.Session, rpc.Message) {})
	defer stop()
	one, other := l.fulfils(), l.fulfils()
	for _, end := range []func(){one, other} {
		if l.answerer() != nil {
			t.Error("somebody answers")
		}
		end()
	}
	if l.answerer() == nil {
		t.Error("nobody answers any more")
	}
}

// A request that panics, which ends it alone, leaves nobody waiting for what it was about to do.
func TestAPanicLeavesTheTurn(t *testing.T) {
	l := newLink(&Server{Upstream: new(breaking)}, "k", client{})
	who := new(identity.Principal)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("nobody has panicked")
			}
		}()
		_, _ = l.open(t.Context(), who)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := l.open(ctx, who); !errors.Is(err, errAway) {
		t.Errorf("the next request gets %v", err)
	}
}
