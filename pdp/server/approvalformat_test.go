package server_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/approval"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
)

// TestFormat2 starts on a data directory that a server of commit 2858435 left, with approvals.db of format 2: the last
// one that bound no digest and no null, and knew no continuation. What was approved then goes through, unless it would
// have to be bound to more now. What was used then is not continued.
func TestFormat2(t *testing.T) {
	t.Parallel()
	c := &counter{t: t, data: t.TempDir(), Clock: clock.At(pdptest.Now)}
	unpack(t, filepath.Join("testdata", "data-2858435.tar.gz"), c.data)
	var of struct {
		Keys map[string]string `json:"keys"`
		// Approvals are the ids of approval requests, and of the decisions that used one, by what they are about.
		Approvals map[string]string `json:"approvals"`
	}
	must(t, json.Unmarshal(c.file("told.json"), &of))
	c.key = of.Keys
	before := c.file(approval.FileName)
	if found := c.doctor(); found != "" {
		t.Errorf("doctor says %s", found)
	}
	bundle := approvalFiles(
		"a.cedar", `@id("some") @obligation("some") permit(principal, action == Action::"tool.invoke", resource in group::"some");`,
		"obligations.yaml", "some: {type: approval_required, properties: {template: owner, material: [subject, context.arguments]}}\n",
		"entities/f.json", `[{"uid":{"type":"tool","id":"some"},"attrs":{},"parents":[{"type":"group","id":"some"}]}]`)
	c.open(pdptest.Bundle(bundle), public)
	presents := func(id, context, name string) told {
		return c.asks("pep", tool(id, context+`,"approval_id":"`+of.Approvals[name]+`"`), "X-Approval", "none")
	}
	continues := func(id, context, name string) told {
		return c.asks("pep", tool(id, context+round(of.Approvals[name], of.Approvals["decision of "+name], 1)), "X-Approval", "none")
	}
	if presents("push", `"arguments":{"branch":"pending"}`, "pending").may() {
		t.Error("what waits goes through")
	}
	c.says("mia", of.Approvals["pending"], "decision", yes, 200)
	for context, name := range map[string]string{
		`"arguments":{"branch":"pending"}`: "pending",
		push:                               "approved",
		`"arguments":{"branch":"null"}`:    "null", // what people were shown: the null was nowhere to be seen
	} {
		if presents("push", strings.Replace(context, `}`, `,"x":null}`, 1), name).may() {
			t.Errorf("%s: goes through with a null that nobody approved", name)
		}
		if !presents("push", context, name).may() {
			t.Errorf("%s: does not go through", name)
		}
		if presents("push", context, name).may() {
			t.Errorf("%s: goes through twice", name)
		}
	}
	if presents("some", push, "some").may() {
		t.Error("an approval that is bound to no digest counts where one is bound")
	}
	p := c.program("asker")
	for _, properties := range []string{``, `,"properties":{"digest":"sha256:old"}`, `,"properties":{"digest":"sha256:new"}`} {
		question := strings.Replace(wants("some", `"arguments":{"n":1},"approval_id":"`+of.Approvals["digest"]+`"`), `"id":"some"`, `"id":"some"`+properties, 1)
		if p.evaluates(question).Decision {
			t.Errorf("%s: goes through by an approval of before digests were bound", properties)
		}
	}
	if continues("push", `"arguments":{"branch":"used"}`, "used").may() || continues("list", push, "list").may() {
		t.Error("what was used before is continued")
	}
	for n := range 3 {
		if got := presents("list", push, "list").may(); got != (n < 2) {
			t.Errorf("use %d of the two that were left: %v", n+1, got)
		}
	}
	// Back to the older file: it is taken over once more, and what became of its approvals is in the log.
	c.restart(func() { c.write(approval.FileName, before) })
	if presents("push", push, "approved").may() || presents("list", push, "list").may() {
		t.Error("an older copy has a use again")
	}
}
