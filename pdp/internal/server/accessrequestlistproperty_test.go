package server_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
)

// busy is what goes on at a desk: programs ask, and people answer, all at once.
type busy struct {
	*counter
	mu     sync.Mutex
	begun  map[string][]task // by whose they are
	number int
}

func whose(p program) string { return p.below + "/" + p.name }

// began notes a task.
func (b *busy) began(p program, t task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun[whose(p)] = append(b.begun[whose(p)], t)
}

// some is one of the tasks that have begun, of any program.
func (b *busy) some(g *rand.Rand, p program) (t task, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.begun[whose(p)]
	if len(all) == 0 {
		return t, false
	}
	return all[max(0, len(all)-1-g.IntN(6))], true
}

// does has somebody do something, whatever comes of it but a failure of the server.
func (b *busy) does(who, path, body string) (ok bool) {
	status, text := b.do(who, "POST", path, body)
	if status >= 500 {
		b.t.Errorf("%s %s: got %d %s", path, body, status, text)
	}
	return status == http.StatusOK
}

// step does one thing.
func (b *busy) step(g *rand.Rand, p program) {
	kind := g.IntN(12)
	t, ok := b.some(g, p)
	switch {
	case kind < 2 || !ok:
		b.mu.Lock()
		b.number++
		n := b.number - g.IntN(3) // or what was asked before is asked again, and the same people decide about it
		b.mu.Unlock()
		question := wants([]string{"push", "list", "stop"}[g.IntN(3)], fmt.Sprintf(`"n":%d`, n))
		if denied := p.evaluates(question); !denied.Decision && denied.Context.Request != nil {
			if t := p.submits(question+","+denied.denial(), "Idempotency-Key", fmt.Sprint(p.name, g.Uint64())); t.status < 300 {
				b.began(p, t)
			}
		}
	case kind == 2:
		if t := p.submits(p.several("push", "list")); t.status < 300 {
			b.began(p, t)
		}
	case kind < 8:
		for _, of := range t.Task.Approvals {
			b.does([]string{"mia", "noah", "zoe"}[g.IntN(3)], "/v1/approvals/"+of.ID+"/decision", []string{yes, yes, no}[g.IntN(3)])
			if g.IntN(2) == 0 {
				break
			}
		}
	case kind == 8:
		b.does(p.name, p.below+"/access/v1/requests/"+t.Task.ID+"/cancel", "")
	case kind == 9:
		for _, of := range t.Task.Approvals {
			b.does("mia", "/v1/approvals/"+of.ID+"/revoke", "")
		}
	case kind == 10:
		if now := p.looks(t.Task.ID); now.Result != nil && now.Result.Approval.ID != "" {
			for _, id := range []string{"push", "list", "stop"} { // one of them it is for
				for n := range 3 {
					p.evaluates(wants(id, fmt.Sprintf(`"n":%d,%s`, b.last()-n, presents(now.Result))))
				}
			}
		}
	case g.IntN(4) == 0:
		b.Advance(time.Duration(g.IntN(400)) * time.Second)
	}
}

func (b *busy) last() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.number
}

// TestPropertyNoChangeOfATaskIsMissed: whatever is asked, approved, denied, given up, taken back, used, and runs out of
// time, all at once and over restarts: a program that follows its tasks ends up knowing each of them as it is, and none
// of another.
func TestPropertyNoChangeOfATaskIsMissed(t *testing.T) {
	t.Parallel()
	limits := func(config *server.Config) {
		config.Approvals.NewPerMinutePerSubject, config.Approvals.MaxPendingPerSubject = 1_000_000, 1_000_000
		config.Approvals.MaxPendingPerTenant = 1_000_000
	}
	c := openDesk(t, limits)
	b := &busy{counter: c, begun: map[string][]task{}}
	programs := []program{c.program("asker"), c.program("asker").in("acme"), c.program("other-asker")}
	var followers []*follower
	for _, p := range programs {
		f := p.follows()
		f.lists("")
		followers = append(followers, f)
	}
	rounds, steps := night.Cases(20), 25
	for round := range rounds {
		work := func(steps int) *sync.WaitGroup {
			var all sync.WaitGroup
			for k := range 4 {
				all.Go(func() {
					g := rand.New(rand.NewPCG(uint64(round), uint64(k)))
					for range steps {
						b.step(g, programs[g.IntN(len(programs))])
					}
				})
			}
			return &all
		}
		var watching sync.WaitGroup
		over := make(chan struct{})
		for k, f := range followers {
			watching.Go(func() {
				g := rand.New(rand.NewPCG(uint64(round), uint64(100+k)))
				for {
					select {
					case <-over:
						return
					default:
						f.lists(fmt.Sprintf("limit=%d&wait=%dms", 1+g.IntN(4), g.IntN(300)))
					}
				}
			})
		}
		work(steps).Wait()
		close(over)
		watching.Wait()
		work(steps / 5).Wait() // while nobody follows
		must(t, c.Stop(t.Context()))
		c.Advance(time.Minute)
		c.open(pdptest.Bundle(approvalFiles()), public, limits)
		work(steps / 5).Wait()
	}
	told, ended := 0, 0
	for k, f := range followers {
		p := programs[k]
		mine := b.begun[whose(p)]
		is := map[string]string{}
		eventually(t, "what is known is what is", func() bool {
			for more := true; more; {
				var got []task
				got, more = f.lists("limit=50")
				more = more || len(got) > 0
			}
			for _, one := range mine {
				if is[one.Task.ID] = p.looks(one.Task.ID).text; is[one.Task.ID] != f.knows[one.Task.ID] {
					return false
				}
			}
			return true
		})
		for id, known := range f.knows {
			if is[id] != known {
				t.Errorf("%s knows   %s\nand it is %s", whose(p), known, is[id])
			}
			if told++; !strings.Contains(known, `"status":"pending"`) {
				ended++
			}
		}
		if fresh := p.follows(); len(mine) > 0 {
			for more := true; more; {
				_, more = fresh.lists("limit=7")
			}
			for id, text := range is {
				if pending := strings.Contains(text, `{"task":{"id":"`+id+`","status":"pending"`); pending != (fresh.knows[id] == text) {
					t.Errorf("who begins at the end is told %q of %s", fresh.knows[id], text)
				}
			}
		}
	}
	if t.Logf("%d tasks, %d ended", told, ended); told < 10*rounds || ended < 5*rounds {
		t.Error("it shows little")
	}
}
