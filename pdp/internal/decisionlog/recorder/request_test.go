package recorder

import (
	"errors"
	"fmt"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/record"
)

// What was asked is rebuilt from the log as it was recorded: a decision, each item of a batch with what it inherits, and
// each kind of search. Secrets stay masked. Once a part of a request is gone the record says so.
func TestRequestsAreRebuiltFromTheLog(t *testing.T) {
	t.Parallel()
	limits := evaluation.DefaultLimits()
	log, err := decisionlog.Open(t.TempDir(), decisionlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	r, _ := testRecorder(t)
	r.Log = log
	want := map[string]string{}
	masked := func(id string, request evaluation.Request) {
		text, err := r.Mask(t.Context()).Apply(request).Request.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		want[id] = request.Tenant + string(text)
	}

	const body = `{"subject":{"type":"user","id":"a\n/é","properties":{"level":3,"password":"geheim"}},"action":{"name":"read","properties":{"soft":true}},` +
		`"resource":{"type":"doc","id":"1","properties":{"size":12345678901234567890}},"context":{"ip":"::1","supported_obligations":["log"],"arguments":{"x":{"pin":"1234"}}}}`
	one, err := evaluation.DecodeAuthZEN([]byte(body), "acme", limits)
	if err != nil {
		t.Fatal(err)
	}
	native, err := evaluation.DecodeNative([]byte(`{"tenant_id":"acme","actor":{"actor_type":"agent","actor_id":"b"},"action":"read","resource":{"type":"doc","id":"1"},"context":{"n":1.50}}`), limits)
	if err != nil {
		t.Fatal(err)
	}
	for id, request := range map[string]evaluation.Request{"one": one, "native": native} {
		masked(id, request)
		if err := r.Record(t.Context(), []pdp.Record{{ID: id, Call: pdp.Call{Request: request}}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []evaluation.SearchKind{evaluation.SubjectSearch, evaluation.ResourceSearch, evaluation.ActionSearch} {
		s, err := evaluation.DecodeSearch(kind, []byte(body), "acme", limits)
		if err != nil {
			t.Fatal(err)
		}
		masked(string(kind), s.Request)
		record := pdp.Record{ID: string(kind), Kind: kind, Call: pdp.Call{Request: s.Request}, Search: &pdp.SearchAnswer{}}
		if err := r.Record(t.Context(), []pdp.Record{record}); err != nil {
			t.Fatal(err)
		}
	}
	batch, err := evaluation.DecodeBatch([]byte(body[:len(body)-1]+`,"evaluations":[{},{"resource":{"type":"doc","id":"2"}},{"context":{"own":1}}]}`), "acme", limits)
	if err != nil {
		t.Fatal(err)
	}
	var items []pdp.Record
	for n, item := range batch.Items {
		id := fmt.Sprint("batch.", n)
		masked(id, item.Request)
		items = append(items, pdp.Record{ID: id, Call: pdp.Call{Request: item.Request}, Item: pdp.Item{Batch: "batch", Size: batch.Size, Inherits: item.Inherits()}})
	}
	if err := r.Record(t.Context(), items); err != nil {
		t.Fatal(err)
	}

	rebuilt := func(id string) (evaluation.Request, error) {
		record, err := log.ByID(id)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := log.Recorded(record.Line)
		if err != nil {
			t.Fatal(err)
		}
		request, _, err := whole.Request(limits)
		return request, err
	}
	for id, want := range want {
		got, err := rebuilt(id)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		text, err := got.MarshalJSON()
		if err != nil || got.Tenant+string(text) != want {
			t.Errorf("%s: got %s%s, %v\nwant %s", id, got.Tenant, text, err, want)
		}
	}
	if err := log.Redact(t.Context(), "", "batch", "erasure"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"batch.0", "batch.1", "batch.2"} {
		if _, err := rebuilt(id); !errors.Is(err, record.ErrNoRequest) {
			t.Errorf("%s: got %v", id, err)
		}
	}
}
