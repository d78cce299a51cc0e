package mcp_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// crier is a server that says by itself what a test has it say.
type crier struct {
	says chan string // "" ends the stream
	came chan struct{}
}

func newCrier() *crier { return &crier{make(chan string), make(chan struct{}, 64)} }

func (c *crier) answers(era string) mcptest.Answers {
	return mcptest.Answers{Eras: []string{era}, Listen: c.listen, Handle: func(call *mcptest.Call) bool {
		if call.Method != "subscriptions/listen" {
			return false
		}
		_, filter, _ := strings.Cut(string(call.Params), `"notifications":`)
		filter, _, _ = strings.Cut(filter, `,"_meta"`)
		call.Message(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":` + filter + `,"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(call.ID) + `}}}`)
		c.listen(call)
		if call.Context.Err() == nil {
			call.Result(`{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":` + string(call.ID) + `}}`)
		}
		return true
	}}
}

func (c *crier) listen(call *mcptest.Call) {
	c.came <- struct{}{}
	for {
		select {
		case text := <-c.says:
			if text == "" {
				return
			}
			call.Message(text)
		case <-call.Context.Done():
			return
		}
	}
}

func manyChanged(what string) string {
	return `{"jsonrpc":"2.0","method":"notifications/` + what + `"}`
}

// manyStream is what a client hears by itself, line by line.
type manyStream struct {
	t     testing.TB
	lines *bufio.Scanner
	end   func()
}

// stream opens the stream of a client: params are what it listens to in the modern era.
func (v *visitor) stream(params string) *manyStream {
	v.s.t.Helper()
	ctx, cancel := context.WithTimeout(v.s.t.Context(), time.Minute)
	verb := http.MethodGet
	if v.era == "modern" {
		verb = http.MethodPost
	}
	a := v.opens(ctx, verb, "subscriptions/listen", params)
	if a.StatusCode != http.StatusOK {
		v.s.t.Fatal(a.Status)
	}
	end := func() {
		cancel()
		_ = a.Body.Close()
	}
	v.s.t.Cleanup(end)
	return &manyStream{v.s.t, bufio.NewScanner(a.Body), end}
}

// hears fails unless the next message has a text in it, and gives the message. That it is welcome a client hears at any time.
func (m *manyStream) hears(want string) string {
	m.t.Helper()
	for m.lines.Scan() {
		if text, ok := strings.CutPrefix(m.lines.Text(), "data: "); ok && !strings.Contains(text, `"notifications/welcome"`) {
			if !strings.Contains(text, want) {
				m.t.Fatalf("heard %s, want %s", text, want)
			}
			return text
		}
	}
	m.t.Fatalf("the stream has ended, want %s: %v", want, m.lines.Err())
	return ""
}

const manyListens = `{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["mem://a/1","mem://b/1","mem://c/1"]}}`

// One stream of a client hears all servers. What a server says of the resources of another goes nowhere, and one that ends
// its stream ends it for nobody else.
func TestManyHeard(t *testing.T) {
	t.Parallel()
	for _, ups := range [][2]string{{"legacy", "legacy"}, {"modern", "modern"}, {"legacy", "modern"}} {
		for _, era := range eras {
			t.Run(era+" to "+ups[0]+" and "+ups[1], func(t *testing.T) {
				t.Parallel()
				a, b := newCrier(), newCrier()
				m := newMany(t, camp{}, map[string]manyServer{"a": {answers: a.answers(ups[0]), uris: []string{"mem://a/"}}, "b": {answers: b.answers(ups[1]), uris: []string{"mem://b/"}}})
				v := m.visitor(era, nil)
				if era == "legacy" {
					for _, uri := range []string{"mem://a/1", "mem://b/1"} {
						if got := v.ask("resources/subscribe", `{"uri":"`+uri+`"}`); !got.ran() {
							t.Fatal(got)
						}
					}
				}
				s := v.stream(manyListens)
				if era == "modern" {
					if got := s.hears("subscriptions/acknowledged"); !strings.Contains(got, `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["mem://a/1","mem://b/1"]}`) {
						t.Error(got)
					}
				}
				for _, c := range []*crier{a, b} {
					<-c.came
				}
				for _, one := range []struct {
					by   *crier
					uri  string
					what string
				}{{a, "mem://a/1", "tools"}, {b, "mem://b/1", "prompts"}} {
					for _, uri := range []string{"mem://a/1", "mem://b/1", "mem://c/1"} {
						one.by.says <- `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `"}}`
					}
					one.by.says <- manyChanged(one.what + "/list_changed")
					s.hears(`"uri":"` + one.uri + `"`)
					s.hears(one.what + "/list_changed")
				}
				a.says <- "" // over for a
				b.says <- manyChanged("tools/list_changed")
				s.hears("tools/list_changed")
				for name, other := range map[string]string{"a": "mem://b/", "b": "mem://a/"} {
					if where := m.recs[name].Saw(other); where != "" {
						t.Errorf("%s was told of the other's resources in %s", name, where)
					}
				}
			})
		}
	}
}

// flushed does something once, before whoever is answered with a stream knows of it.
type flushed struct {
	http.ResponseWriter
	once sync.Once
	do   func()
}

func (f *flushed) Flush() {
	f.once.Do(f.do)
	f.ResponseWriter.(http.Flusher).Flush()
}

func (f *flushed) SetWriteDeadline(at time.Time) error {
	return http.NewResponseController(f.ResponseWriter).SetWriteDeadline(at)
}

// Nothing that is said once a client knows of its stream is missed.
func TestManyStreamMissesNothing(t *testing.T) {
	t.Parallel()
	door := &manyDoor{state: "away"}
	m := newMany(t, camp{}, map[string]manyServer{"a": {}, "b": {before: door.before(t)}})
	v := m.visitor("legacy", nil)
	if names := manyNames(t, v.ask("tools/list", `{}`), "tools", "name"); !slices.Equal(names, []string{"a__look", "a__change"}) {
		t.Fatalf("the tools are %q", names)
	}
	back := func() { // the call is answered once whoever listens was told
		door.set("")
		v.call("b__look", `{}`).runs(t)
	}
	all := m.gateway.Handler()
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w = &flushed{ResponseWriter: w, do: back}
		}
		all.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		served.CloseClientConnections()
		served.Close()
	})
	there := *m.siege
	there.url = served.URL + mcp.Endpoint
	listener := &visitor{s: &there, era: v.era, token: v.token, session: v.session, client: v.client, heard: &kept{}}
	listener.stream("").hears("list_changed")
}
