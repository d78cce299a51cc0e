package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// Other systems hear of what is filed and of what waits no longer, also of what they
// could not be told before a restart.
func TestOthersAreTold(t *testing.T) {
	t.Parallel()
	secret := []byte(strings.Repeat("s", 32))
	heard := make(chan string, 10)
	var down atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = webhook.Verify(secret, r.Header, body, time.Now(), time.Minute)
		}
		if err != nil {
			t.Error(err)
		}
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		heard <- r.Header.Get("Webhook-Id") + " " + string(body)
	}))
	defer receiver.Close()
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, secret, 0o600))
	told := func(config *server.Config) {
		config.Approvals.Webhooks = []webhook.Config{{URL: receiver.URL + "/hook", SecretFile: file, Allow: []string{"127.0.0.1"}}}
	}
	c := openCounter(t, told)
	id := c.asks("pep", tool("push", push+`,"password":"correct horse"`)).Approval.ID
	filed := <-heard
	if !strings.HasPrefix(filed, id+"-filed ") || !strings.Contains(filed, `"type":"approval.filed"`) || !strings.Contains(filed, `"status":"pending"`) || strings.Contains(filed, "correct horse") {
		t.Errorf("got %s", filed)
	}
	down.Store(true)
	c.says("mia", id, "decision", yes, 200)
	first := <-heard
	must(t, c.Stop(t.Context())) // while it is tried again
	down.Store(false)
	c.open(pdptest.Bundle(approvalFiles()), told)
	again := <-heard
	for strings.HasPrefix(again, id+"-filed ") { // the stop may have come before it was known that this was heard
		again = <-heard
	}
	if again != first || !strings.HasPrefix(again, id+"-completed ") || !strings.Contains(again, `"status":"approved"`) {
		t.Errorf("got %s, then %s", first, again)
	}
	status, _ := c.do("pep", "GET", "/livez", "")
	if status != 200 {
		t.Error(status)
	}
}

// While a system is away, whoever has much that it would be told of keeps nobody else from
// being told.
//
// It takes seconds: only more than a thousand requests fill what is told at once.
func TestWhatOneCallerHasToldKeepsNobodyElseWaiting(t *testing.T) {
	t.Parallel()
	e := listen(t)
	c := openDesk(t, e.listed("key:asker", "/mine", "127.0.0.1"), func(config *server.Config) {
		config.Approvals.Webhooks = []webhook.Config{{URL: "http://127.0.0.1:1/nobody", SecretFile: e.secret, Allow: []string{"127.0.0.1"}}}
		config.Approvals.NewPerMinutePerSubject = 1_000_000
	})
	c.Client = ownClient()
	c.fill(1010)
	p := c.program("asker")
	question := wants("push", push)
	asked := p.submits(question + "," + e.callback("/mine", "") + p.denied(question).denial())
	items, next := c.inbox("mia", "?subject=bot")
	for len(items) == 0 && next != "" {
		items, next = c.inbox("mia", "?subject=bot&cursor="+next)
	}
	c.says("mia", items[0].ID, "decision", yes, 200)
	if call := e.hears(); call.Task.ID != asked.Task.ID {
		t.Errorf("got %s", call.text)
	}
}
