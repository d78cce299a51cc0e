package door

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server/auth"
)

// TenantPrefix begins the paths that name a tenant other than default.
const TenantPrefix = "/tenants/:tenant"

// Need is what a route asks of a request before it looks at it. A route does not get what it does not ask for.
type Need struct {
	// Permission is what the caller must have; "" is any caller.
	Permission auth.Permission
	// Also is a permission that the caller must have besides, in a tenant that only the route knows: see [Admitted.Also].
	Also auth.Permission
	// AllTenants is set if only callers for all tenants may ask, and is the refusal of the others.
	AllTenants string
	// Relayed is the way by which the route takes a person's token from a gateway; "" if it takes none.
	Relayed evaluation.Via
	// Known is the caller of a request by a token that only this route takes, and nil for any other; nil if it takes none.
	Known func(*http.Request) *auth.Caller
	// Brings makes the caller of a request without a credential from its body, which is a form; nil if the route needs a
	// credential.
	Brings func(body []byte) (auth.Caller, error)
	// Tenant says that the path says for which tenant the request is.
	Tenant bool
	// Absent is the refusal if this server does not have what the route is about; nil if it does.
	Absent error
	// Records says that the request puts something on record because its caller asks for it. (Decisions of people have
	// room on record in any case, and do not count.)
	Records bool
	// Parameters are the query parameters that there are: [NoParameters] is none, and nil leaves the query alone.
	Parameters []string
	Body       Body
	// Handed says that the route takes a body that was handed over within the process, as [Admitted.Handed].
	Handed bool
	// Work is ShortWork of most routes. Without it nothing limits how many requests go on at once.
	Work Work
}

// NoParameters are the Parameters of a route that takes none.
var NoParameters = []string{}

// Body is the body that a route takes.
type Body int

// The bodies that there are. OptionalJSON may also be empty, AnyBody is of any type, and Form is one of a browser or of OAuth.
const (
	NoBody Body = iota
	JSON
	OptionalJSON
	AnyBody
	Form
)

// Work says how much a request works, and so where it takes its place.
type Work int

// The kinds of work: none that is limited here, short work, long work, and long work if the body is large.
const (
	NoWork Work = iota
	ShortWork
	LongWork
	WorkBySize
)

// Admitted is a request that was let in.
type Admitted struct {
	// Caller is the caller, with the rights in the tenant if the route needs one, and else those where it has the
	// permission that the route needs.
	Caller auth.Caller
	// Also is the caller with its rights where it has the permission that the route needs besides.
	Also   auth.Caller
	Tenant string            // if the route needs one
	Given  map[string]string // the parameters of the query
	Body   []byte
	Handed *evaluation.Handed // in place of Body, if it is not nil
	// Shift is the turn of a long request, and that of another never begins. The handler calls its End, by defer, whatever
	// comes of the request.
	Shift *Shift
}

// Admit does everything that happens to a request before its route looks at it. The order is part of the contract: a
// caller learns nothing about what comes after the first check that fails.
//
//  1. the announced size of the body: it needs no more than the header
//  2. the caller; a route that takes it from the body reads the body for that
//  3. the tenant in the path: below a tenant that is not its own, a caller learns nothing, not even what it may not do
//  4. the permission, and whether the caller must be for all tenants
//  5. whether this server has what the route is about
//  6. the media type
//  7. the rate, and room on record: only a request that could be answered costs its caller anything
//  8. the parameters of the query
//  9. the body: nothing is read, or kept, of a request that its header refuses
//  10. the place, last: it is held until the answer begins to be written
//
// The router has checked the path and the method before.
func (d *Door) Admit(c echo.Context, n Need) (a Admitted, err error) {
	d.visitOf(c).decides = n.Records
	limit := int64(d.Options.Limits.Body)
	if n.Body == Form {
		limit = mostForm
	}
	if n.Body != NoBody && c.Request().ContentLength > limit {
		return a, tooLarge(limit)
	}
	if err := d.admitHeader(c, n, &a); err != nil {
		if n.Body != NoBody {
			err = d.unread(c, err)
		}
		return a, err
	}
	if n.Handed {
		if h, ok := c.Request().Body.(*evaluation.Handed); ok && int64(h.Size()) <= limit {
			a.Handed = h
		}
	}
	if n.Body != NoBody && a.Body == nil && a.Handed == nil {
		if a.Body, err = d.readUpTo(c, a.Caller, d.Large, true, limit); err != nil {
			return a, err
		}
	}
	if n.Body == OptionalJSON && len(a.Body) > 0 {
		if err := WantJSON(c.Request().Header); err != nil {
			return a, err
		}
	}
	return a, d.enter(c, &a, n.Work)
}

// Lacks is the answer to a caller without a permission.
func Lacks(permission auth.Permission) error {
	return NewProblem(http.StatusForbidden,
		fmt.Sprintf("this needs the permission %s; ask the operator for a credential that has it", permission))
}

// admitHeader is the part of [Door.Admit] for which the header is enough.
func (d *Door) admitHeader(c echo.Context, n Need, a *Admitted) (err error) {
	if a.Caller, a.Body, err = d.authenticate(c, n); err != nil {
		return err
	}
	if n.Also != "" {
		a.Also = a.Caller.Where(n.Also)
	}
	if n.Tenant {
		if a.Tenant, err = d.pathTenant(c, a.Caller); err != nil {
			return err
		}
		a.Caller = a.Caller.In(a.Tenant)
	} else if n.Permission != "" {
		a.Caller = a.Caller.Where(n.Permission)
	}
	switch {
	case n.Permission != "" && !a.Caller.May(n.Permission):
		return Lacks(n.Permission)
	case n.Also != "" && !a.Also.May(n.Also):
		return Lacks(n.Also)
	case n.AllTenants != "" && !a.Caller.AllTenants:
		return NewProblem(http.StatusForbidden, n.AllTenants)
	case n.Absent != nil:
		return n.Absent
	}
	if n.Body == JSON {
		if err := WantJSON(c.Request().Header); err != nil {
			return err
		}
	}
	if n.Body == Form {
		if err := wantForm(c.Request().Header); err != nil {
			return err
		}
	}
	if wait, ok := d.rates.take(a.Caller.Name); !ok {
		return TooMany("rate", wait, http.StatusTooManyRequests,
			"this caller asks more often than it may; ask again after Retry-After seconds")
	}
	if n.Records {
		if err := d.Options.Room(&a.Caller); err != nil {
			return err
		}
	}
	if n.Parameters != nil {
		a.Given, err = parameters(c, n.Parameters)
	}
	return err
}

// enter takes a request to its place. A request for which long work is to be done is limited by its turns alone: a
// place among the short ones that it kept between two turns would be missing to another request.
func (d *Door) enter(c echo.Context, a *Admitted, work Work) error {
	a.Shift = &d.visitOf(c).shift
	switch {
	case work == NoWork:
		return nil
	case work == ShortWork || work == WorkBySize && len(a.Body) <= SmallBody:
		return d.Enter(c, a.Caller)
	}
	ctx, cancel := d.Within(c)
	defer cancel()
	a.Shift.Gate, a.Shift.Caller = d.Long, a.Caller.Name
	if a.Shift.Begin(ctx) != nil {
		return noTurn()
	}
	return nil
}

// Enter lets a request in among the short ones, or refuses it if there are too many. The place is given back when the
// answer begins to be written, so a client that reads slowly holds up no other.
func (d *Door) Enter(c echo.Context, caller auth.Caller) error {
	err := d.Short.Enter(c.Request().Context(), caller.Name)
	if errors.Is(err, ErrBusy) {
		return TooMany("concurrency", time.Second, http.StatusServiceUnavailable,
			"more is asked at once than can be answered in time; ask again after Retry-After seconds")
	}
	if err == nil {
		v := d.visitOf(c)
		v.caller, v.inside = caller.Name, true
	}
	return err
}

// pathTenant is the tenant of a path: the one that the path names, or default, which has no other path than the root.
func (d *Door) pathTenant(c echo.Context, caller auth.Caller) (string, error) {
	tenant := evaluation.DefaultTenant
	if strings.HasPrefix(c.Path(), TenantPrefix) {
		if tenant = c.Param("tenant"); tenant == evaluation.DefaultTenant {
			return "", UnknownTenant(evaluation.AuthZEN)
		}
	}
	return tenant, d.CheckTenant(tenant, caller, evaluation.AuthZEN)
}

// CheckTenant refuses a tenant that does not exist or is not the caller's. It checks the name before anything else
// sees it: the empty name, above all, must not come to mean default.
func (d *Door) CheckTenant(name string, caller auth.Caller, shape evaluation.Shape) error {
	if !evaluation.IsTenantName(name) || !caller.In(name).Serves(name) {
		return UnknownTenant(shape)
	}
	there, err := d.Options.HasTenant(name)
	if err == nil && !there {
		err = UnknownTenant(shape)
	}
	return err
}
