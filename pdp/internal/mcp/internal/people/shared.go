package people

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/requests"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/seal"
)

// Store keeps requests for tools for all gateways that are replicas of one another. What a gateway has in its memory is then a
// copy: a request is claimed, and has its result, once the store says so. Of several that put a value in the place of
// the same one, one succeeds.
type Store interface {
	// Open are the ids of the requests of a tenant that wait.
	Open(ctx context.Context, tenant string) ([]string, error)
	Get(ctx context.Context, tenant, id string) (approvals.ToolRequest, error)
	// Put puts a value in the place of the one with its Revision, and returns its own revision.
	Put(ctx context.Context, tenant, id string, r approvals.ToolRequest) (revision string, err error)
}

// The errors of a [Store]. After any other the value may have been put or not.
var (
	ErrNoRequest = errors.New("there is no request of that id")
	ErrChanged   = errors.New("the request was changed meanwhile")
	ErrStoreFull = errors.New("too many requests are kept")
)

// kept is the text of a value, which is sealed.
type kept struct {
	Who    identity.Kept              `json:"who"`
	Era    era.Era                    `json:"era"`
	Tool   ask.KeptTool               `json:"tool"`
	Params jsontext.Value             `json:"params"`
	Shows  evaluation.CapabilityShown `json:"shows,omitzero"`
	// Taken is when a gateway took the request, and Result its result.
	Taken  time.Time `json:"taken,omitzero"`
	Result *Result   `json:"result,omitzero"`
}

// binding is the text that a value is sealed for: the store can give it out for no other request, and no other tenant.
func binding(tenant, id string) []byte { return []byte(tenant + "\x00" + id) }

var errLargeRequest = errors.New("the request is too large to be kept for other gateways")

// claimRoom is what a claim, and then the result that is not kept, add to a request that waits.
const claimRoom = 1 << 10

func (g *People) put(e *Entry, revision string, taken time.Time, result *Result, left time.Duration) (string, error) {
	q := &e.Asked
	k := kept{Era: q.Era, Params: q.Params.Value(), Shows: q.Shows(), Taken: taken, Result: result}
	var err error
	if k.Who, err = q.Who.Keep(); err != nil {
		return "", err
	}
	if k.Tool, err = q.Tool.Keep(); err != nil {
		return "", err
	}
	text, err := json.Marshal(k)
	if err != nil {
		return "", err
	}
	most := seal.MaxKept
	if taken.IsZero() {
		most -= claimRoom
	}
	if len(text) > most {
		return "", errLargeRequest
	}
	sealed, err := g.o.Ring.Seal(seal.KeptToolRequest, binding(q.Who.Tenant, e.ID), text)
	if err != nil {
		return "", err
	}
	// Not with the context of a request: half a put is in doubt. The store has a timeout.
	return g.o.Store.Put(context.WithoutCancel(g.doors.Context), q.Who.Tenant, e.ID, approvals.ToolRequest{Revision: revision, Open: taken.IsZero(), Seconds: answer.Seconds(left), Text: sealed})
}

// store keeps a request that waits for the other gateways, in the place of the value that is known here.
func (g *People) store(e *Entry) *answer.Answer {
	known := e.Asked.open
	revision, err := g.put(e, known.get(), time.Time{}, nil, e.Ends().Sub(g.o.Now()))
	switch {
	case errors.Is(err, errLargeRequest):
		return answer.Invalid(err.Error())
	case errors.Is(err, ErrStoreFull):
		return answer.Limited("", again)
	case errors.Is(err, ErrChanged) && known.get() != "": // it was taken meanwhile
		return nil
	case err != nil:
		return notKnown(err)
	}
	known.set(revision)
	return nil
}

func notKnown(err error) *answer.Answer {
	return answer.With(ask.Unavailable, answer.Denied, "authorization service unavailable", "the requests for tools are kept by the PDP: "+err.Error(), answer.ComeAgain("", again))
}

// fetch returns the request of an id as it is in the store.
func (g *People) fetch(tenant, id string) (*Entry, *answer.Answer) {
	on, err := g.o.Store.Get(g.doors.Context, tenant, id)
	switch {
	case errors.Is(err, ErrNoRequest):
		return nil, noRequest()
	case err != nil:
		return nil, notKnown(err)
	}
	var k kept
	text, ok := g.o.Ring.Open(seal.KeptToolRequest, binding(tenant, id), on.Text)
	if !ok || json.Unmarshal(text, &k) != nil {
		return nil, noRequest()
	}
	e := g.requests.Find(id)
	if e == nil {
		q, err := k.request(g.o.Again)
		if err != nil || q.Who.Tenant != tenant {
			return nil, noRequest()
		}
		if q.ID, err = g.sealRequest(q.Who, id); err != nil {
			return nil, answer.Internal(err)
		}
		if e, err = g.requests.Bring(id, q.Who.Account(), q, len(text), g.o.Now().Add(time.Duration(on.Seconds)*time.Second)); err != nil {
			return nil, answer.Limited("", again)
		}
	}
	if on.Open {
		e.Asked.open.set(on.Revision)
		e.Asked.shown.set(k.Shows)
		e.Waits()
		return e, nil
	}
	until := k.Taken.Add(g.o.Requests.TTL)
	switch c, own := e.Elsewhere(until); {
	case k.Result != nil:
		c.Finish(*k.Result, len(on.Text))
	case !own && !g.o.Now().Before(until):
		c.Fail(Result{Refused: Unanswered().Refusal})
	}
	return e, nil
}

func (k *kept) request(again func(identity.Kept) (*identity.Principal, error)) (q toolRequest, err error) {
	q = toolRequest{Era: k.Era, shown: latestOf(k.Shows), open: latestOf("")}
	if q.Who, err = again(k.Who); err != nil {
		return q, err
	}
	if q.Tool, err = k.Tool.Tool(); err != nil {
		return q, err
	}
	q.Params, err = rpc.ParseObject(k.Params)
	q.Arguments = ask.Canonical(q.Params)
	return q, err
}

// Claim is the right of one caller to a request. It must come to an end.
type Claim struct {
	requests.Claim[toolRequest, Result]
	g        *People
	e        *Entry
	taken    time.Time
	revision string
}

// Claim gives a request to the first caller, of all gateways. For all others it is not ok, or refused if that is not known.
func (g *People) Claim(e *Entry) (c Claim, ok bool, refused *answer.Answer) {
	c = Claim{g: g, e: e, taken: g.o.Now()}
	if c.Claim, ok = e.Claim(); !ok || g.o.Store == nil {
		return c, ok, nil
	}
	var err error
	if c.revision, err = g.put(e, e.Asked.open.get(), c.taken, nil, 2*g.o.Requests.TTL); err == nil {
		return c, true, nil
	}
	c.Claim.Lost(c.taken.Add(g.o.Requests.TTL))
	if errors.Is(err, ErrChanged) {
		return c, false, nil
	}
	return c, false, notKnown(err)
}

// Finish sets the result, of a size in bytes. Of several ends the first counts. The other gateways have it when it returns, if
// the store answers; else they say in time that there is no answer.
func (c Claim) Finish(r Result, size int) {
	if !c.Claim.Finish(r, size) || c.g.o.Store == nil {
		return
	}
	put := func(r Result) error {
		_, err := c.g.put(c.e, c.revision, c.taken, &r, c.g.o.Requests.TTL)
		return err
	}
	err := put(r)
	if err != nil && !errors.Is(err, ErrChanged) && !errors.Is(err, errLargeRequest) {
		err = put(r)
	}
	if errors.Is(err, errLargeRequest) || errors.Is(err, ErrStoreFull) {
		err = put(Result{Refused: notKept().Refusal})
	}
	if err != nil && !errors.Is(err, ErrChanged) {
		c.g.o.Logger.Error("what came of a request for a tool is not kept for other gateways", "request", c.e.ID, "error", err)
	}
}

// Fail sets the reason why there is no result.
func (c Claim) Fail(why Result) { c.Finish(why, 0) }

// Unanswered refuses the requester if no answer came for the call.
func Unanswered() *answer.Answer {
	return answer.New(answer.AbsentUpstream, rpc.InternalError, "the request was being fulfilled, and no answer came; request it again if it may be done twice", "a call that fulfils a request has no answer")
}

const (
	// lookEvery is how often the store is read: for each request that waits here, and for each tenant with listeners.
	lookEvery = time.Second
	// mostFetched bounds the values that one look fetches.
	mostFetched = 50
)

// follow has the listeners here hear of the requests that other gateways keep.
func (g *People) follow() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, tenant := range g.Listeners.tenants() {
				g.doors.Alone(func() { g.look(tenant) })
			}
		case <-g.doors.Draining.Done():
			return
		}
	}
}

func (g *People) look(tenant string) {
	ids, err := g.o.Store.Open(g.doors.Context, tenant)
	if err != nil {
		return // requests say so
	}
	var fetch []string
	for _, e := range g.requests.Pending(0) {
		if e.Asked.Who.Tenant == tenant && !slices.Contains(ids, e.ID) {
			fetch = append(fetch, e.ID)
		}
	}
	for _, id := range ids {
		if g.requests.Find(id) == nil {
			fetch = append(fetch, id)
		}
	}
	rand.Shuffle(len(fetch), func(a, b int) { fetch[a], fetch[b] = fetch[b], fetch[a] }) // some may be of other keys
	for _, id := range fetch[:min(len(fetch), mostFetched)] {
		_, _ = g.fetch(tenant, id)
	}
	if len(fetch) > 0 {
		g.Listeners.requestsChanged(tenant)
	}
}
