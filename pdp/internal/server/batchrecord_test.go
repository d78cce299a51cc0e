package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/conformance"
	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
	"policy-service/policies"
)

const batchPath = "/access/v1/evaluations"

// batchBody is a batch of defaults and items.
func batchBody(defaults string, items ...string) string {
	return `{` + defaults + `,"evaluations":[` + strings.Join(items, ",") + `]}`
}

// recordsOf are the lines of a batch in the order of the log's file.
func recordsOf(t *testing.T, log *segment.Reader, id string) (all []string) {
	t.Helper()
	for record, err := range log.Records(t.Context(), 0, log.Size()) {
		must(t, err)
		if strings.Contains(string(record.Line), `"id":"`+id) {
			all = append(all, string(record.Line))
		}
	}
	return all
}

func sizeOf(lines []string) (n int) {
	for _, line := range lines {
		n += len(line)
	}
	return n
}

// A batch gives its turn at long work back before it waits for the log, so that others work meanwhile.
func TestABatchThatWaitsForTheLogHasNoTurn(t *testing.T) {
	t.Parallel()
	const items = 3
	var running atomic.Pointer[pdptest.Server]
	working := make(chan int, 1)
	s := pdptest.Start(t, telling(), withData(t.TempDir()), func(c *server.Config) {
		server.TuneLog(c, func(o *decisionlog.Options, _ *decisionlog.Retention) {
			committed := o.On.Commit
			o.On.Commit = func(commit decisionlog.Commit) { // the batch waits until it returns
				committed(commit)
				if s := running.Load(); s != nil && commit.Records >= items {
					working <- s.WorkGoesOn()
				}
			}
		})
	})
	running.Store(s)
	item := `{"subject":{"type":"user","id":"mia"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`
	replied(t, s.Post(batchPath, batchBody(`"context":{}`, slices.Repeat([]string{item}, items)...)), 200)
	if n := <-working; n != 0 {
		t.Errorf("%d have a turn", n)
	}
}

// TestABatchOf20KBDoesNotRetireEverybodysRecords: what a thousand items inherit is on
// record once, whoever they are of is found all the same, and no filter finds the rest.
func TestABatchOf20KBDoesNotRetireEverybodysRecords(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	key := addKey(t, data, "mallory", auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Decide, auth.LogRead}})
	s := pdptest.Start(t, telling(), withData(data))
	defaults := `"subject":{"type":"user","id":"mallory","properties":{"p":"` + strings.Repeat("p", 5000) + `"}},"action":{"name":"read","properties":{"q":"` + strings.Repeat("q", 5000) + `"}},` +
		`"resource":{"type":"doc","id":"plan","properties":{"r":"` + strings.Repeat("r", 1000) + `"}},"context":{"c":"` + strings.Repeat("c", 5000) + `"}`
	body := batchBody(defaults, slices.Repeat([]string{"{}"}, 1000)...)
	got := s.Post(batchPath, body, "Authorization", key)
	replied(t, got, 200)
	find := func(query string) int {
		page := s.Get("/v1/decisions?limit=1000&"+query, "Authorization", key)
		var found struct {
			Items []line `json:"items"`
		}
		must(t, json.Unmarshal([]byte(page.Body), &found))
		for _, l := range found.Items {
			if l.Kind != "decision" {
				t.Errorf("%s finds a record of kind %s", query, l.Kind)
			}
		}
		return len(found.Items)
	}
	for _, query := range []string{"subject=mallory", "subject=user/mallory", "action=read", "resource=doc/plan", "decision=allow"} {
		if n := find(query); n != 1000 {
			t.Errorf("%s finds %d of 1000", query, n)
		}
	}
	stopAndWait(t, s)
	log, err := segment.OpenReader(data)
	must(t, err)
	defer func() { must(t, log.Close()) }()
	all := recordsOf(t, log, got.Header.Get("X-Decision-Id"))
	if size, most := sizeOf(all), 4*len(body)+1000<<10; size > most || len(all) != 1001 {
		t.Errorf("%d bytes of batch are %d on record, in %d records; at most %d are its share", len(body), size, len(all), most)
	}
	for n, line := range all {
		if n == 0 && !strings.Contains(line, `"kind":"batch"`) || n > 0 && !strings.Contains(line, `"inherits":["subject","action","resource","context"]`) {
			t.Fatalf("record %d is %s", n, line)
		}
	}
}

// TestARecordOfABatchIsWhatWasAsked: what an item has of its own is in its record, what it
// has not is in that of the batch, and both together are what was asked.
func TestARecordOfABatchIsWhatWasAsked(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, telling(), withData(t.TempDir()))
	defaults := `"subject":{"type":"user","id":"alice","properties":{"p":1}},"action":{"name":"read","properties":{"q":1}},"resource":{"type":"doc","id":"plan","properties":{"r":1}},` +
		`"context":{"c":1,"supported_obligations":["notification"]}`
	for _, c := range []struct {
		name, defaults, item, inherits, shared, own string
	}{
		{"all", defaults, `{}`, `[subject action resource context]`, `{"subject":{"properties":{"p":1}},"action":{"properties":{"q":1}},"resource":{"properties":{"r":1}},"context":{"c":1,"supported_obligations":["notification"]}}`,
			`{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`},
		{"an entity of its own", defaults, `{"subject":{"id":"bob"},"context":null}`, `[action resource context]`, `{"action":{"properties":{"q":1}},"resource":{"properties":{"r":1}},"context":{"c":1,"supported_obligations":["notification"]}}`,
			`{"subject":{"type":"user","id":"bob"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`},
		{"all of its own but what it can do", defaults, `{"subject":{"properties":{}},"action":{"properties":{"q":2}},"resource":{"id":"1"},"context":{"d":2}}`, `[supported_obligations]`, `{"context":{"supported_obligations":["notification"]}}`,
			`{"subject":{"type":"user","id":"alice"},"action":{"name":"read","properties":{"q":2}},"resource":{"type":"doc","id":"1"},"context":{"d":2}}`},
		{"a context of its own that is empty", defaults, `{"subject":{},"action":{},"resource":{},"context":{}}`, `[supported_obligations]`, `{"context":{"supported_obligations":["notification"]}}`,
			`{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`},
		{"nothing that is worth it", `"subject":{"type":"user","id":"alice","properties":{}},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"},"context":{}`, `{}`, `[]`, ``,
			`{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`},
		{"what the bundle finds wrong", `"subject":{"type":"user","id":"alice","properties":{"p":1}},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}`, `{"context":{"pdp":1}}`, `[]`, ``, ``},
	} {
		got := s.Post(batchPath, batchBody(c.defaults, c.item))
		if got.Status != 200 {
			t.Fatalf("%s: got %d %s", c.name, got.Status, got.Body)
		}
		id := got.Header.Get("X-Decision-Id")
		var shared, own struct {
			ID, Kind, Tenant, Caller string
			Request                  json.RawMessage
			Inherits                 []string
			Now                      string
		}
		all := recordsOf(t, s.Log().Reader, id)
		must(t, json.Unmarshal([]byte(all[len(all)-1]), &own))
		if own.ID != id+".0" || own.Kind != "decision" || string(own.Request) != c.own || fmt.Sprint(own.Inherits) != c.inherits {
			t.Errorf("%s: the item is recorded as %s", c.name, all[len(all)-1])
		}
		if c.shared == "" {
			if len(all) != 1 {
				t.Errorf("%s: %d records", c.name, len(all))
			}
			continue
		}
		must(t, json.Unmarshal([]byte(all[0]), &shared))
		if len(all) != 2 || shared.ID != id || shared.Kind != "batch" || shared.Tenant != own.Tenant || shared.Now != own.Now || string(shared.Request) != c.shared {
			t.Errorf("%s: the batch is recorded as %s", c.name, all[0])
		}
	}
}

// TestWhatABatchMultipliesIsRefused: before anything is on record, and with what to send
// less of.
func TestWhatABatchMultipliesIsRefused(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"p.cedar":          `@obligation("tell") permit(principal is user, action == Action::"tell", resource); permit(principal is user, action == Action::"read", resource);`,
		"obligations.yaml": "tell: {type: notification, on: allow, properties: {to: ops, body: \"${context.note}\"}}\n",
	}), withData(t.TempDir()), func(c *server.Config) { c.DecisionLog.Mask = []string{"/context/pins/*"} })
	many := slices.Repeat([]string{"{}"}, 1000)
	long := strings.Repeat("x", 2000)
	ask := func(subject, action, context string) string {
		return `"subject":{"type":"user","id":"` + subject + `"},"action":{"name":"` + action + `"},"resource":{"type":"doc","id":"plan"},"context":{"supported_obligations":["notification"]` + context + `}`
	}
	for _, c := range []struct {
		name, body, header, try string
		status                  int
	}{
		{"an id that all inherit", batchBody(ask(long, "read", ""), many...), "", "ids that it inherits", 413},
		{"what an obligation copies", batchBody(ask("alice", "tell", `,"note":"`+long+`"`), many...), "", "what obligations copy", 413},
		{"digests of short values", batchBody(ask("alice", "read", `,"pins":[1`+strings.Repeat(",1", 4000)+`]`), "{}"), "", "masked values", 413},
		{"a short one that obligations copy", batchBody(ask("alice", "tell", `,"note":"the door is open"`), many...), "", "", 200},
		{"ids of their own", batchBody(ask("alice", "read", ""), slices.Repeat([]string{`{"subject":{"id":"` + strings.Repeat("x", 900) + `"}}`}, 1000)...), "", "", 200},
	} {
		before := s.Log().Size()
		got := s.Post(batchPath, c.body, "X-Request-ID", strings.Repeat("r", 256))
		if got.Status != c.status || !strings.Contains(got.Body, c.try) {
			t.Errorf("%s: got %d %.400s", c.name, got.Status, got.Body)
		}
		if grown := s.Log().Size() - before; c.status != 200 && grown > 0 {
			t.Errorf("%s: %d records were written of what was refused", c.name, grown)
		}
	}
}

// TestNoOrdinaryBatchIsRefused: neither those of the conformance cases, nor many of a
// question that a starting bundle has, with the longest request id there may be.
func TestNoOrdinaryBatchIsRefused(t *testing.T) {
	t.Parallel()
	id := []string{"X-Request-ID", strings.Repeat("r", 256), "Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	s := pdptest.Start(t, telling(), withData(t.TempDir()))
	longest := &longestID{header: id}
	_, err := conformance.Run(t.Context(), conformance.Target{URL: s.URL, Client: &http.Client{Transport: longest}, Header: http.Header{}, Plans: []string{"batch", "batch-core", "batch-properties", "gateway"}, Timeout: patience})
	must(t, err)
	if longest.asked < 25 || len(longest.refused) > 0 {
		t.Errorf("of %d batches were refused: %q", longest.asked, longest.refused)
	}
	for _, name := range []string{"starter", "always-allow", "always-prompt", "delegated", "selective"} {
		files, err := policies.Named(name)
		must(t, err)
		source := pdp.FS(files)
		examples, problems := pdp.Examples(source)
		if problems.Refuse() {
			t.Fatal(problems)
		}
		s := pdptest.Start(t, source, withData(t.TempDir()))
		for k, e := range examples {
			r := e.Call.Request
			if r.Tenant != evaluation.DefaultTenant {
				continue
			}
			var parts map[string]json.RawMessage
			text, err := r.MarshalJSON()
			must(t, err)
			must(t, json.Unmarshal(text, &parts))
			ways := 1 << len(parts) // to have some of it inherited
			for n := k; n < k+ways; n += ways / night.Cases(ways) {
				var defaults, own []string
				for m, part := range slices.Sorted(maps.Keys(parts)) {
					text := fmt.Sprintf(`%q:%s`, part, parts[part])
					if n&(1<<m) != 0 {
						defaults = append(defaults, text)
					} else {
						own = append(own, text)
					}
				}
				body := batchBody(strings.Join(append(defaults, `"x":1`), ","), slices.Repeat([]string{"{" + strings.Join(own, ",") + "}"}, 50)...)
				if got := s.Post(batchPath, body, id...); got.Status != 200 {
					t.Fatalf("%s, %s: %.300s: got %d %s", name, e.Name, body, got.Status, got.Body)
				}
			}
		}
	}
}

// longestID sends what it is given besides, and keeps what batches were refused for.
type longestID struct {
	header  []string
	asked   int
	refused []string
}

func (l *longestID) RoundTrip(r *http.Request) (*http.Response, error) {
	for n := 0; n < len(l.header); n += 2 {
		r.Header.Set(l.header[n], l.header[n+1])
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && r.URL.Path == batchPath {
		if l.asked++; answer.StatusCode == http.StatusRequestEntityTooLarge {
			l.refused = append(l.refused, r.Header.Get("Content-Length"))
		}
	}
	return answer, err
}

// TestABatchThatInheritsASecretIsAnswered: what all of it inherits is read for secrets, and
// searched for them, once. It was minutes of CPU, and no answer.
func TestABatchThatInheritsASecretIsAnswered(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := pdptest.Start(t, telling(), withData(data))
	const secret = "correct-horse-battery-staple"
	long, many := strings.Repeat(secret+" ", 14_000), new(strings.Builder)
	for n := range 9_000 {
		fmt.Fprintf(many, `,"unfit%06d-%s":0.5`, n, strings.Repeat("n", 70))
	}
	for name, context := range map[string]string{
		"a long secret that stands twice": `"token":"` + long + `","note":"` + long + `"`,
		"a secret in a long text":         `"token":"` + secret + `","note":"` + long + long + `"`,
		"JSON in a text":                  `"note":"{\"token\":\"` + long + long + `\"}"`,
		"what does not fit":               `"token":"` + secret + `","note":"it is ` + secret + `"` + many.String(),
	} {
		t.Run(name, func(t *testing.T) {
			body := batchBody(`"subject":{"type":"user","id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"},"context":{`+context+`}`,
				slices.Repeat([]string{`{}`, `{"resource":{"id":"1","properties":{"password":"hunter22","list":"hunter22"}}}`, `{"x":{}}`, `{"resource":{"id":7}}`}, 250)...)
			start := time.Now()
			got := s.Post(batchPath, body)
			t.Logf("%d bytes in %v", len(body), time.Since(start))
			if got.Status != 200 {
				t.Fatalf("got %d %.300s", got.Status, got.Body)
			}
			all := recordsOf(t, s.Log().Reader, got.Header.Get("X-Decision-Id"))
			if size, most := sizeOf(all), 4*len(body)+1000<<10; size > most || len(all) != 1001 {
				t.Errorf("%d bytes on record in %d records, at most %d are its share", size, len(all), most)
			}
			for _, line := range all {
				if strings.Contains(line, secret) || strings.Contains(line, "hunter22") {
					t.Fatalf("a secret is left in %.300s", line)
				}
			}
		})
	}
}

// TestExplanationsOfABatchTakeAMegabyte: 9 KB of batch were 97 MB of answer.
func TestExplanationsOfABatchTakeAMegabyte(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for n := range 100 { // all that a thousand items could say is several megabytes
		fmt.Fprintf(&text, "@id(\"policy-%d\") permit(principal is user, action, resource) when { principal.level > %d && resource.open && context.a.b };\n", n, n)
	}
	// Of the size alone: a busy machine may need longer than a request, and its answer, may take.
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{"p.cedar": text.String()}), withData(t.TempDir()), func(c *server.Config) {
		server.TuneHTTP(c, func(h *http.Server) { h.WriteTimeout = 0 })
	})
	s.BePatient(patience, patience)
	body := batchBody(`"subject":{"type":"user","id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}`, slices.Repeat([]string{"{}"}, 1000)...)
	got := s.Post(batchPath, body, "X-Explain", "true")
	explained, omitted := strings.Count(got.Body, `"explain":{"policies":`), strings.Count(got.Body, `"explain":{"omitted":true}`)
	if got.Status != 200 || explained == 0 || omitted == 0 || explained+omitted != 1000 {
		t.Fatalf("got %d with %d explanations and %d omitted", got.Status, explained, omitted)
	}
	if most := 1<<20 + 1000*len(`{"decision":false,"context":{"explain":{"omitted":true}}},`); len(got.Body) > most {
		t.Errorf("%d bytes of batch make %d of answer", len(body), len(got.Body))
	}
	if again := s.Post(batchPath, body, "X-Explain", "true"); again.Body != got.Body {
		t.Error("asked again it is another answer")
	}
}
