package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

// What the caller of an answer enforces it may adopt: a caller that forwards the requests of others may not, whatever they say.
// Without credentials, the declaration counts.
func TestOctoberNeedsTheEnforcingPEP(t *testing.T) {
	t.Parallel()
	bundle := pdptest.Bundle(map[string]string{
		"a.cedar":           `@obligation("tell") permit(principal is user, action, resource);`,
		"obligations.yaml":  `tell: {type: notification, properties: {to: ops, body: b}}`,
		"entities/all.json": `[{"uid":{"type":"doc","id":"d"},"attrs":{},"parents":[]}]`,
	})
	question := func(extensions string) string {
		return `{"subject":{"type":"user","id":"u"},"action":{"name":"read"},"resource":{"type":"doc","id":"d"},"context":{` + extensions + `"supported_obligations":["notification"]}}`
	}
	const adopts = `"supported_mandatory_extensions":["obligations"],`
	const july = `{"decision":true,"context":{"obligations":[{"id":"tell","type":"notification","properties":{"body":"b","to":"ops"}}]}}`
	october := strings.Replace(july, `"ops"`, `["ops"]`, 1)
	data := t.TempDir()
	enforces := addKey(t, data, "pep", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Search}})
	forwards := addKey(t, data, "proxy", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Search}, Forwards: true})
	s := pdptest.Start(t, bundle, withData(data))
	open := pdptest.Start(t, bundle)
	const denied = `{"decision":false,"context":{"reason":"obligation_unsupported"}}`
	for _, test := range []struct {
		name string
		got  pdptest.Response
		want string
	}{
		{"the PEP", s.Post(evaluationPath, question(adopts), "Authorization", enforces), october},
		{"a proxy", s.Post(evaluationPath, question(adopts), "Authorization", forwards), denied},
		{"a proxy, by July's draft", s.Post(evaluationPath, question(""), "Authorization", forwards), july},
		{"a proxy, in a batch", s.Post("/access/v1/evaluations", `{"evaluations":[`+question(adopts)+`]}`, "Authorization", forwards), `{"evaluations":[` + denied + `]}`},
		{"a proxy that searches", s.Post("/access/v1/search/resource", question(adopts), "Authorization", forwards), `{"page":{"next_token":""},"results":[]}`},
		{"without credentials", open.Post(evaluationPath, question(adopts)), october},
	} {
		if test.got.Status != 200 || strings.Replace(test.got.Body, `"page":{"next_token":""},`, "", 1) != strings.Replace(test.want, `"page":{"next_token":""},`, "", 1) {
			t.Errorf("%s: got %d %s, want %s", test.name, test.got.Status, test.got.Body, test.want)
		}
	}
}

// The metadata names the types of the bundle's draft: 11 of Obligations Core.
func TestOctoberMetadata(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		"obligations: july":    `"capabilities":["urn:openid:authzen:capability:obligations"],"supported_obligations":["approval_required","capability_terms","custom","log","notification","redact","session_termination","step-up"]`,
		"obligations: october": `"capabilities":["urn:openid:authzen:capability:obligations"],"supported_obligations":["custom","notification","session_termination","step-up"]`,
	} {
		s := pdptest.Start(t, pdptest.Bundle(map[string]string{"a.cedar": `permit(principal is user, action, resource);`, "bundle.yaml": config}), func(c *server.Config) { c.Program.Authenticator = asCaller{} }, public)
		if got := s.Get(metadataPath); got.Status != 200 || !strings.Contains(got.Body, want) {
			t.Errorf("%s: %d %s", config, got.Status, got.Body)
		}
	}
}

// What a PEP declares binds the denial that it requests an approval after, and not the approval: a PEP that learns one more
// type keeps its approvals.
func TestOctoberApprovals(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	const adopts = push + `,"supported_mandatory_extensions":["obligations"],"supported_obligations":["custom"]`
	const more = push + `,"supported_mandatory_extensions":["obligations"],"supported_obligations":["custom","step-up"]`
	denied := p.denied(wants("push", adopts))
	if strings.Contains(denied.text, `obligations":`) {
		t.Errorf("got %s", denied.text)
	}
	claims := claimed[evaluation.BindingClaims](t, denied.Context.Request.BindingToken)
	if got := strings.Join(claims.Members, " "); got != "arguments supported_mandatory_extensions supported_obligations" {
		t.Errorf("bound members: %s", got)
	}
	for name, context := range map[string]string{"declaring more": more, "declaring nothing": push, "by July's draft": push + `,"supported_obligations":["custom"]`} {
		p.submits(wants("push", context)+","+denied.denial()).refused(t, name, 400, evaluation.InvalidDenialBinding)
	}
	july := p.denied(wants("push", push))
	p.submits(wants("push", adopts)+","+july.denial()).refused(t, "of a denial by July's draft", 400, evaluation.InvalidDenialBinding)
	c.nobodyIsAsked(t)
	items := []string{wants("push", adopts), wants("push", push+`,"supported_obligations":["approval_required"]`)}
	denial := p.batch("", items...)[1]
	p.submits(items[0]+","+denial.denial()).refused(t, "of an item that adopted nothing", 400, evaluation.InvalidDenialBinding)
	c.nobodyIsAsked(t)
	if task := p.submits(items[1] + "," + denial.denial()); task.status != http.StatusAccepted {
		t.Errorf("an item of a batch that another item made one of October's: %d %s", task.status, task.text)
	} else {
		p.cancels(task.Task.ID, "")
	}
	presenting, _ := p.granted(wants("push", adopts))
	p.evaluates(wants("push", more+","+presenting)).allows(t, "which learned a type since")
}

// A bundle that says october changes no answer to the service itself, nor one in the native shape: capabilities are granted
// after people approved, and are still good when they are looked at again.
func TestOctoberLeavesGrantsAlone(t *testing.T) {
	t.Parallel()
	files := capabilityFiles()
	files["bundle.yaml"] = "obligations: october\n"
	w := openWalletOn(t, pdptest.Bundle(files))
	w.Advance(time.Minute) // proofs need no nonce any more
	const tool = "b:dangerous_operation"
	waits := w.asksFor(http.StatusAccepted, nil, "dangerous_operation")
	w.says("mia", waits.Approval.ID, "decision", yes, http.StatusOK)
	g := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.ApprovalID = waits.Approval.ID }, "dangerous_operation")
	w.is("allow", w.call(g, tool))
	w.restart(func() {})
	w.Advance(time.Minute)
	w.is("allow", w.call(g, tool))
}
