package sdkpep_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz/sdkpep"
)

// ambiguous are messages that two readers could read differently, or that the SDK would take for something else. The PDP
// permits alice everything but get_customer of kept.
var ambiguous = map[string]string{
	"name twice":              `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"weather","name":"get_customer","arguments":{"id":"kept"},META}}`,
	"name twice, turned":      `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_customer","name":"weather","arguments":{"id":"kept"},META}}`,
	"name twice, escaped":     `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"weather","n\u0061me":"get_customer","arguments":{"id":"kept"},META}}`,
	"arguments twice":         `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_customer","arguments":{"id":"c"},"arguments":{"id":"kept"},META}}`,
	"arguments twice, turned": `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_customer","arguments":{"id":"kept"},"arguments":{"id":"c"},META}}`,
	"an argument twice":       `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_customer","arguments":{"id":"c","id":"kept"},META}}`,
	"an argument twice, deep": `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"weather","arguments":{"x":[{"a":1,"a":2}]},META}}`,
	"an argument twice, though no question has arguments": `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"constant","arguments":{"id":"c","id":"kept"},META}}`,
	"params twice":           `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"weather",META},"params":{"name":"get_customer","arguments":{"id":"kept"},META}}`,
	"method twice":           `{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call","params":{"name":"get_customer","arguments":{"id":"kept"},META}}`,
	"no UTF-8":               "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"weather\",\"arguments\":{\"x\":\"\xff\"},META}}",
	"no UTF-8 in the name":   "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"weather\xff\",\"arguments\":{},META}}",
	"a lone surrogate":       `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"weather","arguments":{"x":"\ud800"},META}}`,
	"more after it":          `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_customer","arguments":{"id":"kept"},META}}{"jsonrpc":"2.0","id":8,"method":"ping"}`,
	"no JSON after it":       `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_customer","arguments":{"id":"kept"},META}}x`,
	"a byte order mark":      "\xef\xbb\xbf" + `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_customer","arguments":{"id":"kept"},META}}`,
	"a batch":                `[{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_customer","arguments":{"id":"kept"},META}}]`,
	"a batch, in space":      ` [{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_customer","arguments":{"id":"kept"},META}}]`,
	"no id":                  `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"id null":                `{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"id beyond a float":      `{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"id beyond, negative":    `{"jsonrpc":"2.0","id":-9007199254740993,"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"id with a fraction":     `{"jsonrpc":"2.0","id":7.5,"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"id with an exponent":    `{"jsonrpc":"2.0","id":7e0,"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"id an object":           `{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"id true":                `{"jsonrpc":"2.0","id":true,"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"a request and a result": `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"weather","arguments":{},META},"result":{}}`,
	"Method":                 `{"jsonrpc":"2.0","id":7,"Method":"ping","method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"ID":                     `{"jsonrpc":"2.0","id":7,"ID":8,"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"Name":                   `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"Name":"get_customer","name":"weather","arguments":{"id":"kept"},META}}`,
	"Name alone":             `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"Name":"get_customer","arguments":{"id":"kept"},META}}`,
	"ARGUMENTS":              `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"ARGUMENTS":{"id":"kept"},"name":"get_customer","arguments":{"id":"c"},META}}`,
	"Name of a reference":    `{"jsonrpc":"2.0","id":7,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"a","Name":"b"},"argument":{"name":"x","value":"y"},META}}`,
	"params with a long s":   `{"jsonrpc":"2.0","id":7,"method":"tools/call","paramſ":{"name":"get_customer"},"params":{"name":"weather",META}}`,
	"a method of a number":   `{"jsonrpc":"2.0","id":7,"method":7}`,
	"nothing":                ``,
	"null":                   `null`,
	"a text":                 `"x"`,
	"a comment":              `/* */{"jsonrpc":"2.0","id":7,"method":"ping"}`,
}

// Strict refuses all of them, and nobody is asked.
func TestStrict(t *testing.T) {
	t.Parallel()
	s := open(t, setting{modern: true})
	for name, message := range ambiguous {
		a := s.send("alice", "tools/call", "", strings.Replace(message, "META", meta, 2))
		executed, asked := s.taken()
		if a.status != 400 || a.Error.Code != -32700 && a.Error.Code != -32600 || string(a.ID) != "null" || len(executed)+len(asked) > 0 {
			t.Errorf("%s: %d %s, executed %v, asked %v", name, a.status, a.text, executed, asked)
		}
	}
	const fine = `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"weather","arguments":{"Name":1,"name":2},` + meta + `}}`
	for name, headers := range map[string][]string{"as it is": nil, "in another type": {"Content-Type", "Application/JSON; charset=utf-8"}} {
		if a := s.send("alice", "tools/call", "weather", " \n"+fine+"\n", headers...); a.status != 200 || string(a.ID) != `"a"` || !s.effect(`tools/call weather {"Name":1,"name":2}`) {
			t.Errorf("%s: %d %s", name, a.status, a.text)
		}
	}
	if a := s.send("alice", "tools/call", "weather", strings.Replace(fine, `"a"`, `9007199254740991`, 1)); string(a.ID) != "9007199254740991" {
		t.Errorf("the id is %s", a.ID)
	}
	s.taken()
	if a := s.send("alice", "tools/call", "weather", strings.Replace(fine, "weather", strings.Repeat("x", 1<<16), 1)); a.status != http.StatusRequestEntityTooLarge || len(s.executed) > 0 {
		t.Errorf("a long message: %d", a.status)
	}
}

// Headers that two readers could read differently are refused as messages are.
func TestStrictHeaders(t *testing.T) {
	t.Parallel()
	s := open(t, setting{modern: true})
	for name, test := range map[string]struct {
		header string
		values []string
		status int
	}{
		"as they are":      {"Content-Type", []string{"application/json"}, 200},
		"with a charset":   {"Content-Type", []string{"application/json; charset=UTF-8"}, 200},
		"two credentials":  {"Authorization", []string{"Bearer alice", "Bearer bob"}, 401},
		"two types":        {"Content-Type", []string{"application/json", "text/plain"}, 415},
		"no type":          {"Content-Type", nil, 415},
		"a type of none":   {"Content-Type", []string{"application/json; ;="}, 415},
		"another type":     {"Content-Type", []string{"text/plain"}, 415},
		"another charset":  {"Content-Type", []string{"application/json; charset=utf-7"}, 415},
		"an empty charset": {"Content-Type", []string{`application/json; charset=""`}, 415},
		"compressed":       {"Content-Encoding", []string{"gzip"}, 415},
		"two names":        {"Mcp-Name", []string{"weather", "get_customer"}, 415},
		"two methods":      {"Mcp-Method", []string{"tools/call", "ping"}, 415},
		"two versions":     {"Mcp-Protocol-Version", []string{"2026-07-28", "2025-06-18"}, 415},
		"two parameters":   {"Mcp-Param-Id", []string{"a", "b"}, 415},
		"two sessions":     {"Mcp-Session-Id", []string{"a", "b"}, 415},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"weather","arguments":{},`+meta+`}}`))
		s.must(err)
		for name, value := range map[string]string{
			"Authorization": "Bearer alice", "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "weather",
		} {
			r.Header.Set(name, value)
		}
		r.Header[http.CanonicalHeaderKey(test.header)] = test.values
		w, err := http.DefaultClient.Do(r)
		s.must(err)
		_ = w.Body.Close()
		executed, asked := s.taken()
		if w.StatusCode != test.status || (len(executed)+len(asked) > 0) != (test.status == 200) {
			t.Errorf("%s: %d, executed %v, asked %v", name, w.StatusCode, executed, asked)
		}
	}
}

// legacy opens a session by hand, and returns its id.
func (s *stage) legacy(token string) string {
	s.t.Helper()
	w := s.raw(http.MethodPost, token, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
	_, err := io.Copy(io.Discard, w.Body)
	s.must(err)
	id := w.Header.Get("Mcp-Session-Id")
	if w.StatusCode != http.StatusOK || id == "" {
		s.t.Fatalf("no session: %d", w.StatusCode)
	}
	return id
}

// raw sends a request of a session. Its body is closed when the test ends.
func (s *stage) raw(method, token, session, body string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url, strings.NewReader(body))
	s.must(err)
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": session,
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	w, err := (&http.Client{Timeout: time.Minute}).Do(r)
	s.must(err)
	s.t.Cleanup(func() { _ = w.Body.Close() })
	return w
}

// A session is of who opened it, also where the verifier names no user. What it streams ends with the token.
func TestSessionIsOfOne(t *testing.T) {
	t.Parallel()
	s := open(t, setting{})
	id := s.legacy("alice")
	s.taken()
	const list = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		w := s.raw(method, "bob", id, list)
		if executed, asked := s.taken(); w.StatusCode != http.StatusForbidden || len(executed)+len(asked) > 0 {
			t.Errorf("bob's %s: %d, executed %v, asked %v", method, w.StatusCode, executed, asked)
		}
	}
	if w := s.raw(http.MethodPost, "alice", id, list); w.StatusCode != http.StatusOK {
		t.Errorf("alice: %d", w.StatusCode)
	}
	briefly(t, func(token string) bool {
		w := s.raw(http.MethodGet, token, id, "") // its stream ends, with the token
		_, err := io.Copy(io.Discard, w.Body)
		return w.StatusCode == http.StatusOK && err == nil
	})
}

// Two tokens are of one user only if issuer, subject and client are the same.
func TestWithClaimsNamesTheUser(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, claims := range []string{
		`{"iss":"a","sub":"b","client_id":"c"}`, `{"iss":"a","sub":"b"}`, `{"iss":"a","client_id":"b"}`, `{"sub":"a","client_id":"b"}`, `{"iss":"a b","sub":"c"}`,
		`{"iss":"a","sub":"b c"}`, `{"iss":"a\" \"b","sub":"c"}`, `{"iss":"a","sub":null}`, `{}`,
	} {
		o, err := evaluation.ParseWithNulls([]byte(claims), evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		user := sdkpep.WithClaims(auth.TokenInfo{}, o).UserID
		if before, twice := seen[user]; twice && (claims != `{"iss":"a","sub":null}` || user == "") || user == "" {
			t.Errorf("%s and %s are %q", claims, before, user)
		}
		seen[user] = claims
		more, given := o.With("jti", o.Value()), map[string]any{"mine": 1}
		if kept := sdkpep.WithClaims(auth.TokenInfo{Extra: given}, o).Extra; kept["mine"] != 1 || len(kept) != 2 || len(given) != 1 {
			t.Errorf("%s: beside the claims is %v, of %v", claims, kept, given)
		}
		if sdkpep.WithClaims(auth.TokenInfo{}, more).UserID != user || sdkpep.WithClaims(auth.TokenInfo{UserID: "u"}, o).UserID != "u" {
			t.Errorf("%s: a new token is of another user, or the named one is not kept", claims)
		}
	}
}

// Without Strict what is executed is what was asked about, or nothing: kept is never read.
func TestDecidesOnWhatIsExecuted(t *testing.T) {
	t.Parallel()
	s := open(t, setting{modern: true, bare: true})
	ran := 0
	for name, message := range ambiguous {
		tool := "weather" // what the header says must be what the SDK reads
		for _, other := range []string{"get_customer", "constant"} {
			if strings.LastIndex(message, `"`+other+`"`) > strings.LastIndex(message, `"`+tool+`"`) {
				tool = other
			}
		}
		a := s.send("alice", "tools/call", tool, strings.Replace(message, "META", meta, 2))
		executed, asked := s.taken()
		for _, what := range executed {
			if !strings.HasPrefix(what, "tools/call") {
				continue // the list that the PEP reads itself
			}
			ran++
			tool := strings.Fields(what)[1]
			if strings.Contains(what, "kept") && tool == "get_customer" || len(asked) != 1 || !strings.Contains(asked[0], `"id":"`+tool+`"`) && !strings.Contains(asked[0], `"name":"`+tool+`"`) {
				t.Errorf("%s: %s was executed, asked %v: %s", name, what, asked, a.text)
			}
			if strings.Contains(what, `"id":"c"`) && !strings.Contains(asked[0], `"id":"c"`) {
				t.Errorf("%s: %s was executed, asked %v", name, what, asked)
			}
		}
		for _, never := range []string{"an argument twice", "no UTF-8", "a lone surrogate"} {
			if strings.HasPrefix(name, never) && len(asked) > 0 {
				t.Errorf("%s: asked %v", name, asked)
			}
		}
	}
	if ran == 0 {
		t.Error("the SDK executes none of these: this test shows nothing")
	}
	t.Logf("%d of %d were executed", ran, len(ambiguous))
}
