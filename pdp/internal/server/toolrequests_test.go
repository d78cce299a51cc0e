package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest/etcdtest"
)

// keptRequest is a request for a tool as it is answered.
type keptRequest struct {
	Revision string `json:"revision"`
	Open     bool   `json:"open"`
	Seconds  int    `json:"seconds"`
	Text     string `json:"text"`
}

const keptRequests = "/v1/tools/requests"

// keepsRequest is the body that keeps a request in place of the value with a revision, "" for a new one.
func keepsRequest(revision string, open bool, text string) string {
	if revision != "" {
		revision = `"revision":"` + revision + `",`
	}
	return fmt.Sprintf(`{%s"open":%t,"seconds":900,"text":%q}`, revision, open, text)
}

func (c *counter) kept(want int, who, method, path, body string) (got keptRequest) {
	c.t.Helper()
	status, text := c.do(who, method, path, body)
	if status != want {
		c.t.Errorf("%s %s: got %d %s, want %d", method, path, status, text, want)
	}
	if status == http.StatusOK {
		must(c.t, json.Unmarshal([]byte(text), &got))
	}
	return got
}

func (c *counter) openRequests(who, path string) string {
	c.t.Helper()
	status, text := c.do(who, "GET", path, "")
	if status != http.StatusOK {
		c.t.Errorf("got %d %s", status, text)
	}
	return text
}

// A gateway keeps a request for a tool, also over a restart. No other caller, and no other tenant, sees it or replaces it.
func TestToolRequests(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	const one = keptRequests + "/one_-9"
	c.welcome("reader", "", auth.LogRead)
	filed := c.kept(200, "pep", "POST", one, keepsRequest("", true, "sealed"))
	if filed.Seconds != 900 || filed.Text != "" || filed.Revision == "" {
		t.Errorf("filed: %+v", filed)
	}
	c.restart(func() {})
	if got := c.kept(200, "pep", "GET", one, ""); got.Text != "sealed" || !got.Open || got.Revision != filed.Revision {
		t.Errorf("after a restart: %+v", got)
	}
	if got := c.openRequests("pep", keptRequests); got != `{"open":["one_-9"]}` {
		t.Errorf("open: %s", got)
	}
	for _, other := range []struct{ who, path string }{{"other-pep", keptRequests}, {"pep", "/tenants/acme" + keptRequests}} {
		c.kept(404, other.who, "GET", other.path+"/one_-9", "")
		c.kept(409, other.who, "POST", other.path+"/one_-9", keepsRequest(filed.Revision, false, "stolen"))
		if got := c.openRequests(other.who, other.path); got != `{"open":[]}` {
			t.Errorf("%v: %s", other, got)
		}
	}
	c.kept(403, "reader", "GET", one, "")
	c.kept(403, "reader", "POST", one, keepsRequest("", true, "x"))
	taken := c.kept(200, "pep", "POST", one, keepsRequest(filed.Revision, false, "taken"))
	c.kept(409, "pep", "POST", one, keepsRequest(filed.Revision, false, "taken again"))
	c.kept(409, "pep", "POST", one, keepsRequest("", true, "filed again"))
	if got := c.kept(200, "pep", "GET", one, ""); got.Text != "taken" || got.Open || got.Revision != taken.Revision {
		t.Errorf("taken: %+v", got)
	}
	for name, bad := range map[string]struct{ path, body string }{
		"no id":             {"/a%20b", keepsRequest("", true, "x")},
		"a long id":         {"/" + strings.Repeat("a", 65), keepsRequest("", true, "x")},
		"no text":           {"/two", keepsRequest("", true, "")},
		"a large text":      {"/two", keepsRequest("", true, strings.Repeat("x", evaluation.ToolRequestText+1))},
		"no revision":       {"/two", keepsRequest("0", true, "x")},
		"a negative one":    {"/two", keepsRequest("-1", true, "x")},
		"no JSON":           {"/two", "{"},
		"another member":    {"/two", `{"open":true,"seconds":900,"text":"x","owner":"y"}`},
		"for ever":          {"/two", `{"open":true,"seconds":172801,"text":"x"}`},
		"for no time":       {"/two", `{"open":true,"seconds":0,"text":"x"}`},
		"for part of a one": {"/two", `{"open":true,"seconds":0.5,"text":"x"}`},
		"not whether":       {"/two", `{"seconds":900,"text":"x"}`},
	} {
		if status, text := c.do("pep", "POST", keptRequests+bad.path, bad.body); status != http.StatusBadRequest {
			t.Errorf("%s: got %d %s", name, status, text)
		}
	}
	c.Advance(15 * time.Minute)
	c.kept(404, "pep", "GET", one, "")
	c.kept(409, "pep", "POST", one, keepsRequest(taken.Revision, false, "late"))
}

// A request that is kept at one replica is seen at each other, and of all callers that take it at all replicas one succeeds, also when
// the replica that filed it is gone. While etcd is away the outcome is not known, and once etcd was put back from a copy
// nothing of before is taken.
func TestClusterToolRequests(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 3, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	a, b, c := g.all[0], g.all[1], g.all[2]
	all := func(do func(n int, c *counter) int) (succeeded int) {
		t.Helper()
		var done sync.WaitGroup
		var made atomic.Int32
		for n := range 9 {
			done.Go(func() {
				switch status := do(n, g.all[n%3]); status {
				case http.StatusOK:
					made.Add(1)
				case http.StatusConflict:
				default:
					t.Errorf("got %d", status)
				}
			})
		}
		done.Wait()
		return int(made.Load())
	}
	const one, two = keptRequests + "/one", keptRequests + "/two"
	filed := all(func(n int, c *counter) int {
		status, _ := c.do("pep", "POST", one, keepsRequest("", true, fmt.Sprint("asked by ", n)))
		return status
	})
	of := c.kept(200, "pep", "GET", one, "")
	if filed != 1 || !of.Open || a.openRequests("pep", keptRequests) != `{"open":["one"]}` {
		t.Errorf("filed %d times: %+v", filed, of)
	}
	for _, other := range g.all {
		other.kept(404, "wallet", "GET", one, "")
		other.kept(409, "wallet", "POST", one, keepsRequest(of.Revision, false, "stolen"))
	}
	took := all(func(n int, c *counter) int {
		status, _ := c.do("pep", "POST", one, keepsRequest(of.Revision, false, fmt.Sprint("taken by ", n)))
		return status
	})
	taken := b.kept(200, "pep", "GET", one, "")
	if took != 1 || taken.Open || !strings.HasPrefix(taken.Text, "taken by") {
		t.Errorf("taken %d times: %+v", took, taken)
	}

	of = a.kept(200, "pep", "POST", two, keepsRequest("", true, "asked"))
	must(t, a.Stop(t.Context()))
	taken = b.kept(200, "pep", "POST", two, keepsRequest(of.Revision, false, "taken"))
	c.kept(200, "pep", "POST", two, keepsRequest(taken.Revision, false, "answer"))
	g.start(0)
	if got := a.kept(200, "pep", "GET", two, ""); got.Text != "answer" {
		t.Errorf("answered: %+v", got)
	}

	b.kept(200, "pep", "POST", keptRequests+"/three", keepsRequest("", true, "asked"))
	dir := g.copyOf()
	three := c.kept(200, "pep", "GET", keptRequests+"/three", "")
	c.kept(200, "pep", "POST", keptRequests+"/three", keepsRequest(three.Revision, false, "taken"))
	g.hurry(1)
	g.net[1].Cut()
	eventually(t, "etcd is away", func() bool { _, is := b.ready(); return is.State != nil })
	b.kept(503, "pep", "GET", one, "")
	b.kept(503, "pep", "POST", keptRequests+"/four", keepsRequest("", true, "asked"))
	g.net[1].Heal()
	g.hasty = nil
	g.etcd.PutBack(dir)
	for n, one := range g.all {
		eventually(t, "it is found", func() bool { _, is := one.ready(); return is.State != nil })
		must(t, one.Stop(t.Context()))
		g.start(n)
	}
	for _, one := range g.all {
		eventually(t, "it goes on", func() bool { _, is := one.ready(); return is.State == nil })
		one.kept(404, "pep", "GET", keptRequests+"/three", "")
		one.kept(409, "pep", "POST", keptRequests+"/three", keepsRequest(three.Revision, false, "taken again"))
	}
}
