package gate

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

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

// A client goes in the moment in which the server refuses to tell it anything. (What goes wrong, the race detector tells.)
func TestListenerLeavesAtTheAnswer(t *testing.T) {
	for range 50 {
		slow := make(chan struct{})
		g := bareGateway(opens{Session: refusing{slow: slow}})
		g.ending = t.Context()
		ctx, leave := context.WithCancel(t.Context())
		x := &exchange{g: g, who: &identity.Principal{Key: "k"}, link: newLink(g.o.Server, "k", client{}), permit: &ask.Permit{}, reply: &httpReply{w: httptest.NewRecorder()}}
		x.client.era, x.request.Method = era.Modern, "subscriptions/listen"
		go func() {
			leave()
			close(slow)
		}()
		x.listen(ctx)
		x.link.close()
		g.running.Wait()
	}
}
