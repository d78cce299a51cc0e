package pep

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// stub is a PEP that is right, written from the text of the profile alone, so that the suite is known to be passable by
// one that is not ours. It is a gateway or a server, and speaks both eras.
type stub struct {
	t        testing.TB
	shape    shape
	wiring   Wiring
	resource string
	claim    string
	tools    map[string]object
	wrong    map[string]bool // what is wrong with it, by name
	client   *http.Client    // of the PDP; it gives up where the PDP holds an answer back
	patient  *http.Client
	keySet   func() (jose.JSONWebKeySet, error)
	behind   sync.WaitGroup // what it still does after it answered
	mu       sync.Mutex
	permits  map[string]bool // of a PEP that remembers them

	first   atomic.Pointer[object] // the claims of who called first
	bearer  atomic.Pointer[string] // the token of the last message
	session atomic.Int64           // the only one of a PEP that has one at a time
	failed  atomic.Bool            // the PDP did, the last time that it was asked
	silent  atomic.Bool            // it answers nothing any more
}

const stubResource = "https://mcp.example.com"

// startStub starts a PEP on a bench.
func startStub(t testing.TB, b *Bench, how shape, wrong ...string) (url string) {
	t.Helper()
	o, err := offers()
	if err != nil {
		t.Fatal(err)
	}
	s := &stub{t: t, shape: how, wiring: b.Wiring, resource: stubResource, claim: "sub", tools: map[string]object{}, wrong: map[string]bool{}, permits: map[string]bool{}}
	for _, name := range wrong {
		s.wrong[name] = true
	}
	known := o.Tools
	if s.wrong["learns the first page alone"] {
		known = o.Pages[0]
	}
	all, err := parse([]byte(known))
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range all.([]any) {
		s.tools[member(tool, "name").(string)] = tool.(object)
	}
	transport := &http.Transport{}
	impatient := &impatient{base: transport}
	b.pdp.mu.Lock()
	b.pdp.held = impatient.giveUp
	b.pdp.mu.Unlock()
	s.client, s.patient, s.keySet = &http.Client{Transport: impatient}, &http.Client{Transport: transport}, sync.OnceValues(s.fetchKeys)
	if !s.wrong["follows redirects"] {
		s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	if s.wrong["is told of another claim"] {
		s.claim = "act_for"
	}
	server := httptest.NewServer(s)
	t.Cleanup(func() { server.Close(); transport.CloseIdleConnections() })
	return server.URL + mcpPath
}

// impatient gives up on an answer once it is held back, and not after a time: it asks one question after the other.
type impatient struct {
	base http.RoundTripper

	mu       sync.Mutex
	cancel   func()
	answered chan struct{} // closed when the answer has begun
}

func (i *impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	answered := make(chan struct{})
	defer close(answered)
	i.mu.Lock()
	i.cancel, i.answered = cancel, answered
	i.mu.Unlock()
	return i.base.RoundTrip(r.WithContext(ctx))
}

func (i *impatient) giveUp(begun bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if begun {
		<-i.answered
	}
	i.cancel()
}

// refusal is what the PEP answers instead of a result.
type refusal struct {
	status, code int
	message      string
}

func (r refusal) Error() string { return r.message }

func mappingError(format string, values ...any) error {
	return refusal{200, -32602, fmt.Sprintf("COAZ mapping error: "+format, values...)}
}

var (
	errAnswered    = refusal{message: "answered already"}
	errDenied      = refusal{200, -32001, "denied"}
	errUnavailable = refusal{200, -32603, "authorization service unavailable"}
)

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	s.behind.Wait()
	if s.silent.Load() {
		<-r.Context().Done()
		return
	}
	bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.bearer.Store(&bearer)
	claims, err := s.authenticate(r)
	if err != nil {
		if s.wrong["asks before it authenticates"] {
			_ = s.askAnything()
		}
		if s.wrong["takes bad tokens for bad parameters"] {
			s.refuse(w, "null", mappingError("no token"))
			return
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	_, odd := parseObject(body)
	if s.wrong["forwards what it does not recognise"] && (odd != nil || r.Header.Get("Content-Type") != "application/json") {
		result, _ := s.execute(r, "tools/call", nil, body, "1")
		s.write(w, `{"jsonrpc":"2.0","id":1,"result":`+result+"}")
		return
	}
	message, refused := s.read(r, body)
	if refused != nil {
		s.refuse(w, "null", refused)
		return
	}
	id := rawMember(string(body), "id")
	if id == "null" {
		id = ""
	}
	if s.wrong["remembers who called first"] {
		s.first.CompareAndSwap(nil, &claims)
		claims = *s.first.Load()
	}
	if s.wrong["has one session at a time"] && !s.hasSession(w, r, message["method"]) {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	result, err := s.handle(w, r, message, body, claims, id)
	switch {
	case err == errAnswered:
	case err == errDenied && message["method"] == "tools/call" && s.wrong["denies with results"]:
		s.write(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[],"isError":true}}`, id))
	case err != nil:
		s.refuse(w, id, err)
	case id == "":
		w.WriteHeader(http.StatusAccepted)
	default:
		s.write(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, s.id(id), result))
	}
}

// write answers as JSON, or as a stream of events before which a notification comes.
func (s *stub) write(w http.ResponseWriter, text string) {
	if s.shape == gateway {
		writeText(w, http.StatusOK, "application/json", text)
		return
	}
	writeText(w, http.StatusOK, "text/event-stream", "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\nevent: message\ndata: "+text+"\n\n")
}

func (s *stub) id(id string) string {
	if s.wrong["reads ids as floats"] {
		return strings.Replace(id, "9007199254740993", "9007199254740992", 1)
	}
	if s.wrong["takes 0 for no id"] && id == "0" {
		return "null"
	}
	if s.wrong["answers text ids with numbers"] {
		return strings.Trim(id, `"`)
	}
	return id
}

func (s *stub) refuse(w http.ResponseWriter, id string, err error) {
	r := err.(refusal)
	if s.wrong["denies with -32401"] && r.code == -32001 {
		r.code = -32401
	}
	if s.wrong["denies with -32001 in the old dialect"] && r.code == -32401 {
		r.code = -32001
	}
	if s.wrong["reports every failure as a denial"] {
		r.code = -32001
	}
	if s.wrong["says nothing of mapping errors"] && r.code == -32602 {
		r.message = "invalid params"
	}
	if s.wrong["quotes the token"] {
		r.message += *s.bearer.Load()
	}
	if s.wrong["falls silent after a mapping error"] && r.code == -32602 {
		s.silent.Store(true)
	}
	if s.wrong["swallows what it refuses"] {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if s.wrong["denies with 403 and no body"] && r.code == -32001 {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if s.wrong["errors without an id"] {
		id = "null"
	}
	if s.wrong["empty list instead of an error"] && r.code == -32603 {
		writeText(w, 200, "application/json", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}`, s.id(id)))
		return
	}
	version := any("2.0")
	if s.wrong["refuses in another JSON-RPC"] {
		version = nil
	}
	writeJSON(w, r.status, object{"jsonrpc": version, "id": rawJSON(s.id(id)), "error": object{"code": r.code, "message": r.message}})
}

// rawJSON is text that is JSON already.
type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// read takes the message of a request, if it has exactly one reading.
func (s *stub) read(r *http.Request, body []byte) (object, error) {
	mediaType, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" || parameters["charset"] != "" && !strings.EqualFold(parameters["charset"], "utf-8") {
		return nil, refusal{http.StatusUnsupportedMediaType, -32700, "no JSON"}
	}
	message, err := parseObject(body)
	if s.wrong["reads JSON laxly"] {
		message, err = laxly(body), nil
	}
	if err != nil {
		return nil, refusal{http.StatusBadRequest, -32700, "no JSON"}
	}
	if s.wrong["takes names in any case"] {
		message = lower(message)
		message["params"] = lower(message["params"])
	}
	method, ok := message["method"].(string)
	if !ok || message["jsonrpc"] != "2.0" {
		return nil, refusal{http.StatusBadRequest, -32600, "no request"}
	}
	id, there := message["id"]
	if id == nil && s.wrong["takes a call without id for a notification"] {
		there = false
	}
	if _, text := id.(string); there && !text {
		n, isNumber := id.(number)
		if ok = isNumber && !strings.ContainsAny(string(n), ".eE"); !ok {
			return nil, refusal{http.StatusBadRequest, -32600, "no id"}
		}
	}
	if !there && !strings.HasPrefix(method, "notifications/") && !s.wrong["takes a call without id for a notification"] {
		return nil, refusal{http.StatusBadRequest, -32600, "no id"}
	}
	return message, s.mirror(r, method, message["params"])
}

// mirror holds the headers of a modern request to its body.
func (s *stub) mirror(r *http.Request, method string, params any) error {
	headers, body := r.Header.Get("MCP-Protocol-Version") >= Modern.Version(), member(params, "_meta", metaVersion) != nil
	if headers != body && !strings.HasPrefix(method, "notifications/") {
		return refusal{http.StatusBadRequest, -32022, "which version?"}
	}
	if !headers || s.wrong["decides on headers"] || s.wrong["does not look at headers"] {
		return nil
	}
	name, _ := member(params, "name").(string)
	if uri, ok := member(params, "uri").(string); ok {
		name = uri
	}
	if r.Header.Get("Mcp-Method") != method || slices.Contains([]string{"tools/call", "prompts/get", "resources/read"}, method) && r.Header.Get("Mcp-Name") != headerValue(name) {
		return refusal{http.StatusBadRequest, -32020, "headers differ"}
	}
	return nil
}

// handle decides about a message, and executes it.
func (s *stub) handle(w http.ResponseWriter, r *http.Request, message object, body []byte, claims object, id string) (string, error) {
	method, params := message["method"].(string), message["params"]
	if method == "subscriptions/listen" && s.wrong["opens streams unasked"] {
		writeText(w, http.StatusOK, "text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\"}\n\n")
		return "", errAnswered
	}
	if (s.wrong["forgets the new era"] || s.wrong["knows one era"]) && member(params, "_meta", metaVersion) != nil {
		if method == "tools/call" && !s.wrong["knows one era"] {
			return s.execute(r, method, params, body, id)
		}
		return "", refusal{http.StatusBadRequest, -32600, "no session"}
	}
	if method == "ping" && s.wrong["swallows pings"] {
		w.WriteHeader(http.StatusAccepted)
		return "", errAnswered
	}
	passes := method == "ping" || strings.HasPrefix(method, "notifications/") || method == "initialize" && s.wrong["opens sessions unasked"]
	if s.wrong["decides on headers"] && r.Header.Get("Mcp-Name") != "" {
		params = with(params.(object), object{"name": r.Header.Get("Mcp-Name")})
	}
	if passes && s.wrong["asks about pings and notifications"] {
		if err := s.askAnything(); err != nil {
			return "", err
		}
	}
	if !passes && !(id == "" && s.wrong["takes a call without id for a notification"]) {
		if err := s.authorize(method, params, claims); err != nil {
			if s.wrong["executes before it decides"] {
				_, _ = s.execute(r, method, params, body, id)
			}
			if s.wrong["executes after it refused"] {
				s.behind.Go(func() { _, _ = s.execute(r.Clone(s.t.Context()), method, params, body, id) })
			}
			return "", err
		}
	}
	if method == "notifications/initialized" || passes && s.shape == server {
		return "{}", nil
	}
	if s.wrong["executes twice"] {
		_, _ = s.execute(r, method, params, body, id)
	}
	return s.execute(r, method, params, body, id)
}

// hasSession reports if a legacy message is of the newest session, or opens it.
func (s *stub) hasSession(w http.ResponseWriter, r *http.Request, method any) bool {
	if method == "initialize" {
		w.Header().Set("Mcp-Session-Id", fmt.Sprint("session-", s.session.Add(1)))
		return true
	}
	return r.Header.Get("MCP-Protocol-Version") >= Modern.Version() || r.Header.Get("Mcp-Session-Id") == fmt.Sprint("session-", s.session.Load())
}

// askAnything asks the PDP what nobody wants to know.
func (s *stub) askAnything() error {
	return s.ask("evaluation", []byte(`{"subject":{"type":"identity","id":"nobody"},"action":{"name":"a"},"resource":{"type":"t","id":"r"}}`), 1)
}

// laxly reads JSON as many readers do: the last of two members counts, and what follows the value does not.
func laxly(body []byte) object {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	return laxObject(body)
}

// lower reads names in any case: one that differs from its own counts before it.
func lower(v any) object {
	o, _ := v.(object)
	changed := maps.Clone(o)
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if known := strings.ToLower(name); name != known {
			changed[known] = o[name]
		}
	}
	return changed
}
