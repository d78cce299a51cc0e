package authzenclient_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
)

func TestBatch(t *testing.T) {
	t.Parallel()
	const (
		t1 = `{"decision":true}`
		f0 = `{"decision":false}`
		ob = `{"decision":true,"context":{"obligations":[{"id":"l","type":"log","properties":{"n":7}}]}}`
		er = `{"decision":false,"context":{"error":{"status":400,"message":"no subject"}}}`
	)
	all, deny, permit := evaluation.ExecuteAll, evaluation.DenyOnFirstDeny, evaluation.PermitOnFirstPermit
	for name, test := range map[string]struct {
		semantic evaluation.Semantic
		items    string
		want     string // of three: P permit, D deny, E error, B bad item, O obligations, S skipped
	}{
		"all":                        {"", t1 + "," + f0 + "," + t1, "PDP"},
		"all, said":                  {all, t1 + "," + t1 + "," + t1, "PPP"},
		"obligation and error":       {"", ob + "," + er + "," + t1, "OBP"},
		"one odd item":               {"", t1 + `,{"decision":"true"},` + t1, "PEP"},
		"items that are no objects":  {"", `null,true,` + t1, "EEP"},
		"too few":                    {"", t1 + "," + t1, "EEE"},
		"too many":                   {"", t1 + "," + t1 + "," + t1 + "," + t1, "EEE"},
		"none":                       {"", ``, "EEE"},
		"none, short-circuit":        {permit, ``, "EEE"},
		"deny stops":                 {deny, t1 + "," + f0, "PDS"},
		"deny stops at once":         {deny, f0, "DSS"},
		"error stops":                {deny, t1 + "," + er, "PBS"},
		"permit does not stop deny":  {deny, t1, "EEE"},
		"deny in the middle":         {deny, f0 + "," + f0, "EEE"},
		"deny, all decided":          {deny, t1 + "," + f0 + "," + t1, "PDP"},
		"permit stops":               {permit, f0 + "," + t1, "DPS"},
		"permit stops at once":       {permit, t1, "PSS"},
		"obligated permit stops":     {permit, f0 + "," + ob, "DOS"},
		"deny does not stop permit":  {permit, f0, "EEE"},
		"odd item cannot stop":       {permit, f0 + `,{"decision":1}`, "EEE"},
		"permit, all decided":        {permit, f0 + "," + f0 + "," + f0, "DDD"},
		"too many, short-circuit":    {deny, t1 + "," + t1 + "," + t1 + "," + f0, "EEE"},
		"obligated all, no stopping": {deny, ob + "," + ob + "," + f0, "OOD"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, stub(t, says(`{"decision":true,"evaluations":[`+test.items+`]}`)))
			got := ""
			for _, d := range c.EvaluateBatch(t.Context(), test.semantic, question, question, question) {
				got += letter(t, d)
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// What stands beside the items and qualifies a decision denies all of them: nobody can say which of them it is for. What
// means nothing there changes nothing.
func TestBatchIsQualified(t *testing.T) {
	t.Parallel()
	const log = `[{"id":"a","type":"log"}]`
	for beside, kind := range map[string]authzenclient.Kind{
		`"context":{"obligations":` + log + `}`:                            authzenclient.Obligated,
		`"obligations":` + log:                                             authzenclient.Obligated,
		`"obligations":{"log":true}`:                                       authzenclient.Obligated,
		`"decision":false,"context":{"obligations":` + log + `}`:           authzenclient.Obligated,
		`"obligation_details":` + log:                                      authzenclient.Odd,
		`"obligations":7`:                                                  authzenclient.Odd,
		`"context":{"obligations":"log"}`:                                  authzenclient.Odd,
		`"context":{"required_obligations":["log"]}`:                       authzenclient.Odd,
		`"context":7`:                                                      authzenclient.Odd,
		`"context":{"error":{"status":500}}`:                               authzenclient.BadItem,
		`"error":"m"`:                                                      authzenclient.BadItem,
		`"decision":false,"context":{"reason":"x","obligations":[]}`:       "",
		`"decision":false,"allow":false,"context":null,"obligations":null`: "",
	} {
		var p pep
		c := newClient(t, stub(t, says(`{`+beside+`,"evaluations":[{"decision":true},{"decision":true}]}`)), july)
		for _, d := range c.EvaluateBatch(t.Context(), evaluation.DenyOnFirstDeny, question, question) {
			if kind != "" {
				wantDeny(t, d, kind)
			} else if !d.Permitted() {
				t.Errorf("%s: %v", beside, d)
			}
		}
		all := c.DecideBatch(t.Context(), evaluation.DenyOnFirstDeny, p.handlers().Types(), question, question)
		if e := authzenclient.DischargeAll(t.Context(), p.handlers(), all...); e.Permitted() != (kind == "") || len(p.done) > 0 {
			t.Errorf("%s: %v, done %v", beside, e.First(), p.done)
		}
	}
}

func letter(t *testing.T, d authzenclient.Decision) string {
	t.Helper()
	var e *authzenclient.Error
	switch {
	case d.Permitted():
		return "P"
	case d.Err() == nil:
		return "D"
	case !errors.As(d.Err(), &e) || e.Op != "batch":
		t.Errorf("%v is no error of a batch", d.Err())
	case e.Kind == authzenclient.BadItem:
		if e.Status != 400 || e.Detail != "no subject" {
			t.Errorf("item error %d %q", e.Status, e.Detail)
		}
		return "B"
	case e.Kind == authzenclient.Obligated:
		return "O"
	case e.Kind == authzenclient.Skipped:
		return "S"
	}
	return "E"
}

func TestBatchAsks(t *testing.T) {
	t.Parallel()
	var body map[string]any
	s := func(r *http.Request) (*http.Response, error) {
		body = nil
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		return answer(200, `{"evaluations":[{"decision":true},{"decision":true}]}`, "X-Decision-Id", "d")(r)
	}
	c, asked := scripted(t, []step{s})
	got := c.EvaluateBatch(t.Context(), evaluation.DenyOnFirstDeny, question, question)
	if !got[1].Permitted() || got[1].ID() != "d.1" || got[0].RequestID() == "" || got[0].RequestID() != got[1].RequestID() {
		t.Errorf("%v, id %q", got, got[1].ID())
	}
	if body["options"].(map[string]any)["evaluations_semantic"] != "deny_on_first_deny" || len(body["evaluations"].([]any)) != 2 {
		t.Errorf("asked %v", body)
	}
	c.EvaluateBatch(t.Context(), evaluation.ExecuteAll, question, question)
	if _, there := body["options"]; there {
		t.Errorf("asked %v", body)
	}
	before := asked.asked.Load()
	if got := c.EvaluateBatch(t.Context(), ""); len(got) != 0 {
		t.Errorf("an empty batch has %d answers", len(got))
	}
	for _, d := range c.EvaluateBatch(t.Context(), "all", question, question) {
		wantDeny(t, d, authzenclient.NotAsked)
	}
	other := question
	other.Tenant = "acme"
	for _, d := range c.EvaluateBatch(t.Context(), "", question, other) {
		wantDeny(t, d, authzenclient.NotAsked)
	}
	if asked.asked.Load() != before {
		t.Error("something was sent")
	}
}

// What all requests have in common is sent once, and each is asked about as it would be alone.
func TestBatchShares(t *testing.T) {
	t.Parallel()
	var sent, answers string
	c, _ := scripted(t, []step{func(r *http.Request) (*http.Response, error) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		sent = string(text)
		return answer(200, `{"evaluations":[`+answers+`]}`)(r)
	}})
	with := func(change func(*evaluation.Request)) evaluation.Request {
		q := evaluation.Request{
			Subject: evaluation.Entity{Type: "user", ID: "a", Properties: object(t, map[string]any{"n": 1})}, Action: evaluation.Action{Name: "read"},
			Resource: evaluation.Entity{Type: "doc", ID: "1"}, Context: object(t, map[string]any{"x": []any{"y"}}),
		}
		change(&q)
		return q
	}
	doc := func(id string) evaluation.Request { return with(func(q *evaluation.Request) { q.Resource.ID = id }) }
	bare := with(func(q *evaluation.Request) { q.Context = evaluation.Object{} })
	asks := func(pointers ...string) evaluation.Request {
		return with(func(q *evaluation.Request) { q.Unknown = unknownAt(t, pointers...) })
	}
	const subject, all = `"subject":{"type":"user","id":"a","properties":{"n":1}},"action":{"name":"read"}`, `"subject":{"type":"user","id":"a","properties":{"n":1}},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}`
	for want, requests := range map[string][]evaluation.Request{
		`{"evaluations":[{` + all + `,"context":{"x":["y"]}}]}`:                                                                             {doc("1")},
		`{` + subject + `,"context":{"x":["y"]},"evaluations":[{"resource":{"type":"doc","id":"1"}},{"resource":{"type":"doc","id":"2"}}]}`: {doc("1"), doc("2")},
		`{` + all + `,"context":{"x":["y"]},"evaluations":[{},{}]}`:                                                                         {doc("1"), doc("1")},
		`{` + all + `,"evaluations":[{"context":{"x":["y"]}},{}]}`:                                                                          {doc("1"), bare},
		`{` + all + `,"evaluations":[{},{}]}`:                                                                                               {bare, bare},
		`{` + all + `,"context":{"x":["y"]},"options":{"unknown":["/context/x"]},"evaluations":[{},{}]}`:                                    {asks("/context/x"), asks("/context/x")},
		`{` + all + `,"context":{"x":["y"]},"options":{"unknown":[]},"evaluations":[{},{}]}`:                                                {asks(), asks()},
		`{` + all + `,"context":{"x":["y"]},"evaluations":[{"options":{"unknown":[]}},{}]}`:                                                 {asks(), doc("1")},
		`{` + all + `,"context":{"x":["y"]},"evaluations":[{"options":{"unknown":[]}},{"options":{"unknown":["/context/x"]}}]}`:             {asks(), asks("/context/x")},
	} {
		answers = `{"decision":false}` + strings.Repeat(`,{"decision":false}`, len(requests)-1)
		if c.EvaluateBatch(t.Context(), "", requests...); sent != want {
			t.Errorf("got  %s\nwant %s", sent, want)
		}
		batch, err := evaluation.DecodeBatch([]byte(sent), "", evaluation.DefaultLimits())
		if err != nil || len(batch.Items) != len(requests) {
			t.Fatalf("%s: %v", sent, err)
		}
		for n, item := range batch.Items {
			got, err1 := item.Request.MarshalJSON()
			want, err2 := requests[n].MarshalJSON()
			if string(got) != string(want) || item.Err != nil || err1 != nil || err2 != nil {
				t.Errorf("%s: item %d is %s, want %s, %v", sent, n, got, want, item.Err)
			}
		}
	}
	answers = `{"decision":false},{"decision":false}`
	c.EvaluateBatch(t.Context(), evaluation.DenyOnFirstDeny, asks(), asks())
	if want := `{` + all + `,"context":{"x":["y"]},"options":{"evaluations_semantic":"deny_on_first_deny","unknown":[]},"evaluations":[{},{}]}`; sent != want {
		t.Errorf("got  %s\nwant %s", sent, want)
	}
}

// What an obligation says is there to be read; it only does not permit.
func TestObligations(t *testing.T) {
	t.Parallel()
	properties, err := evaluation.NewObject(map[string]any{"to": "a@b", "n": int64(9007199254740993), "f": 1.5, "l": []any{true}})
	if err != nil {
		t.Fatal(err)
	}
	const details = `[{"id":"tell","type":"notification","properties":{"to":"a@b","n":9007199254740993,"f":1.5,"l":[true],"gone":null}}]`
	for name, d := range map[string]authzenclient.Decision{
		"AuthZEN":         newClient(t, stub(t, says(`{"decision":true,"context":{"obligations":`+details+`}}`))).Evaluate(t.Context(), question),
		"details":         newClient(t, stub(t, says(`{"decision":true,"obligations":{"notification":true},"obligation_details":`+details+`}`))).Evaluate(t.Context(), question),
		"deny, as a duty": newClient(t, stub(t, says(`{"decision":false,"context":{"obligations":`+details+`}}`))).Evaluate(t.Context(), question),
	} {
		got := d.Obligations()
		if d.Permitted() || len(got) != 1 || got[0].ID != "tell" || got[0].Type != "notification" || !got[0].Properties.Value().Equal(properties.Value()) {
			t.Errorf("%s: %v, %v", name, d, got)
		}
		if isDeny := strings.HasPrefix(name, "deny"); !isDeny {
			wantDeny(t, d, authzenclient.Obligated)
		} else if d.Err() != nil {
			t.Errorf("%s: %v", name, d.Err())
		}
	}
	d := newClient(t, stub(t, says(`{"decision":true,"obligations":{"b":true,"a":true}}`))).Evaluate(t.Context(), question)
	if got := d.Obligations(); len(got) != 2 || got[0].Type != "a" || got[1].Type != "b" {
		t.Errorf("%v", got)
	}
}
