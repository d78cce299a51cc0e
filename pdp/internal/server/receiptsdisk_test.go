//go:build linux

package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
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
			t.Parallel()
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

// While the log cannot be written no approval is spent, whatever the mode: who asks is
// not told to go ahead, and once there is room again one does, once.
func TestApprovalsWaitForTheDisk(t *testing.T) {
	// As much as the approvals need, and less than a record of so long a trace does: a use
	// can be reserved, and not be put on record.
	const room, trace = 256 << 10, 512 << 10
	for _, mode := range []decisionlog.Mode{decisionlog.Strict, decisionlog.BestEffort} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			c := &counter{t: t, data: t.TempDir(), key: map[string]string{}}
			c.grant("pep", []string{"*"}, "", auth.Decide)
			c.grant("mia", []string{"*"}, `user::"mia"`, auth.Approve)
			server := startChildUnder(t, mode, c.data, approvalFiles())
			c.Server = &pdptest.Server{URL: server.url, Client: ownClient()}
			sizes := []uint64{room, 0, room}
			for n, size := range sizes {
				arguments := fmt.Sprintf(`"arguments":{"round":%d}`, n)
				c.says("mia", c.asks("pep", tool("push", arguments)).Approval.ID, "decision", yes, 200)
				asks := func(more string) (status int, may bool) {
					status, text := c.do("pep", "POST", authorizePath, tool("push", arguments+`,"justification":"approved"`+more), "X-Approval", "none")
					var a told
					if status == 200 {
						must(t, json.Unmarshal([]byte(text), &a))
					}
					return status, a.may()
				}
				server.limit(size)
				// Without any room it may have been found out before that no approval can be
				// used: then it is one that has to be asked for.
				if status, may := asks(fmt.Sprintf(`,"trace":%q`, strings.Repeat("x", trace))); may || status != 503 && size > 0 {
					t.Errorf("up to %d bytes: got %d, may %v", size, status, may)
				}
				server.limit(unix.RLIM_INFINITY)
				eventually(t, "it goes through", func() bool { _, may := asks(""); return may })
				if _, may := asks(""); may {
					t.Errorf("up to %d bytes: one use is made twice", size)
				}
			}
			server.stop()
			spent := 0
			for _, l := range lines(t, c.data) {
				if l.Kind == format.KindDecision && *l.Decision && len(l.Obligations) == 0 {
					spent++
				}
			}
			if spent != len(sizes) {
				t.Errorf("%d uses are on record, want %d", spent, len(sizes))
			}
		})
	}
}
