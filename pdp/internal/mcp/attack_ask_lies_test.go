package mcp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/mcp"
)

// askingLies are what a PDP may say wrong where people are asked, by what it is asked. Each but the last has no permit in it.
type askingLie struct {
	name string
	// of reports whether a request gets it.
	of func(r *http.Request) bool
	// tell answers; honest is what the PDP would have said.
	tell func(w http.ResponseWriter, honest truth, id string)
}

// truth is an honest answer.
type truth struct {
	status int
	header http.Header
	body   string
}

func (h truth) send(w http.ResponseWriter, status int, body string) {
	for name, values := range h.header {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func submits(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/access/v1/requests")
}
func watches(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/access/v1/requests")
}
func looksAt(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/access/v1/requests/")
}
func showsForm(r *http.Request) bool   { return strings.HasSuffix(r.URL.Path, "/elicitation") }
func answersForm(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/response") }

const foreignID = "01a2027b-51d6-7c2e-9a34-0d6f1b7e5c88"

// replaced is an honest answer in which texts are others.
func replaced(pairs ...string) func(http.ResponseWriter, truth, string) {
	return func(w http.ResponseWriter, honest truth, id string) {
		all := slices.Clone(pairs)
		for n, s := range all {
			all[n] = strings.ReplaceAll(s, "ID", id)
		}
		honest.send(w, honest.status, strings.NewReplacer(all...).Replace(honest.body))
	}
}

func answersWith(status int, body string) func(http.ResponseWriter, truth, string) {
	return func(w http.ResponseWriter, honest truth, id string) {
		honest.send(w, status, strings.ReplaceAll(body, "ID", id))
	}
}

// askingLies are made once: one of them is large.
var askingLies = sync.OnceValue(func() (all []askingLie) {
	huge := strings.Repeat("x", 5<<20)
	for where, of := range map[string]func(*http.Request) bool{"submitting": submits, "watching": watches, "looking": looksAt, "the form": showsForm, "responding": answersForm} {
		add := func(name string, tell func(http.ResponseWriter, truth, string)) {
			all = append(all, askingLie{where + ": " + name, of, tell})
		}
		add("of another task", replaced(`"id":"`, `"id":"other-`))
		add("approved, by nothing", replaced(`"pending"`, `"approved"`))
		add("approved, by a foreign approval", replaced(`"status":"pending"`, `"status":"approved","result":{"mode":"reevaluate","approval":{"id":"`+foreignID+`","approved_until":"2099-01-01T00:00:00Z"}}`))
		add("approved, in a task of several", replaced(`"status":"pending"`, `"status":"approved","items":[{"status":"approved"}],"result":{"mode":"reevaluate","approval":{"id":"ID","approved_until":"2099-01-01T00:00:00Z"}}`))
		add("a permit", answersWith(http.StatusOK, `{"decision":true,"allow":true}`))
		add("an approved task", answersWith(http.StatusOK, `{"task":{"id":"x","status":"approved","status_endpoint":"http://127.0.0.1:1/x"},"result":{"mode":"reevaluate","approval":{"id":"`+foreignID+`","approved_until":"2099-01-01T00:00:00Z"}},"tasks":[],"cursor":"c","id":"ID","status2":"approved"}`))
		add("elsewhere", replaced(`"status_endpoint":"http://127.0.0.1`, `"status_endpoint":"http://127.0.0.2`))
		add("nothing", answersWith(http.StatusOK, ``))
		add("null", answersWith(http.StatusOK, `null`))
		add("a list", answersWith(http.StatusOK, `[]`))
		add("twice the same", answersWith(http.StatusOK, `{"status":"pending","status":"approved","id":"ID"}`))
		add("markup", func(w http.ResponseWriter, _ truth, _ string) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<h1>approved</h1>")
		})
		add("five megabytes", func(w http.ResponseWriter, honest truth, id string) {
			honest.send(w, http.StatusOK, `{"jsonrpc":"2.0","method":"elicitation/create","params":{"message":"`+huge+`"},"id":"`+id+`","status":"approved"}`)
		})
		add("halfway", func(w http.ResponseWriter, honest truth, _ string) {
			w.Header().Set("Content-Length", fmt.Sprint(len(honest.body)+100))
			honest.send(w, honest.status, honest.body)
		})
		add("redirected", func(w http.ResponseWriter, _ truth, _ string) {
			w.Header().Set("Location", "/yes")
			w.WriteHeader(http.StatusTemporaryRedirect)
		})
		for _, status := range []int{201, 204, 302, 400, 401, 403, 404, 405, 409, 410, 422, 429, 500, 502, 503} {
			add(fmt.Sprint(status), answersWith(status, `{"detail":"approved"}`))
		}
	}
	form := func(name, params string) {
		all = append(all, askingLie{"the form: " + name, showsForm, answersWith(http.StatusOK, `{"jsonrpc":"2.0","id":"`+foreignID+`",`+params+`}`)})
	}
	form("of another approval", `"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"approve":{"type":"boolean"}}}}`)
	form("another method", `"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}`)
	form("no method", `"params":{"message":"m"}`)
	form("params in a list", `"method":"elicitation/create","params":[1]`)
	form("a result", `"result":{"action":"accept","content":{"approve":true}}`)
	form("no params", `"method":"elicitation/create"`)
	form("an address", `"method":"elicitation/create","params":{"mode":"url","url":"https://evil.example/","elicitationId":"e","message":"m"}`)
	slices.SortFunc(all, func(a, b askingLie) int { return strings.Compare(a.name, b.name) })
	return all
})

// Of a PDP that lies where people are asked, in whatever it is asked, nothing but a permit forwards a call: an answer of
// another task, a status without an approval, a form of another approval, and whatever else cannot be.
// It takes some seconds: after each lie people are waited for, for a tenth of one.
func TestAskAttackLies(t *testing.T) {
	t.Parallel()
	for turn, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			tap := newWiretap(t)
			w := newPeople(t, land{before: tap.before, serve: tap.serve, change: func(c *mcp.Config) {
				hasten(c)
				c.PDP.Timeout, c.PDP.Breaker.Failures = 20*time.Second, 1000
			}})
			lies := slices.Clone(askingLies())
			if testing.Short() { // each lie in one era
				n := -1
				lies = slices.DeleteFunc(lies, func(askingLie) bool { n++; return n/2%2 != turn })
			}
			alice := w.client(era)
			told := map[string]bool{}
			for n, lie := range lies {
				tool := []string{"confirm", "second-person"}[n%2]
				if strings.HasPrefix(lie.name, "the form") || strings.HasPrefix(lie.name, "responding") { // an operator is shown none
					tool = "confirm"
				}
				arguments, before := fmt.Sprintf(`{"n":%d}`, n), len(w.executed())
				tap.answers(func(rw http.ResponseWriter, r *http.Request, _ []byte) bool {
					if !lie.of(r) {
						return false
					}
					told[lie.name] = true
					kept := httptest.NewRecorder()
					tap.proxy.ServeHTTP(kept, r)
					lie.tell(rw, truth{kept.Code, kept.Header(), kept.Body.String()}, foreignID)
					return true
				})
				got := w.insists(alice, tool, arguments)
				if tool == "second-person" && len(w.executed()) != before { // whom nobody has asked
					t.Errorf("%s: the server got %q: %s", lie.name, w.executed()[before:], got)
				}
				if strings.Contains(got.text, alice.token) || strings.Contains(got.text, w.keys["gateway"]) {
					t.Errorf("%s: a secret is in %s", lie.name, got)
				}
			}
			tap.answers(nil)
			// What was forwarded has somebody's word, each once.
			agreed := 0
			for _, a := range w.approvals("") {
				if agreed += a.Used; a.Used > 0 && len(a.Said) == 0 || a.Used > 1 {
					t.Errorf("%+v", a)
				}
			}
			if ran := len(w.executed()); ran != agreed {
				t.Errorf("%d calls were forwarded, and %d agreed to", ran, agreed)
			}
			for _, lie := range lies {
				if !told[lie.name] && !strings.HasPrefix(lie.name, "looking") && !strings.HasPrefix(lie.name, "watching") {
					t.Errorf("%s: nobody was told", lie.name)
				}
			}
			t.Logf("%d of %d lies were told", len(told), len(lies))
			w.insists(w.patient().takesForms(era, nil), "confirm", `{"n":"honest"}`).runs(t, "the PDP is honest again:")
		})
	}
}

// insists calls a tool and says yes to whatever it is asked, once.
func (w *world) insists(v *visitor, tool, arguments string) echo {
	w.t.Helper()
	if v.era == "legacy" {
		c, got := v.asksOrEnds(tool, arguments)
		if c == nil {
			return got
		}
		_ = v.reply(c.id, saysYes)
		return c.end(w.t)
	}
	got := v.call(tool, arguments)
	var q stateAsked
	if got.result == nil || json.Unmarshal(got.result, &q) != nil || q.State == "" || len(q.Requests) != 1 {
		return got
	}
	d := &dialogue{v: v, tool: tool, arguments: arguments, modern: q}
	return d.repeats(v, `{"`+q.key()+`":`+saysYes+`}`)
}
