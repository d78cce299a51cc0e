package authzenclient

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient/internal/link"
)

// Client asks one PDP about one tenant. It is safe for concurrent use; a PEP
// makes one and keeps it, since breaker and connections are its own. [Client.ForTenant] makes those for other tenants.
type Client struct {
	*shared
	tenant   string // "" if none was named
	chosen   bool   // for a request, by ForTenant
	endpoint atomic.Pointer[endpoints]
	bundle   atomic.Pointer[string]
}

// shared is what the clients for all tenants of a PDP have together.
type shared struct {
	at       address
	http     http.Client
	token    func(ctx context.Context, tenant string) (string, error) // nil is no credential
	ids      func() string
	echo     bool
	timeout  time.Duration
	maxBody  int64
	retries  int
	pages    pageLimits
	clock    clock
	breaker  *breaker
	receipts reporting
	keys     *Keys
	// handsOver is set if the PDP is in this process, and takes questions without JSON.
	handsOver bool
	// july is set if the client speaks July's draft of obligations.
	july bool
	// undecided receives each question without a decision; it may be nil.
	undecided func(context.Context, *Error)
}

// address is where the PDP is.
type address struct {
	base    *url.URL // without a slash at its end
	origin  string
	allowed []string // origins an endpoint may have
	plain   bool     // plain http is permitted
}

// clock is the time that the client goes by, and the random part of its pauses.
type clock struct {
	now    func() time.Time
	wait   func(context.Context, time.Duration) error
	jitter func() float64
}

// New makes a client of the PDP at a base URL, AuthZEN's
// identifier of a PDP: https, or http on loopback, without query and fragment. Or it is unix:PATH, for a PDP at a Unix
// socket. Nothing is sent yet; [Client.Discover] is for PDPs whose paths are not the usual ones.
func New(baseURL string, options ...Option) (*Client, error) {
	transport := pooled()
	path, socket := strings.CutPrefix(baseURL, "unix:")
	if socket {
		if !filepath.IsAbs(path) {
			return nil, errors.New("authzen: a Unix socket needs its whole path; try unix:/run/policy-service/pdp.sock")
		}
		baseURL, transport = "http://localhost", overSocket(path)
	}
	base, err := parseBase(baseURL)
	if err != nil {
		return nil, err
	}
	c := &Client{shared: &shared{
		at:      address{base: base, origin: originOf(base)},
		ids:     uuid.NewString,
		timeout: 5 * time.Second,
		maxBody: 4 << 20,
		retries: 2,
		pages:   pageLimits{most: 10_000, idle: 1_000},
		clock:   clock{now: time.Now, wait: wait, jitter: rand.Float64},
		breaker: newBreaker(),
	}}
	c.receipts.breaker, c.receipts.within = newBreaker(), receiptTime
	c.http.Transport = transport
	for _, option := range options {
		if err := option(c); err != nil {
			return nil, err
		}
	}
	if socket && c.http.Transport != transport {
		return nil, errors.New("authzen: an HTTP client of its own would not ask the Unix socket; leave WithHTTPClient out")
	}
	if !c.at.plain && slices.ContainsFunc(append(c.at.allowed, c.at.origin), exposed) {
		return nil, errors.New("authzen: plain http to another machine: anybody on the way could write the answer; use https, or WithPlainHTTP")
	}
	// A decision that was moved is not a decision, and a redirect is how a token would leave its origin.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.breaker.now, c.receipts.breaker.now = c.clock.now, c.clock.now
	c.endpoint.Store(c.usual())
	c.keys = &Keys{client: c}
	return c, nil
}

// ForTenant returns a client for another tenant of the same PDP. It sends nothing, so a PEP may make one for each request.
// Connections, options and the breaker are those of c: a PDP that does not answer is left alone by the clients for all its
// tenants. That it refuses to answer for this tenant (401, 403, 404) does not count, because a request may name any tenant.
// The paths are the usual ones until [Client.Discover].
func (c *Client) ForTenant(name string) (*Client, error) {
	if !evaluation.IsTenantName(name) {
		return nil, errors.New("authzen: not a legal name of a tenant; ask for none if a request has none")
	}
	t := &Client{shared: c.shared, tenant: name, chosen: true}
	t.endpoint.Store(t.usual())
	return t, nil
}

// pooled keeps more than net/http's two idle connections: a PEP asks one host,
// for every request of its own.
func pooled() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = t.MaxIdleConns
	return t
}

func overSocket(path string) http.RoundTripper {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
		MaxIdleConnsPerHost: 100, // as pooled has
		IdleConnTimeout:     90 * time.Second,
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Evaluate sends one request. The request's tenant is empty or the client's.
func (c *Client) Evaluate(ctx context.Context, request evaluation.Request, options ...AskOption) Decision {
	d, _ := c.evaluate(ctx, request, options)
	return d
}

// evaluate is Evaluate. It returns the request as it was asked, too.
func (c *Client) evaluate(ctx context.Context, request evaluation.Request, options []AskOption) (Decision, evaluation.Request) {
	d, q := c.question(ctx, request, repeatOf(request), options, c.encodeAuthZEN)
	d = d.to("evaluate", &q)
	c.tellUndecided(ctx, d.err)
	return d, q
}

// tellUndecided tells of a question if no decision came of it.
func (c *Client) tellUndecided(ctx context.Context, err *Error) {
	if c.undecided != nil && err != nil && err.Kind.Undecided() {
		told := *err
		c.undecided(ctx, &told)
	}
}

func (c *Client) decide(ctx context.Context, a asking) (d Decision) {
	id, err := c.ask(ctx, a, func(r reply) *Error {
		d = read(r.body, a.adopts[0]).without(r.secrets)
		d.id = r.decisionID
		return d.err
	})
	if err != nil {
		d.permit, d.err = false, err // d keeps the rest, for Obligations
		err.Spent = a.repeat == unsent && err.lost()
		err.Op = a.op
	}
	d.requestID = id
	return d
}

// Bundle returns the digest of the policies by which the PDP decided last, as its answer said. It is "" before the first answer,
// and of a PDP whose answers do not say it. An answer that somebody keeps must be forgotten when Bundle changes.
func (c *Client) Bundle() string {
	if b := c.bundle.Load(); b != nil {
		return *b
	}
	return ""
}

// Link is the client as package approvals sees it. No other program has a use for it.
func (c *Client) Link() link.Link {
	return link.Link{
		Base:     c.at.base.String(),
		PDP:      c.pdp(),
		Metadata: c.metadataURL(),
		Requests: c.endpoint.Load().requests,
		Now:      c.clock.now,
		Wait:     c.clock.wait,
		Jitter:   c.clock.jitter,
		Send:     c.send,
	}
}

func (c *Client) send(ctx context.Context, r link.Request, read func(link.Answer) error) error {
	a := asking{
		op: r.Op, url: r.URL, method: r.Method, id: r.ID, header: r.Header, secret: secrets{r.Secret}, body: r.Body, statuses: r.Statuses,
		wait: r.Wait, repeat: unanswered, breaker: &breaker{},
	}
	if r.Once {
		a.repeat = unsent
	}
	if c.http.Timeout > 0 {
		a.wait = min(a.wait, c.http.Timeout-c.timeout)
	}
	a.wait = max(a.wait, 0)
	err := c.near(a.url)
	if err == nil {
		a.url = within(a.url, a.wait)
		_, err = c.ask(ctx, a, func(r reply) *Error {
			err := read(link.Answer{Body: r.body, RetryAfter: r.retryAfter})
			if ours := (*Error)(nil); err == nil || errors.As(err, &ours) {
				return ours
			}
			return odd(err.Error())
		})
	}
	if err == nil {
		return nil
	}
	err.Op = r.Op
	return err
}

// near refuses URLs elsewhere, which an answer or a stored task may hold.
func (c *Client) near(url string) *Error {
	if url == "" {
		return notAsked("the PDP does not offer this")
	}
	if err := c.at.near(url); err != nil {
		return notAsked("a URL of the answer " + err.Error())
	}
	return nil
}

// within adds the time that a PDP is to wait to a URL. Its query stays as it is: it may be signed.
func within(url string, wait time.Duration) string {
	if wait < time.Second {
		return url
	}
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	return url + separator + "wait=" + strconv.Itoa(int(wait/time.Second)) + "s"
}
