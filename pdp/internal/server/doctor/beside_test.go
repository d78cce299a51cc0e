package doctor_test

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/doctor"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/witnesstest"
)

const issuer = "https://pdp.example.com"

// busy starts a server that has every caller's questions wait for people, and grants capabilities.
func busy(t *testing.T, data string) (*pdptest.Server, error) {
	t.Helper()
	return pdptest.TryStart(t, pdptest.Bundle(map[string]string{
		"a.cedar": `@id("grants") permit(principal, action == Action::"capability.grant", resource);
			@id("asks") @obligation("ask") permit(principal, action == Action::"tool.invoke", resource);
			@id("leads") permit(principal, action == Action::"approval.decide", resource);`,
		"obligations.yaml": `ask: {type: approval_required, properties: {template: owner}}`,
	}), func(c *server.Config) {
		c.Data, c.PublicURL, c.Program.Authenticator, c.Program.PDP.NewID = data, issuer, anybody{}, nil
	})
}

type anybody struct{}

func (anybody) Authenticate(*http.Request) (auth.Caller, error) {
	return auth.Caller{Name: "key:pep", AllTenants: true, Permissions: []auth.Permission{auth.Decide, auth.Capability}}, nil
}

// lives has a busy server record a question that waits and a capability, and stops it.
func lives(t *testing.T, data string, n int) {
	t.Helper()
	s, err := busy(t, data)
	if err != nil {
		t.Fatalf("start %d: %v", n, err)
	}
	body := fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":"tool-%d"},"context":{}}`, n)
	if got := s.Post("/v1/authorize", body); got.Status != http.StatusOK || !strings.Contains(got.Body, `"approval":{"id":`) {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	holder, err := capability.NewHolder(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	must(t, err)
	ask := capability.Ask{Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "a"}, Audience: "b", Tools: []string{"c"}}
	must(t, holder.Request(&ask, issuer, pdptest.Now))
	asked, err := ask.MarshalJSON()
	must(t, err)
	if got := s.Post("/v1/capabilities", string(asked)); got.Status != http.StatusCreated {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	must(t, s.Stop(t.Context()))
}

// besides looks at a directory that servers of [busy] run on.
func besides(data string) doctor.Patient {
	p := patient(data)
	p.Config.PublicURL = issuer
	return p
}

// TestStartsBesideADoctor starts a server while a doctor has looked at its files and waits for a witness.
func TestStartsBesideADoctor(t *testing.T) {
	t.Parallel()
	data := lived(t)
	lives(t, data, 1)
	keys, err := segment.VerifierKeys(data)
	must(t, err)
	w := witnesstest.New(t, "w")
	w.Add(t, keys[0])
	waits, answers := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.Lie(func(rw http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(waits) })
		<-answers
		w.Honest(rw, r)
	})
	p := besides(data)
	p.Config.DecisionLog.Witnesses = &server.WitnessesConfig{PolicyFile: filepath.Join(t.TempDir(), "p"), Every: time.Second, Patience: time.Minute}
	must(t, os.WriteFile(p.Config.DecisionLog.Witnesses.PolicyFile, []byte(witnesstest.Policy(1, w)), 0o600))
	found := make(chan []finding.Finding)
	go func() { found <- doctor.Examine(t.Context(), p) }()
	<-waits
	s, err := busy(t, data)
	close(answers)
	told := fmt.Sprint(<-found)
	if err != nil {
		t.Fatalf("no server starts: %v", err)
	}
	for _, want := range []string{"it is locked: a server is running on it", "approvals false their file is locked", "capabilities false their file is locked"} {
		if !strings.Contains(told, want) || strings.Contains(told, "no server is running") {
			t.Errorf("want %q in %s", want, told)
		}
	}
	must(t, s.Stop(t.Context()))
	if told = fmt.Sprint(doctor.Examine(t.Context(), besides(data))); !strings.Contains(told, "1 wait for a person, and no server") || !strings.Contains(told, "1 are live, and no server") {
		t.Error(told)
	}
}

// keepLooking has doctors look one after the other until the test ends, and reports each finding that bites.
func keepLooking(t *testing.T, p doctor.Patient) {
	ended := make(chan struct{})
	var doctors sync.WaitGroup
	looks, partial := 0, 0
	doctors.Go(func() {
		for {
			found := doctor.Examine(context.Background(), p) // the test's context ends before the last one does
			looks++
			var wait, live int // of each there is one more after each life
			n := 0
			for _, f := range found {
				waiting, _ := fmt.Sscanf(f.Message, "%d wait for", &wait)
				living, _ := fmt.Sscanf(f.Message, "%d are live", &live)
				if n += waiting + living; n == 2 && wait != live {
					t.Errorf("%d wait, and %d are live: %+v", wait, live, found)
				}
				restless := f.Check == "log" && strings.Contains(f.Message, "its files changed each time")
				if f.Bites && !restless && f.Check != "disk" { // which depends on the machine
					t.Errorf("%+v", f)
				}
				if f.Check == "log" && strings.Contains(f.Message, "locked") {
					partial++
				}
			}
			select {
			case <-ended:
				return
			default:
			}
		}
	})
	t.Cleanup(func() {
		close(ended)
		doctors.Wait()
		t.Logf("%d doctors, of whom %d saw a server", looks, partial)
	})
}

// TestDoctorsBesideStarts has doctors look one after the other while a server starts, records and stops. No start fails, and
// no doctor takes a file that is being written to for a damaged one.
func TestDoctorsBesideStarts(t *testing.T) {
	t.Parallel()
	data := lived(t)
	lives(t, data, 0)
	keepLooking(t, besides(data))
	for n := range 10 {
		lives(t, data, n+1)
	}
}

// TestDoctorsBesideKills has doctors look while a log begins segments, replaces sealed ones, ends, goes on, and is killed at
// any moment. What a crash leaves is no damage.
func TestDoctorsBesideKills(t *testing.T) {
	t.Parallel()
	if data := os.Getenv("DOCTOR_BESIDE"); data != "" {
		writeUntilKilled(t, data)
	}
	data := lived(t)
	p := patient(data)
	p.Config.Program.PDP.Now = nil
	keepLooking(t, p)
	for n := range night.Cases(60) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDoctorsBesideKills$")
		cmd.Env = append(os.Environ(), "DOCTOR_BESIDE="+data)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for range n*7%40 + 1 {
			if !lines.Scan() || lines.Text() != "on" {
				said := lines.Text()
				for lines.Scan() {
					said += "\n" + lines.Text()
				}
				t.Fatalf("the writer says %s", said)
			}
		}
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
}

// writeUntilKilled writes a log, in lives of three segments, and redacts from a sealed one in each. It prints a line for each
// step.
func writeUntilKilled(t *testing.T, data string) {
	for life := 0; ; life++ {
		l, err := decisionlog.Open(data, decisionlog.Options{SegmentBytes: 64 << 10})
		must(t, err)
		first := fmt.Sprint("first-", l.Size())
		for n := range 12 {
			one := record.Entry{
				ID: first, Kind: format.KindDecision, Tenant: "default", Decision: &record.Decision{Allow: true},
				Request: &record.Request{
					Subject: jsontext.Value(`{}`), Action: jsontext.Value(`{}`), Resource: jsontext.Value(fmt.Sprintf(`{"id":"%020000d"}`, n)),
				},
			}
			if n > 0 {
				one.ID = fmt.Sprint(l.Size())
			}
			must(t, l.Append(t.Context(), []record.Entry{one}))
			fmt.Println("on")
		}
		must(t, l.Redact(t.Context(), "", first, "on request"))
		fmt.Println("on")
		must(t, l.Close())
		fmt.Println("on")
	}
}

// While the log cannot be read at rest, what does not hang on it bites as ever, and so does that.
func TestLogThatChanges(t *testing.T) {
	t.Parallel()
	data := lived(t)
	must(t, os.WriteFile(filepath.Join(data, "capabilities.db"), []byte(strings.Repeat("garbage", 10_000)), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	var changing sync.WaitGroup
	changing.Go(func() {
		for at := pdptest.Now; ctx.Err() == nil; at = at.Add(time.Second) {
			_ = os.Chtimes(filepath.Join(data, "log", "00000001.db"), at, at)
		}
	})
	defer changing.Wait()
	defer cancel()
	for {
		found := doctor.Examine(t.Context(), patient(data))
		mustBite(t, found, "capabilities", "requests that show one are answered with 503")
		if biting(found, "log") != "" { // else it had come to rest
			mustBite(t, found, "log", "its files changed each time that they were read")
			return
		}
	}
}
