package server_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest/night"
)

// batch asks several questions at once. The other members stand beside them.
func (p program) batch(others string, questions ...string) (answers []answer) {
	p.t.Helper()
	body := `{` + others + `"evaluations":[{` + strings.Join(questions, "},{") + `}]}`
	status, text := p.do(p.name, "POST", p.below+"/access/v1/evaluations", body)
	if status != http.StatusOK {
		p.t.Fatalf("%.1000s\ngot %d %s", body, status, text)
	}
	var all struct {
		Evaluations []jsontext.Value `json:"evaluations"`
	}
	must(p.t, json.Unmarshal([]byte(text), &all))
	answers = make([]answer, len(all.Evaluations))
	for n, one := range all.Evaluations {
		must(p.t, json.Unmarshal(one, &answers[n]))
		answers[n].text = string(one)
	}
	return answers
}

// said is what items of a batch were answered: + is an allow, and - a deny.
func said(answers []answer) (text string) {
	for _, a := range answers {
		text += map[bool]string{true: "+", false: "-"}[a.Decision]
	}
	return text
}

// itemsAre checks which items of a batch are allowed.
func itemsAre(t *testing.T, name, want string, answers []answer) {
	t.Helper()
	if said(answers) != want {
		t.Errorf("%s: got %v, want %s", name, answers, want)
	}
}

// onceGranted has an approval of each question asked for and given, and returns the questions that present them.
func (p program) onceGranted(questions ...string) (presenting []string, approvals []string) {
	p.t.Helper()
	for _, question := range questions {
		presented, of := p.granted(question)
		presenting = append(presenting, strings.Replace(question, `"context":{`, `"context":{`+presented+`,`, 1))
		approvals = append(approvals, of.Result.Approval.ID)
	}
	return presenting, approvals
}

// The denials of a batch say how approvals are asked for; one submission asks for all of them; and in a later batch
// each item spends its own approval, once.
func TestAccessRequestsOfABatch(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	for _, p := range []program{c.program("asker"), c.program("acme-asker").in("acme")} {
		tools := []string{"push", "unknown", "list"}
		var questions, items []string
		for _, id := range tools {
			questions = append(questions, wants(id, push))
		}
		denied := p.batch("", questions...)
		if said(denied) != "---" || denied[1].text != `{"decision":false}` {
			t.Fatalf("got %v", denied)
		}
		tools, denied = slices.Delete(tools, 1, 2), slices.Delete(denied, 1, 2)
		for n, a := range denied {
			if a.Context.Request == nil || a.Context.Reason != evaluation.ApprovalRequired {
				t.Fatalf("item %d: got %s", n, a.text)
			}
			if status, text := c.do("auditor", "GET", "/v1/decisions/"+a.Context.EvaluationID, ""); status != 200 || !strings.Contains(text, tools[n]) {
				t.Errorf("item %d is on no record: %d %s", n, status, text)
			}
			items = append(items, fmt.Sprintf(`{"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":%q},%s}`, tools[n], a.denial()))
		}
		asked := p.submits(`"subject":{"type":"agent","id":"bot"},"context":{` + push + `},"items":[` + strings.Join(items, ",") + `]`)
		if asked.status != 202 || len(asked.Task.Approvals) != 2 {
			t.Fatalf("got %d %s", asked.status, asked.text)
		}
		for _, of := range asked.Task.Approvals {
			c.says("zoe", of.ID, "decision", yes, 200)
		}
		var presenting []string
		for n, item := range p.looks(asked.Task.ID).Task.Items {
			presenting = append(presenting, wants(tools[n], push+","+presents(item.Result)))
		}
		for n, a := range p.batch("", presenting...) {
			if !a.Decision || a.Context.Approval == nil || a.Context.Approval.ID != asked.Task.Approvals[n].ID {
				t.Errorf("item %d: got %s", n, a.text)
			}
		}
		again := p.batch("", presenting...)
		if said(again) != "-+" || again[0].Context.Reason != evaluation.ApprovalExpired || again[0].Context.Request == nil {
			t.Errorf("once is once: got %v", again)
		}
		if swapped := p.batch("", wants("list", push+presenting[0][strings.Index(presenting[0], `,"approval"`):len(presenting[0])-1])); swapped[0].Decision || swapped[0].Context.Reason != evaluation.ApprovalOutOfScope {
			t.Errorf("by the approval of another item: got %s", swapped[0].text)
		}
	}
	if steps, spent := c.log(); spent != 6 || strings.Count(strings.Join(steps, " "), "used_up") != 2 {
		t.Errorf("on record: %d %v", spent, steps)
	}
}

// Items that present one approval spend it as often as it may be used, in their order.
func TestItemsShareAnApproval(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	questions, approvals := p.onceGranted(wants("list", push), wants("push", push))
	list, once := questions[0], questions[1]
	if got := p.batch("", list, once, list, once, list, list); said(got) != "+++-+-" || got[5].Context.Reason != evaluation.ApprovalExpired || got[5].Context.Request == nil {
		t.Errorf("got %v", got)
	}
	for _, id := range approvals {
		c.stands(t, "the answer", "mia", id, "used_up")
	}
	// What all inherit is presented by each.
	question, _ := p.onceGranted(wants("list", `"other":1`))
	itemsAre(t, "the answer", "+++-", p.batch(question[0]+",", `"subject":{"type":"agent","id":"bot"}`, ``, ``, ``))
	// Found by the words alone.
	p.onceGranted(wants("push", `"other":2`))
	if got := p.batch("", wants("push", `"other":2,"justification":"approved"`), wants("push", `"other":2,"justification":"approved"`)); said(got) != "+-" || got[1].Context.Reason != evaluation.ApprovalRequired {
		t.Errorf("got %v", got)
	}
}

// What decides a batch ends it, also if only the approval that another item had used up makes it so. What items behind
// that would have used is there again.
func TestABatchEndsWhereItIsDecided(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	semantic := func(s evaluation.Semantic) string { return `"options":{"evaluations_semantic":"` + string(s) + `"},` }
	questions, approvals := p.onceGranted(wants("list", push), wants("push", push), wants("list", `"other":1`))
	list, once, other := questions[0], questions[1], questions[2]
	itemsAre(t, "the answer", "++-", p.batch(semantic(evaluation.DenyOnFirstDeny), list, once, once, list, other))
	for n, used := range []int{1, 1, 0} {
		eventually(t, "what was not used is there again", func() bool { got, _ := c.sees("mia", approvals[n]); return got.Used == used })
	}
	itemsAre(t, "the answer", "-+", p.batch(semantic(evaluation.PermitOnFirstPermit), once, list, other))
	itemsAre(t, "the answer", "++++", p.batch("", other, other, other, list))
}

// Who may not ask for approvals, or asks for an explanation, is told nothing of them in a batch either.
func TestABatchOffersAsOneRequestDoes(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	if got := c.program("pep").batch("", wants("push", push)); got[0].text != `{"decision":false,"context":{"reason":"approval_required","required_obligations":["approval_required"]}}` {
		t.Errorf("got %s", got[0].text)
	}
	p := c.program("explaining-asker")
	presenting, approvals := p.onceGranted(wants("push", push))
	_, text := p.do(p.name, "POST", "/access/v1/evaluations", `{"evaluations":[{`+presenting[0]+`}]}`, "X-Explain", "true")
	if got, _ := c.sees("mia", approvals[0]); strings.Contains(text, "access_request") || strings.Contains(text, `"decision":true`) || got.Used != 0 {
		t.Errorf("got %s, used %d", text, got.Used)
	}
}

var (
	anyID    = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.\d+)?`)
	anyToken = regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]+`)
)

// plain is an answer without what no two answers have in common.
func (a answer) plain() string {
	return anyToken.ReplaceAllString(anyID.ReplaceAllString(a.text, "ID"), "TOKEN")
}

// TestPropertyABatchIsItsItems: a batch is answered as its items are by themselves, one after the other, whatever
// approvals they present.
func TestPropertyABatchIsItsItems(t *testing.T) {
	t.Parallel()
	c := openDesk(t, func(config *server.Config) { config.Approvals.NewPerMinutePerSubject = 1_000_000 })
	one, all := c.program("other-asker"), c.program("asker")
	rounds, allows, cut := night.Cases(50), 0, 0
	for round := range rounds {
		g := rand.New(rand.NewPCG(uint64(round), 7))
		var kinds [][2]string // what each of them asks
		for n, id := range []string{"push", "list", "push", "list"} {
			question := wants(id, fmt.Sprintf(`"round":"%d.%d"`, round, n))
			first, _ := one.onceGranted(question)
			second, _ := all.onceGranted(question)
			kinds = append(kinds, [2]string{first[0], second[0]})
			other := strings.Replace(question, `"round"`, `"other":1,"round"`, 1)
			kinds = append(kinds, [2]string{other, other})
			by := [2]string{}
			for k, from := range []string{first[0], second[0]} {
				by[k] = strings.Replace(from, `"round"`, `"other":1,"round"`, 1) // an approval of another request
			}
			found := strings.Replace(question, `"round"`, `"justification":"approved","round"`, 1)
			kinds = append(kinds, by, [2]string{found, found})
		}
		semantic := []evaluation.Semantic{evaluation.ExecuteAll, evaluation.ExecuteAll, evaluation.DenyOnFirstDeny, evaluation.PermitOnFirstPermit}[g.IntN(4)]
		var singles, items []string
		for range 1 + g.IntN(12) {
			kind := kinds[g.IntN(len(kinds))]
			if g.IntN(3) > 0 {
				kind = kinds[4*g.IntN(4)]
			}
			singles, items = append(singles, kind[0]), append(items, kind[1])
		}
		got := all.batch(`"options":{"evaluations_semantic":"`+string(semantic)+`"},`, items...)
		var want []answer
		for _, question := range singles {
			a := one.evaluates(question)
			if want = append(want, a); semantic.Decides(a.Decision, evaluation.Decided) {
				break
			}
		}
		if len(want) < len(singles) {
			cut++
		}
		if len(got) != len(want) {
			t.Fatalf("round %d, %s: %s, and one after the other %s", round, semantic, said(got), said(want))
		}
		for n := range want {
			if got[n].Decision {
				allows++
			}
			if got[n].plain() != want[n].plain() {
				t.Fatalf("round %d, %s, item %d of %s:\ngot  %s\nwant %s", round, semantic, n, said(want), got[n].plain(), want[n].plain())
			}
		}
	}
	if t.Logf("%d allows, %d batches were cut", allows, cut); allows < rounds || cut < rounds/8 {
		t.Error("it shows little")
	}
}

// Batches that present the same approvals in every order wait for each other, and none for ever; and no use is made
// twice.
func TestBatchesAtOnce(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	c.Client = ownClient()
	p := c.program("asker")
	var questions []string
	for n := range 6 {
		questions = append(questions, wants("list", fmt.Sprintf(`"n":%d`, n)))
	}
	presenting, approvals := p.onceGranted(questions...)
	answers := make(chan string, 16)
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			g := rand.New(rand.NewPCG(uint64(n), 3))
			some := slices.Clone(presenting)
			g.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			answers <- said(p.batch("", some...))
		})
	}
	all.Wait()
	close(answers)
	allows := 0
	for text := range answers {
		allows += strings.Count(text, "+")
	}
	if allows != 3*len(presenting) {
		t.Errorf("%d approvals of three uses were used %d times", len(presenting), allows)
	}
	for _, id := range approvals {
		c.stands(t, "the answer", "mia", id, "used_up", 3)
	}
}

// TestABatchThatUsesApprovalsWaitsForNoTurn: while it keeps an approval from others it must come to its end, whoever else
// wants to work. Another batch of its caller may have the turn, and wait for that approval.
func TestABatchThatUsesApprovalsWaitsForNoTurn(t *testing.T) {
	t.Parallel()
	// However slow the machine is, there is time for all turns: whoever is refused waits for somebody who waits for them.
	c := openDesk(t)
	c.BePatient(patience, patience)
	c.Client = ownClient()
	p := c.program("asker")
	const sets, batches = 4, 6
	var questions []string
	for n := range sets {
		questions = append(questions, wants("list", fmt.Sprintf(`"n":%d`, n)))
	}
	presenting, _ := p.onceGranted(questions...)
	ballast := slices.Repeat([]string{`"context":{"password":"hunter2hunter2","text":"` + strings.Repeat("hunter ", 20) + `"}`}, 150)
	ctx, cancel := context.WithCancel(t.Context())
	var others, all sync.WaitGroup
	for _, who := range []string{"pep", "other-pep", "other-asker"} {
		for range 3 {
			others.Go(func() {
				for ctx.Err() == nil {
					c.program(who).batch(wants("unknown", "")+",", ballast...)
				}
			})
		}
	}
	var uses atomic.Int64
	for k := range batches {
		all.Go(func() {
			g := rand.New(rand.NewPCG(uint64(k), 1))
			for _, one := range presenting {
				for range g.IntN(20_000) { // a batch that comes later has its turn earlier
					runtime.Gosched()
				}
				got := p.batch(wants("unknown", "")+",", slices.Concat(ballast[:g.IntN(len(ballast))], []string{one})...)
				uses.Add(int64(strings.Count(said(got), "+")))
			}
		})
	}
	all.Wait()
	cancel()
	others.Wait()
	if n := uses.Load(); n != 3*sets {
		t.Errorf("%d approvals of three uses were used %d times", sets, n)
	}
}

// A batch uses as many approvals as it may, and says which items to ask again. The approvals of those are not used.
func TestABatchUsesOnlySoManyApprovals(t *testing.T) {
	t.Parallel()
	c := openDesk(t, func(config *server.Config) { config.Approvals.NewPerMinutePerSubject = 1_000_000 })
	p := c.program("asker")
	var questions []string
	for n := range pdp.MaxUses + 3 {
		questions = append(questions, wants("push", fmt.Sprintf(`"n":%d`, n)))
	}
	presenting, _ := p.onceGranted(questions...)
	got := p.batch("", presenting...)
	if said(got) != strings.Repeat("+", pdp.MaxUses)+"---" {
		t.Fatalf("got %s", said(got))
	}
	for _, a := range got[pdp.MaxUses:] {
		if a.Context.Reason != evaluation.ApprovalPending || a.Context.NextAction != evaluation.NextRetry || a.Context.RetryAfter == 0 {
			t.Errorf("got %s", a.text)
		}
	}
	itemsAre(t, "the answer", "+++", p.batch("", presenting[pdp.MaxUses:]...))
}

// However much a thousand items inherit, what the answer says of approvals is bounded. An item that has no more room is
// denied all the same, and can be asked by itself.
func TestOffersOfABatchAreBounded(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	c.BePatient(patience, patience) // of the size alone: a busy machine may need longer than a request may take
	p := c.program("asker")
	var names strings.Builder
	for n := range 4000 {
		fmt.Fprintf(&names, `"%0200d":1,`, n)
	}
	for name, test := range map[string]struct {
		context     string
		least, most int
	}{
		"nothing":     {push, 1000, 1000},
		"a long text": {`"text":"` + strings.Repeat("x", 900<<10) + `"`, 10, 20},
		"long names":  {names.String() + `"x":1`, 1, 5},
	} {
		questions := slices.Repeat([]string{`"resource":{"type":"tool","id":"push"}`}, 1000)
		got := p.batch(wants("push", test.context)+",", questions...)
		offered, size := 0, 0
		for _, a := range got {
			if size += len(a.text); a.Decision || !strings.Contains(a.text, "approval_required") {
				t.Fatalf("%s: got %.1000s", name, a.text)
			}
			if a.Context.Request != nil {
				offered++
			}
		}
		if offered < test.least || offered > test.most || size > 5<<20 {
			t.Errorf("%s: %d of %d items are offered an approval, in %d bytes", name, offered, len(got), size)
		}
		t.Logf("%s: %d offers, %d bytes", name, offered, size)
	}
}
