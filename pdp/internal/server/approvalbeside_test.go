package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/pdptest"
)

// besideOf reads what there is beside an approval request, and wants a status.
func (c *counter) besideOf(who, id, what string, want int, into any) string {
	c.t.Helper()
	status, text := c.do(who, "GET", "/v1/approvals/"+id+"/"+what, "")
	if status != want {
		c.t.Errorf("%s asks for %s: got %d %s, want %d", who, what, status, text, want)
	}
	if status == http.StatusOK && into != nil {
		must(c.t, json.Unmarshal([]byte(text), into))
	}
	return text
}

type besideDeciders struct {
	Items []string `json:"items"`
	More  bool     `json:"more"`
}

// Who else may decide: by a key, by an entity or by a delegation; each once, and nobody who asks or has voted.
func TestDeciders(t *testing.T) {
	t.Parallel()
	c := openCounterOn(t, pdptest.Bundle(approvalFiles("entities/g.json", `[{"uid":{"type":"user","id":"ann"},"attrs":{},"parents":[{"type":"team","id":"leads"}]}]`)))
	id := c.asks("pep", tool("push", push)).Approval.ID
	wants := func(name, who, want string) {
		t.Helper()
		var got besideDeciders
		if text := c.besideOf(who, id, "deciders", http.StatusOK, &got); fmt.Sprint(got.Items) != want || got.More {
			t.Errorf("%s: got %s, want %s", name, text, want)
		}
	}
	wants("at first", "mia", `[user::"ann" user::"noah" user::"zoe"]`)
	wants("for another", "noah", `[user::"ann" user::"mia" user::"zoe"]`)
	wants("by another name", "mia.admin", `[user::"ann" user::"noah" user::"zoe"]`)
	c.besideOf("eve", id, "deciders", http.StatusNotFound, nil)
	c.besideOf("other-pep", id, "deciders", http.StatusNotFound, nil)
	if text := c.besideOf("pep", id, "deciders", http.StatusOK, nil); text != `{"items":[],"more":true}` {
		t.Errorf("the PEP gets %s", text)
	}
	c.besideOf("pep", id, "previous", http.StatusForbidden, nil)
	c.besideOf("eve", id, "previous", http.StatusNotFound, nil)

	c.says("noah", id, "decision", `{"decision":"delegate","to":"user::\"eve\"","reason":"away"}`, http.StatusOK)
	wants("after a delegation", "mia", `[user::"ann" user::"eve" user::"zoe"]`)
	wants("for the one who named another", "noah", `[user::"ann" user::"eve" user::"mia" user::"zoe"]`)
	c.says("mia", id, "decision", yes, http.StatusOK)
	wants("after the decision", "noah", `[]`)

	// The agent helper is noah, and who asks by the key of zoe is zoe.
	own := c.asks("both", strings.Replace(tool("push", push), `"actor_id":"bot"`, `"actor_id":"helper"`, 1)).Approval.ID
	id = own
	wants("of those who ask", "mia", `[user::"ann"]`) // zoe has another key, and is the same person
}

// Of very many who may decide some are named.
func TestDecidersAreFew(t *testing.T) {
	t.Parallel()
	var entities []string
	for n := range 3000 {
		entities = append(entities, fmt.Sprintf(`{"uid":{"type":"user","id":"u%04d"},"attrs":{},"parents":[{"type":"team","id":"leads"}]}`, n))
	}
	all := "[" + strings.Join(entities, ",") + "]"
	c := openCounterOn(t, pdptest.Bundle(approvalFiles("entities/g.json", all)))
	var got besideDeciders
	id := c.asks("pep", tool("push", push)).Approval.ID
	if text := c.besideOf("mia", id, "deciders", http.StatusOK, &got); len(got.Items) != 20 || !got.More || got.Items[0] != `user::"noah"` {
		t.Errorf("got %s", text)
	}
	// Where the policies let none of them, not everybody is asked about.
	c = openCounterOn(t, pdptest.Bundle(approvalFiles("entities/g.json", all, "a.cedar",
		`@id("not") forbid(principal, action == Action::"approval.decide", resource) when { principal in team::"leads" && ![user::"mia", user::"zoe", user::"u2999"].contains(principal) };`)))
	id = c.asks("pep", tool("push", push)).Approval.ID
	start := time.Now()
	if text := c.besideOf("mia", id, "deciders", http.StatusOK, &got); fmt.Sprint(got.Items) != `[user::"zoe"]` || !got.More {
		t.Errorf("got %s", text)
	}
	t.Logf("%v", time.Since(start))
}

// The last approval request that was for the same, if the caller may see it.
func TestPreviousApproval(t *testing.T) {
	t.Parallel()
	source := pdptest.Bundle(approvalFiles())
	c := openCounterOn(t, source)
	wants := func(name, who, id, want string) {
		t.Helper()
		var got struct {
			Items []shown `json:"items"`
		}
		text := c.besideOf(who, id, "previous", http.StatusOK, &got)
		if len(got.Items) > 1 || want == "" && len(got.Items) > 0 || want != "" && (len(got.Items) == 0 || got.Items[0].ID != want) {
			t.Errorf("%s: got %s, want %s", name, text, want)
		}
	}
	ask := func(n int) string {
		return c.asks("pep", tool("push", fmt.Sprintf(`"arguments":{"n":%d}`, n))).Approval.ID
	}
	first, second := ask(1), ask(2)
	wants("with one that waits", "mia", second, "")
	c.says("mia", second, "decision", no, http.StatusOK)
	third, other := ask(3), c.asks("pep", tool("stop", push)).Approval.ID
	wants("with one that was denied", "mia", third, second)
	wants("of one before", "mia", first, "")
	wants("for another", "mia", other, "")
	c.says("mia", first, "decision", yes, http.StatusOK)
	wants("the newest", "mia", third, second)
	c.says("noah", third, "decision", `{"decision":"delegate","to":"user::\"eve\"","reason":"away"}`, http.StatusOK)
	wants("who may see only this one", "eve", third, "")

	must(t, c.Stop(t.Context()))
	c.open(source)
	wants("after a start", "mia", third, second)
	c.Advance(31 * 24 * time.Hour)
	id := ask(9)
	eventually(t, "the others are forgotten, or are out", func() bool { _, status := c.sees("mia", second); return status == http.StatusNotFound })
	eventually(t, "nothing before is left but what ended now", func() bool {
		var got struct {
			Items []shown `json:"items"`
		}
		c.besideOf("mia", id, "previous", http.StatusOK, &got)
		return len(got.Items) == 0 || got.Items[0].ID == third && got.Items[0].Status == "expired"
	})
}
