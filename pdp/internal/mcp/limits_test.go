package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// LIMITS.md of the server counts with 50 questions a second of one person, and with 1,200 bytes on disk for the record of a
// call. A line takes half as much again on disk.
func TestThePageKnowsWhatOnePersonRecords(t *testing.T) {
	t.Parallel()
	var c mcp.Config
	mcp.Form.SetDefaults(&c)
	if c.Limits.Rate != 50 {
		t.Errorf("limits.rate is %v", c.Limits.Rate)
	}
	w := newPeople(t, land{})
	for _, era := range eras {
		if got := w.plain(era).call("free", `{"path":"docs/report.md"}`); !got.ran() {
			t.Fatal(got)
		}
	}
	calls := 0
	for line := range strings.Lines(w.api("auditor", http.MethodGet, "/v1/log/export", "").Body) {
		if !strings.Contains(line, `"tool.invoke"`) {
			continue
		}
		calls++
		if onDisk := len(line) * 3 / 2; onDisk < 900 || onDisk > 1500 {
			t.Errorf("it takes %d bytes: %s", onDisk, line)
		}
	}
	if calls != len(eras) {
		t.Errorf("%d calls are on record", calls)
	}
}

// Large results, and programs that start for clients who come and go, count for more than one request of their person.
func TestWhatCostsMoreCountsForMore(t *testing.T) {
	t.Parallel()
	large := mcptest.Answers{Results: map[string]string{"tools/call": `{"resultType":"complete","content":[{"type":"text","text":"` + strings.Repeat("x", 1<<20) + `"}]}`}}
	for name, of := range map[string]struct {
		camp        camp
		burst, want int
	}{
		"results of 1 MiB": {camp{answers: large}, 20, 2}, // each opens a session besides
		"programs":         {camp{program: true}, 100, 4},
	} {
		of.camp.change = func(c *mcp.Config) { c.Limits.Rate, c.Limits.Burst = 0.01, int64(of.burst) }
		s, taken := newSiege(t, of.camp), 0
		for n := range 20 {
			v := s.stranger("modern", s.issuer.Token(t, mcptest.Claims{"sub": "mallory", "client_id": fmt.Sprint("client-", n)}))
			if got := v.call("look", `{}`); got.code() == 0 {
				taken++
			}
		}
		if taken != of.want {
			t.Errorf("%s: %d of 20 requests were taken, want %d", name, taken, of.want)
		}
	}
}

// A person who is refused over and over waits for each refusal: they cost the gateway no more than their connections.
func TestRefusalsOfOnePersonWait(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{change: func(c *mcp.Config) { c.Limits.Rate, c.Limits.Burst = 0.01, 4 }})
	by := func(n int) *visitor {
		return s.stranger("modern", s.issuer.Token(t, mcptest.Claims{"sub": "mallory", "client_id": fmt.Sprint("client-", n)}))
	}
	for n := range 8 {
		by(n).call("look", `{}`)
	}
	begun := time.Now()
	for n := range 3 {
		if got := by(n).call("look", `{}`); got.kind() != "rate_limited" {
			t.Error(got)
		}
	}
	if took := time.Since(begun); took < 3*time.Second {
		t.Errorf("three refusals took %v", took)
	}
	s.visitor("modern", mcptest.Claims{"sub": "alice"}).call("look", `{}`).runs(t, "another person:")
}

// A person may ask so often, by however many clients and in however many sessions, and keeps nobody else from asking. What
// ends something is counted, and taken all the same.
func TestOnePersonIsBoundedByWhateverClients(t *testing.T) {
	t.Parallel()
	const burst = 30
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := newSiege(t, camp{change: func(c *mcp.Config) { c.Limits.Rate, c.Limits.Burst = 0.001, burst }})
			mallory := s.visitor(era, mcptest.Claims{"sub": "mallory"})
			refused, taken := echo{}, 0
			for n := 0; refused.text == "" && n < 2*burst; n++ {
				v := s.stranger(era, s.issuer.Token(t, mcptest.Claims{"sub": "mallory", "client_id": fmt.Sprint("client-", n)}))
				if got, began := v.tryBegin(); !began {
					refused = got
					break
				}
				if got := v.call("look", `{}`); got.kind() == "rate_limited" {
					refused = got
				} else {
					taken++
				}
			}
			if taken == 0 || taken > burst || refused.code() != -32001 && refused.status != http.StatusTooManyRequests || !strings.Contains(refused.text, `"limit":"limits.rate"`) {
				t.Errorf("after %d calls by as many clients: %s", taken, refused)
			}
			if got := mallory.call("look", `{}`); got.kind() != "rate_limited" || retryAfter(got) < 60 {
				t.Errorf("by another client: %s", got)
			}
			if got := s.visitor(era, mcptest.Claims{"sub": "alice"}).call("look", `{}`); got.kind() == "rate_limited" || got.code() != 0 {
				t.Errorf("another person: %s", got)
			}
			if era == "modern" {
				return
			}
			for body, want := range map[string]int{
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}`: http.StatusAccepted,
				`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`:                   http.StatusTooManyRequests,
			} {
				if got := mallory.send(body, mallory.headers("notifications/cancelled", "")...); got.status != want {
					t.Errorf("%s: %s", body, got)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a stream would last
			defer cancel()
			if got, err := mallory.try(ctx, http.MethodGet, "", mallory.headers("", "")...); err != nil || got.status != http.StatusTooManyRequests {
				t.Errorf("a stream, of which the PDP is asked: %v, %v", got.status, err)
			}
			if got, err := mallory.try(t.Context(), http.MethodDelete, "", mallory.headers("ping", "")...); err != nil || got.status != http.StatusNoContent {
				t.Errorf("the end of a session: %v, %v", got, err)
			}
		})
	}
}

// A list costs two records: the question about the list, and one about all of its items, whatever the client says beside
// it. It costs little room, too.
func TestAListCostsLittle(t *testing.T) {
	t.Parallel()
	var tools []string
	for n := range 100 {
		tools = append(tools, fmt.Sprint("tool-", n))
	}
	for _, era := range eras {
		s := newSiege(t, camp{answers: mcptest.Answers{Tools: definitions(tools...)}})
		v := s.visitor(era, nil)
		v.meta = `,"io.policy-service/context":{"note":"` + strings.Repeat("x", 4000) + `"}`
		if got := v.ask("tools/list", `{}`); strings.Count(got.text, `"name":"tool-`) != len(tools) {
			t.Fatalf("%s: %s", era, got)
		}
		orFail(t, s.pdp.Stop(t.Context()))
		r, err := segment.OpenReader(s.data)
		orFail(t, err)
		var kinds []string
		bytes := 0
		for line, err := range r.Records(t.Context(), 0, r.Size()) {
			orFail(t, err)
			one, err := record.Parse(line.Line)
			orFail(t, err)
			if one.Names.Action.Name == "tools/list" || one.Kind == format.KindPossible {
				kinds, bytes = append(kinds, fmt.Sprint(one.Kind, " ", len(one.Items))), bytes+len(line.Line)
			}
		}
		orFail(t, r.Close())
		if got := strings.Join(kinds, ", "); got != "decision 0, possible 100" || bytes > 40<<10 {
			t.Errorf("%s: %s: %d bytes", era, got, bytes)
		}
	}
}
