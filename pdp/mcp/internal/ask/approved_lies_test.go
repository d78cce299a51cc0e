package ask_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"

	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/mcptest"
)

// No lie of a PDP becomes a permit, whether people were not asked, have approved, or did before. An approval that a lie
// has hidden is there after it.
func TestApprovedLies(t *testing.T) {
	t.Parallel()
	o := people(t)
	var lie atomic.Pointer[string]
	liar := mcptest.NewLiar(t, o.pdp.URL, func(int64) string { return *lie.Load() })
	to, err := url.Parse(liar.URL)
	o.must(err)
	plain := o.call(alice(t), o.a, `{}`)
	used := o.approved(o.call(alice(t), o.a, `{"n":1}`))
	next := goesOn(t, o.permit(used), used)
	use := o.approved(o.call(alice(t), o.a, `{"n":2}`))
	w, pending := o.files(o.call(alice(t), o.a, `{"n":3}`))
	for _, l := range mcptest.Lies() {
		if l == "connection: hangs" || l == "connection: drips" {
			continue // their five seconds each are TestLyingPDP's
		}
		lie.Store(&l)
		over := o.meanwhile(func(r *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
			r.URL.Host = to.Host
			return http.DefaultTransport.RoundTrip(r)
		})
		for name, op := range map[string]ask.Operation{"plain": plain, "use": use, "next round": next} {
			if o.forwards(op) {
				t.Errorf("%s: %s is permitted", l, name)
			}
		}
		if _, refusal := w.Ask(t.Context()); refusal == nil || refusal.Kind != ask.Unavailable && refusal.Kind != ask.Unmapped {
			t.Errorf("%s: asked: %+v", l, refusal)
		}
		if s, err := approvals.Look(t.Context(), w.PDP(), pending.Task()); err == nil {
			t.Errorf("%s: looked: %v", l, s)
		} else if r := w.Failed(err); r.Kind != ask.Unavailable && r.Kind != ask.Unmapped {
			t.Errorf("%s: %+v", l, r)
		}
		over()
	}
	for name, op := range map[string]ask.Operation{"use": use, "next round": next} {
		if !o.forwards(op) {
			t.Errorf("%s is lost", name)
		}
	}
	if s := o.look(w, pending); !s.Pending() {
		t.Errorf("%v", s)
	}
}

// What a PDP says of people that they did not say is no permit either: the last question is asked, and answers.
func TestApprovedForged(t *testing.T) {
	t.Parallel()
	o := people(t)
	call := o.call(alice(t), o.a, `{}`)
	w, s := o.files(call)
	id := s.Approvals()[0]
	forged := func(r *http.Request, body string) func() {
		return o.meanwhile(func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			if decides(r) {
				return send()
			}
			return says(r, body), nil
		})
	}
	task := func(status, approval string) string {
		return fmt.Sprintf(`{"task":{"id":%q,"status":%q,"status_endpoint":%q,"approvals":[{"id":%q}]},"result":{"mode":"reevaluate","approval":%s}}`,
			s.Task().ID(), status, o.pdp.URL+"/access/v1/requests/"+s.Task().ID(), id, approval)
	}
	for name, test := range map[string]struct{ status, approval, until string }{
		"not yet":     {"approved", id, "2030-01-01T00:00:00Z"},
		"no such":     {"approved", "01900000-0000-7000-8000-000000000000", "2030-01-01T00:00:00Z"},
		"its own end": {"approved", id, "2020-01-01T00:00:00Z"},
		"pending":     {"pending", id, "2030-01-01T00:00:00Z"},
		"denied":      {"denied", id, "2030-01-01T00:00:00Z"},
	} {
		over := forged(nil, task(test.status, fmt.Sprintf(`{"id":%q,"approved_until":%q,"state":"x"}`, test.approval, test.until)))
		op := o.brings(w, s, call)
		over()
		if o.forwards(op) {
			t.Errorf("%s is permitted", name)
		}
		over = forged(nil, task(test.status, fmt.Sprintf(`{"id":%q,"approved_until":%q}`, test.approval, test.until)))
		op = o.brings(w, s, call)
		over()
		got, refusal := o.outcome(op)
		if refusal == nil || (refusal.Kind == ask.Unavailable) != (name == "not yet") {
			t.Errorf("%s, without a state: %s", name, got)
		}
	}
	// A deny that says what an allow does is a deny, and with an obligation that nobody can do people are not asked.
	plain, declared := call, o.call(alice(t), o.tool(declares("a", `{"evaluation":{"subject":{"type":"identity","id":"$token.sub"},"action":{"name":"read"},"resource":{"type":"public","id":"1"}}}`), nil), `{}`)
	for name, body := range map[string]string{
		"declared":      `{"decision":false,"context":{"reason":"approval_required","access_request":{"expires_at":"2030-01-01T00:00:00Z","binding_token":"x"}}}`,
		"an obligation": `{"decision":false,"context":{"reason":"approval_required","obligations":[{"id":"x","type":"unheard"}],"access_request":{"expires_at":"2030-01-01T00:00:00Z","binding_token":"x"}}}`,
		"no offer":      `{"decision":false,"context":{"reason":"approval_required"}}`,
		"an odd offer":  `{"decision":false,"context":{"reason":"approval_required","access_request":{"binding_token":"x"}}}`,
		"over":          `{"decision":false,"context":{"reason":"approval_required","next_action":"none","access_request":{"expires_at":"2030-01-01T00:00:00Z","binding_token":"x"}}}`,
		"another why":   `{"decision":false,"context":{"reason":"other","access_request":{"expires_at":"2030-01-01T00:00:00Z","binding_token":"x"}}}`,
	} {
		over := o.meanwhile(func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			if decides(r) {
				_, _ = io.Copy(io.Discard, r.Body)
				return says(r, body), nil
			}
			return send()
		})
		if call = plain; name == "declared" {
			call = declared
		}
		got, refusal := o.outcome(call)
		if over(); refusal == nil || refusal.Wanted != nil {
			t.Errorf("%s: %s", name, got)
		}
	}
	o.says("approve", s)
	if !o.forwards(o.brings(w, s, plain)) {
		t.Error("the approval is lost")
	}
}
