package pep

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"policy-service/conformance/internal/wire"
)

// asked is one question of the PEP to the recording PDP.
type asked struct {
	endpoint string // evaluation, evaluations, or another path
	body     string
}

// executed is an operation that had its effect: the stub upstream got it, or a server that is its own PEP reported it.
type executed struct {
	method string
	params string // as it came, byte for byte
}

// shape is the kind of PEP that is judged.
type shape string

const (
	gateway shape = "gateway" // the stub upstream stands behind it
	server  shape = "server"  // it executes by itself, and reports that
)

// book keeps all that PDP and upstream got, while one request after the other is sent.
type book struct {
	mu       sync.Mutex
	asked    []asked
	executed []executed
	late     []executed
	heard    map[shape]bool
	given    map[string]string // by who got an access token of this run, where it stood
}

func (b *book) ask(a asked) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, a)
}

func (b *book) execute(e executed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.executed = append(b.executed, e)
}

// hear notes that a message came to the upstream at all, and from which kind of PEP.
func (b *book) hear(s shape) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heard == nil {
		b.heard = map[shape]bool{}
	}
	b.heard[s] = true
}

// hears reports which kind of PEP the upstream has heard of. A gateway reports nothing, so a report is proof of a server.
func (b *book) hears() (s shape, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heard[server] {
		return server, true
	}
	return gateway, b.heard[gateway]
}

// watch looks for an access token of this run in a request that the PEP sent: only the PEP may get one.
func (b *book) watch(who string, r *http.Request, text []byte) {
	whole := fmt.Sprint(r.URL, r.Header, string(text))
	if !slices.ContainsFunc(tokenHeads(), func(head string) bool { return strings.Contains(whole, head) }) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.given == nil {
		b.given = map[string]string{}
	}
	b.given[who] = r.Method + " " + r.URL.Path
}

// gave returns where a side got a client's access token, "" if nowhere.
func (b *book) gave(who string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.given[who]
}

// begin empties the book. Operations since it was last read came too late for any request.
func (b *book) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.late = append(b.late, b.executed...)
	b.asked, b.executed = nil, nil
}

// end reads and empties the book.
func (b *book) end() entries {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := entries{b.asked, b.executed}
	b.asked, b.executed = nil, nil
	return e
}

// tooLate are operations that were executed after the answer to their request.
func (b *book) tooLate() []executed {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append(slices.Clone(b.late), b.executed...)
}

// entries are the questions and operations of one request.
type entries struct {
	asked    []asked
	executed []executed
}

// String says it for the report.
func (e entries) String() string {
	var b strings.Builder
	for _, a := range e.asked {
		fmt.Fprintf(&b, "; asked %s: %s", a.endpoint, excerpt(a.body))
	}
	if len(e.asked) == 0 {
		b.WriteString("; the PDP was not asked")
	}
	for _, x := range e.executed {
		fmt.Fprintf(&b, "; executed %s %s", x.method, excerpt(x.params))
	}
	if len(e.executed) == 0 {
		b.WriteString("; nothing was executed")
	}
	return b.String()
}

// jwt finds texts that look like an access token.
var jwt = regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]*`)

// excerpt is the beginning of a text, without the tokens in it.
func excerpt(s string) string { return wire.Excerpt(jwt.ReplaceAllLiteralString(s, "(a token)")) }
