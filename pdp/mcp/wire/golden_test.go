package wire_test

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/tools/txtar"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/mcp/wire"
)

var update = flag.Bool("update", false, "write the goldens")

// printed is a message as 000 or 001 prints it, in parts.
type printed struct {
	t *testing.T
	// payload are the members of the payload, inner those of its params or its result, or of its error's data.
	payload, inner map[string]jsontext.Value
}

func read[T any](t *testing.T, v jsontext.Value) (to T) {
	t.Helper()
	if err := json.Unmarshal(v, &to); err != nil {
		t.Fatalf("%s: %v", v, err)
	}
	return to
}

func write(t *testing.T, from any) jsontext.Value {
	t.Helper()
	v, err := json.Marshal(from, json.Deterministic(true))
	must(t, err)
	return v
}

// text is a string that is printed: in the payload if it is of kind system, else in the part within it.
func (p printed) text(name string) string {
	v := p.inner[name]
	if v == nil {
		v = p.payload[name]
	}
	return read[string](p.t, v)
}

// call is the approval request of which 000 prints how it is asked for.
func (p printed) call(requester evaluation.Ref, tool string) wire.Call {
	r := wire.ApprovalRequest{
		ID:       p.text("id"),
		Tenant:   evaluation.DefaultTenant,
		Subject:  evaluation.Ref{Type: "user", ID: "mia"},
		Actors:   evaluation.Actors{Agent: &requester},
		Action:   "tool.invoke",
		Resource: evaluation.Ref{Type: "tool", ID: tool},
		Message:  p.text("reason"),
		Request:  write(p.t, map[string]any{"context": map[string]any{"arguments": p.inner["arguments"]}}),
	}
	r.ExpiresAt = time.Date(2024, 1, 1, 12, 5, 0, 0, time.UTC) // 000 prints it once
	return called(p.t, r)
}

// with is the payload with one member changed.
func (p printed) with(name string, v jsontext.Value) jsontext.Value {
	all := maps.Clone(p.payload)
	all[name] = v
	return write(p.t, all)
}

// ours makes of a printed message the payload that this package writes for it. A message that has no entry has no form of its
// own here, and is carried as it is.
var ours = map[string]func(p printed) jsontext.Value{
	"000-authorization-required": func(p printed) jsontext.Value {
		p.inner = read[map[string]jsontext.Value](p.t, p.inner["authorizationRequest"])
		call := p.call(evaluation.Ref{ID: p.text("requester")}, p.text("tool"))
		return write(p.t, call.AuthorizationRequired(p.payload["id"]))
	},
	"000-authorization-request": func(p printed) jsontext.Value {
		call := p.call(evaluation.Ref{Type: "agent", ID: p.text("requester")}, "agent-b:"+p.text("tool"))
		ofPDP := read[map[string]jsontext.Value](p.t, write(p.t, call.Notification()))
		params, err := wire.Announced(ofPDP["params"], p.text("tool"), p.text("requester"))
		must(p.t, err)
		ofPDP["params"] = params
		return write(p.t, ofPDP)
	},
	"000-authorization-respond": func(p printed) jsontext.Value {
		r, err := wire.ReadRespond(p.payload["params"], evaluation.DefaultLimits())
		want := evaluation.Ruling{Decision: "approve", Reason: "Approved for maintenance window", ValidUntil: time.Date(2024, 1, 1, 13, 0, 0, 0, time.UTC)}
		if err != nil || r.AuthorizationID != "auth-123" || r.Ruling != want {
			p.t.Errorf("it is read as %+v, %v", r, err)
		}
		return p.with("params", r.Answer)
	},
	"000-authorization-denied": func(p printed) jsontext.Value {
		return write(p.t, wire.AuthorizationDenied(p.payload["id"], "auth-123", "denied", p.text("reason")))
	},
	"001-tool-access-policy": func(p printed) jsontext.Value {
		read, err := wire.ReadAccessPolicy(write(p.t, p.payload))
		if err != nil || read.At != "/policy" {
			p.t.Errorf("it is read as %+v, %v", read, err)
		}
		var rules []any
		for _, r := range read.Rules {
			rule := map[string]any{"agent": r.Agent, "tools": r.Tools}
			if slices.Equal(r.Tools, []string{wire.AllTools}) {
				rule["tools"] = wire.AllTools
			}
			if r.Expires != "" {
				rule["expires"] = r.Expires
			}
			if r.RequiresApproval {
				rule["requires_approval"] = true
			}
			rules = append(rules, rule)
		}
		return p.with("policy", write(p.t, map[string]any{"mode": read.Mode, "default": read.Default, "rules": rules}))
	},
	"001-tool-call-blocked": func(p printed) jsontext.Value {
		if reason := capability.BlockedReason("dangerous_operation", "agent-b"); reason != p.text("reason") {
			p.t.Errorf("the reason is written %s", reason)
		}
		return wire.Blocked{Reason: p.text("reason"), Suggestion: p.text("suggestion"), ToolID: "agent-b:dangerous_operation"}.Payload()
	},
	"001-call-with-capability": func(p printed) jsontext.Value {
		s, refusal := wire.ReadShown(func(name string) jsontext.Value { return p.inner[name] }, func(string) jsontext.Value { return nil })
		if refusal != nil || s.Proof != "" {
			p.t.Errorf("it is read as %+v, %v", s, refusal)
		}
		params := maps.Clone(p.inner)
		params["capability"] = write(p.t, s.Token)
		return p.with("params", write(p.t, params))
	},
	"001-capability-invalid": func(p printed) jsontext.Value {
		return (&capability.Refusal{Code: capability.Expired}).RPC(p.payload["id"])
	},
	"001-welcome": func(p printed) jsontext.Value {
		return wire.Welcome{TokenType: p.text("tokenType"), Participant: evaluation.Ref{Type: "agent", ID: p.text("participantId")}}.Payload()
	},
	"001-tools-request": func(p printed) jsontext.Value {
		r, err := wire.ReadToolRequest(p.payload["params"])
		if err != nil || r.RequestID != "" {
			p.t.Errorf("it is read as %+v, %v", r, err)
		}
		return p.with("params", write(p.t, map[string]any{"name": r.Name, "arguments": r.Arguments, "reason": r.Reason}))
	},
	"001-tool-request-pending": func(p printed) jsontext.Value {
		return wire.Pending{
			Requester: evaluation.Ref{Type: "agent", ID: p.text("requester")},
			Target:    p.text("target"),
			Tool:      wire.Tool{Name: p.text("tool"), ID: p.text("target") + ":" + p.text("tool")},
			Arguments: p.payload["arguments"],
			RequestID: p.text("requestId"),
			Reason:    "Need to complete maintenance task",
		}.Payload()
	},
	"001-capabilities-request": func(p printed) jsontext.Value {
		r, err := wire.ReadCapabilityRequest(p.payload["params"])
		if err != nil || r.Audience+r.Proof+r.Renews+r.ApprovalID+string(r.Key) != "" {
			p.t.Errorf("it is read as %+v, %v", r, err)
		}
		params := map[string]jsontext.Value{"tools": write(p.t, r.Tools)}
		for name, v := range r.Terms.Members {
			params[name] = v
		}
		return p.with("params", write(p.t, params))
	},
	"001-capabilities-grant": func(p printed) jsontext.Value {
		expires, err := time.Parse(time.RFC3339, p.text("expires"))
		must(p.t, err)
		tools := read[[]string](p.t, p.inner["tools"])
		return p.with("result", wire.CapabilityGrant{
			ID: p.text("token"), Token: "e30.e30.c2ln", Tools: tools, IDs: []string{"agent-b:" + tools[0]}, Audience: "agent-b",
			ValidFrom: expires.Add(-time.Hour), Expires: expires, MaxUses: 5, Verify: "online",
			Narrowed: []string{"max_uses"},
		}.Result())
	},
	"001-call-on-behalf-of": func(p printed) jsontext.Value {
		f, given, err := fulfilment(string(p.payload["params"]))
		if err != nil || !given {
			p.t.Errorf("it is read as %+v, %t, %v", f, given, err)
		}
		params := maps.Clone(p.inner)
		params["onBehalfOf"], params["requestId"] = write(p.t, f.OnBehalfOf), write(p.t, f.RequestID)
		return p.with("params", write(p.t, params))
	},
	"001-fulfilled": func(p printed) jsontext.Value {
		server := write(p.t, map[string]any{"content": p.inner["content"]})
		result, err := wire.Fulfilled(server, evaluation.Ref{Type: "user", ID: p.text("fulfilledBy")}, evaluation.Ref{Type: "agent", ID: p.text("originalRequester")})
		must(p.t, err)
		return p.with("result", result)
	},
}

// Each message that 000 and 001 print, and ours for it: every member that is printed is there, by its name, with a
// value of its kind, and with that very value unless the golden says that it differs.
func TestWirePrinted(t *testing.T) {
	files, err := filepath.Glob("testdata/messages/*.txtar")
	if err != nil || len(files) != 18 { // as many are printed; a definition of a tool is no message
		t.Fatalf("%d goldens, %v", len(files), err)
	}
	tested := map[string]bool{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		tested[name] = true
		t.Run(name, func(t *testing.T) { golden(t, name, file) })
	}
	for name := range ours {
		if !tested[name] {
			t.Errorf("there is no golden of %s", name)
		}
	}
}

func golden(t *testing.T, name, file string) {
	archive, err := txtar.ParseFile(file)
	must(t, err)
	of := jsontext.Value(archive.Files[0].Data)
	e, err := wire.ReadEnvelope(completed(t, of))
	must(t, err)
	p := printed{t: t, payload: read[map[string]jsontext.Value](t, e.Payload)}
	for _, inner := range []string{"params", "result", "error"} {
		if v := p.payload[inner]; v != nil {
			p.inner = read[map[string]jsontext.Value](t, v)
		}
	}
	if data := p.inner["data"]; data != nil {
		p.inner = read[map[string]jsontext.Value](t, data)
	}
	written := e.Payload
	if write := ours[name]; write != nil {
		written = write(p)
	}
	differs := differences(archive.Comment)
	holds(t, e.Payload, written, "/payload", differs)
	for at, seen := range differs {
		if !seen {
			t.Errorf("%s does not differ: take the line away", at)
		}
	}
	again := &txtar.Archive{Comment: archive.Comment, Files: []txtar.File{
		archive.Files[0],
		{Name: "written", Data: indented(t, written)},
	}}
	got := txtar.Format(again)
	if *update {
		must(t, os.WriteFile(file, got, 0o600))
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is another, %v; look at what -update changes", file, err)
	}
}

// completed is a message with the members that are left out where an excerpt of it is printed.
func completed(t *testing.T, of jsontext.Value) jsontext.Value {
	all := read[map[string]jsontext.Value](t, of)
	if all["protocol"] == nil { // a payload
		all = map[string]jsontext.Value{"protocol": write(t, wire.Protocol), "kind": write(t, wire.KindMCP), "payload": of}
	}
	if all["from"] == nil {
		all["from"] = write(t, "agent-b")
	}
	if string(all["kind"]) == `"mcp"` {
		payload := read[map[string]jsontext.Value](t, all["payload"])
		if payload["jsonrpc"] == nil {
			payload["jsonrpc"], payload["id"] = write(t, "2.0"), write(t, "cap-req-1")
		}
		all["payload"] = write(t, payload)
	}
	return write(t, all)
}

// differences are the places at which a golden says that our message differs.
func differences(comment []byte) map[string]bool {
	places := map[string]bool{}
	for line := range strings.Lines(string(comment)) {
		if at, ok := strings.CutPrefix(line, "differs: "); ok {
			places[strings.TrimSpace(at)] = false
		}
	}
	return places
}

// holds fails if something that is printed at a place is not there, is of another kind, or differs without being said to.
func holds(t *testing.T, printed, written jsontext.Value, at string, differs map[string]bool) {
	if written.Kind() != printed.Kind() {
		t.Errorf("%s is printed as %s, and written as %q", at, printed, written)
		return
	}
	switch printed.Kind() {
	case '{':
		have := read[map[string]jsontext.Value](t, written)
		for name, v := range read[map[string]jsontext.Value](t, printed) {
			holds(t, v, have[name], at+"/"+name, differs)
		}
	case '[':
		want, have := read[[]jsontext.Value](t, printed), read[[]jsontext.Value](t, written)
		if len(want) != len(have) {
			t.Errorf("%s has %d elements, %d are printed", at, len(have), len(want))
			return
		}
		for n := range want {
			holds(t, want[n], have[n], at+"/"+strconv.Itoa(n), differs)
		}
	default:
		if bytes.Equal(printed, written) {
			return
		}
		if _, said := differs[at]; !said {
			t.Errorf("%s is printed as %s, and written as %s", at, printed, written)
		}
		differs[at] = true
	}
}

func indented(t *testing.T, v jsontext.Value) []byte {
	v = slices.Clone(v)
	must(t, v.Indent(jsontext.WithIndent("  ")))
	return append(v, '\n')
}
