package server_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// ear hears what programs are called back with, each with a signature that verifies.
type ear struct {
	*httptest.Server
	t      *testing.T
	secret string // the file
	heard  chan heardCall
	// down has it refuse what it hears.
	down atomic.Bool
}

type heardCall struct {
	id, path, text string
	evaluation.CallbackBody
}

func listen(t *testing.T) *ear {
	t.Helper()
	secret := []byte(strings.Repeat("c", 32))
	e := &ear{t: t, secret: filepath.Join(t.TempDir(), "secret"), heard: make(chan heardCall, 20)}
	must(t, os.WriteFile(e.secret, secret, 0o600))
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = webhook.Verify(secret, r.Header, body, time.Now(), time.Minute)
		}
		call := heardCall{id: r.Header.Get("Webhook-Id"), path: r.URL.Path, text: string(body)}
		if err == nil {
			err = json.Unmarshal(body, &call.CallbackBody)
		}
		if err != nil {
			t.Error(err)
		}
		if e.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		e.heard <- call
	}))
	t.Cleanup(e.Close)
	return e
}

// listed has the server call a program back at a path.
func (e *ear) listed(caller, path string, allow ...string) pdptest.Option {
	return func(config *server.Config) {
		config.Approvals.Callbacks = append(config.Approvals.Callbacks, broker.CallbackConfig{
			Caller: caller, Config: webhook.Config{URL: e.URL + path, SecretFile: e.secret, Allow: allow},
		})
	}
}

// callback is what a submission says of one.
func (e *ear) callback(path, more string) string {
	return fmt.Sprintf(`"callback":{"endpoint":%q%s},`, e.URL+path, more)
}

// hears is the next call.
func (e *ear) hears() heardCall {
	e.t.Helper()
	select {
	case call := <-e.heard:
		return call
	case <-time.After(patience):
		e.t.Fatal("nobody called back")
		panic("not reached")
	}
}

// A program is called back where the operator listed it, of what it wants to hear, and
// fetches what it may use itself.
func TestCallbacks(t *testing.T) {
	t.Parallel()
	e := listen(t)
	c := openDesk(t, e.listed("key:asker", "/mine", "127.0.0.1"), e.listed("key:asker", "/too", "127.0.0.1"), e.listed("key:other-asker", "/theirs", "127.0.0.1"))
	p := c.program("asker")
	asks := func(n int, callback string) task {
		t.Helper()
		question := wants("push", fmt.Sprintf(`"n":%d`, n))
		return p.submits(question + "," + callback + p.denied(question).denial())
	}
	for name, path := range map[string]string{"another's": "/theirs", "nobody's": "/nobody", "one below": "/mine/", "with a query": "/mine?x=1"} {
		asks(0, e.callback(path, "")).refused(t, name, 400, "Bad Request")
	}
	c.nobodyIsAsked(t)
	asked := asks(1, e.callback("/mine", `,"state":"st\u00e4te \"1\""`))
	c.says("mia", c.waiting(asked), "decision", yes, 200)
	call := e.hears()
	if call.path != "/mine" || call.State != `stäte "1"` || call.Task.ID != asked.Task.ID || call.Task.Status != "approved" || call.Task.StatusEndpoint != asked.Task.StatusEndpoint || call.id != asked.Task.ID ||
		strings.Contains(call.text, "result") {
		t.Errorf("got %+v", call)
	}
	unheard := asks(2, e.callback("/mine", `,"events":["approved"]`))
	c.says("mia", c.waiting(unheard), "decision", no, 200)
	nothing := asks(3, e.callback("/mine", `,"events":[]`))
	c.says("mia", c.waiting(nothing), "decision", yes, 200)
	// What was not to be heard would be heard in the place of what comes next.
	last := asks(4, e.callback("/too", `,"events":["cancelled","unheard_of"]`))
	p.cancels(last.Task.ID, "")
	if call := e.hears(); call.path != "/too" || call.Task.ID != last.Task.ID || call.Task.Status != "cancelled" {
		t.Errorf("got %+v", call)
	}
	bulk := p.submits(e.callback("/mine", "") + p.several("push", "list"))
	items, _ := c.inbox("mia", "")
	c.says("mia", items[0].ID, "decision", yes, 200)
	c.says("mia", items[1].ID, "decision", no, 200)
	if call := e.hears(); call.Task.ID != bulk.Task.ID || call.Task.Status != "partial" || len(call.Task.Items) != 2 || strings.Contains(call.text, "result") {
		t.Errorf("got %+v", call)
	}
}

// What a program could not be told of before a restart it is told of after.
func TestCallbacksAfterARestart(t *testing.T) {
	t.Parallel()
	e := listen(t)
	options := []pdptest.Option{public, e.listed("key:asker", "/mine", "127.0.0.1")}
	c := openDesk(t, options[1])
	p := c.program("asker")
	question := wants("push", push)
	asked := p.submits(question + "," + e.callback("/mine", "") + p.denied(question).denial())
	e.down.Store(true)
	c.says("mia", c.waiting(asked), "decision", yes, 200)
	first := e.hears()
	must(t, c.Stop(t.Context())) // while it is tried again
	e.down.Store(false)
	c.open(pdptest.Bundle(approvalFiles()), options...)
	if again := e.hears(); again.text != first.text || again.id != first.id {
		t.Errorf("got %+v, then %+v", first, again)
	}
}

// An address within is called by nobody who did not list it: neither as it is written, nor
// by a name that has it, nor by a redirect.
func TestCallbacksStayOutside(t *testing.T) {
	t.Parallel()
	e := listen(t)
	within := strings.Replace(e.URL, "127.0.0.1", "localhost", 1)
	for name, config := range map[string]webhook.Config{
		"an address within": {URL: "https://10.0.0.1/", SecretFile: e.secret}, "the metadata of a cloud": {URL: "https://169.254.169.254/", SecretFile: e.secret},
		"without TLS": {URL: "http://pep.example.com/", SecretFile: e.secret}, "twice": {URL: e.URL + "/mine", SecretFile: e.secret, Allow: []string{"127.0.0.1"}},
	} {
		s, err := server.New(server.Config{Program: server.Program{Source: bundle(t)}, Listen: "127.0.0.1:0", Data: t.TempDir(), Approvals: server.ApprovalsConfig{
			Callbacks: []broker.CallbackConfig{{Caller: "key:asker", Config: webhook.Config{URL: e.URL + "/mine", SecretFile: e.secret, Allow: []string{"127.0.0.1"}}}, {Caller: "key:asker", Config: config}},
		}})
		if err == nil {
			err = s.Start(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), "approvals.callbacks[1]") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	var logged log
	moved := httptest.NewServer(http.RedirectHandler(e.URL+"/mine", http.StatusTemporaryRedirect))
	defer moved.Close()
	there := &ear{Server: moved, secret: e.secret}
	c := openDesk(t, there.listed("key:asker", "/moved", "127.0.0.1"), func(config *server.Config) {
		config.Program.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		named := webhook.Config{URL: strings.Replace(within, "http:", "https:", 1) + "/named", SecretFile: e.secret}
		config.Approvals.Callbacks = append(config.Approvals.Callbacks, broker.CallbackConfig{Caller: "key:asker", Config: named})
	})
	p := c.program("asker")
	for n, endpoint := range []string{strings.Replace(within, "http:", "https:", 1) + "/named", moved.URL + "/moved"} {
		question := wants("push", fmt.Sprintf(`"n":%d`, n))
		asked := p.submits(question + fmt.Sprintf(`,"callback":{"endpoint":%q},`, endpoint) + p.denied(question).denial())
		if asked.status != 202 {
			t.Fatalf("got %d %s", asked.status, asked.text)
		}
		before := logged.count("webhook")
		c.says("mia", c.waiting(asked), "decision", yes, 200)
		eventually(t, "what became of it is logged", func() bool { return logged.count("webhook") > before })
	}
	if len(e.heard) > 0 {
		t.Errorf("it was called: %+v", <-e.heard)
	}
}

// A program that does not answer holds up none of its other callbacks.
func TestCallbacksDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	dead, alive := listen(t), listen(t)
	dead.down.Store(true)
	c := openDesk(t, dead.listed("key:asker", "/dead", "127.0.0.1"), alive.listed("key:asker", "/alive", "127.0.0.1"))
	p := c.program("asker")
	question := wants("push", push)
	denial := p.denied(question).denial()
	for range 5 {
		p.submits(question + "," + dead.callback("/dead", "") + denial)
	}
	asked := p.submits(question + "," + alive.callback("/alive", "") + denial)
	c.says("mia", c.waiting(asked), "decision", yes, 200)
	if call := alive.hears(); call.Task.ID != asked.Task.ID {
		t.Errorf("got %+v", call)
	}
}
