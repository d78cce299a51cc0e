package authzenclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/obligations"
)

// july is for the clients of stubs that answer by July's draft of obligations.
var july = authzenclient.WithJulyObligations()

// pep is the half of a PEP that does things: log and notification work, step-up
// fails, panic panics, and it knows nothing else.
type pep struct {
	mu   sync.Mutex
	done []string
}

func (p *pep) handlers() obligations.Handlers {
	does := func(end func() error) obligations.Handler {
		return func(_ context.Context, o evaluation.Obligation) error {
			properties, err := json.Marshal(o.Properties)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.done = append(p.done, o.ID+":"+o.Type+string(properties))
			return errors.Join(err, end())
		}
	}
	fine := func() error { return nil }
	return obligations.Handlers{
		"log": does(fine), "notification": does(fine),
		"step-up": does(func() error { return errors.New("user went away") }),
		"panic":   does(func() error { panic("oops") }),
	}
}

const declared = `{"supported_mandatory_extensions":["obligations"],"supported_obligations":["custom","notification","step-up"]}`

// Every form of obligations in an answer, with the letter of what came of it: P permit, D deny that was enforced in
// full, O obligations not discharged, E no answer, B the PDP's own error.
var obliging = map[string]struct {
	body string // V is the name of the verdict
	want string
	done string
}{
	"none":                     {`{"V":true}`, "P", ""},
	"deny":                     {`{"V":false}`, "D", ""},
	"null":                     {`{"V":true,"obligations":null,"context":{"obligations":null}}`, "P", ""},
	"empty array":              {`{"V":true,"context":{"obligations":[]}}`, "P", ""},
	"empty object":             {`{"V":true,"obligations":{}}`, "P", ""},
	"one":                      {`{"V":true,"context":{"obligations":[{"id":"a","type":"log","properties":{"n":9007199254740993}}]}}`, "P", `a:log{"n":9007199254740993}`},
	"beside":                   {`{"V":true,"obligations":[{"id":"a","type":"log"}]}`, "P", `a:log{}`},
	"no properties":            {`{"V":true,"context":{"obligations":[{"id":"a","type":"log","properties":null}]}}`, "P", `a:log{}`},
	"two":                      {`{"V":true,"context":{"obligations":[{"id":"b","type":"log"},{"id":"a","type":"log"}]}}`, "P", `b:log{} a:log{}`},
	"as in the profile":        {`{"V":true,"context":{"obligations":[{"type":"notification","id":"obl-2","to":"m@x","topic":"t","gone":null}]}}`, "P", `obl-2:notification{"to":"m@x","topic":"t"}`},
	"both ways":                {`{"V":true,"context":{"obligations":[{"id":"a","type":"log","properties":{"a":1,"b":2},"b":2,"c":3}]}}`, "P", `a:log{"a":1,"b":2,"c":3}`},
	"both ways, contradicting": {`{"V":true,"context":{"obligations":[{"id":"a","type":"log","properties":{"b":2},"b":3}]}}`, "E", `a:log{"b":2}`},
	"a float that is whole":    {`{"V":true,"context":{"obligations":[{"id":"a","type":"log","properties":{"n":1.0}}]}}`, "P", `a:log{"n":1}`},
	"an exponent":              {`{"V":true,"context":{"obligations":[{"id":"a","type":"log","properties":{"n":1e3}}]}}`, "P", `a:log{"n":1000}`},
	"no float64":               {`{"V":true,"context":{"obligations":[{"id":"a","type":"log","properties":{"n":1e400}}]}}`, "E", `a:log{}`},
	"an exact integer":         {`{"V":true,"context":{"obligations":[{"id":"a","type":"log","properties":{"n":9007199254740993}}]}}`, "P", `a:log{"n":9007199254740993}`},
	"both ways, one value":     {`{"V":true,"context":{"obligations":[{"id":"a","type":"log","n":1.0,"properties":{"n":1}}]}}`, "P", `a:log{"n":1}`},
	"both ways, an exponent":   {`{"V":true,"context":{"obligations":[{"id":"a","type":"log","n":1000,"properties":{"n":1e3}}]}}`, "P", `a:log{"n":1000}`},
	"inner id and type":        {`{"V":true,"context":{"obligations":[{"id":"a","type":"log","properties":{"id":"x","type":"y"}}]}}`, "P", `a:log{"id":"x","type":"y"}`},
	"deny, obliging":           {`{"V":false,"context":{"obligations":[{"id":"a","type":"log"}]}}`, "D", `a:log{}`},
	"deny, unknown":            {`{"V":false,"context":{"obligations":[{"id":"a","type":"x"},{"id":"b","type":"log"}]}}`, "O", `b:log{}`},
	"deny, odd":                {`{"V":false,"context":{"obligations":{"log":1,"notification":true}}}`, "E", `notification:notification{}`},
	"unknown":                  {`{"V":true,"context":{"obligations":[{"id":"a","type":"x"},{"id":"b","type":"log"}]}}`, "O", `b:log{}`},
	"approval, no handler":     {`{"V":true,"obligations":{"approval_required":true}}`, "O", ``},
	"failing":                  {`{"V":true,"context":{"obligations":[{"id":"a","type":"step-up"},{"id":"b","type":"log"}]}}`, "O", `a:step-up{} b:log{}`},
	"panicking":                {`{"V":true,"context":{"obligations":[{"id":"a","type":"panic"},{"id":"b","type":"log"}]}}`, "O", `a:panic{} b:log{}`},
	"same id":                  {`{"V":true,"context":{"obligations":[{"id":"a","type":"log"},{"id":"a","type":"log"}]}}`, "O", `a:log{} a:log{}`},
	"same, at both places":     {`{"V":true,"obligations":[{"id":"a","type":"log"}],"context":{"obligations":[{"id":"a","type":"log"}]}}`, "P", `a:log{}`},
	"other, at both places":    {`{"V":true,"obligations":{"log":true},"context":{"obligations":[{"id":"a","type":"log"}]}}`, "P", `log:log{} a:log{}`},
	"no id":                    {`{"V":true,"context":{"obligations":[{"type":"log"}]}}`, "O", `:log{}`},
	"id is a number":           {`{"V":true,"context":{"obligations":[{"id":7,"type":"log"}]}}`, "O", `:log{}`},
	"no type":                  {`{"V":true,"context":{"obligations":[{"id":"a"},{"id":"b","type":"log"}]}}`, "E", `b:log{}`},
	"type is a number":         {`{"V":true,"context":{"obligations":[{"id":"a","type":1},{"id":"b","type":"log"}]}}`, "E", `b:log{}`},
	"type is null":             {`{"V":true,"context":{"obligations":[{"id":"a","type":null}]}}`, "E", ``},
	"type in upper case":       {`{"V":true,"context":{"obligations":[{"id":"a","Type":"log"}]}}`, "E", ``},
	"a null among them":        {`{"V":true,"context":{"obligations":[null,{"id":"b","type":"log"}]}}`, "E", `b:log{}`},
	"a string among them":      {`{"V":true,"context":{"obligations":[{"id":"b","type":"log"},"log"]}}`, "E", `b:log{}`},
	"an array among them":      {`{"V":true,"context":{"obligations":[[{"id":"b","type":"log"}]]}}`, "E", ``},
	"a string":                 {`{"V":true,"context":{"obligations":"log"}}`, "E", ``},
	"true":                     {`{"V":true,"context":{"obligations":true}}`, "E", ``},
	"false":                    {`{"V":true,"obligations":false}`, "E", ``},
	"properties, no object":    {`{"V":true,"context":{"obligations":[{"id":"a","type":"log","properties":[]}]}}`, "E", `a:log{}`},
	"properties, reserved":     {`{"V":true,"context":{"obligations":[{"id":"a","type":"log","properties":{"x":{"__entity":1}}}]}}`, "E", `a:log{}`},
	"properties, too deep":     {`{"V":true,"context":{"obligations":[{"id":"a","type":"log","x":` + strings.Repeat(`{"x":`, 20) + "1" + strings.Repeat("}", 20) + `}]}}`, "E", `a:log{}`},
	"a member twice":           {`{"V":true,"context":{"obligations":[{"id":"a","type":"log","type":"log"}]}}`, "E", ``},
	"map":                      {`{"V":true,"obligations":{"notification":true,"log":true}}`, "P", `log:log{} notification:notification{}`},
	"map in the context":       {`{"V":true,"context":{"obligations":{"log":true}}}`, "P", `log:log{}`},
	"map to false":             {`{"V":true,"obligations":{"log":false}}`, "E", ``},
	"map to null":              {`{"V":true,"obligations":{"log":null}}`, "E", ``},
	"map to text":              {`{"V":true,"obligations":{"log":"true","notification":true}}`, "E", `notification:notification{}`},
	"map of nothing":           {`{"V":true,"obligations":{"":true}}`, "O", ``},
	"details":                  {`{"V":true,"obligations":{"log":true},"obligation_details":[{"id":"a","type":"log","properties":{"x":1}},{"id":"b","type":"log"}]}`, "P", `a:log{"x":1} b:log{}`},
	"details of some":          {`{"V":true,"obligations":{"log":true,"notification":true},"obligation_details":[{"id":"a","type":"log"}]}`, "P", `notification:notification{} a:log{}`},
	"details of some, unknown": {`{"V":true,"obligations":{"log":true,"x":true},"obligation_details":[{"id":"a","type":"log"}]}`, "O", `a:log{}`},
	"details of others":        {`{"V":true,"obligations":{"log":true},"obligation_details":[{"id":"a","type":"notification"}]}`, "E", `log:log{} a:notification{}`},
	"details alone":            {`{"V":true,"obligation_details":[{"id":"a","type":"log"}]}`, "E", `a:log{}`},
	"details, empty map":       {`{"V":true,"obligations":{},"obligation_details":[{"id":"a","type":"log"}]}`, "E", `a:log{}`},
	"details, empty":           {`{"V":true,"obligations":{"log":true},"obligation_details":[]}`, "P", `log:log{}`},
	"details, a map":           {`{"V":true,"obligations":{"log":true},"obligation_details":{"log":true}}`, "E", `log:log{}`},
	"details of an array":      {`{"V":true,"obligations":[{"id":"a","type":"log"}],"obligation_details":[{"id":"b","type":"log"}]}`, "E", `a:log{} b:log{}`},
	"odd details of nothing":   {`{"V":true,"obligation_details":{}}`, "E", ``},
	"required in vain":         {`{"V":true,"obligations":{"log":true},"required_obligations":["log"]}`, "E", `log:log{}`},
	"refused":                  {`{"V":false,"context":{"reason":"obligation_unsupported","required_obligations":["x"]}}`, "D", ``},
	"beside an error":          {`{"V":true,"context":{"error":{"status":400},"obligations":[{"id":"a","type":"log"}]}}`, "B", `a:log{}`},
	"odd context":              {`{"V":true,"obligations":[{"id":"a","type":"log"}],"context":7}`, "E", `a:log{}`},
	"no verdict":               {`{"obligations":[{"id":"a","type":"log"}]}`, "E", ``},
	"two verdicts":             {`{"V":true,"V":false,"obligations":[{"id":"a","type":"log"}]}`, "E", ``},
}

func TestEnforce(t *testing.T) {
	t.Parallel()
	for name, test := range obliging {
		t.Run(name, func(t *testing.T) {
			var p pep
			c := newClient(t, stub(t, says(strings.ReplaceAll(test.body, `"V"`, `"decision"`))), july)
			e := c.Enforce(t.Context(), question, p.handlers())
			if got, done := outcome(t, e), strings.Join(p.done, " "); got != test.want || done != test.done {
				t.Errorf("%s, done %s: %v", got, done, e)
			}
			p = pep{}
			item := strings.ReplaceAll(test.body, `"V"`, `"decision"`)
			c = newClient(t, stub(t, says(`{"evaluations":[`+item+`,{"decision":true}]}`)), july)
			both := c.EnforceBatch(t.Context(), "", p.handlers(), question, question)
			got, done := outcome(t, both[0]), strings.Join(p.done, " ")
			// Names that come twice make the whole batch unreadable.
			if whole := strings.Contains(name, "twice") || name == "two verdicts"; got != test.want || done != test.done || both[1].Permitted() == whole {
				t.Errorf("batch: %s, done %s: %v", got, done, both)
			}
		})
	}
}

func outcome(t *testing.T, e authzenclient.Enforcement) string {
	t.Helper()
	if e.Permitted() != e.Report().Permitted() || e.Decision().Permitted() && !e.Permitted() || (e.String() == "permit") != e.Permitted() {
		t.Errorf("%v says yes and no", e)
	}
	var err *authzenclient.Error
	switch {
	case e.Permitted() && e.Err() == nil:
		return "P"
	case e.Permitted():
		t.Errorf("a permit with %v", e.Err())
	case e.Err() == nil:
		return "D"
	case !errors.As(e.Err(), &err) || err.Op == "":
		t.Errorf("%#v is no Error with an Op", e.Err())
	case err.Kind == authzenclient.Obligated:
		return "O"
	case err.Kind == authzenclient.BadItem:
		return "B"
	}
	return "E"
}

// What is declared are the types of the handlers, whatever the request says.
func TestEnforceDeclares(t *testing.T) {
	t.Parallel()
	var asked []string
	c, _ := scripted(t, []step{func(r *http.Request) (*http.Response, error) {
		var q struct {
			Context     json.RawMessage `json:"context"`
			Evaluations []struct {
				Context json.RawMessage `json:"context"`
			} `json:"evaluations"`
		}
		err := json.NewDecoder(r.Body).Decode(&q)
		for _, i := range q.Evaluations {
			asked = append(asked, string(i.Context))
		}
		if q.Context != nil {
			asked = append(asked, string(q.Context))
		}
		if err != nil {
			return nil, err
		}
		return yes(r)
	}})
	var p pep
	q := question
	q.Context, _ = evaluation.NewObject(map[string]any{"supported_obligations": []string{"x"}, "ip": "::1"})
	c.Enforce(t.Context(), question, p.handlers())
	c.Enforce(t.Context(), question, p.handlers())
	c.EnforceBatch(t.Context(), "", p.handlers(), question, q)
	c.Enforce(t.Context(), q, nil)
	for range c.EnforceActions(t.Context(), question, p.handlers()) {
	}
	want := []string{declared, declared, declared, `{"ip":"::1",` + declared[1:], `{"ip":"::1","supported_mandatory_extensions":["obligations"],"supported_obligations":[]}`, declared}
	if strings.Join(asked, "\n") != strings.Join(want, "\n") {
		t.Errorf("declared\n%s", strings.Join(asked, "\n"))
	}
	n := len(asked)
	odd := obligations.Handlers{"\xff": func(context.Context, evaluation.Obligation) error { return nil }}
	all := append(c.EnforceBatch(t.Context(), "", odd, question, question), c.Enforce(t.Context(), question, odd))
	for _, e := range all {
		if outcome(t, e) != "E" || len(asked) != n {
			t.Errorf("%v", e)
		}
	}
	for r, err := range c.EnforceSubjects(t.Context(), question, odd) {
		if err == nil {
			t.Errorf("found %v", r)
		}
	}
}

// A caller who goes away while something is done gets no permit.
func TestEnforceContextEnds(t *testing.T) {
	t.Parallel()
	c := newClient(t, stub(t, says(`{"decision":true,"context":{"obligations":[{"id":"a","type":"log"},{"id":"b","type":"notification"}]}}`)), july)
	var p pep
	ctx, cancel := context.WithCancel(t.Context())
	handlers := p.handlers()
	handlers["log"] = func(context.Context, evaluation.Obligation) error { cancel(); return nil }
	e := c.Enforce(ctx, question, handlers)
	if outcome(t, e) != "O" || !errors.Is(e.Err(), context.Canceled) || strings.Join(p.done, " ") != "b:notification{}" {
		t.Errorf("%v, done %v", e, p.done)
	}
}

// A result is left out where what it obliges to cannot be done, and the others are yielded.
func TestEnforceSearch(t *testing.T) {
	t.Parallel()
	one := func(id, more string) string { return `{"type":"user","id":"` + id + `"` + more + `}` }
	for name, test := range map[string]struct {
		body, want, done string
	}{
		"none":              {`{"results":[` + found("a", "b") + `]}`, "a b", ""},
		"beside":            {`{"results":[` + one("a", `,"obligations":[{"id":"1","type":"log"}]`) + `]}`, "a", "1:log{}"},
		"as in the profile": {`{"results":[` + one("a", `,"context":{"obligations":[{"type":"step-up","id":"1","acr_value":"x"}]}`) + `,` + one("b", "") + `]}`, "b", `1:step-up{"acr_value":"x"}`},
		"unknown":           {`{"results":[` + one("a", `,"context":{"obligations":[{"type":"x","id":"1"},{"type":"log","id":"2"}]}`) + `,` + one("b", "") + `]}`, "b", `2:log{}`},
		"panicking":         {`{"results":[` + one("a", `,"obligations":{"panic":true}`) + `,` + one("b", "") + `]}`, "b", `panic:panic{}`},
		"odd":               {`{"results":[` + one("a", `,"context":{"obligations":7}`) + `,` + one("b", `,"context":7`) + `,` + one("c", `,"error":1`) + `,` + one("d", "") + `]}`, "d", ``},
		"same id elsewhere": {`{"results":[` + one("a", `,"obligations":[{"id":"1","type":"log"}]`) + `,` + one("b", `,"obligations":[{"id":"1","type":"log"}]`) + `]}`, "a b", "1:log{} 1:log{}"},
		"odd result":        {`{"results":[` + one("a", `,"obligations":{"log":true}`) + `,{"type":"user"}]}`, "[not an answer]", ""},
		"all left out":      {`{"results":[` + one("a", `,"obligations":{"x":true}`) + `]}`, "", ""},
		"of the page":       {`{"results":[` + found("a") + `],"context":{"obligations":[{"id":"1","type":"log"}]}}`, "[obligations not discharged]", ""},
		"of the page, odd":  {`{"results":[` + found("a") + `],"obligations":7}`, "[not an answer]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var p pep
			c := newClient(t, stub(t, says(test.body)), july)
			got := gather(t, c.EnforceSubjects(t.Context(), question, p.handlers()))
			if done := strings.Join(p.done, " "); got != test.want || done != test.done {
				t.Errorf("got %s, done %s", got, done)
			}
			if strings.Contains(name, "none") {
				return
			}
			if got := collect(t, c); !strings.HasPrefix(got, "[") {
				t.Errorf("a search that discharges nothing found %s", got)
			}
		})
	}
	t.Run("context ends", func(t *testing.T) {
		c := newClient(t, stub(t, says(`{"results":[`+one("a", `,"obligations":{"log":true}`)+`]}`)), july)
		ctx, cancel := context.WithCancel(t.Context())
		handlers := obligations.Handlers{"log": func(context.Context, evaluation.Obligation) error { cancel(); return nil }}
		if got := gather(t, c.EnforceSubjects(ctx, question, handlers)); got != "[cancelled]" {
			t.Errorf("got %s", got)
		}
	})
}
