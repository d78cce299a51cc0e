package server_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/pdptest"
)

// whySays is what somebody is told of what they may do.
type whySays struct {
	You struct {
		May []string `json:"may"`
		Not []struct {
			Decision string `json:"decision"`
			Detail   string `json:"detail"`
		} `json:"not"`
	} `json:"you"`
}

// whyActor is somebody, by a credential and what is sent beside it.
type whyActor struct {
	key    string
	header []string
}

// whyWalk has random people do random things with random approval requests. Whatever they are told that they may do
// goes well; whatever they are told that they may not is refused, for the reason that they were told, and changes nothing.
type whyWalk struct {
	*counter
	random *rand.Rand
	actors []whyActor
	did    map[string]int
}

func (a whyActor) String() string { return fmt.Sprintf("%s (%d)", a.key, len(a.header)) }

func (w *whyWalk) post(a whyActor, id, act string, version int) (status int, detail string) {
	w.t.Helper()
	path, body := act, ""
	switch act {
	case "approve", "deny":
		path, body = "decision", fmt.Sprintf(`"decision":%q,`, act)
	case "delegate":
		path, body = "decision", fmt.Sprintf(`"decision":"delegate","to":"user::\"%s\"",`, []string{"eve", "ann", "bob"}[w.random.IntN(3)]+fmt.Sprint(version))
	}
	status, text := w.do(a.key, "POST", "/v1/approvals/"+id+"/"+path, fmt.Sprintf(`{%s"reason":"so","version":%d}`, body, version), a.header...)
	var said struct {
		Detail string `json:"detail"`
	}
	must(w.t, json.Unmarshal([]byte(text), &said))
	return status, said.Detail
}

func (w *whyWalk) version(a whyActor, id string) int {
	w.t.Helper()
	status, text := w.do(a.key, "GET", "/v1/approvals/"+id, "", a.header...)
	var is shown
	if status == http.StatusOK {
		must(w.t, json.Unmarshal([]byte(text), &is))
	}
	return is.Version
}

func (w *whyWalk) step(id string) {
	w.t.Helper()
	a := w.actors[w.random.IntN(len(w.actors))]
	version := w.version(a, id)
	status, text := w.do(a.key, "GET", "/v1/approvals/"+id+"/why", "", a.header...)
	acts := []string{"approve", "deny", "delegate", "revoke", "cancel"}
	if status != http.StatusOK {
		for _, act := range acts {
			if got, _ := w.post(a, id, act, 1); got == http.StatusOK || status != http.StatusNotFound || version != 0 {
				w.t.Errorf("%v is answered %d to why, and %d to %s", a, status, got, act)
			}
		}
		w.did["unseen"]++
		return
	}
	var why whySays
	must(w.t, json.Unmarshal([]byte(text), &why))
	told := slices.Clone(why.You.May)
	for _, not := range why.You.Not {
		told = append(told, not.Decision)
		status, detail := w.post(a, id, not.Decision, version)
		same := detail == not.Detail || status == http.StatusConflict && strings.HasPrefix(detail, "this approval request is ") && strings.HasPrefix(not.Detail, "it is ")
		if status == http.StatusOK || !same && (a.header == nil || not.Decision != "cancel") {
			w.t.Errorf("%v may not %s because %q, and is answered %d %q", a, not.Decision, not.Detail, status, detail)
		}
		w.did["not "+not.Decision]++
	}
	slices.Sort(told)
	if slices.Sort(acts); !slices.Equal(told, acts) || w.version(a, id) != version {
		w.t.Errorf("%v is told of %v, and what is refused makes version %d of %d", a, told, w.version(a, id), version)
	}
	if len(why.You.May) > 0 {
		act := why.You.May[w.random.IntN(len(why.You.May))]
		if status, detail := w.post(a, id, act, version); status != http.StatusOK {
			w.t.Errorf("%v may %s, and is answered %d %q", a, act, status, detail)
		}
		w.did[act]++
	}
}

func TestWhyIsAsItIs(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			files := approvalFiles("bundle.yaml", "allow_self_approval: [pair]\n")
			w := &whyWalk{random: rand.New(rand.NewPCG(seed, 21)), did: map[string]int{}}
			askers := []string{"pep", "both", "asker"}
			if seed == 1 {
				w.counter = openCounterOn(t, pdptest.Bundle(files))
				for _, name := range []string{"pep", "other-pep", "explainer", "auditor", "mia", "mia.admin", "noah", "zoe", "eve", "acme-lead", "helper", "both", "asker"} {
					w.actors = append(w.actors, whyActor{key: name})
				}
			} else { // by a console of others, by tokens, and by keys
				r := openRelays(t, files)
				askers, w.counter = []string{"pep"}, r.counter
				for _, name := range []string{"mia", "noah", "eve"} {
					r.key[name] = "Bearer " + r.token(name, "pdp")
					w.actors = append(w.actors, whyActor{key: name}, whyActor{"desk", r.beside(name, forGateway)})
				}
				w.actors = append(w.actors, whyActor{key: "zoe"}, whyActor{key: "pep"}, whyActor{key: "auditor"})
			}
			for n := range 40 {
				question := tool([]string{"push", "stop", "list"}[w.random.IntN(3)], fmt.Sprintf(`"arguments":{"n":%d}`, n))
				if w.random.IntN(4) == 0 {
					question = strings.Replace(question, `"actor_id":"bot"`, `"actor_id":"helper"`, 1)
				}
				asker := askers[w.random.IntN(len(askers))]
				id := w.asks(asker, question).Approval.ID
				for range 8 {
					switch w.random.IntN(40) {
					case 0:
						if w.did["time"]++; w.did["time"] < 4 { // tokens last an hour
							w.Advance(11 * time.Minute)
						}
					case 1, 2, 3:
						w.asks(asker, strings.Replace(question, `"arguments"`, `"justification":"approved","arguments"`, 1), "X-Approval", "none")
					default:
						w.step(id)
					}
				}
			}
			for _, what := range []string{"approve", "deny", "delegate", "revoke", "cancel", "not approve", "not revoke", "not cancel", "unseen"} {
				if w.did[what] < 3 {
					t.Errorf("only so many: %v", w.did)
				}
			}
			t.Log(w.did)
		})
	}
}

// Policies and places are for who decides and for who may have decisions explained, and places for the policies of then.
func TestWhyPeopleAreAsked(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.asks("explainer", tool("push", push)).Approval.ID
	for who, want := range map[string]string{
		"mia":       `{"obligation":{"name":"ask","at":"obligations.yaml:2:1"},"policies":[{"id":"ask","at":"a.cedar:2:1"}],"decision":`,
		"explainer": `{"obligation":{"name":"ask","at":"obligations.yaml:2:1"},"policies":[{"id":"ask","at":"a.cedar:2:1"}],"decision":`,
	} {
		if text := c.besideOf(who, id, "why", http.StatusOK, nil); !strings.HasPrefix(text, want) {
			t.Errorf("%s: got %s\nwant %s", who, text, want)
		}
	}
	id = c.asks("pep", tool("push", push)).Approval.ID
	if text := c.besideOf("pep", id, "why", http.StatusOK, nil); !strings.HasPrefix(text, `{"obligation":{"name":"ask"},"decision":`) {
		t.Errorf("got %s", text)
	}
	c.besideOf("eve", id, "why", http.StatusNotFound, nil)
	c.besideOf("acme-lead", id, "why", http.StatusNotFound, nil)

	must(t, c.Stop(t.Context()))
	c.open(pdptest.Bundle(approvalFiles("a.cedar", "// changed\n")))
	if text := c.besideOf("mia", id, "why", http.StatusOK, nil); !strings.HasPrefix(text, `{"obligation":{"name":"ask"},"policies":[{"id":"ask"}],"decision":`) {
		t.Errorf("got %s", text)
	}
}

// Names and arguments that look like a known id are pointed out, and known ones are not.
func TestWhatLooksAlike(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	question := strings.Replace(tool("push", `"agent":"he1per","on_behalf_of":[{"type":"user","id":"ann"},{"type":"user","id":"n\u043eah"}],
		"arguments":{"to":"zoe","by":["z\u043ee","x"],"a/b":{"deep":"mia\u200b"},"other":"nothing"}`), `"actor_id":"bot"`, `"actor_id":"m\u0456a"`, 1)
	id := c.asks("pep", question).Approval.ID
	want := `"alike":[{"pointer":"/subject/id","known":"mia"},{"pointer":"/context/agent","known":"helper"},` +
		`{"pointer":"/context/on_behalf_of/1/id","known":"noah"},{"pointer":"/context/arguments/a~1b/deep","known":"mia"},` +
		`{"pointer":"/context/arguments/by/0","known":"zoe"}],`
	if text := c.besideOf("zoe", id, "why", http.StatusOK, nil); !strings.Contains(text, want) {
		t.Errorf("got %s\nwant %s", text, want)
	}
}

// Who asks learns who it is.
func TestMe(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	for who, want := range map[string]string{
		"mia":       `{"caller":"key:mia","principal":"user::\"mia\"","tenants":["*"],"permissions":["approve"],"via":"api"}`,
		"acme-lead": `{"caller":"key:acme-lead","principal":"user::\"zoe\"","tenants":["acme"],"permissions":["approve"],"via":"api"}`,
		"pep":       `{"caller":"key:pep","tenants":["*"],"permissions":["decide"],"via":"api"}`,
	} {
		if status, text := c.do(who, "GET", "/v1/me", ""); status != http.StatusOK || text != want {
			t.Errorf("got %d %s\nwant %s", status, text, want)
		}
	}
	if status, _ := c.do("nobody", "GET", "/v1/me", ""); status != http.StatusUnauthorized {
		t.Errorf("nobody is answered %d", status)
	}
	r := openRelays(t, votesFiles())
	want := `"principal":"user::\"noah\"","tenants":["*"],"permissions":["approve"],"via":"console"}`
	if status, text := r.do("desk", "GET", "/v1/me", "", r.beside("noah", forGateway)...); status != http.StatusOK || !strings.HasSuffix(text, want) {
		t.Errorf("got %d %s", status, text)
	}
}

// Who asks cannot find out by guesses that look alike which ids the policies know.
func TestAskersAreToldOfNoIDs(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	question := strings.Replace(tool("push", `"agent":"HELPER"`), `"actor_id":"bot"`, `"actor_id":"MIA"`, 1)
	for who, told := range map[string]bool{"pep": false, "explainer": true} {
		id := c.asks(who, question).Approval.ID
		if text := c.besideOf(who, id, "why", http.StatusOK, nil); strings.Contains(text, `"known":"helper"`) != told || strings.Contains(text, `"alike":[]`) == told {
			t.Errorf("%s: got %s", who, text)
		}
		c.besideOf("zoe", id, "why", http.StatusOK, nil)
	}
}
