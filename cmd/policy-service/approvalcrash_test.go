package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/pdptest/inside/auth"
	"policy-service/pdp/pdptest/inside/format"
	"policy-service/pdp/pdptest/night"
)

// approvalCrash is a service that is killed while agents ask, people approve, and what
// was approved is done, twice at once where that is possible.
type approvalCrash struct {
	t        *testing.T
	dir      string
	pep, mia string
	mode     string // of the log, in this round

	mu      sync.Mutex
	allowed map[string]int // by question: how often somebody was told to go ahead
	went    map[string]int // by the decision and the round: how often somebody was told to go on
	left    int            // answers until the server is killed
	enough  chan struct{}  // closed then
}

// TestApprovalCrash kills the server at random moments while approvals are filed, given
// and used, and calls go on from what was used. No use is made twice, and none is lost: each
// has its record, and what nobody used can be used afterwards. The same holds for the rounds
// of a call.
//
// It starts several servers, which takes a second or two.
func TestApprovalCrash(t *testing.T) {
	t.Parallel()
	approvalCrashes(t, max(2, night.Cases(12))) // one of each mode of the log
}

// TestSoakApprovalCrash does it more often.
func TestSoakApprovalCrash(t *testing.T) {
	night.Soaks(t)
	approvalCrashes(t, 100)
}

func approvalCrashes(t *testing.T, rounds int) {
	t.Helper()
	c := &approvalCrash{t: t, dir: t.TempDir(), allowed: map[string]int{}, went: map[string]int{}}
	c.prepare()
	server, addr, on := c.rounds(rounds, c.story)
	if server == nil {
		return
	}
	defer c.kill(server)
	c.finish(addr, on)
	c.finishRounds(addr, on)
}

// rounds kills the server so many times while callers go through a story. Then it reads what is on record, and starts a
// server that stays. There is none if something went wrong.
func (c *approvalCrash) rounds(
	n int, story func(ctx context.Context, addr, question string),
) (server *exec.Cmd, addr string, on crashRecord) {
	for round := range n {
		c.round(round, story)
		if c.t.Failed() {
			return nil, "", on
		}
	}
	last, _ := c.serve()
	stop(c.t, last) // it signs what the others left unsigned
	on = c.recorded()
	server, addr = c.serve()
	return server, addr, on
}

func (c *approvalCrash) serve(flags ...string) (server *exec.Cmd, addr string) {
	return serveIn(c.t, append(flags, "--policies", c.path("policies"), "--data", c.path("data"), "--config", c.path("config.yaml"))...)
}

func (c *approvalCrash) path(name string) string { return filepath.Join(c.dir, name) }

func (c *approvalCrash) prepare() {
	c.t.Helper()
	for name, text := range map[string]string{
		"policies/a.cedar":          `@obligation("ask") permit(principal is agent, action, resource); permit(principal is user, action == Action::"approval.decide", resource);`,
		"policies/obligations.yaml": "ask: {type: approval_required, properties: {template: owner, valid_for: 1h, rounds: 10}}\n",
		"config.yaml":               "approvals: {max_pending_per_subject: 100000, max_pending_per_tenant: 100000, max_pending_per_caller: 100000, new_per_minute_per_subject: 1000000}\n",
	} {
		writeFile(c.t, c.path(name), text)
	}
	keys, err := auth.OpenKeys(c.path("data"))
	if err != nil {
		c.t.Fatal(err)
	}
	add := func(spec auth.KeySpec) string {
		spec.Tenants = []string{"*"}
		key, err := keys.Add(spec)
		if err != nil {
			c.t.Fatal(err)
		}
		return "Bearer " + key
	}
	c.pep = add(auth.KeySpec{Name: "pep", Grant: auth.Grant{Permissions: []auth.Permission{auth.Decide}}})
	c.mia = add(auth.KeySpec{Name: "mia", Principal: auth.Principal{Type: "user", ID: "mia"}, Grant: auth.Grant{Permissions: []auth.Permission{auth.Approve}}})
}

// round has a few callers go through a story until the server is killed.
func (c *approvalCrash) round(n int, story func(ctx context.Context, addr, question string)) {
	// In best effort too: what spends a use is on record before anybody hears of it.
	c.mode = []string{"strict", "best_effort"}[n%2]
	server, addr := c.serve("--log-mode", c.mode)
	ctx, cancel := context.WithCancel(c.t.Context())
	c.left, c.enough = 1+rand.IntN(150), make(chan struct{})
	if n == 0 { // so many that somebody has come to the end of the story
		c.left += 100
	}
	var callers sync.WaitGroup
	for caller := range 4 {
		callers.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				story(ctx, addr, fmt.Sprintf("%d-%d-%d", n, caller, k))
			}
		})
	}
	select { // in the middle of others
	case <-c.enough:
	case <-time.After(patience):
		c.t.Error("the server does not answer")
	}
	c.kill(server)
	cancel()
	callers.Wait()
}

func (c *approvalCrash) kill(server *exec.Cmd) {
	if err := server.Process.Kill(); err != nil {
		c.t.Error(err)
	}
	_ = server.Wait()
}

// story asks a question, has it approved, and asks it twice at once.
func (c *approvalCrash) story(ctx context.Context, addr, question string) {
	id, _, _ := c.ask(ctx, addr, question, "")
	if id == "" || !c.post(ctx, "http://"+addr+"/v1/approvals/"+id+"/decision", c.mia, `{"decision":"approve","reason":"fine"}`, nil) {
		return
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { c.use(ctx, addr, question, id) })
	}
	both.Wait()
}

// use asks a question again, and counts where somebody was told to go ahead. Then it goes on.
func (c *approvalCrash) use(ctx context.Context, addr, question, id string) {
	_, decision, ahead := c.ask(ctx, addr, question, `,"justification":"approved"`)
	if !ahead {
		return
	}
	c.count(c.allowed, question)
	for round := 1; round <= 2; round++ {
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { c.goOn(ctx, addr, question, id, decision, round) })
		}
		both.Wait()
	}
}

// goOn asks for a round of a call, and counts where somebody was told to go on.
func (c *approvalCrash) goOn(ctx context.Context, addr, question, id, decision string, round int) (ahead bool) {
	more := fmt.Sprintf(`,"approval":{"id":%q,"continues":{"decision":%q,"round":%d}}`, id, decision, round)
	if _, _, ahead = c.ask(ctx, addr, question, more); ahead {
		c.count(c.went, fmt.Sprint(decision, " ", round))
	}
	return ahead
}

func (c *approvalCrash) count(what map[string]int, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what[name]++
}

func (c *approvalCrash) ask(ctx context.Context, addr, question, more string) (id, decision string, ahead bool) {
	body := fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":"t"},"context":{"arguments":{"question":%q}%s}}`, question, more)
	var answer struct {
		Allow       bool            `json:"allow"`
		Obligations map[string]bool `json:"obligations"`
		Approval    struct {
			ID     string `json:"id"`
			Status string `json:"status"`
		} `json:"approval"`
	}
	decision, answered := c.decided(ctx, "http://"+addr+"/v1/authorize", c.pep, body, &answer)
	return answer.Approval.ID, decision, answered && answer.Allow && len(answer.Obligations) == 0
}

// post reports whether there was an answer. While the server is being killed there is none.
func (c *approvalCrash) post(ctx context.Context, url, key, body string, into any) bool {
	_, answered := c.decided(ctx, url, key, body, into)
	return answered
}

// decided is post with the id of the decision.
func (c *approvalCrash) decided(ctx context.Context, url, key, body string, into any) (decision string, answered bool) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return "", false
	}
	r.Header.Set("Authorization", key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", false
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	c.answered()
	if err != nil || answer.StatusCode != http.StatusOK {
		return "", false
	}
	return answer.Header.Get("X-Decision-Id"), into == nil || json.Unmarshal(text, into) == nil
}

// answered counts an answer.
func (c *approvalCrash) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left == 0 {
		close(c.enough)
	}
}

// finish compares what callers were told with what is on record, and uses what is left.
func (c *approvalCrash) finish(addr string, on crashRecord) {
	c.t.Helper()
	for question, times := range c.allowed {
		if times > 1 || len(on.used[question]) != 1 {
			c.t.Errorf("%s: allowed %d times, on record %d times", question, times, len(on.used[question]))
		}
	}
	lost, told := 0, 0
	for question := range on.approved {
		if len(on.used[question]) > 1 {
			c.t.Errorf("%s: one use is on record %d times", question, len(on.used[question]))
		}
		if len(on.used[question]) > 0 {
			continue
		}
		told++
		if _, _, ahead := c.ask(c.t.Context(), addr, question, `,"justification":"approved"`); !ahead {
			lost++
		}
		if _, _, again := c.ask(c.t.Context(), addr, question, `,"justification":"approved"`); again {
			c.t.Errorf("%s is allowed twice", question)
		}
	}
	if lost > 0 {
		c.t.Errorf("%d approvals that nobody used cannot be used any more", lost)
	}
	c.t.Logf("%d approved, %d used, %d left and used afterwards", len(on.approved), len(on.used), told)
	if len(on.approved) == 0 || len(on.used) == 0 {
		c.t.Error("nothing happened")
	}
}

// finishRounds compares what callers were told of rounds with what is on record, and asks for those that are left.
func (c *approvalCrash) finishRounds(addr string, on crashRecord) {
	c.t.Helper()
	for round, times := range c.went {
		if times > 1 || on.rounds[round] != 1 {
			c.t.Errorf("%s: answered %d times, on record %d times", round, times, on.rounds[round])
		}
	}
	for round, times := range on.rounds {
		if times > 1 {
			c.t.Errorf("%s is on record %d times", round, times)
		}
	}
	left := 0
	for question, uses := range on.used {
		use := uses[0]
		next := 1
		for on.rounds[fmt.Sprint(use.ID, " ", next)] > 0 {
			if c.goOn(c.t.Context(), addr, question, use.approval(), use.ID, next) {
				c.t.Errorf("%s: round %d is on record, and answered again", question, next)
			}
			next++
		}
		if time.Since(use.Now) > 10*time.Minute { // on a disk so slow it may be too late
			continue
		}
		left++
		if !c.goOn(c.t.Context(), addr, question, use.approval(), use.ID, next) || c.goOn(c.t.Context(), addr, question, use.approval(), use.ID, next) {
			c.t.Errorf("%s: round %d is not on record, and is lost, or answered twice", question, next)
		}
	}
	c.t.Logf("%d rounds on record, %d of them answered; %d uses went on afterwards", len(on.rounds), len(c.went)-left, left)
	if len(on.rounds) == 0 || left == 0 {
		c.t.Error("nothing went on")
	}
}

// crashRecord is what a log has: the questions that were approved, the decisions by which each
// used that, how often each round of such a decision is there, and the decisions of each batch.
type crashRecord struct {
	approved map[string]bool
	used     map[string][]crashLine
	rounds   map[string]int
	batches  map[string][]crashLine
}

// crashLine is a record, as far as it is looked at.
type crashLine struct {
	ID      string    `json:"id"`
	Now     time.Time `json:"now"`
	Kind    string    `json:"kind"`
	Event   string    `json:"event"`
	Request struct {
		Context struct {
			Arguments struct {
				Question string `json:"question"`
			} `json:"arguments"`
		} `json:"context"`
	} `json:"request"`
	Details struct {
		Approval string `json:"approval"`
	} `json:"details"`
	Decision   bool             `json:"decision"`
	Discharged []evaluation.Met `json:"discharged"`
}

func (l crashLine) approval() string { return l.Discharged[0].Approval }

// recorded reads the log, which verifies.
func (c *approvalCrash) recorded() crashRecord {
	c.t.Helper()
	on := crashRecord{map[string]bool{}, map[string][]crashLine{}, map[string]int{}, map[string][]crashLine{}}
	questions := map[string]string{} // by approval
	var export bytes.Buffer
	command := exec.CommandContext(c.t.Context(), "policy-service", "log", "export", "--data", c.path("data"))
	command.Stdout = &export
	if err := command.Run(); err != nil {
		c.t.Fatal(err)
	}
	report := verify.Export(bytes.NewReader(export.Bytes()), verify.Options{})
	if !report.Verified() {
		c.t.Errorf("the log does not verify: %+v", report)
	}
	for line := range bytes.Lines(export.Bytes()) {
		var r crashLine
		if json.Unmarshal(line, &r) != nil {
			continue
		}
		question := r.Request.Context.Arguments.Question
		if batch, _, is := strings.Cut(r.ID, "."); is && r.Kind == format.KindDecision {
			on.batches[batch] = append(on.batches[batch], r)
		}
		switch {
		case r.Event == "filed":
			questions[r.Details.Approval] = question
		case r.Event == "approved":
			on.approved[questions[r.Details.Approval]] = true
		case r.Kind != format.KindDecision || !r.Decision || len(r.Discharged) == 0:
		case r.Discharged[0].Continues.Round > 0:
			on.rounds[fmt.Sprint(r.Discharged[0].Continues.Decision, " ", r.Discharged[0].Continues.Round)]++
		default:
			on.used[question] = append(on.used[question], r)
		}
	}
	return on
}
