package mcp_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// many is a siege whose gateway has several servers.
type many struct {
	*siege
	recs map[string]*mcptest.Recorder
}

// manyServer is one of them. The zero value speaks both eras over HTTP, and has the tools of a siege.
type manyServer struct {
	answers mcptest.Answers
	program bool
	uris    []string
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
			u := mcp.UpstreamConfig{URL: rec.URL, AllowNetworks: []string{"127.0.0.0/8", "::1/128"}, Timeout: 20 * time.Second, URIs: s.uris}
			if s.before != nil {
				u.URL = s.before(rec.URL)
			}
			if s.program {
				u = mcp.UpstreamConfig{Command: rec.Command(), Timeout: 20 * time.Second, URIs: s.uris}
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

// sealedBy has a gateway seal by a key that others have, too.
func sealedBy(file string) func(*mcp.Config) {
	return func(c *mcp.Config) { c.Seal.KeyFiles = []string{file} }
}

// ran are the calls that reached a server, each as name and arguments.
func (m *many) ran(name string) (all []string) {
	for _, g := range m.recs[name].Got() {
		if g.Method != "tools/call" {
			continue
		}
		var params struct {
			Name      string         `json:"name"`
			Arguments jsontext.Value `json:"arguments"`
		}
		orFail(m.t, json.Unmarshal(g.Params, &params))
		all = append(all, params.Name+string(params.Arguments))
	}
	return all
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

// manyKinds are two servers in all the ways in which two may differ.
var manyKinds = map[string]map[string]manyServer{
	"both eras":     {"a": {}, "b": {}},
	"legacy":        {"a": {answers: mcptest.Answers{Eras: []string{"legacy"}}}, "b": {answers: mcptest.Answers{Eras: []string{"legacy"}}}},
	"modern":        {"a": {answers: mcptest.Answers{Eras: []string{"modern"}}}, "b": {answers: mcptest.Answers{Eras: []string{"modern"}}}},
	"one of each":   {"a": {answers: mcptest.Answers{Eras: []string{"legacy"}}, program: true}, "b": {answers: mcptest.Answers{Eras: []string{"modern"}}}},
	"programs":      {"a": {answers: mcptest.Answers{Eras: []string{"modern"}}, program: true}, "b": {answers: mcptest.Answers{Eras: []string{"legacy"}}, program: true}},
	"three of them": {"a": {}, "a-b": {program: true}, "b": {answers: mcptest.Answers{Eras: []string{"legacy"}}}},
}

// A call reaches the server whose name it begins with, by the server's own name and with the arguments that were decided
// about, and no other server sees anything of it.
func TestManyRoutes(t *testing.T) {
	t.Parallel()
	for kind, servers := range manyKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			m := newMany(t, camp{}, servers)
			want := map[string][]string{}
			for _, era := range eras {
				v := m.visitor(era, nil)
				for name := range servers {
					arguments := fmt.Sprintf(`{"marker": "%s-(%s)-4711",  "n":1.0}`, era, name)
					if got := v.call(name+"__look", arguments); !got.ran() {
						t.Fatalf("%s, %s: %s", era, name, got)
					}
					want[name] = append(want[name], "look"+arguments)
				}
				v.ask("odd/method", `{"name":"a__look","uri":"mem://a/"}`).refused(t, -32601, "", "", era)
				for _, nobody := range []string{"look", "c__look", "a__", "__look", "a_look", "A__look", "a__absent", "a__a__look", "a-b_look", "rec__look", "a__b__look", "b__a__look"} {
					v.call(nobody, `{}`).refused(t, -32602, "", "unknown tool", era, nobody)
				}
			}
			for name, rec := range m.recs {
				if got := m.ran(name); !slices.Equal(got, want[name]) {
					t.Errorf("%s ran %q, want %q", name, got, want[name])
				}
				for other := range servers {
					if marker := "(" + other + ")-4711"; other != name && rec.Saw(marker) != "" {
						t.Errorf("%s saw what was for %s, in %s", name, other, rec.Saw(marker))
					}
				}
				if where := rec.Saw("__look"); where != "" {
					t.Errorf("%s saw a name of clients in %s", name, where)
				}
			}
		})
	}
}

// Only the server that a call is for is opened for it.
func TestManyOpenWhatTheyNeed(t *testing.T) {
	t.Parallel()
	m := newMany(t, camp{}, map[string]manyServer{"a": {}, "b": {}})
	m.person(nil).call("b__look", `{}`).runs(t)
	if n := len(m.recs["a"].Got()); n > 0 {
		t.Errorf("the other server got %d messages", n)
	}
}
