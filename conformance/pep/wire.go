package pep

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"policy-service/conformance/internal/casefile"
	"policy-service/conformance/internal/wire"
)

// Era is one of the two forms of MCP that are in use.
type Era string

// The eras.
const (
	// Legacy is MCP up to 2025-11-25: a session begins with initialize.
	Legacy Era = "legacy"
	// Modern is MCP since 2026-07-28: every request says all that is needed to read it.
	Modern Era = "modern"
)

var eras = []Era{Legacy, Modern}

// Version is the version of MCP that is spoken in this era.
func (e Era) Version() string {
	if e == Legacy {
		return "2025-11-25"
	}
	return "2026-07-28"
}

// The version and client of a modern request, in params._meta.
const (
	metaVersion = "io.modelcontextprotocol/protocolVersion"
	metaOfCall  = `"_meta":{"` + metaVersion + `":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"conformance","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
)

// outgoing is one message on its way to the PEP.
type outgoing struct {
	method, name string // for the headers
	body, id     string
	notification bool
	header       map[string]string
	token        string
	inQuery      bool
	session      string
}

// compose makes the message of a method. Params are an object's text, or nothing.
func (e Era) compose(method, params, id string, notification bool) string {
	var meta []string
	if e == Modern && !notification {
		meta = []string{metaOfCall}
	}
	if inner := strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(params, "{"), "}")); inner != "" {
		meta = append([]string{inner}, meta...)
	}
	body := `{"jsonrpc":"2.0",`
	if !notification {
		body += `"id":` + id + ","
	}
	body += `"method":` + casefile.Quote(method)
	if len(meta) > 0 || params != "" {
		body += `,"params":{` + strings.Join(meta, ",") + "}"
	}
	return body + "}"
}

// answer is the answer of the PEP.
type answer struct {
	status  int
	text    string // all that came
	message object // the JSON-RPC response in it, nil if there is none
	id      string // of the response, as it is spelt
	session string // that it opens, "" if it opens none
}

// code is that of the error, however it is spelt; "" if there is none.
func (a answer) code() string {
	code, _ := member(a.message, "error", "code").(number)
	if exact := code.exact(); exact != nil && exact.IsInt() {
		return exact.Num().String()
	}
	return string(code)
}

// result is nil if there is none.
func (a answer) result() any { return a.message["result"] }

// send sends a message and reads the answer to it.
func (p *peer) send(ctx context.Context, era Era, out outgoing) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	to := *p.url
	if out.inQuery {
		query := to.Query()
		query.Set("access_token", out.token)
		to.RawQuery = query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), strings.NewReader(out.body))
	if err != nil {
		return answer{}, err
	}
	era.headers(r.Header, out)
	if out.token != "" && !out.inQuery {
		r.Header.Set("Authorization", "Bearer "+out.token)
	}
	wire.SetHeaders(r.Header, out.header)
	w, err := p.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = w.Body.Close() }()
	a, err := readAnswer(w)
	a.session = w.Header.Get("Mcp-Session-Id")
	return a, err
}

// headers are those of the era.
func (e Era) headers(h http.Header, out outgoing) {
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json, text/event-stream")
	if out.method != "initialize" {
		h.Set("MCP-Protocol-Version", e.Version())
	}
	if e == Legacy {
		if out.session != "" {
			h.Set("Mcp-Session-Id", out.session)
		}
		return
	}
	h.Set("Mcp-Method", out.method)
	if out.name != "" {
		h.Set("Mcp-Name", headerValue(out.name))
	}
}

// headerValue returns a text as a header has it: in base64 if the header cannot hold it as it is.
func headerValue(s string) string {
	for _, r := range s {
		if r < ' ' || r > '~' {
			return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
		}
	}
	return s
}

// readAnswer finds the response in a body, which is JSON or a stream of events.
func readAnswer(w *http.Response) (answer, error) {
	a := answer{status: w.StatusCode}
	if mediaType, _, err := mime.ParseMediaType(w.Header.Get("Content-Type")); err == nil && mediaType == "text/event-stream" {
		err := a.readEvents(io.LimitReader(w.Body, wire.Most))
		return a, err
	}
	text, err := wire.Read(w.Body)
	if err != nil {
		return a, err
	}
	a.take(string(text))
	return a, nil
}

// take keeps a text, and the response in it if it is one.
func (a *answer) take(text string) bool {
	a.text = text
	o, err := parseObject([]byte(text))
	if err != nil || o["result"] == nil && o["error"] == nil {
		return false
	}
	a.message, a.id = o, rawMember(text, "id")
	return true
}

// readEvents reads a stream up to the first response: the messages before it are notifications.
func (a *answer) readEvents(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, wire.Most)
	var data []string
	var all strings.Builder
	defer func() { a.text = strings.TrimSuffix(all.String(), "\n") }()
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "data:"); ok {
			data = append(data, strings.TrimPrefix(rest, " "))
		}
		if line == "" && len(data) > 0 {
			event := strings.Join(data, "\n")
			all.WriteString(event + "\n")
			if a.take(event) {
				return nil
			}
			data = nil
		}
	}
	return lines.Err()
}

// peer is the PEP under test.
type peer struct {
	url     *url.URL
	client  *http.Client
	timeout time.Duration
}

func newPeer(t Target) (*peer, error) {
	to, err := url.Parse(t.URL)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" || to.Fragment != "" {
		return nil, fmt.Errorf("%q is not the URL of an MCP server; try http://host[:port]/path", t.URL)
	}
	return &peer{url: to, client: wire.Client(t.Client), timeout: cmp.Or(t.Timeout, 10*time.Second)}, nil
}
