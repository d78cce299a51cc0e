package doctor_test

import (
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/doctor"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/witnesstest"
)

// TestWitnesses looks beside a running server, and at the directory that it leaves.
func TestWitnesses(t *testing.T) {
	t.Parallel()
	data := lived(t)
	keys, err := segment.VerifierKeys(data)
	must(t, err)
	now := func() time.Time { return pdptest.Now }
	var all []*witnesstest.Witness
	for _, name := range []string{"w1", "w2"} {
		one := witnesstest.New(t, name)
		one.Add(t, keys[0])
		one.At(now)
		all = append(all, one)
	}
	file := filepath.Join(t.TempDir(), "p")
	must(t, os.WriteFile(file, []byte(witnesstest.Policy(1, all...)), 0o600))
	config := &server.WitnessesConfig{PolicyFile: file, Every: time.Second, Patience: 5 * time.Minute}
	look := func() finding.List {
		p := patient(data)
		p.Config.DecisionLog.Witnesses = config
		return doctor.Examine(t.Context(), p)
	}
	mustBite(t, look(), "witnesses", "no quorum has cosigned the log yet")
	s := living(t, data, func(c *server.Config) { c.DecisionLog.Witnesses = config })
	for deadline := time.Now().Add(time.Minute); biting(look(), "witnesses") != ""; {
		if time.Now().After(deadline) {
			t.Fatalf("with a quorum it bites: %s", biting(look(), "witnesses"))
		}
	}
	all[0].Lie(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusForbidden) })
	all[1].Lie(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNotFound) })
	mustBite(t, look(), "witnesses", "w1: it does not know the key in force")
	mustBite(t, look(), "witnesses", "w2: it does not know this log")
	was := later
	p := patient(data)
	p.Config.DecisionLog.Witnesses, p.Config.Program.PDP.Now = config, func() time.Time { return was.Add(time.Hour) }
	mustBite(t, doctor.Examine(t.Context(), p), "witnesses", "the quorum is missing: the last checkpoint that one cosigned is of 2026-01-02T03:04:05Z")
	must(t, s.Stop(t.Context()))
	for _, one := range all {
		one.Lie(nil)
	}
	if bites := biting(look(), "witnesses"); bites != "" {
		t.Errorf("witnesses that know the key in force are bad: %s", bites)
	}
	l, err := decisionlog.Open(data, decisionlog.Options{})
	must(t, err)
	key, err := l.RotateKey(t.Context(), "")
	must(t, err)
	signed, err := l.Signed() // by both keys
	must(t, err)
	must(t, l.KeepWitnessed(signed.Note))
	must(t, l.Close())
	all[1].Add(t, key)
	if bites := biting(look(), "witnesses"); !strings.Contains(bites, "w1: it does not know the key in force") || strings.Contains(bites, "w2") {
		t.Errorf("with a new key that w2 alone knows it bites: %q", bites)
	}

	must(t, os.WriteFile(filepath.Join(data, format.SuspectsFile),
		[]byte(`[{"witness":"w2","size":99,"ours":7,"status":409,"since":"2026-01-02T03:04:05Z"}]`), 0o600))
	mustBite(t, look(), "witnesses", "w2 is left out since 2026-01-02T03:04:05Z: it says (409) that it cosigned 99 records, which are not among our 7")
	must(t, os.WriteFile(filepath.Join(data, format.SuspectsFile), []byte(`[`), 0o600))
	mustBite(t, look(), "witnesses", "the suspected witnesses cannot be read")
	must(t, os.WriteFile(filepath.Join(data, format.ConflictFile), []byte("evidence"), 0o600))
	mustBite(t, look(), "witnesses", "log/conflict is no evidence of a fork")
	cosigned, err := os.ReadFile(filepath.Join(data, format.WitnessedFile))
	must(t, err)
	text, lines, _ := strings.Cut(string(cosigned), "\n\n")
	own, _, _ := strings.Cut(lines, "\n")
	must(t, os.WriteFile(filepath.Join(data, format.WitnessedFile), []byte(text+"\n\n"+own+"\n"), 0o600))
	mustBite(t, look(), "witnesses", "does not count: too few witnesses of the policy cosigned the checkpoint")
	private, err := os.ReadFile(filepath.Join(data, format.KeyFile))
	must(t, err)
	signer, err := note.NewSigner(strings.TrimSpace(string(private)))
	must(t, err)
	other := strings.Split(text, "\n")
	other[2] = base64.StdEncoding.EncodeToString(make([]byte, 32))
	forked, err := note.Sign(&note.Note{Text: strings.Join(other, "\n") + "\n"}, signer)
	must(t, err)
	asked := all[0].Asked()
	must(t, os.WriteFile(filepath.Join(data, format.ConflictFile), forked, 0o600))
	mustBite(t, look(), "witnesses", "the log forked, and nothing is submitted any more: log/conflict is a checkpoint that bears its signature")
	if all[0].Asked() != asked {
		t.Error("after a conflict doctor submits")
	}
	must(t, os.WriteFile(file, []byte(strings.Repeat("#\n", 3)+"quorum none\n"), 0o600))
	mustBite(t, look(), "witnesses", file+": line 4: the quorum is none")
}
