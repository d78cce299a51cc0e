package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/night"
)

// batchCrash is a service that is killed while batches use approvals.
type batchCrash struct {
	approvalCrash
	told map[string]string // by batch: what its items were answered, + or -
	// mayBeLost has the batches that only denied, in best effort: they were answered before they were on record.
	mayBeLost map[string]bool
}

const (
	usesEach = 2 // how often each approval may be used
	inBatch  = 3 // how many questions a batch asks, each usesEach times
)

// TestBatchCrash kills the server at random moments, many of them in the middle of batches that use several approvals, each
// more than once, and that want the same ones at the same time. All decisions of a batch are on record, or none is; no
// approval is used more often than it may be; and whatever no record has is there to be used afterwards.
//
// It starts several servers, which takes a second or two.
func TestBatchCrash(t *testing.T) {
	t.Parallel()
	batchCrashes(t, max(2, night.Cases(8))) // one of each mode of the log
}

// TestSoakBatchCrash does it more often.
func TestSoakBatchCrash(t *testing.T) {
	night.Soaks(t)
	batchCrashes(t, 100)
}

func batchCrashes(t *testing.T, rounds int) {
	t.Helper()
	c := &batchCrash{approvalCrash{t: t, dir: t.TempDir()}, map[string]string{}, map[string]bool{}}
	c.prepare()
	terms := fmt.Sprintf("ask: {type: approval_required, properties: {template: owner, valid_for: 1h, uses: %d}}\n", usesEach)
	must(t, os.WriteFile(c.path("policies/obligations.yaml"), []byte(terms), 0o600))
	server, addr, on := c.rounds(rounds, c.story)
	if server == nil {
		return
	}
	defer c.kill(server)
	c.compare(on)
	c.useUp(addr, on)
}

// story has some questions approved, and asks all of them, each as often as it was approved for, in each of two batches at
// once. One more is approved, and asked in no batch: that something is left to use is not left to the moment of the kill.
func (c *batchCrash) story(ctx context.Context, addr, question string) {
	var items []string
	for n := range inBatch + 1 {
		one := fmt.Sprint(question, "-", n)
		id, _, _ := c.ask(ctx, addr, one, "")
		if id == "" || !c.post(ctx, "http://"+addr+"/v1/approvals/"+id+"/decision", c.mia, `{"decision":"approve","reason":"fine"}`, nil) {
			return
		}
		items = append(items, fmt.Sprintf(`{"context":{"arguments":{"question":%q},"approval_id":%q}}`, one, id))
	}
	both := make(chan struct{})
	for _, semantic := range []evaluation.Semantic{evaluation.ExecuteAll, evaluation.DenyOnFirstDeny} {
		some := slices.Repeat(items[:inBatch], usesEach)
		rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		go func() {
			c.batch(ctx, addr, semantic, some)
			both <- struct{}{}
		}()
	}
	<-both
	<-both
}

// batch sends a batch, and notes what it was answered: + is an allow that may be gone by, and "" that there was no answer.
// The server may be killed from the moment on in which the batch was sent.
func (c *batchCrash) batch(ctx context.Context, addr string, semantic evaluation.Semantic, items []string) (said string) {
	body := `{"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"t"},` +
		`"options":{"evaluations_semantic":"` + string(semantic) + `"},"evaluations":[` + strings.Join(items, ",") + `]}`
	sent := func(httptrace.WroteRequestInfo) { c.answered() }
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: sent})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/access/v1/evaluations", strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return ""
	}
	r.Header.Set("Authorization", c.pep)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return ""
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	var all struct {
		Evaluations []struct {
			Decision bool `json:"decision"`
		} `json:"evaluations"`
	}
	if err != nil || answer.StatusCode != http.StatusOK || json.Unmarshal(text, &all) != nil {
		return ""
	}
	for _, one := range all.Evaluations {
		said += map[bool]string{true: "+", false: "-"}[one.Decision]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id := answer.Header.Get("X-Decision-Id")
	c.told[id] = said
	c.mayBeLost[id] = c.mode == "best_effort" && !strings.Contains(said, "+")
	return said
}

// compare holds what callers were told against what is on record.
func (c *batchCrash) compare(on crashRecord) {
	c.t.Helper()
	for id, said := range c.told {
		if got := on.batch(id); got != said && !(len(on.batches[id]) == 0 && c.mayBeLost[id]) {
			c.t.Errorf("batch %s was answered %s, and on record is %q", id, said, got)
		}
	}
	unseen, cut := 0, 0
	for id := range on.batches {
		said := on.batch(id)
		if first := strings.Index(said, "-"); len(said) != inBatch*usesEach && first != len(said)-1 {
			c.t.Errorf("of batch %s not all is on record: %q", id, said)
		} else if len(said) < inBatch*usesEach {
			cut++
		}
		if c.told[id] == "" {
			unseen++
		}
	}
	for question, uses := range on.used {
		if len(uses) > usesEach {
			c.t.Errorf("%s was used %d times", question, len(uses))
		}
	}
	c.t.Logf("%d batches on record, %d of them answered to nobody, %d ended early; %d questions used", len(on.batches), unseen, cut, len(on.used))
	if len(c.told) == 0 || cut == 0 || len(on.used) == 0 {
		c.t.Error("it shows little")
	}
}

// batch is what a batch was answered by its records, "" if its items are not each there once, in their order.
func (on crashRecord) batch(id string) (said string) {
	for n, line := range on.batches[id] {
		if line.ID != fmt.Sprint(id, ".", n) || line.Decision != (len(line.Discharged) == 1) {
			return ""
		}
		said += map[bool]string{true: "+", false: "-"}[line.Decision]
	}
	return said
}

// useUp uses what is left of each approval: what is not on record, and no more.
func (c *batchCrash) useUp(addr string, on crashRecord) {
	c.t.Helper()
	left := 0
	for some := range slices.Chunk(slices.Sorted(maps.Keys(on.approved)), 10) {
		var items []string
		want := ""
		for _, question := range some {
			item := fmt.Sprintf(`{"context":{"arguments":{"question":%q},"justification":"approved"}}`, question)
			items = append(items, slices.Repeat([]string{item}, usesEach+1)...)
			uses := usesEach - len(on.used[question])
			want += strings.Repeat("+", uses) + strings.Repeat("-", usesEach+1-uses)
			left += uses
		}
		if got := c.batch(c.t.Context(), addr, evaluation.ExecuteAll, items); got != want {
			c.t.Errorf("%v: got %s, want %s", some, got, want)
		}
	}
	if c.t.Logf("%d questions approved, %d uses were left", len(on.approved), left); left == 0 {
		c.t.Error("nothing was left")
	}
}
