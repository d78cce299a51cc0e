package pep

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/conformance/internal/wire"
)

// The paths of the stub upstream.
const (
	mcpPath    = "/mcp"
	reportPath = "/executed"
)

// upstream is the MCP server behind a gateway: of both eras, without sessions, and it keeps every byte that it gets. A
// server that is its own PEP reports to it each operation that it executes.
type upstream struct {
	book    *book
	offered offered
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(io.LimitReader(r.Body, wire.Most))
	if r.URL.Path != reportPath {
		u.book.watch("upstream", r, text)
	}
	switch {
	case err != nil:
	case r.URL.Path == reportPath && r.Method == http.MethodPost:
		u.book.hear(server)
		u.book.execute(read(string(text)))
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Path == mcpPath && r.Method == http.MethodPost:
		u.book.hear(gateway)
		u.serve(w, text)
	case r.URL.Path == mcpPath && r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Path == mcpPath:
		w.Header().Set("Allow", "POST, DELETE")
		w.WriteHeader(http.StatusMethodNotAllowed)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// read takes a message apart as far as it can be: a message that cannot be read has come all the same.
func read(text string) executed {
	e := executed{method: "(unreadable)"}
	o, err := parseObject([]byte(text))
	if err != nil {
		return e
	}
	if method, ok := o["method"].(string); ok {
		e.method = method
	}
	e.params = rawMember(text, "params")
	return e
}

// rawMember is a member of an object as it is spelt.
func rawMember(text, name string) string {
	var members map[string]jsontext.Value
	_ = json.Unmarshal([]byte(text), &members) // behind a mistake there are none
	return string(members[name])
}

// own are the methods that a gateway may call for itself, without a client's request.
var own = []string{
	"initialize", "ping", "server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list", "subscriptions/listen",
}

// serve answers a message. All methods count as executed but those that a gateway may call for itself.
func (u *upstream) serve(w http.ResponseWriter, text []byte) {
	e := read(string(text))
	if !slices.Contains(own, e.method) && !strings.HasPrefix(e.method, "notifications/") {
		u.book.execute(e)
	}
	message, err := parseObject(text)
	if err != nil {
		writeText(w, http.StatusBadRequest, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"this is no message"}}`)
		return
	}
	id := rawMember(string(text), "id")
	if id == "" {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result := u.result(e.method, member(message, "params"))
	if result == "" {
		writeText(w, http.StatusNotFound, "application/json", `{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-32601,"message":"there is no such method"}}`)
		return
	}
	writeText(w, http.StatusOK, "application/json", `{"jsonrpc":"2.0","id":`+id+`,"result":`+result+`}`)
}

// result is the result of a method, as text; "" if there is no such method.
func (u *upstream) result(method string, params any) string {
	version, _ := member(params, "_meta", metaVersion).(string)
	modernOnly := "}"
	if version >= Modern.Version() {
		modernOnly = `,"resultType":"complete","ttlMs":0,"cacheScope":"private"}`
	}
	name, _ := member(params, "name").(string)
	var members string
	switch method {
	case "initialize":
		members = `"protocolVersion":"` + Legacy.Version() + `","serverInfo":` + self + `,"capabilities":` + capabilities
	case "server/discover":
		members = `"supportedVersions":["` + Modern.Version() + `"],"serverInfo":` + self + `,"capabilities":` + capabilities
	case "tools/list":
		members = `"tools":` + u.offered.Pages[0] + `,"nextCursor":"` + nextPage + `"`
		if member(params, "cursor") == nextPage {
			members = `"tools":` + u.offered.Pages[1]
		}
	case "resources/list":
		members = `"resources":` + u.offered.Resources
	case "resources/templates/list":
		members = `"resourceTemplates":` + u.offered.Templates
	case "prompts/list":
		members = `"prompts":` + u.offered.Prompts
	case "tools/call":
		text, _ := jsontext.AppendQuote(nil, "ran "+name)
		members = `"content":[{"type":"text","text":` + string(text) + `}]`
	case "resources/read":
		members = `"contents":[{"uri":"mem://notes","mimeType":"text/plain","text":"a note"}]`
	case "prompts/get":
		members = `"messages":[{"role":"user","content":{"type":"text","text":"a prompt"}}]`
	case "completion/complete":
		members = `"completion":{"values":["a"]}`
	case "tasks/list":
		members = `"tasks":[]`
	case "tasks/get", "tasks/cancel":
		members = `"taskId":"task-1","status":"working","createdAt":"2026-07-28T00:00:00Z","lastUpdatedAt":"2026-07-28T00:00:00Z","ttl":60000`
	case "tasks/result":
		members = `"content":[{"type":"text","text":"a result"}]`
	case "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/update":
		return "{" + strings.TrimPrefix(modernOnly, ",")
	default:
		return ""
	}
	return "{" + members + modernOnly
}

const nextPage = "page-2"

// The upstream's description of itself.
const (
	self         = `{"name":"conformance-upstream","version":"1"}`
	capabilities = `{"tools":{},"resources":{"subscribe":true},"prompts":{},"completions":{},"logging":{},` +
		`"tasks":{"list":{},"cancel":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
)
