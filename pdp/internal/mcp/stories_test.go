package mcp_test

import (
	"bufio"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"golang.org/x/tools/txtar"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/policies"
)

// A story is a txtar file in testdata/stories. Its prose stands first, then files, then the steps:
//
//	A denied call is refused, and nothing of it reaches the server.
//
//	-- a.cedar --
//	@id("look") permit (principal, action, resource) unless { resource == tool::"rec:change" };
//	-- story --
//	alice> tools/call {"name":"look","arguments":{}}
//	server< tools/call {"name":"look","arguments":{}}
//	alice< result {"content":[{"type":"text","text":"ran"}]}
//	alice> tools/call {"name":"change","arguments":{}}
//	legacy: alice< error -32001 Access denied {"type":"tool_call_blocked"}
//	modern: alice< error -32001 Access denied ...
//
// It is run once in the legacy era and once in the modern one, with a gateway, a PDP, an issuer and a server of its own each time.
// A line after "legacy:", "modern:", "http:" or "stdio:" is of those runs alone. Lines that begin with # are comments.
//
// The files are those of the PDP's bundle, but for
//
//	config.yaml    keys of the gateway's configuration that differ from the ordinary, as in its file; an upstream needs no url
//	server         what the server rec does, see rules below; "server b" is that of the server b, which has the label b
//	story          the steps
//	NAME: FILE     is for the bundle, and not in it before a step says so
//
// A story without a .cedar file permits everything. The line "bundle people" takes the bundle of people_test.go instead (with
// alice, the operators mia, noah and zoe, and eve), "bundle NAME" one of package policies; files are added to it. With the line
// "locked" all tools are locked as the servers have them.
//
// # Clients
//
//	alice> tools/call {"name":"look","arguments":{}}   sends a request, with id, _meta and headers of the era
//	alice> tools/call {...} | Mcp-Name: x | +Accept: y  sets a header, adds one, or takes it away if there is no value
//	alice> {"jsonrpc":"2.0","id":7,"method":"ping"}    sends these bytes; META stands for the member _meta and its comma
//	alice> "\x00{"                                     sends the bytes of a Go string
//	alice> GET, alice> DELETE                          are other HTTP requests; GET is the stream of the legacy era
//	alice> listen {...}                                opens the stream of the era: GET, or subscriptions/listen with these params
//	alice> answer {"action":"accept","content":{}}     answers what alice was asked: by a response, or by the call with it
//	alice> again                                       sends the last request once more
//	alice> cancel                                      gives the request up, as the era does
//	alice> leave                                       gives it up by the end of the connection, in any era
//	alice< error -32602 ...                            is the next that she hears; "..." stands for any text
//	alice header Retry-After: ...                      is a header of what she heard last
//	alice/ear rest                                     whatever else comes there is not looked at
//	unheard notifications/welcome                      what has this in it is not looked at, whoever hears it
//
// A client has one thing under way, and any number of others as alice/2>, alice/ear>, ... Over the standard streams
// alice/ear is there from the beginning, and has what no call brings. A request may not be followed by another
// of the same label before it has been answered. alice/api> POST /v1/approvals/ASK-1/decision {...} asks the PDP by alice's key.
// REPEAT(x,5000) in what is sent, or what a rule says, is a text that often. NOW+10m in what is sent, or in a file of the bundle, is
// that time, and in what is heard afterwards it has this name. FORGED(SEAL-1) is that with one character changed.
//
// What is heard is written "result VALUE", "error CODE MESSAGE DATA", "METHOD PARAMS" for a request or notification, and "end" for
// a stream that ends without an answer, with a status before it if that is not 200. _meta and "resultType":"complete" are left
// out, as is what lists and introductions say of capabilities unless a line of the story is "capabilities shown", and what a
// client of the modern era is asked is written as in the legacy one, so that both eras have one line. A line may
// also be the message as it is. Whatever is heard must be in the story, but for a word of progress that says what the one before
// said, with a higher number; -update writes it there. Ids and sealed texts have the
// names ID-1, ID-2, ..., SEAL-1, ... in the order in which they are heard; what is sent may use them. Times are TIME, what a
// session is called in an introduction is SESSION, and the addresses of this run GATEWAY, PDP, SERVER and ISSUER.
//
// A client has the token of a person by its name, with the client agent-release. Otherwise a line says so:
//
//	client bot: sub=alice client_id=bot forms mcpx at=2   takes forms and addresses, speaks MCPx, and is at the second gateway
//	client eve: byhand era=modern capabilities="roots":{} token=x  sends no initialize by itself, and so on; client_id= takes a claim away
//
// A client of the legacy era that listens has declared that it knows the gateway's messages, unless its line has the word stranger.
//
// # Servers
//
// Rules, a line each, "METHOD: SAYS" or "METHOD NAME: SAYS", with && between several things it says. Other requests are answered
// by the recorder of mcptest. "eras: legacy", "tools: [...]" and "program" say what it is.
//
//	tools/call look: notifications/progress {"progressToken":TOKEN,"progress":1} && result {"content":[]}
//	tools/call change: error {"code":-1,"message":"no"}
//	tools/call away: 503 it is away
//	tools/call odd: 403 {"jsonrpc":"2.0","id":ID,"error":{"code":-1,"message":"no"}}
//	tools/call slow: by hand
//
// By hand, the steps say it: server> result {...}, to the oldest request that has no answer; server/slow> to the oldest for slow.
// "server> request elicitation/create {...}" asks (with the id "asks"), "server> message BYTES" and "server> answer BYTES" are bytes.
// server/stream> notifications/tools/list_changed {} goes to all streams that are open.
//
//	server< tools/call {"name":"look",...}   is the next that reached the server because a client wanted it
//	server< nothing                          nothing else reached it until now
//	server rest                              whatever else reaches it is not looked at
//	server away, server hangs, server back   it breaks off whatever comes, has it wait, or is there again
//	server got tools/list DELETE             waits until these methods or verbs have come to it since the last such line; "nothing" has
//
// # The PDP, people, and the rest
//
//	pdp asked 2                              so many requests for decisions since the last such line
//	pdp> 503 no, pdp> truth                  it answers all such requests so, or by itself again; pdp stops
//	pdp> tool.fulfil: 503 no                 so those about an action; pdp> /response: ends breaks off what is sent to such paths
//	pdp has NAME: FILE, pdp has FILE         the file is in force that has a name, or the one that was there at first
//	log has 1 ..."tool.invoke"...            so many records of the decision log match; gateway log has 1 ... is the gateway's own
//	pending confirm                          waits until people are asked about the tool, and gives the request the next of the names ASK-1, ASK-2, ...
//	mia approve ASK-1, deny, revoke, delegate ASK-1 zoe
//	approval ASK-1 approved                  waits until it has the status
//	votes ASK-1 approve user::"mia" api       are all, with "; " between them
//	metric available by server [a:1 b:0]     waits until the gateway has counted so, in policy_service.mcp.available
//	calls of tools/call [answered:2]         so the requests of a method, by how they ended
//	ready, ready ...b did not answer...      the gateway is, or is not, and says so
//	replicas 2, advance 10m, drain, close    gateways, the time of all, Drain, Close
//	run legacy modern legacy-stdio           in which runs the story is told, if not in legacy and modern
type story struct {
	text  *txtar.Archive
	files map[string]string
	steps []step
	runs  []string
	// bytes has every byte shown, and all that reaches the server.
	bytes bool
}

// step is one line of a story.
type step struct {
	line, only        string
	name, label, text string
	arrow             string // > or <, "" if it is another line
}

var (
	update   = flag.Bool("update", false, "write what is heard into testdata/stories and testdata/wire")
	stepLine = regexp.MustCompile(`^(?:(legacy|modern|http|stdio|legacy-http|modern-http|legacy-stdio|modern-stdio): )?(?:([a-z][\w-]*)(?:/([\w.-]+))?([<>])(?: (.*))?|(.*))$`)
)

// TestStories has the stories told.
func TestStories(t *testing.T) {
	t.Parallel()
	tellAll(t, "testdata/stories", false)
}

func tellAll(t *testing.T, dir string, bytes bool) {
	files, err := filepath.Glob(dir + "/*.txtar")
	orFail(t, err)
	if len(files) == 0 {
		t.Fatal("there are no stories")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			s := readStory(t, file)
			s.bytes = bytes
			if *update {
				s.write(t, file)
				return
			}
			for _, run := range s.runs {
				t.Run(run, func(t *testing.T) {
					t.Parallel()
					s.tell(t, run)
				})
			}
		})
	}
}

func readStory(t testing.TB, file string) *story {
	t.Helper()
	text, err := txtar.ParseFile(file)
	orFail(t, err)
	s := &story{text: text, files: map[string]string{}, runs: eras}
	for _, f := range text.Files {
		s.files[f.Name] = string(f.Data)
	}
	for line := range strings.Lines(s.files["story"]) {
		line = strings.TrimRight(line, "\n")
		m := stepLine.FindStringSubmatch(line)
		one := step{line: line, only: m[1], name: m[2], label: m[3], arrow: m[4], text: m[5] + m[6]}
		if runs, ok := strings.CutPrefix(one.text, "run "); ok && one.arrow == "" {
			s.runs = strings.Fields(runs)
		}
		s.steps = append(s.steps, one)
	}
	delete(s.files, "story")
	return s
}

// of reports whether a step is told in a run.
func (s step) of(run string) bool {
	era, over, _ := strings.Cut(run+"-http", "-")
	over, _, _ = strings.Cut(over, "-")
	return s.only == "" || s.only == era || s.only == over || s.only == era+"-"+over
}

// argument is the rest of the first line that begins with a word, as it is before the story begins.
func (s *story) argument(word string) string {
	for _, one := range s.steps {
		if rest, ok := strings.CutPrefix(one.text, word+" "); ok && one.arrow == "" {
			return rest
		}
	}
	return ""
}

// write tells the story, and writes what was heard.
func (s *story) write(t *testing.T, file string) {
	heard := map[string][][]string{}
	for _, run := range s.runs {
		if !t.Run(run, func(t *testing.T) { heard[run] = s.tell(t, run) }) {
			return
		}
	}
	var b strings.Builder
	for n := range 2 * len(s.steps) {
		same := true
		for _, run := range s.runs {
			same = same && slices.Equal(heard[run][n], heard[s.runs[0]][n])
		}
		for _, run := range s.runs {
			for _, line := range heard[run][n] {
				if !same && (n%2 == 1 || s.steps[n/2].only == "") {
					line = run + ": " + line
				}
				fmt.Fprintln(&b, line)
			}
			if same {
				break
			}
		}
	}
	for n, f := range s.text.Files {
		if f.Name == "story" {
			s.text.Files[n].Data = []byte(b.String())
		}
	}
	orFail(t, os.WriteFile(file, txtar.Format(s.text), 0o644))
}

// telling is a story while it is told.
type telling struct {
	*world
	t         *testing.T
	of        *story
	run, era  string
	stdio     bool
	clients   map[string]*teller
	servers   map[string]*scripted
	names     naming
	tap       *wiretap
	counts    *sdkmetric.ManualReader
	questions int
	at, last  int        // the step that is told, and the one before it
	heard     [][]string // by step, the lines that should stand there, and those behind them
	behind    [][]string
}

// tell tells the story in a run, and gives the lines that should stand there: two texts for each step, its own and what is behind it.
func (s *story) tell(t *testing.T, run string) (lines [][]string) {
	x := &telling{t: t, of: s, run: run, clients: map[string]*teller{}, servers: map[string]*scripted{}}
	x.heard, x.behind = make([][]string, len(s.steps)), make([][]string, len(s.steps))
	x.era, _, x.stdio = strings.Cut(run, "-")
	x.settle()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("it is at: %s\n%s", s.steps[x.at].line, strings.Join(slices.Concat(x.heard...), "\n"))
		}
	})
	for n, one := range s.steps {
		x.at = n
		if !one.of(run) || strings.HasPrefix(one.text, "#") || strings.TrimSpace(one.line) == "" {
			x.keep(one.line)
			continue
		}
		x.step(one)
		x.last = n
		if t.Failed() {
			return nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.clients)) {
		c := x.clients[name]
		for _, label := range slices.Sorted(maps.Keys(c.under)) {
			x.finish(c, label)
		}
	}
	x.reached()
	for n := range s.steps {
		lines = append(lines, x.heard[n], x.behind[n])
	}
	return lines
}

func (x *telling) keep(line string) { x.heard[x.at] = append(x.heard[x.at], line) }

// unlisted is what was heard beside the story.
func (x *telling) unlisted(name, text string) {
	x.t.Helper()
	if !*update {
		x.t.Errorf("the story does not say:\n%s< %s", name, text)
	}
	x.behind[x.last] = append(x.behind[x.last], strings.TrimRight(name+"< "+text, " "))
}

// settle starts all that the story needs.
func (x *telling) settle() {
	s, of := x.of, land{files: map[string]string{}, change: x.configure, slower: 100} // what ages in seconds does not, on a busy machine
	x.names = naming{t: x.t, now: time.Now, of: map[string]string{}, values: map[string]string{}}
	rules := map[string]string{}
	for name, text := range s.files {
		if server, ok := strings.CutPrefix(name, "server"); ok {
			rules[strings.TrimSpace(server)] = text
		} else if name != "config.yaml" && !strings.Contains(name, ": ") {
			of.files[name] = x.names.back(text)
		}
	}
	if len(rules) == 0 {
		rules[""] = ""
	}
	switch bundle := s.argument("bundle"); {
	case bundle == "people":
	case bundle != "":
		of.bundle = filesOf(x.t, bundle)
	case slices.ContainsFunc(slices.Collect(maps.Keys(of.files)), func(name string) bool { return strings.HasSuffix(name, ".cedar") }):
		of.bundle = map[string]string{}
	default:
		of.bundle = map[string]string{"all.cedar": `@id("all") permit (principal, action, resource);`}
	}
	for name, text := range rules {
		x.servers[name] = newScripted(x, text, of.bundle == nil)
	}
	x.counts, of.deps = metered()
	of.deps.Transport = longReceipts(x.t)
	of.replicas, _ = strconv.Atoi(s.argument("replicas"))
	if slices.ContainsFunc(s.steps, func(one step) bool { return one.name == "pdp" || strings.HasPrefix(one.text, "pdp ") }) {
		x.tap = newWiretap(x.t)
		of.before, of.serve = x.tap.before, x.tap.serve
	}
	x.world = newPeople(x.t, of)
	x.names.now = x.now
	x.names.fixed = []string{x.pdp.URL, "PDP", x.issuer.URL, "ISSUER"}
	for _, r := range x.replicas {
		x.names.fixed = append(x.names.fixed, strings.TrimSuffix(r.url, mcp.Endpoint), "GATEWAY", strings.TrimPrefix(strings.TrimSuffix(r.url, mcp.Endpoint), "http://"), "GATEWAY")
	}
	for _, one := range x.servers {
		at := strings.TrimSuffix(one.rec.URL, "/mcp")
		x.names.fixed = append(x.names.fixed, at, "SERVER", strings.TrimPrefix(at, "http://"), "SERVER")
	}
}

// configure changes the configuration of the gateway as the story has it.
func (x *telling) configure(c *mcp.Config) {
	if os.Getenv(atPDP) != "" {
		c.ToolRequests.Keep = mcp.KeepAtPDP
	}
	if slices.ContainsFunc(x.of.steps, func(one step) bool { return one.text == "locked" }) {
		c.Lock.File = filepath.Join(x.t.TempDir(), "tools.lock.json")
		all := map[string]string{}
		for name, one := range x.servers {
			all[cmp.Or(name, "rec")] = one.answers.Tools
		}
		manyLock(x.t, c.Lock.File, all)
	}
	of := map[string]mcp.UpstreamConfig{}
	for name, one := range x.servers {
		u := c.Upstreams["rec"]
		u.URL = one.rec.URL
		if one.program {
			u = mcp.UpstreamConfig{Command: one.rec.Command(), Timeout: u.Timeout}
		}
		of[cmp.Or(name, "rec")] = u
	}
	c.Upstreams = maps.Clone(of)
	if text := x.of.files["config.yaml"]; text != "" {
		file := filepath.Join(x.t.TempDir(), "config.yaml")
		orFail(x.t, os.WriteFile(file, []byte(text), 0o600))
		form := mcp.Form
		form.Check = nil // it is checked when the gateway begins
		_, err := form.Read(config.Given{File: file}, c)
		orFail(x.t, err)
		if c.Identity.Static != nil {
			c.Identity.Issuers = nil
		}
	}
	for name, u := range c.Upstreams {
		if u.URL == "" && u.Command == nil {
			u.URL, u.Command, u.AllowNetworks, u.Timeout = of[name].URL, of[name].Command, of[name].AllowNetworks, of[name].Timeout
		}
		c.Upstreams[name] = u
	}
	for name, u := range of {
		if _, has := c.Upstreams[name]; !has {
			c.Upstreams[name] = u
		}
	}
}

// naming gives what differs each time a name that does not.
type naming struct {
	t                testing.TB
	now              func() time.Time
	fixed            []string
	of, values       map[string]string // names by values, and back
	ids, seals, asks int
}

var (
	unsteady       = regexp.MustCompile(`[A-Za-z0-9_-]{40,}|cap_[0-9a-f]{32}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\b[A-Z2-7]{26}\b`)
	timeText       = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)`)
	named          = regexp.MustCompile(`\b(?:ID|SEAL|ASK)-\d+\b`)
	ofCapabilities = regexp.MustCompile(`,"_meta":\{"io\.policy-service/tool":\{[^{}]*\}\}|,?"io\.policy-service/(?:tool|capabilities)":\{"i[^{}]*\}`)
	sessionText    = regexp.MustCompile(`"session":"[A-Za-z0-9_-]{43}"`)
	retryText      = regexp.MustCompile(`"retry_after":[1-9]\d*`)
	momentText     = regexp.MustCompile(`\bNOW\+\w+`)
	forgedText     = regexp.MustCompile(`FORGED\([^)]{21,}\)`)
	repeated       = regexp.MustCompile(`REPEAT\((.*?),(\d+)\)`)
)

func (n *naming) name(text string) string {
	text = strings.NewReplacer(n.fixed...).Replace(text)
	text = timeText.ReplaceAllStringFunc(text, func(at string) string { return cmp.Or(n.of[at], "TIME") })
	text = retryText.ReplaceAllString(text, `"retry_after":N`)
	text = sessionText.ReplaceAllString(text, `"session":"SESSION"`)
	return unsteady.ReplaceAllStringFunc(text, func(value string) string {
		if name, has := n.of[value]; has {
			return name
		}
		var name string
		if len(value) > 36 {
			n.seals++
			name = fmt.Sprint("SEAL-", n.seals)
		} else {
			n.ids++
			name = fmt.Sprint("ID-", n.ids)
		}
		n.of[value], n.values[name] = name, value
		return name
	})
}

// ask names an approval request.
func (n *naming) ask(id string) {
	n.asks++
	name := fmt.Sprint("ASK-", n.asks)
	n.of[id], n.values[name] = name, id
}

// back is a text with the values in place of their names.
func (n *naming) back(text string) string {
	text = repeated.ReplaceAllStringFunc(text, func(m string) string {
		parts := repeated.FindStringSubmatch(m)
		times, _ := strconv.Atoi(parts[2])
		return strings.Repeat(parts[1], times)
	})
	text = momentText.ReplaceAllStringFunc(text, func(name string) string {
		d, err := time.ParseDuration(name[len("NOW+"):])
		orFail(n.t, err)
		at := n.now().Add(d).UTC().Format(time.RFC3339)
		n.of[at] = name
		return at
	})
	for i := 0; i < len(n.fixed); i += 2 {
		if !strings.Contains(text, n.fixed[i+1]) {
			continue
		}
		text = strings.ReplaceAll(text, n.fixed[i+1], n.fixed[i])
	}
	text = named.ReplaceAllStringFunc(text, func(name string) string {
		if n.values[name] == "" {
			n.t.Errorf("the story says %s before anything has that name", name)
		}
		return cmp.Or(n.values[name], name)
	})
	return forgedText.ReplaceAllStringFunc(text, func(m string) string {
		forged := []byte(m[len("FORGED(") : len(m)-1])
		other := byte('A')
		if forged[20] == other {
			other = 'B'
		}
		forged[20] = other
		return string(forged)
	})
}

// fits reports whether a text is as a pattern has it, in which ... stands for any text.
func fits(text, pattern string) bool {
	parts := strings.Split(pattern, "...")
	if len(parts) == 1 {
		return text == pattern
	}
	text, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, has := strings.Cut(text, part)
		if !has {
			return false
		}
		text = after
	}
	return strings.HasSuffix(text, last)
}

// teller is a client of a story.
type teller struct {
	*visitor
	x      *telling
	byHand bool
	under  map[string]*hearing
	says   io.Writer // the standard input of its gateway, nil over HTTP
	lines  *hearing  // and what comes from there
}

// hearing is what a client hears of one thing that it sent, and what that was.
type hearing struct {
	items  chan heardItem
	listed []string // of what has come, the lines that were not looked at yet
	listen bool     // it ends when somebody ends it
	end    context.CancelFunc
	header http.Header

	method, params, id string
	asks               []asking
	state              string
	answered           bool
	progress           progressWord // the last
}

// progressWord is a word of progress: its params but for the number, and that.
type progressWord struct {
	says   string
	number float64
}

// progresses reports whether an item says the word of progress before it again, with a higher number.
func (h *hearing) progresses(item heardItem) bool {
	var m heardText
	var params struct {
		Progress float64 `json:"progress"`
		Message  string  `json:"message"`
	}
	if json.Unmarshal([]byte(item.text), &m) != nil || m.Method != "notifications/progress" || json.Unmarshal(m.Params, &params) != nil || params.Message == "" {
		return false
	}
	before := h.progress
	h.progress = progressWord{without(m.Params, "progress"), params.Progress}
	return h.progress.says == before.says && h.progress.number > before.number
}

// asking is one thing that a client is asked: the id of a request, or the key in a result.
type asking struct{ id, key string }

// heardItem is a part of an answer: its head, an event or a line, or its body.
type heardItem struct {
	header http.Header
	status int
	raw    string // as it came
	text   string // the message
	over   bool   // nothing comes any more
}

// client is a client by its name, which comes if it is new.
func (x *telling) client(name string) *teller {
	x.t.Helper()
	if c := x.clients[name]; c != nil {
		return c
	}
	claims := mcptest.Claims{"sub": name}
	c := &teller{x: x, under: map[string]*hearing{}}
	era, at, token, stranger := x.era, 1, "", false
	var capabilities []string
	for _, one := range x.of.steps {
		rest, ok := strings.CutPrefix(one.text, "client "+name+":")
		if !ok || one.arrow != "" || !one.of(x.run) {
			continue
		}
		for _, option := range strings.Fields(rest) {
			switch key, value, _ := strings.Cut(option, "="); key {
			case "forms":
				capabilities = append(capabilities, `"elicitation":{"form":{},"url":{}}`)
			case "mcpx":
				capabilities = append(capabilities, map[string]string{"legacy": `"experimental"`, "modern": `"extensions"`}[era]+`:{"io.policy-service/tool-requests":{}}`)
			case "capabilities":
				capabilities = append(capabilities, value)
			case "byhand":
				c.byHand = true
			case "stranger":
				stranger = true
			case "era":
				era = value
			case "at":
				at, _ = strconv.Atoi(value)
			case "token":
				token = value
			default:
				claims[key] = value
				if value == "" {
					claims[key] = nil
				}
			}
		}
	}
	listens := slices.ContainsFunc(x.of.steps, func(one step) bool {
		opens := one.arrow == ">" && strings.HasPrefix(one.text, "listen") || one.arrow == "<" && one.label == "ear"
		return opens && one.name == name && one.of(x.run)
	})
	if listens && !stranger && era == "legacy" && !slices.ContainsFunc(capabilities, func(one string) bool { return strings.HasPrefix(one, `"experimental"`) }) {
		capabilities = append(capabilities, `"experimental":{"io.policy-service/authorization":{}}`)
	}
	s := x.replicas[at-1]
	c.visitor = s.stranger(era, cmp.Or(token, x.issuer.Token(x.t, claims)))
	c.capabilities = "{" + strings.Join(capabilities, ",") + "}"
	x.clients[name] = c
	if x.stdio {
		c.pipes(claims)
	}
	if !c.byHand && era == "legacy" {
		if x.stdio {
			c.sends(c.text("initialize", `{"protocolVersion":"2025-11-25","clientInfo":{"name":"siege","version":"1"},"capabilities":`+c.capabilities+`}`), c.lines)
			c.sends(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, c.lines)
			c.take(c.lines)
		} else {
			c.begin()
		}
	}
	return c
}

// ofNoCall is what a client hears over the standard streams that no call brings.
var ofNoCall = regexp.MustCompile(`^\{"jsonrpc":"2.0","method":"notifications/(?:welcome|tool|resource|prompt|authorization|subscriptions|capabilities)`)

// pipes gives the client a gateway of its own over the standard streams.
func (c *teller) pipes(claims mcptest.Claims) {
	other := *c.s
	id, _ := claims["client_id"].(string)
	if _, given := claims["client_id"]; !given {
		id = "agent-release"
	}
	other.config.Identity = mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: claims["sub"].(string), ClientID: id, Issuer: c.x.issuer.URL}}
	other.deps.FixedToken = c.token
	g, _ := other.beside()
	in, out := pipes(c.x.t, g)
	c.says, c.lines = in, &hearing{items: make(chan heardItem, 1024), listen: true}
	ear := &hearing{items: make(chan heardItem, 1024), listen: true}
	c.under["ear"] = ear
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			to, text := c.lines, lines.Text()
			if ofNoCall.MatchString(text) {
				to = ear
			}
			to.items <- heardItem{status: http.StatusOK, raw: text, text: text}
		}
		c.lines.items <- heardItem{over: true}
	}()
}

// sends sends a message, and has h hear what comes of it.
func (c *teller) sends(body string, h *hearing, headers ...string) {
	c.x.t.Helper()
	if c.says != nil {
		_, err := io.WriteString(c.says, body+"\n")
		orFail(c.x.t, err)
		return
	}
	c.requests(h, http.MethodPost, c.s.url, body, headers)
}

// requests sends a request of HTTP.
func (c *teller) requests(h *hearing, verb, to, body string, headers []string) {
	ctx, cancel := context.WithCancel(c.x.t.Context())
	items := make(chan heardItem, 1024) // those of this request: a message that comes again is heard by h, too
	h.items, h.end = items, cancel
	go func() {
		defer func() { items <- heardItem{over: true} }()
		response, err := c.sendTo(ctx, verb, to, body, headers...)
		if err != nil {
			return
		}
		defer func() { _ = response.Body.Close() }()
		items <- heardItem{header: response.Header, status: response.StatusCode}
		if !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
			text, _ := io.ReadAll(response.Body)
			items <- heardItem{status: response.StatusCode, raw: string(text), text: string(text)}
			return
		}
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 64<<20)
		var event []string
		for lines.Scan() {
			if lines.Text() != "" {
				event = append(event, lines.Text())
				continue
			}
			item := heardItem{status: response.StatusCode, raw: strings.Join(event, "⏎")}
			for _, line := range event {
				if data, ok := strings.CutPrefix(line, "data: "); ok {
					item.text += data
				}
			}
			if len(event) == 1 && strings.HasPrefix(event[0], ":") { // it is alive
				event = nil
				continue
			}
			event = nil
			if item.text != "" || c.x.of.bytes {
				items <- item
			}
		}
		items <- heardItem{status: response.StatusCode, raw: "end" + strings.Join(event, "⏎"), text: "end"}
	}()
}

var headerAtEnd = regexp.MustCompile(` \| (\+?[A-Za-z][A-Za-z-]*):([^|]*)$`)

// say has the client do what the story says.
func (c *teller) say(label, text string) {
	c.x.t.Helper()
	var more []string
	for m := headerAtEnd.FindStringSubmatchIndex(text); m != nil; m = headerAtEnd.FindStringSubmatchIndex(text) {
		more = append([]string{text[m[2]:m[3]], strings.TrimSpace(text[m[4]:m[5]])}, more...)
		text = text[:m[0]]
	}
	text = c.x.names.back(text)
	for i := range more {
		more[i] = c.x.names.back(more[i])
	}
	before := c.under[label]
	word, rest, _ := strings.Cut(text, " ")
	switch {
	case label == "api":
		c.x.finish(c, label)
		path, body, _ := strings.Cut(rest, " ")
		c.under[label] = &hearing{}
		headers := append([]string{"Authorization", "Bearer " + c.x.keys[c.is()], "Content-Type", "application/json"}, more...)
		c.requests(c.under[label], word, c.x.pdp.URL+path, body, headers)
		return
	case word == "answer":
		c.answers(label, before, rest, more)
		return
	case word == "cancel":
		if c.era == "legacy" || c.says != nil {
			c.sends(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+before.id+`}}`, &hearing{}, c.headers("", "")...)
		} else {
			before.end()
		}
		return
	case word == "leave":
		before.end()
		return
	}
	c.x.finish(c, label)
	h := &hearing{}
	if c.says != nil {
		h = c.lines
	}
	c.under[label] = h
	switch {
	case word == "again":
		word, rest = before.method, before.params
	case word == "listen" && c.era == "legacy" && c.says == nil:
		word = http.MethodGet
	case word == "listen":
		word = "subscriptions/listen"
	}
	h.listen = h.listen || word == http.MethodGet || word == "subscriptions/listen"
	switch {
	case strings.HasPrefix(text, `"`):
		body, err := strconv.Unquote(text)
		orFail(c.x.t, err)
		c.sendsBytes(h, body, more)
	case !regexp.MustCompile(`^[A-Za-z]`).MatchString(text):
		c.sendsBytes(h, text, more)
	case strings.ToUpper(word) == word:
		c.requests(h, word, c.s.url, rest, append(c.headers("", ""), more...))
	case strings.HasPrefix(word, "notifications/"):
		rest = cmp.Or(rest, "{}")
		c.sends(`{"jsonrpc":"2.0","method":"`+word+`","params":`+c.params(rest)+`}`, h, append(c.headers(word, rest), more...)...)
	default:
		c.asksFor(h, word, cmp.Or(rest, "{}"), more)
	}
}

// is is whose token the client has.
func (c *teller) is() string {
	for name, one := range c.x.clients {
		if one == c {
			return name
		}
	}
	return ""
}

// asksFor sends a request of a method.
func (c *teller) asksFor(h *hearing, method, params string, more []string) {
	body := c.text(method, params)
	if own, has := strings.CutPrefix(c.params("{}"), `{"_meta":{`); has && strings.Contains(params, `"_meta":{`) {
		id := strconv.FormatInt(c.id.Load(), 10)
		body = `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + strings.Replace(params, `"_meta":{`, `"_meta":{`+strings.TrimSuffix(own, "}}")+",", 1) + `}`
	}
	h.method, h.params, h.id, h.progress = method, params, strconv.FormatInt(c.id.Load(), 10), progressWord{}
	c.sends(body, h, append(c.headers(method, params), more...)...)
}

// sendsBytes sends a body as it is, with the headers of what it says it is.
func (c *teller) sendsBytes(h *hearing, body string, more []string) {
	meta := strings.TrimSuffix(strings.TrimPrefix(c.params("{}"), "{"), "}")
	if meta != "" {
		meta = "," + meta
	}
	body = strings.ReplaceAll(body, "META", meta)
	var m struct {
		Method string         `json:"method"`
		Params jsontext.Value `json:"params"`
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		m.Method, m.Params = "tools/call", jsontext.Value(`{"name":"look"}`)
	}
	c.sends(body, h, append(c.headers(m.Method, string(m.Params)), more...)...)
}

// answers answers what the client was asked last.
func (c *teller) answers(label string, before *hearing, answer string, more []string) {
	c.x.t.Helper()
	if before == nil || len(before.asks) == 0 && before.state == "" {
		c.x.t.Fatalf("%s was asked nothing", label)
	}
	if len(before.asks) > 0 && before.asks[0].id != "" {
		one := before.asks[0]
		before.asks = before.asks[1:]
		h := &hearing{}
		c.sends(`{"jsonrpc":"2.0","id":`+one.id+`,"result":`+answer+`}`, h, append(c.headers("", ""), more...)...)
		if c.says == nil {
			if got := c.take(h); got.status != http.StatusAccepted {
				c.x.t.Errorf("the answer: %d %s", got.status, got.text)
			}
		}
		return
	}
	var members []string
	for _, one := range before.asks {
		members = append(members, inText(one.key)+":"+answer)
	}
	c.x.finish(c, label)
	params := strings.TrimSuffix(before.params, "}") + `,"requestState":` + inText(before.state) + `,"inputResponses":{` + strings.Join(members, ",") + `}}`
	h := &hearing{}
	if c.says != nil {
		h = c.lines
	}
	c.under[label] = h
	first := before.params
	c.asksFor(h, before.method, params, more)
	h.params = first
}

// take waits for the next part of an answer, but for its head.
func (c *teller) take(h *hearing) heardItem {
	c.x.t.Helper()
	for {
		select {
		case item := <-h.items:
			if item.header != nil {
				h.header = item.header
				if h.method == "initialize" {
					c.session = item.header.Get("Mcp-Session-Id")
				}
				if !c.x.of.bytes {
					continue
				}
			}
			if item.over {
				h.items <- item // for who looks again
			}
			return item
		case <-time.After(time.Minute):
			c.x.t.Fatalf("nothing comes")
		}
	}
}

// hears is the next line that the client hears, in all forms in which a story may have it; none if nothing comes any more.
func (c *teller) hears(h *hearing) (forms []string) {
	c.x.t.Helper()
	if len(h.listed) > 0 {
		forms, h.listed = h.listed[:1], h.listed[1:]
		return forms
	}
	item := c.take(h)
	switch {
	case item.over:
		return nil
	case c.x.of.argument("unheard") != "" && strings.Contains(item.text, c.x.of.argument("unheard")):
		return c.hears(h)
	case item.text == "end" && h.answered && !c.x.of.bytes, !c.x.of.bytes && h.progresses(item):
		return c.hears(h)
	case item.header != nil:
		return []string{c.x.names.name(headOf(item))}
	case c.x.of.bytes:
		c.asked(h, item)
		return []string{c.x.names.name(strings.ReplaceAll(item.raw, "\n", "⏎"))}
	}
	status := ""
	if item.status != http.StatusOK {
		status = strconv.Itoa(item.status) + " "
	}
	short, long := c.brief(h, item)
	if len(short) == 0 { // it is to come again with what it was given, as clients do
		params, method := h.params, h.method
		again := strings.TrimSuffix(params, "}") + `,"requestState":` + inText(h.state) + `}`
		c.asksFor(h, method, again, nil)
		h.params = params
		return c.hears(h)
	}
	for _, text := range short {
		h.listed = append(h.listed, c.x.names.name(strings.TrimSpace(status+text)))
	}
	forms, h.listed = h.listed[:1], h.listed[1:]
	return append(forms, c.x.names.name(status+long), c.x.names.name(status+item.text))
}

// headOf is the head of an answer in one line.
func headOf(item heardItem) string {
	var b strings.Builder
	fmt.Fprint(&b, item.status)
	for _, name := range slices.Sorted(maps.Keys(item.header)) {
		if name != "Date" && name != "Content-Length" {
			fmt.Fprintf(&b, " | %s: %s", name, strings.Join(item.header[name], ", "))
		}
	}
	return b.String()
}

// heardText is a message, as far as it is looked at.
type heardText struct {
	ID     jsontext.Value `json:"id"`
	Method string         `json:"method"`
	Params jsontext.Value `json:"params"`
	Result jsontext.Value `json:"result"`
	Error  *fault         `json:"error"`
}

// asked keeps what a client is asked.
func (c *teller) asked(h *hearing, item heardItem) (m heardText, requests map[string]jsontext.Value, order []string) {
	if json.Unmarshal([]byte(item.text), &m) != nil {
		return m, nil, nil
	}
	if m.Method != "" && m.ID != nil {
		h.asks = append(h.asks, asking{id: string(m.ID)})
	}
	h.answered = h.answered || m.Method == ""
	var input struct {
		Type     string         `json:"resultType"`
		State    string         `json:"requestState"`
		Requests jsontext.Value `json:"inputRequests"`
	}
	if m.Result == nil || json.Unmarshal(m.Result, &input) != nil || input.Type != "input_required" {
		return m, nil, nil
	}
	h.asks, h.state = nil, input.State
	requests = map[string]jsontext.Value{}
	if input.Requests != nil {
		orFail(c.x.t, json.Unmarshal(input.Requests, &requests))
	}
	order = slices.Sorted(maps.Keys(requests))
	for _, key := range order {
		h.asks = append(h.asks, asking{key: key})
	}
	return m, requests, order
}

// brief is a message as stories have it: its lines, and the line with all that is left out otherwise. There are no lines if the
// client is asked to send the request again.
func (c *teller) brief(h *hearing, item heardItem) (short []string, long string) {
	if c.x.of.argument("capabilities") != "shown" {
		item.text = ofCapabilities.ReplaceAllString(item.text, "")
	}
	m, requests, order := c.asked(h, item)
	switch {
	case requests != nil:
		for _, key := range order {
			var one heardText
			orFail(c.x.t, json.Unmarshal(requests[key], &one))
			short = append(short, one.Method+" "+without(one.Params, "_meta"))
		}
		return short, "result " + string(m.Result)
	case m.Method != "":
		return []string{strings.TrimSpace(m.Method + " " + without(m.Params, "_meta"))}, m.Method + " " + string(m.Params)
	case m.Error != nil:
		text := strings.TrimSpace(fmt.Sprintf("error %d %s %s", m.Error.Code, m.Error.Message, m.Error.Data))
		return []string{text}, text
	case m.Result != nil:
		return []string{"result " + without(m.Result, "_meta", "resultType")}, "result " + string(m.Result)
	}
	return []string{item.text}, item.text
}

// without is an object without some of its members, and otherwise byte for byte. Of resultType it is "complete" alone.
func without(object jsontext.Value, names ...string) string {
	var members map[string]jsontext.Value
	text := string(object)
	if json.Unmarshal(object, &members, jsontext.AllowDuplicateNames(true)) != nil {
		return text
	}
	for _, name := range names {
		value, has := members[name]
		if !has || name == "resultType" && string(value) != `"complete"` {
			continue
		}
		member := `"` + name + `":` + string(value)
		for _, cut := range []string{"," + member, member + ",", member} {
			if before, after, has := strings.Cut(text, cut); has {
				text = before + after
				break
			}
		}
	}
	return text
}

// finish has all heard that a client was to hear of what it sent last.
func (x *telling) finish(c *teller, label string) {
	x.t.Helper()
	h := c.under[label]
	if *update {
		defer x.reached()
	}
	if h == nil {
		return
	}
	name := c.is()
	if label != "" {
		name += "/" + label
	}
	for {
		if h.listen && len(h.listed) == 0 && len(h.items) == 0 {
			break
		}
		forms := c.hears(h)
		if forms == nil {
			break
		}
		if forms[0] == "" || forms[0] == "202" && !x.of.bytes {
			continue
		}
		x.unlisted(name, forms[0])
	}
}

// scripted is a server of a story.
type scripted struct {
	x       *telling
	rec     *mcptest.Recorder
	program bool
	answers mcptest.Answers
	rules   []serverRule

	mu      sync.Mutex
	held    []heldCall
	streams []*mcptest.Call
	seen    int           // of what the recorder got, how much is in came
	came    []mcptest.Got // what no step has looked at
	rest    bool          // what else comes is not looked at
	got     int           // of what the recorder got, how much was before the last step that looked at all of it
	state   string        // "away" or "hangs", or "back"
	moved   chan struct{} // is closed when that changes
}

// serverRule is what a server says to a request of a method, about something if that has a name.
type serverRule struct {
	method, name string
	says         []string
}

// heldCall is a request that the steps answer.
type heldCall struct {
	*mcptest.Call
	name     string
	answered chan struct{}
}

func newScripted(x *telling, text string, people bool) *scripted {
	s := &scripted{x: x, moved: make(chan struct{})}
	s.answers.Tools = siegeTools
	if people {
		s.answers.Tools = definitions(peopleTools...)
	}
	for line := range strings.Lines(x.names.back(text)) {
		key, rest, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "", "#":
		case "eras":
			s.answers.Eras = strings.Fields(strings.ReplaceAll(rest, "same", x.era))
		case "tools":
			s.answers.Tools = rest
		case "program":
			s.program = true
		default:
			method, name, _ := strings.Cut(key, " ")
			s.rules = append(s.rules, serverRule{method, name, strings.Split(rest, " && ")})
		}
	}
	s.answers.Handle = s.handle
	if slices.ContainsFunc(x.of.steps, func(one step) bool { return one.label == "stream" && one.arrow == ">" }) {
		s.answers.Listen = s.listen
	}
	s.rec = mcptest.NewRecorder(x.t, s.answers)
	return s
}

// about is the name or address that a request is about.
func about(c *mcptest.Call) string {
	var params struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
	}
	_ = json.Unmarshal(c.Params, &params, jsontext.AllowDuplicateNames(true))
	return cmp.Or(params.Name, params.URI)
}

// there reports whether the server is there, and waits until it may be.
func (s *scripted) there(c *mcptest.Call) bool {
	s.mu.Lock()
	state, moved := s.state, s.moved
	s.mu.Unlock()
	if state == "hangs" {
		select {
		case <-moved:
			return false
		case <-c.Context.Done():
		}
	}
	if state == "away" || state == "hangs" {
		panic(http.ErrAbortHandler)
	}
	return true
}

// moves has the server be away, or hang, or be back.
func (s *scripted) moves(to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.moved)
	s.state, s.moved = to, make(chan struct{})
}

func (s *scripted) handle(c *mcptest.Call) bool {
	for !s.there(c) {
	}
	name := about(c)
	if c.Method == "subscriptions/listen" && s.answers.Listen != nil {
		_, filter, _ := strings.Cut(string(c.Params), `"notifications":`)
		filter, _, _ = strings.Cut(filter, `,"_meta"`)
		c.Message(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":` + filter + `,"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(c.ID) + `}}}`)
		s.listen(c)
		return true
	}
	for _, one := range s.rules {
		if one.method != c.Method || one.name != "" && one.name != name {
			continue
		}
		for _, text := range one.says {
			if text == "by hand" {
				held := heldCall{c, name, make(chan struct{})}
				s.mu.Lock()
				s.held = append(s.held, held)
				s.mu.Unlock()
				select {
				case <-held.answered:
				case <-c.Context.Done():
					s.mu.Lock()
					s.held = slices.DeleteFunc(s.held, func(one heldCall) bool { return one.answered == held.answered })
					s.mu.Unlock()
				}
				continue
			}
			serverSays(c, text)
		}
		return true
	}
	return false
}

// serverSays has a server say something to a request, and reports whether that is an answer.
func serverSays(c *mcptest.Call, text string) bool {
	verb, rest, _ := strings.Cut(text, " ")
	if _, token, ok := strings.Cut(string(c.Params), `"progressToken":`); ok {
		rest = strings.ReplaceAll(rest, "TOKEN", token[:strings.IndexAny(token, ",}")])
	}
	switch {
	case verb == "result":
		if c.Modern && !strings.Contains(rest, `"resultType"`) && strings.HasPrefix(rest, "{") {
			rest = strings.Replace(`{"resultType":"complete",`+rest[1:], ",}", "}", 1)
		}
		c.Result(rest)
	case verb == "error":
		c.Error(rest)
	case verb == "answer":
		c.Answer(rest)
	case verb == "message":
		c.Message(rest)
		return false
	case verb == "request":
		method, params, _ := strings.Cut(rest, " ")
		c.Message(`{"jsonrpc":"2.0","id":"asks","method":"` + method + `","params":` + cmp.Or(params, "{}") + `}`)
		return false
	case regexp.MustCompile(`^\d+$`).MatchString(verb):
		status, _ := strconv.Atoi(verb)
		kind := "text/plain"
		if strings.HasPrefix(rest, "{") {
			kind = "application/json"
		}
		c.Raw(status, kind, strings.Replace(rest, `"id":ID`, `"id":`+string(c.ID), 1))
	default:
		c.Message(`{"jsonrpc":"2.0","method":"` + verb + `","params":` + cmp.Or(rest, "{}") + `}`)
		return false
	}
	return true
}

func (s *scripted) listen(c *mcptest.Call) {
	s.mu.Lock()
	s.streams = append(s.streams, c)
	s.mu.Unlock()
	<-c.Context.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = slices.DeleteFunc(s.streams, func(one *mcptest.Call) bool { return one == c })
}

// say has the server say what a step says.
func (s *scripted) say(label, text string) {
	s.x.t.Helper()
	text = s.x.names.back(text)
	if label == "stream" {
		mcptest.Until(s.x.t, "a stream is open", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.streams) > 0
		})
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.streams {
			serverSays(c, text)
		}
		return
	}
	at := -1
	mcptest.Until(s.x.t, "the server has a request to answer", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		at = slices.IndexFunc(s.held, func(one heldCall) bool { return label == "" || one.name == label })
		return at >= 0
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.held[at]; serverSays(one.Call, text) {
		close(one.answered)
		s.held = slices.Delete(s.held, at, at+1)
	}
}

// next is the next that reached the server, in all forms in which a story may have it; none if nothing has. What opens a stream
// comes beside the rest.
func (s *scripted) next(streams bool) (forms []string) {
	all := s.rec.Got()
	s.came, s.seen = append(s.came, all[s.seen:]...), len(all)
	at := slices.IndexFunc(s.came, func(g mcptest.Got) bool { return opensStream(g) == streams })
	if at < 0 {
		return nil
	}
	g := s.came[at]
	s.came = slices.Delete(s.came, at, at+1)
	switch {
	case s.x.of.bytes:
		return []string{s.x.names.name(bytesOf(g))}
	case !slices.ContainsFunc(s.rec.Executed(), func(one mcptest.Got) bool { return string(one.Body) == string(g.Body) }):
		return s.next(streams)
	case g.Method == "":
		return []string{s.x.names.name(string(g.Body))}
	}
	return []string{
		s.x.names.name(strings.TrimSpace(g.Method + " " + without(g.Params, "_meta"))),
		s.x.names.name(g.Method + " " + string(g.Params)), s.x.names.name(string(g.Body)),
	}
}

func opensStream(g mcptest.Got) bool {
	return g.Verb == http.MethodGet || g.Method == "subscriptions/listen"
}

// ownID is the id of a request of the gateway's own; those that begin at once may come in either order.
var ownID = regexp.MustCompile(`(^\{"jsonrpc":"2.0","id":|"requestId":)\d+`)

// bytesOf is all that came, but for what is no news.
func bytesOf(g mcptest.Got) string {
	body := ownID.ReplaceAllString(string(g.Body), "${1}N")
	if g.Over == "stdio" {
		return body
	}
	var b strings.Builder
	b.WriteString(g.Verb)
	for _, name := range slices.Sorted(maps.Keys(g.Header)) {
		if !slices.Contains([]string{"Accept-Encoding", "Content-Length", "User-Agent"}, name) {
			fmt.Fprintf(&b, " | %s: %s", name, strings.Join(g.Header[name], ", "))
		}
	}
	return strings.TrimSpace(b.String() + " " + body)
}

// label is the name that a server has in the story.
func (x *telling) label(server string) string { return cmp.Or(server, "server") }

// reached has all listed that reached the servers.
func (x *telling) reached() {
	x.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(x.servers)) {
		s := x.servers[name]
		for _, streams := range []bool{false, true} {
			label := x.label(name)
			if streams {
				label += "/stream"
			}
			for !s.rest {
				forms := s.next(streams)
				if forms == nil {
					break
				}
				x.unlisted(label, forms[0])
			}
		}
	}
}

// step tells one step.
func (x *telling) step(one step) {
	x.t.Helper()
	server := x.servers[strings.TrimPrefix(one.name, "server")]
	switch {
	case one.arrow == "":
		x.keep(one.line)
		x.does(one.text)
	case one.name == "pdp" && one.arrow == ">":
		x.keep(one.line)
		x.instead(one.text)
	case one.arrow == ">" && server != nil:
		x.keep(one.line)
		server.say(one.label, one.text)
	case one.arrow == ">":
		c := x.client(one.name)
		c.say(one.label, one.text)
		x.keep(one.line)
	case server != nil && one.text == "nothing":
		x.reached()
		x.keep(one.line)
	case server != nil:
		var forms []string
		mcptest.Until(x.t, "something reaches the server", func() bool {
			forms = server.next(one.label == "stream")
			return forms != nil
		})
		x.compare(one, forms)
	default:
		c := x.clients[one.name]
		if c == nil || c.under[one.label] == nil {
			x.t.Fatalf("%s has said nothing", one.line)
		}
		forms := c.hears(c.under[one.label])
		for *update && one.text == "" && len(forms) == 1 && !strings.Contains(forms[0], "{") { // it is no message
			x.keep(one.line + " " + forms[0])
			forms = c.hears(c.under[one.label])
		}
		if forms == nil {
			forms = []string{"nothing"}
			if one.text != "" && one.text != "nothing" {
				x.t.Errorf("%s: nothing came", one.line)
				return
			}
		}
		x.compare(one, forms)
	}
}

// compare holds what was heard against what the story says.
func (x *telling) compare(one step, forms []string) {
	x.t.Helper()
	if slices.ContainsFunc(forms, func(form string) bool { return fits(form, one.text) }) {
		x.keep(one.line)
		return
	}
	if !*update {
		x.t.Errorf("the story says\n%s\nand it is\n%s", one.line, forms[0])
	}
	head := one.line[:len(one.line)-len(one.text)]
	x.keep(strings.TrimRight(head, " ") + " " + forms[0])
}

// instead has another answer for the PDP.
func (x *telling) instead(text string) {
	about, says, some := strings.Cut(text, ": ")
	if !some || strings.Contains(about, " ") {
		about, says = "", text
	}
	status, body, _ := strings.Cut(says, " ")
	if status == "truth" {
		x.tap.answers(nil)
		return
	}
	code, err := strconv.Atoi(status)
	if status != "ends" {
		orFail(x.t, err)
	}
	isAbout := func(path string, asks []byte) bool { return decides(path) && strings.Contains(string(asks), about) }
	if strings.HasPrefix(about, "/") {
		isAbout = func(path string, _ []byte) bool { return strings.HasSuffix(path, about) }
	}
	x.tap.answers(func(w http.ResponseWriter, r *http.Request, asks []byte) bool {
		if !isAbout(r.URL.Path, asks) {
			return false
		}
		if status == "ends" {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
		return true
	})
}

// decides reports whether a request to the PDP is one for decisions.
func decides(path string) bool { return strings.Contains(path, "/access/v1/evaluation") }

// asked counts the requests for decisions so far.
func (x *telling) asked() (n int) {
	for _, q := range x.tap.all() {
		if decides(q.path) {
			n++
		}
	}
	return n
}

// records are the lines of the decision log that fit.
func (x *telling) records(pattern string) (n int) {
	got := x.api("auditor", http.MethodGet, "/v1/log/export", "")
	if got.Status != http.StatusOK {
		x.t.Fatalf("the log: %d %s", got.Status, got.Body)
	}
	for line := range strings.Lines(got.Body) {
		if fits(x.names.name(strings.TrimSpace(line)), pattern) {
			n++
		}
	}
	return n
}

// does is a step that is neither said nor heard.
func (x *telling) does(text string) {
	x.t.Helper()
	word, rest, _ := strings.Cut(text, " ")
	first, more, _ := strings.Cut(rest, " ")
	count := func(is func(pattern string) int) {
		x.t.Helper()
		n, pattern, _ := strings.Cut(more, " ")
		want, err := strconv.Atoi(n)
		orFail(x.t, err)
		mcptest.Until(x.t, text, func() bool { return is(pattern) == want || want == 0 })
		if got := is(pattern); got != want {
			x.t.Errorf("%s: there are %d", text, got)
		}
	}
	switch word {
	case "run", "bundle", "client", "replicas", "capabilities", "locked", "unheard":
	case "advance":
		d, err := time.ParseDuration(rest)
		orFail(x.t, err)
		x.advance(d)
	case "drain":
		x.gateway.Drain()
	case "close":
		orFail(x.t, x.gateway.Close())
	case "metric":
		name, more, _ := strings.Cut(rest, " [")
		name, by, _ := strings.Cut(name, " by ")
		mcptest.Until(x.t, text, func() bool { return fmt.Sprint(countedBy(x.counts, "policy_service.mcp."+name, by)) == "map["+more })
	case "calls": // of
		method, more, _ := strings.Cut(more, " ")
		mcptest.Until(x.t, text, func() bool { return fmt.Sprint(callsCounted(x.counts, method)) == "map"+more })
	case "ready":
		if err := x.gateway.Ready(); (err == nil) != (rest == "") || err != nil && !fits(err.Error(), rest) {
			x.t.Errorf("%s: %v", text, err)
		}
	case "pending":
		x.names.ask(x.asks(rest))
	case "approval":
		id := x.names.back(first)
		mcptest.Until(x.t, text, func() bool { return x.approval(id).Status == more })
	case "votes":
		if got := strings.Join(x.votes(x.names.back(first)), "; "); got != more {
			x.t.Errorf("%s: they say %s", text, got)
		}
	case "log": // has
		count(x.records)
	case "gateway": // log has
		_, more, _ = strings.Cut(more, " ")
		count(func(pattern string) (n int) {
			for line := range strings.Lines(x.logs.String()) {
				if fits(x.names.name(strings.TrimSpace(line)), pattern) {
					n++
				}
			}
			return n
		})
	case "pdp":
		if first == "stops" {
			orFail(x.t, x.world.pdp.Stop(x.t.Context()))
			return
		}
		if first == "has" {
			text, is := x.of.files[more]
			if !is {
				x.t.Fatalf("the story has no file %s", more)
			}
			x.rule(more[strings.LastIndexByte(more, ' ')+1:], text)
			return
		}
		now := x.asked()
		if got := strconv.Itoa(now - x.questions); got != more {
			x.t.Errorf("%s: %s times", text, got)
		}
		x.questions = now
	default:
		x.person(word, first, x.names.back(more))
	}
}

// person is a step of somebody.
func (x *telling) person(name, does, of string) {
	x.t.Helper()
	switch does {
	case "rest":
		if client, label, is := strings.Cut(name, "/"); is {
			delete(x.clients[client].under, label)
			return
		}
		x.servers[strings.TrimPrefix(name, "server")].rest = true
	case "away", "hangs", "back":
		x.servers[strings.TrimPrefix(name, "server")].moves(does)
	case "got":
		server := x.servers[strings.TrimPrefix(name, "server")]
		var got string
		came := func() bool {
			var all []string
			for _, g := range server.rec.Got()[server.got:] {
				all = append(all, cmp.Or(g.Method, g.Verb))
			}
			got = cmp.Or(strings.Join(all, " "), "nothing")
			return fits(got, of)
		}
		if of != "nothing" {
			mcptest.Until(x.t, name+" got "+of, came)
		}
		if !came() {
			x.t.Errorf("%s got %s, want %s", name, got, of)
		}
		server.got = len(server.rec.Got())
	case "approve":
		x.approve(name, of)
	case "deny":
		x.deny(name, of, "no")
	case "revoke":
		x.revoke(name, of)
	case "delegate":
		id, to, _ := strings.Cut(of, " ")
		x.delegate(name, id, to)
	case "header":
		header, want, _ := strings.Cut(of, ": ")
		name, label, _ := strings.Cut(name, "/")
		if got := x.names.name(x.clients[name].under[label].header.Get(header)); !fits(got, want) {
			x.t.Errorf("the header %s is %q, want %q", header, got, want)
		}
	default:
		x.t.Fatalf("nobody knows how to %s", does)
	}
}

// filesOf are the files of a bundle of ours.
func filesOf(t testing.TB, name string) map[string]string {
	t.Helper()
	all := map[string]string{}
	files, err := policies.Named(name)
	orFail(t, err)
	orFail(t, fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		all[name] = string(text)
		return err
	}))
	return all
}
