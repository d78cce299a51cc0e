package recorder

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
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

// TestABatchIsCountedAsLongAsItsLinesAre: the bound is one of the log's bytes, so each record counts for no less than its
// line without the parts that policies add, and for little more.
func TestABatchIsCountedAsLongAsItsLinesAre(t *testing.T) {
	t.Parallel()
	log, err := decisionlog.Open(t.TempDir(), decisionlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	r, _ := testRecorder(t)
	text := strings.Repeat("é\"\n\u0001", 20)
	o, err := evaluation.NewObject(map[string]any{"a": text, "token": 1, "supported_obligations": []string{text}})
	if err != nil {
		t.Fatal(err)
	}
	hostile := "/context/" + strings.Repeat("\u0001", 300)
	entity := evaluation.Entity{Type: text, ID: text, Properties: o}
	request := evaluation.Request{Shape: evaluation.Native, Tenant: strings.Repeat("t", 63), Subject: entity, Action: evaluation.Action{Name: text, Properties: o}, Resource: entity, Context: o}
	lines := 0
	for n, record := range []pdp.Record{
		{Decision: evaluation.Decision{Reason: evaluation.ObligationUnsupported, Mismatch: []evaluation.Mismatch{{Pointer: hostile, Place: hostile}}}},
		{Decision: evaluation.Decision{Malformed: evaluation.Malformed(text, text, "context", "a")}},
		{Decision: evaluation.Decision{Obligations: []evaluation.Obligation{{Properties: o}, {Properties: o}}}},
		{Approved: true, Item: pdp.Item{Inherits: evaluation.Inherited{Subject: true, Action: true, Resource: true, Context: true}}},
		{Item: pdp.Item{Inherits: evaluation.Inherited{SupportedObligations: true}}},
	} {
		record.Decision.Bundle = "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
		record.Time, record.Item.Size = time.Now(), 1<<20
		record.Item.Batch = fmt.Sprintf("0197a8f0-0000-7000-8000-00000000000%d", n)
		record.ID = record.Item.Batch + ".999"
		record.Call = pdp.Call{Request: request, Asker: evaluation.Asker{Name: "key:" + text, RequestID: text + "\xff", TraceID: text, Registered: true, Obligations: []string{text}}}
		entries, err := r.batchEntries(t.Context(), []pdp.Record{record})
		if err == nil {
			err = log.Append(t.Context(), entries)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			recorded, err := log.ByID(e.ID)
			if err != nil {
				t.Fatal(err)
			}
			counted := batchLimit{size: 1 << 20}
			if err := counted.add(&e); err != nil {
				t.Fatal(err)
			}
			policies := 0
			if e.Declared != nil { // the operator chose them
				declared, err := json.Marshal(e.Declared)
				if err != nil {
					t.Fatal(err)
				}
				policies += len(`,"declared":`) + len(declared)
			}
			if e.Decision != nil && e.Decision.Obligations != nil {
				policies += len(`,"obligations":[]`) + len(`{"id":"","type":"","properties":},`)*len(e.Decision.Obligations)
			}
			lines++
			if line := recorded.Line; counted.used+policies < len(line) || counted.used+policies > len(line)+200 {
				t.Errorf("%d are counted, and %d of the policies, of %d: %s", counted.used, policies, len(line), line)
			}
		}
	}
	if lines != 7 {
		t.Errorf("%d lines, want those of five items and of two batches", lines)
	}
}
