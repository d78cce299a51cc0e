package mcp_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/mcptest"
)

// manyLock locks tools of servers, by their names.
func manyLock(t testing.TB, file string, tools map[string]string) {
	t.Helper()
	f := lock.File{Servers: map[string]lock.Server{}}
	for server, text := range tools {
		var all []jsontext.Value
		orFail(t, json.Unmarshal([]byte(text), &all))
		s := lock.Server{Tools: map[string]lock.Tool{}}
		for _, definition := range all {
			tool, err := lock.ParseTool(definition)
			orFail(t, err)
			s.Tools[tool.Name()] = tool
		}
		f.Servers[server] = s
	}
	orFail(t, os.WriteFile(file, f.Text(), 0o600))
}

// Who comes while a server lists its tools is told by what is locked when he comes, and not by what was when that began.
func TestManyLockedMeanwhile(t *testing.T) {
	t.Parallel()
	file, now := filepath.Join(t.TempDir(), "tools.lock.json"), clock.New()
	manyLock(t, file, map[string]string{"a": siegeTools, "b": siegeTools})
	came, goes := make(chan struct{}, 8), make(chan struct{})
	asked, tap := make(chan struct{}, 64), newWiretap(t)
	m := newMany(t, camp{
		now:    now.Now,
		change: func(c *mcp.Config) { c.Lock = mcp.LockConfig{File: file} },
		before: tap.before,
	}, map[string]manyServer{
		"a": {answers: mcptest.Answers{Tools: siegeTools, Handle: func(c *mcptest.Call) bool {
			if c.Method == "tools/list" {
				came <- struct{}{}
				select {
				case <-goes:
				case <-c.Context.Done():
				}
			}
			return false
		}}},
		"b": {},
	})
	first, second := m.person(nil), m.person(nil)
	listed, again := make(chan echo, 1), make(chan echo, 1)
	go func() { listed <- first.ask("tools/list", `{}`) }()
	<-came
	manyLock(t, file, map[string]string{"a": definitions("change"), "b": siegeTools})
	now.Advance(2 * time.Second)
	tap.answers(func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		tap.proxy.ServeHTTP(w, r)
		if decides(r.URL.Path) {
			asked <- struct{}{}
		}
		return true
	})
	go func() { again <- second.ask("tools/list", `{}`) }()
	<-asked // and now it waits for the server
	close(goes)
	<-listed
	if names := manyNames(t, <-again, "tools", "name"); !slices.Equal(names, []string{"a__change", "b__look", "b__change"}) {
		t.Errorf("what is locked no longer is shown: %q", names)
	}
}
