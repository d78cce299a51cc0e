package mcp_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"policy-service/pdp/mcp/mcptest"
)

// attack is a message that two readers could read differently. CALL in it is the params of a call of look, without the
// braces; META is the member _meta of the era, with a comma before it.
type attack struct {
	body string
	// headers come after those of an ordinary call, as name, value, …
	headers []string
	// status and code are what answers; legacy and modern are where the eras differ.
	status, code int
	// in is the era that it is of, "" is both.
	in string
}

const plainCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{CALLMETA}}`

// Messages that two could read differently are refused, and nothing of them reaches the server. Of those that rpc refuses
// (TestParseRefuses) and of headers that era refuses (TestCheckHeaders) there are a few of each kind.
func TestMessagesWithTwoReadings(t *testing.T) {
	t.Parallel()
	headers := func(more ...string) []string { return more }
	s := newSiege(t, camp{})
	all := map[string]*visitor{"legacy": s.visitor("legacy", nil), "modern": s.visitor("modern", nil)}
	for name, a := range map[string]attack{
		"D1 method":                   {body: `{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call","params":{CALLMETA}}`, status: 400, code: -32700},
		"D1 in _meta":                 {body: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{CALL,"_meta":{"a":1,"a":2}}}`, status: 400, code: -32700},
		"D2 Method beside":            {body: `{"jsonrpc":"2.0","id":7,"Method":"ping","method":"tools/call","params":{CALLMETA}}`, status: 400, code: -32600},
		"D2 the Kelvin sign":          {body: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"ta` + "s\u212a" + `":{},CALLMETA}}`, status: 400, code: -32600},
		"D3 more":                     {body: plainCall + plainCall, status: 400, code: -32700},
		"D3 -0":                       {body: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"x":-0,CALLMETA}}`, status: 400, code: -32600},
		"D3 not UTF-8":                {body: "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"x\":\"\xff\",CALLMETA}}", status: 400, code: -32700},
		"D3 empty":                    {body: "", status: 400, code: -32700},
		"D3 both":                     {body: strings.Replace(plainCall, `"id":7`, `"id":7,"result":{}`, 1), status: 400, code: -32600},
		"D4 1.0":                      {body: strings.Replace(plainCall, "7", "1.0", 1), status: 400, code: -32600},
		"D4 64 KB":                    {body: strings.Replace(plainCall, "7", `"`+strings.Repeat("i", 64<<10)+`"`, 1), status: 400, code: -32600},
		"D5 none":                     {body: strings.Replace(plainCall, `"id":7,`, "", 1), status: 400, code: -32600},
		"D5 null":                     {body: strings.Replace(plainCall, "7", "null", 1), status: 400, code: -32600},
		"D6 one":                      {body: "[" + plainCall + "]", status: 400, code: -32600},
		"D6 without a version header": {body: "[" + plainCall + "]", headers: headers("Mcp-Protocol-Version", ""), status: 400, code: -32600},
		"D6 by an old version":        {body: "[" + plainCall + "]", headers: headers("Mcp-Protocol-Version", "2025-03-26"), status: 400, code: -32600},
		"D7 no method":                {body: plainCall, headers: headers("Mcp-Method", ""), status: 400, code: -32020, in: "modern"},
		"D7 name":                     {body: plainCall, headers: headers("Mcp-Name", "change"), status: 400, code: -32020, in: "modern"},
		"D7 no name":                  {body: plainCall, headers: headers("Mcp-Name", ""), status: 400, code: -32020, in: "modern"},
		"D7 no version":               {body: plainCall, headers: headers("Mcp-Protocol-Version", ""), status: 400, code: -32020, in: "modern"},
		"D7 a version to come":        {body: plainCall, headers: headers("Mcp-Protocol-Version", "2099-01-01"), status: 400, code: -32020, in: "modern"},
		"D7 a modern one, no _meta":   {body: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{CALL}}`, headers: headers("Mcp-Protocol-Version", modernVersion), status: 400, in: "legacy"},
		"D7 an unknown legacy one":    {body: plainCall, headers: headers("Mcp-Protocol-Version", "2024-01-01"), status: 400, code: -32600, in: "legacy"},
		"D7 two names":                {body: plainCall, headers: headers("+Mcp-Name", "look", "+Mcp-Name", "change"), status: 415},
		"D7 two methods":              {body: plainCall, headers: headers("+Mcp-Method", "tools/call", "+Mcp-Method", "tools/list"), status: 415},
		"D7 two sessions":             {body: plainCall, headers: headers("+Mcp-Session-Id", "a", "+Mcp-Session-Id", "b"), status: 415},
		"D7 two versions":             {body: plainCall, headers: headers("+Mcp-Protocol-Version", "2025-11-25", "+Mcp-Protocol-Version", modernVersion), status: 415},
		"D8 text/plain":               {body: plainCall, headers: headers("Content-Type", "text/plain"), status: 415},
		"D8 none":                     {body: plainCall, headers: headers("Content-Type", ""), status: 415},
		"D8 multipart":                {body: plainCall, headers: headers("Content-Type", "multipart/form-data; boundary=x"), status: 415},
		"D8 form":                     {body: plainCall, headers: headers("Content-Type", "application/x-www-form-urlencoded"), status: 415},
		"D8 JSON by its suffix":       {body: plainCall, headers: headers("Content-Type", "application/x+json"), status: 415},
		"D8 UTF-16":                   {body: plainCall, headers: headers("Content-Type", "application/json;charset=utf-16"), status: 415},
		"D8 UTF-7":                    {body: plainCall, headers: headers("Content-Type", `application/json; charset="utf-7"`), status: 415},
		"D8 two types":                {body: plainCall, headers: headers("+Content-Type", "text/plain"), status: 415},
		"D8 two in one":               {body: plainCall, headers: headers("Content-Type", "application/json, text/plain"), status: 415},
		"D8 gzip":                     {body: plainCall, headers: headers("Content-Encoding", "gzip"), status: 415},
		"D8 identity":                 {body: plainCall, headers: headers("Content-Encoding", "identity"), status: 415},
		"D8 no Accept":                {body: plainCall, headers: headers("Accept", ""), status: 406},
		"D8 Accept of JSON":           {body: plainCall, headers: headers("Accept", "application/json"), status: 406},
	} {
		for era, v := range all {
			if a.in != "" && a.in != era {
				continue
			}
			got := v.send(v.fill(a.body), append(v.headers("tools/call", `{"name":"look"}`), a.headers...)...)
			if got.status != a.status || got.result != nil || a.code != 0 && got.code() != a.code {
				t.Errorf("%s, %s: %s; want %d and %d", name, era, got, a.status, a.code)
			}
		}
	}
	s.untouched(t)
}

// fill makes a message of an attack.
func (v *visitor) fill(body string) string {
	meta := strings.TrimSuffix(strings.TrimPrefix(v.params("{}"), "{"), "}")
	if meta != "" {
		meta = "," + meta
	}
	return strings.NewReplacer("CALL", `"name":"look","arguments":{}`, "META", meta).Replace(body)
}

// allMethods are the requests of both eras.
var allMethods = []string{
	"initialize", "ping", "server/discover", "subscriptions/listen", "completion/complete", "logging/setLevel", "tools/list", "tools/call",
	"prompts/list", "prompts/get", "resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe",
	"tasks/get", "tasks/list", "tasks/cancel", "tasks/result", "tasks/update", "x-unknown/method",
}

// Of a call that is written oddly but in one way, what is decided on is what arrives.
func TestOneReadingArrives(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{policies: map[string]string{"a.cedar": `permit(principal, action, resource) unless { resource == tool::"rec:change" };`}})
	for name, test := range map[string]struct {
		body, type_ string
		ran         bool
	}{
		"an escaped member":   {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"n\u0061me":"look","arguments":{}META}}`, "application/json", true},
		"an escaped method":   {`{"jsonrpc":"2.0","id":7,"method":"tools\/c\u0061ll","params":{"name":"look","arguments":{}META}}`, "application/json", true},
		"an escaped name":     {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ch\u0061nge","arguments":{}META}}`, "application/json", false},
		"Application/JSON":    {plainCall, "Application/JSON", true},
		"charset":             {plainCall, `application/json; charset="UTF-8"`, true},
		"no arguments":        {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"look"META}}`, "application/json", true},
		"id of 64 bits":       {strings.Replace(plainCall, "7", "9007199254740993", 1), "application/json", true},
		"id that is a string": {strings.Replace(plainCall, "7", `"1"`, 1), "application/json", true},
		"id that is escaped":  {strings.Replace(plainCall, "7", `"\u0031"`, 1), "application/json", true},
	} {
		for _, era := range eras {
			v := s.visitor(era, nil)
			before := len(s.executed())
			tool := "look"
			if name == "an escaped name" {
				tool = "change"
			}
			got := v.send(v.fill(test.body), append(v.headers("tools/call", `{"name":"`+tool+`"}`), "Content-Type", test.type_)...)
			if arrived := len(s.executed()) - before; got.ran() != test.ran || (arrived == 1) != test.ran {
				t.Errorf("%s, %s: %s, and %d arrived", name, era, got, arrived)
			}
			if name == "id of 64 bits" && string(got.id) != "9007199254740993" {
				t.Errorf("%s: the id is %s", era, got.id)
			}
		}
	}
}

// Two requests under way with one id, in a session, are not both taken; the id 1 and the id "1" are two.
func TestOneIDTwice(t *testing.T) {
	t.Parallel()
	arrived, leave := make(chan struct{}, 8), make(chan struct{})
	s := newSiege(t, camp{answers: mcptest.Answers{Handle: func(c *mcptest.Call) bool {
		if c.Method == "tools/call" {
			arrived <- struct{}{}
			<-leave
		}
		return false
	}}})
	v := s.visitor("legacy", nil)
	answers := make(chan echo, 2)
	for _, id := range []string{"1", `"1"`} {
		go func() {
			answers <- v.send(strings.Replace(v.fill(plainCall), "7", id, 1), v.headers("tools/call", "{}")...)
		}()
		<-arrived
	}
	if got := v.send(strings.Replace(v.fill(plainCall), "7", "1", 1), v.headers("tools/call", "{}")...); got.status != http.StatusBadRequest || got.fault == nil {
		t.Errorf("the second: %s", got)
	}
	close(leave)
	for range 2 {
		(<-answers).runs(t, "the first of each:")
	}
	if n := len(s.executed()); n != 2 {
		t.Errorf("%d arrived", n)
	}
}

// Requests that no client library sends: two lengths, old versions of HTTP, other protocols on the same connection. CALL
// is the message, LENGTH its length.
func TestRequestsOnTheWire(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{})
	for name, test := range map[string]struct {
		request string
		most    int // how many may be executed
	}{
		"length and chunks":  {"POST /mcp HTTP/1.1\r\nHEAD\r\nContent-Length: LENGTH\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nCALL", 0},
		"two lengths":        {"POST /mcp HTTP/1.1\r\nHEAD\r\nContent-Length: 5\r\nContent-Length: LENGTH\r\n\r\nCALL", 0},
		"an odd coding":      {"POST /mcp HTTP/1.1\r\nHEAD\r\nTransfer-Encoding: xchunked\r\n\r\nCALL", 0},
		"a space in a name":  {"POST /mcp HTTP/1.1\r\nHEAD\r\nContent-Length : LENGTH\r\n\r\nCALL", 0},
		"two hosts":          {"POST /mcp HTTP/1.1\r\nHEAD\r\nHost: evil.example\r\nContent-Length: LENGTH\r\n\r\nCALL", 0},
		"a folded header":    {"POST /mcp HTTP/1.1\r\nHEAD\r\nX-A: b\r\n Content-Length: 3\r\nContent-Length: LENGTH\r\n\r\nCALL", 1},
		"too short":          {"POST /mcp HTTP/1.1\r\nHEAD\r\nContent-Length: 10\r\n\r\nCALL", 0},
		"an upgrade to h2c":  {"POST /mcp HTTP/1.1\r\nHEAD\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: LENGTH\r\n\r\nCALL", 1},
		"HTTP/1.0":           {"POST /mcp HTTP/1.0\r\nHEAD\r\nConnection: keep-alive\r\nContent-Length: LENGTH\r\n\r\nCALL", 1},
		"HTTP/0.9":           {"POST /mcp\r\n\r\nCALL", 0},
		"an odd expectation": {"POST /mcp HTTP/1.1\r\nHEAD\r\nExpect: 200-maybe\r\nContent-Length: LENGTH\r\n\r\nCALL", 0},
		"by another path":    {"POST /mcp/../mcp HTTP/1.1\r\nHEAD\r\nContent-Length: LENGTH\r\n\r\nCALL", 0},
		"//mcp":              {"POST //mcp HTTP/1.1\r\nHEAD\r\nContent-Length: LENGTH\r\n\r\nCALL", 0},
		"by PUT":             {"PUT /mcp HTTP/1.1\r\nHEAD\r\nContent-Length: LENGTH\r\n\r\nCALL", 0},
		"by post":            {"post /mcp HTTP/1.1\r\nHEAD\r\nContent-Length: LENGTH\r\n\r\nCALL", 0},
		"said to be DELETE":  {"PATCH /mcp HTTP/1.1\r\nHEAD\r\nX-HTTP-Method-Override: POST\r\nContent-Length: LENGTH\r\n\r\nCALL", 0},
	} {
		for _, era := range eras {
			v := s.visitor(era, nil)
			of := fmt.Sprintf(`{"of":"%s, %s"}`, name, era) // a call may be executed after its client has hung up
			call := strings.Replace(v.fill(plainCall), `"arguments":{}`, `"arguments":`+of, 1)
			head := "Host: 127.0.0.1"
			headers := v.headers("tools/call", `{"name":"look"}`)
			for i := 0; i < len(headers); i += 2 {
				head += "\r\n" + headers[i] + ": " + headers[i+1]
			}
			text := wire(t, s.url, strings.NewReplacer("HEAD", head, "LENGTH", fmt.Sprint(len(call)), "CALL", call).Replace(test.request))
			if strings.Contains(text, `"ran"`) && executions(s, of) == 0 {
				t.Errorf("%s, %s: it is said to have run: %.300s", name, era, text)
			}
			t.Cleanup(func() { // all have been made or refused
				if n := executions(s, of); n > test.most {
					t.Errorf("%s, %s: %d executed, %.300s", name, era, n, text)
				}
			})
		}
	}
}

// executions counts the calls with these arguments that reached the server.
func executions(s *siege, arguments string) (n int) {
	for _, g := range s.rec.Executed() {
		if strings.Contains(string(g.Body), arguments) {
			n++
		}
	}
	return n
}

// wire sends bytes, ends, and reads the answer.
func wire(t testing.TB, to, text string) string {
	t.Helper()
	u, err := url.Parse(to)
	orFail(t, err)
	conn, err := net.Dial("tcp", u.Host)
	orFail(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, text)
	orFail(t, err)
	orFail(t, conn.(*net.TCPConn).CloseWrite())
	got, _ := io.ReadAll(bufio.NewReader(conn)) // a reset is an answer, too
	return string(got)
}
