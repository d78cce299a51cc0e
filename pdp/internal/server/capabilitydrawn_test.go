package server_test

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation/capability"
	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
)

// People read one and the same sentence about a whole grant, wherever they read it: by HTTP, in a webhook, in the form and
// the notification of an MCP client, and in the console. It begins with what is open-ended, and no name in it passes for
// words of the service.
func TestGrantIsDrawnInOneSentence(t *testing.T) {
	t.Parallel()
	secret, heard := []byte(strings.Repeat("s", 32)), make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = webhook.Verify(secret, r.Header, body, time.Now(), time.Minute)
		}
		if err != nil {
			t.Error(err)
		}
		heard <- string(body)
	}))
	defer receiver.Close()
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, secret, 0o600))
	w := openWallet(t, ownConsole(), func(config *server.Config) {
		config.Approvals.Webhooks = []webhook.Config{{URL: receiver.URL, SecretFile: file, Allow: []string{"127.0.0.1"}}}
	})
	key := w.holder.Key().Thumbprint()
	any := constraintOf(t, `{"constraint_type":"wildcard"}`)
	mia := w.consoleIn("mia")
	for name, test := range map[string]struct {
		change func(*capability.Ask)
		tools  []string
		want   string
	}{
		"all open": {func(a *capability.Ask) { a.Audience = "people" }, []string{"*"},
			"Open-ended in tools, uses and arguments: bot may call all tools of people for 1 h, any number of times, with any arguments"},
		"all bound": {func(a *capability.Ask) {
			a.MaxUses, a.Arguments, a.Duration = 5, capability.Arguments{"target": constraintOf(t, `"staging"`)}, 90*time.Minute
		}, []string{"danger"},
			`bot may call danger of b for 90 min, 5 times, where target = "staging"`},
		"some open": {func(a *capability.Ask) {
			a.MaxUses, a.Arguments = 1, capability.Arguments{"*": any, "n": any, "x": constraintOf(t, `{"constraint_type":"prefix","value":"a/"}`)}
		}, []string{"danger1", "danger2", "danger3"},
			"Open-ended in other arguments and argument n: bot may call danger1, danger2 and danger3 of b for 1 h, once, where other arguments are any, n is any and x is bound (prefix)"},
		"no arguments": {func(a *capability.Ask) { a.MaxUses, a.Arguments = 2, capability.Arguments{} }, []string{"danger"},
			"bot may call danger of b for 1 h, 2 times, without arguments"},
		"names that would be sentences": {func(a *capability.Ask) {
			a.Holder.ID, a.MaxUses = "bot may call nothing; held by key x. bot", 3
			a.Arguments = capability.Arguments{"a = 1 and b": constraintOf(t, `"c; held by key y"`)}
		}, []string{"danger of b for 1 s, 1 times, without arguments", "danger all tools"},
			`"bot may call nothing; held by key x. bot" may call "danger of b for 1 s, 1 times, without arguments" and "danger all tools" of b for 1 h, 3 times, where "a = 1 and b" = "c; held by key y"`},
	} {
		t.Run(name, func(t *testing.T) {
			id := w.asksFor(http.StatusAccepted, test.change, test.tools...).Approval.ID
			want := test.want + "; held by key " + key
			var view struct {
				Message string `json:"message"`
			}
			_, text := w.do("mia", "GET", "/v1/approvals/"+id, "")
			must(t, json.Unmarshal([]byte(text), &view))
			if view.Message != want {
				t.Errorf("by HTTP it is\n%s\nwant\n%s", view.Message, want)
			}
			if told := <-heard; !strings.Contains(told, id) || !strings.Contains(told, quotedIn(t, want)) {
				t.Errorf("the webhook has %s", told)
			}
			for _, which := range []string{"elicitation?form=approve", "elicitation?form=review", "authorization-notification"} {
				var asked struct {
					Params struct {
						Message string `json:"message"`
					} `json:"params"`
				}
				must(t, json.Unmarshal([]byte(w.message("mia", id, which, http.StatusOK)), &asked))
				if line, _, _ := strings.Cut(asked.Params.Message, "\n"); line != want {
					t.Errorf("%s begins with\n%s\nwant\n%s", which, line, want)
				}
			}
			page := consoleGet(t, mia, w.ConsoleURL()+"/approvals/"+id)
			shown := html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page.body, ""))
			has(t, shown, want, "written by the service or the policy, from what is asked")
			inbox := consoleGet(t, mia, w.ConsoleURL()+"/approvals")
			shown = html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(inbox.body, ""))
			has(t, shown, want[:100])
		})
	}
}

// quotedIn is a text as JSON has it, without its quotation marks.
func quotedIn(t *testing.T, text string) string {
	t.Helper()
	quoted, err := json.Marshal(text)
	must(t, err)
	return strings.Trim(string(quoted), `"`)
}

// TestGrantIsAskedForAsOne: a question whether a capability may be granted files no approval request, because people would
// read other words, and uses no approval.
func TestGrantIsAskedForAsOne(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.welcome("teller", "", auth.Decide, auth.Capability, auth.Request)
	w.as = "teller"
	p, of := w.program("teller"), func(a *capability.Ask) { a.Audience = "people" }
	asked := w.asking(of, "*")
	question := fmt.Sprintf(`"subject":{"type":"agent","id":"bot"},"action":{"name":"capability.grant","properties":{"audience":"people","constrained":[],"depth":0,"exact":{},"jkt":%q,"offline":false,"seconds":3600}},"resource":{"type":"server","id":"people","properties":{"digest":%q}},"context":{"tools":["people:*"]`,
		w.holder.Key().Thumbprint(), asked.Digest())
	if a := p.evaluates(question + "}"); a.Decision || a.Context.Request != nil {
		t.Errorf("by AuthZEN people would read the words of the policy: %s", a.text)
	}
	native := `{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"capability.grant","resource":{"type":"tool","id":"b:danger"}}`
	if r := w.reply("teller", "POST", "/v1/authorize", native); r.status != 200 || strings.Contains(r.text, `"approval"`) {
		t.Errorf("natively: %+v", r)
	}
	waits := w.asksFor(http.StatusAccepted, of, "*")
	w.says("mia", waits.Approval.ID, "decision", yes, http.StatusOK)
	if a := p.evaluates(question + fmt.Sprintf(`,"approval":{"id":%q}}`, waits.Approval.ID)); a.Decision {
		t.Errorf("the approval of a grant is used by a question: %s", a.text)
	}
	w.asksFor(http.StatusCreated, func(a *capability.Ask) { of(a); a.ApprovalID = waits.Approval.ID }, "*")
}
