package policies_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/policies"
)

// beside are the directories that hold no bundle.
var beside = []string{"editors", "testdata"}

// Every directory here is a bundle that is embedded, loads without a warning,
// passes its own tests, and has no policy that none of them satisfies. But those beside are none.
func TestBundles(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() || slices.Contains(beside, e.Name()) {
			continue
		}
		t.Run(e.Name(), func(t *testing.T) {
			files, err := policies.Named(e.Name())
			if err != nil {
				t.Fatal(err)
			}
			checkBundle(t, files)
		})
	}
}

func TestNamed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "..", "Starter", "starter/tests", "starter/", "policies.go"} {
		if _, err := policies.Named(name); err == nil {
			t.Errorf("Named(%q) gave a bundle", name)
		}
	}
	if _, err := fs.Stat(policies.Starter(), "people.cedar"); err != nil {
		t.Error(err)
	}
}

func checkBundle(t *testing.T, files fs.FS) {
	bundle, problems := pdp.Check(pdp.FS(files), time.Now())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	examples, problems := pdp.Examples(pdp.FS(files))
	if len(problems) > 0 || len(examples) == 0 {
		t.Fatalf("%d tests: %v", len(examples), problems)
	}
	satisfied := map[string]bool{}
	decider := pdp.Of(bundle, pdp.Options{})
	for _, e := range examples {
		e.Call.Explain = true
		d, err := decider.Evaluate(t.Context(), e.Call)
		if err != nil || !asExpected(e, d) {
			t.Errorf("%s:%d: %s: got %t %q %q %v, %v", e.File, e.Line, e.Name, d.Allow, d.Reason, d.Determining, d.Obligations, err)
			continue
		}
		for _, p := range d.Explain.Policies {
			satisfied[p.ID] = satisfied[p.ID] || p.Verdict == evaluation.Satisfied
		}
	}
	for _, p := range bundle.Policies() {
		if !satisfied[p.ID] {
			t.Errorf("%s: no test satisfies %s", p.Position, p.ID)
		}
	}
}

func asExpected(e pdp.Example, d evaluation.Decision) bool {
	var obligations []string
	for _, o := range d.Obligations {
		obligations = append(obligations, o.ID)
	}
	return e.Decision == map[bool]string{true: "allow", false: "deny"}[d.Allow] && (e.Reason == nil || *e.Reason == string(d.Reason)) &&
		sameIfAsserted(e.Determining, d.Determining) && sameIfAsserted(e.Obligations, obligations)
}

func sameIfAsserted(want, got []string) bool {
	return want == nil || slices.Equal(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got)))
}

// The native request of SEMANTICS.md, section 1, and what it must be answered
// with: by a gateway, and over AuthZEN with and without a declaration.
func TestStarterSensitiveTool(t *testing.T) {
	t.Parallel()
	bundle, problems := pdp.Load(pdp.FS(policies.Starter()))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	decider := pdp.Of(bundle, pdp.Options{})
	const (
		native = `{"tenant_id":"tenant-xyz",
			"actor":{"actor_id":"agent-workflow-123","actor_type":"agent","roles":["workflow_orchestrator"],"department_id":"dept-eng"},
			"action":"tool.invoke",
			"resource":{"type":"tool","id":"jira-server-1:create_ticket","labels":{"category":"sensitive","integration":"jira","impact":"write"}},
			"purpose":"Resolve user issue #555",
			"context":{"workflow_id":"wf-abc","agent_invocation_id":"inv-789","param_summary":"Creating ticket for server outage"}}`
		authzen = `{"subject":{"type":"agent","id":"agent-workflow-123","properties":{"roles":["workflow_orchestrator"],"department_id":"dept-eng"}},
			"action":{"name":"tool.invoke"},
			"resource":{"type":"tool","id":"jira-server-1:create_ticket","properties":{"labels":{"category":"sensitive","integration":"jira","impact":"write"}}},
			"context":{"purpose":"Resolve user issue #555","workflow_id":"wf-abc"`
		owed = `{"id":"approval_required","type":"approval_required","properties":{}}`
		no   = `{"decision":false,"context":{"reason":"approval_required","required_obligations":["approval_required"]}}`
	)
	for _, test := range []struct{ body, want string }{
		{native, `{"allow":true,"obligations":{"approval_required":true}}`},
		{authzen + `}}`, no},
		{authzen + `,"justification":"approved","approved":true}}`, no},
		{authzen + `,"supported_obligations":["redact","no-such-type"]}}`, no},
		{authzen + `,"supported_obligations":["approval_required"]}}`, `{"decision":true,"context":{"obligations":[` + owed + `]}}`},
	} {
		request, err := evaluation.Decode([]byte(test.body), "tenant-xyz", evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		d, err := decider.Evaluate(t.Context(), pdp.Call{Request: request})
		if err != nil {
			t.Fatal(err)
		}
		got, err := request.Shape.Answer(d)
		if err != nil || string(got) != test.want {
			t.Errorf("%s\n got %s %v\nwant %s", test.body, got, err, test.want)
		}
	}
}

// widened is the starter bundle with a permit beside its own that is as wide as can be.
func widened(t *testing.T) *pdp.PDP {
	t.Helper()
	wide := fstest.MapFS{
		"wide.cedar": {Data: []byte(`@id("wide") permit (principal, action, resource);`)},
		// In production, but in no group: only what is known to read is allowed there.
		"entities/forgotten.json": {Data: []byte(`[{"uid": {"type": "Tool", "id": "deploy:forgotten"}, "attrs": {"labels": {"integration": "deploy", "impact": "write"}},
			"parents": [{"type": "Department", "id": "engineering"}, {"type": "Environment", "id": "production"}]}]`)},
	}
	err := fs.WalkDir(policies.Starter(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(policies.Starter(), name)
		wide[name] = &fstest.MapFile{Data: text}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	bundle, problems := pdp.Load(pdp.FS(wide))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return pdp.Of(bundle, pdp.Options{})
}

// A permit that somebody adds beside the starter bundle's own, however wide, is
// no way around what its tools oblige to, nor into them without it.
func TestStarterObligationsHold(t *testing.T) {
	t.Parallel()
	decider := widened(t)
	allowed := 0
	for tool, owed := range map[string]string{
		"github.push_code": "ask-team-lead", "aws.terminate_instance": "ask-two-people",
		"deploy:rollout": "tell-operations", "deploy:delete_cluster": "tell-operations", "deploy:forgotten": "tell-operations", "crm:read_customer": "hide-contact-data",
	} {
		for _, subject := range []string{
			`"user","id":"alice"`, `"user","id":"bob"`, `"user","id":"carol"`, `"user","id":"dave"`, `"user","id":"erin"`,
			`"agent","id":"a"`, `"agent","id":"a","properties":{"department_id":"company"}`,
			`"agent","id":"a","properties":{"department_id":"company","roles":["workflow_orchestrator","operator","employee"]}`,
		} {
			for _, labels := range []string{`{}`, `{"labels":{"category":"public","impact":"read"}}`} {
				body := fmt.Sprintf(`{"subject":{"type":%s},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":%q,"properties":%s},"context":{"supported_obligations":["approval_required","notification","redact"]}}`, subject, tool, labels)
				request, err := evaluation.Decode([]byte(body), "default", evaluation.DefaultLimits())
				if err != nil {
					t.Fatal(err)
				}
				d, err := decider.Evaluate(t.Context(), pdp.Call{Request: request, Now: time.Date(2026, 3, 10, 10, 0, 0, 0, time.UTC)})
				if err != nil {
					t.Fatal(err)
				}
				if d.Allow {
					allowed++
				}
				if d.Allow && !slices.ContainsFunc(d.Obligations, func(o evaluation.Obligation) bool { return o.ID == owed }) {
					t.Errorf("%s\nallowed by %q without %s", body, d.Determining, owed)
				}
			}
		}
	}
	if allowed == 0 {
		t.Error("nothing was allowed, so nothing was tested")
	}
}

// Who decides about what waits, and that it is never who asks, in whatever way: that is
// for the PDP to see to, and no policy is asked. Nor does a wide permit let others decide.
func TestStarterApprovers(t *testing.T) {
	t.Parallel()
	bundle, problems := pdp.Load(pdp.FS(policies.Starter()))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	agent := evaluation.Ref{Type: "agent", ID: "agent-release"}
	own := evaluation.Ref{Type: "agent", ID: "agent-alice"} // one of alice's identities
	alice, carol := evaluation.Ref{Type: "user", ID: "alice"}, evaluation.Ref{Type: "user", ID: "carol"}
	for _, decider := range []*pdp.PDP{pdp.Of(bundle, pdp.Options{}), widened(t)} {
		for _, test := range []struct {
			template, tool string
			subject        evaluation.Ref
			actors         evaluation.Actors
			want           string
		}{
			{"team-lead", "github.push_code", agent, evaluation.Actors{}, "alice frank"},
			{"team-lead", "github.push_code", alice, evaluation.Actors{}, "frank"},
			{"team-lead", "github.push_code", carol, evaluation.Actors{}, "alice frank"},
			{"team-lead", "github.push_code", own, evaluation.Actors{}, "frank"},
			{"team-lead", "github.push_code", agent, evaluation.Actors{Chain: []evaluation.Ref{alice}}, "frank"},
			{"team-lead", "github.push_code", carol, evaluation.Actors{Agent: &evaluation.Ref{ID: "agent-alice"}}, "frank"},
			{"production", "aws.terminate_instance", agent, evaluation.Actors{}, "alice carol frank"},
			{"production", "aws.terminate_instance", alice, evaluation.Actors{}, "carol frank"},
			{"production", "aws.terminate_instance", carol, evaluation.Actors{}, "alice frank"},
			{"production", "aws.terminate_instance", own, evaluation.Actors{}, "carol frank"},
			{"production", "aws.terminate_instance", own, evaluation.Actors{Chain: []evaluation.Ref{carol}}, "frank"},
		} {
			a := pdp.Reviewed{ID: "a-1", Template: test.template, Action: "tool.invoke", Subject: test.subject,
				Resource: evaluation.Ref{Type: "tool", ID: test.tool}, Actors: test.actors}
			if got := whoMay(t, decider, a); got != test.want {
				t.Errorf("%+v\nmay be decided by %q, want %q", a, got, test.want)
			}
		}
	}
}

// whoMay are those of the starter bundle who may decide, named as policies name them.
func whoMay(t *testing.T, decider *pdp.PDP, a pdp.Reviewed) string {
	t.Helper()
	var may []string
	for _, person := range []evaluation.Ref{{Type: "User", ID: "alice"}, {Type: "User", ID: "bob"}, {Type: "User", ID: "carol"}, {Type: "User", ID: "dave"},
		{Type: "User", ID: "erin"}, {Type: "User", ID: "frank"}, {Type: "User", ID: "mallory"}, {Type: "Agent", ID: "agent-release"}, {Type: "Agent", ID: "agent-alice"}} {
		r, err := decider.Reviewer("default", pdp.Approver{Entity: person})
		if err != nil {
			t.Fatal(err)
		}
		review, err := r.Review(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		if review.May {
			may = append(may, person.ID)
		}
	}
	return strings.Join(may, " ")
}

// filed is what approvals would be for, in the order in which they were asked for.
type filed struct{ bindings []string }

func (f *filed) Find(context.Context, pdp.ApprovalRequest) (pdp.Found, error) {
	return pdp.Found{}, nil
}

func (f *filed) Offer(context.Context, pdp.ApprovalRequest, evaluation.Reason) (*evaluation.Access, error) {
	return nil, nil
}

func (f *filed) Reserve(context.Context, pdp.ApprovalRequest, string) (pdp.Reservation, error) {
	return nil, nil
}

func (f *filed) File(_ context.Context, a pdp.ApprovalRequest) (*evaluation.Approval, error) {
	f.bindings = append(f.bindings, string(a.Binding))
	return &evaluation.Approval{ID: "a-1", Status: "pending", ExpiresAt: a.Now, StatusURL: "/"}, nil
}

// A gateway that asks again is answered by the approval of its first try, which had
// another invocation, and by none for anything that people were shown otherwise.
func TestAskingAgain(t *testing.T) {
	t.Parallel()
	for bundle, agent := range map[string]string{"starter": "agent-triage", "always-prompt": "agent-triage", "delegated": "agent-triage", "selective": "agent-release"} {
		files, err := policies.Named(bundle)
		if err != nil {
			t.Fatal(err)
		}
		loaded, problems := pdp.Load(pdp.FS(files))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		asked := &filed{}
		decider := pdp.Of(loaded, pdp.Options{Approvals: asked})
		for _, differs := range []string{``, `"agent_invocation_id":"inv-2"`, `"workflow_id":"wf-2"`, `"param_summary":"other"`, `"arguments":{"branch":"other"}`} {
			if _, err := decider.Evaluate(t.Context(), pdp.Call{Request: push(t, agent, differs), Approvals: pdp.SpendOrFile}); err != nil {
				t.Fatal(err)
			}
		}
		if b := asked.bindings; len(b) != 5 || b[1] != b[0] || slices.Contains(b[2:], b[0]) {
			t.Errorf("%s: asked for %d approvals, of\n%s", bundle, len(b), strings.Join(b, "\n"))
		}
	}
}

// push is an agent's request to push code, with a member of its context that differs.
func push(t *testing.T, agent, differs string) evaluation.Request {
	t.Helper()
	members := map[string]jsontext.Value{"agent_invocation_id": jsontext.Value(`"inv-1"`), "workflow_id": jsontext.Value(`"wf-1"`), "param_summary": jsontext.Value(`"push"`)}
	if err := json.Unmarshal([]byte("{"+differs+"}"), &members); err != nil {
		t.Fatal(err)
	}
	sent, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_id":%q,"actor_type":"agent","roles":["workflow_orchestrator"],"department_id":"engineering"},
		"action":"tool.invoke","resource":{"type":"tool","id":"github.push_code"},"context":%s}`, agent, sent)
	request, err := evaluation.DecodeNative([]byte(body), evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return request
}
