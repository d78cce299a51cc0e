package mcp_test

import (
	"fmt"
	"slices"
	"strings"
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

// Prompts, what is completed and resources go to their server: prompts by its name, resources by how they begin.
func TestManyRouteByPromptAndURI(t *testing.T) {
	t.Parallel()
	for kind, up := range map[string][]string{"legacy": {"legacy"}, "modern": {"modern"}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			m := newMany(t, camp{}, map[string]manyServer{
				"a": {answers: mcptest.Answers{Eras: up}, uris: []string{"mem://a/", "x:"}}, "b": {answers: mcptest.Answers{Eras: up}, uris: []string{"mem://b/"}}, "none": {answers: mcptest.Answers{Eras: up}},
			})
			for _, era := range eras {
				v := m.visitor(era, nil)
				before := len(m.recs["a"].Executed())
				for _, ask := range []struct{ method, params, arrives string }{
					{"prompts/get", `{"name":"b__greet","arguments":{"x":"` + era + `"}}`, `{"name":"greet","arguments":{"x":"` + era + `"}`},
					{"prompts/get", `{"name":"b__odd name__é"}`, `{"name":"odd name__é"`},
					{"completion/complete", `{"ref":{"type":"ref/prompt","name":"b__greet"},"argument":{"name":"x","value":"` + era + `"}}`, `{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"x","value":"` + era + `"}`},
					{"completion/complete", `{"ref":{"type":"ref/resource","uri":"mem://b/{x}"},"argument":{"name":"x","value":""}}`, `{"ref":{"type":"ref/resource","uri":"mem://b/{x}"}`},
					{"resources/read", `{"uri":"mem://b/` + era + `"}`, `{"uri":"mem://b/` + era + `"`},
				} {
					got := v.ask(ask.method, ask.params)
					all := m.recs["b"].Executed()
					if last := string(all[len(all)-1].Params); !got.ran() || !strings.HasPrefix(last, ask.arrives) {
						t.Errorf("%s: %s %s: arrives %s: %s", era, ask.method, ask.params, last, got)
					}
				}
				if era == "legacy" {
					v.ask("resources/subscribe", `{"uri":"mem://b/x"}`).runs(t)
				}
				if after := len(m.recs["a"].Executed()); after != before {
					t.Errorf("%s: a got %d more", era, after-before)
				}
				unknown := map[string]int{"legacy": -32002, "modern": -32602}[era]
				for _, ask := range []struct {
					method, params string
					code           int
				}{
					{"prompts/get", `{"name":"greet"}`, -32602}, {"prompts/get", `{"name":"c__greet"}`, -32602},
					{"completion/complete", `{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"x","value":""}}`, -32602},
					{"completion/complete", `{"ref":{"type":"ref/other","name":"a__greet","uri":"mem://a/"},"argument":{"name":"x","value":""}}`, -32602},
					{"completion/complete", `{"ref":{"type":"ref/resource","uri":"{a}"},"argument":{"name":"x","value":""}}`, -32602},
					{"resources/read", `{"uri":"mem://c/x"}`, unknown}, {"resources/read", `{"uri":"MEM://a/x"}`, unknown},
				} {
					if got := v.ask(ask.method, ask.params); got.code() != ask.code {
						t.Errorf("%s: %s %s: %s", era, ask.method, ask.params, got)
					}
				}
			}
			if n := len(m.recs["none"].Executed()); n > 0 {
				t.Errorf("the third server got %d", n)
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
