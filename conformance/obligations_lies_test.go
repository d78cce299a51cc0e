package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/obligations"
)

// A goClient is our client of Go with handlers that do what execute does. They leave it
// to the client to find malformed properties.
type goClient struct {
	*authzenclient.Client
	handlers obligations.Handlers
	executed []string
}

func newGoClient(t *testing.T, p *textPEP) *goClient {
	t.Helper()
	client, err := authzenclient.New(p.url, authzenclient.WithHTTPClient(p.client))
	if err != nil {
		t.Fatal(err)
	}
	c := &goClient{Client: client, handlers: obligations.Handlers{}}
	types := p.types()
	if slices.Contains(types, "custom") {
		types = append(types, "redact", "log")
	}
	for _, typ := range types {
		if typ == "custom" || typ == "x" {
			continue
		}
		c.handlers[typ] = func(_ context.Context, o evaluation.Obligation) error {
			var properties map[string]any
			if err := json.Unmarshal([]byte(asJSON(o.Properties)), &properties); err != nil {
				return err
			}
			if to, single := properties["to"].(string); single { // as handlers get a single destination
				properties["to"] = []any{to}
			}
			if err := p.execute(typ, properties); err != nil {
				return err
			}
			c.executed = append(c.executed, typ+" "+asJSON(properties))
			return nil
		}
	}
	return c
}

// did returns what was executed since the last call, sorted.
func (c *goClient) did() []string {
	did := c.executed
	c.executed = nil
	slices.Sort(did)
	return did
}

func (c *goClient) evaluate(t *testing.T, r evaluation.Request) outcome {
	granted := c.Enforce(t.Context(), r, c.handlers).Permitted()
	return outcome{Granted: granted, Executed: c.did()}
}

func (c *goClient) search(t *testing.T, kind string, r evaluation.Request) (o outcome) {
	enforce := map[string]func(context.Context, evaluation.Request, obligations.Handlers) iter.Seq2[authzenclient.Result, error]{
		"subject": c.EnforceSubjects, "resource": c.EnforceResources, "action": c.EnforceActions}[kind]
	for result, err := range enforce(t.Context(), r, c.handlers) {
		if err != nil {
			t.Log(err)
			break
		}
		name := result.Name
		if name == "" {
			name = result.Type + "/" + result.ID
		}
		o.Results = append(o.Results, name)
	}
	o.Executed = c.did()
	return o
}

func question(subject, action, doc string) evaluation.Request {
	return evaluation.Request{Subject: evaluation.Entity{Type: "user", ID: subject}, Action: evaluation.Action{Name: action}, Resource: evaluation.Entity{Type: "doc", ID: doc}}
}

// undoable has obligations that the PEP cannot comply with: properties by type, and under
// "" whole ones that are malformed (5, 7.4, 8; ST 3.1 to 3.3; 5.2 for custom).
var undoable = map[string][]string{
	"": {`1`, `null`, `[]`, `{"type":"session_termination","properties":{"subject":"u"}}`, `{"id":1,"type":"session_termination","properties":{"subject":"u"}}`,
		`{"id":"w","properties":{"subject":"u"}}`, `{"id":"w","type":1,"properties":{"subject":"u"}}`, `{"id":"w","type":"step-up"}`,
		`{"id":"w","type":"step-up","Properties":{"acr_value":"urn:loa:3"}}`},
	"x": {`{}`}, "Step-Up": {`{"acr_value":"urn:loa:3"}`}, "approval_required": {`{}`}, "log": {`{}`}, "redact": {`{"fields":["/a"]}`},
	"step-up": {`null`, `[]`, `{}`, `{"amr_values":["mfa"]}`, `{"ACR_VALUE":"urn:loa:3"}`, `{"acr_value":3}`, `{"acr_value":"broken"}`, `{"acr_value":"urn:loa:3","x":1}`,
		`{"acr_value":"urn:loa:3","amr_values":"mfa"}`, `{"acr_value":"urn:loa:3","amr_values":["mfa",1]}`},
	"notification": {`{"to":["c"]}`, `{"body":"b"}`, `{"to":"c","body":"b"}`, `{"to":[],"body":"b"}`, `{"to":[1],"body":"b"}`, `{"to":["c"],"body":1}`,
		`{"to":["c"],"body":"b","cc":["d"]}`, `{"to":["c","broken"],"body":"b"}`},
	"session_termination": {`{}`, `{"subject":"u","x":1}`, `{"subject":"broken"}`},
	"custom": {`null`, `{}`, `{"vendor":"x","type":"log","properties":{}}`, `{"type":"log","properties":{}}`, `{"vendor":"policy-service","type":"log"}`,
		`{"vendor":"policy-service","type":"x","properties":{}}`, `{"vendor":"policy-service","type":"log","properties":{},"x":1}`,
		`{"vendor":"policy-service","type":"step-up","properties":{"acr_value":"urn:loa:3"}}`, `{"vendor":"policy-service","type":"log","properties":[]}`},
}

// lies has answers that no PDP may send, and some at the edge of the text. One without a
// decision is a search, with the contexts of its results. S is a sound notification, T has
// its id and other properties, and U is undoable. want has "+" for a grant, the places of
// the results, and a letter of executions for what the PEP executes. client is what our client does
// where that differs from the text, "=" where it does not.
var lies = []struct {
	what, decision, context string
	results                 []string
	want, client            string
}{
	{"8: absent", `true`, ``, nil, "+", "="},
	{"8, 10: advisory", `true`, `{"advice":[1]}`, nil, "+", "="},
	{"8: context of the wrong form", `true`, `[]`, nil, "", "="},
	{"8: context null", `true`, `null`, nil, "", "+"},
	{"8: empty array", `true`, `{"obligations":[]}`, nil, "", "="},
	{"8: null", `true`, `{"obligations":null}`, nil, "", "="},
	{"8: object", `true`, `{"obligations":{"notification":true}}`, nil, "", "="},
	{"8: string", `true`, `{"obligations":"x"}`, nil, "", "="},
	{"8: outside properties", `true`, `{"obligations":[{"x":1,"id":"s","type":"notification","properties":{"to":["a"],"body":"b"}}]}`, nil, "+S", "="},
	{"7.1: permit", `true`, `{"obligations":[S]}`, nil, "+S", "="},
	{"7.2: denial", `false`, `{"obligations":[S]}`, nil, "S", "="},
	{"7.2, 8: denial, malformed", `false`, `{"obligations":{}}`, nil, "", "="},
	{"5: twice", `true`, `{"obligations":[S,S]}`, nil, "+S", "="},
	{"5: ids alike", `true`, `{"obligations":[S,T]}`, nil, "", "="},
	{"ST 3.2: null", `true`, `{"obligations":[S,{"id":"w","type":"notification","properties":{"to":["c"],"body":"b","topic":null}}]}`, nil, "S", "="},
	{"ST 3.3: object of July", `true`, `{"obligations":[S,{"id":"w","type":"session_termination","properties":{"subject":{"id":"u"}}}]}`, nil, "S", "="},
	{"ST 3.1: empty acr_value", `true`, `{"obligations":[{"id":"w","type":"step-up","properties":{"acr_value":""}}]}`, nil, "+A", "="},
	{"ST 3.1: empty amr_values", `true`, `{"obligations":[{"id":"w","type":"step-up","properties":{"acr_value":"a","amr_values":[]}}]}`, nil, "+M", "="},
	{"ST 3.2: empty", `true`, `{"obligations":[{"id":"w","type":"notification","properties":{"to":[""],"body":"","topic":""}}]}`, nil, "+E", "="},
	{"ST 3.2: twice to one", `true`, `{"obligations":[{"id":"w","type":"notification","properties":{"to":["c","c"],"body":"b"}}]}`, nil, "+D", "="},
	{"ST 3.3: empty", `true`, `{"obligations":[{"id":"w","type":"session_termination","properties":{"subject":""}}]}`, nil, "+O", "="},
	{"5: empty id", `true`, `{"obligations":[{"id":"","type":"notification","properties":{"to":["c"],"body":"b"}}]}`, nil, "+N", ""},
	{"API: decision a string", `"true"`, ``, nil, "", "="},
	{"7.4: permit", `true`, `{"obligations":[U,S]}`, nil, "S", "="},
	{"7.4: denial", `false`, `{"obligations":[S,U]}`, nil, "S", "="},
	{"7.3: top level, once", ``, `{"obligations":[S]}`, []string{``, ``}, "01S", "="},
	{"7.3: top level, repeated", ``, `{"obligations":[S]}`, []string{``, `{"obligations":[S]}`}, "01S", "="},
	{"7.3: top level, overridden", ``, `{"obligations":[U]}`, []string{``, `{}`, `{"obligations":[S]}`}, "12S", "="},
	{"7.3: top level, undoable and repeated", ``, `{"obligations":[U]}`, []string{``, `{"obligations":[U]}`, `{}`}, "2", "="},
	{"7.3: top level, for no result", ``, `{"obligations":[S]}`, []string{`{}`}, "0S", "0"},
	{"7.3: top level, without results", ``, `{"obligations":[S]}`, []string{}, "S", ""},
	{"7.3: per result", ``, `{"took":42}`, []string{``, `{"obligations":[U,S]}`, `{}`}, "02S", "="},
	{"7.3: per result, ids alike", ``, ``, []string{`{"obligations":[S]}`, `{"obligations":[T]}`, ``}, "2", "="},
	{"8: per result, malformed", ``, ``, []string{``, `{"obligations":[]}`, `{"obligations":null}`, `{"obligations":{}}`}, "0", "="},
	{"8: per result, context of the wrong form", ``, ``, []string{``, `null`, `1`, `[]`}, "0", "01"},
	{"8: top level, malformed", ``, `{"obligations":[]}`, []string{``, `{}`}, "1", "="},
	{"8: top level, context of the wrong form", ``, `[]`, []string{``, `{}`}, "1", "="},
}

var executions = map[rune]string{
	'S': `notification {"body":"b","to":["a"]}`, 'N': `notification {"body":"b","to":["c"]}`,
	'A': `step-up {"acr_value":""}`, 'M': `step-up {"acr_value":"a","amr_values":[]}`, 'E': `notification {"body":"","to":[""],"topic":""}`,
	'D': `notification {"body":"b","to":["c","c"]}`, 'O': `session_termination {"subject":""}`,
}

// wanted reads an outcome as lies write it.
func wanted(text string) (o outcome) {
	for _, c := range text {
		if did := executions[c]; did != "" {
			o.Executed = append(o.Executed, did)
		} else if c == '+' {
			o.Granted = true
		} else {
			o.Results = append(o.Results, "doc/"+string(c))
		}
	}
	slices.Sort(o.Executed)
	return o
}

func TestObligationsCoreLies(t *testing.T) {
	t.Parallel()
	var answer string
	stub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(stub.Close)
	var all []string
	for typ, list := range undoable {
		for _, o := range list {
			if typ != "" {
				o = fmt.Sprintf(`{"id":"w","type":%q,"properties":%s}`, typ, o)
			}
			all = append(all, o)
		}
	}
	object := func(members, context string) string {
		if context != "" {
			members += `,"context":` + context
		}
		return "{" + members + "}"
	}
	pep := &textPEP{url: stub.URL, client: stub.Client(), context: declarations["all"], execute: execute}
	request := map[string]any{"subject": ann, "action": map[string]any{"name": "read"}, "resource": entity("doc", "x")}
	for _, lie := range lies {
		body := object(`"decision":`+lie.decision, lie.context)
		if lie.decision == "" {
			results := []string{}
			for i, own := range lie.results {
				results = append(results, object(fmt.Sprintf(`"type":"doc","id":"%d"`, i), own))
			}
			body = object(`"results":[`+strings.Join(results, ",")+`]`, lie.context)
		}
		if lie.client == "=" {
			lie.client = lie.want
		}
		for _, u := range all {
			answer = strings.NewReplacer(`[S`, `[`+sound, `,S`, `,`+sound, `T]`, strings.Replace(sound, `"a"`, `"c"`, 1)+`]`, `U`, u).Replace(body)
			client := newGoClient(t, pep)
			if lie.decision != "" {
				equal(t, lie.what+": "+answer, pep.evaluate(request), wanted(lie.want))
				equal(t, "our client, "+lie.what+": "+answer, client.evaluate(t, question("ann", "read", "x")), wanted(lie.client))
			} else {
				equal(t, lie.what+": "+answer, pep.search("resource", request), wanted(lie.want))
				equal(t, "our client, "+lie.what+": "+answer, client.search(t, "resource", question("ann", "read", "")), wanted(lie.client))
			}
			if !strings.Contains(body, "U") {
				break
			}
		}
	}
}

const sound = `{"id":"s","type":"notification","properties":{"to":["a"],"body":"b"}}`

// execute fails where the text has the PEP be unable to do what is asked.
func execute(_ string, properties map[string]any) error {
	if strings.Contains(asJSON(properties), `"broken"`) {
		return errors.New("broken")
	}
	return nil
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}
