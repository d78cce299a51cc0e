package witness_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/decisionlog/witness"
	"policy-service/pdp/pdptest/witnesstest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a log with its witnesses.
type world struct {
	t     *testing.T
	data  string
	log   *decisionlog.Log
	all   []*witnesstest.Witness
	made  int // checkpoints
	text  bytes.Buffer
	of    *witness.Witnesses
	mu    sync.Mutex
	ahead time.Duration // of the clock
	count map[string]int
	watch map[string]string // monitoring
	every time.Duration
	quota int
}

// begin has a log with some records, and as many witnesses that know its key. So many of them are the quorum.
func begin(t *testing.T, witnesses, quorum int) *world {
	t.Helper()
	w := &world{t: t, data: t.TempDir(), count: map[string]int{}, every: 10 * time.Second, quota: quorum}
	w.open()
	for n := range witnesses {
		one := witnesstest.New(t, fmt.Sprintf("w%d", n+1))
		one.Add(t, w.key())
		one.At(w.now)
		w.all = append(w.all, one)
	}
	w.add(3)
	w.restart()
	return w
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.ahead)
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead += d
}

func (w *world) open() {
	w.t.Helper()
	var err error
	w.log, err = decisionlog.Open(w.data, decisionlog.Options{
		Now:         w.now,
		Checkpoints: decisionlog.Checkpoints{Every: time.Hour, Idle: time.Hour},
		On: decisionlog.Hooks{Checkpoint: func([]byte) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.made++
		}},
		Refuse: func(now time.Time) error {
			if w.of == nil {
				return nil
			}
			return w.of.Refuse(now)
		},
	})
	must(w.t, err)
	log := w.log
	w.t.Cleanup(func() { _ = log.Close() })
}

// restart makes the witnesses anew, as a start does.
func (w *world) restart() {
	w.t.Helper()
	policy, err := c2sp.ParsePolicy([]byte(witnesstest.Policy(w.quota, w.all...)))
	must(w.t, err)
	w.of, err = witness.New(witness.Options{
		Log: w.log, Data: w.data, Policy: policy, Monitoring: w.watch, Every: w.every, Patience: 5 * time.Minute, Now: w.now,
		Count: func(label string, outcome witness.Outcome) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.count[label+" "+string(outcome)]++
		},
		Logger: slog.New(slog.NewTextHandler(&w.text, nil)),
	})
	must(w.t, err)
}

func (w *world) key() string {
	w.t.Helper()
	keys, err := segment.VerifierKeys(w.data)
	must(w.t, err)
	return keys[len(keys)-1]
}

// add appends records, and has them signed.
func (w *world) add(n int) {
	w.t.Helper()
	for range n {
		must(w.t, w.append())
	}
	_, err := w.log.Checkpoint(w.t.Context())
	must(w.t, err)
}

func (w *world) append() error {
	return w.log.Append(w.t.Context(), []record.Entry{{
		ID: uuid.NewString(), Kind: format.KindReceipt, Caller: "key:gateway", Details: []byte("{}"),
	}})
}

func (w *world) round() witness.Status {
	w.of.Round(w.t.Context())
	return w.of.Status()
}

func (w *world) size() uint64 {
	w.t.Helper()
	c, err := w.log.Signed()
	must(w.t, err)
	return c.Size
}

// put stops the log, puts another state of its directory in its place, and opens it again.
func (w *world) put(do func()) {
	w.t.Helper()
	must(w.t, w.log.Close())
	do()
	w.of = nil
	w.open()
}

func outcomes(s witness.Status) (all []string) {
	for _, one := range s.Witnesses {
		all = append(all, string(one.Outcome))
	}
	return all
}

// opened are the labels of the witnesses under the checkpoint that the log keeps.
func (w *world) opened() (labels []string, size uint64) {
	w.t.Helper()
	c, err := w.log.Witnessed()
	must(w.t, err)
	policy, err := c2sp.ParsePolicy([]byte("log " + w.key() + "\n" + witnesstest.Policy(w.quota, w.all...)))
	must(w.t, err)
	opened, err := policy.Check(c.Note)
	must(w.t, err)
	for label := range opened.Cosigned {
		labels = append(labels, label)
	}
	slices.Sort(labels)
	return labels, c.Size
}

// TestCosigned follows a log as it grows, over a restart.
func TestCosigned(t *testing.T) {
	w := begin(t, 3, 2)
	before := w.made
	for n := range 4 {
		if s := w.round(); !slices.Equal(outcomes(s), []string{"cosigned", "cosigned", "cosigned"}) || s.Size != w.size() || s.Missing {
			t.Fatalf("got %+v", s)
		}
		if labels, size := w.opened(); !slices.Equal(labels, []string{"w1", "w2", "w3"}) || size != w.size() {
			t.Errorf("got %v, %d", labels, size)
		}
		if n == 2 {
			w.restart()
		}
		asked := w.all[0].Asked()
		w.add(1 << n)
		before++
		if w.round(); w.all[0].Asked() != asked+1 {
			t.Errorf("asked %d times for one checkpoint", w.all[0].Asked()-asked)
		}
	}
	if w.made != before {
		t.Errorf("witnessing made %d checkpoints", w.made-before)
	}
	if text := w.text.String(); strings.Count(text, "the witness cosigns") != 6 || strings.Contains(text, "WARN") {
		t.Errorf("a change is logged once, and here were 3 and, after a restart, 3:\n%s", text)
	}
}

// TestLiars has one witness of three lie in each way. The quorum of the two others goes on.
func TestLiars(t *testing.T) {
	says := func(status int, text string) func(*world) http.HandlerFunc {
		return func(*world) http.HandlerFunc {
			return func(rw http.ResponseWriter, _ *http.Request) {
				rw.WriteHeader(status)
				_, _ = io.WriteString(rw, text)
			}
		}
	}
	cosigns := func(text func(signed string) string) func(*world) http.HandlerFunc {
		return func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				_, signed, _ := strings.Cut(string(body), "\n\n")
				_, _ = io.WriteString(rw, text(signed)+w.all[0].Cosign(signed[:strings.Index(signed, "\n\n")+1]+text(signed)))
			}
		}
	}
	for name, c := range map[string]struct {
		lie     func(*world) http.HandlerFunc
		outcome witness.Outcome
		asked   int // in one round
	}{
		"hangs": {func(*world) http.HandlerFunc {
			return func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the client goes
				<-r.Context().Done()
			}
		}, witness.Unreachable, 1},
		"hangs in the body": {func(*world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(rw, "—")
				_ = http.NewResponseController(rw).Flush()
				<-r.Context().Done()
			}
		}, witness.Unreachable, 1},
		"400":                    {says(400, ""), witness.Refused, 1},
		"403":                    {says(403, ""), witness.UnknownKey, 1},
		"404":                    {says(404, ""), witness.UnknownLog, 1},
		"409 larger":             {says(409, "1000000\n"), witness.Suspected, 1},
		"409 of all numbers":     {says(409, "9223372036854775807\n"), witness.Suspected, 1},
		"409 beyond all numbers": {says(409, "9223372036854775808\n"), witness.Refused, 1},
		"409 negative":           {says(409, "-1\n"), witness.Refused, 1},
		"409 in another way":     {says(409, "01\n"), witness.Refused, 1},
		"409 smaller for ever":   {says(409, "2\n"), witness.OtherSize, 3},
		"409 without a word":     {says(409, ""), witness.Refused, 1},
		"409 endless":            {says(409, strings.Repeat("1", 1<<20)), witness.Refused, 1},
		"422":                    {says(422, ""), witness.Suspected, 1},
		"503":                    {says(503, ""), witness.Refused, 1},
		"200 with garbage":       {says(200, "garbage"), witness.BadLine, 1},
		"200 with nothing":       {says(200, ""), witness.BadLine, 1},
		"200 huge":               {says(200, strings.Repeat("— w1 AAAA\n", 1<<17)), witness.BadLine, 1},
		"of another text":        {cosigns(func(string) string { return "more\n" }), witness.BadLine, 1},
		"the text goes on in it": {cosigns(func(string) string { return "\n" }), witness.BadLine, 1},
		"redirect to itself":     {says(307, ""), witness.Refused, 1},
		"signature by another's key": {func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				_, signed, _ := strings.Cut(string(body), "\n\n")
				_, _ = io.WriteString(rw, w.all[1].Cosign(signed[:strings.Index(signed, "\n\n")+1]))
			}
		}, witness.BadLine, 1},
		"one bit is wrong": {func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				_, signed, _ := strings.Cut(string(body), "\n\n")
				line := []byte(w.all[0].Cosign(signed[:strings.Index(signed, "\n\n")+1]))
				line[len(line)-10] ^= 1
				_, _ = rw.Write(line)
			}
		}, witness.BadLine, 1},
		"by a clock of tomorrow": {func(w *world) http.HandlerFunc {
			w.all[0].At(func() time.Time { return w.now().Add(24 * time.Hour) })
			return nil
		}, witness.BadLine, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := func(every time.Duration) (*world, witness.Status) {
				w := begin(t, 3, 2)
				w.of.Every = every
				w.all[0].Lie(c.lie(w))
				return w, w.round()
			}
			want := []string{string(c.outcome), "cosigned", "cosigned"}
			most := 10 * time.Second
			if strings.HasPrefix(name, "hangs") {
				most = time.Second // by which the round ends
			}
			w, s := first(most)
			for most < 10*time.Second && (w.all[0].Asked() == 0 || !slices.Equal(outcomes(s)[1:], want[1:])) {
				most *= 2 // until all others have the time that they need
				w, s = first(most)
			}
			if !slices.Equal(outcomes(s), want) || s.Size != w.size() || s.Missing || s.Conflict || w.all[0].Asked() != c.asked {
				t.Fatalf("got %+v, asked %d times\n%s", s, w.all[0].Asked(), &w.text)
			}
			if labels, _ := w.opened(); !slices.Equal(labels, []string{"w2", "w3"}) {
				t.Errorf("kept with %v", labels)
			}
			if s.Witnesses[0].Detail == "" || w.count["w1 "+string(c.outcome)] != 1 {
				t.Errorf("got %+v and counted %v", s.Witnesses[0], w.count)
			}
			w.round()
			if n := strings.Count(w.text.String(), "witness=w1"); n != 1 {
				t.Errorf("the same is logged %d times\n%s", n, &w.text)
			}
			w.of.Every = 10 * time.Second
			w.all[0].Lie(nil)
			w.all[0].At(w.now)
			w.pass(5 * time.Minute) // for which a suspect is left out
			if s := w.round(); s.Witnesses[0].Outcome != witness.Cosigned || s.Suspects() != 0 {
				t.Errorf("after the lie got %+v", s)
			}
		})
	}
}

// TestRedirect has a witness send the client to another one, where nothing must arrive.
func TestRedirect(t *testing.T) {
	w := begin(t, 2, 1)
	before := w.all[1].Asked()
	w.all[0].Lie(func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, w.all[1].URL+"/add-checkpoint", http.StatusTemporaryRedirect)
	})
	if s := w.round(); s.Witnesses[0].Outcome != witness.Refused || w.all[1].Asked() != before+1 {
		t.Errorf("got %+v, and the other was asked %d times", s, w.all[1].Asked())
	}
}

// TestSuspect has a suspect be left out, over a restart, and named in the file, until it cosigns again.
func TestSuspect(t *testing.T) {
	w := begin(t, 2, 1)
	w.round()
	w.all[0].Lie(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(422) })
	s := w.round()
	all, err := witness.Suspects(w.data)
	must(t, err)
	if s.Suspects() != 1 || len(all) != 1 || all[0].Witness != "w1" || all[0].Status != 422 || all[0].Ours != w.size() {
		t.Fatalf("got %+v and %+v", s, all)
	}
	asked := w.all[0].Asked()
	for range 10 {
		w.pass(10 * time.Second)
		w.round()
	}
	if w.all[0].Asked() != asked {
		t.Errorf("a suspect is asked in each round")
	}
	w.all[0].Lie(nil)
	w.restart()
	if s := w.of.Status(); s.Witnesses[0].Outcome != witness.Suspected {
		t.Errorf("after a restart got %+v", s)
	}
	if s := w.round(); s.Suspects() != 0 {
		t.Errorf("a start asks again, and got %+v", s)
	}
	if all, err := witness.Suspects(w.data); err != nil || len(all) != 0 {
		t.Errorf("got %v, %v", all, err)
	}
}

// TestFork puts back the directory of before, and writes on. Each witness refuses that, and one shows the other log.
func TestFork(t *testing.T) {
	for name, watched := range map[string]bool{"no monitoring": false, "monitoring": true} {
		for size, more := range map[string]int{"fewer records": 1, "as many": 4, "more": 9} {
			t.Run(name+", "+size, func(t *testing.T) {
				w := begin(t, 2, 2)
				if watched {
					w.watch = map[string]string{"w2": w.all[1].URL}
				}
				w.restart()
				w.round()
				before := t.TempDir()
				w.put(func() { must(t, copyDir(w.data, filepath.Join(before, "data"))) })
				w.restart()
				w.add(5)
				w.round()
				w.put(func() {
					must(t, os.RemoveAll(w.data))
					must(t, copyDir(filepath.Join(before, "data"), w.data))
				})
				w.add(more)
				w.restart()
				s := w.round()
				if !slices.Equal(outcomes(s), []string{"suspect", "suspect"}) || s.Conflict != watched {
					t.Fatalf("got %+v\n%s", s, &w.text)
				}
				evidence, err := os.ReadFile(filepath.Join(w.data, format.ConflictFile))
				if !watched {
					if !os.IsNotExist(err) {
						t.Error(err)
					}
					return
				}
				must(t, err)
				c, err := w.log.ParseOwnCheckpoint(evidence)
				if err != nil || w.log.CheckContinues(c) == nil || !strings.Contains(w.text.String(), "this log forked") {
					t.Errorf("the evidence: %v\n%s", err, evidence)
				}
				asked := w.all[0].Asked() + w.all[1].Asked()
				w.pass(time.Hour)
				w.round()
				w.restart()
				if s := w.round(); !s.Conflict || asked != w.all[0].Asked()+w.all[1].Asked() {
					t.Errorf("something is submitted after a conflict: %+v", s)
				}
			})
		}
	}
}

// TestForkBesideIt puts segments of before back, lets them grow, and then puts back the file of the cosigned checkpoint: such a log
// does not open.
func TestForkBesideIt(t *testing.T) {
	w := begin(t, 1, 1)
	before := t.TempDir()
	w.put(func() { must(t, copyDir(w.data, filepath.Join(before, "data"))) })
	w.restart()
	w.add(5)
	w.round()
	name := filepath.Join(w.data, format.WitnessedFile)
	kept, err := os.ReadFile(name)
	must(t, err)
	w.put(func() {
		must(t, os.RemoveAll(w.data))
		must(t, copyDir(filepath.Join(before, "data"), w.data))
	})
	w.add(9)
	w.put(func() {
		must(t, os.WriteFile(name, kept, 0o600))
		if _, err := decisionlog.Open(w.data, decisionlog.Options{}); !errors.Is(err, segment.ErrCut) {
			t.Errorf("opening a log of other records: %v", err)
		}
		must(t, os.Remove(name))
	})
}

// TestNoConflict has the monitoring address of a suspect show texts that prove nothing.
func TestNoConflict(t *testing.T) {
	w := begin(t, 2, 1)
	other := begin(t, 1, 1)
	w.watch = map[string]string{"w1": w.all[0].URL}
	w.restart()
	w.round()
	ours, err := w.log.Signed()
	must(t, err)
	theirs, err := other.log.Signed()
	must(t, err)
	w.add(1)
	for what, shown := range map[string]string{
		"an old checkpoint of the log": string(ours.Note),
		"one of another log":           string(theirs.Note),
		"one that nobody signed":       strings.Replace(string(ours.Note), fmt.Sprintf("\n%d\n", ours.Size), "\n1000\n", 1),
		"garbage":                      "garbage",
		"too much":                     strings.Repeat("garbage\n", 1<<20),
	} {
		w.all[0].Show(ours.Origin, shown)
		w.all[0].Lie(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(422) })
		w.pass(5 * time.Minute)
		if s := w.round(); s.Conflict || s.Witnesses[0].Outcome != witness.Suspected || s.Witnesses[1].Outcome != witness.Cosigned ||
			!strings.Contains(s.Witnesses[0].Detail, "monitoring") {
			t.Errorf("%s: got %+v", what, s)
		}
	}
}

// TestPatience has all witnesses hang. Nothing waits for them, until the quorum is missing for too long.
func TestPatience(t *testing.T) {
	w := begin(t, 2, 2)
	w.round()
	hang := make(chan struct{})
	asked := make(chan struct{}, 2)
	for _, one := range w.all {
		one.Lie(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			asked <- struct{}{}
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.of.Round(ctx) }()
	<-asked
	<-asked
	must(t, w.append()) // while both hang
	w.pass(5*time.Minute + time.Second)
	if err := w.append(); err == nil || !strings.Contains(err.Error(), "quorum") {
		t.Errorf("got %v", err)
	}
	must(t, w.log.Append(t.Context(), []record.Entry{{ID: uuid.NewString(), Kind: format.KindAdmin, Event: "vote", Details: []byte("{}")}}))
	stop()
	<-done
	close(hang)
	if s := w.of.Status(); !s.Missing || !slices.Equal(outcomes(s), []string{"cosigned", "cosigned"}) {
		t.Errorf("a round that was stopped says nothing about witnesses: %+v", s)
	}
	for _, one := range w.all {
		one.Lie(nil)
	}
	if s := w.round(); s.Missing {
		t.Errorf("got %+v", s)
	}
	must(t, w.append())
	for _, want := range []string{"no quorum of witnesses cosigns", "a quorum of witnesses cosigns again"} {
		if strings.Count(w.text.String(), want) != 1 {
			t.Errorf("%q is not logged once:\n%s", want, &w.text)
		}
	}
}

// TestRotation has witnesses learn of a new key late.
func TestRotation(t *testing.T) {
	w := begin(t, 1, 1)
	w.round()
	_, err := w.log.RotateKey(t.Context(), "")
	must(t, err)
	if s := w.round(); s.Witnesses[0].Outcome != witness.Cosigned {
		t.Errorf("the checkpoint of a rotation bears the old signature, too: %+v", s)
	}
	w.add(1)
	if s := w.round(); s.Witnesses[0].Outcome != witness.UnknownKey {
		t.Errorf("got %+v", s)
	}
	w.all[0].Add(t, w.key())
	if s := w.round(); s.Witnesses[0].Outcome != witness.Cosigned || s.Size != w.size() {
		t.Errorf("got %+v", s)
	}
}

// TestAhead has a checkpoint be submitted by somebody else, newer than that of the round that is under way.
func TestAhead(t *testing.T) {
	w := begin(t, 1, 1)
	w.round()
	newer := func() error {
		if err := w.append(); err != nil {
			return err
		}
		_, err := w.log.Checkpoint(t.Context())
		return err
	}
	w.all[0].Lie(func(rw http.ResponseWriter, _ *http.Request) {
		if err := newer(); err != nil {
			t.Error(err)
		}
		c, _ := w.log.Signed()
		rw.WriteHeader(http.StatusConflict)
		_, _ = fmt.Fprintln(rw, c.Size)
	})
	if s := w.round(); s.Witnesses[0].Outcome != witness.OtherSize {
		t.Errorf("a size that the log has by now makes no suspect: %+v", s)
	}
	w.all[0].Lie(nil)
	if s := w.round(); s.Witnesses[0].Outcome != witness.Cosigned {
		t.Errorf("got %+v", s)
	}
}

// TestRun has a round begin at once, and the end wait for it.
func TestRun(t *testing.T) {
	w := begin(t, 1, 1)
	asked := make(chan struct{}, 1)
	w.all[0].Lie(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		<-r.Context().Done()
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.of.Run(ctx) }()
	<-asked
	stop()
	<-done
}

// TestReach asks and changes nothing.
func TestReach(t *testing.T) {
	w := begin(t, 3, 1)
	w.all[1].Lie(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(403) })
	stranger := witnesstest.New(t, "w3")
	w.all[2] = stranger
	w.restart()
	w.round()
	size := w.all[0].Size(strings.Split(w.key(), "+")[0])
	policy, err := c2sp.ParsePolicy([]byte(witnesstest.Policy(1, w.all...)))
	must(t, err)
	kept, err := w.log.Witnessed()
	must(t, err)
	var got []string
	for _, one := range witness.Reach(t.Context(), policy, kept.Note) {
		got = append(got, string(one.Outcome))
	}
	if !slices.Equal(got, []string{"cosigned", "unknown_key", "unknown_log"}) || size != w.all[0].Size(strings.Split(w.key(), "+")[0]) {
		t.Errorf("got %v", got)
	}
}

// copyDir copies a data directory, whose files are their owner's alone.
func copyDir(from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rest, _ := filepath.Rel(from, name)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rest), 0o700)
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rest), content, 0o600)
	})
}

// Suspects that cannot be read keep no service from starting, and no witness from being asked.
func TestSuspectsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"garbage", "", `[{"witness":1}]`, strings.Repeat("[", 1<<20)} {
		w := begin(t, 1, 1)
		must(t, os.WriteFile(filepath.Join(w.data, format.SuspectsFile), []byte(content), 0o600))
		w.restart()
		if !strings.Contains(w.text.String(), "the suspected witnesses cannot be read") {
			t.Errorf("%.20q: got %s", content, w.text.String())
		}
		if state := w.round(); state.Witnesses[0].Outcome != witness.Cosigned {
			t.Errorf("%.20q: got %+v", content, state)
		}
	}
}

// Anybody who can write to the directory can put a file there. Without the signature of the log it is no evidence, and
// without the lines of a quorum it is no checkpoint to be shown.
func TestFilesOfAnybody(t *testing.T) {
	t.Parallel()
	w, other := begin(t, 2, 2), begin(t, 1, 1)
	ours, err := w.log.Signed()
	must(t, err)
	theirs, err := other.log.Signed()
	must(t, err)
	file := filepath.Join(w.data, format.ConflictFile)
	for _, content := range []string{"garbage", "", strings.Repeat("a\n", 1<<20), string(theirs.Note), string(ours.Note)} {
		must(t, os.WriteFile(file, []byte(content), 0o600))
		w.text.Reset()
		w.restart()
		if s := w.round(); s.Conflict || !slices.Equal(outcomes(s), []string{"cosigned", "cosigned"}) || !strings.Contains(w.text.String(), "log/conflict") {
			t.Errorf("%.20q: got %+v\n%s", content, s, &w.text)
		}
	}
	must(t, os.Remove(file))
	must(t, w.log.KeepWitnessed(ours.Note))
	w.restart()
	if c, err := w.of.Checkpoint(); err == nil || w.of.Status().Size != 0 {
		t.Errorf("it shows %s", c.Note)
	}
	if s := w.round(); s.Size != ours.Size {
		t.Errorf("got %+v", s)
	}
}
