package recorder

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/pdptest/night"
)

// logged is a recorder with a real log, and what a record in it says.
func logged(t *testing.T) (r *Recorder, recorded func(id string) *record.Recorded) {
	t.Helper()
	log, err := decisionlog.Open(t.TempDir(), decisionlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	r, _ = testRecorder(t)
	r.Log = log
	return r, func(id string) *record.Recorded {
		t.Helper()
		record, err := log.ByID(id)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		whole, err := log.Recorded(record.Line)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		return &whole
	}
}

// TestACallIsMadeAgain: what was asked, by whom and when is read back from the record.
func TestACallIsMadeAgain(t *testing.T) {
	t.Parallel()
	r, recorded := logged(t)
	request, err := evaluation.DecodeNative([]byte(`{"tenant_id":"acme","actor":{"actor_type":"agent","actor_id":"b","level":3},"action":"read","purpose":"x","resource":{"type":"doc","id":"1","labels":{"a":"b"}}}`), evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 22, 1, 2, 3, 4, time.UTC)
	for id, asker := range map[string]evaluation.Asker{
		"unregistered": {Name: "key:a", RequestID: "r", TraceID: "t"},
		"none":         {Name: "key:a", Registered: true, Obligations: []string{}},
		"some":         {Name: "key:a", Registered: true, Obligations: []string{"redact", "log"}},
	} {
		call := pdp.Call{Request: request, Asker: asker, Now: now}
		overruled := evaluation.Decision{Allow: true, Determining: []string{"asks"}}
		overruled.Deny(evaluation.ApprovalRequired)
		record := pdp.Record{ID: id, Time: now, Call: call, Decision: overruled, Approved: id == "some"}
		if err := r.Record(t.Context(), []pdp.Record{record}); err != nil {
			t.Fatal(err)
		}
		line := recorded(id)
		if call.Approved = ""; record.Approved {
			call.Approved = anApproval
		}
		if got, err := CallOf(line, someBundle(t), evaluation.DefaultLimits()); err != nil || !reflect.DeepEqual(got, call) {
			t.Errorf("%s: got %+v, %v\nwant %+v", id, got, err, call)
		}
		if line.Approved != record.Approved || fmt.Sprint(line.Overruled) != "[asks]" || line.Determining != nil {
			t.Errorf("%s: %s", id, line.Line)
		}
	}
	// Obligations that are nil are none, too, if the caller is registered.
	record := pdp.Record{ID: "nil", Call: pdp.Call{Request: request, Asker: evaluation.Asker{Registered: true}}}
	search := pdp.Record{ID: "search", Kind: evaluation.SubjectSearch, Call: record.Call, Search: &pdp.SearchAnswer{}}
	if err := r.Record(t.Context(), []pdp.Record{record, search}); err != nil {
		t.Fatal(err)
	}
	if got, err := CallOf(recorded("nil"), someBundle(t), evaluation.DefaultLimits()); err != nil || !got.Registered || len(got.Obligations) > 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := CallOf(recorded("search"), someBundle(t), evaluation.DefaultLimits()); err == nil || !strings.Contains(err.Error(), `of kind "search"`) {
		t.Errorf("a search: %v", err)
	}
}

func someBundle(t *testing.T) *pdp.Bundle {
	t.Helper()
	files := fstest.MapFS{"p.cedar": {Data: []byte("permit (principal, action, resource);")}, "bundle.yaml": {Data: []byte("allow_trivial: true\n")}}
	b, problems := pdp.Load(pdp.FS(files))
	if problems.Refuse() {
		t.Fatal(problems)
	}
	return b
}

// TestTheDraftIsThatOfTheBundle: a request that names no draft of obligations is read by the bundle that decides again, whatever
// the bundle was that decided.
func TestTheDraftIsThatOfTheBundle(t *testing.T) {
	t.Parallel()
	r, recorded := logged(t)
	bundles := map[string]*pdp.Bundle{}
	for _, draft := range []string{"july", "october"} {
		b, problems := pdp.Load(pdp.FS(fstest.MapFS{
			"p.cedar":          {Data: []byte(`@obligation("note") permit (principal, action, resource);`)},
			"obligations.yaml": {Data: []byte("note: {type: log}\n")},
			"bundle.yaml":      {Data: []byte("allow_trivial: true\nobligations: " + draft + "\n")},
		}))
		if problems.Refuse() {
			t.Fatal(problems)
		}
		bundles[draft] = b
	}
	const july, october, adopted = `"supported_obligations":["log"]`, `"supported_mandatory_extensions":[]`, `"supported_mandatory_extensions":["obligations"],"supported_obligations":["custom"]`
	for context, allows := range map[string]map[string]bool{
		july:    {"july": true, "october": false},
		october: {"july": false, "october": false},
		adopted: {"july": true, "october": true},
	} {
		q, err := evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"user","id":"u"},"action":{"name":"read"},"resource":{"type":"doc","id":"d"},"context":{`+context+`}}`), "", evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		for first, b := range bundles {
			d, err := pdp.Of(b, pdp.Options{Recorder: r}).Evaluate(t.Context(), pdp.Call{Request: q})
			if err != nil {
				t.Fatal(err)
			}
			for second, b := range bundles {
				call, err := CallOf(recorded(d.ID), b, evaluation.DefaultLimits())
				if err != nil {
					t.Fatal(err)
				}
				if again, err := pdp.Of(b, pdp.Options{}).Evaluate(t.Context(), call); err != nil || again.Allow != allows[second] {
					t.Errorf("%s, decided by %s and again by %s: %+v, %v", context, first, second, again, err)
				}
			}
		}
	}
}

// TestFitIsKnownOfTheBundleThatDecided: whether a hidden value could be put to the policies is known of no other bundle.
func TestFitIsKnownOfTheBundleThatDecided(t *testing.T) {
	t.Parallel()
	r, recorded := logged(t)
	bundle := someBundle(t)
	context, err := evaluation.NewObject(map[string]any{"token": 3})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]evaluation.Fit{bundle.Digest(): evaluation.Fits, "h1:other": evaluation.FitUnknown} {
		record := pdp.Record{ID: id, Call: pdp.Call{Request: evaluation.Request{Context: context}}, Decision: evaluation.Decision{Bundle: id}}
		record.Call.Request.Subject.ID = "a"
		if err := r.Record(t.Context(), []pdp.Record{record}); err != nil {
			t.Fatal(err)
		}
		call, err := CallOf(recorded(id), bundle, evaluation.DefaultLimits())
		if err != nil || len(call.Hidden) != 1 || call.Hidden[0].Fit != want {
			t.Errorf("%s: got %+v, %v, want %d", id, call.Hidden, err, want)
		}
	}
}

// TestAPlainRecordSaysNoMore: a record has none of the members that say nothing of it.
func TestAPlainRecordSaysNoMore(t *testing.T) {
	t.Parallel()
	r, recorded := logged(t)
	request := evaluation.Request{Subject: evaluation.Entity{Type: "user", ID: "a"}, Action: evaluation.Action{Name: "read"}, Resource: evaluation.Entity{Type: "doc", ID: "1"}}
	native := request
	native.Shape = evaluation.Native
	decision := evaluation.Decision{Allow: true, Determining: []string{"p"}}
	for id, q := range map[string]evaluation.Request{"authzen": request, "native_": native} {
		if err := r.Record(t.Context(), []pdp.Record{{ID: id, Call: pdp.Call{Request: q}, Decision: decision}}); err != nil {
			t.Fatal(err)
		}
	}
	authzen, other := string(recorded("authzen").Line), string(recorded("native_").Line)
	for _, member := range []string{"shape", "declared", "approved", "masked", "overruled"} {
		if strings.Contains(authzen, `"`+member+`"`) || member != "shape" && strings.Contains(other, `"`+member+`"`) {
			t.Errorf("%s is in %s, or in %s", member, authzen, other)
		}
	}
	if more := len(other) - len(authzen); more > 20 || !strings.Contains(other, `},"shape":"native","decision":true`) {
		t.Errorf("%d bytes more: %s", more, other)
	}
}

// blank replaces what is hidden in a request by its type, in one that was sent and in one that is read back alike.
func blank(t *testing.T, r evaluation.Request, hidden []evaluation.Hidden) any {
	t.Helper()
	text, err := r.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var o any
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	for _, h := range hidden {
		at, segments := o, strings.Split(h.At, "/")[1:]
		for n, segment := range segments {
			segment = strings.NewReplacer("~1", "/", "~0", "~").Replace(segment)
			last := n == len(segments)-1
			switch in := at.(type) {
			case map[string]any:
				if at = in[segment]; last {
					if _, has := in[segment]; !has && segment != "properties" && segment != "context" { // those may be empty
						t.Errorf("%+v is not there: %s", h, text)
					}
					in[segment] = h.Type
				}
			case []any:
				var index int
				if _, err := fmt.Sscan(segment, &index); err != nil || index >= len(in) {
					t.Fatalf("%+v is not there: %s", h, text)
				}
				if at = in[index]; last {
					in[index] = h.Type
				}
			case string: // a place above is blank
			default:
				t.Fatalf("%+v is not there: %s", h, text)
			}
		}
	}
	return o
}

// TestPropertyRequestsAreMadeAgain: whatever a request holds, and what of it items inherit, it is read back as it was
// sent, but for the places that the record says are hidden.
func TestPropertyRequestsAreMadeAgain(t *testing.T) {
	t.Parallel()
	r, recorded := logged(t)
	limits, bundle := evaluation.DefaultLimits(), someBundle(t)
	hid, inherited := 0, 0
	same := func(id string, sent evaluation.Request) {
		t.Helper()
		record := recorded(id)
		call, err := CallOf(record, bundle, limits)
		if err != nil {
			t.Fatalf("%s: %v", record.Line, err)
		}
		if got, want := blank(t, call.Request, call.Hidden), blank(t, sent, call.Hidden); !reflect.DeepEqual(got, want) {
			t.Errorf("%s and %s\ngot  %v\nwant %v\nhidden %+v", record.Line, record.Batch.Line, got, want, call.Hidden)
		}
		hid += len(call.Hidden)
		if len(record.Masked) != len(call.Hidden) || record.Masked == nil && strings.Contains(string(record.Asked), mask.Prefix) {
			t.Errorf("%s: %v", record.Line, record.Masked)
		}
	}
	cases := night.Cases(400)
	for seed := range uint64(cases) {
		s := &scattered{Rand: rand.New(rand.NewPCG(seed, 7))}
		for n := range 4 {
			s.secrets = append(s.secrets, fmt.Sprintf("S%d-%x\\é", n, s.Uint64()))
		}
		s.secrets = append(s.secrets, "masked:AA")
		some := func() map[string]any {
			members := map[string]any{"a": s.value(2), "n": s.IntN(1e9), "list": []any{s.IntN(9), s.text(), true}}
			if s.IntN(2) == 0 {
				members["token"] = []any{s.secrets[0], 12345678, true, map[string]any{"x": 1}, []any{1}}[s.IntN(5)]
			}
			if s.IntN(3) == 0 {
				members["arguments"] = map[string]any{"x": map[string]any{"pin": s.IntN(1e9)}, "y": s.secrets[s.IntN(3)]}
			}
			return members
		}
		part := func(member string) any {
			switch member {
			case "context":
				members := some()
				if s.IntN(2) == 0 {
					members["supported_obligations"] = []string{"log", s.secrets[s.IntN(len(s.secrets))]}
				}
				return members
			case "action":
				return map[string]any{"name": "read", "properties": some()}
			}
			return map[string]any{"type": "x", "id": s.text() + "1", "properties": some()}
		}
		body, items := map[string]any{}, make([]map[string]any, 1+s.IntN(4))
		for n := range items {
			items[n] = map[string]any{}
		}
		for _, member := range []string{"subject", "action", "resource", "context"} {
			body[member] = part(member)
			for n := range items {
				if s.IntN(2) == 0 {
					items[n][member] = part(member)
				}
			}
		}
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		single, err := evaluation.DecodeAuthZEN(text, "acme", limits)
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint("s", seed)
		if err := r.Record(t.Context(), []pdp.Record{{ID: id, Call: pdp.Call{Request: single}}}); err != nil {
			t.Fatal(err)
		}
		same(id, single)
		body["evaluations"] = items
		if text, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
		batch, err := evaluation.DecodeBatch(text, "acme", limits)
		if err != nil {
			t.Fatal(err)
		}
		records := make([]pdp.Record, len(batch.Items))
		for n, item := range batch.Items {
			records[n] = pdp.Record{ID: fmt.Sprint("b", seed, ".", n), Call: pdp.Call{Request: item.Request}, Item: pdp.Item{Batch: fmt.Sprint("b", seed), Size: 1 << 20, Inherits: item.Inherits()}}
		}
		if err := r.Record(t.Context(), records); err != nil {
			t.Fatal(err)
		}
		for n, item := range batch.Items {
			same(records[n].ID, item.Request)
			inherited += len(recorded(records[n].ID).Inherits)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if t.Logf("%d places were hidden, %d parts inherited", hid, inherited); hid < 10*cases || inherited < cases {
		t.Error("too few")
	}
}
