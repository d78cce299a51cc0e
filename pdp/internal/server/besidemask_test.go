package server_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/evidence"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/audit"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest/written"
)

// masking is one way in which a pin can stand in arguments: those of a call, and the constraints of a capability for it.
type masking struct{ arguments, constraints string }

var maskings = []masking{
	{`{"amount":5,"pin":"%s"}`, `{"amount":5,"pin":"%s"}`},
	{`{"pin":%s}`, `{"pin":%s}`},
	{`{"pin":"%s"}`, `{"pin":{"constraint_type":"one_of","values":["%s","no pin"]}}`},
	{`{"card":{"name":"visa","pin":"%s"}}`, `{"card":{"name":"visa","pin":"%s"}}`},
	{`{"card":{"pin":"%s"}}`, `{"card":{"constraint_type":"one_of","values":[{"pin":"none"},{"pin":"%s"}]}}`},
	{`{"blob":"{\"pin\":\"%s\"}"}`, `{"blob":"{\"pin\":\"%s\"}"}`},
	{`{"blob":"{\"pin\":\"%s\"}"}`, `{"blob":{"constraint_type":"prefix","value":"{\"pin\":\"%s\""}}`},
}

// guesser has all that readers get, by where they get it, and knows of each call and request all but the pin.
type guesser struct {
	t      *testing.T
	places map[string]string
	tokens map[string]string // where each text stands that is as long as a digest, or as the pin
	asks   []func(pin string) (string, error)
	claims []string // of tokens; the pin stands in them
	key    capability.Key
	proofs []func(pin string) capability.Proof
}

const pin = "4831"

var (
	word    = regexp.MustCompile(`[A-Za-z0-9_+/=-]{16,}`)
	aJWS    = regexp.MustCompile(`^[A-Za-z0-9_-]+\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+$`)
	openPIN = regexp.MustCompile(`(?:^|[^A-Za-z0-9_+/.:-])` + pin + `(?:$|[^A-Za-z0-9_+/.:-])`)
)

// read takes the texts of a place, also those that are inside of a JWS or of base64url.
func (g *guesser) read(name, text string) {
	for _, found := range append(word.FindAllString(text, -1), regexp.MustCompile(`[\w.-]+`).FindAllString(text, -1)...) {
		if m := aJWS.FindStringSubmatch(found); m != nil && g.tokens[found] == "" {
			if payload, err := base64.RawURLEncoding.DecodeString(m[1]); err == nil {
				g.read(name+", in a JWS", string(payload))
			}
		}
		if trimmed := strings.TrimRight(found, "="); g.tokens[trimmed] == "" {
			g.tokens[trimmed] = name
		}
	}
}

// guess tries 10,000 pins, and returns the ways in which one is found. It holds those that begin with signed against
// signatures, which takes long where there are many.
func (g *guesser) guess(signed string) (found []string) {
	for name, text := range g.places {
		g.read(name, text)
	}
	var signatures []string
	for token := range g.tokens {
		if b, err := base64.RawURLEncoding.DecodeString(token); err == nil && len(b) == 64 {
			signatures = append(signatures, token)
		}
	}
	tell := func(way, where string) {
		if one := way + " in " + where; !slices.Contains(found, one) {
			found = append(found, one)
		}
	}
	for name, text := range g.places {
		if openPIN.MatchString(text) {
			tell("the pin itself", name)
		}
	}
	try := func(way, text string) {
		sum := sha256.Sum256([]byte(text))
		for _, form := range []string{
			hex.EncodeToString(sum[:]), base64.RawURLEncoding.EncodeToString(sum[:]), base64.RawStdEncoding.EncodeToString(sum[:]),
			hex.EncodeToString(sum[:16]), base64.RawURLEncoding.EncodeToString(sum[:16]), "h1" + base64.RawStdEncoding.EncodeToString(sum[:]),
		} {
			if where := g.tokens[form]; where != "" {
				tell(way, where)
			}
		}
	}
	digest := func(way, text string) {
		if where := g.tokens[text]; where != "" {
			tell(way, where)
		}
	}
	for n := range 10_000 {
		one := fmt.Sprintf("%04d", n)
		try("a hash of the pin", one)
		try("a hash of the pin", `"`+one+`"`)
		for _, m := range maskings {
			for _, text := range []string{fmt.Sprintf(m.arguments, one), fmt.Sprintf(m.constraints, one)} {
				try("a hash of arguments", text)
				o, err := evaluation.ParseWithNulls([]byte(text), evaluation.DefaultLimits())
				if err != nil { // a number that begins with a zero
					continue
				}
				try("a hash of arguments", `{"arguments":`+text+`}`)
				if hash, refusal := capability.HashArguments(o); refusal == nil {
					digest("the hash of arguments that a proof has", hash)
				}
			}
		}
		for _, ask := range g.asks {
			if hash, err := ask(one); err == nil {
				digest("the digest of a request", hash)
				digest("the digest of a request", hash+" unproved")
			}
		}
		for _, claims := range g.claims {
			try("the digest of claims", strings.ReplaceAll(claims, pin, one))
		}
		if !strings.HasPrefix(one, signed) {
			continue
		}
		for _, proof := range g.proofs {
			for _, signature := range signatures {
				p := proof(one)
				if p.Signature = signature; p.VerifiedBy(g.key) {
					tell("a signature of the holder", g.tokens[signature])
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

// TestNothingBesideAMaskTellsItsValue: who reads the log, its exports and tiles, the console, webhooks and approvals finds
// no pin of four digits that a mask hides. Without a mask the same program finds it in each of the ways that it knows.
func TestNothingBesideAMaskTellsItsValue(t *testing.T) {
	t.Parallel()
	for name, masks := range map[string][]string{"masked": {"/context/arguments/pin", "/context/arguments/*/pin"}, "open": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, g := guessing(t, masks)
			signed := ""
			if masks == nil {
				signed = pin[:3]
			}
			found := g.guess(signed)
			if masks != nil {
				if len(found) > 0 {
					t.Errorf("the pin is found:\n%s", strings.Join(found, "\n"))
				}
				w.opensEvidence(t)
				return
			}
			all := strings.Join(found, "\n")
			has(t, all, "the pin itself in webhook", "the pin itself in export", "the hash of arguments that a proof has in ",
				"the digest of a request in ", "a signature of the holder in ")
		})
	}
}

// guessing has agents ask for capabilities, and use them, with the pin in the arguments, and collects all that others read.
func guessing(t *testing.T, masks []string) (*wallet, *guesser) {
	g := &guesser{t: t, places: map[string]string{}, tokens: map[string]string{}}
	secret, heard := []byte(strings.Repeat("s", 32)), written.Text{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintln(&heard, r.Header, string(body))
	}))
	t.Cleanup(receiver.Close)
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, secret, 0o600))
	var logged, stdout written.Text
	w := openWallet(t, ownConsole(), logTo(&logged), withStdout(0, &stdout), func(config *server.Config) {
		config.DecisionLog.Mask, config.DecisionLog.Tiles = masks, audit.PublicTiles
		config.Approvals.Webhooks = []webhook.Config{{URL: receiver.URL, SecretFile: file, Allow: []string{"127.0.0.1"}}}
	})
	w.Advance(time.Minute)
	w.welcome("supervisor", `user::"noah"`, auth.LogRead, auth.Explain, auth.Approve, auth.CapabilityAdmin)
	g.key = w.holder.Key()
	mia := w.consoleIn("mia")
	get := func(who, path string) string {
		status, text := w.do(who, "GET", path, "")
		if status != http.StatusOK {
			t.Errorf("%s gets %s: %d %s", who, path, status, text)
		}
		g.places[who+" "+path] = text
		return text
	}
	var approvals []string
	approves := func(id string) {
		approvals = append(approvals, id)
		for _, which := range []string{"", "/elicitation?form=approve", "/elicitation?form=review", "/authorization-notification"} {
			get("mia", "/v1/approvals/"+id+which)
		}
		g.places["console "+id] = html.UnescapeString(consoleGet(t, mia, w.ConsoleURL()+"/approvals/"+id).body)
		g.places["inbox "+id] = html.UnescapeString(consoleGet(t, mia, w.ConsoleURL()+"/approvals").body)
		w.says("mia", id, "decision", `{"decision":"approve","reason":"fine"}`, http.StatusOK)
	}
	for n, m := range maskings {
		ask := func(pin string) func(*capability.Ask) {
			return func(a *capability.Ask) {
				a.Arguments = capability.Arguments{}
				for name, v := range objectOf(t, fmt.Sprintf(m.constraints, pin)).All {
					c, err := capability.ParseConstraint(v)
					must(t, err)
					a.Arguments[name] = c
				}
			}
		}
		known := w.asking(ask(pin), "danger")
		g.asks = append(g.asks, func(pin string) (string, error) {
			a := known
			o, err := evaluation.ParseWithNulls(fmt.Appendf(nil, m.constraints, pin), evaluation.DefaultLimits())
			a.Arguments = capability.Arguments{}
			for name, v := range o.All {
				a.Arguments[name], _ = capability.ParseConstraint(v)
			}
			return a.Digest(), err
		})
		waits := w.asksFor(http.StatusAccepted, ask(pin), "danger")
		approves(waits.Approval.ID)
		danger := w.asksFor(http.StatusCreated, func(a *capability.Ask) { ask(pin)(a); a.ApprovalID = waits.Approval.ID }, "danger")
		both := w.asksFor(http.StatusCreated, ask(pin), "both")
		for _, one := range []granted{danger, both} {
			payload, err := base64.RawURLEncoding.DecodeString(strings.Split(one.Token, ".")[1])
			must(t, err)
			g.claims = append(g.claims, string(payload))
			get("wallet", "/v1/capabilities/"+one.ID)
		}
		prove := func(s shot) shot {
			s.arguments = fmt.Sprintf(m.arguments, pin)
			if s.claim.Arguments = objectOf(t, s.arguments); n == 1 { // an unproved shot makes its proof of this
				s.more = `,"note":"a number"`
			}
			g.proofs = append(g.proofs, func(pin string) capability.Proof {
				o, err := evaluation.ParseWithNulls(fmt.Appendf(nil, m.arguments, pin), evaluation.DefaultLimits())
				if err != nil {
					return capability.Proof{}
				}
				hash, _ := capability.HashArguments(o)
				return capability.Proof{Capability: s.claim.Capability, Audience: s.claim.Audience, Tool: s.claim.Tool, Arguments: hash,
					IssuedAt: s.claim.IssuedAt, ID: s.claim.ID, Algorithm: g.key.Algorithm()}
			})
			return s.proved(t)
		}
		w.is("allow", prove(w.call(danger, "b:danger")))
		w.is("tool_not_covered", prove(w.call(danger, "b:other")))
		asks := prove(w.call(both, "b:both"))
		waiting := w.is("wait", asks)
		approves(waiting.Approval.ID)
		asks.more = fmt.Sprintf(`%s,"approval_id":%q`, asks.more, waiting.Approval.ID)
		if got, a := w.shoot(asks); got != "allow" {
			t.Errorf("after the approval: %s, %+v", got, a)
		}
	}
	noah := w.consoleIn("supervisor")
	page := func(path string) {
		got := consoleGet(t, noah, w.ConsoleURL()+path)
		if got.status != http.StatusOK {
			t.Errorf("the page %s: %d", path, got.status)
		}
		g.places["console "+path] = html.UnescapeString(got.body)
	}
	_, export := w.do("auditor", "GET", "/v1/log/export", "")
	g.places["export"] = export
	for _, form := range []string{"format=csv", "proofs=true"} {
		get("auditor", "/v1/log/export?"+form)
	}
	for line := range strings.SplitSeq(export, "\n") {
		if r, err := record.Parse([]byte(line)); err == nil && r.Kind == format.KindDecision {
			for _, of := range []string{"", "/proof", "/explain"} {
				get("supervisor", "/v1/decisions/"+r.ID+of)
			}
			page("/decisions/" + r.ID)
		}
	}
	get("auditor", "/v1/decisions")
	page("/decisions")
	page("/capabilities")
	get("auditor", "/v1/log/checkpoint")
	note := strings.Split(g.places["auditor /v1/log/checkpoint"], "\n")[1]
	tile := consoleGet(t, ownClient(), w.URL+"/v1/log/tile/0/000.p/"+note)
	if tile.status != http.StatusOK || len(tile.body) == 0 {
		t.Errorf("the tile: %d", tile.status)
	}
	for hash := range slices.Chunk([]byte(tile.body), sha256.Size) { // as a reader would write them down
		g.places["tile"] += hex.EncodeToString(hash) + " " + base64.RawURLEncoding.EncodeToString(hash) + "\n"
	}
	get("warden", "/v1/capabilities?holder=agent:bot")
	get("supervisor", "/metrics")
	g.places["log of the server"], g.places["standard output"] = logged.String(), stdout.String()
	eventually(t, "the webhooks are sent", func() bool {
		return !slices.ContainsFunc(approvals, func(id string) bool { return !strings.Contains(heard.String(), id) })
	})
	g.places["webhook"] = heard.String()
	return w, g
}

// opensEvidence opens what is sealed, and checks the signatures in it; then it redacts a record, and looks for what was sealed.
func (w *wallet) opensEvidence(t *testing.T) {
	secret, err := os.ReadFile(filepath.Join(w.data, "mask.key"))
	must(t, err)
	key, err := evidence.NewKey(secret, "default")
	must(t, err)
	other, err := evidence.NewKey(secret, "acme")
	must(t, err)
	_, text := w.do("auditor", "GET", "/v1/log/export", "")
	var last *record.Recorded
	opened := 0
	for line := range strings.SplitSeq(text, "\n") {
		r, err := record.Parse([]byte(line))
		if err != nil || r.Capability == nil || r.Capability.Proof == nil {
			continue
		}
		p := r.Capability.Proof
		if p.Signature != "" || !strings.HasPrefix(string(p.Arguments), evidence.Prefix) {
			t.Errorf("%s is not sealed: %s", r.ID, line)
			continue
		}
		texts, err := key.Open(r.ID, string(p.Evidence))
		must(t, err)
		claim := capability.Proof{
			Capability: r.Capability.ID, Audience: p.Audience, Tool: p.Tool, Arguments: texts[0], IssuedAt: time.Unix(p.IssuedAt, 0),
			ID: p.ID, Nonce: p.Nonce, Algorithm: p.Algorithm, Signature: texts[1],
		}
		if !claim.VerifiedBy(w.holder.Key()) || record.Written(key.Hash(evidence.Of(texts[0]))) != p.Arguments {
			t.Errorf("the evidence of %s is not the holder's", r.ID)
		}
		if _, err := other.Open(r.ID, string(p.Evidence)); err == nil {
			t.Error("another tenant's key opens it")
		}
		if _, err := key.Open("another", string(p.Evidence)); err == nil {
			t.Error("it opens for another record")
		}
		last, opened = r, opened+1
	}
	if opened < 2*len(maskings) {
		t.Fatalf("%d records have evidence", opened)
	}
	w.reply("operator", "POST", "/v1/decisions/"+last.ID+"/redaction", `{"reason":"asked"}`).is(t, "redact", http.StatusNoContent)
	must(t, w.Stop(t.Context()))
	for _, file := range everyFile(t, w.data) {
		if bytes.Contains([]byte(file[1]), []byte(last.Capability.Proof.Evidence)) {
			t.Errorf("%s has the evidence of a redacted record still", file[0])
		}
	}
}

// TestSecretOfOneArgumentIsHiddenInAnother: a grant says no secret in the constraint on another argument, neither to policies
// and the log nor to people.
func TestSecretOfOneArgumentIsHiddenInAnother(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	waits := w.asksFor(http.StatusAccepted, func(a *capability.Ask) {
		a.Arguments = capability.Arguments{"password": constraintOf(t, `"hunter2hunter2"`), "note": constraintOf(t, `"use hunter2hunter2"`), "n": constraintOf(t, `7`)}
	}, "danger")
	_, view := w.do("mia", "GET", "/v1/approvals/"+waits.Approval.ID, "")
	_, log := w.do("auditor", "GET", "/v1/log/export", "")
	for place, text := range map[string]string{"the approval request": view, "the log": log} {
		if strings.Contains(text, "hunter2") || !strings.Contains(text, `"exact":{"n":7}`) {
			t.Errorf("%s says %s", place, text)
		}
	}
	has(t, view, "note is bound (exact)", `"digest":"keyed:`)
}
