package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/pdptest/inside/export"
	"policy-service/pdp/pdptest/inside/format"
	"policy-service/pdp/pdptest/inside/process"
	"policy-service/pdp/pdptest/inside/record"
	"policy-service/pdp/pdptest/night"
)

// TestStopUnderLoad tells a server to stop while 64 clients ask it. It ends in time, with
// exit 0; whoever was told to go on with a request, which is then accepted, gets the whole
// answer; the last answer says that it is the last; and what is on record is what was
// answered, no more and no less.
//
// It starts several servers, which takes a second or two.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	stops(t, max(2, night.Cases(8)), 1) // one in each mode of the log
}

// TestSoakStopUnderLoad does it more often. Most clients are told with an answer that it is the last.
func TestSoakStopUnderLoad(t *testing.T) {
	night.Soaks(t)
	stops(t, 100, crashClients*3/4)
}

// stops stops a server so often, until at least so many clients of one stop were told with an answer that it is the last.
func stops(t *testing.T, rounds int, least int64) {
	t.Helper()
	log := crash{data: t.TempDir()}
	all := stopping{answered: map[string]bool{}}
	// A client or a server that is not scheduled at the moment of the stop is told nothing, or tells nothing: what
	// counts is the best stop in strict mode, and there are more where none was undisturbed.
	best := int64(0)
	for round := 0; round < rounds || best < least && round < 4*rounds; round++ {
		// In best effort an answer waits for nothing, and more clients are between two requests.
		server, addr := log.serve(t, "--log-mode", []string{"strict", "best_effort"}[round%2])
		clients := all.load(addr, round)
		<-clients.warm
		took, err := terminate(server)
		clients.Wait()
		if err != nil {
			t.Fatalf("told to stop under load, the server ends with %v after %v\n%s", err, took, server.Stderr)
		}
		if len(all.broken) > 0 {
			t.Fatalf("the server accepted requests and did not answer them: %q", all.broken)
		}
		log.verify(t)
		if round%2 == 0 { // in best effort most are told anyhow
			best = max(best, clients.dismissed.Load())
		}
	}
	if best < least {
		t.Errorf("of %d clients at most %d were told with an answer that it is the last", crashClients, best)
	}
	t.Logf("%d of %d clients were told with an answer that it is the last", best, crashClients)
	all.compare(t, log.data)
}

// terminate sends SIGTERM, and waits for as long as a stop may take.
func terminate(server *exec.Cmd) (took time.Duration, err error) {
	began := time.Now()
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	late := time.AfterFunc(process.Drain, func() { _ = server.Process.Kill() })
	defer late.Stop()
	err = server.Wait()
	return time.Since(began), err
}

// stopping is what clients were answered, over all rounds.
type stopping struct {
	mu       sync.Mutex
	answered map[string]bool // by request id
	broken   []string        // accepted, and not answered; or answered wrongly
	told     int             // to go on
	refused  int             // after the end
}

// A crowd asks until the server is gone. It is warm once each has asked a few times.
type crowd struct {
	sync.WaitGroup
	warm      chan struct{}
	dismissed atomic.Int64 // whose last answer said so
}

func (s *stopping) load(addr string, round int) *crowd {
	c := &crowd{warm: make(chan struct{})}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: crashClients, ExpectContinueTimeout: patience}}
	var asked atomic.Int64
	for n := range crashClients {
		c.Go(func() {
			last := false
			for i := 0; ; i++ {
				final, ok := s.ask(client, addr, fmt.Sprintf("%d-%d-%d", round, n, i), n%2 == 0)
				if !ok {
					break
				}
				last = final
				if asked.Add(1) == 10*crashClients {
					close(c.warm)
				}
			}
			if last {
				c.dismissed.Add(1)
			}
		})
	}
	return c
}

// ask asks once, and reports whether there was an answer, and one that is the last. Half of the clients wait to be
// told that the server has begun to read the request: of the others nobody knows whether
// a request without an answer was ever seen, unless it is on record.
func (s *stopping) ask(client *http.Client, addr, id string, wait bool) (last, ok bool) {
	var accepted atomic.Bool
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got100Continue: func() { accepted.Store(true) }})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/access/v1/evaluation",
		strings.NewReader(`{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"tickets:create_ticket"}}`))
	if err != nil {
		panic(err) // the address is one that the server wrote
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Request-ID", id)
	if wait {
		r.Header.Set("Expect", "100-continue")
	}
	last, err = s.whole(client, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.answered[id] = true
		if accepted.Load() {
			s.told++
		}
	case accepted.Load() || !errors.Is(err, errUnanswered):
		s.broken = append(s.broken, fmt.Sprintf("%s: %v", id, err))
	default:
		s.refused++
	}
	return last, err == nil
}

var errUnanswered = errors.New("no answer has begun")

// whole fails unless the answer to a request is a decision, from its first byte to its last.
func (s *stopping) whole(client *http.Client, r *http.Request) (last bool, err error) {
	w, err := client.Do(r)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errUnanswered, err)
	}
	defer func() { _ = w.Body.Close() }()
	body, err := io.ReadAll(w.Body)
	if err == nil && (w.StatusCode != http.StatusOK || string(body) != `{"decision":true}`) {
		err = fmt.Errorf("answered %d %s", w.StatusCode, body)
	}
	return w.Close, err
}

// compare reads the whole log.
func (s *stopping) compare(t *testing.T, data string) {
	t.Helper()
	unrecorded, records := len(s.answered), 0
	_, err := export.Tail(t.Context(), data, export.TailOptions{After: -1, Filter: record.Filter{Kind: format.KindDecision}}, func(_ int64, line []byte) error {
		var record struct {
			RequestID string `json:"request_id"`
		}
		if err := json.Unmarshal(line, &record); err != nil {
			return err
		}
		if records++; !s.answered[record.RequestID] {
			t.Errorf("request %s is on record, and nobody was answered", record.RequestID)
			return nil
		}
		unrecorded--
		return nil
	})
	must(t, err)
	if unrecorded != 0 {
		t.Errorf("%d answers, and %d records: %d are missing", len(s.answered), records, unrecorded)
	}
	t.Logf("%d answers, all on record; %d were told to go on; %d requests came too late", len(s.answered), s.told, s.refused)
	if s.told == 0 || s.refused == 0 {
		t.Error("nobody was told to go on, or nobody came too late: nothing was tried")
	}
}
