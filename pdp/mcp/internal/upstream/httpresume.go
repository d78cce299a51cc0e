package upstream

import (
	"net/http"
	"time"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
)

// A server of the legacy era may end a stream before its time, and have the client come back for the rest. It has then said
// by which event it goes on.

const (
	mostResumed  = 1000
	shortPause   = 10 * time.Millisecond
	defaultPause = time.Second
)

// resume opens a stream again that the server has ended. It reports whether there is one again.
func (t *httpStream) resume() bool {
	if t.events == nil || t.session.era == era.Modern || t.pace.resumed == mostResumed {
		return false
	}
	id, after := t.events.Resume()
	if id == "" {
		return false
	}
	t.pace.resumed++
	if after == 0 {
		after = defaultPause
	}
	timer := time.NewTimer(max(after, shortPause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.ctx.Done():
		return false
	}
	_ = t.body.Close()
	response, err := t.session.do(t.ctx, http.MethodGet, eventStream, nil, Request{after: id})
	if err != nil {
		return false
	}
	before := t.events
	t.reopen(response)
	if t.status/100 != 2 || t.events == nil {
		_ = t.body.Close()
		t.events = before // which says again that it has ended
		return false
	}
	return true
}

// reopen takes over a response that goes on where another ended.
func (t *httpStream) reopen(response *http.Response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	pace := t.pace
	t.take(response)
	if t.ctx.Err() != nil { // closed meanwhile
		_ = t.body.Close()
	}
	pace.in = t.body
	t.pace = pace // a new stream is no new allowance
	if t.events != nil {
		t.events = rpc.NewEvents(pace, t.session.upstream.options.MaxResult)
	}
	if t.patience != nil {
		t.patience.Reset(t.session.upstream.options.Timeout)
	}
}
