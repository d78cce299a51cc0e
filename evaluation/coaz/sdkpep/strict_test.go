package sdkpep_test

import (
	"net/http"
	"strings"
	"testing"
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
	"params twice":            `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"weather",META},"params":{"name":"get_customer","arguments":{"id":"kept"},META}}`,
	"method twice":            `{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call","params":{"name":"get_customer","arguments":{"id":"kept"},META}}`,
	"no UTF-8":                "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"weather\",\"arguments\":{\"x\":\"\xff\"},META}}",
	"no UTF-8 in the name":    "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"weather\xff\",\"arguments\":{},META}}",
	"a lone surrogate":        `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"weather","arguments":{"x":"\ud800"},META}}`,
	"more after it":           `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_customer","arguments":{"id":"kept"},META}}{"jsonrpc":"2.0","id":8,"method":"ping"}`,
	"no JSON after it":        `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_customer","arguments":{"id":"kept"},META}}x`,
	"a byte order mark":       "\xef\xbb\xbf" + `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_customer","arguments":{"id":"kept"},META}}`,
	"a batch":                 `[{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_customer","arguments":{"id":"kept"},META}}]`,
	"a batch, in space":       ` [{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_customer","arguments":{"id":"kept"},META}}]`,
	"no id":                   `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"id null":                 `{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"id beyond a float":       `{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"id beyond, negative":     `{"jsonrpc":"2.0","id":-9007199254740993,"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"id with a fraction":      `{"jsonrpc":"2.0","id":7.5,"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"id with an exponent":     `{"jsonrpc":"2.0","id":7e0,"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"id an object":            `{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"id true":                 `{"jsonrpc":"2.0","id":true,"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"a request and a result":  `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"weather","arguments":{},META},"result":{}}`,
	"Method":                  `{"jsonrpc":"2.0","id":7,"Method":"ping","method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"ID":                      `{"jsonrpc":"2.0","id":7,"ID":8,"method":"tools/call","params":{"name":"weather","arguments":{},META}}`,
	"a method of a number":    `{"jsonrpc":"2.0","id":7,"method":7}`,
	"nothing":                 ``,
	"null":                    `null`,
	"a text":                  `"x"`,
	"a comment":               `/* */{"jsonrpc":"2.0","id":7,"method":"ping"}`,
}

// Strict refuses all of them, and nobody is asked.
func TestStrict(t *testing.T) {
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
	for name, status := range map[string]int{
		"x" + strings.Repeat("x", 1<<16): http.StatusRequestEntityTooLarge,
	} {
		if a := s.send("alice", "tools/call", "weather", strings.Replace(fine, "weather", name, 1)); a.status != status || len(s.executed) > 0 {
			t.Errorf("%d bytes: %d", len(name), a.status)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, strings.NewReader(fine))
	s.must(err)
	r.Header["Authorization"] = []string{"Bearer alice", "Bearer bob"}
	w, err := http.DefaultClient.Do(r)
	s.must(err)
	_ = w.Body.Close()
	if w.StatusCode != http.StatusUnauthorized {
		t.Errorf("two credentials: %d", w.StatusCode)
	}
}

// Without Strict what is executed is what was asked about, or nothing: kept is never read.
func TestDecidesOnWhatIsExecuted(t *testing.T) {
	s := open(t, setting{modern: true, bare: true})
	ran := 0
	for name, message := range ambiguous {
		tool := "weather" // what the header says must be what the SDK reads
		if i, j := strings.LastIndex(message, `"get_customer"`), strings.LastIndex(message, `"weather"`); i > j {
			tool = "get_customer"
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
