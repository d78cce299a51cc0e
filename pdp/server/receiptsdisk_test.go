//go:build linux

package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policy-service/pdp/decisionlog"
)

// decide asks for what obliges to a log entry, and returns the decision's id: "" where
// it does not oblige yet, or is not on record, as best effort has it.
func (c *child) decide() string {
	c.t.Helper()
	answer, err := http.Post(c.url+evaluationPath, "application/json", strings.NewReader(strings.TrimSuffix(readQuestion, "}")+`,"context":{"supported_obligations":["log"]}}`))
	must(c.t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	must(c.t, err)
	if !strings.Contains(string(text), `"id":"log"`) {
		return ""
	}
	id := answer.Header.Get("X-Decision-Id")
	if status, _ := c.ask(receiptPath(id), reported("nosuch:discharged")); status != 400 {
		return ""
	}
	return id
}

// While the log cannot be written no receipt is taken, whatever the mode. What was
// refused is not there afterwards, or is there once.
func TestReceiptsWaitForTheDisk(t *testing.T) {
	for _, mode := range []decisionlog.Mode{decisionlog.Strict, decisionlog.BestEffort} {
		t.Run(string(mode), func(t *testing.T) {
			c := startChild(t, mode)
			writeAll(t, c.policies, map[string]string{"a.cedar": `@obligation("log") permit(principal is user, action, resource);`})
			id := ""
			eventually(t, "the bundle that obliges is in force", func() bool { id = c.decide(); return id != "" })
			for range 3 {
				c.limit(0)
				for range 3 {
					if status, text := c.ask(receiptPath(id), reported("log:discharged")); status != 503 || !strings.Contains(text, "receipt") {
						t.Errorf("got %d %s", status, text)
					}
				}
				c.limit(unix.RLIM_INFINITY)
				status, text := 0, ""
				eventually(t, "it takes receipts again", func() bool {
					status, text = c.ask(receiptPath(id), reported("log:discharged"))
					return status != 503
				})
				if status != 204 && status != 409 {
					t.Errorf("got %d %s", status, text)
				}
				eventually(t, "it decides again", func() bool { id = c.decide(); return id != "" })
			}
			c.stop()
			got := map[string]int{}
			for _, receipt := range receiptsOf(lines(t, c.data)) {
				got[receipt]++
			}
			for receipt, times := range got {
				if times != 1 {
					t.Errorf("%s is there %d times", receipt, times)
				}
			}
			if len(got) != 3 {
				t.Errorf("got %v", got)
			}
		})
	}
}
