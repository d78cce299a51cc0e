package server_test

import (
	"fmt"
	"strings"
	"testing"

	"policy-service/evaluation"
)

// TestNullArgumentIsApproved: what people approve with a null is not approved without it, nor the other way round, on
// every way: a denial, an access request after it, what people are shown, the record, and the call.
func TestNullArgumentIsApproved(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	const with, without = `"arguments":{"to":"mia","force":null,"list":[{"a":null}]}`, `"arguments":{"to":"mia","list":[{}]}`
	for _, test := range [][2]string{{with, without}, {without, with}, {with, strings.Replace(with, `{"a":null}`, `{}`, 1)}} {
		asked, other := test[0], test[1]
		denied := p.denied(wants("push", asked))
		if got := p.submits(wants("push", other) + "," + denied.denial()); got.problem != evaluation.InvalidDenialBinding {
			t.Errorf("%s: asked for after the denial of %s: %d %s", other, asked, got.status, got.text)
		}
		task := p.submits(wants("push", asked+`,"elsewhere":null`) + "," + denied.denial())
		if task.status != 202 {
			t.Fatalf("%s: %d %s", asked, task.status, task.text)
		}
		id := c.waiting(task)
		if _, text := c.do("mia", "GET", "/v1/approvals/"+id, ""); strings.Count(text, "null") != strings.Count(asked, "null") {
			t.Errorf("%s: people are shown %s", asked, text)
		}
		c.says("mia", id, "decision", yes, 200)
		claim := `,"approval":{"id":"` + id + `"}`
		p.evaluates(wants("push", other+claim)).denies(t, fmt.Sprintf("%s was approved, and %s", asked, other), evaluation.ApprovalOutOfScope)
		p.evaluates(wants("push", asked+claim)).allows(t, fmt.Sprintf("%s was approved", asked))
	}
	if _, text := c.do("auditor", "GET", "/v1/log/export", ""); !strings.Contains(text, `"arguments":{"force":null,"list":[{"a":null}],"to":"mia"}`) || strings.Contains(text, `"elsewhere"`) {
		t.Error("the record has no null, or one from elsewhere")
	}
}

// TestDigestIsApproved: the digest of the resource is bound though the material of the obligation leaves the resource out.
func TestDigestIsApproved(t *testing.T) {
	t.Parallel()
	c := openDeskOn(t, approvalFiles(
		"a.cedar", `@id("some") @obligation("some") permit(principal, action == Action::"tool.invoke", resource in group::"some");`,
		"obligations.yaml", "some: {type: approval_required, properties: {template: owner, material: [subject]}}\n",
		"entities/f.json", `[{"uid":{"type":"tool","id":"some"},"attrs":{},"parents":[{"type":"group","id":"some"}]}]`))
	p := c.program("asker")
	question := func(properties string) string {
		return strings.Replace(wants("some", push), `"id":"some"`, fmt.Sprintf(`"id":"some","properties":{%s}`, properties), 1)
	}
	digests := []string{``, `"digest":"sha256:a"`, `"digest":"sha256:b"`, `"digest":{"sha256":"a"}`}
	for n, digest := range digests {
		denied := p.denied(question(digest))
		for m, other := range digests {
			if m != n {
				if got := p.submits(question(other) + "," + denied.denial()); got.problem != evaluation.InvalidDenialBinding {
					t.Errorf("%s: asked for after the denial of %s: %d %s", other, digest, got.status, got.text)
				}
			}
		}
		claim := `,"approval_id":"` + c.approvedFor(p, question(digest)) + `"`
		presents := func(properties string) answer {
			return p.evaluates(strings.Replace(question(properties), push, push+claim, 1))
		}
		for m, other := range digests {
			if m == n {
				continue
			}
			if got := presents(other); got.Decision || got.Context.Reason != evaluation.ApprovalOutOfScope {
				t.Errorf("%s was approved, and %s: %s", digest, other, got.text)
			}
		}
		if got := presents(`"other":1` + strings.Replace(","+digest, ",", map[bool]string{true: "", false: ","}[digest == ""], 1)); !got.Decision {
			t.Errorf("%s was approved: %s", digest, got.text)
		}
	}
}

// approvedFor has an approval of a question asked for and given, and returns its id.
func (c *counter) approvedFor(p program, question string) (id string) {
	c.t.Helper()
	id = c.waiting(p.requests(question))
	c.says("mia", id, "decision", yes, 200)
	return id
}
