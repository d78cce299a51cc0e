package server_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// follower is a program that follows its tasks. It knows what it was told of each last.
type follower struct {
	program
	cursor string
	knows  map[string]string
}

func (p program) follows() *follower { return &follower{program: p, knows: map[string]string{}} }

// lists asks for a list once, and goes on from there the next time.
func (f *follower) lists(query string) (tasks []task, more bool) {
	f.t.Helper()
	if f.cursor != "" {
		query += "&after=" + f.cursor
	}
	status, text := f.do(f.name, "GET", f.below+"/access/v1/requests?"+strings.TrimPrefix(query, "&"), "")
	if status != http.StatusOK {
		f.t.Fatalf("%s: got %d %s", query, status, text)
	}
	return f.reads(text)
}

func (f *follower) reads(text string) (tasks []task, more bool) {
	f.t.Helper()
	var list struct {
		Tasks  []jsontext.Value `json:"tasks"`
		Cursor string           `json:"cursor"`
		More   bool             `json:"more"`
	}
	must(f.t, json.Unmarshal([]byte(text), &list))
	if list.Tasks == nil || list.Cursor == "" {
		f.t.Fatalf("got %s", text)
	}
	f.cursor = list.Cursor
	for _, one := range list.Tasks {
		t := f.told(http.StatusOK, string(one))
		f.knows[t.Task.ID] = t.text
		tasks = append(tasks, t)
	}
	return tasks, list.More
}

// hears checks how the tasks of the next list stand.
func (f *follower) hears(t *testing.T, name, query, want string) {
	t.Helper()
	if got, _ := f.lists(query); stands(got) != want {
		t.Errorf("%s: got %v, want %q", name, got, want)
	}
}

// stands is how the tasks of a list stand.
func stands(tasks []task) (text string) {
	for _, t := range tasks {
		text += t.Task.Status + " "
	}
	return strings.TrimSpace(text)
}

// A program is told of its own tasks that wait, and then of each that changes: that begins, and that ends.
func TestListOfTasks(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	for _, p := range []program{c.program("asker"), c.program("asker").in("acme")} {
		f := p.follows()
		if got, more := f.lists(""); len(got) != 0 || more {
			t.Fatalf("at first: %v", got)
		}
		others := []*follower{c.program("other-asker").follows(), c.program("other-asker").in("acme").follows()}
		for _, other := range others {
			other.lists("")
		}
		one := p.requests(wants("push", push))
		if got, _ := f.lists(""); len(got) != 1 || got[0].text != one.text {
			t.Errorf("one begun: got %v, want %s", got, one.text)
		}
		f.hears(t, "nothing has changed", "&wait=1ms", "")
		several := p.submits(p.several("list", "stop"))
		c.says("zoe", one.Task.Approvals[0].ID, "decision", yes, 200)
		c.says("zoe", several.Task.Approvals[0].ID, "decision", no, 200)
		got, _ := f.lists("")
		if stands(got) != "approved pending" || got[0].text != p.looks(one.Task.ID).text || got[1].text != p.looks(several.Task.ID).text || got[1].Task.Items[0].Status != "denied" {
			t.Errorf("got %v", got)
		}
		if again, more := p.follows().lists(""); len(again) != 1 || again[0].text != got[1].text || more {
			t.Errorf("who begins now: %v", again)
		}
		p.cancels(several.Task.ID, "")
		p.evaluates(wants("push", push+","+presents(got[0].Result))).allows(t, "the answer")
		if got, _ := f.lists(""); stands(got) != "partial approved" || got[1].Task.ID != one.Task.ID {
			t.Errorf("one given up, one used: %v", got)
		}
		for _, other := range others {
			other.hears(t, fmt.Sprintf("%s%s is told", other.below, other.name), "&wait=1ms", "")
		}
	}
}

// A cursor is one caller's, in one tenant. It is good for half a day, over restarts, and with this file alone.
func TestCursorsOfTasks(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	f := c.program("asker").follows()
	one := f.requests(wants("push", push))
	f.lists("")
	refused := func(what string, p program, query string, want int) {
		t.Helper()
		c.reply(p.name, "GET", p.below+"/access/v1/requests?"+query, "").is(t, what, want)
	}
	refused("another caller", c.program("other-asker"), "after="+f.cursor, 400)
	refused("another tenant", f.in("acme"), "after="+f.cursor, 400)
	refused("another tenant of another caller", c.program("acme-asker").in("acme"), "after="+f.cursor, 400)
	refused("a tenant that is none", f.in("none"), "after="+f.cursor, 404)
	refused("who may not ask", c.program("pep"), "after="+f.cursor, 403)
	refused("nobody", c.program("nobody"), "after="+f.cursor, 401)
	for _, query := range []string{"after=x", "after=", "after=" + f.cursor + "A", "after=" + f.cursor[1:], "limit=0", "limit=x", "wait=soon", "wait=-1s", "cursor=" + f.cursor, "after=" + f.cursor + "&after=" + f.cursor} {
		refused(query, f.program, query, 400)
	}
	c.restart(func() {})
	c.says("mia", one.Task.Approvals[0].ID, "decision", no, 200)
	c.restart(func() {})
	f.hears(t, "after restarts", "&wait=30s", "denied")
	c.Advance(approval.FollowedFor - time.Second)
	f.hears(t, "the answer", "", "")
	c.Advance(approval.FollowedFor)
	refused("too old", f.program, "after="+f.cursor, 410)
	refused("too old, to wait", f.program, "wait=30s&after="+f.cursor, 410)
	again := c.program("asker").follows()
	again.lists("")
	c.restart(func() { must(t, os.Remove(filepath.Join(c.data, approval.FileName))) })
	again.requests(wants("push", push))
	refused("of another file", again.program, "after="+again.cursor, 410)
}

// A cursor of what an older copy of the file does not know is good no more, also after somebody else's tasks have changed in
// that copy: the tasks that are lost would never be told of.
func TestCursorsOfWhatWasPutBack(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	f := c.program("asker").follows()
	f.requests(wants("push", push))
	f.lists("")
	kept := f.cursor
	must(t, c.Stop(t.Context()))
	older := c.file(approval.FileName)
	c.open(pdptest.Bundle(approvalFiles()), public)
	lost := f.requests(wants("list", push))
	if got, _ := f.lists("&wait=30s"); stands(got) != "pending" || got[0].Task.ID != lost.Task.ID {
		t.Fatalf("got %v", got)
	}
	c.restart(func() { c.write(approval.FileName, older) })
	c.program("other-asker").requests(wants("push", push))
	for _, query := range []string{"", "&wait=30s"} {
		c.reply("asker", "GET", "/access/v1/requests?after="+f.cursor+query, "").is(t, query, 410)
	}
	f.cursor = kept
	mine := f.requests(wants("stop", push))
	if got, more := f.lists(""); stands(got) != "pending" || got[0].Task.ID != mine.Task.ID || more {
		t.Errorf("from what the copy knows: %v", got)
	}
}

// Who reads a page now and then, and never the last one, has to begin again before anything is forgotten that they were
// not told of.
func TestSlowReaderOfTasks(t *testing.T) {
	t.Parallel()
	c := openDesk(t, func(config *server.Config) { config.Approvals.Retain = time.Hour })
	p := c.program("asker")
	f := p.follows()
	f.lists("")
	const tasks = 4
	var last task
	for n := range tasks {
		last = p.requests(wants("push", fmt.Sprintf(`"n":%d`, n)))
		p.cancels(last.Task.ID, "")
	}
	for page := 1; page < tasks; page++ {
		status, text := c.do(f.name, "GET", "/access/v1/requests?limit=1&after="+f.cursor, "")
		if status == http.StatusGone && page > 1 {
			return
		}
		if status != http.StatusOK {
			t.Fatalf("page %d: got %d %s", page, status, text)
		}
		if _, more := f.reads(text); !more {
			t.Fatalf("page %d is the last one", page)
		}
		c.Advance(approval.FollowedFor - time.Second)
	}
	c.comes("they are forgotten", func() bool { return p.looks(last.Task.ID).status == http.StatusNotFound })
	if got, _ := f.lists(""); len(got) == 0 {
		t.Error("it is not told of the last task, and never to begin again")
	}
}

// A list has as many tasks as its program wants, and goes on. What changes meanwhile is told, once more if need be.
func TestListOfTasksInPages(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	for _, id := range []string{"push", "list", "stop"} { // an approval each, with two tasks that follow it
		question := wants(id, push)
		denial := p.denied(question).denial()
		for n := range 2 {
			if got := p.submits(question+","+denial, "Idempotency-Key", fmt.Sprint(id, n)); got.status != 202 {
				t.Fatalf("got %d %s", got.status, got.text)
			}
		}
	}
	p.submits(p.several("push", "list", "stop"))
	for _, limit := range []int{1, 2, 3, 7} {
		f := p.follows()
		told, more, seen := 0, true, 0
		for pages := 0; more; pages++ {
			var got []task
			if got, more = f.lists(fmt.Sprint("limit=", limit)); len(got) > limit || pages > 8 {
				t.Fatalf("with a limit of %d: %v", limit, got)
			}
			told += len(got)
		}
		if seen = len(f.knows); told != 7 || seen != 7 {
			t.Errorf("with a limit of %d: told of %d, %d times", limit, seen, told)
		}
	}
	f := p.follows()
	first, _ := f.lists("limit=2")
	if len(first) != 2 {
		t.Fatalf("got %v", first)
	}
	c.says("mia", first[0].Task.Approvals[0].ID, "decision", yes, 200) // of those that were told, and of several
	for more := true; more; {
		_, more = f.lists("limit=2")
	}
	for id, known := range f.knows {
		if looked := p.looks(id); looked.text != known {
			t.Errorf("told  %s\nit is %s", known, looked.text)
		}
	}
	if len(f.knows) != 7 {
		t.Errorf("told of %d", len(f.knows))
	}
}

// Of what was forgotten long ago only its end is known.
func TestListOfTasksThatAreForgotten(t *testing.T) {
	t.Parallel()
	c := openDesk(t, func(config *server.Config) { config.Approvals.Retain = time.Hour })
	p := c.program("asker")
	f := p.follows()
	f.lists("")
	one := p.requests(wants("push", push))
	c.Advance(10 * time.Minute)
	c.comes("it is expired", func() bool { return p.looks(one.Task.ID).Task.Status == "expired" })
	c.Advance(2 * time.Hour)
	c.comes("it is forgotten", func() bool { return p.looks(one.Task.ID).status == 410 })
	if got, _ := f.lists("&wait=30s"); stands(got) != "expired" || got[0].Task.ID != one.Task.ID || got[0].Task.StatusEndpoint != one.Task.StatusEndpoint {
		t.Errorf("got %v", got)
	}
}

// Who waits for any of its tasks is told when one changes, and nobody else looks for that.
func TestWaitingForAnyTask(t *testing.T) {
	t.Parallel()
	c := openDesk(t, func(config *server.Config) { config.Load.MaxConcurrent = 1 })
	p := c.program("asker")
	var asked []task
	for n := range 5 {
		asked = append(asked, p.requests(wants("push", fmt.Sprintf(`"n":%d`, n))))
	}
	mine, theirs, acme := p.follows(), c.program("other-asker").follows(), p.in("acme").follows()
	first, second := make([]chan pdptest.Response, 3), make([]chan pdptest.Response, 3)
	for n, f := range []*follower{mine, theirs, acme} {
		f.lists("")
		first[n] = c.polls(f.name, f.below+"/access/v1/requests?wait=30s&after="+f.cursor, 1)
	}
	eventually(t, "all look", func() bool { return c.Looks() == 3 })
	for n, f := range []*follower{mine, theirs, acme} {
		second[n] = c.polls(f.name, f.below+"/access/v1/requests?wait=30s&after="+f.cursor, 1)
	}
	if n := c.Watches(); n != 3 {
		t.Errorf("%d look", n)
	}
	eventually(t, "all look again", func() bool { return c.Looks() == 6 }) // once for each that came
	before := c.Looks()
	c.says("zoe", asked[3].Task.Approvals[0].ID, "decision", yes, 200)
	for _, answer := range []chan pdptest.Response{first[0], second[0]} {
		got := <-answer
		if tasks, _ := mine.reads(got.Body); got.Status != 200 || stands(tasks) != "approved" || tasks[0].Task.ID != asked[3].Task.ID || got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("got %d %s", got.Status, got.Body)
		}
	}
	if n := c.Looks() - before; n > 2 {
		t.Errorf("for one change there are %d looks", n)
	}
	c.program("other-asker").requests(wants("push", `"n":9`))
	p.in("acme").requests(wants("push", `"n":9`))
	for n, f := range []*follower{theirs, acme} {
		for _, answer := range []chan pdptest.Response{first[n+1], second[n+1]} {
			got := <-answer
			if tasks, _ := f.reads(got.Body); got.Status != 200 || stands(tasks) != "pending" {
				t.Errorf("got %d %s", got.Status, got.Body)
			}
		}
	}
	mine.hears(t, "at the end of its time", "&wait=10ms", "")
	eventually(t, "nobody waits", func() bool { return c.Waiting() == 0 && c.Watches() == 0 })
	if status, _ := c.do("asker", "GET", "/access/v1/requests?wait=30s", ""); status != 200 {
		t.Errorf("who begins does not wait: %d", status)
	}
}

// A task of what is asked already is a change of its own: nobody files anything, and who waits is told all the same.
func TestWaitingForATaskOfWhatIsAskedAlready(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	question := wants("push", push)
	question += "," + p.denied(question).denial()
	p.submits(question, "Idempotency-Key", "one")
	f := p.follows()
	f.lists("")
	waits := c.polls("asker", "/access/v1/requests?wait=30s&after="+f.cursor, 1)
	eventually(t, "it has looked", func() bool { return c.Looks() >= 1 })
	begun := time.Now()
	second := p.submits(question, "Idempotency-Key", "two")
	got := <-waits
	if tasks, _ := f.reads(got.Body); got.Status != 200 || stands(tasks) != "pending" || tasks[0].Task.ID != second.Task.ID {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	if time.Since(begun) > 25*time.Second { // at the end of its time everybody looks once more
		t.Error("who waits is told of nothing")
	}
}
