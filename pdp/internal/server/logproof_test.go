package server_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// tenantMaybe asks what is possible, in a batch.
const tenantMaybe = `{"options":{"unknown":["/context"]},"subject":{"type":"user","id":"TENANT-employee"},"resource":{"type":"doc","id":"TENANT-plan"},"evaluations":[{"action":{"name":"read"}},{"action":{"name":"write"}}]}`

// A receipt names the log and the record of an answer. It is given where it is wanted and promises something, and changes
// nothing else.
func TestReceiptOfAnAnswer(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	pep := o.as("initech-pep")
	questions := map[string]string{
		"/tenants/initech" + evaluationPath:                 tenantQuestion,
		"/tenants/initech/access/v1/evaluations":            tenantBatch,
		"/tenants/initech/access/v1/search/subject":         tenantSearch,
		"/tenants/initech/access/v1/search/resource":        `{"subject":{"type":"user","id":"x"},"action":{"name":"read"},"resource":{"type":"doc"}}`,
		"/tenants/initech/access/v1/evaluations?of=unknown": tenantMaybe,
		authorizePath: strings.Replace(nativeQuestion, `"default"`, `"initech"`, 1),
	}
	origin, _, _ := strings.Cut(o.get("/v1/log/keys"), "+")
	for path, body := range questions {
		path, _, _ = strings.Cut(path, "?")
		body = strings.ReplaceAll(body, "TENANT", "initech")
		plain := pep.Do("POST", path, body)
		for _, header := range []string{"", "Want", "want ", "true", "want, want"} {
			if got := pep.Do("POST", path, body, "X-Receipt", header); got.Status != 200 || header != "want " && got.Header.Get("X-Receipt") != "" {
				t.Errorf("%s: X-Receipt %q: got %d %s", path, header, got.Status, got.Header)
			}
		}
		got := pep.Do("POST", path, body, "X-Receipt", "want")
		id := got.Header.Get("X-Decision-Id")
		if receipt := got.Header.Get("X-Receipt"); id == "" || receipt != origin+" "+id {
			t.Errorf("%s: the receipt of %q is %q", path, id, receipt)
		}
		for _, other := range []http.Header{got.Header, plain.Header} {
			for _, name := range []string{"X-Receipt", "X-Decision-Id", "Date"} {
				other.Del(name)
			}
		}
		if plain.Status != 200 || plain.Body != got.Body || fmt.Sprint(plain.Header) != fmt.Sprint(got.Header) {
			t.Errorf("%s: a receipt changes the answer:\n%d %v %s\n%d %v %s", path, plain.Status, plain.Header, plain.Body, got.Status, got.Header, got.Body)
		}
		if got := pep.Do("POST", path, "{", "X-Receipt", "want"); got.Status != 400 || got.Header.Get("X-Receipt") != "" {
			t.Errorf("%s: a question that is none gets %d %s", path, got.Status, got.Header)
		}
	}
}

// What may have no record gets no receipt.
func TestNoReceiptWithoutARecord(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]pdptest.Option{
		"no log": nil,
		"best effort": {withData(t.TempDir()), func(c *server.Config) {
			c.DecisionLog.Mode = decisionlog.BestEffort
		}},
	} {
		s := pdptest.Start(t, bundle(t), options...)
		got := s.Post(evaluationPath, readQuestion, "X-Receipt", "want")
		if got.Status != 200 || got.Header.Get("X-Decision-Id") == "" || got.Header["X-Receipt"] != nil {
			t.Errorf("%s: got %d %s", name, got.Status, got.Header)
		}
	}
}

// recordProofPath is where the proof of a record stands as text.
func recordProofPath(id string) string { return "/v1/log/records/" + url.PathEscape(id) + "/proof" }

// provedRecord is the proof of a record as text, whose path must be that of a leaf.
func (o *office) provedRecord(id string, leaf tlog.Hash) c2sp.Proof {
	o.t.Helper()
	got := o.Get(recordProofPath(id))
	if got.Status != 200 || got.Header.Get("Content-Type") != "text/plain; charset=UTF-8" {
		o.t.Fatalf("%s: got %d %s %s", id, got.Status, got.Header, got.Body)
	}
	p, err := c2sp.ParseProof([]byte(got.Body))
	must(o.t, err)
	c, err := segment.ParseCheckpoint(p.Checkpoint, nil)
	must(o.t, err)
	if err := tlog.CheckRecord(p.Hashes, int64(c.Size), c.Root, p.Index, leaf); err != nil {
		o.t.Fatalf("%s: %v", id, err)
	}
	return p
}

// The proof of a record as text is there for each id of a record and of a question in one, for those who see the record, once a
// checkpoint covers it, and to ask for it makes none.
func TestTheProofOfARecordAsText(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	ids := o.happen("initech")
	maybe := o.ask("initech", "/access/v1/evaluations", tenantMaybe)
	ids = append(ids[:len(ids)-1], maybe, maybe+".0", maybe+".1") // the last one is redacted
	o.get("/v1/log/checkpoint")
	for _, id := range ids {
		rec, err := o.Log().Find(id)
		must(t, err)
		parsed, err := record.Parse(rec.Line)
		must(t, err)
		for _, who := range []string{"auditor", "reader", "initech-auditor"} {
			if p := o.as(who).provedRecord(id, tlog.RecordHash(rec.Line)); string(p.Extra) != parsed.ID || uint64(p.Index) != rec.Sequence {
				t.Errorf("%s: got %+v", id, p)
			}
		}
		for who, want := range map[string]int{"globex-auditor": 404, "initech-pep": 403} {
			if got := o.as(who).Get(recordProofPath(id)); got.Status != want || got.Header.Get("Retry-After") != "" {
				t.Errorf("%s asks for %s: got %d %s", who, id, got.Status, got.Body)
			}
		}
	}
	for _, id := range []string{"nosuch", maybe + ".2", ids[0] + ".0", "%2e%2e"} {
		if got := o.Get("/v1/log/records/" + id + "/proof"); got.Status != 404 || got.Header.Get("Retry-After") != "" {
			t.Errorf("%s: got %d %s", id, got.Status, got.Body)
		}
	}
	fresh := o.ask("initech", evaluationPath, tenantQuestion)
	before, err := o.Log().LastCheckpoint()
	must(t, err)
	for range 3 {
		if got := o.Get(recordProofPath(fresh)); got.Status != 404 || got.Header.Get("Retry-After") != "1" {
			t.Fatalf("got %d %s %s", got.Status, got.Header, got.Body)
		}
	}
	after, err := o.Log().LastCheckpoint()
	must(t, err)
	if string(before.Note) != string(after.Note) {
		t.Error("a checkpoint was made")
	}
	o.get("/v1/log/checkpoint")
	record, err := o.Log().Find(fresh)
	must(t, err)
	o.provedRecord(fresh, tlog.RecordHash(record.Line))
}

// The hash of a record stays when its content goes, and so does its proof.
func TestTheProofOfARedactedRecord(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	id := o.ask("initech", evaluationPath, tenantQuestion)
	record, err := o.Log().Find(id)
	must(t, err)
	replied(t, o.Do("POST", "/v1/decisions/"+id+"/redaction", `{"reason":"r"}`), 204)
	o.get("/v1/log/checkpoint")
	if p := o.provedRecord(id, tlog.RecordHash(record.Line)); string(p.Extra) != id {
		t.Errorf("got %+v", p)
	}
	for _, who := range []string{"initech-auditor", "globex-auditor"} {
		if got := o.as(who).Get(recordProofPath(id)); got.Status != 404 || got.Header.Get("Retry-After") != "" {
			t.Errorf("%s: got %d %s", who, got.Status, got.Body)
		}
	}
}

// cosign keeps the newest checkpoint with the line of a witness, which is not checked here.
func (o *office) cosign() string {
	o.t.Helper()
	hash := sha256.Sum256([]byte("a witness"))
	cosigned := o.get("/v1/log/checkpoint") + "— witness.example " + base64.StdEncoding.EncodeToString(append(hash[:4], make([]byte, 72)...)) + "\n"
	must(o.t, o.Log().KeepWitnessed([]byte(cosigned)))
	return cosigned
}

// An export goes on after a broken connection, though witnesses have cosigned more since: its last line alone has their word.
func TestAnExportGoesOnBesideWitnesses(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	o.happen("initech")
	o.cosign()
	first := o.export("/v1/log/export", "identity")
	rows := strings.SplitAfter(first.text, "\n")
	o.happen("globex")
	cosigned := strings.ReplaceAll(o.cosign(), "\n", `\n`)
	for at := 1; at < 6; at++ {
		rest := o.export("/v1/log/export?checkpoint="+first.checkpoint+"&after="+sequenceIn(rows[at]), "identity")
		whole := strings.Join(rows[:at+1], "") + rest.text
		if r := verify.Export(strings.NewReader(whole), verify.Options{Key: o.get("/v1/log/keys")}); !r.Verified() || !strings.Contains(rest.text, cosigned) {
			t.Fatalf("after line %d: %v\n%s", at, r.Problem, whole)
		}
	}
}

// A proof goes to the checkpoint that witnesses cosigned, where that covers the record, in both forms.
func TestProofsGoToTheWitnessedCheckpoint(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	id := o.ask("initech", evaluationPath, tenantQuestion)
	cosigned := o.cosign()
	later := o.ask("initech", evaluationPath, tenantQuestion)
	newest := o.get("/v1/log/checkpoint")
	for id, want := range map[string]string{id: cosigned, later: newest} {
		record, err := o.Log().Find(id)
		must(t, err)
		if p := o.provedRecord(id, tlog.RecordHash(record.Line)); string(p.Checkpoint) != want {
			t.Errorf("%s: the proof as text is of\n%s", id, p.Checkpoint)
		}
		if got := o.get("/v1/decisions/" + id + "/proof"); !strings.Contains(got, strings.ReplaceAll(want, "\n", `\n`)) {
			t.Errorf("%s: the proof is %s", id, got)
		}
	}
}
