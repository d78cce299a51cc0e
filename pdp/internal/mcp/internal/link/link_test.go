package link

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/doors"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
)

// breaking is a server that panics when a session is opened.
type breaking struct{ opened int }

var errAway = errors.New("away")

func (b *breaking) Open(context.Context, upstream.Client) (upstream.Session, error) {
	if b.opened++; b.opened == 1 {
		panic("what the server said")
	}
	return nil, errAway
}

func (b *breaking) Close() error { return nil }

// While a call fulfils a request of another principal, no client answers requests that the server sends beside its answers.
func TestRequestServerAsksBeside(t *testing.T) {
	l := bare(new(breaking))
	_, stop := l.Receive(func(context.Context, upstream.Session, rpc.Message) {})
	defer stop()
	one, other := l.Fulfils(), l.Fulfils()
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

// A request that panics ends alone. It leaves no other request waiting for the work that it had begun.
func TestAPanicLeavesTheTurn(t *testing.T) {
	l := bare(new(breaking))
	who := new(identity.Principal)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("nobody has panicked")
			}
		}()
		_, _ = l.Open(t.Context(), who)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := l.Open(ctx, who); !errors.Is(err, errAway) {
		t.Errorf("the next request gets %v", err)
	}
}

// bare is the link of a principal to a server.
func bare(u upstream.Upstream) *Link {
	s := &Server{Upstream: u, Dropped: func(string) {}, URIs: []string{""}}
	asker, err := ask.New(ask.Options{PDP: map[string]*authzenclient.Client{"t": nil}, Resource: "x"})
	if err != nil {
		panic(err)
	}
	log := slog.New(slog.DiscardHandler)
	return New(doors.New(log), Options{All: []*Server{s}, Asker: asker, Logger: log, Now: time.Now}).newLink(s, &identity.Principal{Key: "k"}, Client{})
}

// anybody is a listener that may listen to any server.
var anybody = Listening{Who: &identity.Principal{Key: "k"}, Client: Client{Era: era.Modern}, MayOpen: func(context.Context) error { return nil }}
