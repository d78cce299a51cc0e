package people

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/evaluation/recent"
	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/events"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/requests"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/seal"
	"policy-service/pdp/mcp/wire"
)

// A caller that may not call a tool may be permitted to request it. The request waits, the callers that may fulfil it are
// notified, and the requester gets the result of the call that fulfils it (fulfil.go in package flow). Requests are kept in
// the memory of this process: other gateways do not have them, and a restart loses them, unless there is a [Store].

// Requests bound the waiting requests for tools, and their time.
type Requests struct {
	TTL time.Duration
	// Most is the number that may wait at once, and Each the number of one person.
	Most, Each int
}

// mostKept is the size in bytes of all requests and their results.
const mostKept = 64 << 20

type toolRequest struct {
	Who *identity.Principal
	Era era.Era
	// Tool is the requested tool as it was then, without its definition: a server can make a new one for each listing.
	Tool *ask.Tool
	// Params are the params of the request, and Arguments the requested arguments of the tool, in canonical form.
	Params    rpc.Object
	Arguments []byte
	// ID is the id of the request for clients, of sealRequest. It is made once, because each seal of it is another text.
	ID string
	// shown is the capability that the request shows, with the last proof of it: proofs are good for a short time, and a
	// requester that waits brings another with each message. It is in no message about the request.
	shown *latest[evaluation.CapabilityShown]
	// open is the revision of the last value in the [Store] that waits, as far as it is known here.
	open *latest[string]
}

type latest[T any] struct{ is atomic.Pointer[T] }

func latestOf[T any](v T) *latest[T] {
	l := new(latest[T])
	l.set(v)
	return l
}

func (l *latest[T]) get() T { return *l.is.Load() }

// set keeps v, and nothing that v was a part of.
func (l *latest[T]) set(v T) { l.is.Store(&v) }

// Shows is the capability that the request shows, zero if it shows none.
func (q *toolRequest) Shows() evaluation.CapabilityShown { return q.shown.get() }

// newToolRequest makes a request that keeps nothing of its message. It returns the size in bytes of what is kept.
func newToolRequest(x *Case, said jsontext.Value) (q toolRequest, size int, err error) {
	text := said.Clone()
	params, err := rpc.ParseObject(text)
	if err != nil {
		return q, 0, err
	}
	tool := *x.Tool
	tool.Definition = nil
	q = toolRequest{Who: x.Who, Era: x.Client.Era, Tool: &tool, Params: params, Arguments: ask.Canonical(params), shown: latestOf(x.Shows), open: latestOf("")}
	size = len(text) + len(x.Who.Token)
	if x.Shows != (evaluation.CapabilityShown{}) { // a later proof may be longer
		size += capability.MaxToken + capability.MaxProof
	}
	if given := ask.Arguments(params); bytes.Equal(given, q.Arguments) {
		q.Arguments = given
	} else {
		size += len(q.Arguments)
	}
	return q, size, nil
}

// Result is the result of a request for its requester.
type Result struct {
	// Result and Error are those of the fulfilling call, in the form of Era. Info is the name that its server gives itself.
	// By is the participant who fulfilled the request.
	Result jsontext.Value `json:"result,omitzero"`
	Error  jsontext.Value `json:"error,omitzero"`
	Info   jsontext.Value `json:"info,omitzero"`
	Era    era.Era        `json:"era"`
	By     evaluation.Ref `json:"by,omitzero"`
	// Refused is the reason for which there is no response.
	Refused *ask.Refusal `json:"refused,omitzero"`
}

// Entry is a request as it is kept.
type Entry = requests.Entry[toolRequest, Result]

// sealRequest returns the id of a request for clients. It names the request, cannot be forged, and holds for one tenant.
func (g *People) sealRequest(who *identity.Principal, id string) (string, error) {
	return g.o.Ring.Seal(seal.ToolRequest, []byte(who.Tenant), []byte(id))
}

// noRequest refuses an id that is forged, of another tenant, from before a restart, or expired. The gateway cannot tell these
// apart.
func noRequest() *answer.Answer { return answer.Invalid("no request of that id waits here") }

// FindRequest returns the request of an id, or the reason for which there is none. For its requester, and for a fulfilling
// caller, the reason says whether the request may have been fulfilled.
func (g *People) FindRequest(who *identity.Principal, fulfils bool, id string) (*Entry, *answer.Answer) {
	text, ok := g.o.Ring.Open(seal.ToolRequest, []byte(who.Tenant), id)
	if !ok {
		return nil, noRequest()
	}
	if g.o.Store != nil {
		return g.fetch(who.Tenant, string(text))
	}
	if e := g.requests.Find(string(text)); e != nil {
		return e, nil
	}
	owner, spent := g.requests.Spent(string(text))
	switch {
	case spent && owner == who.Account():
		return nil, notKept()
	case spent && fulfils:
		return nil, FulfilledAlready()
	}
	return nil, noRequest()
}

// notKept refuses a requester that returns for a result that is no longer kept, so that it does not repeat a request that was
// fulfilled.
func notKept() *answer.Answer {
	return answer.New(answer.ResultNotKept, rpc.InternalError, "the request was fulfilled, or somebody has tried to; what came of it is not kept. Request it again only if it may be done twice",
		"what came of a request for a tool is not kept")
}

// Request is a request for a tool, while it waits to be fulfilled.
type Request struct {
	Case
	said jsontext.Value // the params of the request
	// entry is the waiting entry, nil before it is filed. Id is its id for clients.
	entry *Entry
	id    string
	// Leave releases its place among those that wait.
	Leave func()
}

// ReadRequest reads a request for a tool. A request that is sent again must be of the same principal, for the same tool and
// arguments.
func ReadRequest(x Case, params jsontext.Value) (*Request, *answer.Answer) {
	said, err := wire.ReadToolRequest(params)
	if err != nil {
		return nil, answer.Invalid("the request for a tool cannot be read: " + err.Error())
	}
	r := &Request{Case: x, said: params, id: said.RequestID, Leave: func() {}}
	if r.id == "" {
		return r, nil
	}
	var refused *answer.Answer
	switch r.entry, refused = x.FindRequest(x.Who, false, r.id); {
	case refused != nil:
		return nil, refused
	case r.entry.Asked.Who.Key != x.Who.Key:
		return nil, noRequest()
	case !r.entry.Asked.IsFor(x.Tool) || !bytes.Equal(r.entry.Asked.Arguments, ask.Canonical(x.Params)):
		return nil, answer.Invalid("the request of that id is for another tool, or has other arguments")
	}
	return r, nil
}

// IsFor reports whether a tool is the requested one, even if its definition has changed.
func (q *toolRequest) IsFor(t *ask.Tool) bool {
	return q.Tool.Server == t.Server && q.Tool.Name == t.Name
}

// Begin files the request, if it was not filed before, and takes a place among those that wait. C is the call as the PDP has
// permitted it: its tool may be another than the one with which the request was read.
func (r *Request) Begin(c Case) *answer.Answer {
	r.Case = c
	done, refused := r.takePlace(r.Who)
	if refused != nil {
		return refused
	}
	r.Leave = sync.OnceFunc(done)
	if r.entry == nil {
		if refused := r.file(); refused != nil {
			return refused
		}
	} else if c.Shows != (evaluation.CapabilityShown{}) {
		r.entry.Asked.shown.set(c.Shows)
		if r.o.Store != nil && r.entry.Pending() {
			if refused := r.store(r.entry); refused != nil {
				return refused
			}
		}
	}
	r.reportProgress()
	return nil
}

// file files the request, and notifies the listeners that may fulfil it.
func (r *Request) file() *answer.Answer {
	x := &r.Case
	q, size, err := newToolRequest(x, r.said)
	if err != nil {
		return answer.Invalid("params cannot be read")
	}
	id := rand.Text()
	if q.ID, err = x.sealRequest(x.Who, id); err != nil {
		return answer.Internal(err)
	}
	if r.entry, err = x.requests.File(id, x.Who.Account(), q, size); err != nil { // there is no room
		x.o.Logger.Warn("a request for a tool is not taken", slog.Group("", "tenant", x.Who.Tenant), "why", err, "principal", x.Who.Key)
		return answer.Limited("", again)
	}
	r.id = q.ID
	if x.o.Store != nil {
		if refused := x.store(r.entry); refused != nil {
			if c, ok := r.entry.Claim(); ok { // it may be in the store, and its requester does not know of it
				c.Fail(Result{Refused: refused.Refusal})
			}
			return refused
		}
	}
	x.o.Logger.Info("a tool is requested", "request", r.entry.ID, "tool", x.Tool.Name, "server", x.Tool.Server, "principal", x.Who.Key)
	x.Listeners.requestsChanged(x.Who.Tenant)
	return nil
}

// mostRequestsRead is the number of requests on a page for a listener. A page also ends at mostBytesRead.
const (
	mostRequestsRead = 50
	mostBytesRead    = 256 << 10
)

// readRequests reads the waiting requests of a tenant that the listener may fulfil. It asks the PDP about each request once a
// minute for each token. A request about which the PDP does not answer is passed over, and retried later.
func (g *People) readRequests(tenant string) events.Read {
	return func(ctx context.Context, who *identity.Principal, cursor string) (page events.Page, err error) {
		by, size := tokenOf(who), 0
		at := parsePosition(cursor)
		fresh, owed := at.split(g.requests.Pending(at.first()))
		full := false // no more retries fit: new requests wait
		for _, e := range slices.Concat(fresh, owed) {
			if page.More = len(page.Events) == mostRequestsRead || size >= mostBytesRead; page.More {
				break
			}
			isFresh := e.Number > at.after
			if isFresh && full {
				continue
			}
			var m rpc.Message
			var ok bool
			if e.Asked.Who.Tenant == tenant {
				m, ok, err = g.announce(ctx, e, who, by)
			}
			if err != nil {
				page.Failed, err = err, nil
				if ctx.Err() != nil {
					break
				}
				if full = len(at.retries) >= mostRetries; isFresh && !full {
					at.after, at.retries = e.Number, append(at.retries, e.Number)
				}
				continue
			}
			if isFresh {
				at.after = e.Number
			} else {
				at.retries = slices.DeleteFunc(at.retries, func(n int) bool { return n == e.Number })
			}
			if ok {
				id := e.ID // a slow client keeps nothing else of the table
				over := func() bool {
					e := g.requests.Find(id)
					return e == nil || !e.Pending()
				}
				page.Events = append(page.Events, events.Event{ID: id, Message: m, Over: over})
				size += len(m.Params)
			}
		}
		page.Cursor = at.String()
		return page, nil
	}
}

// mostRetries is the number of requests that a listener has passed and will retry.
const mostRetries = 8

// position is a listener's position in the requests: it has passed all up to a number, except those to retry, which are in
// their order.
type position struct {
	after   int
	retries []int
}

// parsePosition parses a cursor, which is empty or of String.
func parsePosition(cursor string) (at position) {
	for n, text := range strings.Fields(cursor) {
		number, _ := strconv.Atoi(text)
		if n == 0 {
			at.after = number
		} else {
			at.retries = append(at.retries, number)
		}
	}
	return at
}

func (at position) String() string {
	text := strconv.Itoa(at.after)
	for _, n := range at.retries {
		text += " " + strconv.Itoa(n)
	}
	return text
}

// first returns the number after which all requests to read are.
func (at position) first() int {
	if len(at.retries) > 0 {
		return at.retries[0] - 1
	}
	return at.after
}

// split splits the pending requests into new ones and those to retry. Requests that no longer wait are not retried.
func (at *position) split(pending []*Entry) (fresh, owed []*Entry) {
	was := at.retries
	at.retries = nil
	for _, e := range pending {
		switch {
		case e.Number > at.after:
			fresh = append(fresh, e)
		case slices.Contains(was, e.Number):
			owed, at.retries = append(owed, e), append(at.retries, e.Number)
		}
	}
	return fresh, owed
}

// fulfilment is an answer of the PDP to the question of whether the holder of a token may fulfil a request.
type fulfilment struct {
	may   bool
	asked time.Time
}

const (
	// fulfilmentFor is the time for which an answer holds: policies change, and so does the data about a person.
	fulfilmentFor = time.Minute
	// mostFulfilments is the number of answers that are kept at least.
	mostFulfilments = 1 << 14
)

// announce returns the notification of a request for a listener. It is not ok if the listener may not fulfil the request,
// whatever the fulfilling call contains.
func (g *People) announce(ctx context.Context, e *Entry, who *identity.Principal, by recent.Digest) (m rpc.Message, ok bool, err error) {
	q := &e.Asked
	if !e.Pending() || IsOwn(who, q.Who) {
		return m, false, nil
	}
	said, err := wire.ReadToolRequest(q.Params.Value())
	if err != nil {
		return m, false, err
	}
	call := rpc.Object{}.With("name", rpc.String(said.Name))
	if said.Arguments != nil {
		call = call.With("arguments", said.Arguments)
	}
	of := sha256.Sum256(strconv.AppendInt(by[:], int64(e.Number), 10))
	known, _ := g.fulfilments.Get(of)
	if g.o.Now().Sub(known.asked) >= fulfilmentFor {
		op := ask.Operation{Principal: who, Era: era.Modern, Server: q.Tool.Server, Method: "tools/call", Params: call, Tool: q.Tool, Requester: q.Who}
		may, refused := g.o.Asker.MayFulfil(ctx, op)
		g.o.Asker.Note(refused)
		if refused != nil && refused.Kind == ask.Unavailable {
			return m, false, errors.New(refused.Why)
		}
		known = fulfilment{may && refused == nil, g.o.Now()}
		g.fulfilments.Put(of, known, mostFulfilments)
	}
	if !known.may {
		return m, false, nil
	}
	p := wire.Pending{
		Requester: q.Who.Participant(), Target: q.Tool.Server, Tool: wire.Tool{Name: q.Tool.Shown, ID: q.Tool.Server + ":" + q.Tool.Name},
		Arguments: said.Arguments, RequestID: q.ID, Reason: said.Reason,
	}
	return rpc.Message{Method: wire.MethodPending, Params: p.Payload()}, true, nil
}

// Wait waits until the request has a result, as long as a request may wait.
func (r *Request) Wait(ctx context.Context) {
	long := r.o.Approvals.Wait
	if !r.entry.Claimed() { // a claimed request gets a result, however late
		long = min(long, r.entry.Ends().Sub(r.o.Now()))
	}
	enough := time.NewTimer(long)
	defer enough.Stop()
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	var look <-chan time.Time
	if r.o.Store != nil {
		every := time.NewTicker(lookEvery)
		defer every.Stop()
		look = every.C
	}
	for {
		select {
		case <-look:
			_, _ = r.fetch(r.Who.Tenant, r.entry.ID)
		case <-r.entry.Over():
			return
		case <-enough.C:
			return
		case <-r.doors.Draining.Done():
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			r.reportProgress()
		}
	}
}

// reportProgress notifies a client that the request waits to be fulfilled.
func (r *Request) reportProgress() { r.report("somebody else must fulfil this request") }

// Conclude returns the result of the request, or a response: the request still waits, or has no result.
func (r *Request) Conclude() (Result, *answer.Answer) {
	defer r.Leave()
	here := r.requests.Find(r.entry.ID) != nil // before Answer: a result in between could take the entry out of the table
	a, ok := r.entry.Answer()
	switch {
	case ok:
		return a, answer.Refuse(a.Refused)
	case !here:
		return Result{}, noRequest()
	}
	return Result{}, &answer.Answer{Message: r.Client.Result(r.Method, wire.Requested(r.id)), Status: http.StatusOK, Outcome: answer.Asked}
}

// FulfilledAlready refuses a call that fulfils a request after another.
func FulfilledAlready() *answer.Answer {
	return answer.Invalid("the request of that id is fulfilled already, or is just being fulfilled")
}

// IsOwn reports whether a principal would fulfil its own request: as it made it, by another name, or through an agent of the
// same person. A person may fulfil the request of its own agent.
func IsOwn(by, requester *identity.Principal) bool {
	person := requester.Agent.ID == ""
	return by.Key == requester.Key || by.Participant() == requester.Participant() ||
		person && (by.User == requester.User || requester.Person != "" && by.Person == requester.Person)
}
