package clients_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"os/exec"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/evaluation/capability"
	"policy-service/obligations"
)

// A call is an order to a driver. Drivers of other languages read it as a line of JSON.
type call struct {
	Client        *options          `json:"client,omitempty"` // a new client; without it, the one of the call before
	Do            string            `json:"do"`
	Tenant        string            `json:"tenant,omitempty"` // of which a client is made; without it, the client's own
	Question      json.RawMessage   `json:"question,omitempty"`
	Questions     []json.RawMessage `json:"questions,omitempty"`
	Semantic      string            `json:"semantic,omitempty"`
	What          string            `json:"what,omitempty"`
	Wait          int               `json:"wait,omitempty"` // seconds
	UseCapability bool              `json:"useCapability,omitempty"`
	Ask           json.RawMessage   `json:"ask,omitempty"`
}

// options are those of a new client. Times are in milliseconds. A handler is ok, fail, change or breaks.
type options struct {
	URL        string            `json:"url"`
	Credential string            `json:"credential,omitempty"`
	Timeout    int               `json:"timeout,omitempty"`
	Retries    *int              `json:"retries,omitempty"`
	Breaker    *breaker          `json:"breaker,omitempty"`
	Handlers   map[string]string `json:"handlers,omitempty"`
	// Obligations is july, or empty for the draft that clients speak by default.
	Obligations string `json:"obligations,omitempty"`
}

type breaker struct {
	Failures int `json:"failures"`
	CoolDown int `json:"coolDown"`
}

// A result is the outcome of a call.
type result struct {
	Allowed    bool     `json:"allowed"`
	Kind       string   `json:"kind"`
	Status     int      `json:"status"`
	Reason     string   `json:"reason"`
	ReasonUser string   `json:"reasonUser"`
	Acted      int      `json:"acted"`
	Result     string   `json:"result"`
	Handled    []string `json:"handled"`
	Items      []item   `json:"items"`
	Found      []string `json:"found"`
	Spent      bool     `json:"spent"`
	Named      bool     `json:"named"` // there is an id of the decision
	Waits      bool     `json:"waits"` // there is a task that waits for people
	Crash      string   `json:"crash,omitempty"`
}

type item struct {
	Allowed bool   `json:"allowed"`
	Kind    string `json:"kind"`
	Reason  string `json:"reason"`
}

// A driver does calls, one after the other.
type driver interface{ do(*testing.T, call) result }

// process is a driver in another language.
type process struct {
	in     io.Writer
	out    *bufio.Scanner
	errors *bytes.Buffer
}

// run starts a driver, which ends with the test.
func run(t *testing.T, dir string, command ...string) driver {
	t.Helper()
	p := &process{errors: &bytes.Buffer{}}
	c := exec.CommandContext(t.Context(), command[0], command[1:]...)
	c.Dir, c.Stderr = dir, p.errors
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = c.Wait()
	})
	p.in, p.out = in, bufio.NewScanner(out)
	p.out.Buffer(nil, 1<<24)
	return p
}

func (p *process) do(t *testing.T, c call) (r result) {
	t.Helper()
	line, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil || !p.out.Scan() {
		t.Fatalf("the driver ended: %v %v\n%s", err, p.out.Err(), p.errors)
	}
	if err := json.Unmarshal(p.out.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, p.out.Bytes())
	}
	return r
}

// inGo is the driver of the client in Go.
type inGo struct {
	t        *testing.T
	client   *authzenclient.Client
	options  options
	holder   *capability.Holder
	held     authzenclient.AskOption
	token    string
	mu       sync.Mutex
	handled  []string
	promises []evaluation.Obligation // of handlers that change the result
}

// words are Go's kinds in the words of the table.
var words = map[authzenclient.Kind]string{
	authzenclient.NotAsked: "not_asked", authzenclient.Open: "open", authzenclient.Unreachable: "unreachable", authzenclient.TimedOut: "timed_out",
	authzenclient.Cancelled: "cancelled", authzenclient.Refused: "refused", authzenclient.Unavailable: "unavailable", authzenclient.Odd: "odd",
	authzenclient.Unsupported: "unsupported", authzenclient.BadItem: "bad_item", authzenclient.Skipped: "skipped", authzenclient.Obligated: "obligated",
	authzenclient.NotApproved: "not_approved",
}

func (g *inGo) do(t *testing.T, c call) (r result) {
	t.Helper()
	g.t = t
	if c.Client != nil {
		g.open(*c.Client)
	}
	g.handled, g.promises = nil, nil
	ctx := t.Context()
	if own := g.client; c.Tenant != "" {
		var err error
		if g.client, err = own.ForTenant(c.Tenant); err != nil {
			t.Fatal(err)
		}
		defer func() { g.client = own }()
	}
	switch c.Do {
	case "evaluate":
		d := g.client.Evaluate(ctx, g.question(c.Question), g.shows(c)...)
		r = g.decided(d, d.Err())
		r.Allowed = d.Permitted()
	case "authorize", "enforce":
		r = g.enforce(ctx, c)
	case "enforceAll":
		all := authzenclient.DischargeAll(ctx, g.handlers(false),
			g.client.DecideBatch(ctx, evaluation.DenyOnFirstDeny, g.handlers(false).Types(), g.questions(c)...)...)
		g.client.ReportAll(ctx, &all)
		r = g.decided(all.First().Decision(), all.First().Err())
		r.act(all.Permitted(), "done")
		if len(c.Questions) == 0 {
			r.Kind = "not_asked"
		}
	case "batch":
		for _, d := range g.client.EvaluateBatch(ctx, evaluation.Semantic(c.Semantic), g.questions(c)...) {
			one := g.decided(d, d.Err())
			r.Items = append(r.Items, item{d.Permitted(), one.Kind, one.Reason})
			r.Allowed = r.Allowed || d.Permitted()
		}
		if len(c.Questions) == 0 {
			r.Kind = "not_asked"
		}
	case "search":
		r = g.search(ctx, c)
	case "capability", "renew":
		r = g.capability(ctx, c)
	}
	r.Handled = g.handled
	return r
}

// briefly waits less than the client would: people have acted before it looks.
func briefly(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(min(d, 20*time.Millisecond)):
	}
	return ctx.Err()
}

func (g *inGo) open(o options) {
	g.t.Helper()
	g.options, g.holder, g.held = o, nil, nil
	all := []authzenclient.Option{
		authzenclient.WithMaxBody(1 << 20),
		authzenclient.WithClock(nil, briefly),
	}
	if o.Obligations == july {
		all = append(all, authzenclient.WithJulyObligations())
	}
	if o.Credential != "" {
		all = append(all, authzenclient.WithKey(o.Credential))
	}
	if o.Timeout > 0 {
		all = append(all, authzenclient.WithTimeout(time.Duration(o.Timeout)*time.Millisecond))
	}
	if o.Retries != nil {
		all = append(all, authzenclient.WithRetries(*o.Retries))
	}
	if o.Breaker != nil {
		all = append(all, authzenclient.WithBreaker(o.Breaker.Failures, time.Duration(o.Breaker.CoolDown)*time.Millisecond))
	}
	var err error
	if g.client, err = authzenclient.New(o.URL, all...); err != nil {
		g.t.Fatal(err)
	}
}

// question reads a question, or the query of a search, which has a gap. It is read as it stands, so that the PDP judges it.
func (g *inGo) question(text json.RawMessage) evaluation.Request {
	g.t.Helper()
	var said struct {
		Subject, Resource struct{ Type, ID string }
		Action            struct{ Name string }
		Context           json.RawMessage
	}
	if err := json.Unmarshal(text, &said); err != nil {
		g.t.Fatal(err)
	}
	q := evaluation.Request{
		Subject: evaluation.Entity{Type: said.Subject.Type, ID: said.Subject.ID}, Action: evaluation.Action{Name: said.Action.Name},
		Resource: evaluation.Entity{Type: said.Resource.Type, ID: said.Resource.ID},
	}
	if said.Context != nil {
		limits := evaluation.DefaultLimits()
		limits.Body = 1 << 22 // more than the PDP takes
		context, err := evaluation.ParseObject(said.Context, limits)
		if err != nil {
			g.t.Fatal(err)
		}
		q.Context = context
	}
	return q
}

func (g *inGo) questions(c call) (all []evaluation.Request) {
	for _, text := range c.Questions {
		all = append(all, g.question(text))
	}
	return all
}

func (g *inGo) shows(c call) []authzenclient.AskOption {
	if !c.UseCapability {
		return nil
	}
	return []authzenclient.AskOption{g.held}
}

// handlers are those of the client. Where nothing can be changed, one that promises a change fails.
func (g *inGo) handlers(change bool) obligations.Handlers {
	all := obligations.Handlers{}
	for name, does := range g.options.Handlers {
		all[name] = func(_ context.Context, o evaluation.Obligation) error {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.handled = append(g.handled, o.Type)
			switch {
			case does == "ok":
				return nil
			case does != "fail" && change:
				g.promises = append(g.promises, o)
				return nil
			}
			return errors.New("the handler fails")
		}
	}
	return all
}

func (g *inGo) enforce(ctx context.Context, c call) (r result) {
	q, handlers := g.question(c.Question), g.handlers(c.Do == "enforce")
	var e authzenclient.Enforcement
	if c.Wait > 0 {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(c.Wait)*time.Second)
		defer cancel()
		e = approvals.Enforce(ctx, g.client, q, handlers)
	} else {
		e = g.client.Decide(ctx, q, handlers.Types(), g.shows(c)...).Discharge(ctx, handlers)
	}
	text, acted := "done", e.Permitted()
	for _, o := range g.promises {
		if text = "changed:" + text; g.options.Handlers[o.Type] == "breaks" {
			e.Break(o, errors.New("the change fails"))
		}
	}
	g.client.Report(ctx, &e)
	r = g.decided(e.Decision(), e.Err())
	if r.act(e.Permitted(), text); acted {
		r.Acted = 1
	}
	if c.Do == "authorize" {
		r.Acted, r.Result = 0, ""
	}
	return r
}

func (r *result) act(permitted bool, text string) {
	if r.Allowed = permitted; permitted {
		r.Acted, r.Result, r.Kind = 1, text, ""
	}
}

// decided is the result of a decision, but for whether it permits.
func (g *inGo) decided(d authzenclient.Decision, failure error) result {
	r := result{Reason: d.Reason(), ReasonUser: d.ReasonUser(), Named: d.ID() != ""}
	var e *authzenclient.Error
	switch {
	case errors.As(failure, &e):
		r.Kind, r.Status, r.Spent = words[e.Kind], e.Status, e.Spent
	case !d.Permitted():
		r.Kind = "denied"
	}
	return r
}

func (g *inGo) search(ctx context.Context, c call) (r result) {
	find := map[string]func(context.Context, evaluation.Request) iter.Seq2[authzenclient.Result, error]{
		"subject": g.client.SearchSubjects, "resource": g.client.SearchResources, "action": g.client.SearchActions,
	}
	enforce := map[string]func(context.Context, evaluation.Request, obligations.Handlers) iter.Seq2[authzenclient.Result, error]{
		"subject": g.client.EnforceSubjects, "resource": g.client.EnforceResources, "action": g.client.EnforceActions,
	}
	found := find[c.What](ctx, g.question(c.Question))
	if g.options.Obligations != july { // it leaves out what owes something, as the searches of the other clients do
		found = enforce[c.What](ctx, g.question(c.Question), g.handlers(false))
	}
	r.Allowed = true
	for one, err := range found {
		if err != nil {
			r = g.decided(authzenclient.Decision{}, err)
			return r
		}
		r.Found = append(r.Found, one.Name+one.ID)
	}
	return r
}

func (g *inGo) capability(ctx context.Context, c call) (r result) {
	var said struct {
		Tenant   string         `json:"tenant_id"`
		Holder   evaluation.Ref `json:"holder"`
		Audience string         `json:"audience"`
		Tools    []string       `json:"tools"`
		Duration int            `json:"duration"`
		MaxUses  int            `json:"max_uses"`
	}
	if err := json.Unmarshal(c.Ask, &said); err != nil {
		g.t.Fatal(err)
	}
	ask := capability.Ask{
		Tenant: said.Tenant, Holder: said.Holder, Audience: said.Audience, Tools: said.Tools,
		Duration: time.Duration(said.Duration) * time.Second, MaxUses: said.MaxUses,
	}
	renews := ""
	if c.Do == "renew" {
		token, refusal := capability.ParseToken(g.token)
		if refusal != nil {
			g.t.Fatal(refusal)
		}
		renews = token.ID
	} else {
		g.holder = newHolder(g.t)
	}
	request := func() (approvals.Grant, error) { return approvals.AskCapability(ctx, g.client, renews, g.holder, ask) }
	if c.Wait > 0 {
		request = func() (approvals.Grant, error) {
			return approvals.RequestCapability(ctx, g.client, renews, g.holder, ask, nil)
		}
	}
	grant, err := request()
	if r = g.decided(authzenclient.Decision{}, err); err == nil && grant.Granted {
		r.Allowed, r.Kind = true, ""
		g.token, g.held = grant.Token, authzenclient.WithCapability(grant.Token, g.holder)
	}
	r.Reason = grant.Reason
	return r
}
