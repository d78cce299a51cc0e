package audit

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/evidence"
)

// Who has the key of the masks opens what a record seals, and checks the holder's signature; who has another key, or none,
// does not. A record whose arguments no mask hides seals nothing.
func TestShowOpensEvidence(t *testing.T) {
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	holder, err := capability.NewHolder(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)))
	ok(err)
	secret, data := bytes.Repeat([]byte{1}, mask.KeySize), t.TempDir()
	ok(os.WriteFile(filepath.Join(data, mask.KeyFile), secret, 0o600))
	other := filepath.Join(t.TempDir(), "other.key")
	ok(os.WriteFile(other, bytes.Repeat([]byte{2}, mask.KeySize), 0o600))
	masks, err := mask.New(secret, []string{"/context/arguments/pin"})
	ok(err)
	log, err := decisionlog.Open(data, decisionlog.Options{})
	ok(err)
	r := recorder.Recorder{
		Log: log, Mask: func(context.Context) *mask.Masker { return masks }, Waits: func(context.Context) {},
		GoOn: func(context.Context) error { return nil },
	}
	proofs := map[string]string{}
	for id, name := range map[string]string{"hidden": "pin", "open": "amount"} {
		arguments, err := evaluation.NewObject(map[string]any{name: "4831"})
		ok(err)
		text, err := holder.Prove(capability.Claim{Capability: "cap_1", Audience: "b", Tool: "b:pay", Arguments: arguments, IssuedAt: time.Unix(1_800_000_000, 0), Nonce: "n"})
		ok(err)
		p, refusal := capability.ParseProof(text, holder.Key())
		if proofs[id] = text; refusal != nil {
			t.Fatal(refusal)
		}
		one := pdp.Record{ID: id, Time: time.Unix(1_800_000_000, 0), Decision: evaluation.Decision{ID: id, Allow: true}}
		one.Call.Request = evaluation.Request{
			Tenant: "default", Subject: evaluation.Entity{Type: "agent", ID: "a"}, Action: evaluation.Action{Name: "tool.invoke"},
			Resource: evaluation.Entity{Type: "tool", ID: "b:pay"}, Context: evaluation.Object{}.With("arguments", arguments.Value()),
		}
		one.Capability = &pdp.ShownCapability{Capability: evaluation.Capability{Held: true, ID: "cap_1"}, Proof: &pdp.SpentProof{
			Key: holder.Key().Thumbprint(), ID: p.ID, IssuedAt: p.IssuedAt.Unix(), Audience: p.Audience, Tool: p.Tool, Nonce: p.Nonce,
			Algorithm: p.Algorithm, Arguments: evidence.Of(p.Arguments), Signature: evidence.Of(p.Signature),
		}}
		ok(r.Record(t.Context(), []pdp.Record{one}))
	}
	ok(log.Close())

	show := func(c showCommand) (out string, err error) {
		var b, told bytes.Buffer
		c.Data = data
		err = c.Run(cli.Streams{Out: &b, Err: &told})
		return b.String(), err
	}
	out, err := show(showCommand{ID: "hidden", Evidence: true})
	if ok(err); !strings.HasSuffix(strings.TrimSpace(out), "\n"+proofs["hidden"]) {
		t.Errorf("got\n%s\nwant it to end with %s", out, proofs["hidden"])
	}
	out, err = show(showCommand{ID: "hidden", Evidence: true, JSON: true})
	ok(err)
	var shown struct {
		Evidence struct {
			Args  string `json:"args"`
			Proof string `json:"proof"`
		} `json:"evidence"`
	}
	ok(json.Unmarshal([]byte(out), &shown))
	if p, refusal := capability.ParseProof(shown.Evidence.Proof, holder.Key()); refusal != nil || p.Arguments != shown.Evidence.Args {
		t.Errorf("the holder's key does not verify %+v: %v", shown, refusal)
	}
	hidden, _ := capability.ParseProof(proofs["hidden"], holder.Key())
	if out, err = show(showCommand{ID: "hidden"}); err != nil || strings.Contains(out, hidden.Arguments) || strings.Contains(out, hidden.Signature) {
		t.Errorf("without the flag: %v\n%s", err, out)
	}
	open, _ := capability.ParseProof(proofs["open"], holder.Key())
	if out, err = show(showCommand{ID: "open"}); err != nil || !strings.Contains(out, open.Arguments) || !strings.Contains(out, open.Signature) || strings.Contains(out, `"evidence"`) {
		t.Errorf("nothing of its arguments is masked: %v\n%s", err, out)
	}
	for name, c := range map[string]struct {
		command showCommand
		want    string
	}{
		"another key": {showCommand{ID: "hidden", Evidence: true, MaskKey: cli.Given(other)}, "sealed with another key"},
		"no key":      {showCommand{ID: "hidden", Evidence: true, MaskKey: cli.Given(filepath.Join(data, "none"))}, "give the mask.key"},
		"nothing":     {showCommand{ID: "open", Evidence: true}, "seals no evidence"},
	} {
		if out, err := show(c.command); err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	for name, c := range map[string]showCommand{
		"no key of a server": {logFlags: logFlags{Server: "https://pdp.example"}, ID: "x", Evidence: true},
		"a key for nothing":  {logFlags: logFlags{Data: data}, ID: "x", MaskKey: "k"},
	} {
		if err := c.Validate(); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}
