package rpc_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/pdptest/night"
)

func parse(text string) (rpc.Message, *rpc.Fault) {
	return rpc.Parse([]byte(text))
}

// call is a request with these params.
func call(params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
}

// few writes some members, after others.
func few(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"x%d":0`, i)
	}
	return b.String()
}

func TestParseRefuses(t *testing.T) {
	const malformed, invalid = rpc.ParseError, rpc.InvalidRequest
	nested := func(n int) string { return strings.Repeat(`[`, n) + strings.Repeat(`]`, n) }
	for _, c := range []struct {
		name, text string
		code       int
		id         string // that the refusal answers
	}{
		// D1: a member twice
		{"D1 top", `{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}`, malformed, ""},
		{"D1 name", call(`{"name":"a","name":"b"}`), malformed, ""},
		{"D1 arguments", call(`{"name":"a","arguments":{},"arguments":{"x":1}}`), malformed, ""},
		{"D1 _meta", call(`{"_meta":{"k":1,"k":1}}`), malformed, ""},
		{"D1 argument", call(`{"name":"a","arguments":{"o":[{"x":1,"y":{"z":1,"z":2}}]}}`), malformed, ""},
		{"D1 escaped", call(`{"name":"a","\u006eame":"b"}`), malformed, ""},
		{"D1 escaped method", `{"jsonrpc":"2.0","id":1,"method":"a","metho\u0064":"b"}`, malformed, ""},
		{"D1 result", `{"jsonrpc":"2.0","id":1,"result":{"content":[],"content":[]}}`, malformed, ""},

		// D2: another case
		{"D2 Method", `{"jsonrpc":"2.0","id":1,"Method":"a"}`, invalid, "1"},
		{"D2 Method beside", `{"jsonrpc":"2.0","id":1,"method":"a","Method":"b"}`, invalid, "1"},
		{"D2 ID", `{"jsonrpc":"2.0","ID":1,"method":"notifications/a"}`, invalid, ""},
		{"D2 Name", call(`{"Name":"a"}`), invalid, "1"},
		{"D2 Name beside", call(`{"name":"a","Name":"b"}`), invalid, "1"},
		{"D2 arGuments", call(`{"name":"a","arGuments":{}}`), invalid, "1"},
		{"D2 URI", call(`{"URI":"a"}`), invalid, "1"},
		{"D2 ref", call(`{"Ref":{}}`), invalid, "1"},
		{"D2 below ref", call(`{"ref":{"type":"ref/prompt","Name":"x"}}`), invalid, "1"},
		{"D2 _META", call(`{"_META":{}}`), invalid, "1"},
		{"D2 long s", call(`{"argument\u017f":{}}`), invalid, "1"},
		{"D2 Kelvin", call(`{"tas\u212a":{}}`), invalid, "1"},
		{"D2 version", call(`{"_meta":{"io.modelcontextprotocol/ProtocolVersion":"2026-07-28"}}`), invalid, "1"},
		{"D2 requestState", call(`{"name":"a","RequestState":"x"}`), invalid, "1"},
		{"D2 answer", call(`{"name":"a","inputResponses":{"k":{"Action":"accept"}}}`), invalid, "1"},
		{"D2 resultType", `{"jsonrpc":"2.0","id":1,"result":{"ResultType":"complete"}}`, invalid, "1"},
		{"D2 inputRequests", `{"jsonrpc":"2.0","id":1,"result":{"InputRequests":{}}}`, invalid, "1"},
		{"D2 input request", `{"jsonrpc":"2.0","id":1,"result":{"inputRequests":{"k":{"Method":"m"}}}}`, invalid, "1"},
		{"D2 its URL", `{"jsonrpc":"2.0","id":1,"result":{"inputRequests":{"k":{"params":{"URL":"m"}}}}}`, invalid, "1"},
		{"D2 code", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","Code":2}}`, invalid, "1"},

		// D3: no JSON to some readers
		{"D3 two", call(`{}`) + call(`{}`), malformed, ""},
		{"D3 comma", call(`{}`) + `,`, malformed, ""},
		{"D3 BOM", "\uFEFF" + call(`{}`), malformed, ""},
		{"D3 NUL", call(`{}`) + "\x00", malformed, ""},
		{"D3 NUL in a string", call("{\"a\":\"\x00\"}"), malformed, ""},
		{"D3 line end in a string", call("{\"a\":\"\n\"}"), malformed, ""},
		{"D3 comment", `{/**/"jsonrpc":"2.0","id":1,"method":"a"}`, malformed, ""},
		{"D3 comma at the end", call(`{"a":1,}`), malformed, ""},
		{"D3 single quotes", call(`{'a':1}`), malformed, ""},
		{"D3 NaN", call(`{"a":NaN}`), malformed, ""},
		{"D3 Infinity", call(`{"a":-Infinity}`), malformed, ""},
		{"D3 1e400", call(`{"a":1e400}`), malformed, ""},
		{"D3 -1E400", call(`{"a":[-1E400]}`), malformed, ""},
		{"D3 400 digits", call(`{"a":` + strings.Repeat("9", 400) + `}`), malformed, ""},
		{"D3 -0", call(`{"a":-0}`), invalid, "1"},
		{"D3 -0.0", call(`{"a":[-0.0]}`), invalid, "1"},
		{"D3 -0e0", call(`{"a":-0e0}`), invalid, "1"},
		{"D3 -0.00E+5", call(`{"a":{"b":-0.00E+5}}`), invalid, "1"},
		{"D3 01", call(`{"a":01}`), malformed, ""},
		{"D3 lone surrogate", call(`{"a":"\ud800"}`), malformed, ""},
		{"D3 surrogates reversed", call(`{"a":"\udc00\ud800"}`), malformed, ""},
		{"D3 lone surrogate in a name", call(`{"\ud800":1}`), malformed, ""},
		{"D3 invalid UTF-8", call("{\"a\":\"\xff\"}"), malformed, ""},
		{"D3 overlong UTF-8", call("{\"a\":\"\xc0\xaf\"}"), malformed, ""},
		{"D3 surrogate in UTF-8", call("{\"a\":\"\xed\xa0\x80\"}"), malformed, ""},
		{"D3 nothing", ``, malformed, ""},
		{"D3 a string", `"a"`, malformed, ""},
		{"D3 half", call(`{}`)[:30], malformed, ""},

		// D4: ids
		{"D4 1.0", `{"jsonrpc":"2.0","id":1.0,"method":"a"}`, invalid, ""},
		{"D4 1e0", `{"jsonrpc":"2.0","id":1e0,"method":"a"}`, invalid, ""},
		{"D4 -0", `{"jsonrpc":"2.0","id":-0,"method":"a"}`, invalid, ""},
		{"D4 beyond int64", `{"jsonrpc":"2.0","id":9223372036854775808,"method":"a"}`, invalid, ""},
		{"D4 null", `{"jsonrpc":"2.0","id":null,"method":"a"}`, invalid, ""},
		{"D4 null of a notification", `{"jsonrpc":"2.0","id":null,"method":"notifications/a"}`, invalid, ""},
		{"D4 null of an answer", `{"jsonrpc":"2.0","id":null,"method":"authorization/respond"}`, invalid, ""},
		{"D4 true", `{"jsonrpc":"2.0","id":true,"method":"a"}`, invalid, ""},
		{"D4 object", `{"jsonrpc":"2.0","id":{},"method":"a"}`, invalid, ""},
		{"D4 array", `{"jsonrpc":"2.0","id":[1],"method":"a"}`, invalid, ""},
		{"D4 64 KB", `{"jsonrpc":"2.0","id":"` + strings.Repeat("a", 64<<10) + `","method":"a"}`, invalid, ""},
		{"D4 255 bytes and quotes", `{"jsonrpc":"2.0","id":"` + strings.Repeat("a", 255) + `","method":"a"}`, invalid, ""},
		{"D4 of an error", `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}`, invalid, ""},
		{"D4 of a result", `{"jsonrpc":"2.0","id":null,"result":{}}`, invalid, ""},

		// D5: a request that is a notification to some
		{"D5 none", `{"jsonrpc":"2.0","method":"tools/call","params":{}}`, invalid, ""},
		{"D5 initialize", `{"jsonrpc":"2.0","method":"initialize"}`, invalid, ""},
		{"D5 ping", `{"jsonrpc":"2.0","method":"ping"}`, invalid, ""},
		{"D5 the reverse", `{"jsonrpc":"2.0","id":7,"method":"notifications/cancelled"}`, invalid, "7"},

		// D6: a batch
		{"D6 two", `[` + call(`{}`) + `,` + call(`{}`) + `]`, invalid, ""},
		{"D6 one", ` [` + call(`{}`) + `]`, invalid, ""},
		{"D6 none", `[]`, invalid, ""},

		// D41: cost
		{"D41 1,000 arrays", call(`{"a":` + nested(1000) + `}`), invalid, ""},
		{"D41 33 deep", call(`{"a":` + nested(31) + `}`), invalid, ""},
		{"D41 values", call(`{"a":[` + strings.Repeat("1,", 1_000_000) + `1]}`), invalid, ""},

		{"D41 members of its own", `{"jsonrpc":"2.0","id":1,"method":"a"` + few(30) + `}`, invalid, ""},

		// JSON-RPC
		{"version", `{"jsonrpc":"1.0","id":1,"method":"a"}`, invalid, "1"},
		{"no version", `{"id":1,"method":"a"}`, invalid, "1"},
		{"version as a number", `{"jsonrpc":2.0,"id":1,"method":"a"}`, invalid, "1"},
		{"no method", `{"jsonrpc":"2.0","id":1}`, invalid, "1"},
		{"method null", `{"jsonrpc":"2.0","id":1,"method":null}`, invalid, "1"},
		{"method empty", `{"jsonrpc":"2.0","id":1,"method":""}`, invalid, "1"},
		{"method and result", `{"jsonrpc":"2.0","id":1,"method":"a","result":{}}`, invalid, "1"},
		{"empty method and result", `{"jsonrpc":"2.0","id":1,"method":"","result":{}}`, invalid, "1"},
		{"result and error", `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}`, invalid, "1"},
		{"params array", call(`[]`), invalid, "1"},
		{"params null", call(`null`), invalid, "1"},
		{"result with params", `{"jsonrpc":"2.0","id":1,"result":{},"params":{}}`, invalid, "1"},
		{"result null", `{"jsonrpc":"2.0","id":1,"result":null}`, invalid, "1"},
		{"result array", `{"jsonrpc":"2.0","id":1,"result":[]}`, invalid, "1"},
		{"result without id", `{"jsonrpc":"2.0","result":{}}`, invalid, ""},
		{"error without id", `{"jsonrpc":"2.0","error":{"code":1,"message":""}}`, invalid, ""},
		{"error null", `{"jsonrpc":"2.0","id":1,"error":null}`, invalid, "1"},
		{"error text", `{"jsonrpc":"2.0","id":1,"error":"no"}`, invalid, "1"},
		{"error without code", `{"jsonrpc":"2.0","id":1,"error":{"message":"no"}}`, invalid, "1"},
		{"error code 1.5", `{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"no"}}`, invalid, "1"},
		{"error code text", `{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":"no"}}`, invalid, "1"},
		{"error without message", `{"jsonrpc":"2.0","id":1,"error":{"code":1}}`, invalid, "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, fault := parse(c.text)
			if fault == nil {
				t.Fatalf("taken as %+v", m)
			}
			if fault.Code != c.code || string(fault.ID.Text()) != c.id {
				t.Errorf("refused with %d for id %q: %s; want %d for %q", fault.Code, fault.ID.Text(), fault.Detail, c.code, c.id)
			}
			if m.Method != "" || m.Params != nil || m.Result != nil || m.Error != nil {
				t.Errorf("a refused message came back: %+v", m)
			}
			if refusal := fault.Failure().Append(nil); !jsontext.Value(refusal).IsValid() {
				t.Errorf("the refusal is no JSON: %s", refusal)
			}
		})
	}
}

func TestParseTakes(t *testing.T) {
	for name, c := range map[string]struct{ text, again string }{
		"a request":          {` { "id" : 1 , "jsonrpc":"2.0" , "method":"a" } `, `{"jsonrpc":"2.0","id":1,"method":"a"}`},
		"D3 escapes":         {`{"jsonrpc":"\u0032.0","\u0069d":1,"method":"t\u006f"}`, `{"jsonrpc":"2.0","id":1,"method":"to"}`},
		"D4 2^53+1":          {`{"jsonrpc":"2.0","id":9007199254740993,"method":"a"}`, ``},
		"D4 least":           {`{"jsonrpc":"2.0","id":-9223372036854775808,"method":"a"}`, ``},
		"D4 a string":        {`{"jsonrpc":"2.0","id":"1","method":"a"}`, ``},
		"D4 256 bytes":       {`{"jsonrpc":"2.0","id":"` + strings.Repeat("a", 254) + `","method":"a"}`, ``},
		"D5 notification":    {`{"jsonrpc":"2.0","method":"notifications/a"}`, ``},
		"D5 respond":         {`{"jsonrpc":"2.0","method":"authorization/respond","params":{}}`, ``},
		"D5 respond with id": {`{"jsonrpc":"2.0","id":1,"method":"authorization/respond","params":{}}`, ``},
		"D2 in arguments":    {call(`{"name":"a","arguments":{"Name":1,"Arguments":{"name":1,"NAME":2}}}`), ``},
		"D10 numbers":        {call(`{"a":[1.0,1,1e2,0.10,-0.1,1E+2,9007199254740993,1e-400]}`), ``},
		"D10 text":           {call(`{"uri":"file:///a/..%2fb.","b":"e\u0301","c":"é","d":"\ud83d\ude00😀\/"}`), ``},
		"D11":                {call(`{"arguments":{"amount":18446744073709551616}}`), ``},
		"32 members":         {`{"jsonrpc":"2.0","id":1,"method":"a"` + few(29) + `}`, `{"jsonrpc":"2.0","id":1,"method":"a"}`},
		"a table":            {`{"jsonrpc":"2.0","id":1,"result":{"rows":[` + strings.Repeat(`{"a":1,"b":"x","c":null},`, 50_000) + `{}]}}`, ``},
		"32 deep":            {call(`{"a":` + strings.Repeat(`[`, 30) + strings.Repeat(`]`, 30) + `}`), ``},
		"-0 in a result":     {`{"jsonrpc":"2.0","id":1,"result":{"a":-0}}`, ``},
		"an error":           {`{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no","data":[1.0]}}`, ``},
		"unknown beside":     {`{"jsonrpc":"2.0","id":1,"method":"a","x":1}`, `{"jsonrpc":"2.0","id":1,"method":"a"}`},
	} {
		t.Run(name, func(t *testing.T) {
			m, fault := parse(c.text)
			if fault != nil {
				t.Fatalf("refused: %s", fault.Detail)
			}
			want := c.again
			if want == "" {
				want = c.text
			}
			if got := string(m.Append(nil)); got != want {
				t.Errorf("forwarded %s\nwant      %s", got, want)
			}
		})
	}
}

func TestDetailsQuoteNothing(t *testing.T) {
	for _, secret := range []string{`{"s3cret":1,"s3cret":2}`, `{"a":"s3cret\ud800"}`, `{"a":s3cret}`, `{"s3cret":1e999}`} {
		_, fault := parse(call(secret))
		if fault == nil || strings.Contains(fault.Detail, "s3cret") {
			t.Errorf("%s: %v", secret, fault)
		}
	}
}

func TestIDsAreTheSame(t *testing.T) {
	same, _ := parse(`{"jsonrpc":"2.0","id":"\u0061\/","method":"a"}`)
	if same.ID != rpc.StringID("a/") {
		t.Errorf("an escaped id is another: %s", same.ID.Text())
	}
	number, _ := parse(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	if number.ID != rpc.IntID(1) || number.ID == rpc.StringID("1") {
		t.Errorf("1 is %s", number.ID.Text())
	}
	if _, ok := number.ID.Unquoted(); ok {
		t.Error("a number is a string")
	}
	if s, ok := same.ID.Unquoted(); !ok || s != "a/" {
		t.Errorf("unquoted %q", s)
	}
	if _, ok := rpc.ReadID([]byte(`1.0`)); ok {
		t.Error("1.0 is an id")
	}
}

// hostileMessages have n of something that a message may have less of.
func hostileMessages(n int) map[string]string {
	var members strings.Builder
	for i := range n {
		fmt.Fprintf(&members, `"%d":0,`, i)
	}
	return map[string]string{
		"members":  call(`{` + members.String() + `"x":0}`),
		"top":      `{` + members.String() + `"jsonrpc":"2.0"}`,
		"arrays":   call(`{"a":` + strings.Repeat("[", n)),
		"elements": call(`{"a":[` + strings.Repeat("[],", n)),
	}
}

func TestHostileMessages(t *testing.T) {
	for name, text := range hostileMessages(260_000) {
		if _, fault := rpc.Parse([]byte(text)); fault == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// The cost of a hostile message is bounded by the limits, not by its size.
func TestParseIsFlat(t *testing.T) {
	night.Measures(t)
	for name, text := range hostileMessages(4 << 20) {
		raw := []byte(text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begun := time.Now()
		_, fault := rpc.Parse(raw)
		took := time.Since(begun)
		runtime.ReadMemStats(&after)
		if fault == nil {
			t.Errorf("%s: taken", name)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 || took > 5*time.Second {
			t.Errorf("%s: %d bytes, %s", name, used, took)
		}
		t.Logf("%s: %d KiB, %s", name, (after.TotalAlloc-before.TotalAlloc)>>10, took)
	}
}

// What does it cost to read a call with 1 KiB of arguments, and to write it again with another name?
func BenchmarkParse(b *testing.B) {
	text := []byte(call(`{"_meta":{"progressToken":1},"name":"create_ticket","arguments":{"project":"OPS","labels":["a","b","c"],` +
		`"amount":12.50,"urgent":true,"due":{"year":2026,"month":11},"text":"` + strings.Repeat("lorem ipsum ", 75) + `"}}`))
	b.SetBytes(int64(len(text)))
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, fault := rpc.Parse(text); fault != nil {
				b.Fatal(fault)
			}
		}
	})
	b.Run("read, rename and write", func(b *testing.B) {
		b.ReportAllocs()
		var out []byte
		for b.Loop() {
			m, _ := rpc.Parse(text)
			params, err := rpc.ParseObject(m.Params)
			if err != nil {
				b.Fatal(err)
			}
			m.Params = params.With("name", rpc.String("create")).Value()
			out = m.Append(out[:0])
		}
	})
}
