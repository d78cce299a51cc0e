package coaz_test

import (
	"encoding/json"
	"strings"
	"testing"

	"policy-service/evaluation/coaz"
)

func asTheyCame(t *testing.T) {
	numbers := `[1,1.0,1e0,-0,0.1,9007199254740993,12345678901234567890123,1e400,3.14159265358979323846264338327950288]`
	op := operationOf(t, `{"method": "tools/call", "params": {"name": "t", "arguments": {"n": `+numbers+`, "one": 1.0, "kind": "x", "big": 12345678901234567890123, "huge": [2e400]}},
		"token": {"sub": "alice", "exp": 1.75e9, "jti": 12345678901234567890123}}`)
	q, err := declare(t, newBinding(t, coaz.Options{}), single(map[string]string{"context": `{"params": "$params", "token": "$token", "one": "$params.arguments.one",
		"big": "$params.arguments.big", "in": "$[params.arguments.big, {'x': params.arguments.n}]"}`})).Questions(op)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"big":12345678901234567890123,"in":[12345678901234567890123,{"x":` + numbers + `}],"one":1.0,` +
		`"params":{"arguments":{"big":12345678901234567890123,"huge":[2e400],"kind":"x","n":` + numbers + `,"one":1.0},"name":"t"},` +
		`"token":{"exp":1.75e9,"jti":12345678901234567890123,"sub":"alice"}}`
	if got := string(jsonOf(t, q.Requests[0].Context)); got != want {
		t.Errorf("%s\nnot %s", got, want)
	}
	if !strings.HasSuffix(string(q.Envelopes[0].Body), want+"}") {
		t.Errorf("%s", q.Envelopes[0].Body)
	}
	for _, leaf := range []string{
		"$params.arguments.big > 5", "$5 > params.arguments.big", "$params.arguments.big == 5", "$5 == params.arguments.big", "$params.arguments.big != 5",
		"$params.arguments.big in [1]", "$5 in params.arguments.n", "$params.arguments == params.arguments", "$params.arguments.big + 1", "$string(params.arguments.big)",
		"$int(params.arguments.big)", "$[params.arguments.big] == [5]", "$[5] == [params.arguments.big]", "$-params.arguments.big", "$params.arguments.n.exists(n, n == 77)",
		"$params.arguments.big == 12345678901234567890123.0", "$optional.of(params.arguments.big) == optional.of(5)", "$params.arguments.n[8] > 3.0",
		"$optional.of(params.arguments.big).hasValue(5)", "$optional.of(5).hasValue(params.arguments.big)", "$optional.of([params.arguments.big]).hasValue([5])",
		"$params.arguments.?n.hasValue([1])", "$optional.of(dyn([5])).hasValue(dyn([params.arguments.big]))",
		"$[0].exists(params, .params.arguments.huge == [3])",
	} {
		_, err := declare(t, newBinding(t, coaz.Options{}), contextOf(t, leaf)).Questions(op)
		if err == nil {
			t.Errorf("%s was computed with a number that CEL cannot hold", leaf)
		}
	}
	for leaf, want := range map[string]string{
		"$params.arguments.n[0] == params.arguments.n[1] && params.arguments.n[1] == params.arguments.n[2]": "true",
		"$params.arguments.n[5] + 1": "9007199254740994", "$params.arguments.n[4] == 0.1": "true", "$params.arguments.n.map(n, n)": numbers[:0] + "",
		`$has(params.arguments.kind) && params.arguments.kind == "x"`: "true", "$has(params.arguments.kind) ? params.arguments.kind == 'x' : 1 == 2": "true",
		"$params.arguments.?big.hasValue()": "true", "$[0].exists(params, .params.arguments.kind == 'x')": "true",
	} {
		q, err := declare(t, newBinding(t, coaz.Options{}), contextOf(t, leaf)).Questions(op)
		if err != nil {
			t.Errorf("%s: %v", leaf, err)
			continue
		}
		if got, _ := q.Requests[0].Context.Get("x"); want != "" && got.Text() != want {
			t.Errorf("%s: %s", leaf, got.Text())
		}
	}
}

func subjectClaim(t *testing.T) {
	for claim, who := range map[string]string{"": "alice", "sub": "alice", "client_id": "agent-1", "/act/sub": "carol", "/sub": "alice"} {
		o := coaz.Options{SubjectClaim: claim}
		for _, subject := range []string{"", `{}`, `{"id": "$token.sub"}`, `{"id": "$token['sub']"}`, `{"id": "$token.?sub"}`, `"${'type': 'user'}"`} {
			if q := questionsOf(t, o, single(map[string]string{"subject": subject})); q.Requests[0].Subject.ID != who || len(q.Warnings) != 0 {
				t.Errorf("claim %q, subject %s: %+v", claim, subject, q)
			}
		}
		m, _ := newBinding(t, o).Default("tools/call")
		if q, err := m.Questions(operationOf(t, asked)); err != nil || q.Requests[0].Subject.ID != who {
			t.Errorf("claim %q, default: %+v, %v", claim, q, err)
		}
	}
	if q := questionsOf(t, coaz.Options{SubjectClaim: "/act/sub"}, single(map[string]string{"subject": `{"id": "$token.act.sub"}`})); q.Requests[0].Subject.ID != "carol" {
		t.Errorf("%+v", q)
	}
	for _, claim := range []string{"nobody", "/act", "/act/nobody", "/roles", "/a~1b", "/"} {
		refusedAt(t, coaz.Options{SubjectClaim: claim}, single(map[string]string{"subject": ""}), "/evaluation/subject/id", "no claim")
	}
	for _, sub := range []string{`7`, `true`, `null`, `""`, `["7"]`, `{"sub": "7"}`, `1e400`} { // nobody is named by what is no text
		op := operationOf(t, `{"method": "tools/call", "params": {"name": "t"}, "token": {"sub": `+sub+`}}`)
		mapping, _ := newBinding(t, coaz.Options{}).Default("tools/call")
		for _, m := range []*coaz.Mapping{mapping, declare(t, newBinding(t, coaz.Options{}), single(nil)), declare(t, newBinding(t, coaz.Options{}), single(map[string]string{"subject": `{"id": "7"}`}))} {
			if q, err := m.Questions(op); err == nil {
				t.Errorf("sub %s: %s", sub, q.Envelopes[0].Body)
			}
		}
	}
	for _, bad := range []coaz.Options{{SubjectClaim: "/a~2"}, {SubjectClaim: "/a~"}, {Override: 7}, {Inputs: []string{"params"}}, {Inputs: []string{"a", "a"}}, {Inputs: []string{"has"}}, {Inputs: []string{"A"}}, {Inputs: []string{""}}} {
		if _, err := coaz.New(bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func alwaysCEL(t *testing.T) {
	for method := range defaultTexts(t) {
		if _, verdict := newBinding(t, coaz.Options{}).Default(method); verdict != coaz.Mapped {
			t.Errorf("%s: %v", method, verdict)
		}
	}
}

func defaultTexts(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	var texts map[string]json.RawMessage
	if err := json.Unmarshal([]byte(coaz.Defaults), &texts); err != nil {
		t.Fatal(err)
	}
	if len(texts) != 14 {
		t.Errorf("%d defaults", len(texts))
	}
	return texts
}

func defaultUnlessDeclared(t *testing.T) {
	b := newBinding(t, coaz.Options{})
	for _, definition := range []string{`{}`, `{"name": "t"}`, `{"inputSchema": {"type": "object"}}`, `{"coaz": false}`, `{"coaz": "true"}`, `{"x-authzen-mapping": {}}`,
		`{"inputSchema": {"x-coaz-mapping": {}}}`, `{"coaz": 1, "inputSchema": {"x-coaz-mapping": {}}}`} {
		if m, err := b.Parse(object(t, definition)); m != nil || err != nil {
			t.Errorf("%s declares %v, %v", definition, m, err)
		}
	}
}

func audience(t *testing.T) {
	const own = "https://mcp.example.com"
	for _, row := range []struct{ resource, aud, want string }{
		{"", `"https://mcp.example.com"`, own},
		{"", `["https://mcp.example.com"]`, own},
		{"", `["https://mcp.example.com", "https://other.example.com"]`, ""},
		{"", `[]`, ""}, {"", `""`, ""}, {"", `7`, ""}, {"", `[7]`, ""}, {"", `{}`, ""}, {"", "", ""},
		{own, `"https://mcp.example.com"`, own},
		{own, `["https://other.example.com", "https://mcp.example.com"]`, own},
		{own, `["https://mcp.example.com", 7]`, ""},
		{own, `"https://other.example.com"`, ""}, {own, `["https://mcp.example.com/"]`, ""}, {own, `[]`, ""}, {own, `7`, ""},
		{own, "", own},
	} {
		claims := `{"sub": "alice"}`
		if row.aud != "" {
			claims = `{"sub": "alice", "aud": ` + row.aud + `}`
		}
		m, _ := newBinding(t, coaz.Options{Resource: row.resource}).Default("tools/list")
		q, err := m.Questions(operationOf(t, `{"method": "tools/list", "token": `+claims+`}`))
		switch {
		case row.want == "" && err == nil:
			t.Errorf("%+v: %s", row, q.Envelopes[0].Body)
		case row.want == "":
			if wrong := mappingError(t, err); wrong.Pointer != "/evaluation/resource/id" || strings.Contains(wrong.Error(), "example.com") {
				t.Errorf("%+v: %v", row, err)
			}
		case err != nil || q.Requests[0].Resource.ID != row.want:
			t.Errorf("%+v: %v, %v", row, q, err)
		}
	}
}

// A declared mapping reads the claim as it is: what the binding says of $token.aud, it says of the default mappings.
func TestAudienceOfDeclared(t *testing.T) {
	t.Parallel()
	m := declare(t, newBinding(t, coaz.Options{Resource: "https://mcp.example.com"}), single(map[string]string{"resource": `{"type": "mcp_server", "id": "$token.aud"}`}))
	for aud, want := range map[string]string{`"https://other.example.com"`: "https://other.example.com", `["https://mcp.example.com"]`: ""} {
		q, err := m.Questions(operationOf(t, `{"method": "tools/call", "token": {"sub": "alice", "aud": `+aud+`}}`))
		if want == "" && err == nil || want != "" && (err != nil || q.Requests[0].Resource.ID != want) {
			t.Errorf("%s: %v, %v", aud, q.Requests, err)
		}
	}
}

func passesThrough(t *testing.T) {
	b := newBinding(t, coaz.Options{})
	for _, method := range []string{"ping", "notifications/initialized", "notifications/cancelled", "notifications/io.example/own"} {
		if m, verdict := b.Default(method); m != nil || verdict != coaz.PassThrough {
			t.Errorf("%s: %v", method, verdict)
		}
	}
}

func unknownMethods(t *testing.T) {
	b := newBinding(t, coaz.Options{})
	for _, method := range []string{"", "Ping", "ping/", "pings", "notifications", "notification/x", "Notifications/x", "tools/Call", "tools/call ", "initialize", "resources/templates/list",
		"server/discover", "subscriptions/listen", "tasks/update", "tools/request", "authorization/respond"} {
		if m, verdict := b.Default(method); m != nil || verdict != coaz.Unknown {
			t.Errorf("%s: %v", method, verdict)
		}
	}
}

// TestForgotten: what the binding forgot is asked about like a list, by its own name. It is no default, and nothing else is forgotten.
func TestForgotten(t *testing.T) {
	t.Parallel()
	b := newBinding(t, coaz.Options{Resource: "https://mcp.example.com"})
	for method, params := range map[string]string{
		"initialize": `{"protocolVersion":"2025-11-25"}`, "server/discover": `{}`, "resources/templates/list": `{"cursor":"x"}`, "subscriptions/listen": `{"notifications":{}}`,
	} {
		q, err := b.Forgotten(method).Questions(operationOf(t, `{"method":"`+method+`","params":`+params+`,"token":{"sub":"alice","client_id":"c"}}`))
		if err != nil || len(q.Requests) != 1 || q.Requests[0].Action.Name != method || q.Requests[0].Resource.ID != "https://mcp.example.com" || q.Requests[0].Subject.ID != "alice" {
			t.Errorf("%s: %+v, %v", method, q.Requests, err)
		}
	}
	for method := range defaultTexts(t) {
		if b.Forgotten(method) != nil {
			t.Errorf("%s is a default, and forgotten", method)
		}
	}
	for _, method := range []string{"", "ping", "tasks/update", "tools/destroy", "notifications/initialized", "Initialize"} {
		if b.Forgotten(method) != nil {
			t.Errorf("%s is forgotten", method)
		}
	}
	if _, err := b.Forgotten("initialize").Questions(operationOf(t, `{"method":"initialize","params":{},"token":{"sub":"alice"}}`)); err == nil {
		t.Error("initialize without a version is asked about")
	}
}

func unknownRequestsOfServers(t *testing.T) {
	for _, method := range []string{"sampling/createMessage", "elicitation/create", "roots/list"} {
		if _, verdict := newBinding(t, coaz.Options{}).Default(method); verdict != coaz.Unknown {
			t.Errorf("%s: %v", method, verdict)
		}
	}
}

func forToolsOnly(t *testing.T) {
	b := newBinding(t, coaz.Options{})
	m := declare(t, b, single(nil))
	for _, method := range []string{"", "tools/list", "prompts/get"} {
		op := operationOf(t, asked)
		op.Method = method
		if _, err := m.Questions(op); err == nil {
			t.Errorf("a declared mapping was used for %q", method)
		}
	}
	list, _ := b.Default("tools/list")
	if _, err := list.Questions(operationOf(t, asked)); err == nil {
		t.Error("the default of tools/list was used for tools/call")
	}
}

func verified(t *testing.T) {
	for _, id := range []string{"$token.sub", "$'' + token.sub", "$token.sub.endsWith('e') ? token.sub : 'x'", "$params.arguments.me", "alice"} {
		q, err := declare(t, newBinding(t, coaz.Options{}), single(map[string]string{"subject": `{"id": ` + string(jsonOf(t, id)) + `}`})).
			Questions(operationOf(t, `{"method": "tools/call", "params": {"arguments": {"me": "alice"}}, "token": {"sub": "alice"}}`))
		if err != nil || q.Requests[0].Subject.ID != "alice" || len(q.Warnings) != 0 {
			t.Errorf("%s: %+v, %v", id, q, err)
		}
	}
	for _, id := range []string{"$params.arguments.id", "$token.client_id", "$token.sub + 'x'", "bob", "$'Alice'", "$token.act.sub"} {
		refusedAt(t, coaz.Options{}, single(map[string]string{"subject": `{"id": ` + string(jsonOf(t, id)) + `}`}), "/evaluation/subject/id", "not the one that the token names")
	}
	refusedAt(t, coaz.Options{}, `{"evaluations": {"subject": {"id": "$params.arguments.id"}, "resource": {"type": "t", "id": "i"}, "evaluations": [{"action": {"name": "a"}}]}}`,
		"/evaluations/subject/id", "not the one that the token names")
	refusedAt(t, coaz.Options{}, single(map[string]string{"subject": `"${'id': params.arguments.id, 'type': 'user'}"`}), "/evaluation/subject/id", "not the one")
}

func overridden(t *testing.T) {
	q := questionsOf(t, coaz.Options{Override: coaz.WarnOverride}, single(map[string]string{"subject": `{"id": "$params.arguments.id"}`}))
	if q.Requests[0].Subject.ID != "i-1" || len(q.Warnings) != 1 || q.Warnings[0].Pointer != "/evaluation/subject/id" || strings.Contains(q.Warnings[0].Detail, "i-1") {
		t.Errorf("%+v", q)
	}
	q = questionsOf(t, coaz.Options{Override: coaz.WarnOverride, SubjectClaim: "nobody"}, single(map[string]string{"subject": `{"id": "$token.client_id"}`}))
	if q.Requests[0].Subject.ID != "agent-1" || len(q.Warnings) != 1 {
		t.Errorf("%+v", q)
	}
	// An operator is believed.
	m, err := newBinding(t, coaz.Options{}).Compile(object(t, single(map[string]string{"subject": `{"type": "agent", "id": "$token.client_id"}`})), coaz.AuthZEN)
	if err != nil {
		t.Fatal(err)
	}
	if q, err := m.Questions(operationOf(t, asked)); err != nil || q.Requests[0].Subject.ID != "agent-1" || len(q.Warnings) != 0 {
		t.Errorf("%+v, %v", q, err)
	}
}

func supplied(t *testing.T) {
	for subject, want := range map[string]string{
		"":                                      `{"type":"identity","id":"alice"}`,
		`{}`:                                    `{"type":"identity","id":"alice"}`,
		`{"type": "user"}`:                      `{"type":"user","id":"alice"}`,
		`{"id": "$token.sub"}`:                  `{"type":"identity","id":"alice"}`,
		`{"properties": {"p": true}}`:           `{"type":"identity","id":"alice","properties":{"p":true}}`,
		`"${'properties': {'p': true}}"`:        `{"type":"identity","id":"alice","properties":{"p":true}}`,
		`"${'type': 'user', 'id': token.sub}"`:  `{"type":"user","id":"alice"}`,
		`"$params.arguments.?no"`:               "",
		`{"type": "$params.arguments.?no"}`:     "",
		`{"id": "$params.arguments.?no"}`:       "",
		`"${'id': 7}"`:                          "",
		`"${'type': '', 'id': token.sub}"`:      "",
		`{"type": null, "id": null}`:            `{"type":"identity","id":"alice"}`,
		`{"type": "", "id": "$token.sub"}`:      "",
		`{"type": "user", "id": "", "name": 1}`: "",
	} {
		m, err := newBinding(t, coaz.Options{}).Parse(tool(t, single(map[string]string{"subject": subject})))
		var q coaz.Questions
		if err == nil {
			q, err = m.Questions(operationOf(t, asked))
		}
		if want == "" {
			mappingError(t, err)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", subject, err)
			continue
		}
		if got, _ := q.Requests[0].Subject.MarshalJSON(); string(got) != want {
			t.Errorf("%s: %s", subject, got)
		}
	}
	// Nothing is added to a mapping of an operator, nor to one of the older dialect.
	for _, mapping := range []string{single(map[string]string{"subject": ""}), single(map[string]string{"subject": `{"id": "$token.sub"}`})} {
		if _, err := newBinding(t, coaz.Options{}).Compile(object(t, mapping), coaz.AuthZEN); err == nil {
			t.Errorf("%s was taken from an operator", mapping)
		}
	}
}

func subjectInEntry(t *testing.T) {
	for _, subject := range []string{`{}`, `{"id": "$token.sub"}`, `"$params.arguments.map"`, `"x"`, `{"type": "user"}`, `null`} {
		refusedAt(t, coaz.Options{Override: coaz.WarnOverride}, `{"evaluations": {"resource": {"type": "t", "id": "i"}, "evaluations": [
			{"action": {"name": "a"}}, {"action": {"name": "b"}, "subject": `+subject+`}]}}`, "/evaluations/evaluations/1/subject", "must not have a subject")
	}
}

func agentInContext(t *testing.T) {
	for method := range defaultTexts(t) {
		m, _ := newBinding(t, coaz.Options{}).Default(method)
		q, err := m.Questions(operationOf(t, `{"method": "`+method+`", "params": {"name": "n", "uri": "u", "taskId": "t", "level": "l", "protocolVersion": "v", "ref": {"type": "ref/prompt", "name": "p"}},
			"token": {"sub": "alice", "client_id": "agent-1", "aud": "x"}}`))
		if err != nil {
			t.Errorf("%s: %v", method, err)
			continue
		}
		if agent, _ := q.Requests[0].Context.Get("agent"); agent.Text() != "agent-1" {
			t.Errorf("%s: %s", method, q.Envelopes[0].Body)
		}
	}
}

func codes(t *testing.T) {
	b := newBinding(t, coaz.Options{})
	older, err := b.Parse(object(t, sepTool(`{"resource": {"type": "t", "id": "$.properties.no"}, "subject": {"type": "user", "id": "$.token.sub"}, "context": {}}`)))
	if err != nil || older.Dialect() != coaz.SEP || older.Dialect().String() != "sep" {
		t.Fatalf("%v, %v", older, err)
	}
	_, err = older.Questions(operationOf(t, asked))
	if wrong := mappingError(t, err); wrong.Dialect != coaz.SEP || wrong.Code() != -32602 || wrong.Pointer != "/resource/id" || wrong.Expression != "$.properties.no" {
		t.Errorf("%+v", wrong)
	}
	if m := declare(t, b, single(nil)); m.Dialect() != coaz.AuthZEN || m.Dialect().String() != "authzen" || coaz.Denied.Code(m.Dialect()) != -32001 {
		t.Errorf("%v", m.Dialect())
	}
}

func digests(t *testing.T) {
	b := newBinding(t, coaz.Options{})
	digest := declare(t, b, single(nil)).Digest()
	if !strings.HasPrefix(digest, "sha256:") || len(digest) != 7+64 {
		t.Errorf("%s", digest)
	}
	if same := declare(t, b, strings.ReplaceAll(single(nil), " ", "\n")).Digest(); same != digest {
		t.Error("white space changes the digest")
	}
	seen := map[string]bool{digest: true}
	sep, err := b.Parse(object(t, sepTool(olderMapping)))
	if err != nil {
		t.Fatal(err)
	}
	renamed, err := b.Parse(object(t, strings.Replace(sepTool(olderMapping), `"name": "t"`, `"name": "u"`, 1))) // its action is another
	if err != nil {
		t.Fatal(err)
	}
	both, err := b.Parse(object(t, `{"name": "t", "coaz": true, "inputSchema": {"x-authzen-mapping": `+single(nil)+`, "x-coaz-mapping": `+olderMapping+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*coaz.Mapping{declare(t, b, single(map[string]string{"action": `{"name": "b"}`})), declare(t, b, single(map[string]string{"context": ""})), sep, renamed, both} {
		if seen[m.Digest()] {
			t.Errorf("another mapping has the digest %s", m.Digest())
		}
		seen[m.Digest()] = true
	}
}
