package server_test

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
)

// polls has a caller wait so often with the same question.
func (c *counter) polls(who, path string, n int) (answers chan pdptest.Response) {
	c.t.Helper()
	before := c.Joined()
	answers = make(chan pdptest.Response, n)
	for range n {
		go func() { answers <- c.Do("GET", path, "", "Authorization", c.key[who]) }()
	}
	eventually(c.t.(*testing.T), "all wait", func() bool { return c.Joined() == before+n })
	return answers
}

// filed has one more request wait, of a subject of its own.
func (c *counter) filed(subject string) (id string) {
	c.t.Helper()
	told := c.asks("pep", strings.Replace(tool("push", push), `"bot"`, `"`+subject+`"`, 1))
	if told.Approval == nil || told.Approval.ID == "" {
		c.t.Fatalf("%s: got %+v", subject, told)
	}
	return told.Approval.ID
}

// fill has so many requests wait, of ten subjects.
func (c *counter) fill(n int) {
	c.t.Helper()
	c.BePatient(patience, patience)
	var all sync.WaitGroup
	const atOnce = 50
	for k := range atOnce {
		all.Go(func() {
			for one := k; one < n; one += atOnce {
				if told := c.asks("pep", strings.Replace(tool("push", fmt.Sprintf(`"arguments":{"n":%d}`, one)), `"bot"`, fmt.Sprintf(`"bot%d"`, one%10), 1)); told.Approval == nil || told.Approval.ID == "" {
					c.t.Errorf("got %+v", told)
				}
			}
		})
	}
	all.Wait()
}

// Of one approver who waits 250 times with the same question, all are answered by a few looks. One more has no place,
// and others have.
func TestEqualPollsShareOneLook(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	answers := c.polls("mia", "/v1/approvals?status=pending&limit=10&wait=30s", 200)
	more := c.polls("mia", "/v1/approvals?wait=30s&limit=10&status=pending", 50) // in other words
	if n := c.Watches(); n != 1 {
		t.Errorf("%d look for equal questions", n)
	}
	if got := c.Do("GET", "/v1/approvals?wait=30s", "", "Authorization", c.key["mia"]); got.Status != 503 || got.Header.Get("Retry-After") != "1" {
		t.Errorf("one more: got %d %s", got.Status, got.Body)
	}
	other := c.polls("noah", "/v1/approvals?wait=30s", 1)
	looks, pages := c.Looks(), c.Pages()
	id := c.filed("bot")
	for n := range 251 {
		var got pdptest.Response
		select {
		case got = <-answers:
		case got = <-more:
		case got = <-other:
		}
		if got.Status != 200 || strings.Count(got.Body, `"id":"`+id+`"`) != 1 {
			t.Fatalf("answer %d is %d %s", n, got.Status, got.Body)
		}
	}
	// The first look of the last to come may have been under way.
	if looks, pages = c.Looks()-looks, c.Pages()-pages; looks > 6 || pages > 6 {
		t.Errorf("for one change and two questions there are %d looks, %d pages", looks, pages)
	}
	eventually(t, "none waits", func() bool { return c.Waiting() == 0 && c.Watches() == 0 })
}

// What is done in one tenant has nobody look who waits for another, or for one request.
func TestAChangeElsewhereHasNobodyLook(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.filed("bot")
	inbox := c.polls("acme-lead", "/v1/approvals?wait=30s", 1)
	status := c.polls("pep", "/v1/approvals/"+id+"?wait=30s", 1)
	eventually(t, "both have looked", func() bool { return c.Looks() == 2 })
	for n := range 20 {
		other := c.filed(fmt.Sprint("bot", n))
		c.says("mia", other, "decision", no, 200)
	}
	if n := c.Looks(); n != 2 {
		t.Errorf("for nothing there are %d looks", n-2)
	}
	if c.asks("pep", inAcme(tool("push", push))).Approval == nil {
		t.Fatal("nobody is asked")
	}
	if got := <-inbox; got.Status != 200 || strings.Count(got.Body, `"id"`) == 0 {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	c.says("mia", id, "decision", yes, 200)
	if got := <-status; got.Status != 200 || !strings.Contains(got.Body, `"approved"`) {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
}

// One approver waits with 200 different questions, and asks for pages in a loop besides,
// while changes rain: whoever else looks is not behind all of that.
func TestPollsOfOneDoNotKeepAnotherFromLooking(t *testing.T) {
	t.Parallel()
	c := openCounter(t, func(config *server.Config) { config.Approvals.NewPerMinutePerSubject = 1_000_000 })
	c.Client = ownClient()
	c.fill(60)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	again := func(n int, do func(k int)) {
		for range n {
			all.Go(func() {
				for k := 0; ctx.Err() == nil; k++ {
					do(k)
				}
			})
		}
	}
	get := func(who, path string) int {
		r, err := http.NewRequestWithContext(ctx, "GET", c.URL+path, nil)
		must(t, err)
		r.Header.Set("Authorization", c.key[who])
		answer, err := c.Client.Do(r)
		if err != nil {
			return 0
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	var number atomic.Int64
	again(200, func(int) { get("mia", fmt.Sprintf("/v1/approvals?subject=nobody%d&wait=30s", number.Add(1))) })
	again(32, func(k int) { get("mia", fmt.Sprintf("/v1/approvals?limit=200&template=none%d", k)) })
	again(1, func(k int) {
		_, _ = c.do("pep", "POST", "/v1/authorize", strings.Replace(tool("push", push), `"bot"`, fmt.Sprintf(`"rain%d"`, k%50), 1))
	})
	from := c.Pages()
	eventually(t, "many pages are made", func() bool { return c.Pages() > from+50 })
	var between []int64
	for range 21 {
		from := c.Pages()
		if status := get("acme-lead", "/v1/approvals"); status != 200 {
			t.Errorf("got %d", status)
		}
		between = append(between, c.Pages()-from)
	}
	cancel()
	all.Wait()
	slices.Sort(between)
	if median := between[len(between)/2]; median > 30 { // of more than 200 that are wanted
		t.Errorf("another is answered after so many pages: %v", between)
	}
}

// However filings, votes and those who wait for them come together, everybody who waits is
// told.
func TestNoPollIsLost(t *testing.T) {
	t.Parallel()
	c := openCounter(t, func(config *server.Config) { config.Approvals.NewPerMinutePerSubject = 1_000_000 })
	rounds, at := night.Cases(160), 8
	// Who is answered at the end of its time alone was not told.
	inTime := func(n int, what string, poll func()) {
		begun := time.Now()
		if poll(); time.Since(begun) > 25*time.Second {
			t.Errorf("round %d: %s is told of nothing", n, what)
		}
	}
	pause := func() { // anything may come first
		for range mathrand.IntN(5000) {
			runtime.Gosched()
		}
	}
	round := func(n int) {
		subject := fmt.Sprint("bot", n)
		var both sync.WaitGroup
		for _, who := range []string{"mia", "mia", "noah"} {
			both.Go(func() {
				pause()
				inTime(n, who, func() {
					if items, _ := c.inbox(who, "?subject="+subject+"&wait=30s"); len(items) != 1 {
						t.Errorf("round %d: %s has %d", n, who, len(items))
					}
				})
			})
		}
		pause()
		id := c.filed(subject)
		both.Wait()
		for range 2 {
			both.Go(func() {
				pause()
				inTime(n, "pep", func() {
					if status, text := c.do("pep", "GET", "/v1/approvals/"+id+"?wait=30s", ""); status != 200 || !strings.Contains(text, `"status":"denied"`) {
						t.Errorf("round %d: got %d %s", n, status, text)
					}
				})
			})
		}
		pause()
		c.says("noah", id, "decision", no, 200)
		both.Wait()
	}
	var all sync.WaitGroup
	for first := range at {
		all.Go(func() {
			for n := first; n < rounds && !t.Failed(); n += at {
				round(n)
			}
		})
	}
	all.Wait()
	eventually(t, "nobody waits", func() bool { return c.Waiting() == 0 && c.Watches() == 0 })
}

// Two tokens of one person share their looks, but not their end.
func TestAnEndedCredentialEndsItsOwnPollsAlone(t *testing.T) {
	t.Parallel()
	issuer := pdptest.NewIssuer(t)
	c := openCounter(t, func(config *server.Config) {
		config.Auth.JWT = []auth.JWTIssuer{{
			Issuer: "https://issuer.example", Audience: "pdp", JWKSFile: issuer.File, Algorithms: []string{"EdDSA"}, Principal: &auth.PrincipalClaim{Type: "user", Claim: "sub"},
			Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Approve}},
		}}
	})
	for name, valid := range map[string]time.Duration{"short": time.Minute, "long": time.Hour} {
		c.key[name] = "Bearer " + issuer.Token(jwt.Claims{Issuer: "https://issuer.example", Subject: "mia", Audience: jwt.Audience{"pdp"}, IssuedAt: jwt.NewNumericDate(pdptest.Now), Expiry: jwt.NewNumericDate(pdptest.Now.Add(valid))})
	}
	short := c.polls("short", "/v1/approvals?wait=30s", 2)
	long := c.polls("long", "/v1/approvals?wait=30s", 2)
	if n := c.Watches(); n != 1 {
		t.Errorf("%d look for one person", n)
	}
	c.Advance(5 * time.Minute)
	for range 2 {
		if got := <-short; got.Status != 401 {
			t.Errorf("got %d %s", got.Status, got.Body)
		}
	}
	id := c.filed("bot")
	for range 2 {
		if got := <-long; got.Status != 200 || !strings.Contains(got.Body, id) {
			t.Errorf("got %d %s", got.Status, got.Body)
		}
	}
}

// Whose policies let nobody see a request any more, at the end of a wait for it, is told
// nothing of it, whatever was seen before.
func TestAPollEndsByThePoliciesOfItsEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeAll(t, dir, approvalFiles())
	c := openCounterOn(t, pdp.Dir(dir))
	under := func(more string) {
		for name, text := range approvalFiles("a.cedar", more) {
			must(t, os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(text), 0o600))
		}
		must(t, c.Reload(t.Context()))
	}
	id := c.filed("bot")
	for wait := 400 * time.Millisecond; ; wait *= 2 {
		looks, begun := c.Looks(), time.Now()
		answers := make(chan pdptest.Response, 2)
		for range cap(answers) {
			go func() {
				answers <- c.Do("GET", "/v1/approvals/"+id+"?wait="+wait.String(), "", "Authorization", c.key["mia"])
			}()
		}
		eventually(t, "it was looked at", func() bool { return c.Looks() > looks })
		under(`forbid(principal == user::"mia", action == Action::"approval.decide", resource);`)
		early := time.Since(begun) >= wait // on a machine that is busy the wait may have been over before
		for range cap(answers) {
			if got := <-answers; got.Status != 404 && !early {
				t.Errorf("got %d %s", got.Status, got.Body)
			}
		}
		if !early {
			return
		}
		under("")
	}
}

// A stop waits for none of those who wait, however many different questions they have.
func TestAStopEndsAllWhoWait(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.filed("bot")
	var answers []chan pdptest.Response
	for n := range 100 {
		answers = append(answers, c.polls("mia", fmt.Sprintf("/v1/approvals?subject=nobody%d&wait=30s", n), 1))
	}
	answers = append(answers, c.polls("pep", "/v1/approvals/"+id+"?wait=30s", 50))
	begun := time.Now()
	must(t, c.Stop(context.Background()))
	if took := time.Since(begun); took > 25*time.Second { // at the end of its time everybody is answered
		t.Errorf("it took %v", took)
	}
	for _, some := range answers {
		for range cap(some) {
			if got := <-some; got.Status != 200 && got.Status != 503 {
				t.Errorf("got %d %s", got.Status, got.Body)
			}
		}
	}
}

// A page on which there is nothing for whoever asks is an answer where there are more: what
// others have before it keeps nobody waiting for their own.
func TestWhatOthersHaveHidesNothingFromAPoll(t *testing.T) {
	t.Parallel()
	c := openCounter(t, func(config *server.Config) { config.Approvals.NewPerMinutePerSubject = 1_000_000 })
	c.fill(260)
	begun := time.Now()
	items, next := c.inbox("noah", "?subject=late&wait=30s")
	if took := time.Since(begun); len(items) != 0 || next == "" || took > 25*time.Second {
		t.Fatalf("%d requests, and then %q, after %v", len(items), next, took)
	}
	answers := c.polls("noah", "/v1/approvals?subject=late&wait=30s&cursor="+next, 1)
	if id, got := c.filed("late"), <-answers; !strings.Contains(got.Body, id) {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
}

// Who waits for a task is told when it ends, and takes no place of those who are worked
// for.
func TestWaitingForATask(t *testing.T) {
	t.Parallel()
	c := openDesk(t, func(config *server.Config) { config.Load.MaxConcurrent = 1 })
	for _, tenant := range []string{"", "acme"} {
		p := c.program("asker")
		if tenant != "" {
			p = p.in(tenant)
		}
		asked := p.requests(wants("push", push))
		path := p.below + "/access/v1/requests/" + asked.Task.ID
		c.reply("asker", "GET", path+"?wait=soon", "").is(t, "the answer", 400)
		c.reply("other-asker", "GET", path+"?wait=30s", "").is(t, "another's", 404)
		c.reply("asker", "GET", path+"?other=1&wait=30s", "").is(t, "another parameter", 400)
		answers := c.polls("asker", path+"?wait=30s", 5)
		if n := c.Watches(); n != 1 {
			t.Errorf("%d look for one task", n)
		}
		c.says("zoe", c.waiting(asked), "decision", yes, 200)
		for range 5 {
			if got := <-answers; got.Status != 200 || !strings.Contains(got.Body, `"status":"approved"`) || got.Header.Get("Retry-After") != "" {
				t.Errorf("got %d %s", got.Status, got.Body)
			}
		}
		begun := p.requests(wants("push", `"other":1`))
		c.reply("asker", "GET", p.below+"/access/v1/requests/"+begun.Task.ID+"?wait=10ms", "").is(t, "at the end", 200, `"status":"pending"`)
	}
}

// One PEP has a quarter of what may wait in a tenant; whoever else asks is not refused for
// that, in whatever form they ask. A refusal allows nothing.
func TestOnePEPDoesNotTakeAllThatMayWait(t *testing.T) {
	t.Parallel()
	c := openDesk(t, func(config *server.Config) {
		config.Approvals.MaxPendingPerTenant, config.Approvals.MaxPendingPerCaller = 8, 2
	})
	n := 0
	ask := func(who string) told {
		n++
		return c.asks(who, strings.Replace(tool("push", push), `"bot"`, fmt.Sprintf(`"bot%d"`, n), 1))
	}
	for range 2 {
		if got := ask("pep"); got.Approval == nil || got.Approval.Status != "pending" {
			t.Fatalf("got %+v", got)
		}
	}
	if got := ask("pep"); got.may() || got.Approval.Status != "refused" || got.Approval.ID != "" || got.Approval.RetryAfter < 1 || !got.Obligations["approval_required"] {
		t.Errorf("over its share: %+v", got)
	}
	if got := ask("other-pep"); got.Approval == nil || got.Approval.Status != "pending" {
		t.Errorf("another: %+v", got)
	}
	p := c.program("asker")
	for k := range 2 {
		p.requests(wants("push", fmt.Sprintf(`"n":%d`, k)))
	}
	question := wants("push", `"n":2`)
	if got := p.submits(question + "," + p.denied(question).denial()); got.status != http.StatusTooManyRequests {
		t.Errorf("by the profile, over its share: %d %s", got.status, got.text)
	}
	if got := c.Get("/metrics"); got.Status == 200 && !strings.Contains(got.Body, `limit="approvals_share"`) {
		t.Error("the metric has no word for it")
	}
}
