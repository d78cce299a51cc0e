package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/pdptest"
)

// Somebody was called with an approval, and asks for input before they answer: the call comes again, and again, and each
// time once.

// roundFiles are approvalFiles in which an approval of one person has as many rounds as there can be.
func roundFiles(more ...string) map[string]string {
	files := approvalFiles(more...)
	files["obligations.yaml"] = strings.ReplaceAll(files["obligations.yaml"], "template: owner", "template: owner, rounds: 10")
	return files
}

// shape is a way to ask about the same call.
type shape struct {
	name, pep, path string
	body            func(tool, context string) string
}

var bothShapes = []shape{
	{"native", "pep", "/v1/authorize", tool},
	{"AuthZEN", "asker", evaluationPath, func(id, context string) string { return "{" + wants(id, context) + "}" }},
}

// decided is an answer to either shape: whether its PEP goes ahead, the decision's id, and the text.
type decided struct {
	may      bool
	decision string
	text     string
}

// ask sends a question, and returns what its PEP is to do.
func (c *counter) ask(pep, path, body string, header ...string) decided {
	c.t.Helper()
	status, text, decision := c.sent(pep, http.MethodPost, path, body, header...)
	if status != http.StatusOK {
		c.t.Errorf("%s\ngot %d %s", body, status, text)
	}
	var said struct {
		told
		Decision bool `json:"decision"`
	}
	must(c.t, json.Unmarshal([]byte(text), &said))
	return decided{said.Decision || said.may(), decision, text}
}

// used has a call approved and made.
func (c *counter) used(s shape, id, context string) (approved string, by decided) {
	c.t.Helper()
	if s.name == "native" {
		approved = c.asks(s.pep, tool(id, context)).Approval.ID
	} else {
		approved = c.waiting(c.program(s.pep).requests(wants(id, context)))
	}
	c.says("mia", approved, "decision", yes, http.StatusOK)
	by = c.ask(s.pep, s.path, s.body(id, context+`,"approval_id":"`+approved+`"`))
	if !by.may || by.decision == "" {
		c.t.Fatalf("%s: what was approved does not go through: %s", s.name, by.text)
	}
	return approved, by
}

// round is the member of a context by which a call goes on.
func round(approved, decision string, n int) string {
	return fmt.Sprintf(`,"approval":{"id":%q,"continues":{"decision":%q,"round":%d}}`, approved, decision, n)
}

// goesOn asks for a round of a call.
func (c *counter) goesOn(s shape, context, approved, decision string, n int, header ...string) decided {
	c.t.Helper()
	return c.ask(s.pep, s.path, s.body("push", context+round(approved, decision, n)), header...)
}

// denied wants an answer that is none to go ahead by, for a reason.
func (d decided) denied(t *testing.T, what string, s shape, reason evaluation.Reason) {
	t.Helper()
	if d.may || s.name == "AuthZEN" && !strings.Contains(d.text, fmt.Sprintf(`"reason":%q`, reason)) {
		t.Errorf("%s, %s: got %s, want %s", s.name, what, d.text, reason)
	}
}

// TestContinuation: ten rounds, each once, in their order, and nothing of it is a use.
func TestContinuation(t *testing.T) {
	t.Parallel()
	c := openDeskOn(t, roundFiles())
	for _, s := range bothShapes {
		context := push + `,"shape":"` + s.name + `"`
		id, by := c.used(s, "push", context)
		for n := 1; n <= evaluation.MostRounds; n++ {
			c.goesOn(s, context, id, by.decision, n+1-n/10*2, "X-Approval", "none").denied(t, "not its turn", s, evaluation.ApprovalExpired)
			got := c.goesOn(s, context, id, by.decision, n)
			if !got.may || got.decision == by.decision {
				t.Fatalf("%s, round %d: got %s", s.name, n, got.text)
			}
			c.goesOn(s, context, id, by.decision, n).denied(t, "once more", s, evaluation.ApprovalExpired)
			c.goesOn(s, context, id, got.decision, 1).denied(t, "after a round", s, evaluation.ApprovalOutOfScope)
		}
		if seen, _ := c.sees(s.pep, id); seen.Used != 1 || seen.Status != "used_up" || seen.Continued != 10 {
			t.Errorf("%s: it is %+v", s.name, seen)
		}
		c.isOnRecord(s, id, by.decision)
	}
	c.nobodyIsAsked(t)
}

// TestNoRoundThatNobodyApproved: without rounds in the obligation nothing goes on from a use, and with some no more and no
// longer than it says. People are shown both, and the PEP learns what is left.
func TestNoRoundThatNobodyApproved(t *testing.T) {
	t.Parallel()
	for terms, rounds := range map[string]int{"template: owner": 0, "template: owner, rounds: 0, rounds_within: 1h": 0, "template: owner, rounds: 2, rounds_within: 2m": 2} {
		files := approvalFiles()
		files["obligations.yaml"] = strings.ReplaceAll(files["obligations.yaml"], "template: owner", terms)
		c := openDeskOn(t, files)
		for _, s := range bothShapes {
			context := push + `,"shape":"` + s.name + `"`
			id, by := c.used(s, "push", context)
			left := func(got decided, left int) {
				t.Helper()
				says := fmt.Sprintf(`,"obligation":"ask","rounds":%d}`, left)
				if left == 0 {
					says = `,"obligation":"ask"}`
				}
				if s.name == "AuthZEN" && !strings.Contains(got.text, says) {
					t.Errorf("%s: %d are left, and the answer is %s", terms, left, got.text)
				}
			}
			left(by, rounds)
			_, text := c.do("mia", http.MethodGet, "/v1/approvals/"+id, "")
			if shown := fmt.Sprintf(`"rounds":%d,`, rounds); !strings.Contains(text, shown) || strings.Contains(text, `"rounds_within":"2m"`) != (rounds > 0) {
				t.Errorf("%s: people see %s", terms, text)
			}
			for n := 1; n <= rounds; n++ {
				got := c.goesOn(s, context, id, by.decision, n)
				if !got.may {
					t.Errorf("%s: round %d: %s", terms, n, got.text)
				}
				left(got, rounds-n)
			}
			c.goesOn(s, context, id, by.decision, rounds+1).denied(t, "one more", s, evaluation.ApprovalOutOfScope)
			if rounds == 0 {
				continue
			}
			id, by = c.used(s, "push", context+`,"late":true`)
			c.Advance(2 * time.Minute)
			c.goesOn(s, context+`,"late":true`, id, by.decision, 1).denied(t, "too late", s, evaluation.ApprovalExpired)
			id, by = c.used(s, "push", context+`,"late":2`)
			if got := c.goesOn(s, context+`,"late":2`, id, by.decision, 1); !got.may {
				t.Errorf("%s: in time: %s", terms, got.text)
			}
			c.Advance(2 * time.Minute)
			c.goesOn(s, context+`,"late":2`, id, by.decision, 2).denied(t, "too late between rounds", s, evaluation.ApprovalExpired)
		}
	}
}

// isOnRecord holds the records of ten rounds against the decision that they went on from.
func (c *counter) isOnRecord(s shape, id, decision string) {
	c.t.Helper()
	c.log() // verifies
	_, text := c.do("auditor", "GET", "/v1/log/export?approval="+id, "")
	var steps []string
	var decisions, stepped []evaluation.Continuation
	by := map[string]bool{}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		var r struct {
			ID         string           `json:"id"`
			Kind       string           `json:"kind"`
			Event      string           `json:"event"`
			Approved   bool             `json:"approved"`
			Discharged []evaluation.Met `json:"discharged"`
			Details    struct {
				UsedBy    string                  `json:"used_by"`
				Continues evaluation.Continuation `json:"continues"`
			} `json:"details"`
		}
		if json.Unmarshal([]byte(line), &r) != nil {
			continue
		}
		if r.Kind == format.KindApproval {
			steps = append(steps, r.Event)
		}
		switch {
		case r.Event == approval.StepContinued && !by[r.Details.UsedBy]:
			c.t.Errorf("%s: the step comes before the decision: %s", s.name, line)
		case r.Event == approval.StepContinued:
			stepped = append(stepped, r.Details.Continues)
		case len(r.Discharged) == 1 && r.Discharged[0].Continues.Round > 0:
			if by[r.ID] = true; !r.Approved || r.Discharged[0].Approval != id {
				c.t.Errorf("%s: %s", s.name, line)
			}
			decisions = append(decisions, r.Discharged[0].Continues)
		}
	}
	var want []evaluation.Continuation
	for n := range evaluation.MostRounds {
		want = append(want, evaluation.Continuation{Decision: decision, Round: n + 1})
	}
	if !slices.Equal(decisions, want) || !slices.Equal(stepped, want) {
		c.t.Errorf("%s: on record are\n%v, and the steps\n%v, and not\n%v", s.name, decisions, stepped, want)
	}
	if count := strings.Count(strings.Join(steps, " "), approval.StepUsed); count != 2 { // used, used_up
		c.t.Errorf("%s: the steps are %v", s.name, steps)
	}
}

// TestNotContinued: what is no continuation of this very call, by this very caller, is none.
func TestNotContinued(t *testing.T) {
	t.Parallel()
	c := openDeskOn(t, roundFiles())
	for _, s := range bothShapes {
		context := push + `,"shape":"` + s.name + `"`
		id, by := c.used(s, "push", context)
		none := "01900000-0000-7000-8000-000000000000"
		other := s
		other.pep = "other-" + s.pep
		elsewhere, _ := c.used(s, "push", context+`,"n":1`)
		for what, ask := range map[string]struct {
			decided
			reason evaluation.Reason
		}{
			"another caller":           {c.goesOn(other, context, id, by.decision, 1), evaluation.ApprovalUnverifiable},
			"other arguments":          {c.goesOn(s, strings.Replace(context, "main", "prod", 1), id, by.decision, 1), evaluation.ApprovalOutOfScope},
			"a null argument":          {c.goesOn(s, strings.Replace(context, `"n":7`, `"n":7,"x":null`, 1), id, by.decision, 1), evaluation.ApprovalOutOfScope},
			"an unknown approval":      {c.goesOn(s, context, none, by.decision, 1), evaluation.ApprovalUnverifiable},
			"an unknown decision":      {c.goesOn(s, context, id, none, 1), evaluation.ApprovalOutOfScope},
			"a decision of another":    {c.goesOn(s, context, elsewhere, by.decision, 1), evaluation.ApprovalOutOfScope},
			"round 2":                  {c.goesOn(s, context, id, by.decision, 2), evaluation.ApprovalExpired},
			"its id alone":             {c.ask(s.pep, s.path, s.body("push", context+`,"approval_id":"`+id+`"`)), evaluation.ApprovalExpired},
			"another tool":             {c.ask(s.pep, s.path, s.body("stop", context+round(id, by.decision, 1))), evaluation.ApprovalOutOfScope},
			"the justification beside": {c.goesOn(s, context+`,"justification":"approved"`, id, by.decision, 3), evaluation.ApprovalExpired},
		} {
			ask.denied(t, what, s, ask.reason)
		}
		if !c.goesOn(s, context, id, by.decision, 1).may {
			t.Errorf("%s: what was refused spent the round", s.name)
		}
	}
}

// TestContinuationInABatch: of one approval an item may be one round, and beside that nothing else of it counts.
func TestContinuationInABatch(t *testing.T) {
	t.Parallel()
	c := openDeskOn(t, roundFiles())
	s := bothShapes[1]
	one, byOne := c.used(s, "list", push)
	other, byOther := c.used(s, "list", push+`,"other":1`)
	item := func(more, member string) string { return `{"context":{` + push + more + member + `}}` }
	uses := func(id string) string { return `,"approval_id":"` + id + `"` }
	asks := func(want string, items ...string) (ids []string) {
		t.Helper()
		body := `{` + wants("list", push) + `,"evaluations":[` + strings.Join(items, ",") + `]}`
		status, text, id := c.sent("asker", http.MethodPost, "/access/v1/evaluations", body)
		var answer struct {
			Evaluations []struct {
				Decision bool `json:"decision"`
			} `json:"evaluations"`
		}
		must(t, json.Unmarshal([]byte(text), &answer))
		got := ""
		for n, one := range answer.Evaluations {
			got += map[bool]string{true: "y", false: "n"}[one.Decision]
			ids = append(ids, fmt.Sprintf("%s.%d", id, n))
		}
		if status != http.StatusOK || got != want {
			t.Errorf("%v\ngot %s, want %s: %s", items, got, want, text)
		}
		return ids
	}
	first := item("", round(one, byOne.decision, 1))
	asks("ynn", first, first, item("", round(one, byOne.decision, 2)))
	asks("ynyn", item("", round(one, byOne.decision, 2)), item("", uses(one)), item(`,"other":1`, round(other, byOther.decision, 1)), first)
	used := asks("yyn", item("", uses(one)), item("", uses(one)), item("", round(one, byOne.decision, 3)))
	asks("y", item("", round(one, byOne.decision, 3)))
	asks("y", item("", round(one, used[1], 1))) // a use by an item is gone on from as any other
	asks("n", item("", round(one, used[1], 1)))
	if seen, _ := c.sees(s.pep, one); seen.Used != 3 || seen.Continued != 4 {
		t.Errorf("it is %+v", seen)
	}
	c.log() // verifies
}

// TestContinuationTakenBack: what was revoked, or what a revoked key approved, is continued no more.
func TestContinuationTakenBack(t *testing.T) {
	t.Parallel()
	c := openDeskOn(t, roundFiles())
	s := bothShapes[0]
	id, by := c.used(s, "list", push)
	ask := func(tool_ string, n int, id string, by decided) decided {
		return c.ask(s.pep, s.path, tool(tool_, push+round(id, by.decision, n)))
	}
	if !ask("list", 1, id, by).may {
		t.Fatal("it cannot be continued")
	}
	c.says("noah", id, "revoke", `{"reason":"no"}`, http.StatusOK)
	ask("list", 2, id, by).denied(t, "revoked", s, "")
	again, other := c.used(s, "push", push)
	c.revoke("mia")
	ask("push", 1, again, other).denied(t, "a revoked key", s, "")
	c.stands(t, "people are asked about what was used", "pep", again, "used_up")
}

// TestContinuationInTime: within fifteen minutes of the use, by the service's clock, be the approval's own end before it
// or after it, and be the server started again or not.
func TestContinuationInTime(t *testing.T) {
	t.Parallel()
	c := openDeskOn(t, roundFiles())
	s := bothShapes[0]
	for _, test := range []struct {
		after time.Duration
		may   bool
	}{{6 * time.Minute, true}, {15*time.Minute - 1, true}, {15 * time.Minute, false}, {time.Hour, false}} {
		for _, restarted := range []bool{false, true} {
			context := fmt.Sprintf(`%s,"after":"%v %v"`, push, test.after, restarted)
			id, by := c.used(s, "push", context)
			c.Advance(test.after)
			if restarted {
				must(t, c.Stop(t.Context()))
				c.open(pdptest.Bundle(roundFiles()))
			}
			if got := c.goesOn(s, context, id, by.decision, 1); got.may != test.may {
				t.Errorf("%v later, restarted %v: got %s", test.after, restarted, got.text)
			}
			if test.may {
				c.Advance(15 * time.Minute)
				c.goesOn(s, context, id, by.decision, 2).denied(t, "round 2, too late", s, "")
			}
		}
	}
}

// TestContinuationIsDecidedAnew: policies may deny it, and then it took no round; an explained answer takes none either.
func TestContinuationIsDecidedAnew(t *testing.T) {
	t.Parallel()
	c := openDeskOn(t, roundFiles("a.cedar", `@id("late") forbid(principal, action, resource) when { context has trace && context.trace == "night" };`))
	for _, s := range bothShapes {
		context := push + `,"shape":"` + s.name + `"`
		id, by := c.used(s, "push", context)
		c.goesOn(s, context+`,"trace":"night"`, id, by.decision, 1).denied(t, "a forbid", s, evaluation.ApprovalPolicyDenied)
		explained := s
		explained.pep = "explainer"
		if got := c.goesOn(explained, context, id, by.decision, 1, "X-Explain", "true"); got.may {
			t.Errorf("%s: explained: %s", s.name, got.text)
		}
		if got := c.goesOn(s, context+`,"trace":"day"`, id, by.decision, 1); !got.may {
			t.Errorf("%s: a deny took the round: %s", s.name, got.text)
		}
	}
}

// TestOneContinuationManyTimes: sent at once by 64, later, after a restart, and after an older copy of the file was put
// back, a round is answered once.
func TestOneContinuationManyTimes(t *testing.T) {
	t.Parallel()
	c := openDeskOn(t, roundFiles())
	for n, s := range bothShapes {
		context := fmt.Sprintf(`%s,"shape":%d`, push, n)
		id, by := c.used(s, "push", context)
		must(t, c.Stop(t.Context()))
		older := c.file(approval.FileName)
		c.open(pdptest.Bundle(roundFiles()), public)
		for round := 1; round <= 3; round++ {
			var may atomic.Int32
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() {
					if c.goesOn(s, context, id, by.decision, round).may {
						may.Add(1)
					}
				})
			}
			all.Wait()
			if may.Load() != 1 {
				t.Errorf("%s, round %d: answered %d times", s.name, round, may.Load())
			}
			c.goesOn(s, context, id, by.decision, round).denied(t, "later", s, evaluation.ApprovalExpired)
			must(t, c.Stop(t.Context()))
			if round == 2 {
				c.write(approval.FileName, older)
			}
			c.open(pdptest.Bundle(roundFiles()), public)
			for one := 1; one <= round; one++ {
				c.goesOn(s, context, id, by.decision, one).denied(t, "after a restart", s, evaluation.ApprovalExpired)
			}
		}
		if steps, _ := c.log(); !slices.Contains(steps, approval.StepCaughtUp) {
			t.Errorf("that the file was behind is not on record: %v", steps)
		}
	}
}

// TestNoContinuationIsPassedOver: what cannot be read is refused where it stands, by either shape and by a batch, and uses
// nothing.
func TestNoContinuationIsPassedOver(t *testing.T) {
	t.Parallel()
	c := openDeskOn(t, roundFiles())
	id := c.approved()
	p := c.program("asker")
	denial := p.denied(wants("push", push)).denial()
	for continues, at := range map[string]string{
		`"d"`: "", `[]`: "", `1`: "", `true`: "", `{}`: "/decision", `{"decision":"d"}`: "/round", `{"round":1}`: "/decision",
		`{"decision":7,"round":1}`: "/decision", `{"decision":"","round":1}`: "/decision", `{"decision":null,"round":1}`: "/decision", `{"decision":["d"],"round":1}`: "/decision",
		`{"decision":"d","round":"1"}`: "/round", `{"decision":"d","round":0}`: "/round", `{"decision":"d","round":-1}`: "/round", `{"decision":"d","round":11}`: "/round",
		`{"decision":"d","round":1.5}`: "/round", `{"decision":"d","round":1e400}`: "/round", `{"decision":"d","round":null}`: "/round", `{"decision":"d","round":true}`: "/round",
		`{"decision":"d","round":18446744073709551617}`: "/round", `{"decision":"d","round":1,"more":2}`: "/more", `{"Decision":"d","decision":"d","round":1}`: "/Decision",
	} {
		member := fmt.Sprintf(`,"approval":{"id":%q,"continues":%s}`, id, continues)
		at = "/context/approval/continues" + at
		for name, ask := range map[string][3]string{
			"native":            {"pep", "/v1/authorize", tool("push", push+member)},
			"AuthZEN":           {"pep", evaluationPath, "{" + wants("push", push+member) + "}"},
			"a batch of none":   {"pep", "/access/v1/evaluations", "{" + wants("push", push+member) + "}"},
			"a search":          {"searcher", "/access/v1/search/action", `{"subject":{"type":"agent","id":"bot"},"resource":{"type":"tool","id":"push"},"context":{` + push + member + `}}`},
			"an access request": {"asker", "/access/v1/requests", "{" + wants("push", push+member) + "," + denial + "}"},
		} {
			c.reply(ask[0], "POST", ask[1], ask[2]).is(t, fmt.Sprintf("%s, %s", name, continues), 400, `"pointer":"`+at+`"`)
		}
		items := fmt.Sprintf(`{%s,"evaluations":[{"context":{%s%s}},{}]}`, wants("push", push), push, member)
		if status, text := c.do("pep", "POST", "/access/v1/evaluations", items); status != 200 || !strings.Contains(text, `"status":400`) || !strings.Contains(text, "/evaluations/0"+at) || strings.Contains(text, `"decision":true`) {
			t.Errorf("an item, %s: got %d %s", continues, status, text)
		}
	}
	c.stands(t, "used", "pep", id, "approved", 0)
	got := c.ask("pep", "/v1/authorize", tool("push", push+`,"approval":{"id":"`+id+`","continues":null}`)) // null is absent
	if !got.may || !c.goesOn(bothShapes[0], push, id, got.decision, 1).may {
		t.Errorf("got %s", got.text)
	}
	if got := c.ask("pep", "/v1/authorize", tool("push", push+fmt.Sprintf(`,"approval":{"id":%q,"continues":{"decision":%q,"round":2.0e0}}`, id, got.decision))); !got.may {
		t.Errorf("a whole number in another form: %s", got.text)
	}
}

// TestContinuationWithState: the state that an approval came with is verified, and its end does not matter any more.
func TestContinuationWithState(t *testing.T) {
	t.Parallel()
	c := openDeskOn(t, roundFiles())
	p := c.program("asker")
	presenting, _ := p.granted(wants("push", push))
	other, _ := p.granted(wants("push", push+`,"n":1`))
	by := c.ask("asker", evaluationPath, "{"+wants("push", push+","+presenting)+"}")
	if !by.may {
		t.Fatal(by.text)
	}
	c.Advance(6 * time.Minute) // the approval is valid for five
	continues := fmt.Sprintf(`"approval":{"continues":{"decision":%q,"round":1},`, by.decision)
	for _, test := range []struct {
		presenting string
		reason     evaluation.Reason
	}{
		{strings.Replace(presenting, `"state":"`, `"state":"x`, 1), evaluation.ApprovalUnverifiable},
		{other, evaluation.ApprovalOutOfScope},
		{presenting, ""},
		{presenting, evaluation.ApprovalExpired},
	} {
		member := strings.Replace(test.presenting, `"approval":{`, continues, 1)
		got := c.ask("asker", evaluationPath, "{"+wants("push", push+","+member)+"}")
		if test.reason != "" {
			got.denied(t, member, bothShapes[1], test.reason)
		} else if !got.may {
			t.Errorf("%s: got %s", member, got.text)
		}
	}
}

// TestContinuationOfTheVeryCall: between two rounds the same arguments may be written otherwise. Other arguments, or
// another definition of the tool under the same id, are another call.
func TestContinuationOfTheVeryCall(t *testing.T) {
	t.Parallel()
	c := openDeskOn(t, roundFiles())
	s := bothShapes[1]
	ask := func(arguments, digest string, n int, by decided, id string) decided {
		member := `"arguments":` + arguments
		if n > 0 {
			member += round(id, by.decision, n)
		} else {
			member += `,"approval_id":"` + id + `"`
		}
		question := strings.Replace(wants("push", member), `"id":"push"`, `"id":"push","properties":{"digest":"`+digest+`"}`, 1)
		return c.ask(s.pep, s.path, "{"+question+"}")
	}
	const arguments, digest = `{"to":"mia","n":7,"x":null}`, "sha256:a"
	id := c.approvedFor(c.program(s.pep), strings.Replace(wants("push", `"arguments":`+arguments), `"id":"push"`, `"id":"push","properties":{"digest":"`+digest+`"}`, 1))
	by := ask(arguments, digest, 0, decided{}, id)
	if !by.may {
		t.Fatal(by.text)
	}
	next := 1
	for _, test := range []struct {
		arguments, digest string
		may               bool
	}{
		{arguments, "sha256:b", false},
		{`{"to":"mia","n":7}`, digest, false},
		{`{"to":"mia","n":7,"x":false}`, digest, false},
		{`{"x":null,"n":70e-1,"to":"m\u0069a"}`, digest, true},
		{`{"to":"mia","n":8,"x":null}`, digest, false},
		{arguments, digest, true},
	} {
		got := ask(test.arguments, test.digest, next, by, id)
		if !test.may {
			got.denied(t, test.arguments+" "+test.digest, s, evaluation.ApprovalOutOfScope)
			continue
		}
		if !got.may {
			t.Errorf("%s: got %s", test.arguments, got.text)
		}
		next++
	}
}
