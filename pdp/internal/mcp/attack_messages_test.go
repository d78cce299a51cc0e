package mcp_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
)

const plainCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{CALLMETA}}`

// fill makes a message of an attack.
func (v *visitor) fill(body string) string {
	meta := strings.TrimSuffix(strings.TrimPrefix(v.params("{}"), "{"), "}")
	if meta != "" {
		meta = "," + meta
	}
	return strings.NewReplacer("CALL", `"name":"look","arguments":{}`, "META", meta).Replace(body)
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
