package mcp_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// many is a siege whose gateway has several servers.
type many struct {
	*siege
	recs map[string]*mcptest.Recorder
}

// manyServer is one of them. The zero value speaks both eras over HTTP, and has the tools of a siege.
type manyServer struct {
	answers mcptest.Answers
	before  func(server string) string // stands before it, and has an address of its own
	change  func(*mcp.UpstreamConfig)
}

func newMany(t testing.TB, of camp, servers map[string]manyServer) *many {
	t.Helper()
	m := &many{recs: map[string]*mcptest.Recorder{}}
	change := of.change
	of.change = func(c *mcp.Config) {
		c.Upstreams = map[string]mcp.UpstreamConfig{}
		for name, s := range servers {
			if s.answers.Tools == "" {
				s.answers.Tools = siegeTools
			}
			rec := mcptest.NewRecorder(t, s.answers)
			m.recs[name] = rec
			u := mcp.UpstreamConfig{URL: rec.URL, AllowNetworks: []string{"127.0.0.0/8", "::1/128"}, Timeout: time.Minute}
			if s.before != nil {
				u.URL = s.before(rec.URL)
			}
			if s.change != nil {
				s.change(&u)
			}
			c.Upstreams[name] = u
		}
		if change != nil {
			change(c)
		}
	}
	m.siege = newSiege(t, of)
	return m
}

// with is the same gateway in front of some of the servers.
func (m *many) with(names ...string) *siege {
	m.t.Helper()
	other := *m.siege
	other.config.Upstreams = map[string]mcp.UpstreamConfig{}
	for _, name := range names {
		other.config.Upstreams[name] = m.config.Upstreams[name]
	}
	other.gateway, other.url = other.beside()
	return &other
}

// manyNames are the names in a list.
func manyNames(t testing.TB, got echo, list, member string) (names []string) {
	t.Helper()
	var all map[string]jsontext.Value
	orFail(t, json.Unmarshal(got.result, &all))
	var items []map[string]jsontext.Value
	if err := json.Unmarshal(all[list], &items); err != nil {
		t.Fatalf("no list of %s: %s", list, got)
	}
	for _, item := range items {
		var name string
		orFail(t, json.Unmarshal(item[member], &name))
		names = append(names, name)
	}
	return names
}

// What gateways with the same keys have sealed is good at none with other servers: neither a state in which a server waits nor a
// cursor, and nothing of either reaches the server that is there.
func TestManySealed(t *testing.T) {
	t.Parallel()
	m := newMany(t, camp{change: sealed(t)}, map[string]manyServer{
		"a": {answers: new(asker).answers("legacy"), change: func(u *mcp.UpstreamConfig) { u.ServerRequests.Elicitation = mcp.RelayOn }},
		"b": {answers: mcptest.Answers{Handle: func(c *mcptest.Call) bool {
			return c.Method == "prompts/list" && lists(c, `"prompts":[],"nextCursor":"b-secret"`)
		}}},
	})
	v := m.person(nil)
	q, cursor := stateOf(t, v.call("a__look", `{}`)), member(v.ask("prompts/list", `{}`), "nextCursor")
	if cursor == "" {
		t.Fatal("there is no cursor")
	}
	alone, before := m.with("a").person(nil), len(m.recs["a"].Got())
	alone.retry("look", `{}`, inText(q.State), `{"`+q.key()+`":`+accepted+`}`).refused(t, -32602, "", "")
	alone.ask("prompts/list", `{"cursor":`+inText(cursor)+`}`).refused(t, -32602, "", "")
	for _, g := range m.recs["a"].Got()[before:] {
		if strings.Contains(string(g.Body), "b-secret") || strings.Contains(string(g.Body), "x-answer") {
			t.Errorf("the server got %s", g.Body)
		}
	}
}
