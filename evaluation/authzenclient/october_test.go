package authzenclient_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/obligations"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/lies"
)

// logs is an obligation of the type log, as a PDP of ours sends it by October's draft.
func logs(id, properties string) string {
	return `{"id":"` + id + `","type":"custom","properties":{"properties":` + properties + `,"type":"log","vendor":"policy-service"}}`
}

func tells(id, properties string) string {
	return `{"id":"` + id + `","type":"notification","properties":` + properties + `}`
}

// TestOctoberAnswers has the forms of obligations in an answer to a PEP that adopted Obligations Core, by its sections.
func TestOctoberAnswers(t *testing.T) {
	t.Parallel()
	allow := func(all ...string) string {
		return `{"decision":true,"context":{"obligations":[` + strings.Join(all, ",") + `]}}`
	}
	deny := func(all ...string) string { return strings.Replace(allow(all...), "true", "false", 1) }
	const mail = `{"to":["a@x"],"body":"b"}`
	for name, test := range map[string]struct{ body, want, done string }{
		"7.1 all executed":                       {allow(logs("a", `{"n":1}`), tells("b", mail)), "P", `a:log{"n":1} b:notification{"body":"b","to":"a@x"}`},
		"3.2 several destinations":               {allow(tells("b", `{"to":["a@x","b@x"],"body":"b","topic":"t"}`)), "P", `b:notification{"body":"b","to":["a@x","b@x"],"topic":"t"}`},
		"7.1 one failed":                         {allow(`{"id":"a","type":"step-up","properties":{"acr_value":"x","amr_values":["otp"]}}`, logs("b", "{}")), "O", `a:step-up{"acr_value":"x","amr_values":["otp"]} b:log{}`},
		"7.2 a deny's":                           {deny(logs("a", `{}`)), "D", `a:log{}`},
		"7.2 a deny's, in part":                  {deny(`{"id":"a","type":"x","properties":{}}`, logs("b", `{}`)), "O", `b:log{}`},
		"7.4 unknown type":                       {allow(`{"id":"a","type":"x","properties":{}}`, logs("b", `{}`)), "O", `b:log{}`},
		"7.4 no handler":                         {allow(`{"id":"a","type":"session_termination","properties":{"subject":"u"}}`), "O", ``},
		"5.2 custom of another vendor":           {allow(`{"id":"a","type":"custom","properties":{"vendor":"x","type":"log","properties":{}}}`), "O", ``},
		"5.2 custom that we know, of no type":    {allow(`{"id":"a","type":"custom","properties":{"vendor":"policy-service","type":"step-up","properties":{}}}`), "O", ``},
		"5.2 custom that we know, with null":     {allow(`{"id":"a","type":"custom","properties":{"vendor":"policy-service","type":"log","properties":{},"also":null}}`), "O", ``},
		"5.2 custom that we know, with a member": {allow(`{"id":"a","type":"custom","properties":{"vendor":"policy-service","type":"log","properties":{},"also":1}}`), "O", ``},
		"7.4 a member that is not known":         {allow(tells("a", `{"to":["a@x"],"body":"b","cc":["x"]}`), logs("b", `{}`)), "O", `b:log{}`},
		"7.4 a member of another form":           {allow(tells("a", `{"to":"a@x","body":"b"}`)), "O", ``},
		"7.4 null":                               {allow(tells("a", `{"to":["a@x"],"body":"b","topic":null}`)), "O", ``},
		"3.3 another subject":                    {allow(`{"id":"a","type":"session_termination","properties":{"subject":{"id":"u"}}}`), "O", ``},
		"7.4 an empty list":                      {allow(tells("a", `{"to":[],"body":"b"}`)), "O", ``},
		"7.4 a member is missing":                {allow(tells("a", `{"to":["a@x"]}`)), "O", ``},
		"7.4 no properties":                      {allow(`{"id":"a","type":"x"}`, logs("b", `{}`)), "O", `b:log{}`},
		"7.4 no id":                              {allow(`{"type":"x","properties":{}}`), "O", ``},
		"8 beside properties":                    {allow(strings.Replace(logs("a", "{}"), `"id"`, `"fields":["/x"],"id"`, 1)), "P", `a:log{}`},
		"8 an empty array":                       {allow(), "O", ``},
		"8 an empty array, of a deny":            {deny(), "O", ``},
		"8 null":                                 {`{"decision":true,"context":{"obligations":null}}`, "O", ``},
		"8 an object":                            {`{"decision":true,"context":{"obligations":{"log":true}}}`, "O", ``},
		"8 among them, no object":                {allow(logs("a", "{}"), "7"), "O", `a:log{}`},
		"8 absent":                               {`{"decision":true}`, "P", ``},
		"the native form":                        {`{"decision":true,"obligations":{"log":true}}`, "O", ``},
		"July's names":                           {allow(`{"id":"a","type":"log","properties":{}}`), "O", ``},
		"one id twice":                           {allow(logs("a", "{}"), logs("b", "{}"), logs("a", "{}")), "P", `a:log{} b:log{}`},
		"one id, other properties":               {allow(logs("a", "{}"), logs("b", "{}"), logs("a", `{"n":1}`)), "O", `b:log{}`},
		"at both places":                         {`{"decision":true,"obligations":[` + logs("a", "{}") + `],"context":{"obligations":[` + logs("a", "{}") + `]}}`, "P", `a:log{}`},
		"at both places, other properties":       {`{"decision":true,"obligations":[` + logs("a", "{}") + `],"context":{"obligations":[` + logs("a", `{"n":1}`) + `]}}`, "O", ``},
	} {
		for _, batch := range []bool{false, true} {
			var p pep
			body := test.body
			if batch {
				body = `{"evaluations":[` + body + `]}`
			}
			c := newClient(t, stub(t, says(body)))
			var e authzenclient.Enforcement
			if batch {
				e = c.EnforceBatch(t.Context(), "", p.handlers(), question)[0]
			} else {
				e = c.Enforce(t.Context(), question, p.handlers())
			}
			if got, done := outcome(t, e), strings.Join(p.done, " "); got != test.want || done != test.done {
				t.Errorf("%s, batch %v: %s, done %s: %v", name, batch, got, done, e)
			}
		}
	}
}

// TestManyObligations: a PDP that lies cannot keep a client busy with an answer that has many obligations.
func TestManyObligations(t *testing.T) {
	t.Parallel()
	var all []string
	for n := range 60_000 {
		all = append(all, `{"id":"`+strconv.Itoa(n)+`","type":"x"}`)
	}
	many := `"obligations":[` + strings.Join(all, ",") + `]`
	page := `{"results":[{"type":"user","id":"a"},{"type":"user","id":"b","context":{` + many + `}}]}`
	for _, july := range []bool{false, true} {
		var options []authzenclient.Option
		if july {
			options = append(options, authzenclient.WithJulyObligations())
		}
		began := time.Now()
		c := newClient(t, stub(t, says(`{"decision":true,`+many+`,"context":{`+many+`}}`)), options...)
		if e := c.Decide(t.Context(), question, nil); e.Denied() {
			t.Errorf("july %v: %v", july, e)
		}
		c = newClient(t, stub(t, says(page)), options...)
		if got := gather(t, c.EnforceSubjects(t.Context(), question, obligations.Handlers{})); got != "a" {
			t.Errorf("july %v: found %s", july, got)
		}
		if took := time.Since(began); took > time.Minute { // comparing each with each takes minutes
			t.Errorf("july %v: it took %v", july, took)
		}
	}
}

// TestOctoberSearches: 7.3, obligations of a page and of its results, each executed once.
func TestOctoberSearches(t *testing.T) {
	t.Parallel()
	one := func(id string, all ...string) string {
		if len(all) == 0 {
			return `{"type":"user","id":"` + id + `"}`
		}
		return `{"type":"user","id":"` + id + `","context":{"obligations":[` + strings.Join(all, ",") + `]}}`
	}
	bare := `{"type":"user","id":"z","context":{}}`
	fails := `{"id":"up","type":"step-up","properties":{"acr_value":"x"}}`
	page := func(ofPage string, results ...string) string {
		if ofPage != "" {
			ofPage = `"context":{"obligations":` + ofPage + `},`
		}
		return `{` + ofPage + `"results":[` + strings.Join(results, ",") + `]}`
	}
	for name, test := range map[string]struct{ body, want, done string }{
		"one of several":                    {page("", one("a", logs("1", "{}")), one("b", logs("1", "{}"), logs("2", "{}")), one("c")), "a b c", "1:log{} 2:log{}"},
		"it cannot be done":                 {page("", one("a", fails), one("b", logs("1", "{}")), one("c", fails), one("d")), "b d", `up:step-up{"acr_value":"x"} 1:log{}`},
		"of the page":                       {page("["+logs("1", "{}")+"]", one("a"), one("b", logs("2", "{}")), bare, one("c")), "a b z c", "1:log{} 2:log{}"},
		"of the page, which cannot be done": {page("["+fails+"]", one("a"), one("b", logs("2", "{}")), bare, one("c", fails)), "b z", `up:step-up{"acr_value":"x"} 2:log{}`},
		"of the page, malformed":            {page("[]", one("a"), one("b", logs("2", "{}")), bare), "b z", "2:log{}"},
		"malformed":                         {page("", one("a", logs("1", "{}"), "7"), one("b")), "b", "1:log{}"},
		"one id, other properties":          {page("", one("a", logs("1", "{}")), one("b", logs("1", `{"n":1}`)), one("c", logs("2", "{}")), one("d")), "c d", `2:log{}`},
		"July's places":                     {`{"results":[{"type":"user","id":"a","obligations":[{"id":"1","type":"log","properties":{}}],"context":{"obligations":[{"id":"1","type":"log","properties":{}}]}},` + one("b") + `]}`, "b", ""},
		"July's place alone":                {`{"results":[{"type":"user","id":"a","obligations":[{"id":"1","type":"log","properties":{}}]},` + one("b") + `]}`, "b", ""},
	} {
		var p pep
		c := newClient(t, stub(t, says(test.body)))
		got := gather(t, c.EnforceSubjects(t.Context(), question, p.handlers()))
		if done := strings.Join(p.done, " "); got != test.want || done != test.done {
			t.Errorf("%s: got %s, done %s", name, got, done)
		}
	}
	for _, context := range []string{`{"error":{"status":400}}`, `{"required_obligations":["x"]}`} {
		c := newClient(t, stub(t, says(`{"context":`+context+`,"results":[`+one("a")+`]}`)))
		for r, err := range c.EnforceSubjects(t.Context(), question, obligations.Handlers{}) {
			if err == nil {
				t.Errorf("context %s: found %v", context, r)
			}
			context = ""
		}
		if context != "" {
			t.Errorf("context %s: nothing is found, and no error says why", context)
		}
	}
}

// TestOctoberLargePages: a page costs by its size, also if all of its results have the obligations of the page.
func TestOctoberLargePages(t *testing.T) {
	t.Parallel()
	const n = 4000
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var results, owed []string
	for i := range n {
		results = append(results, fmt.Sprintf(`{"type":"user","id":"u%d"}`, i))
		owed = append(owed, logs(strconv.Itoa(i), "{}"))
	}
	body := `{"context":{"obligations":[` + strings.Join(owed, ",") + `]},"results":[` + strings.Join(results, ",") + `]}`
	var p pep
	found := 0
	for _, err := range newClient(t, stub(t, says(body))).EnforceSubjects(ctx, question, p.handlers()) {
		if err != nil {
			t.Fatal(err)
		}
		found++
	}
	if found != n || len(p.done) != n || ctx.Err() != nil {
		t.Errorf("found %d and did %d of %d: %v", found, len(p.done), n, ctx.Err())
	}
}

// without answers as the PDP at a URL does to questions from which a proxy took a member, wherever it stands.
func without(t *testing.T, at, member string) string {
	t.Helper()
	to, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		text = lies.Without(text, member)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestOctoberIsStripped: a proxy that drops what a PEP declares opens nothing, at any endpoint. Nothing is permitted whose
// obligation is not done.
func TestOctoberIsStripped(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"a.cedar": `@obligation("log") permit(principal, action == Action::"log", resource);
@obligation("tell") permit(principal, action == Action::"tell", resource);
@obligation("ask") permit(principal, action == Action::"ask", resource);
permit(principal, action == Action::"look", resource);`,
		"obligations.yaml":  "tell: {type: notification, properties: {to: ops, body: b}}\nask: {type: approval_required}\n",
		"entities/all.json": `[{"uid":{"type":"doc","id":"d"},"attrs":{},"parents":[]}]`,
	}))
	for stripped, want := range map[string]string{
		"none": "P P O P", "supported_mandatory_extensions": "D O O P", "supported_obligations": "D D D P",
	} {
		c := newClient(t, without(t, s.URL, stripped))
		var single, batch, found []string
		var questions []evaluation.Request
		for _, action := range []string{"log", "tell", "ask", "look"} {
			var p pep
			handlers := p.handlers()
			handlers["approval_required"] = handlers["step-up"] // which fails
			q := ask("u", action, "d")
			questions = append(questions, q)
			e := c.Enforce(t.Context(), q, handlers)
			if single = append(single, outcome(t, e)); e.Permitted() && action != "look" && len(p.done) != 1 {
				t.Errorf("without %s: %s is permitted, and nothing was done", stripped, action)
			}
			p = pep{}
			results := gather(t, c.EnforceResources(t.Context(), q, handlers))
			if found = append(found, results); results != "" && action != "look" && len(p.done) != 1 {
				t.Errorf("without %s: %s is found, and nothing was done", stripped, action)
			}
		}
		var p pep
		handlers := p.handlers()
		handlers["approval_required"] = handlers["step-up"]
		for _, e := range c.EnforceBatch(t.Context(), "", handlers, questions...) {
			batch = append(batch, outcome(t, e))
		}
		foundWant := strings.NewReplacer("P", "d", "E", "", "O", "", "D", "").Replace(want)
		if got := strings.Join(single, " "); got != want || strings.Join(batch, " ") != want || strings.Join(found, " ") != foundWant {
			t.Errorf("without %s: %s, in a batch %s, in a search %q, want %s", stripped, got, batch, found, want)
		}
	}
	nobody := newClient(t, without(t, s.URL, "supported_mandatory_extensions"))
	if got := gather(t, nobody.EnforceResources(t.Context(), ask("u", "log", "d"), obligations.Handlers{})); got != "" {
		t.Errorf("found %s without a handler", got)
	}
}
