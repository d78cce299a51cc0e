package people

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/doors"
	"policy-service/pdp/internal/mcp/internal/events"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/requests"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/seal"
	"policy-service/pdp/pdptest/mcptest"
)

// requestedHere returns a waiting request of a gateway that has only the parts needed for it.
func requestedHere(t *testing.T, params string) *Request {
	t.Helper()
	pdp, err := authzenclient.New("http://127.0.0.1:1")
	mcptest.Must(t, err)
	asker, err := ask.New(ask.Options{PDP: map[string]*authzenclient.Client{"elsewhere": pdp}, Resource: "x"})
	mcptest.Must(t, err)
	log := slog.New(slog.DiscardHandler)
	g := New(doors.New(log), Options{
		Now: time.Now, Logger: log, Ring: seal.Fresh(seal.Options{Resource: "x"}), Requests: Requests{TTL: time.Minute, Most: 8, Each: 8},
		Approvals: Approvals{Wait: 25 * time.Second}, Asker: asker, Dropped: func(string) {},
	})
	of := &ask.Tool{Server: "srv", Name: "free", Shown: "free", Digest: "d", Definition: jsontext.Value(`{"name":"free"}`)}
	return files(t, g, &identity.Principal{Key: "k", Token: "token"}, of, params)
}

// files files a request of a principal.
func files(t *testing.T, g *People, who *identity.Principal, of *ask.Tool, params string) *Request {
	t.Helper()
	o, err := rpc.ParseObject([]byte(params))
	mcptest.Must(t, err)
	r := &Request{Case: Case{People: g, Who: who, Params: o, Tool: of}, said: jsontext.Value(params)}
	if refused := r.file(); refused != nil {
		t.Fatal(refused.Error())
	}
	return r
}

// A request that the table has dropped is held nowhere else: a listener's topic reads it from the table.
func TestRequestIsLetGo(t *testing.T) {
	t.Parallel()
	r := requestedHere(t, `{"name":"free","arguments":{}}`)
	g := r.People
	listens := g.Listeners.join(&identity.Principal{Key: "k", Token: "another"})
	defer listens.Leave()
	c, _ := r.entry.Claim()
	c.Finish(Result{Result: jsontext.Value(`{}`)}, mostKept)
	of := weak.Make(r.entry)
	r, c = nil, requests.Claim[toolRequest, Result]{}
	for range 10 {
		if runtime.GC(); of.Value() == nil {
			break
		}
	}
	if of.Value() != nil {
		t.Error("the entry is still held")
	}
	runtime.KeepAlive(g)
}

// The requester of a request that is just being fulfilled waits for the result, even after the request's time. The requester
// of a request that is not claimed waits until that time.
func TestRequestWaitsForWhatIsClaimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		waits := func(r *Request, want time.Duration) {
			t.Helper()
			begun := time.Now()
			if r.Wait(context.Background()); time.Since(begun) != want {
				t.Errorf("it waits for %v, and it should be %v", time.Since(begun), want)
			}
		}
		r := requestedHere(t, `{"name":"free","arguments":{}}`)
		waits(r, 25*time.Second)
		time.Sleep(25 * time.Second)
		waits(r, 10*time.Second)
		r = requestedHere(t, `{"name":"free","arguments":{}}`)
		c, _ := r.entry.Claim()
		time.Sleep(time.Hour)
		waits(r, 25*time.Second)
		time.AfterFunc(3*time.Second, func() { c.Fail(Result{}) })
		waits(r, 3*time.Second)
	})
}

// The kept parts of a request are counted once, and the definition of its tool is not kept.
func TestRequestSize(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1000)
	for arguments, twice := range map[string]int{`{"a":1,"b":"` + long + `"}`: 0, `{"b":"` + long + `","a":1}`: 1} {
		r := requestedHere(t, `{"name":"free","arguments":`+arguments+`}`)
		_, size, err := newToolRequest(&r.Case, r.said)
		if want := len(r.said) + len("token") + twice*len(arguments); err != nil || size != want {
			t.Errorf("it is of %d bytes, %v, and it should be %d", size, err, want)
		}
		if kept := r.entry.Asked.Tool; kept.Definition != nil || kept.Digest != "d" || r.Tool.Definition == nil {
			t.Errorf("of the tool it keeps %+v", kept)
		}
	}
}

// office is a gateway with waiting requests for tools, and a PDP that answers a question by whether it fails.
type office struct {
	*People
	asked atomic.Int32
	now   time.Time
}

func openOffice(t *testing.T, fails func(question string) bool, requested ...string) *office {
	t.Helper()
	r := requestedHere(t, `{"name":"free"}`)
	o := &office{People: r.People, now: time.Now()}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.asked.Add(1)
		text, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		if fails(string(text)) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, `{"decision":false,"context":{"possible":true}}`)
	}))
	t.Cleanup(server.Close)
	pdp, err := authzenclient.New(server.URL)
	mcptest.Must(t, err)
	if o.o.Asker, err = ask.New(ask.Options{PDP: map[string]*authzenclient.Client{"t": pdp}, Resource: "x"}); err != nil {
		t.Fatal(err)
	}
	o.o.Now = func() time.Time { return o.now }
	asks := &identity.Principal{Key: "k", Tenant: "t"}
	asks.User.Type, asks.User.ID = "user", "k"
	for _, params := range requested {
		files(t, o.People, asks, o.o.Asker.Named("srv", "free", "free"), params)
	}
	return o
}

// reads reads the messages for a listener since a cursor.
func (o *office) reads(t *testing.T, token, cursor string) events.Page {
	t.Helper()
	who := &identity.Principal{Key: "other", Tenant: "t", Token: token}
	who.User.Type, who.User.ID = "user", "other"
	page, err := o.readRequests("t")(t.Context(), who, cursor)
	mcptest.Must(t, err)
	return page
}

// Streams that one token opens one after the other ask the PDP once a minute.
func TestRequestIsAskedAboutOnce(t *testing.T) {
	t.Parallel()
	o := openOffice(t, func(string) bool { return false }, `{"name":"free","arguments":{}}`)
	reads := func(token string, want int32) {
		t.Helper()
		if page := o.reads(t, token, ""); len(page.Events) != 1 {
			t.Errorf("it reads %+v", page)
		}
		if got := o.asked.Load(); got != want {
			t.Errorf("%d questions, want %d", got, want)
		}
	}
	reads("one", 1)
	reads("one", 1)
	reads("two", 2)
	reads("one", 2)
	o.now = o.now.Add(fulfilmentFor - time.Second)
	reads("one", 2)
	o.now = o.now.Add(time.Second)
	reads("one", 3)
}

// A large page ends early, and the next page goes on there.
func TestRequestPagesAreSmall(t *testing.T) {
	t.Parallel()
	large := `{"name":"free","arguments":{"a":"` + strings.Repeat("x", mostBytesRead*2/3) + `"}}`
	o := openOffice(t, func(string) bool { return false }, large, large, large)
	page := o.reads(t, "one", "")
	if len(page.Events) != 2 || !page.More {
		t.Errorf("the first page has %d requests, more: %v", len(page.Events), page.More)
	}
	if page = o.reads(t, "one", page.Cursor); len(page.Events) != 1 || page.More {
		t.Errorf("the second page has %d requests, more: %v", len(page.Events), page.More)
	}
}

// A request about which the PDP does not answer hides no other. The listener retries it, up to a bound.
func TestRequestsAreOwed(t *testing.T) {
	t.Parallel()
	const bad, good = `{"name":"free","arguments":{"a":"bad"}}`, `{"name":"free","arguments":{"a":"good"}}`
	var well atomic.Bool
	fails := func(question string) bool { return !well.Load() && strings.Contains(question, "bad") }
	o := openOffice(t, fails, bad, good, bad, good)
	page := o.reads(t, "one", "")
	if len(page.Events) != 2 || page.Failed == nil {
		t.Errorf("beside those that fail it reads %d, %v", len(page.Events), page.Failed)
	}
	if page = o.reads(t, "one", page.Cursor); len(page.Events) != 0 || page.Failed == nil {
		t.Errorf("again it reads %d, %v", len(page.Events), page.Failed)
	}
	well.Store(true)
	if page = o.reads(t, "one", page.Cursor); len(page.Events) != 2 || page.Failed != nil {
		t.Errorf("of those that failed it reads %d, %v", len(page.Events), page.Failed)
	}
	for _, e := range page.Events {
		if e.Over() {
			t.Error("it is over while it waits")
		}
		o.requests.Find(e.ID).Claim()
		if !e.Over() {
			t.Error("it is not over though it is claimed")
		}
	}
	if page = o.reads(t, "one", page.Cursor); len(page.Events) != 0 {
		t.Errorf("at the end it reads %d", len(page.Events))
	}
	at := position{}
	for n := range mostRetries {
		at.retries = append(at.retries, n+1)
	}
	if got := parsePosition(at.String()); got.after != 0 || len(got.retries) != mostRetries {
		t.Errorf("%s is read as %v", at, got)
	}
}
