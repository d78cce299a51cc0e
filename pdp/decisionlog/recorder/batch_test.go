package recorder

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/pdptest/night"
)

// TestPropertyRecordsOfABatchAreWhatWasAsked: whatever items inherit, their records and
// that of the batch together are their requests.
func TestPropertyRecordsOfABatchAreWhatWasAsked(t *testing.T) {
	t.Parallel()
	log, err := decisionlog.Open(t.TempDir(), decisionlog.Options{Mode: decisionlog.BestEffort})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	r, _ := testRecorder(t)
	r.Log = log
	ways, checks := map[string]bool{}, []func(){}
	for seed := range uint64(night.Cases(2000)) {
		g := rand.New(rand.NewPCG(seed, 4))
		names := map[string][]string{"subject": {"type", "id"}, "action": {"name"}, "resource": {"type", "id"}}
		part := func(member string) map[string]any {
			o := map[string]any{}
			for _, name := range names[member] {
				o[name] = fmt.Sprint(name, g.IntN(3))
			}
			members := map[string]any{}
			for _, name := range []string{"a", "b", "é\"\n"} {
				if g.IntN(2) == 0 {
					members[name] = []any{g.IntN(9), map[string]any{"x": "\u0001 text"}}
				}
			}
			if member != "context" {
				o["properties"] = members
				return o
			}
			if g.IntN(2) == 0 {
				members["supported_obligations"] = []string{"log"}
			}
			return members
		}
		body := map[string]any{}
		items := make([]map[string]any, 1+g.IntN(5))
		for _, member := range []string{"subject", "action", "resource", "context"} {
			body[member] = part(member)
			for n := range items {
				if items[n] == nil {
					items[n] = map[string]any{}
				}
				if g.IntN(2) == 0 {
					items[n][member] = part(member)
				}
			}
		}
		body["evaluations"] = items
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		batch, err := evaluation.DecodeBatch(text, "", evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint(seed)
		records := make([]pdp.Record, len(batch.Items))
		inherited := false
		for n, item := range batch.Items {
			records[n] = pdp.Record{ID: fmt.Sprint(id, ".", n), Call: pdp.Call{Request: item.Request}, Item: pdp.Item{Batch: id, Size: batch.Size, Inherits: item.Inherits()}}
			inherited = inherited || item.Inherits().Any()
		}
		if err := r.Record(t.Context(), records); err != nil {
			t.Fatal(err)
		}
		checks = append(checks, func() {
			shared := recordedParts{}
			if inherited {
				shared = partsOf(t, log, id)
			}
			for n, record := range records {
				e := partsOf(t, log, record.ID)
				ways[fmt.Sprint(e.Inherits)] = true
				got, want := resolved(shared, e), decoded(t, record.Call.Request)
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d: %s\nitem %d: %v and %v\nare %v, want %v", seed, text, n, e, shared, got, want)
				}
			}
		})
	}
	if err := log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, check := range checks {
		check()
	}
	if len(ways) < 20 {
		t.Errorf("only %d ways to inherit", len(ways))
	}
}

func decoded(t *testing.T, v any) (o map[string]any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// recordedParts are the parts of a request that a line has.
type recordedParts struct {
	Request  struct{ Subject, Action, Resource, Context map[string]any }
	Inherits []string
}

func (p recordedParts) byName() map[string]map[string]any {
	all := map[string]map[string]any{"subject": p.Request.Subject, "action": p.Request.Action, "resource": p.Request.Resource, "context": p.Request.Context}
	for name, o := range all {
		if o == nil {
			all[name] = map[string]any{}
		}
	}
	return all
}

func partsOf(t *testing.T, log *decisionlog.Log, id string) (p recordedParts) {
	t.Helper()
	record, err := log.ByID(id)
	if err == nil {
		err = json.Unmarshal(record.Line, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// resolved puts an item's record and that of its batch together by the rule in format.go.
func resolved(shared, e recordedParts) map[string]any {
	own, from := e.byName(), shared.byName()
	for _, member := range e.Inherits {
		switch member {
		case "supported_obligations":
			own["context"][member] = from["context"][member]
		case "context":
			maps.Copy(own["context"], from["context"])
		default:
			own[member]["properties"] = from[member]["properties"]
		}
	}
	all := map[string]any{}
	for member, o := range own {
		if member != "context" || len(o) > 0 {
			all[member] = o
		}
	}
	return all
}

// TestABatchIsCountedAsLongAsItsLinesAre: the bound is one of what the log holds, so what
// is counted is no less than a line without what policies add.
func TestABatchIsCountedAsLongAsItsLinesAre(t *testing.T) {
	t.Parallel()
	log, err := decisionlog.Open(t.TempDir(), decisionlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	r, _ := testRecorder(t)
	r.Log = log
	text := strings.Repeat("é\"\n\u0001", 20)
	o, err := evaluation.NewObject(map[string]any{"a": text, "token": 1, "supported_obligations": []string{text}})
	if err != nil {
		t.Fatal(err)
	}
	request := evaluation.Request{
		Tenant:  strings.Repeat("t", 63),
		Subject: evaluation.Entity{Type: text, ID: text, Properties: o}, Action: evaluation.Action{Name: text, Properties: o}, Resource: evaluation.Entity{Type: text, ID: text, Properties: o}, Context: o,
	}
	mismatch := slices.Repeat([]evaluation.Mismatch{{Pointer: "/context/a", Place: "/context/a"}}, 3)
	for _, record := range []pdp.Record{
		{Decision: evaluation.Decision{Reason: evaluation.ObligationUnsupported, Mismatch: mismatch}},
		{Approved: true, Call: pdp.Call{Asker: evaluation.Asker{Registered: true, Obligations: []string{text, "log"}}, Request: evaluation.Request{Shape: evaluation.Native}}},
		{Call: pdp.Call{Asker: evaluation.Asker{Registered: true}}, Item: pdp.Item{Inherits: evaluation.Inherited{Context: true}}},
		{Decision: evaluation.Decision{Malformed: evaluation.Malformed(text, text, "context", "a")}},
		{Item: pdp.Item{Inherits: evaluation.Inherited{Subject: true, Action: true, Resource: true, Context: true}}},
		{Item: pdp.Item{Inherits: evaluation.Inherited{SupportedObligations: true}}},
		{Decision: evaluation.Decision{Obligations: []evaluation.Obligation{{Properties: o}, {Properties: o}}}},
	} {
		record.ID, record.Bundle, record.Decision.Bundle = "0197a8f0-0000-7000-8000-000000000000.999", "h1:"+text, "h1:"+text
		asker := evaluation.Asker{Name: "key:" + text, RequestID: text + "\xff", TraceID: text}
		asker.Registered, asker.Obligations = record.Call.Registered, record.Call.Obligations
		request.Shape = record.Call.Request.Shape
		record.Call = pdp.Call{Request: request, Asker: asker}
		record.Item.Batch, record.Item.Size = "0197a8f0-0000-7000-8000-000000000000", 1<<20
		entries, err := r.batchEntries(t.Context(), []pdp.Record{record})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(log.Append(t.Context(), entries), log.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
		first := log.Size() - uint64(len(entries))
		for n, e := range entries {
			line, err := log.Get(first + uint64(n))
			if err != nil {
				t.Fatal(err)
			}
			counted := batchLimit{size: 1 << 20}
			if err := counted.add(&e); err != nil {
				t.Fatal(err)
			}
			policies := 0
			if e.Decision != nil {
				policies = len(`,"obligations":`) + len(`{"id":"","type":"","properties":},`)*len(record.Decision.Obligations)
			}
			if e.Declared != nil { // the operator chose them
				declared, err := json.Marshal(e.Declared)
				if err != nil {
					t.Fatal(err)
				}
				policies += len(`,"declared":`) + len(declared)
			}
			if sum := counted.names + counted.values + counted.copied + counted.rest; sum+policies < len(line.Line) || sum > len(line.Line)+200 {
				t.Errorf("%d are counted of %d: %s", sum, len(line.Line), line.Line)
			}
		}
	}
}

// TestABatchIsNotRefusedForWhatItsRecordsSayBesides: neither the types that the caller's registration declares nor many
// small masked values of an item make the records of a batch too many.
func TestABatchIsNotRefusedForWhatItsRecordsSayBesides(t *testing.T) {
	t.Parallel()
	r, _ := testRecorder(t)
	var types []string
	for n := range 24 {
		types = append(types, fmt.Sprintf("https://example.com/obligations/%032d", n))
	}
	tokens := map[string]any{}
	for n := range 20 {
		tokens[fmt.Sprint("token", n)] = 1
	}
	secret, err := evaluation.NewObject(tokens)
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]pdp.Call{
		"registered": {Asker: evaluation.Asker{Registered: true, Obligations: types}},
		"masked":     {Request: evaluation.Request{Context: secret}},
	} {
		records := make([]pdp.Record, 10)
		for n := range records {
			call.Request.Subject, call.Request.Resource = evaluation.Entity{Type: "user", ID: "a"}, evaluation.Entity{Type: "doc", ID: "1"}
			call.Request.Action.Name = "read"
			records[n] = pdp.Record{ID: fmt.Sprint("b.", n), Call: call, Item: pdp.Item{Batch: "b", Size: 10 * (150 + call.Request.Context.Size())}}
		}
		if _, err := r.batchEntries(t.Context(), records); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
