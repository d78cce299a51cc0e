package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/pdptest/inside/export"
	"policy-service/pdp/pdptest/inside/format"
	"policy-service/pdp/pdptest/inside/record"
	"policy-service/pdp/pdptest/inside/segment"
	"policy-service/pdp/pdptest/night"
)

// crashClients ask at once, every eighth of them in batches.
const crashClients = 64

// TestCrash kills the server at random moments while it answers. Whatever a client was told is on record, and the log
// verifies, with each checkpoint that was there before.
//
// It starts several servers, which takes a second or two.
func TestCrash(t *testing.T) {
	t.Parallel()
	crashes(t, night.Cases(20))
}

// TestSoakCrash does it more often.
func TestSoakCrash(t *testing.T) {
	night.Soaks(t)
	crashes(t, 200)
}

func crashes(t *testing.T, rounds int) {
	t.Helper()
	c := crash{data: t.TempDir(), answered: map[string]bool{}}
	for range rounds {
		c.round(t)
		c.verify(t)
		if t.Failed() {
			return
		}
	}
	server, _ := c.serve(t)
	stop(t, server)
	c.verify(t)
	c.count(t, rounds)
}

// crash is a log, what was answered from it, and the last checkpoint that was seen.
type crash struct {
	data       string
	key        string
	checkpoint []byte

	mu       sync.Mutex
	answered map[string]bool
	requests int
}

// serve starts a server on the log and returns its address once it answers.
func (c *crash) serve(t *testing.T, more ...string) (server *exec.Cmd, addr string) {
	t.Helper()
	return serveIn(t, append([]string{"--policies", starter(t), "--data", c.data}, more...)...)
}

// serveIn starts a server in a process of its own and returns its address once it answers.
func serveIn(t *testing.T, flags ...string) (server *exec.Cmd, addr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "addr") // another one each time: a killed server leaves its own behind
	flags = append([]string{"serve", "--listen", "127.0.0.1:0", "--addr-file", file}, flags...)
	server = exec.CommandContext(t.Context(), "policy-service", flags...)
	server.Stderr = &bytes.Buffer{}
	must(t, server.Start())
	return server, awaitAddr(t, server, file, server.Stderr)
}

// awaitAddr is the address of a server, once it answers; one that does not start is killed, and fails the test with its output.
func awaitAddr(t *testing.T, server *exec.Cmd, file string, output any) (addr string) {
	t.Helper()
	err := untilDone(t.Context(), "the server starts", func() (bool, error) {
		line, err := os.ReadFile(file)
		addr = strings.TrimSpace(string(line))
		return err == nil, nil
	})
	if err != nil {
		_ = server.Process.Kill()
		_ = server.Wait()
		t.Fatalf("%v:\n%s", err, output)
	}
	return addr
}

// stop ends a server in good order.
func stop(t *testing.T, server *exec.Cmd) {
	t.Helper()
	if took, err := terminate(server); err != nil {
		t.Errorf("told to stop, the server ends with %v after %v\n%.4000s", err, took, server.Stderr)
	}
}

// round has clients ask until the server is killed, which is after some answer in the middle of others.
func (c *crash) round(t *testing.T) {
	t.Helper()
	server, addr := c.serve(t)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: crashClients}}
	defer client.CloseIdleConnections()
	left := rand.IntN(600)
	var clients sync.WaitGroup
	for n := range crashClients {
		clients.Go(func() {
			for {
				ids := ask(client, addr, n%8 == 0)
				if ids == nil {
					return // the server is gone
				}
				if c.note(ids, &left) {
					_ = server.Process.Kill()
				}
			}
		})
	}
	clients.Wait()
	_ = server.Process.Kill() // also where it turned all of them away before
	if err := server.Wait(); !strings.Contains(fmt.Sprint(err), "killed") {
		t.Errorf("the server ended otherwise than by being killed: %v\n%s", err, server.Stderr)
	}
}

// note keeps the ids of an answer, and reports whether it is time to kill.
func (c *crash) note(ids []string, left *int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.answered[id] = true
	}
	*left--
	return *left <= 0
}

// ask returns the ids of the records behind an answer, nil where there is no whole one.
func ask(client *http.Client, addr string, batch bool) []string {
	const question = `"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"tickets:create_ticket"}`
	path, body := "/access/v1/evaluation", "{"+question+"}"
	if batch {
		path, body = "/access/v1/evaluations", "{"+question+`,"evaluations":[{},{},{}]}`
	}
	r, err := client.Post("http://"+addr+path, "application/json", strings.NewReader(body))
	if err != nil {
		return nil
	}
	defer func() { _ = r.Body.Close() }()
	if _, err := io.Copy(io.Discard, r.Body); err != nil || r.StatusCode != http.StatusOK {
		return nil
	}
	id := r.Header.Get("X-Decision-Id")
	if !batch {
		return []string{id}
	}
	return []string{id + ".0", id + ".1", id + ".2"}
}

// verify verifies the log as whoever keeps its first key and its last checkpoint elsewhere.
func (c *crash) verify(t *testing.T) {
	t.Helper()
	if c.key == "" {
		keys, err := segment.VerifierKeys(c.data)
		must(t, err)
		c.key = keys[0]
	}
	report := verify.Directory(c.data, verify.Options{Key: c.key, Checkpoint: string(c.checkpoint)})
	if !report.Verified() {
		t.Fatalf("%v: %v", report.Code, report.Problem)
	}
	err := segment.Read(c.data, func(s *segment.Snapshot) (err error) {
		c.checkpoint, err = s.Checkpoint(t.Context())
		return err
	})
	must(t, err)
}

// count looks for every answer, and for every crash.
func (c *crash) count(t *testing.T, rounds int) {
	t.Helper()
	missing, crashes, records := maps.Clone(c.answered), 0, 0
	_, err := export.Tail(t.Context(), c.data, export.TailOptions{After: -1}, func(_ int64, line []byte) error {
		l, err := record.Parse(line)
		delete(missing, l.ID)
		if l.Event == format.EventCrash {
			crashes++
		}
		records++
		return err
	})
	must(t, err)
	if len(missing) > 0 {
		t.Errorf("%d of %d answers are not on record: %v", len(missing), len(c.answered), missing)
	}
	if crashes != rounds {
		t.Errorf("%d crashes are on record, and there were %d", crashes, rounds)
	}
	t.Logf("%d answers, %d records, %d crashes", len(c.answered), records, crashes)
}
