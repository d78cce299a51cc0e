package recorder_test

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/evidence"
)

// policies has the files of the bundle that decided.
var policies = map[string]string{"bundle.yaml": "allow_trivial: true\n", "p.cedar": "permit (principal, action, resource);"}

// secrets is a context with secrets by name, by pattern, in names, in numbers, and in texts that hold JSON.
const secrets = `{"token":"hunter22hunter","note":"it is hunter22hunter, or tiger333tiger","hunter22hunter":1,"arguments":{"card":{"pin":[12345678,true,null,{"x":"tiger333tiger"}]},"n":12345678,
	"json":"{\"password\": \"lion4444lion\", \"deep\": \"{\\\"apiKey\\\":\\\"puma5555puma\\\",\\\"n\\\":1}\", \"n\":[1,\"lion4444lion\"]}","cut":"{\"user\":\"u\",\"secret\":\"cut66666cut","prose":"{'token': 'x'} lion4444lion puma5555puma","plain":"{\"a\": 1}"},
	"list":["a",{"deep":"text"},"b"],"credentials":{"a":"short","b":[1,2]},"supported_obligations":["log","hunter22hunter"]}`

// requestWith returns a request with a context.
func requestWith(context string) evaluation.Request {
	return must(evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"user","id":"alice","properties":{"level":3}},"action":{"name":"read","properties":{"via":"<api>&"}},"resource":{"type":"doc","id":"1","properties":{"labels":["a","b"]}},"context":`+context+`}`), "acme", evaluation.DefaultLimits()))
}

func parsedObject(text string) evaluation.Object {
	return must(evaluation.ParseObject([]byte(text), evaluation.DefaultLimits()))
}

// withUnknown returns the request with unknown places.
func withUnknown(r evaluation.Request, places ...string) evaluation.Request {
	r.Unknown = must(evaluation.UnknownAt(places...))
	return r
}

// repeated formats the numbers below many as elements of a JSON list.
func repeated(format string, many int) string {
	var all []string
	for n := range many {
		all = append(all, fmt.Sprintf(format, n))
	}
	return strings.Join(all, ",")
}

// writeEveryKind writes every kind of record with every member, and returns an early checkpoint.
func writeEveryKind(b *book) (first []byte) {
	files := map[string][]byte{}
	for name, text := range policies {
		files[name] = []byte(text)
	}
	bundle := must(must(segment.OpenBundles(b.data)).Put(files))
	events := recorder.NewEvents(b.now, slog.New(slog.DiscardHandler))
	events.Log = b
	b.nextStep()
	b.ok(events.Record(b.t.Context(), recorder.Event{Name: format.EventStart, Details: map[string]any{"version": "1", "files": "\xff<&>"}},
		recorder.Event{Name: format.EventBundleLoaded, Details: map[string]string{"bundle": bundle}}, recorder.Event{Name: format.EventAPIKeys, Details: map[string][]string{"keys": {"a"}}, Keys: 3}))

	single := func(id string, q evaluation.Request, d evaluation.Decision, more ...func(*pdp.Record)) {
		d.ID, d.Bundle = id, bundle
		r := pdp.Record{ID: id, Time: b.now(), Call: pdp.Call{Request: q, Asker: evaluation.Asker{Name: "key:pep"}}, Decision: d, Bundle: bundle}
		for _, change := range more {
			change(&r)
		}
		b.record(r)
	}
	declares := func(types ...string) func(*pdp.Record) {
		return func(r *pdp.Record) { r.Call.Registered, r.Call.Obligations = true, types }
	}
	native := must(evaluation.DecodeNative([]byte(`{"tenant_id":"zeta","actor":{"actor_type":"agent","actor_id":"bot","roles":["r"]},"action":"write","purpose":"for Zoë","resource":{"type":"doc","id":"=1+1","labels":{"a":"b"}}}`), evaluation.DefaultLimits()))
	single("d-plain", requestWith(`{}`), evaluation.Decision{Allow: true, Determining: []string{"p0"}})
	single("d-native", native, evaluation.Decision{}, declares(), func(r *pdp.Record) { r.Call.RequestID, r.Call.TraceID, r.Time = "r\xff\"", "t\n", b.now().Add(-1) })
	single("d-sent-mask", requestWith(`{"x":"masked:AAAAAAAAAAAAAAAAAAAAAA"}`), evaluation.Decision{Allow: true}, declares("log", "redact"))
	full := evaluation.Decision{
		Allow: true, Reason: evaluation.SchemaMismatch, ReasonUser: "say hunter22hunter to \"them\"", Determining: []string{"p0", "p1"}, Overruled: []string{"p3"},
		Errors:      []evaluation.PolicyError{{Policy: "p2", Position: "p.cedar:1:1", Kind: evaluation.MissingAttribute}, {Policy: "p4", Kind: evaluation.UnusableValue}},
		Obligations: []evaluation.Obligation{{ID: "tell", Type: "notification", Properties: parsedObject(`{"text":"of hunter22hunter and 12345678","password":"told8888told"}`)}, {ID: "log", Type: "log"}},
		Required:    []string{"redact"}, LeftOut: []evaluation.LeftOut{{ID: "x", Reason: evaluation.ObligationUnfilled}},
		Met: []evaluation.Met{
			{ID: "ask", Type: "approval", Approval: "ap-1", Continues: evaluation.Continuation{Decision: "d-plain", Round: 2}}, {ID: "ask2", Type: "approval", Approval: "ap-2", Shares: "d-sent-mask"}, {ID: "ask3", Type: "approval", Approval: "ap-3"}},
		Mismatch: []evaluation.Mismatch{
			{Pointer: "/context/hunter22hunter", Place: "/context/hunter22hunter"}, {Pointer: "/context/arguments/card/pin/3/x", Place: "/context/arguments/card/pin/3/x"}, {Pointer: "/context/tiger333tiger~1x"}, {Pointer: "/context/note"}, {Pointer: "/subject/a/b…"}},
	}
	single("d-full", requestWith(secrets), full, func(r *pdp.Record) {
		r.Approved, r.Capability = true, &pdp.ShownCapability{Capability: evaluation.Capability{Held: true, ID: "cap-1", Depth: 2}, Ancestors: []string{"cap-0", "cap-root"}}
	})
	many := full
	many.Allow, many.Mismatch = false, nil
	for n := range 40 {
		place := fmt.Sprintf("/context/%s%d", strings.Repeat("long", 8), n)
		many.Mismatch = append(many.Mismatch, evaluation.Mismatch{Pointer: place, Place: place})
	}
	single("d-many", requestWith(`{"passwords":[`+repeated(`"secret-%d"`, 80)+`],"keep":{"token":1,"other":2,"more":{"token":[1,{"a":2}]}},"arguments":{`+repeated(`"a%d":{"pin":1}`, 70)+`}}`), many)
	var digests []string // a secret that occurs in each digest: nothing can stand for a value
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		digests = append(digests, `"masked:`+string(c)+`"`)
	}
	single("d-removed", requestWith(`{"token":[`+strings.Join(digests, ",")+`],"list":["a","b","c"],"note":"masked:A","masked:B":1}`), evaluation.Decision{ReasonUser: "masked:C"})
	single("d-malformed", evaluation.Request{Tenant: "acme"}, evaluation.Decision{Malformed: evaluation.Malformed("not an object", "send one", "context", "a/b")})
	single("d-refused", requestWith(`{}`), evaluation.Decision{Reason: evaluation.CapabilityInvalid}, func(r *pdp.Record) { r.Capability = &pdp.ShownCapability{Reason: "bad_signature"} })
	proof := &pdp.SpentProof{
		Key: "thumb", ID: "jti-0123456789abcdef", IssuedAt: 1796029200, Audience: "https://a.example", Tool: "files/read",
		Arguments: evidence.Of("the-hash"), Nonce: "n", Algorithm: "EdDSA", Signature: evidence.Of("the-signature")}
	single("d-proof", requestWith(`{"arguments":{"a":1}}`), evaluation.Decision{Allow: true}, func(r *pdp.Record) {
		r.Capability = &pdp.ShownCapability{Capability: evaluation.Capability{Held: true, ID: "cap-2"}, Used: true, Proof: proof}
	})
	limits := requestWith(`{"arguments":{"card":{"pin":1,"value":{"pin":2},"values":[{"pin":3}]}}}`)
	single("d-sealed", limits, evaluation.Decision{Allow: true}, func(r *pdp.Record) {
		sealed := *proof
		sealed.Nonce = ""
		r.Capability = &pdp.ShownCapability{Capability: evaluation.Capability{ID: "cap-3"}, Grants: true, Proof: &sealed}
	})
	limits.Action.Name = "capability.grant" // patterns address constraints on arguments as well
	single("d-grant", limits, evaluation.Decision{Allow: true})
	first = must(b.log.Checkpoint(b.t.Context()))

	possible := evaluation.Decision{Possible: evaluation.Possible, Determining: []string{"p0"}, Obligations: full.Obligations[1:]}
	impossible := evaluation.Decision{Possible: evaluation.Impossible, Bundle: bundle, Errors: full.Errors}
	single("p-known", withUnknown(requestWith(`{}`)), impossible)
	single("p-places", withUnknown(requestWith(`{"token":"hunter22hunter","a":1}`), "/context/a", "/context/hunter22hunter/x", "/context/token/a/b", "/context/pdp/approved"), possible, declares("log"))
	single("p-long", withUnknown(requestWith(`{"x":"`+strings.Repeat("x", 70_000)+`"}`), "/context/arguments"), possible)
	possible.Bundle = bundle
	b.batch("p", `{"subject":{"type":"user","id":"a","properties":{"token":"hunter22hunter","name":"is hunter22hunter"}},"action":{"name":"read"},"context":{"note":"tiger333tiger"},"options":{"unknown":["/context/arguments"]},
		"evaluations":[{"resource":{"type":"doc","id":"1"}},{"resource":{"type":"doc","id":"2","properties":{"secret":"tiger333tiger"}}},{"resource":{"type":"doc","id":"3"},"context":{"own":1}},{"resource":{"type":"doc","id":"4"},"action":{"name":"write"}}]}`,
		possible, impossible, possible)
	b.batch("p-shared", `{"subject":{"type":"user","id":"a"},"action":{"name":"read"},"context":{"note":"`+strings.Repeat("x", 70_000)+`"},"options":{"unknown":["/context/arguments"]},"evaluations":[`+repeated(`{"resource":{"type":"doc","id":"%d"}}`, 7)+`]}`, possible, impossible)

	allow, deny := evaluation.Decision{Allow: true, Determining: []string{"p0"}, Bundle: bundle}, evaluation.Decision{ReasonUser: "no tiger333tiger", Bundle: bundle}
	allow.Obligations = []evaluation.Obligation{{ID: "ask", Type: "human_approval", Properties: parsedObject(`{"text":"tiger333tiger"}`)}, {ID: "ok", Type: "approval_required"}}
	b.batch("b", `{"subject":{"type":"user","id":"alice","properties":{"badge":"badge777","team":"inherited text"}},"action":{"name":"read","properties":{"via":"x"}},"resource":{"type":"doc","id":"b0","properties":{"owner":"tiger333tiger"}},
		"context":{"note":"badge777 badge777","supported_obligations":["log","badge777"]},"options":{"evaluations_semantic":"execute_all"},
		"evaluations":[{},{"resource":{"type":"doc","id":"b1"},"context":{"password":"tiger333tiger"}},{"subject":{"type":"user","id":"carol"},"action":{"name":"write"},"resource":{"type":"doc","id":"b2"},"context":{"own":true}},
		{"resource":"tiger333tiger"},{"context":{"supported_obligations":[]}},{"options":{"unknown":["/context/badge777"]},"resource":{"type":"doc","id":"b5"}},{"options":{"unknown":[]}}]}`,
		allow, deny, allow, deny, allow, possible)
	b.batch("alone", `{"evaluations":[{"subject":{"type":"user","id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}}]}`, deny)

	for _, kind := range []evaluation.SearchKind{evaluation.SubjectSearch, evaluation.ResourceSearch, evaluation.ActionSearch} {
		q := requestWith(`{"token":"hunter22hunter","x":"hunter22hunter"}`)
		single("s-"+string(kind), q, evaluation.Decision{}, func(r *pdp.Record) {
			r.Kind, r.Search = kind, &pdp.SearchAnswer{Found: []evaluation.Found{{Type: "doc", ID: "id-1", Name: "name-1"}, {ID: "id-2", Name: "name-2"}}, Examined: 5}
		})
	}
	single("s-none", requestWith(`{}`), evaluation.Decision{}, func(r *pdp.Record) { r.Kind, r.Search = evaluation.ActionSearch, &pdp.SearchAnswer{} })

	b.append(record.Receipt{Decision: "d-full", Obligations: []evaluation.Receipt{{ID: "tell", Status: evaluation.Discharged}, {ID: "log", Status: evaluation.NotDischarged, Detail: "disk <full>"}}}.Entry("acme", "key:pep"))
	b.append(
		record.Entry{ID: "approval-1", Kind: format.KindApproval, Tenant: "acme", Caller: "key:pep", Payer: "key:other", Event: "requested", Details: jsontext.Value(`{"approval": "ap-1", "by": "alice"}`)},
		record.Entry{ID: "approval-2", Kind: format.KindApproval, Tenant: "acme", Caller: "user:bob", Event: "approved", Details: jsontext.Value(`{"approval":"ap-1","by":"bob","reason":"@fine"}`)})
	b.append(record.Entry{ID: "capability-1", Kind: format.KindCapability, Tenant: "acme", Event: "granted", Details: jsontext.Value(`{"capability":"cap-1","ancestors":["cap-0","cap-root"]}`)})
	b.append(record.Entry{
		Kind: format.KindAdmin, Tenant: "acme", Caller: "key:gateway", RequestID: "r", TraceID: "t", Event: format.EventToolDrift,
		Details: jsontext.Value(`{"server":"s","tool":"reset_password","change":"changed","with":"w","parts":["description"],"locked":"sha256:a","found":"sha256:b"}`)})
	// A request that was put together from parts has no form of its own.
	b.append(record.Entry{
		ID: "d-parts", Kind: format.KindDecision, Tenant: "zeta", Decision: &record.Decision{Allow: true},
		Request: &record.Request{Subject: jsontext.Value(`{"type": "user", "id": "parts"}`), Action: jsontext.Value(`{"name":"read"}`), Resource: jsontext.Value(`{"type":"doc","id":"1"}`), Context: jsontext.Value(`{"a" : 1}`)}})
	b.nextStep()
	b.ok(b.log.Withdraw(b.t.Context(), "acme", "key:pep", record.Withdrawn{Decision: "d-full", Approval: "ap-1"}))
	b.nextStep()
	b.ok(b.log.Withdraw(b.t.Context(), "acme", "key:pep", record.Withdrawn{Decision: "d-proof", Capability: "cap-2"}))
	b.nextStep()
	b.ok(b.log.Rotate(b.t.Context()))
	b.nextStep()
	_ = must(b.log.RotateKey(b.t.Context(), "key:admin"))
	b.nextStep()
	b.ok(events.Record(b.t.Context(), recorder.Event{Name: format.EventAPIKeys, Keys: 4}, recorder.Event{Name: format.EventStop}))
	b.clock.Add(int64(-time.Hour))
	single("d-behind", requestWith(`{}`), evaluation.Decision{Allow: true, Determining: full.Determining})
	b.clock.Add(int64(time.Hour))
	return first
}

// writeManyRecords writes more questions than fit in one record, and enough records for two tiles.
func writeManyRecords(b *book) {
	possible, impossible := evaluation.Decision{Possible: evaluation.Possible, Determining: []string{"p"}}, evaluation.Decision{Possible: evaluation.Impossible}
	b.batch("p", `{"subject":{"type":"user","id":"a"},"action":{"name":"read"},"context":{"note":"n"},"options":{"unknown":["/context/arguments"]},"evaluations":[`+
		repeated(`{"resource":{"type":"document-of-a-long-name","id":"%d","properties":{"of":"a department"}}}`, 500)+`]}`, possible, impossible, possible)
	many := make([]record.Entry, 300)
	for n := range many {
		many[n] = record.Entry{ID: fmt.Sprintf("d-%d", n), Kind: format.KindDecision, Tenant: "acme", Decision: &record.Decision{}}
	}
	b.append(many...)
}
