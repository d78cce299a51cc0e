package authzenclient

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"policy-service/evaluation"
)

// Option sets something of a [Client].
type Option func(*Client) error

// TokenSource returns the bearer token or key for a call. An error means that
// nothing is sent.
type TokenSource func(context.Context) (string, error)

// WithHTTPClient uses a copy of h: its transport (TLS, client certificates,
// proxies) and timeout, but never its redirects or cookies.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) error {
		if h == nil {
			return errors.New("authzen: WithHTTPClient got no client")
		}
		c.http = http.Client{Transport: h.Transport, Timeout: h.Timeout}
		return nil
	}
}

// WithSameProcess says that the transport of WithHTTPClient leads to a PDP in this process. A question of up to 16 KiB is then the
// body of its message as it is, and JSON is made of it only if somebody reads that body. The PDP treats it like any other.
func WithSameProcess() Option {
	return func(c *Client) error { c.handsOver = true; return nil }
}

// WithJulyObligations has the client speak the draft of obligations of July 2026, as servers of other makers may. Without it,
// the client adopts the drafts of October 2026.
func WithJulyObligations() Option {
	return func(c *Client) error { c.july = true; return nil }
}

// WithKey sends an API key or another token that does not change.
func WithKey(key string) Option {
	return func(c *Client) error {
		if !isToken(key) {
			return errors.New("authzen: the key is empty, or has characters that no header can carry")
		}
		return WithToken(func(context.Context) (string, error) { return key, nil })(c)
	}
}

// WithToken asks source for a bearer token before each request that is sent.
func WithToken(source TokenSource) Option {
	return func(c *Client) error {
		if c.token = nil; source != nil {
			c.token = func(ctx context.Context, _ string) (string, error) { return source(ctx) }
		}
		return nil
	}
}

// WithTenantToken sets the source of keys that are each for one tenant. It gets the name of the tenant that is asked about.
func WithTenantToken(source func(ctx context.Context, tenant string) (string, error)) Option {
	return func(c *Client) error { c.token = source; return nil }
}

// WithTenant makes a client of one tenant: the paths are below /tenants/NAME,
// but for default. [Client.ForTenant] is for a tenant that a request names.
func WithTenant(name string) Option {
	return func(c *Client) error {
		if !evaluation.IsTenantName(name) {
			return errors.New("authzen: not a legal name of a tenant")
		}
		c.tenant = name
		return nil
	}
}

// WithTimeout bounds every call and every page of a search, repetitions and
// waiting included, within the deadline of its context. The default is 5 s. Waiting for
// people is bounded by its context alone.
func WithTimeout(d time.Duration) Option {
	return positive(d > 0, func(c *Client) { c.timeout = d })
}

// WithRetries is how often a request is sent again at most, 2 by default. That
// happens where the connection was refused or reset before any answer, and after
// 429 and 503 with Retry-After. A request that presents an approval may use it up:
// it is sent again only if no connection was made.
func WithRetries(n int) Option {
	return positive(n >= 0, func(c *Client) { c.retries = n })
}

// WithBreaker opens the circuit after so many calls in a row without a usable
// answer (5 by default), and closes it when one call, let through after the
// cool-down (10 s), succeeds. Open, every call is denied at once. 0 failures
// means never. A request at fault, and a call its caller gave up, do not count; that the PDP
// refuses the caller, whatever is asked (401, 403, 404), does. Clients of [Client.ForTenant] have the same circuit.
// Receipts have a circuit of their own, and while people are waited for there is none.
func WithBreaker(failures int, coolDown time.Duration) Option {
	return positive(failures >= 0 && coolDown >= 0, func(c *Client) {
		for _, b := range [...]*breaker{c.breaker, c.receipts.breaker} {
			b.threshold, b.coolDown = failures, coolDown
		}
	})
}

// WithoutReceipts sends no receipts about obligations. Otherwise
// Enforce and EnforceBatch send it a receipt after an answer that obliged to
// something and has an X-Decision-Id; see [Enforcement.ReceiptErr].
func WithoutReceipts() Option {
	return func(c *Client) error { c.receipts.off = true; return nil }
}

// WithUndecided calls tell with the error of each question of which no decision came: see [Kind.Undecided]. Each item of a
// batch is a question. It is for a counter and an alert, because such calls are denied, and their callers only see a deny.
// It must return soon, and changes nothing.
func WithUndecided(tell func(context.Context, *Error)) Option {
	return func(c *Client) error { c.undecided = tell; return nil }
}

// WithClock replaces the clock, and the wait between attempts. Nil keeps the usual one.
func WithClock(now func() time.Time, wait func(context.Context, time.Duration) error) Option {
	return func(c *Client) error {
		if now != nil {
			c.clock.now = now
		}
		if wait != nil {
			c.clock.wait = wait
		}
		return nil
	}
}

// WithRequestIDs replaces the source of X-Request-ID, by default a UUID per
// call; nil sends none. An answer with another id than the request's is no
// answer. One without any is, unless strict: AuthZEN requires the echo, and not
// every PDP does it.
func WithRequestIDs(next func() string, strict bool) Option {
	return func(c *Client) error { c.ids, c.echo = next, strict; return nil }
}

// WithMaxBody bounds the body of an answer in bytes, 4 MiB by default.
func WithMaxBody(bytes int64) Option {
	return positive(bytes > 0, func(c *Client) { c.maxBody = bytes })
}

// WithPageSize asks searches for pages of at most n results.
func WithPageSize(n int) Option {
	return positive(n > 0, func(c *Client) { c.pages.size = n })
}

// WithEndpointOrigin lets the metadata of [Client.Discover], and answers about
// approvals, name endpoints at another origin, given as scheme://host[:port]. They
// get no credentials.
func WithEndpointOrigin(origin string) Option {
	return func(c *Client) error {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Path != "" || u.Scheme != "https" && u.Scheme != "http" {
			return errors.New("authzen: not an origin; give scheme://host or scheme://host:port")
		}
		c.at.allowed = append(c.at.allowed, originOf(u))
		return nil
	}
}

// WithPlainHTTP allows http to another machine than this one, for networks that
// encrypt by themselves. Otherwise anybody on the way decides.
func WithPlainHTTP() Option {
	return func(c *Client) error { c.at.plain = true; return nil }
}

func positive(ok bool, set func(*Client)) Option {
	return func(c *Client) error {
		if !ok {
			return errors.New("authzen: an option's number is too small")
		}
		set(c)
		return nil
	}
}

// isToken holds credentials to visible ASCII: net/http would refuse the rest
// later, with an error that says less.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}
