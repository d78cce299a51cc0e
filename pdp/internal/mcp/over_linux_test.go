package mcp_test

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// programs are the processes that run of the recorder's, with those that ended already.
func programs(r *mcptest.Recorder) (running, ended []int) {
	for _, g := range r.Got() {
		if g.Child == nil || slices.Contains(running, g.Child.PID) || slices.Contains(ended, g.Child.PID) {
			continue
		}
		if _, err := os.Stat("/proc/" + strconv.Itoa(g.Child.PID)); err == nil {
			running = append(running, g.Child.PID)
		} else {
			ended = append(ended, g.Child.PID)
		}
	}
	return running, ended
}

// Short runs of clients that close their stream, and send no DELETE, leave no program running; and each session goes on all
// the same. A client that still listens keeps its program.
func TestRunsThatAreOverLeaveNoProgram(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{program: true, answers: mcptest.Answers{Eras: []string{"legacy"}}, change: ofServer(func(u *mcp.UpstreamConfig) { u.Idle = time.Second })})
	stays := s.visitor("legacy", mcptest.Claims{"sub": "stays"})
	listens := stays.listens()
	defer listens.end()
	stays.call("look", `{}`)
	kept, _ := programs(s.rec)
	var all []*visitor
	for n := range 12 {
		v := s.visitor("legacy", mcptest.Claims{"sub": "run-" + strconv.Itoa(n)})
		stream := v.listens()
		stream.welcomed()
		if got := v.call("look", `{}`); !got.ran() {
			t.Fatalf("run %d: %s", n, got)
		}
		stream.end()
		all = append(all, v)
	}
	mcptest.Until(t, "the programs of runs that are over ended", func() bool {
		running, ended := programs(s.rec)
		return slices.Equal(running, kept) && len(ended) == len(all)
	})
	for n, v := range all {
		if got := v.call("look", `{}`); !got.ran() {
			t.Errorf("run %d does not go on: %s", n, got)
		}
	}
	mcptest.Until(t, "the programs ended once more", func() bool {
		running, ended := programs(s.rec)
		return slices.Equal(running, kept) && len(ended) == 2*len(all)
	})
}

// A program that remembers what its client did runs for as long as the session.
func TestStatefulProgramsRunOn(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{program: true, answers: mcptest.Answers{Eras: []string{"legacy"}}, change: func(c *mcp.Config) {
		u := c.Upstreams["rec"]
		u.Idle = time.Second
		forgets := u
		u.Stateful = true
		c.Upstreams = map[string]mcp.UpstreamConfig{"remembers": u, "forgets": forgets}
	}})
	v := s.visitor("legacy", nil)
	stream := v.listens()
	stream.welcomed()
	stream.end()
	var running []int
	mcptest.Until(t, "one of two programs ended", func() bool {
		var ended []int
		running, ended = programs(s.rec)
		return len(running) == 1 && len(ended) == 1
	})
	if got := v.call("remembers__look", `{}`); !got.ran() {
		t.Fatal(got)
	}
	got := s.rec.Got()
	for _, g := range slices.Backward(got) {
		if g.Method == "tools/call" {
			if g.Child.PID != running[0] {
				t.Error("the call came to a program that was started again")
			}
			break
		}
	}
}
