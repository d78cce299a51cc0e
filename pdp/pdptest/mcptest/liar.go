package mcptest

import (
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/pdptest/lies"
)

// Liar is a PDP that lies, now and then or always. None of its lies permits anything.
type Liar struct {
	URL   string
	asked atomic.Int64
}

// Lies are the names of all lies: each body and each envelope of package lies, and what goes wrong on the way.
func Lies() []string {
	return slices.Sorted(maps.Keys(told()))
}

// NewLiar stands before an honest PDP until the test ends. choose says which lie the nth question gets, from 1 on; "" is
// none, and the honest PDP is asked.
func NewLiar(t testing.TB, honest string, choose func(n int64) (lie string)) *Liar {
	t.Helper()
	to, err := url.Parse(honest)
	if err != nil {
		t.Fatal(err)
	}
	l, proxy := &Liar{}, Proxy(to)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, redirected := strings.CutPrefix(r.URL.Path, yesPath); redirected {
			say(w, r, answerTo(r, nil, `{"VERDICT":true}`))
			return
		}
		lie := choose(l.asked.Add(1))
		if lie == "" {
			proxy.ServeHTTP(w, r)
			return
		}
		tell := told()[lie]
		if tell == nil {
			t.Errorf("there is no lie %q", lie)
			tell = reset
		}
		question, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		tell(w, r, question)
	}))
	t.Cleanup(s.Close)
	l.URL = s.URL
	return l
}

// Asked is how many requests there were.
func (l *Liar) Asked() int64 { return l.asked.Load() }

// mostAnswer is the size of an answer that no client takes unless it is told to.
const mostAnswer = 4 << 20

// told are the lies by name. They are made when the first is told: a test binary that is run as a program, as transcripts
// do hundreds of times, tells none.
var told = sync.OnceValue(func() map[string]func(w http.ResponseWriter, r *http.Request, question []byte) {
	all := map[string]func(http.ResponseWriter, *http.Request, []byte){
		"connection: hangs":           func(_ http.ResponseWriter, r *http.Request, _ []byte) { <-r.Context().Done() },
		"connection: is reset":        reset,
		"connection: drips":           drip,
		"connection: redirected, 307": redirect(http.StatusTemporaryRedirect),
		"connection: redirected, 302": redirect(http.StatusFound),
		"batch: fewer answers":        func(w http.ResponseWriter, r *http.Request, _ []byte) { say(w, r, `{"evaluations":[]}`) },
		"batch: more answers": func(w http.ResponseWriter, r *http.Request, question []byte) {
			yes := strings.Repeat(`{"decision":true},`, items(question)) + `{"decision":true}`
			say(w, r, `{"evaluations":[`+yes+`]}`)
		},
	}
	for name, body := range lies.Bodies {
		if strings.HasPrefix(name, "too large") { // for who takes so much, it is none
			body = strings.Replace(body, "VERDICT\":true", "VERDICT\":true"+strings.Repeat(" ", mostAnswer), 1)
		}
		all["body: "+name] = func(w http.ResponseWriter, r *http.Request, question []byte) { say(w, r, answerTo(r, question, body)) }
	}
	for name, e := range lies.Envelopes() {
		all["envelope: "+name] = func(w http.ResponseWriter, r *http.Request, _ []byte) { e.Handle(w, r) }
	}
	return all
})

func say(w http.ResponseWriter, r *http.Request, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Request-ID", r.Header.Get("X-Request-ID"))
	_, _ = io.WriteString(w, body)
}

// answerTo is a body of package lies as the answer to a question: in the shape that the path has, and in a batch once for
// each item.
func answerTo(r *http.Request, question []byte, body string) string {
	if strings.HasSuffix(r.URL.Path, "/v1/authorize") {
		return lies.InShape(body, "allow", "decision")
	}
	body = lies.InShape(body, "decision", "allow")
	if !strings.HasSuffix(r.URL.Path, "/evaluations") {
		return body
	}
	return `{"evaluations":[` + strings.Join(slices.Repeat([]string{body}, max(items(question), 1)), ",") + `]}`
}

// items is how many questions a batch has.
func items(question []byte) int {
	var batch struct {
		Evaluations []any `json:"evaluations"`
	}
	if err := json.Unmarshal(bytes.TrimSpace(question), &batch); err != nil {
		return 0
	}
	return len(batch.Evaluations)
}

func reset(w http.ResponseWriter, _ *http.Request, _ []byte) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// drip says yes, but never comes to its end.
func drip(w http.ResponseWriter, r *http.Request, question []byte) {
	say(w, r, strings.TrimSuffix(answerTo(r, question, `{"VERDICT":true}`), "}"))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-tick.C:
			_, _ = io.WriteString(w, " ")
		case <-r.Context().Done():
			return
		}
	}
}

// yesPath is below where somebody says yes to whoever comes.
const yesPath = "/yes"

func redirect(status int) func(http.ResponseWriter, *http.Request, []byte) {
	return func(w http.ResponseWriter, r *http.Request, _ []byte) {
		http.Redirect(w, r, yesPath+r.URL.Path, status)
	}
}
