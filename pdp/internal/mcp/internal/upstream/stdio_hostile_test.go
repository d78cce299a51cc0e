package upstream_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/written"
)

// TestCommandSurvivesHostileChildren has children do their worst. The call gets its answer or an error, and the session is
// over, or goes on.
func TestCommandSurvivesHostileChildren(t *testing.T) {
	for _, c := range []struct {
		tool    string
		answer  string // "" is an error with this in it
		err     string
		goesOn  bool
		dropped string
	}{
		{"exit", "", "exit status 3", false, "map[]"},
		{"abort", "", "signal: killed", false, "map[]"},
		{"answer-and-exit", "the last words", "", false, "map[]"},
		{"half", "", "exit status 0", false, "map[]"},
		{"close", "", "closed its output", false, "map[]"},
		{"garbage", "after all", "", true, "map[unreadable:5]"},
		{"ambiguous", "", "answered ambiguously", true, "map[unreadable:1]"},
		{"both", "", "answered ambiguously", true, "map[unreadable:1]"},
		{"error-without-id", "", "answered ambiguously", true, "map[unreadable:1]"},
		{"foreign", "once", "", true, "map[foreign_id:4]"},
		{"float-id", "", "answered ambiguously", true, "map[unreadable:1]"},
		{"batch", "", "answered ambiguously", true, "map[unreadable:1]"},
		{"long", "", "larger than max_result", true, "map[too_large:1]"},
		{"endless", "", "does not end", false, "map[]"},
		{"ping", `{"jsonrpc":"2.0","id":77,"result":{}}` + "\n", "", true, "map[]"},
		{"fork-and-exit", "*", "", false, "map[]"},
	} {
		t.Run(c.tool, func(t *testing.T) {
			t.Parallel()
			u := newChild(t, "raw", func(o *upstream.CommandOptions) { o.MaxResult = 64 << 10; o.Stop = 300 * time.Millisecond })
			s := open(t, u)
			got, err := textOf(s, c.tool)
			var e *upstream.Error
			switch {
			case c.err != "" && (!errors.As(err, &e) || !strings.Contains(err.Error(), c.err) || e.NotSent || e.Gone == c.goesOn):
				t.Errorf("%q, %+v", got, err)
			case c.err == "" && (err != nil || got != c.answer && c.answer != "*"):
				t.Errorf("%q, %v", got, err)
			}
			if c.tool == "error-without-id" && !strings.Contains(string(e.Answer), "-32700") {
				t.Errorf("it is not handed on: %+v", err)
			}
			if c.goesOn {
				if got, err := textOf(s, "well"); got != "well" {
					t.Errorf("afterwards: %q, %v", got, err)
				}
			} else if got, err := textOf(open(t, u), "well"); got != "well" {
				t.Errorf("in another session: %q, %v", got, err)
			}
			if got := u.dropped.String(); got != c.dropped {
				t.Errorf("dropped %s", got)
			}
		})
	}
}

// TestCommandMemoryIsFlat has a child write a line that has no end, and does not keep it.
func TestCommandMemoryIsFlat(t *testing.T) {
	night.Measures(t)
	u := newChild(t, "raw", func(o *upstream.CommandOptions) { o.MaxResult = 16 << 20; o.Stop = time.Millisecond })
	s := open(t, u)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := textOf(s, "endless"); err == nil {
		t.Error("it was answered")
	}
	runtime.ReadMemStats(&after)
	// A buffer that doubles has cost twice its size, and room for more, when it has it.
	if cost := after.TotalAlloc - before.TotalAlloc; cost > 4*16<<20 {
		t.Errorf("%d MiB for a line of more than 128 MiB, of which 16 MiB are taken", cost>>20)
	}
}

func TestCommandGivesUpASilentServer(t *testing.T) {
	t.Parallel()
	u := newChild(t, "raw")
	s := open(t, u)
	listening := listen(t, s)
	upstream.SetTimeout(u.Upstream, 2*time.Second)
	if _, err := textOf(s, "silence"); err == nil || !strings.Contains(err.Error(), "silent") {
		t.Error(err)
	}
	m, err := listening.Next()
	if err != nil || !strings.Contains(string(m.Params), `\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":3}`) {
		t.Errorf("the server was told %s, %v", m.Params, err)
	}
	upstream.SetTimeout(u.Upstream, time.Minute)
	if got, err := textOf(s, "well"); got != "well" {
		t.Errorf("%q %v", got, err)
	}
}

// watched is a context that says when somebody watches whether it ends, as a session does once a call has begun.
type watched struct {
	context.Context
	isWatched func()
}

func (w *watched) Done() <-chan struct{} {
	w.isWatched()
	return w.Context.Done()
}

func TestCommandEndsAChildThatDoesNotRead(t *testing.T) {
	t.Parallel()
	u := newChild(t, "raw", func(o *upstream.CommandOptions) { o.Timeout = 3 * time.Second; o.Stop = 100 * time.Millisecond })
	s := open(t, u)
	if _, err := s.Send(t.Context(), request("deaf", "")); err != nil {
		t.Fatal(err)
	}
	var begun, calls sync.WaitGroup
	begun.Add(200)
	for range 200 { // the pipe and the queue hold fewer
		calls.Go(func() {
			ctx := &watched{t.Context(), sync.OnceFunc(begun.Done)}
			defer ctx.isWatched() // or there was no room
			stream, err := s.Send(ctx, request("well", `"padding":"`+strings.Repeat("x", 100<<10)+`"`))
			if err == nil {
				_, _, err = answer(stream)
			}
			var e *upstream.Error
			if !errors.As(err, &e) {
				t.Errorf("%v", err)
			}
		})
	}
	begun.Wait()
	upstream.SetTimeout(u.Upstream, time.Minute)
	other := open(t, u)
	if got, err := textOf(other, "well"); got != "well" {
		t.Errorf("another session: %q %v", got, err)
	}
	calls.Wait()
	var e *upstream.Error
	if _, err := s.Send(t.Context(), request("well", "")); !errors.As(err, &e) || !e.Gone || !e.NotSent {
		t.Errorf("%+v", err)
	}
}

// TestCommandTakesBackWhatWasNotWritten gives up a request behind one that the child does not read.
func TestCommandTakesBackWhatWasNotWritten(t *testing.T) {
	s := open(t, newChild(t, "raw", func(o *upstream.CommandOptions) { o.Stop = time.Millisecond }))
	if _, err := s.Send(t.Context(), request("deaf", "")); err != nil {
		t.Fatal(err)
	}
	large := rpc.Message{Method: "notifications/large", Params: []byte(`{"x":"` + strings.Repeat("x", 2<<20) + `"}`)}
	mcptest.Must(t, s.Notify(t.Context(), large))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := s.Send(ctx, request("well", ""))
	var e *upstream.Error
	if !errors.As(err, &e) || !e.NotSent || e.Gone || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v", err)
	}
}

func TestCommandAsksTheOnlyCall(t *testing.T) {
	u := newChild(t, "raw")
	s := open(t, u)
	call := begin(t, s, request("ask", ""))
	defer call.Close()
	m, err := call.Next()
	if err != nil || m.Method != "elicitation/create" || m.ID != rpc.StringID("q") {
		t.Fatalf("%+v %v", m, err)
	}
	for n, want := range []bool{true, false} { // it is answered once
		if err := s.Notify(t.Context(), rpc.Answer(m.ID, []byte(`{"action":"accept"}`))); (err == nil) != want {
			t.Errorf("answer %d: %v", n, err)
		}
	}
	if err := s.Notify(t.Context(), rpc.Answer(rpc.IntID(5), []byte(`{}`))); err == nil {
		t.Error("an answer to nothing was sent")
	}
	if _, m, err = answer(call); err != nil {
		t.Fatal(err)
	}
	if got, _ := text(m); got != `{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}`+"\n" {
		t.Errorf("the server got %s", got)
	}
}

// TestCommandRefusesWhatNobodyAnswers gives a call up while the server asks something for it.
func TestCommandRefusesWhatNobodyAnswers(t *testing.T) {
	s := open(t, newChild(t, "raw"))
	call := begin(t, s, request("ask", ""))
	if _, err := call.Next(); err != nil {
		t.Fatal(err)
	}
	listening := listen(t, s)
	call.Close()
	// Its first line is taken as the answer, and the second is told.
	m, err := listening.Next()
	if err != nil || !strings.Contains(string(m.Params), `\"id\":\"q\",\"error\":{\"code\":-32603`) {
		t.Errorf("the server got %s, %v", m.Params, err)
	}
}

// TestCommandBoundsWhatAServerAsks has a server ask more than waits for answers.
func TestCommandBoundsWhatAServerAsks(t *testing.T) {
	u := newChild(t, "raw")
	s := open(t, u)
	call := begin(t, s, request("ask-often", ""))
	before, m, err := answer(call)
	// What the server says of the refusals may be dropped, too.
	if err != nil || m.Result == nil || len(before) != 64 || u.dropped.get("overflow") < 136 {
		t.Errorf("%d questions before %s, %v, dropped %s", len(before), m.Result, err, u.dropped)
	}
	call.Close()
	if got, err := textOf(s, "well"); got != "well" {
		t.Errorf("%q %v", got, err)
	}
}

// TestCommandWithSeveralCallsAsksWhoListens has one call wait while another has the server ask: whose question it is,
// nobody can tell.
func TestCommandWithSeveralCallsAsksWhoListens(t *testing.T) {
	u := newChild(t, "raw", func(o *upstream.CommandOptions) { o.Probe = 200 * time.Millisecond })
	s := open(t, u)
	waiting := begin(t, s, request("silence", ""))
	if got, err := textOf(s, "ask"); err != nil || !strings.Contains(got, `"id":"q","error":{"code":-32601`) {
		t.Errorf("while nobody listens: %q %v", got, err)
	}
	listening := listen(t, s)
	if _, err := s.Listen(t.Context()); err == nil {
		t.Error("two listen")
	}
	call := begin(t, s, request("ask", ""))
	m, err := listening.Next()
	if err != nil || m.Method != "elicitation/create" {
		t.Fatalf("%v %v", m, err)
	}
	if err := s.Notify(t.Context(), rpc.Failure(m.ID, rpc.Error{Code: -1, Message: "no"})); err != nil {
		t.Error(err)
	}
	if before, _, err := answer(call); err != nil || len(before) > 0 {
		t.Errorf("%v %v", before, err)
	}
	if got, err := textOf(s, "changed"); got != "told" {
		t.Errorf("%q %v", got, err)
	}
	if m, err := listening.Next(); err != nil || m.Method != "notifications/tools/list_changed" {
		t.Errorf("%v %v", m, err)
	}
	s.Close()
	s = open(t, u)
	listening = listen(t, s)
	listening.Close()
	waiting.Close()
	if got, err := textOf(s, "changed"); got != "told" || u.dropped.get("unheard") == 0 {
		t.Errorf("%q %v, dropped %s", got, err, u.dropped)
	}
}

// TestCommandBoundsWhatNobodyReads has a server say more than its caller reads.
func TestCommandBoundsWhatNobodyReads(t *testing.T) {
	u := newChild(t, "raw")
	s := open(t, u)
	listening := listen(t, s)
	listening.Close()
	call := begin(t, s, request("chatter", ""))
	if got, err := textOf(s, "well"); got != "well" { // by now all of it has come
		t.Fatalf("%q %v", got, err)
	}
	before, m, err := answer(call)
	if err != nil || m.Result == nil || len(before) > 128 {
		t.Errorf("%d before the response %s, %v", len(before), m.Result, err)
	}
	if lost := u.dropped.get("overflow") + u.dropped.get("unheard"); lost+len(before) != 5000 {
		t.Errorf("%d came, dropped %s", len(before), u.dropped)
	}
}

// TestCommandPacesWhoNeverStops has a server talk for as long as it is read. It is read no faster than is taken.
func TestCommandPacesWhoNeverStops(t *testing.T) {
	t.Parallel()
	u := newChild(t, "raw", func(o *upstream.CommandOptions) { o.MaxResult, o.Stop = 1<<20, time.Millisecond })
	s := open(t, u)
	call := begin(t, s, request("flood", ""))
	defer call.Close()
	begun := time.Now()
	mcptest.Until(t, "it has said much", func() bool { return u.dropped.get("overflow") > 1200 })
	// At once 1024 messages are taken, then 256 a second.
	if took := time.Since(begun); took < 500*time.Millisecond {
		t.Errorf("1200 messages were taken in %v", took)
	}
	other := open(t, u)
	if got, err := textOf(other, "well"); got != "well" {
		t.Errorf("another session: %q %v", got, err)
	}
}

func TestCommandLogsALittleOfWhatAChildComplains(t *testing.T) {
	var log written.Text
	u := newChild(t, "raw", func(o *upstream.CommandOptions) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	if got, err := textOf(open(t, u), "complain"); got != "done" {
		t.Fatalf("%q %v", got, err)
	}
	mcptest.Must(t, u.Close())
	text := log.String()
	if lines := strings.Count(text, "standard error"); lines < 10 || lines > 1000 {
		t.Errorf("%d lines of 20000 were logged", lines)
	}
	if len(text) > 1000*2000 || strings.Contains(text, "\x1b") || strings.Contains(text, strings.Repeat("y", 1100)) {
		t.Errorf("the log has long lines, or controls: %.300s", text)
	}
	if !strings.Contains(text, `0 \\u001b[31mred`) || !strings.Contains(text, "left_out") {
		t.Errorf("%.300s", text)
	}
}
