package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/time/rate"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/capability"
	"policy-service/evaluation/coaz"
	"policy-service/obligations"
	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/flow"
	"policy-service/pdp/internal/mcp/internal/front"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/people"
	"policy-service/pdp/internal/mcp/internal/rates"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/seal"
	"policy-service/pdp/internal/server/auth"
)

// Deps are the needs of a gateway besides its configuration. The zero Deps are usable.
type Deps struct {
	// Logger takes messages for the operator. Nil discards them.
	Logger *slog.Logger
	// Transport carries questions to the PDP, nil is the network. A PDP in this process is reached by it.
	Transport http.RoundTripper
	// Now is the clock, nil is [time.Now].
	Now func() time.Time
	// Known gets the person of a request, or its client without a person, before its body is read. It may be nil.
	Known func(ctx context.Context, person string)
	// MeterProvider and TracerProvider are where telemetry goes, nil is nowhere.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
	// FixedToken is a token by which a PDP in this process knows the person of identity.static, so that they can be asked for
	// approvals in a form. "" is none, and then no form is shown to them.
	FixedToken string
	// Version is the gateway's version for servers, and for clients of several servers.
	Version string
}

// newSelf is the gateway's description of itself where it stands for several servers.
func newSelf(version string) jsontext.Value {
	return rpc.Object{}.With("name", rpc.String(ownName)).With("version", rpc.String(cmp.Or(version, "0"))).Value()
}

func (d Deps) withDefaults() Deps {
	d.Logger = cmp.Or(d.Logger, slog.New(slog.DiscardHandler))
	d.MeterProvider = cmp.Or[metric.MeterProvider](d.MeterProvider, metricnoop.NewMeterProvider())
	d.TracerProvider = cmp.Or[trace.TracerProvider](d.TracerProvider, tracenoop.NewTracerProvider())
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Known == nil {
		d.Known = func(context.Context, string) {}
	}
	return d
}

func newIdentity(c Config, d Deps) (*identity.Identity, error) {
	o, err := c.whoAsks()
	if err != nil {
		return nil, err
	}
	o.Now, o.Logger, o.StaticToken = d.Now, d.Logger, d.FixedToken
	return identity.New(o)
}

// whoAsks says for whom requests are, and has the fixed identity in it if there is one.
func (c Config) whoAsks() (o identity.Options, err error) {
	o = identity.Options{
		Resource: c.Resource, Name: ownName, Issuers: c.Identity.Issuers, SubjectClaim: c.Identity.SubjectClaim, AgentClaim: c.Identity.AgentClaim,
		DefaultTenant: c.PDP.Tenant, Scopes: c.Identity.Scopes, Private: auth.IsLoopbackName(front.Hostname(c.Listen)),
	}
	if s := c.Identity.Static; s != nil {
		claims := map[string]any{"sub": s.Sub, "iss": cmp.Or(s.Issuer, c.Resource)}
		if s.ClientID != "" {
			claims["client_id"] = s.ClientID
		}
		if o.Static, err = evaluation.NewObject(claims); err != nil {
			return o, fmt.Errorf("identity.static: %w", err)
		}
	}
	return o, nil
}

// asker makes the asker of questions, for a gateway and for [Explain], and the clients of the PDP by tenants.
func (c Config) asker(d Deps, handlers obligations.Handlers, letPass func(setting string)) (*ask.Asker, map[string]*authzenclient.Client, error) {
	o := ask.Options{
		PDP: map[string]*authzenclient.Client{}, Resource: c.Resource, SubjectClaim: c.Identity.SubjectClaim, SubjectOverride: c.override(),
		Ask: c.Ask, Strict: c.Strict, Declared: c.Declared, Errors: c.Errors, DenyStatus: int(c.DenyHTTPStatus),
		Properties: c.Identity.Properties, Meta: c.Meta, Mappings: map[string]evaluation.Object{}, Labels: map[string]map[string]string{}, Handlers: handlers, Logger: d.Logger,
		Verifiers: map[string]*capability.Verifier{}, CapabilityRequired: map[string]bool{}, Now: d.Now, LetPass: letPass,
		Admit: func(ctx context.Context, questions int) *ask.Refusal {
			if after, ok := rates.BillOf(ctx).Ask(ctx, questions); !ok {
				return answer.Limited("limits.rate", after).Refusal
			}
			return nil
		},
	}
	for _, name := range c.Dialects {
		o.Dialects = append(o.Dialects, map[string]coaz.Dialect{"authzen": coaz.AuthZEN, "sep": coaz.SEP}[name])
	}
	for method, text := range c.Mappings {
		mapping, err := evaluation.ParseObject(text, evaluation.DefaultLimits())
		if err != nil {
			return nil, nil, fmt.Errorf("mappings: %s: %w", method, err)
		}
		o.Mappings[method] = mapping
	}
	for name, u := range c.Upstreams {
		o.Labels[name], o.CapabilityRequired[name] = u.Labels, u.Capability == CapabilityRequired
	}
	tenants := []string{c.PDP.Tenant}
	for _, i := range c.Identity.Issuers {
		if i.Tenant != "" {
			tenants = append(tenants, i.Tenant)
		}
	}
	address, options, err := c.PDP.client(d)
	if err != nil {
		return nil, nil, err
	}
	first, err := authzenclient.New(address, append(options, authzenclient.WithTenant(c.PDP.Tenant))...)
	for _, tenant := range tenants {
		if o.PDP[tenant] = first; err == nil && tenant != c.PDP.Tenant {
			o.PDP[tenant], err = first.ForTenant(tenant)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("pdp: %w", err)
		}
		by := capability.Options{Issuer: o.PDP[tenant].Link().PDP, Servers: sortedNames(c.Upstreams), Keys: o.PDP[tenant].Keys(), Now: d.Now}
		if o.Verifiers[tenant], err = capability.NewVerifier(by); err != nil {
			return nil, nil, fmt.Errorf("pdp: %w", err)
		}
	}
	a, err := ask.New(o)
	return a, o.PDP, err
}

// ownName is the gateway's name for clients and servers.
const ownName = "policy-service"

func newRing(c Config, d Deps) (*seal.Ring, error) {
	o := seal.Options{Resource: c.Resource, Now: d.Now, Logger: d.Logger}
	if len(c.Seal.KeyFiles) == 0 {
		d.Logger.Warn("there are no seal.key_files: sessions end with this process, and no other gateway takes them")
		return seal.Fresh(o), nil
	}
	return seal.Open(c.Seal.KeyFiles, o)
}

// mostLarge is how many messages of one person that are larger than usual are read at once, and how many large answers may be unread.
const mostLarge = 64

// newPeople bounds how often one person comes, by whatever clients: so many times as often as one may ask. Where there is one
// person there is no other to protect.
func newPeople(c Config, d Deps, times int) (*rates.Limiter, error) {
	if c.Identity.Static != nil {
		return nil, nil
	}
	return rates.New(rates.Options{Rate: rate.Limit(c.Limits.Rate) * rate.Limit(times), Burst: int(c.Limits.Burst) * times, Now: d.Now})
}

// newCapabilities bounds how often one person asks for a capability.
func newCapabilities(c Config, d Deps) (*rates.Limiter, error) {
	most := c.Capabilities.PerMinute
	return rates.New(rates.Options{Rate: rate.Limit(float64(most) / 60), Burst: int(most), Now: d.Now})
}

// newRates bounds how often a principal asks, and what a person holds. Without a rate only how much is under way at once is bounded.
func newRates(c Config, d Deps) (*rates.Limiter, error) {
	one, tool, concurrent := c.Limits.PerPrincipal, c.Limits.PerTool, int(c.Limits.PerPrincipal.Concurrent)
	o := rates.Options{
		Rate: rate.Limit(one.Rate), Burst: int(one.Burst), Concurrent: concurrent, ToolRate: rate.Limit(tool.Rate), ToolBurst: int(tool.Burst), Now: d.Now,
		Holds: map[string]int{
			flow.Streams: concurrent, front.LargeMessages: mostLarge, flow.LargeAnswers: mostLarge, link.Errands: concurrent * len(c.Upstreams),
			people.Waiting: int(c.Approvals.PerPrincipal), people.AllWaiting: int(c.Approvals.Waiting),
		},
	}
	for server := range c.Upstreams {
		o.Holds[link.Asking(server)] = link.MostAsking
	}
	if o.Rate == 0 {
		o.Rate = rate.Inf
	}
	if o.Burst == 0 {
		o.Burst = max(1, int(min(o.Rate, 1e6)))
	}
	return rates.New(o)
}

func newHosts(c Config) front.Hosts {
	h := front.Hosts{Origins: c.AllowedOrigins, OwnPages: c.Identity.Static != nil} // no token tells the page's requests from the user's
	for _, name := range c.AllowedHosts {
		h.Names = append(h.Names, front.Hostname(name))
	}
	if u, err := url.Parse(c.Resource); err == nil {
		h.Names = append(h.Names, strings.ToLower(u.Hostname()))
	}
	return h
}

// newLock reads the lock. Nothing is locked if there is no file.
func newLock(c Config, d Deps) (link.Lock, error) {
	if c.Lock.File == "" || c.Lock.Mode == LockOff {
		return link.Lock{}, nil
	}
	enforce := c.Lock.Mode != LockWarn
	o := lock.FollowOptions{MayBeMissing: !enforce, Now: d.Now, Logger: d.Logger}
	o.Check = func(f lock.File) error {
		if enforce {
			return errors.Join(c.allLocked(f), c.noneAlike(f))
		}
		return c.noneAlike(f)
	}
	file, err := lock.Follow(c.Lock.File, o)
	if err != nil {
		return link.Lock{}, fmt.Errorf("lock.file: %w", err)
	}
	return link.Lock{File: file, Enforce: enforce, Arguments: c.Arguments}, nil
}

// allLocked is an error if none of the tools of a server would be there.
func (c Config) allLocked(f lock.File) (err error) {
	for _, name := range sortedNames(c.Upstreams) {
		if _, ok := f.Servers[name]; !ok {
			err = errors.Join(err, fmt.Errorf("%s: nothing of the server %s is locked, and so it would have no tools; look at them with: policy-service mcp lock --diff, and add them with: policy-service mcp lock --accept --server %s", c.Lock.File, name, name))
		}
	}
	return err
}

// noneAlike is an error if people could take a locked tool for another of its server by its name: neither would be there.
func (c Config) noneAlike(f lock.File) (err error) {
	for _, name := range sortedNames(c.Upstreams) {
		before := map[string]string{}
		for _, tool := range sortedNames(f.Servers[name].Tools) {
			if c.Upstreams[name].Tools[tool].Hidden {
				continue
			}
			alike := strings.ToLower(c.ToolName(name, tool))
			if other, twice := before[alike]; twice {
				err = errors.Join(err, fmt.Errorf("%s: the server %s has tools by the names %q and %q, which clients and people take for one; hide one of them: upstreams: {%s: {tools: {%q: {hidden: true}}}}", c.Lock.File, name, other, tool, name, tool))
			}
			before[alike] = tool
		}
	}
	return err
}

// Persons are those whom a gateway knows: the holders of tokens that it takes, or the one of identity.static. A PDP in its
// process goes by them, so that a form counts there as the word of the person who filled it in. They are [auth.People].
type Persons struct {
	known *identity.Identity
	// typeOf is the policies' name of a type of questions.
	typeOf func(wire string) (string, bool)
}

// NewPersons knows them by the configuration and d.FixedToken. typeOf is the policies' name of a type of questions.
func NewPersons(c Config, d Deps, typeOf func(wire string) (string, bool)) (*Persons, error) {
	Form.SetDefaults(&c)
	if err := c.Check(); err != nil {
		return nil, err
	}
	known, err := newIdentity(c, d.withDefaults())
	if err != nil {
		return nil, err
	}
	return &Persons{known, typeOf}, nil
}

// Person implements [auth.People]. Policies know the person as in the questions of their agents.
func (p *Persons) Person(ctx context.Context, token string) (auth.Person, error) {
	who, err := p.known.Holder(ctx, token)
	if err != nil {
		return auth.Person{}, err
	}
	sub, _ := who.Claims.Get("sub")
	person := auth.Person{Issuer: who.Issuer, Subject: sub.Text(), Tenant: who.Tenant}
	if sub.Kind() != evaluation.String || evaluation.PersonOf(person.Issuer, person.Subject) != who.Person {
		return person, nil // that person would not be known as the one of the question
	}
	if typ, ok := p.typeOf(who.User.Type); ok {
		person.Principal = auth.Principal{Type: typ, ID: who.User.ID}
	}
	return person, nil
}

// Believed implements [auth.People].
func (p *Persons) Believed(tenant, issuer, subject string) bool {
	return p.known.Believes(tenant, issuer, subject)
}
