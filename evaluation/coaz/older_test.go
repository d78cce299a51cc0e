package coaz_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
)

const olderMapping = `{"resource": {"type": "t", "id": "$.properties.id"}, "subject": {"type": "user", "id": "$.token.sub"}, "context": {"agent": "$.token.client_id"}}`

func sepTool(mapping string) string {
	return `{"name": "t", "coaz": true, "inputSchema": {"type": "object", "x-coaz-mapping": ` + mapping + `}}`
}

// older is olderMapping with one part replaced, or, by "", left out.
func older(t testing.TB, part, text string) string {
	t.Helper()
	var parts map[string]json.RawMessage
	if err := json.Unmarshal([]byte(olderMapping), &parts); err != nil {
		t.Fatal(err)
	}
	if parts[part] = json.RawMessage(text); text == "" {
		delete(parts, part)
	}
	return string(jsonOf(t, parts))
}

func TestOlderDialectRefuses(t *testing.T) {
	t.Parallel()
	b := newBinding(t, coaz.Options{})
	for _, row := range []struct{ mapping, pointer string }{
		{`{}`, "/context"},
		{older(t, "resource", ""), "/resource"},
		{older(t, "subject", ""), "/subject"},
		{older(t, "context", ""), "/context"},
		{older(t, "subject", `{"id": "$.token.sub"}`), "/subject/type"},
		{older(t, "subject", `{"type": "user"}`), "/subject/id"},
		{older(t, "resource", `{"type": "t"}`), "/resource/id"},
		{older(t, "resource", `"text"`), "/resource"},
		{older(t, "context", `["a"]`), "/context"},
		{older(t, "action", `{}`), "/action/name"},
		{older(t, "evaluation", `{}`), "/evaluation"},
		{older(t, "resource", `{"type": "t", "id": "$.properties.id", "owner": "x"}`), "/resource/owner"},
		{`{"resource": {"type": "t", "id": "$.token.sub"}, "subject": {"type": "user", "id": "x"}, "context": {"a": "$.properties.id"}}`, ""},
		{older(t, "context", `{"approval_id": "$.token.jti"}`), "/context/approval_id"},
	} {
		m, err := b.Parse(object(t, sepTool(row.mapping)))
		if err == nil {
			t.Errorf("taken: %s, %v", row.mapping, m)
			continue
		}
		if wrong := mappingError(t, err); wrong.Pointer != row.pointer || wrong.Dialect != coaz.SEP {
			t.Errorf("%s: %+v", row.mapping, wrong)
		}
	}
	for _, definition := range []string{`{"coaz": true}`, `{"coaz": true, "inputSchema": {}}`, `{"coaz": true, "inputSchema": {"x-authzen-mapping": ` + single(nil) + `}}`,
		`{"coaz": true, "inputSchema": {"x-coaz-mapping": "$.token"}}`} {
		if _, err := b.Parse(object(t, definition)); err == nil {
			t.Errorf("taken: %s", definition)
		}
	}
}

// Any string that begins with $ is a query that selects one place, or it is refused.
func TestOlderDialectQueries(t *testing.T) {
	t.Parallel()
	b := newBinding(t, coaz.Options{})
	for _, query := range []string{
		"$", "$$", "$$50", "$.", "$.properties.", "$..properties", "$.properties..id", "$.properties[*]", "$.properties.*", "$.properties.list[0:1]", "$.properties['a','b']",
		"$.properties[?@.id]", "$.properties[?length(@) > 1]", "$.other", "$.inputSchema.properties", "$[0]", "$.properties.list[01]", "$.properties.list[-0]", "$properties['id']", "$.properties[id]",
		" $.token.sub", "$.token.sub ", "$.properties.a b", "$.properties['a", `$.properties["a']`, "$.properties.list[1.0]", "$.properties[]", "$token.sub", "$.properties['\\x']",
		"$.properties.1a", "$. properties", "$.PROPERTIES.id", "@.properties", "$.properties.list[9007199254740992]", "$.properties['a'] extra", "$.token.sub.length()", "$100",
	} {
		if !strings.HasPrefix(query, "$") {
			continue // a literal
		}
		_, err := b.Parse(object(t, sepTool(older(t, "context", `{"deep": [{"x": `+string(jsonOf(t, query))+`}]}`))))
		if err == nil {
			t.Errorf("taken: %s", query)
			continue
		}
		if wrong := mappingError(t, err); wrong.Pointer != "/context/deep/0/x" {
			t.Errorf("%s: %+v", query, wrong)
		}
	}
	q := olderQuestions(t, `{"a": "$.properties.list[1]", "b": "$['properties']['map'][\"k\"]", "c": "$.token.roles[-1]", "d": "$ . properties . no", "e": ["$.properties.no", "$.properties.n"], "f": "x$.token", "g": "$.properties",
		"h": {"i": "$.properties.no.deeper"}}`)
	if q != "" {
		t.Errorf("blanks after a dot were taken: %s", q)
	}
	q = olderQuestions(t, `{"a": "$.properties.list[1]", "b": "$ ['properties']\n[ 'map' ][\"k\"]", "c": "$.token.roles[-1]", "d": "$.properties.no", "e": ["$.properties.no", "$.properties.n"], "f": "x$.token", "g": "$.properties.map",
		"h": {"i": "$.properties.no.deeper"}}`)
	if want := `{"a":"b","b":"v","c":"r","e":[7],"f":"x$.token","g":{"k":"v"},"h":{}}`; q != want {
		t.Errorf("%s\nnot %s", q, want)
	}
}

// olderQuestions is the context that comes of one in the older dialect, "" if there is none.
func olderQuestions(t *testing.T, context string) string {
	t.Helper()
	m, err := newBinding(t, coaz.Options{}).Parse(object(t, sepTool(older(t, "context", context))))
	if err != nil {
		return ""
	}
	q, err := m.Questions(operationOf(t, asked))
	if err != nil {
		t.Fatal(err)
	}
	return string(jsonOf(t, q.Requests[0].Context))
}

func TestOlderDialectNeedsNames(t *testing.T) {
	t.Parallel()
	b := newBinding(t, coaz.Options{Override: coaz.WarnOverride})
	for _, place := range []string{"$.properties.no", "$.properties.n", "$.properties.list", "$.properties.map", "$.properties.empty", "$.token.no"} {
		for _, mapping := range []string{
			older(t, "resource", `{"type": "t", "id": "`+place+`"}`), older(t, "resource", `{"type": "`+place+`", "id": "i"}`),
			older(t, "action", `{"name": "`+place+`"}`), older(t, "subject", `{"type": "user", "id": "`+place+`"}`), older(t, "resource", `"`+place+`"`),
		} {
			m, err := b.Parse(object(t, sepTool(mapping)))
			if err != nil {
				t.Fatal(err)
			}
			if q, err := m.Questions(operationOf(t, asked)); err == nil {
				t.Errorf("%s: %s", mapping, q.Envelopes[0].Body)
			}
		}
	}
}

// The subject of the older dialect is held to the token as that of the binding's.
func TestOlderDialectAnchors(t *testing.T) {
	t.Parallel()
	m, err := newBinding(t, coaz.Options{SubjectClaim: "/act/sub"}).Parse(object(t, sepTool(olderMapping)))
	if err != nil {
		t.Fatal(err)
	}
	if q, err := m.Questions(operationOf(t, asked)); err != nil || q.Requests[0].Subject.ID != "carol" {
		t.Errorf("%+v, %v", q, err)
	}
	m, err = newBinding(t, coaz.Options{}).Parse(object(t, sepTool(older(t, "subject", `{"type": "user", "id": "$.properties.id"}`))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Questions(operationOf(t, asked)); err == nil {
		t.Error("a subject from the arguments was taken")
	}
}

// A mapping that an operator writes in the older dialect has no tool whose name it could take.
func TestOlderDialectOfOperators(t *testing.T) {
	t.Parallel()
	m, err := newBinding(t, coaz.Options{}).Compile(object(t, olderMapping), coaz.SEP)
	if err != nil {
		t.Fatal(err)
	}
	if q, err := m.Questions(operationOf(t, asked)); err != nil || q.Requests[0].Action.Name != "t" {
		t.Errorf("%+v, %v", q, err)
	}
	if _, err := m.Questions(operationOf(t, `{"method": "prompts/list", "params": {"arguments": {"id": "i"}}, "token": {"sub": "a"}}`)); err == nil {
		t.Error("a request that names no tool has an action")
	}
}

// A tool that declares both dialects is asked about in both.
func TestBothDialects(t *testing.T) {
	t.Parallel()
	definition := func(x, older string) evaluation.Object {
		return object(t, `{"name": "t", "coaz": true, "inputSchema": {"x-authzen-mapping": `+x+`, "x-coaz-mapping": `+older+`}}`)
	}
	b := newBinding(t, coaz.Options{})
	m, err := b.Parse(definition(single(nil), olderMapping))
	if err != nil {
		t.Fatal(err)
	}
	q, err := m.Questions(operationOf(t, asked))
	if err != nil || len(q.Requests) != 2 || len(q.Envelopes) != 2 || m.Dialect() != coaz.AuthZEN {
		t.Fatalf("%+v, %v", q, err)
	}
	if q.Requests[0].Action.Name != "a" || q.Requests[1].Action.Name != "t" || len(q.Envelopes[1].Requests) != 1 {
		t.Errorf("%+v", q)
	}
	for _, broken := range []evaluation.Object{definition(`{}`, olderMapping), definition(single(nil), `{}`)} {
		if _, err := b.Parse(broken); err == nil {
			t.Error("one of two mappings is wrong, and the tool was taken")
		}
	}
	m, err = b.Parse(definition(single(nil), older(t, "resource", `{"type": "t", "id": "$.properties.no"}`)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Questions(operationOf(t, asked)); err == nil {
		t.Error("one of two mappings fails, and there are questions")
	}
}

// TestComplianceSuite holds the parser of queries to the public suite (testdata/jsonpath): what selects one node at
// most selects it, and all else is refused.
func TestComplianceSuite(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/jsonpath/cts.json")
	if err != nil {
		t.Fatal(err)
	}
	var suite struct {
		Tests []struct {
			Name, Selector string
			Document       json.RawMessage
			Result         []json.RawMessage
			Invalid        bool `json:"invalid_selector"`
		}
	}
	if err := json.Unmarshal(text, &suite); err != nil {
		t.Fatal(err)
	}
	taken, refused := 0, 0
	for _, c := range suite.Tests {
		got, ok := coaz.SelectSingular(c.Selector, value(t, c.Document))
		switch {
		case !ok && !c.Invalid && isSingular(c.Selector):
			t.Errorf("%s: %s is refused", c.Name, c.Selector)
		case !ok:
			refused++
		case c.Invalid || !isSingular(c.Selector):
			t.Errorf("%s: %s is taken", c.Name, c.Selector)
		default:
			taken++
			if len(got) != len(c.Result) || len(got) == 1 && !got[0].Equal(value(t, c.Result[0])) {
				t.Errorf("%s: %s selects %v, not %s", c.Name, c.Selector, got, c.Result)
			}
		}
	}
	if taken < 70 || refused < 600 {
		t.Errorf("%d queries were taken and %d refused", taken, refused)
	}
}

// isSingular tells by another way than the parser's whether a valid selector is a singular query: outside of quotes it
// has nothing that selects more than one node, and it calls and filters nothing.
func isSingular(selector string) bool {
	var quote rune
	escaped := false
	for _, c := range selector {
		switch {
		case escaped:
			escaped = false
		case quote != 0 && c == '\\':
			escaped = true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
		case c == '\'' || c == '"':
			quote = c
		case strings.ContainsRune("*?:,(@", c):
			return false
		}
	}
	return !strings.Contains(selector, "..") || strings.Contains(selector, "'..'")
}

func value(t *testing.T, text json.RawMessage) evaluation.Value {
	t.Helper()
	if text == nil {
		text = json.RawMessage("null")
	}
	o := object(t, `{"v": [`+string(text)+`]}`)
	v, _ := o.Get("v")
	for _, e := range v.Elements {
		return e
	}
	t.Fatal("no value")
	return evaluation.Value{}
}
