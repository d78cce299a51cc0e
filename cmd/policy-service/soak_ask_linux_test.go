package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/organisation"
)

// A pep is a caller of the soak, with what the service knows of it.
type pep struct {
	name, key   string
	tenants     []string // that it asks for
	obligations []string // that it is registered with; nil is no registration
	explains    bool
}

// A question is one request whose answer is compared.
type question struct {
	kind    string // as it is counted
	path    string
	body    string
	pep     *pep
	tenant  string // of the path; "" is the default one
	explain bool
	search  evaluation.SearchKind
	after   *string // where a search goes on
	limit   int     // of its pages, 0 where none is given
}

// answer is what came of a question, and when.
type answer struct {
	question
	id, body     string
	began, ended time.Time
}

// supply makes requests of the organisation, for all clients.
type supply struct {
	mu           sync.Mutex
	organisation *organisation.Organisation
	bodies       []string
}

// parts are the members of a request, to be put together in another way.
type parts struct{ Subject, Action, Resource, Context jsontext.Value }

func (s *supply) next() (p parts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bodies) == 0 {
		s.bodies = s.organisation.Bodies(256)
	}
	if err := json.Unmarshal([]byte(s.bodies[0]), &p, json.MatchCaseInsensitiveNames(true)); err != nil {
		panic(err) // a body of our own making
	}
	s.bodies = s.bodies[1:]
	return p
}

// A client asks one question after the other.
type client struct {
	*soak
	*rand.Rand
	next *question // the next page of a search
}

// soakKinds say how often what is asked, of a hundred times.
var soakKinds = []struct {
	name  string
	share int
	make  func(*client, string) question
}{
	{"evaluation", 45, (*client).evaluation},
	{"native", 25, (*client).native},
	{"batch", 12, (*client).batch},
	{"subject search", 5, (*client).subjectSearch},
	{"resource search", 5, (*client).resourceSearch},
	{"action search", 8, (*client).actionSearch},
}

// question makes a question of some kind, or goes on with the search before.
func (c *client) question() question {
	if q := c.next; q != nil {
		c.next = nil
		return *q
	}
	who := c.peps[[]string{"gateway", "acme", "notifier"}[c.IntN(3)]]
	tenant := who.tenants[c.IntN(len(who.tenants))]
	n := c.IntN(100)
	for _, kind := range soakKinds {
		if n -= kind.share; n < 0 {
			q := kind.make(c, tenant)
			q.kind, q.pep, q.explain = kind.name, who, who.explains && q.search == "" && c.IntN(8) == 0
			return q
		}
	}
	panic("the shares of soakKinds do not come to 100")
}

// below is a path of AuthZEN for a tenant.
func below(tenant, path string) (string, string) {
	if tenant == evaluation.DefaultTenant {
		return "", path
	}
	return tenant, "/tenants/" + tenant + path
}

// declaring is a context with something more in it: obligations that the PEP can do,
// and now and then a text, so that segments of the log fill up.
func (c *client) declaring(context jsontext.Value) string {
	more := ""
	if c.IntN(2) == 0 {
		more += `"supported_obligations":["notification","log"],`
	}
	if c.IntN(4) == 0 {
		more += fmt.Sprintf(`"note":"%0*d",`, 1+c.IntN(4000), c.IntN(1000))
	}
	return "{" + more + string(context[1:])
}

func (c *client) evaluation(tenant string) question {
	tenant, path := below(tenant, "/access/v1/evaluation")
	p := c.supply.next()
	return question{path: path, tenant: tenant,
		body: fmt.Sprintf(`{"subject":%s,"action":%s,"resource":%s,"context":%s}`, p.Subject, p.Action, p.Resource, c.declaring(p.Context))}
}

func (c *client) native(tenant string) question {
	p := c.supply.next()
	var subject, action struct{ Type, ID, Name string }
	for from, to := range map[*jsontext.Value]any{&p.Subject: &subject, &p.Action: &action} {
		if err := json.Unmarshal(*from, to, json.MatchCaseInsensitiveNames(true)); err != nil {
			panic(err) // a body of our own making
		}
	}
	return question{path: "/v1/authorize",
		body: fmt.Sprintf(`{"tenant_id":%q,"actor":{"actor_type":%q,"actor_id":%q,"roles":["some"]},"action":%q,"resource":%s,"context":%s}`,
			tenant, subject.Type, subject.ID, action.Name, p.Resource, c.declaring(p.Context))}
}

func (c *client) batch(tenant string) question {
	tenant, path := below(tenant, "/access/v1/evaluations")
	first, items := c.supply.next(), []string{}
	for range 1 + c.IntN(12) {
		p := c.supply.next()
		items = append(items, []string{
			fmt.Sprintf(`{"action":%s,"resource":%s}`, p.Action, p.Resource),
			fmt.Sprintf(`{"subject":%s}`, p.Subject),
			`{"resource":{"type":"type0"}}`, // malformed: it has no id
		}[min(c.IntN(8)/3, 2)])
	}
	semantic := []string{"execute_all", "deny_on_first_deny", "permit_on_first_permit"}[c.IntN(3)]
	return question{path: path, tenant: tenant,
		body: fmt.Sprintf(`{"subject":%s,"action":%s,"resource":{"type":"type1"},"context":%s,"evaluations":[%s],"options":{"evaluations_semantic":%q}}`,
			first.Subject, first.Action, c.declaring(first.Context), strings.Join(items, ","), semantic)}
}

// searching is a search of some kind, for all results or a page of them.
func (c *client) searching(kind evaluation.SearchKind, tenant, members string) question {
	tenant, path := below(tenant, "/access/v1/search/"+string(kind))
	q := question{path: path, tenant: tenant, search: kind, body: "{" + members}
	if c.IntN(2) == 0 {
		q.limit = 1 + c.IntN(20)
		q.body += fmt.Sprintf(`,"page":{"limit":%d}`, q.limit)
	}
	q.body += "}"
	return q
}

func (c *client) subjectSearch(tenant string) question {
	p := c.supply.next()
	return c.searching(evaluation.SubjectSearch, tenant, fmt.Sprintf(`"subject":{"type":"user"},"action":%s,"resource":%s,"context":%s`, p.Action, p.Resource, c.declaring(p.Context)))
}

func (c *client) resourceSearch(tenant string) question {
	p := c.supply.next()
	return c.searching(evaluation.ResourceSearch, tenant, fmt.Sprintf(`"subject":%s,"action":%s,"resource":{"type":"type%d"},"context":%s`, p.Subject, p.Action, c.IntN(3), c.declaring(p.Context)))
}

func (c *client) actionSearch(tenant string) question {
	p := c.supply.next()
	return c.searching(evaluation.ActionSearch, tenant, fmt.Sprintf(`"subject":%s,"resource":%s,"context":%s`, p.Subject, p.Resource, c.declaring(p.Context)))
}

// found is the answer to a search.
type found struct {
	Page *struct {
		Next string `json:"next_token"`
	} `json:"page"`
	Results jsontext.Value `json:"results"`
}

// follow asks for the next page next, sometimes.
func (c *client) follow(a answer) error {
	var page found
	if err := json.Unmarshal([]byte(a.body), &page); err != nil {
		return err
	}
	if page.Page == nil || page.Page.Next == "" || c.IntN(2) == 0 {
		return nil
	}
	q, results := a.question, []struct{ ID, Name string }{}
	if err := json.Unmarshal(page.Results, &results, json.MatchCaseInsensitiveNames(true)); err != nil || len(results) == 0 {
		return err
	}
	last := results[len(results)-1]
	id := last.ID + last.Name
	q.after = &id
	members, _, _ := strings.Cut(q.body, `,"page":`)
	q.body = fmt.Sprintf(`%s,"page":{"token":%q}}`, members, page.Page.Next)
	c.next = &q
	return nil
}

// run asks until stop is closed, or the service is gone.
func (c *client) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case c.judge.places <- struct{}{}:
		}
		select { // of two that are ready, either may have been chosen
		case <-stop:
			return
		default:
		}
		if err := c.once(); err != nil {
			if !errors.Is(err, errGone) {
				c.wrong("%v", err)
			}
			return
		}
	}
}

// once asks one question, or does something besides.
func (c *client) once() error {
	if c.IntN(50) == 0 {
		defer c.judge.leave()
		return c.readPage()
	}
	q := c.question()
	a, r, err := c.ask(q)
	if err == nil && r.status != http.StatusOK {
		err = c.refusal(q.kind, r)
		c.judge.leave()
		return err
	}
	if err != nil {
		return err
	}
	c.judge.answered(a)
	switch {
	case q.search != "":
		return c.follow(a)
	case q.kind == "evaluation" && c.IntN(2) == 0:
		return c.report(a)
	}
	return nil
}

// refusal counts requests that an overload kept from being answered: those that are
// told when to come again. Any other refusal is wrong, for all that is asked here is
// well-formed and allowed.
func (s *soak) refusal(what string, r response) error {
	if (r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable) && r.header.Get("Retry-After") != "" {
		s.count("refused")
		return nil
	}
	return fmt.Errorf("%s is answered %d %s", what, r.status, r.body)
}

// report says what became of an answer's obligations. A second report is refused.
func (c *client) report(a answer) error {
	var said struct {
		Context struct{ Obligations []struct{ ID string } }
	}
	if err := json.Unmarshal([]byte(a.body), &said, json.MatchCaseInsensitiveNames(true)); err != nil || len(said.Context.Obligations) == 0 {
		return err
	}
	q := question{kind: "receipt", pep: a.pep, path: "/v1/decisions/" + a.id + "/obligations",
		body: fmt.Sprintf(`{"obligations":[{"id":%q,"status":"discharged"}]}`, said.Context.Obligations[0].ID)}
	for _, want := range []int{http.StatusNoContent, http.StatusConflict} {
		receipt, r, err := c.ask(q)
		switch {
		case err != nil:
			return err
		case r.status != want:
			return c.refusal(fmt.Sprintf("a receipt that is to be %d", want), r)
		case want == http.StatusNoContent:
			receipt.id = a.id
			c.judge.answered(receipt)
		}
	}
	return nil
}

// readPage reads the newest records as an auditor of one tenant.
func (c *client) readPage() error {
	r, err := c.get(c.peps["acme-auditor"], fmt.Sprintf("/v1/decisions?limit=%d&order=newest", 1+c.IntN(20)))
	if err != nil {
		return err
	}
	if r.status != http.StatusOK {
		return c.refusal("a page of the log", r)
	}
	var page struct {
		Items []struct {
			Sequence int64
			Tenant   string
		}
	}
	if err := json.Unmarshal([]byte(r.body), &page, json.MatchCaseInsensitiveNames(true)); err != nil {
		return err
	}
	for n, record := range page.Items {
		if record.Tenant != "acme" || n > 0 && record.Sequence >= page.Items[n-1].Sequence {
			return fmt.Errorf("a page of acme's newest records has record %d of tenant %q at %d", record.Sequence, record.Tenant, n)
		}
	}
	c.count("log page")
	return nil
}

// errGone ends a client without its having anything to say: the server was told to stop.
var errGone = errors.New("the server is gone")

// ask sends a question. A quarter of them wait to be told to go on: who was told so
// knows that the request is accepted, and must get an answer, also from a server that
// was told to stop.
func (c *client) ask(q question) (a answer, r response, err error) {
	var accepted atomic.Bool
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got100Continue: func() { accepted.Store(true) }})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+q.path, strings.NewReader(q.body))
	if err != nil {
		return a, r, err
	}
	request.Header.Set("Content-Type", "application/json")
	if q.explain {
		request.Header.Set("X-Explain", "true")
	}
	if c.IntN(4) == 0 {
		request.Header.Set("Expect", "100-continue")
	}
	began := time.Now()
	r, err = c.do(q.pep, request)
	a = answer{question: q, id: r.header.Get("X-Decision-Id"), body: r.body, began: began, ended: time.Now()}
	switch {
	case err == nil && accepted.Load():
		c.count("told to go on")
	case err != nil && accepted.Load():
		err = fmt.Errorf("%s: the server took the request and did not answer: %v", q.kind, err) // not errGone any more
	}
	return a, r, err
}

// response is an answer, read to its end.
type response struct {
	status int
	header http.Header
	body   string
}

// get reads something.
func (s *soak) get(who *pep, path string) (response, error) {
	request, err := http.NewRequest(http.MethodGet, s.url+path, nil)
	if err != nil {
		return response{}, err
	}
	return s.do(who, request)
}

func (s *soak) do(who *pep, request *http.Request) (r response, err error) {
	request.Header.Set("Authorization", "Bearer "+who.key)
	w, err := s.client.Do(request)
	if err != nil {
		return r, s.gone(err)
	}
	defer func() { _ = w.Body.Close() }()
	var read bytes.Buffer
	if _, err := io.Copy(&read, w.Body); err != nil {
		return r, fmt.Errorf("an answer breaks off: %w", err)
	}
	return response{w.StatusCode, w.Header, read.String()}, nil
}

// gone is an error of a connection: no wonder once the server was told to stop.
func (s *soak) gone(err error) error {
	if s.stopping.Load() {
		return errGone
	}
	return err
}
