package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/bound"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/witnesstest"
	"policy-service/pdp/pdptest/written"
)

// witnessed begins a log in a directory, of its own for "", with witnesses that know its key, of which so many are the
// quorum. The option has a server go on from there.
func witnessed(t *testing.T, data string, n, quorum int) (pdptest.Option, []*witnesstest.Witness) {
	t.Helper()
	if data == "" {
		data = t.TempDir()
	}
	now := func() time.Time { return pdptest.Now }
	log, err := decisionlog.Open(data, decisionlog.Options{Now: now})
	must(t, err)
	must(t, log.Close())
	keys, err := segment.VerifierKeys(data)
	must(t, err)
	var all []*witnesstest.Witness
	for i := range n {
		one := witnesstest.New(t, fmt.Sprintf("w%d", i+1))
		one.Add(t, keys[0])
		one.At(now)
		all = append(all, one)
	}
	file := filepath.Join(t.TempDir(), "witnesses.policy")
	must(t, os.WriteFile(file, []byte("log "+keys[0]+"\n"+witnesstest.Policy(quorum, all...)), 0o600))
	return func(c *server.Config) {
		c.Data = data
		c.DecisionLog.Witnesses = &server.WitnessesConfig{PolicyFile: file, Every: time.Second}
	}, all
}

// witnessState is the part of /readyz about the witnesses.
type witnessState struct {
	Status string
	Log    struct {
		Witnesses *struct {
			Quorum            time.Time
			Size              uint64
			Missing, Conflict bool
			Witnesses         []struct{ Witness, Outcome, Detail string }
		}
	}
}

func witnessesOf(t *testing.T, s *pdptest.Server) (int, witnessState) {
	t.Helper()
	var state witnessState
	answer := s.Get("/readyz")
	must(t, json.Unmarshal([]byte(answer.Body), &state))
	return answer.Status, state
}

// Checkpoints are cosigned while the log grows, and nothing else is signed or committed for that.
func TestWitnessesCosign(t *testing.T) {
	t.Parallel()
	counts := map[bool][2]int64{}
	for _, with := range []bool{false, true} {
		var commits, signed atomic.Int64
		option, all := witnessed(t, "", 2, 2)
		s := pdptest.Start(t, telling(), option, func(c *server.Config) {
			if !with {
				c.DecisionLog.Witnesses = nil
			}
			server.TuneLog(c, func(o *decisionlog.Options, _ *decisionlog.Retention) {
				o.Checkpoints = decisionlog.Checkpoints{Every: time.Hour, Idle: time.Hour}
				commit, made := o.On.Commit, o.On.Checkpoint
				o.On.Commit = func(c decisionlog.Commit) { commits.Add(1); commit(c) }
				o.On.Checkpoint = func(note []byte) { signed.Add(1); made(note) }
			})
		})
		if with {
			eventually(t, "they cosign", func() bool {
				_, state := witnessesOf(t, s)
				return state.Log.Witnesses.Size > 0
			})
		}
		commits.Store(0)
		signed.Store(0)
		asked := all[1].Asked()
		for range 20 {
			replied(t, s.Post(evaluationPath, readQuestion), 200)
		}
		if with {
			eventually(t, "another round is over", func() bool { return all[1].Asked() > asked+1 })
			_, state := witnessesOf(t, s)
			if state.Status != "ready" || state.Log.Witnesses.Missing || len(state.Log.Witnesses.Witnesses) != 2 {
				t.Errorf("got %+v", state)
			}
		}
		counts[with] = [2]int64{commits.Load(), signed.Load()}
	}
	if counts[true] != counts[false] {
		t.Errorf("20 answers take %v commits and checkpoints with witnesses, and %v without", counts[true], counts[false])
	}
}

// While all witnesses hang, answers come. Where they are required, only for as long as patience lasts.
func TestWitnessesRequired(t *testing.T) {
	t.Parallel()
	for _, required := range []bool{false, true} {
		var later atomic.Int64
		now := func() time.Time { return pdptest.Now.Add(time.Duration(later.Load())) }
		option, all := witnessed(t, "", 2, 2)
		hanging := make(chan struct{}, 100)
		for _, one := range all {
			one.At(now)
			one.Lie(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				hanging <- struct{}{}
				<-r.Context().Done()
			})
		}
		s := pdptest.Start(t, telling(), option, func(c *server.Config) {
			c.DecisionLog.Witnesses.Required = required
			c.Program.PDP.Now = now
		})
		<-hanging
		<-hanging
		replied(t, s.Post(evaluationPath, readQuestion), 200)
		if code, state := witnessesOf(t, s); code != 200 || state.Status != "ready" {
			t.Errorf("got %d %+v", code, state)
		}
		later.Store(int64(5*time.Minute + time.Second))
		code, state := witnessesOf(t, s)
		answer := s.Post(evaluationPath, readQuestion)
		want, status := 200, "degraded"
		if required {
			want, status = 503, "unavailable"
		}
		if answer.Status != want || code != want || state.Status != status || !state.Log.Witnesses.Missing {
			t.Errorf("required %v: got %d %s, and /readyz %d %+v", required, answer.Status, answer.Body, code, state)
		}
		for _, one := range all {
			one.Lie(nil)
		}
		eventually(t, "they cosign again", func() bool {
			code, state := witnessesOf(t, s)
			return code == 200 && state.Status == "ready"
		})
		replied(t, s.Post(evaluationPath, readQuestion), 200)
	}
}

// A data directory of before that is put back is refused by the witness, and named.
func TestWitnessesFork(t *testing.T) {
	t.Parallel()
	logged := new(written.Text)
	s, size := fork(t, func(*pdptest.Server) {}, func(c *server.Config, w *witnesstest.Witness) {
		c.Program.Logger = slog.New(slog.NewTextHandler(logged, nil))
		c.DecisionLog.Witnesses.Monitoring = map[string]string{"w1": w.URL}
	})
	before := size()
	var state witnessState
	eventually(t, "it is a conflict", func() bool {
		_, state = witnessesOf(t, s)
		return state.Log.Witnesses.Conflict
	})
	if state.Status != "degraded" || state.Log.Witnesses.Witnesses[0].Outcome != "suspect" || !strings.Contains(logged.String(), "this log forked") {
		t.Errorf("got %+v\n%s", state, logged)
	}
	if size() != before {
		t.Error("the witness cosigned both")
	}
}

// fork serves a log that a witness cosigns, has a function look at the server, and serves with the data directory of before. It
// returns that second server, which has the change, and the size of the log as the witness knows it.
func fork(t *testing.T, look func(*pdptest.Server), change func(*server.Config, *witnesstest.Witness)) (s *pdptest.Server, size func() int64) {
	t.Helper()
	data, old := t.TempDir(), t.TempDir()
	option, all := witnessed(t, data, 1, 1)
	soon := func(c *server.Config) {
		server.TuneLog(c, func(o *decisionlog.Options, _ *decisionlog.Retention) { o.Checkpoints.Idle = time.Millisecond })
	}
	must(t, os.Rename(data, filepath.Join(old, "data")))
	copyData(t, filepath.Join(old, "data"), data)
	s = pdptest.Start(t, telling(), option, soon)
	for range 3 {
		replied(t, s.Post(evaluationPath, readQuestion), 200)
	}
	eventually(t, "all is cosigned", func() bool {
		_, state := witnessesOf(t, s)
		return state.Log.Witnesses.Size > 5
	})
	origin, _, _ := strings.Cut(s.Get("/v1/log/keys").Body, "+")
	look(s)
	stopAndWait(t, s)
	must(t, os.RemoveAll(data))
	copyData(t, filepath.Join(old, "data"), data)
	s = pdptest.Start(t, telling(), option, soon, func(c *server.Config) { change(c, all[0]) })
	return s, func() int64 { return all[0].Size(origin) }
}

func copyData(t *testing.T, from, to string) {
	t.Helper()
	must(t, filepath.WalkDir(from, func(name string, d os.DirEntry, err error) error {
		must(t, err)
		rest, err := filepath.Rel(from, name)
		must(t, err)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rest), 0o700)
		}
		content, err := os.ReadFile(name)
		must(t, err)
		return os.WriteFile(filepath.Join(to, rest), content, 0o600)
	}))
}

// A policy that cannot work is refused at the start, with its line.
func TestWitnessesPolicyRefused(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	option, all := witnessed(t, data, 1, 1)
	log, err := os.ReadFile(filepath.Join(data, format.PublicKeyFile))
	must(t, err)
	one := all[0]
	other := t.TempDir()
	witnessed(t, other, 0, 0)
	strange, err := os.ReadFile(filepath.Join(other, format.PublicKeyFile))
	must(t, err)
	for text, want := range map[string]string{
		witnesstest.Policy(1, one):                                                   "",
		"log " + string(log) + witnesstest.Policy(1, one):                            "",
		"log " + string(strange) + witnesstest.Policy(1, one):                        "has the keys of logs, and not that of this one; add a line log ",
		"log " + string(strange) + "log " + string(log) + witnesstest.Policy(1, one): "",
		"# nothing\nquorum none\n":                                                   "line 2: the quorum is none",
		"witness w1 " + one.Key + "\nquorum w1\n":                                    "line 1: the witness w1: its address is no URL",
		"\nwitness w1 " + one.Key + " http://w.example.com\nquorum w1\n":             "line 2: the witness w1: plain http to another machine",
		"witness w1 " + one.Key + " unix:/tmp/w\nquorum w1\n":                        "line 1: the witness w1: its address is no URL",
		"witness w1 " + one.Key + " " + one.URL + "\n":                               "it has no line quorum",
		"witness w1 w1+00000000+AAAA\nquorum w1\n":                                   "line 1: ",
	} {
		file := filepath.Join(t.TempDir(), "p")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		config := server.Config{Listen: "127.0.0.1:0", Program: server.Program{Source: telling()}}
		option(&config)
		config.DecisionLog.Witnesses.PolicyFile = file
		s, err := server.New(config)
		if err == nil {
			err = s.Start(t.Context())
		}
		if err == nil {
			must(t, s.Stop(context.Background()))
		}
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file)):
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// While witnesses are required, the key is rotated only anyway.
func TestWitnessesRotation(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	option, _ := witnessed(t, data, 1, 1)
	admin := addKey(t, data, "admin", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.LogAdmin}})
	s := pdptest.Start(t, telling(), option, func(c *server.Config) { c.DecisionLog.Witnesses.Required = true })
	replied(t, s.Post("/v1/log/keys", "", "Authorization", admin), 409)
	replied(t, s.Post("/v1/log/keys?anyway=yes", "", "Authorization", admin), 400)
	replied(t, s.Post("/v1/log/keys?anyway=true", "", "Authorization", admin), 200)
	stopAndWait(t, s)
	logged := new(written.Text)
	s = pdptest.Start(t, telling(), option, func(c *server.Config) { c.Program.Logger = slog.New(slog.NewTextHandler(logged, nil)) })
	replied(t, s.Post("/v1/log/keys", "", "Authorization", admin), 200)
	if !strings.Contains(logged.String(), "has keys of this log, and not the one in force") {
		t.Errorf("a policy with an old key is not warned of:\n%s", logged)
	}
}

// A log that begins after a restore has a name of its own, with any public_url.
func TestOriginAfterRestore(t *testing.T) {
	t.Parallel()
	for _, restored := range []bool{false, true} {
		data := t.TempDir()
		if restored {
			must(t, os.Mkdir(filepath.Join(data, server.RestoredDir), 0o700))
		}
		pdptest.Start(t, telling(), withData(data), func(c *server.Config) { c.PublicURL = "http://127.0.0.1:8180" })
		keys, err := segment.VerifierKeys(data)
		must(t, err)
		if strings.HasPrefix(keys[0], "127.0.0.1:8180/v1/log+") == restored {
			t.Errorf("restored %v: the key is %s", restored, keys[0])
		}
	}
}

// The checkpoint that is shown is one that a quorum cosigned, and showing it never makes a checkpoint: until the quorum is missing for too long, and is
// not required.
func TestWitnessesCheckpointShown(t *testing.T) {
	t.Parallel()
	for _, required := range []bool{false, true} {
		var later, signed atomic.Int64
		now := func() time.Time { return pdptest.Now.Add(time.Duration(later.Load())) }
		data := t.TempDir()
		option, all := witnessed(t, data, 2, 2)
		reader := addKey(t, data, "auditor", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.LogRead, auth.Explain, auth.Decide}})
		s := pdptest.Start(t, telling(), option, func(c *server.Config) {
			c.DecisionLog.Witnesses.Required = required
			c.Program.PDP.Now = now
			server.TuneLog(c, func(o *decisionlog.Options, _ *decisionlog.Retention) {
				o.Checkpoints = decisionlog.Checkpoints{Records: 10, Every: time.Hour, Idle: time.Hour}
				made := o.On.Checkpoint
				o.On.Checkpoint = func(note []byte) { signed.Add(1); made(note) }
			})
		})
		for _, one := range all {
			one.At(now)
		}
		shown := func() (pdptest.Response, int) {
			answer := s.Get("/v1/log/checkpoint", "Authorization", reader)
			return answer, strings.Count(answer.Body, "\n— w")
		}
		eventually(t, "it is cosigned", func() bool { answer, lines := shown(); return answer.Status == 200 && lines == 2 })
		cosigned, _ := shown()
		all[0].Lie(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusForbidden) })
		made := signed.Load()
		for range 10 {
			replied(t, s.Post(evaluationPath, readQuestion, "Authorization", reader), 200)
		}
		asked := all[1].Asked()
		// The first of three may be for the checkpoint before, and the third begins when the second is over.
		eventually(t, "a round without a quorum", func() bool { return signed.Load() > made && all[1].Asked() >= asked+3 })
		made = signed.Load()
		if answer, _ := shown(); answer.Body != cosigned.Body || signed.Load() != made {
			t.Errorf("got\n%s and made %d", answer.Body, signed.Load()-made)
		}
		later.Store(int64(5*time.Minute + time.Second))
		newer := func() bool {
			answer, lines := shown()
			return answer.Status == 200 && answer.Body != cosigned.Body && lines == 1
		}
		if answer, _ := shown(); required && (answer.Status != 200 || answer.Body != cosigned.Body) {
			t.Errorf("after patience got\n%s", answer.Body)
		} else if !required {
			eventually(t, "the newest is shown with the line that it has", newer) // not while a witness is late
		}
		if signed.Load() != made {
			t.Errorf("required %v: showing it made %d", required, signed.Load()-made)
		}
	}
}

// Witnessing costs answers nothing that shows.
func TestWitnessingMeasured(t *testing.T) {
	night.Measures(t)
	option, all := witnessed(t, "", 3, 2)
	var servers [2]*pdptest.Server
	for i := range servers {
		o := option
		if i == 0 {
			o = withData(t.TempDir())
		}
		servers[i] = pdptest.Start(t, telling(), o)
	}
	var passes bound.Passes
	var answers bound.Passes
	for pass := 0; pass < 60 || all[0].Asked() < 3; pass++ { // a quick machine makes many passes between two checkpoints
		var took [2]time.Duration
		for range 50 {
			for i, s := range servers {
				began := time.Now()
				replied(t, s.Post(evaluationPath, readQuestion), 200)
				took[i] += time.Since(began)
			}
		}
		passes.Against(took[1], took[0])
		answers.Took(took[1] / 50)
	}
	t.Logf("with witnesses an answer takes %.2f ms, %.3f times as long as without; %d checkpoints were submitted", answers.Median(), passes.Median(), all[0].Asked())
	if bound.Broken(passes.Median(), 1.05) {
		t.Errorf("an answer takes %.3f times as long with witnesses as without", passes.Median())
	}
}

// Where the quorum is required and missing, no question of any form is answered and no use of an approval is spent, and people go on
// deciding.
func TestRequiredWitnessesSpendNothing(t *testing.T) {
	t.Parallel()
	var all []*witnesstest.Witness
	c := openCounter(t, func(config *server.Config) {
		option, some := witnessed(t, config.Data, 1, 1)
		option(config)
		all, config.DecisionLog.Witnesses.Required, config.DecisionLog.Witnesses.Patience = some, true, 30*time.Second
	})
	for _, one := range all {
		one.At(c.Now)
	}
	approved, waits := c.approved(), c.asks("pep", tool("push", `"arguments":{"n":8}`)).Approval.ID
	for _, one := range all {
		one.Lie(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	}
	eventually(t, "the witness refuses", func() bool {
		_, text := c.do("explainer", "GET", "/readyz", "")
		return strings.Contains(text, "unknown_key")
	})
	c.Advance(31 * time.Second)
	question := "{" + wants("push", push) + "}"
	for path, body := range map[string]string{
		"/v1/authorize":            tool("push", again),
		evaluationPath:             "{" + wants("push", push+`,"approval":{"id":"`+approved+`"}`) + "}",
		"/access/v1/evaluations":   `{"evaluations":[` + question + `,` + question + `]}`,
		"/access/v1/search/action": `{"subject":{"type":"agent","id":"bot"},"resource":{"type":"tool","id":"push"}}`,
	} {
		if status, text := c.do("gateway", "POST", path, body, "X-Receipt", "want"); status != http.StatusServiceUnavailable {
			t.Errorf("%s: got %d %s", path, status, text)
		}
	}
	c.stands(t, "the approval", "mia", approved, "approved", 0)
	c.says("mia", waits, "decision", yes, http.StatusOK)
	for _, one := range all {
		one.Lie(nil)
	}
	eventually(t, "it cosigns again", func() bool { status, _ := c.do("explainer", "GET", "/readyz", ""); return status == http.StatusOK })
	c.asks("pep", tool("push", again)).passes(t, "the use that is left")
	c.stands(t, "the approval", "mia", approved, "used_up", 1)
}
