package mcptest

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Recorder is an MCP server that keeps every byte it gets, over HTTP and over standard streams. It speaks both eras unless
// it is told otherwise, and answers as it is told, also what no server should.
type Recorder struct {
	// URL is where it serves over HTTP.
	URL string

	t     testing.TB
	told  Answers
	relay []string // the command line of children

	mu       sync.Mutex
	got      []Got
	sessions map[string]bool
	last     int
}

// Answers are what a recorder says. The zero value has no tools, and runs each that is called.
type Answers struct {
	// Eras are those it speaks, "legacy" and "modern"; none are both.
	Eras []string
	// Tools is the list of tools, an array; the bytes go out as they are. "" is none.
	Tools string
	// Results are by method what is answered, each a whole result as it goes out. They come before the recorder's own.
	Results map[string]string
	// Handle answers a request by itself, whatever its method, and reports whether it did; nil answers none. It runs beside
	// other requests.
	Handle func(c *Call) bool
	// Heard is told of each notification, and of each answer to what the server asked; nil is not.
	Heard func(g Got)
	// Listen serves the GET stream of a legacy session until it returns; nil has none.
	Listen func(c *Call)
}

// Got is one thing that came: over HTTP a request, over standard streams a line.
type Got struct {
	// Over is "http", or "stdio".
	Over string
	// Verb, Target, Host and Header are those of an HTTP request.
	Verb, Target, Host string
	Header             http.Header
	// Child is the process that read the line.
	Child *Child
	// Body are the bytes of the message, without the end of the line.
	Body []byte
	// Method is the method of the message, "" if it has none or could not be read. ID and Params are its bytes.
	Method     string
	ID, Params jsontext.Value
}

// Child is a process that an upstream over standard streams was started as.
type Child struct {
	PID       int
	Args, Env []string
	Dir       string
}

// read takes the message apart, as far as that can be done: what cannot be read has come all the same. Of a member that
// stands there twice the last counts, as it does for many servers.
func (g *Got) read() {
	var m struct {
		Method string         `json:"method"`
		ID     jsontext.Value `json:"id"`
		Params jsontext.Value `json:"params"`
	}
	if err := json.Unmarshal(g.Body, &m, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err == nil {
		g.Method, g.ID, g.Params = m.Method, m.ID, m.Params
	}
}

// Got is all that came so far, in its order.
func (r *Recorder) Got() []Got {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// Executed are the requests and notifications that a gateway has no reason to send by itself: what came because a client
// wanted it.
func (r *Recorder) Executed() []Got {
	return slices.DeleteFunc(r.Got(), func(g Got) bool { return g.Method == "" && len(g.Body) == 0 || slices.Contains(unasked, g.Method) })
}

// unasked are what a gateway may send with nobody asking.
var unasked = []string{
	"initialize", "notifications/initialized", "ping", "server/discover", "subscriptions/listen",
	"tools/list", "resources/list", "resources/templates/list", "prompts/list",
}

// Forget drops all sessions, as a server does that starts anew.
func (r *Recorder) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.sessions)
}

func (r *Recorder) keep(g Got) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, g)
}

// speaks reports whether an era is one of its own.
func (r *Recorder) speaks(era string) bool {
	return len(r.told.Eras) == 0 || slices.Contains(r.told.Eras, era)
}

// heard takes a message that nobody answers.
func (r *Recorder) heard(g Got) {
	if r.told.Heard != nil {
		r.told.Heard(g)
	}
}

// answer answers a request.
func (r *Recorder) answer(c *Call) {
	if r.told.Handle != nil && r.told.Handle(c) {
		return
	}
	if result, has := r.told.Results[c.Method]; has {
		c.Result(result)
		return
	}
	if c.Modern && c.Method == "subscriptions/listen" {
		r.listen(c)
		return
	}
	result := r.result(c)
	if result == "" {
		c.fail(http.StatusNotFound, `{"code":-32601,"message":"there is no such method"}`)
		return
	}
	c.Result(result)
}

// listen tells a listener that it is heard, and has nothing to say to it until it goes.
func (r *Recorder) listen(c *Call) {
	var params struct {
		Notifications jsontext.Value `json:"notifications"`
	}
	if err := json.Unmarshal(c.Params, &params); err != nil || params.Notifications == nil {
		c.fail(http.StatusBadRequest, `{"code":-32602,"message":"params.notifications is missing"}`)
		return
	}
	c.Message(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":` + string(params.Notifications) +
		`,"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(c.ID) + `}}}`)
	<-c.Context.Done()
}

// What a recorder says of itself.
const (
	self         = `{"name":"recorder","version":"1"}`
	capabilities = `{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"completions":{},"logging":{}}`
)

// result is its own answer to a method, "" if it has none.
func (r *Recorder) result(c *Call) string {
	members, cached := map[string]string{
		"initialize":               `"protocolVersion":"2025-11-25","capabilities":` + capabilities + `,"serverInfo":` + self,
		"ping":                     ``,
		"tools/call":               `"content":[{"type":"text","text":"ran"}]`,
		"resources/read":           `"contents":[{"uri":"mem://notes","mimeType":"text/plain","text":"a note"}]`,
		"resources/subscribe":      ``,
		"resources/unsubscribe":    ``,
		"prompts/get":              `"messages":[{"role":"user","content":{"type":"text","text":"a prompt"}}]`,
		"completion/complete":      `"completion":{"values":["a"]}`,
		"logging/setLevel":         ``,
		"server/discover":          `"supportedVersions":["` + modern + `"],"capabilities":` + capabilities + `,"_meta":{"io.modelcontextprotocol/serverInfo":` + self + `}`,
		"tools/list":               `"tools":` + r.tools(),
		"resources/list":           `"resources":[{"uri":"mem://notes","name":"notes"}]`,
		"resources/templates/list": `"resourceTemplates":[{"uriTemplate":"mem://{name}","name":"all"}]`,
		"prompts/list":             `"prompts":[{"name":"greet"}]`,
	}, []string{"server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list", "resources/read"}
	if !slices.Contains(slices.Collect(maps.Keys(members)), c.Method) || c.Modern && c.Method == "initialize" || !c.Modern && c.Method == "server/discover" {
		return ""
	}
	all := members[c.Method]
	if c.Modern {
		all = `"resultType":"complete",` + all
		if slices.Contains(cached, c.Method) {
			all += `,"ttlMs":0,"cacheScope":"private"`
		}
	}
	return "{" + strings.TrimSuffix(all, ",") + "}"
}

func (r *Recorder) tools() string {
	if r.told.Tools == "" {
		return "[]"
	}
	return r.told.Tools
}

// isModern reports whether a message says of itself that it is of the modern era.
func isModern(params jsontext.Value) bool {
	return bytes.Contains(params, []byte(`"io.modelcontextprotocol/protocolVersion"`))
}
