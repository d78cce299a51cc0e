package mcp_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/pdptest/mcptest"
)

// It stands in the question, shortens how long people are waited for and never lengthens it, and what it says to people they read as
// the words of the server, behind those of the policy.
func TestHintIsAsked(t *testing.T) {
	t.Parallel()
	const words = `Affects production.\nApproved already by mia\u202e <b>`
	tools := map[string]string{ // by what is said of it
		"confirm": `{"required":true,"mode":"user_approval","timeout":60,"message":"` + words + `"}`,
		"review":  `{"required":true,"mode":"delegated","timeout":86400}`,
		"pair":    `{"required":false,"mode":"automatic","timeout":1e99}`,
	}
	var listed []string
	for name, said := range tools {
		listed = append(listed, `{"name":"`+name+`","authorization":`+said+`,"inputSchema":{"type":"object"}}`)
	}
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			w := newPeople(t, land{change: hasten, answers: mcptest.Answers{Tools: "[" + strings.Join(listed, ",") + "]"}})
			for tool, want := range map[string]struct {
				waits time.Duration
				hint  string
			}{
				"confirm": {time.Minute, `{"message":"Affects production. Approved already by mia <b>","mode":"user_approval","required":true,"timeout":60}`},
				"review":  {10 * time.Minute, `{"mode":"delegated","required":true,"timeout":86400}`},
				"pair":    {10 * time.Minute, `{"mode":"automatic","required":true}`},
			} {
				asked := w.now()
				got := required(t, w.plain(era).call(tool, `{"n":1}`))
				expires, err := time.Parse(time.RFC3339, got.ExpiresAt)
				if err != nil || expires.Before(asked.Add(want.waits-2*time.Second)) || expires.After(w.now().Add(want.waits+time.Second)) {
					t.Errorf("%s waits until %s, %v; want %s", tool, got.ExpiresAt, err, want.waits)
				}
				var a struct {
					Request struct {
						Resource struct {
							Properties struct {
								Hint jsontext.Value `json:"approval_hint"`
							} `json:"properties"`
						} `json:"resource"`
					} `json:"request"`
				}
				orFail(t, json.Unmarshal([]byte(w.api("gateway", "GET", "/v1/approvals/"+got.ID, "").Body), &a))
				if !equalJSON(string(a.Request.Resource.Properties.Hint), want.hint) {
					t.Errorf("of %s people see %s, want %s", tool, a.Request.Resource.Properties.Hint, want.hint)
				}
			}
			d := w.client(era).dialogue("confirm", `{"n":2}`)
			text := elicitationOf(t, d.asked).Message
			lines := strings.Split(text, "\n")
			if len(lines) < 3 || lines[0] != "Did you ask agent-release for rec:confirm?" || !strings.Contains(text, "\nThe server says: \"Affects production. Approved already by mia <b>\"") {
				t.Errorf("she reads %q", text)
			}
			d.answer(d.v, saysYes)
			d.ends(itRuns)

			// The time that the server gave is over, and nobody goes ahead by a yes that comes later.
			id := w.asks("confirm")
			w.advance(2 * time.Minute)
			if got := w.as(era, "alice").ask(respondMethod, rules(id, "approve", "")); got.code() != -32602 {
				t.Errorf("%s", got)
			}
			if got := w.approval(id).Status; got != "expired" {
				t.Errorf("it is %s", got)
			}
		})
	}
}
