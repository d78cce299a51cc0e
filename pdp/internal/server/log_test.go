package server_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/written"
)

// line is what tests read of a record.
type line struct {
	Sequence  uint64 `json:"sequence"`
	ID        string `json:"id"`
	Kind      string `json:"kind"`
	Tenant    string `json:"tenant"`
	Caller    string `json:"caller"`
	RequestID string `json:"request_id"`
	TraceID   string `json:"trace_id"`
	Request   struct {
		Subject, Action, Resource, Context map[string]any
	} `json:"request"`
	Query       string           `json:"query"`
	Found       []string         `json:"found"`
	Examined    int              `json:"examined"`
	Decision    *bool            `json:"decision"`
	Reason      string           `json:"reason"`
	ReasonUser  string           `json:"reason_user"`
	Determining []string         `json:"determining"`
	Obligations []map[string]any `json:"obligations"`
	Required    []string         `json:"required"`
	Mismatch    []string         `json:"mismatch"`
	Bundle      string           `json:"bundle"`
	Event       string           `json:"event"`
	Details     map[string]any   `json:"details"`
}

// lines are all records of a data directory, whose server has stopped; a stranger
// must find nothing wrong with them.
func lines(t testing.TB, data string) (all []line) {
	t.Helper()
	if report := verify.Directory(data, verify.Options{}); !report.Verified() {
		t.Fatalf("the log does not verify: %+v", report)
	}
	r, err := segment.OpenReader(data)
	must(t, err)
	defer func() { _ = r.Close() }()
	for record, err := range r.Records(t.Context(), 0, r.Size()) {
		must(t, err)
		if record.Line == nil { // redacted
			continue
		}
		var l line
		if err := json.Unmarshal(record.Line, &l); err != nil {
			t.Fatalf("%s: %v", record.Line, err)
		}
		all = append(all, l)
	}
	return all
}

func byID(all []line) map[string]line {
	found := map[string]line{}
	for _, l := range all {
		found[l.ID] = l
	}
	return found
}

func events(all []line, name string) (found []line) {
	for _, l := range all {
		if l.Kind == format.KindAdmin && l.Event == name {
			found = append(found, l)
		}
	}
	return found
}

// telling is a bundle whose answers have texts and obligations of what was sent.
func telling() pdp.Source {
	return pdptest.Bundle(map[string]string{
		"a.cedar": `@id("read") permit(principal is user, action == Action::"read", resource is doc);
@id("write") @obligation("tell") permit(principal is user, action == Action::"write", resource);
@id("never") @reason_user("Ask for keys-of-the-kingdom first.") forbid(principal, action == Action::"delete", resource);`,
		"obligations.yaml":     "tell: {type: notification, on: allow, properties: {to: ops, body: \"about ${context.note}\"}}\n",
		"entities/docs.json":   `[{"uid":{"type":"doc","id":"plan"},"attrs":{},"parents":[]},{"uid":{"type":"doc","id":"minutes"},"attrs":{},"parents":[]}]`,
		"tenants/acme/a.cedar": `@id("acme") permit(principal, action == Action::"ping", resource);`,
	})
}

func TestEveryAnswerHasItsRecord(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := pdptest.Start(t, telling(), withData(data))
	ask := func(path, body string) (string, string) {
		t.Helper()
		got := s.Post(path, body, "X-Request-ID", "r-"+path, "Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		if got.Status != 200 || got.Header.Get("X-Decision-Id") == "" {
			t.Fatalf("%s %s: got %d %s", path, body, got.Status, got.Body)
		}
		return got.Header.Get("X-Decision-Id"), got.Body
	}
	allowed, _ := ask(evaluationPath, readQuestion)
	native, _ := ask(authorizePath, nativeQuestion)
	acme, _ := ask("/tenants/acme"+evaluationPath, `{"subject":{"type":"user","id":"alice"},"action":{"name":"ping"},"resource":{"type":"doc","id":"x"}}`)
	denied, _ := ask(evaluationPath, strings.Replace(readQuestion, "read", "delete", 1))
	undeclared, _ := ask(evaluationPath, strings.TrimSuffix(strings.Replace(readQuestion, "read", "write", 1), "}")+`,"context":{"note":"n"}}`)
	owing, _ := ask(evaluationPath, `{"subject":{"type":"user","id":"alice"},"action":{"name":"write"},"resource":{"type":"doc","id":"plan"},"context":{"note":"n","supported_obligations":["notification"]}}`)
	found, _ := ask("/access/v1/search/resource", `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc"}}`)
	actions, _ := ask("/access/v1/search/action", readQuestion)
	batch, body := ask("/access/v1/evaluations", strings.TrimSuffix(readQuestion, "}")+`,"evaluations":[{},{"action":{"name":"delete"}},7,{"subject":{"type":7}},{"context":{"pdp":1}},{}]}`)
	stopAndWait(t, s)

	all := lines(t, data)
	records := byID(all)
	for id, want := range map[string]string{
		allowed: "default true [read]", native: "default true [read]", acme: "acme true [acme]", denied: "default false [never]",
		undeclared: "default false []", owing: "default true [write]",
	} {
		r := records[id]
		if r.Decision == nil {
			t.Fatalf("there is no decision %s: %+v", id, r)
		}
		if got := fmt.Sprintf("%s %v %v", r.Tenant, *r.Decision, r.Determining); got != want || r.Kind != "decision" || r.Bundle == "" || r.TraceID != "4bf92f3577b34da6a3ce929d0e0e4736" || !strings.HasPrefix(r.RequestID, "r-/") {
			t.Errorf("got %+v, want %s", r, want)
		}
	}
	if r := records[denied]; r.ReasonUser == "" || r.Request.Subject["id"] != "alice" || r.Request.Action["name"] != "delete" {
		t.Errorf("got %+v", r)
	}
	if r := records[owing]; len(r.Obligations) != 1 || fmt.Sprint(r.Obligations[0]["properties"]) != "map[body:about n to:ops]" {
		t.Errorf("got %+v", r)
	}
	if r := records[undeclared]; r.Reason != "obligation_unsupported" || fmt.Sprint(r.Required) != "[notification]" {
		t.Errorf("got %+v", r)
	}
	if r := records[found]; r.Kind != "search" || r.Query != "resource" || fmt.Sprint(r.Found) != "[minutes plan]" || r.Examined != 2 || r.Bundle == "" || r.Decision != nil || fmt.Sprint(r.Request.Resource) != "map[type:doc]" {
		t.Errorf("got %+v", r)
	}
	if r := records[actions]; r.Query != "action" || fmt.Sprint(r.Found) != "[read]" || r.Request.Action != nil {
		t.Errorf("got %+v", r)
	}
	checkBatch(t, records, batch, body)
}

// checkBatch holds the records of a batch to its answer.
func checkBatch(t *testing.T, records map[string]line, id, body string) {
	t.Helper()
	var answer struct{ Evaluations []struct{ Decision bool } }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Evaluations) != 6 {
		t.Fatal(body, err)
	}
	first := records[id+".0"].Sequence
	for n, item := range answer.Evaluations {
		r := records[fmt.Sprintf("%s.%d", id, n)]
		if r.Decision == nil || *r.Decision != item.Decision || r.Sequence != first+uint64(n) || r.Tenant != "default" || r.Bundle == "" {
			t.Errorf("item %d: got %+v", n, r)
		}
		if malformed := r.Details["malformed"] != nil; malformed != (n >= 2 && n <= 4) {
			t.Errorf("item %d: malformed %v: %+v", n, malformed, r)
		}
	}
}

// The record says of a malformed item what its answer does, and where in the body.
func TestMalformedItemsOnRecord(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"bundle.yaml": "parents: {user: {groups: group}}\n", "a.cedar": `permit(principal is user, action, resource is doc);`,
	}), withData(data))
	got := s.Post("/access/v1/evaluations", `{"subject":{"type":"user","id":"a","properties":{"groups":[1]}},"action":{"name":"read"},"resource":{"type":"doc","id":"1"},
		"evaluations":[{},{"subject":{"type":"user","id":"b","properties":{"groups":[1]}}},{"subject":{"type":"user","id":"b","properties":{"__entity":1}}}]}`)
	stopAndWait(t, s)
	records := byID(lines(t, data))
	for n, want := range []string{"/subject/properties/groups", "/evaluations/1/subject/properties/groups", "/evaluations/2/subject/properties/__entity"} {
		r := records[fmt.Sprintf("%s.%d", got.Header.Get("X-Decision-Id"), n)]
		if malformed, _ := r.Details["malformed"].(map[string]any); malformed["pointer"] != want {
			t.Errorf("item %d: %+v, want it at %s", n, r, want)
		}
		if !strings.Contains(got.Body, `"message":"`+want+": ") {
			t.Errorf("the answer %s does not say %s", got.Body, want)
		}
	}
}

// What there is at the start is on record when it has started: a key that is added right
// after was added, and is not one of those that were there.
func TestWhatThereIsAtTheStartIsOnRecord(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	addKey(t, data, "there", auth.Grant{})
	s := pdptest.Start(t, telling(), withData(data))
	size := s.Log().Size()
	for _, event := range []string{"api_keys", "signing_key"} {
		if !s.Recorded(event) {
			t.Errorf("there is no record of %s", event)
		}
	}
	addKey(t, data, "added", auth.Grant{})
	eventually(t, "the other key is on record", func() bool { return s.Log().Size() > size })
	stopAndWait(t, s)
	if got := events(lines(t, data), "api_key_added"); len(got) != 1 || got[0].Details["name"] != "added" {
		t.Errorf("got %+v", got)
	}
}

func TestAdministrativeEventsAreOnRecord(t *testing.T) {
	t.Parallel()
	data, dir := t.TempDir(), t.TempDir()
	write := func(text string) { writeAll(t, dir, map[string]string{"a.cedar": text}) }
	write(`permit(principal is user, action, resource);`)
	// It is read when it is told to be, and not when it changes as well: how often a bundle is refused is counted.
	read := pdp.FS(os.DirFS(dir))
	s := pdptest.Start(t, read, withData(data), func(c *server.Config) { c.DecisionLog.Mask = []string{"/context/pin"} })
	first := s.Post(evaluationPath, readQuestion).Header.Get("X-Decision-Id")
	write("permit(")
	if err := s.Reload(t.Context()); err == nil {
		t.Fatal("the bad bundle was taken")
	}
	write(`permit(principal is user, action == Action::"read", resource);`)
	must(t, s.Reload(t.Context()))
	second := s.Post(evaluationPath, readQuestion).Header.Get("X-Decision-Id")
	addKey(t, data, "pep", auth.Grant{})
	eventually(t, "the key is known", func() bool { return s.Post(evaluationPath, readQuestion).Status == 401 })
	eventually(t, "the key is on record", func() bool { return s.Recorded("api_key_added") })
	stopAndWait(t, s)

	all := lines(t, data)
	records := byID(all)
	loaded := events(all, "bundle_loaded")
	if len(loaded) != 2 || loaded[0].Sequence > records[first].Sequence || loaded[1].Sequence > records[second].Sequence ||
		loaded[0].Details["bundle"] != records[first].Bundle || loaded[1].Details["bundle"] != records[second].Bundle {
		t.Errorf("each bundle should be on record before what it decides: %+v", loaded)
	}
	for name, count := range map[string]int{"start": 1, "stop": 1, "configuration": 1, "bundle_refused": 1, "api_key_added": 1, "signing_key": 1, "log_created": 1} {
		if got := events(all, name); len(got) != count {
			t.Errorf("%s: got %+v, want %d", name, got, count)
		}
	}
	if last := all[len(all)-1]; last.Event != "stop" {
		t.Errorf("the last record is %+v", last)
	}
	if c := events(all, "configuration"); len(c) == 1 && !strings.Contains(fmt.Sprint(c[0].Details), "/context/pin") {
		t.Errorf("got %+v", c[0].Details)
	}
	kept, err := segment.OpenBundles(data)
	must(t, err)
	for _, l := range loaded {
		if files, err := kept.Files(fmt.Sprint(l.Details["bundle"])); err != nil || len(files) != 1 {
			t.Errorf("%v is not kept: %v", l.Details["bundle"], err)
		}
	}
}

func TestWithoutDataThereIsNoLog(t *testing.T) {
	t.Parallel()
	var log written.Text
	s := pdptest.Start(t, telling(), logTo(&log))
	if got := s.Get("/readyz").Body; !strings.Contains(got, `"log":null`) {
		t.Error(got)
	}
	if !strings.Contains(log.String(), "decisions are not recorded") {
		t.Error(log.String())
	}
	if _, err := server.New(server.Config{Program: server.Program{Source: telling()}, DecisionLog: server.DecisionLogConfig{Mode: decisionlog.Strict}}); err == nil || !strings.Contains(err.Error(), "--data") {
		t.Errorf("a strict log without a directory: got %v", err)
	}
}

func TestCheckpointsAreWrittenOut(t *testing.T) {
	t.Parallel()
	var out written.Text
	s := pdptest.Start(t, telling(), withData(t.TempDir()), func(c *server.Config) { c.Program.Checkpoints = &out })
	s.Post(evaluationPath, readQuestion)
	if got := s.Get("/readyz").Body; !strings.Contains(got, `"log":{"mode":"strict","ok":true,"size":`) {
		t.Error(got)
	}
	stopAndWait(t, s)
	notes := strings.Split(out.String(), "\n\n— ")
	if len(notes) < 2 {
		t.Errorf("got %q", out.String())
	}
}
