package mcp_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// What one server answers takes nothing of another's off the lists, whatever it is.
func TestManyHostileLists(t *testing.T) {
	t.Parallel()
	const more = `,"resultType":"complete","ttlMs":0,"cacheScope":"private"}`
	huge := strings.Repeat("x", 2<<20)
	for name, results := range map[string]map[string]string{
		"no lists":     {"tools/list": `{"tools":7` + more, "prompts/list": `{"prompts":{}` + more, "resources/list": `{"resources":"x"` + more},
		"no results":   {"tools/list": `[]`, "prompts/list": `null`, "resources/list": `"x"`},
		"large names":  {"tools/list": `{"tools":[{"name":"` + huge + `","inputSchema":{"type":"object"}}]` + more, "prompts/list": `{"prompts":[{"name":"` + huge + `"}]` + more, "resources/list": `{"resources":[{"uri":"a:` + huge + `","name":"x"}]` + more},
		"larger still": {"tools/list": `{"tools":[` + strings.Repeat(`{"name":"x","inputSchema":{"type":"object"}},`, 2000) + `{}]` + more, "prompts/list": `{"prompts":[` + strings.Repeat(`{"name":"x"},`, 6000) + `{}]` + more, "resources/list": `{"resources":[` + strings.Repeat(`{"uri":"x"},`, 6000) + `{}]` + more},
		"for ever":     {"tools/list": `{"tools":[],"nextCursor":"` + strings.Repeat("y", 5<<10) + `"` + more, "prompts/list": `{"prompts":[],"nextCursor":"` + huge + `"` + more, "resources/list": `{"resources":[],"nextCursor":"` + huge + `"` + more},
		"of the other": {"tools/list": `{"tools":[{"name":"b__look","inputSchema":{"type":"object"}}]` + more, "prompts/list": `{"prompts":[{"name":""},{"name":7},5]` + more, "resources/list": `{"resources":[{"uri":"b:1","name":"x"},{"uri":"B:1"},{"uri":"mem:1"}]` + more},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMany(t, camp{}, map[string]manyServer{
				"a": {answers: mcptest.Answers{Results: results}, uris: []string{"a:"}},
				"b": {answers: mcptest.Answers{Results: map[string]string{"resources/list": `{"resources":[{"uri":"b:1","name":"x"},{"uri":"a:1","name":"y"}]` + more}}, uris: []string{"b:"}},
			})
			for _, era := range eras {
				v := m.visitor(era, nil)
				for _, list := range []struct {
					method, list, member string
					want                 []string
				}{{"tools/list", "tools", "name", []string{"b__look", "b__change"}}, {"prompts/list", "prompts", "name", []string{"b__greet"}}, {"resources/list", "resources", "uri", []string{"b:1"}}} {
					got := v.ask(list.method, `{}`)
					names := slices.DeleteFunc(manyNames(t, got, list.list, list.member), func(n string) bool { return strings.HasPrefix(n, "a__") || strings.HasPrefix(n, "a:x") })
					if !slices.Equal(names, list.want) || len(got.text) > 3<<20 || member(got, "nextCursor") != "" {
						t.Errorf("%s: %s: %q", era, list.method, names)
					}
				}
				v.call("b__look", `{}`).runs(t, era)
			}
			if err := m.gateway.Ready(); err != nil && strings.Contains(err.Error(), "server b") {
				t.Error(err)
			}
		})
	}
}

// What changes at one server is listed anew, and no other is asked for it.
func TestManyChange(t *testing.T) {
	t.Parallel()
	a, b := newCrier(), newCrier()
	var changed atomic.Bool
	answers := a.answers("legacy")
	cries := answers.Handle
	answers.Handle = func(c *mcptest.Call) bool {
		if c.Method == "tools/list" && changed.Load() {
			c.Result(`{"tools":[{"name":"new","inputSchema":{"type":"object"}}]}`)
			return true
		}
		return cries(c)
	}
	m := newMany(t, camp{change: func(c *mcp.Config) { c.List.Cache = 5e9 }}, map[string]manyServer{"a": {answers: answers}, "b": {answers: b.answers("legacy")}})
	v := m.visitor("legacy", nil)
	s := v.stream("")
	<-a.came
	<-b.came
	if names := manyNames(t, v.ask("tools/list", `{}`), "tools", "name"); !slices.Equal(names, []string{"a__look", "a__change", "b__look", "b__change"}) {
		t.Errorf("%q", names)
	}
	changed.Store(true)
	a.says <- manyChanged("tools/list_changed")
	s.hears("tools/list_changed")
	if names := manyNames(t, v.ask("tools/list", `{}`), "tools", "name"); !slices.Equal(names, []string{"a__new", "b__look", "b__change"}) {
		t.Errorf("%q", names)
	}
	v.call("a__look", `{}`).refused(t, -32602, "", "")
	listed := 0
	for _, g := range m.recs["b"].Got() {
		if g.Method == "tools/list" {
			listed++
		}
	}
	if listed != 1 {
		t.Errorf("the other server was asked %d times", listed)
	}
}

// A gateway that is closed gives up what it asks of all servers.
func TestManyClose(t *testing.T) {
	t.Parallel()
	come := make(chan struct{}, 8)
	waits := mcptest.Answers{Handle: func(c *mcptest.Call) bool {
		if c.Method != "tools/list" {
			return false
		}
		come <- struct{}{}
		<-c.Context.Done()
		return true
	}}
	m := newMany(t, camp{}, map[string]manyServer{"a": {answers: waits}, "b": {answers: waits, program: true}})
	v := m.person(nil)
	answered := make(chan echo, 1)
	go func() { answered <- v.ask("tools/list", `{}`) }()
	<-come
	<-come
	s := v.stream(manyListens)
	s.hears("acknowledged")
	orFail(t, m.gateway.Close())
	(<-answered).refused(t, -32603, "", "")
	if s.lines.Scan(); s.lines.Err() != nil {
		t.Error(s.lines.Err())
	}
}
