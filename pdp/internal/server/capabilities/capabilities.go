// Package capabilities serves capabilities to the programs that ask for them, and takes them back. Start with
// [Capabilities.Routes], which has the needs of each route.
//
// The package decides nothing: package broker asks the policies, and people, whether a capability may be granted. It knows
// no other parts of the server than the door, and the callers of package auth. Using a capability is no route of its own: it
// is shown in the question that it is for.
package capabilities

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	store "policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/capability/broker"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/internal/server/telemetry"
)

// Options are the parts of Capabilities.
type Options struct {
	Door *door.Door
	// Broker is nil if there are no capabilities. It is set before the first request comes, with Count, which counts the
	// answers to requests for capabilities.
	Broker *broker.Broker
	Count  func(outcome string)
	// Closed is the error that kept the file of capabilities from being opened, or nil.
	Closed error
}

// Capabilities are the routes.
type Capabilities struct {
	Options
	waiting door.Gate
	stopped chan struct{}
}

// New makes Capabilities.
func New(o Options) *Capabilities {
	return &Capabilities{Options: o, waiting: door.Gate{Limit: mostWaiting, Share: waitingOfOne}, stopped: make(chan struct{})}
}

// Stop answers the requests that wait.
func (s *Capabilities) Stop() { close(s.stopped) }

// Path is where capabilities are asked for.
const Path = "/v1/capabilities"

const one = Path + "/:id"

// Routes registers the routes.
func (s *Capabilities) Routes(route func(path string, handle echo.HandlerFunc, methods ...string)) {
	asks := door.Need{Permission: auth.Capability, Body: door.JSON, Work: door.WorkBySize, Records: true}
	validates := door.Need{Permission: auth.Decide, Body: door.JSON, Work: door.WorkBySize} // as any question about one call
	reads := door.Need{Parameters: door.NoParameters}
	lists := door.Need{Parameters: listParameters, Work: door.LongWork}
	ends := door.Need{Parameters: door.NoParameters, Body: door.JSON, Work: door.ShortWork, Records: true}
	many := door.Need{
		Permission: auth.CapabilityAdmin, Parameters: door.NoParameters, Body: door.JSON, Work: door.LongWork, Records: true,
	}
	route(Path, s.admit(asks, s.ask), http.MethodPost)
	route(TokenPath, s.token, http.MethodPost)
	route(door.TenantPrefix+TokenPath, s.token, http.MethodPost)
	route(Path, s.admit(lists, s.list), http.MethodGet)
	route(one, s.admit(reads, s.state), http.MethodGet)
	route(StatusPath+":list", s.status, http.MethodGet, http.MethodHead)
	route(Path+"/validate", s.admit(validates, s.validate), http.MethodPost)
	route(Path+"/revoke", s.admit(many, s.revokeMany), http.MethodPost)
	route(one+"/renew", s.admit(asks, s.renew), http.MethodPost)
	route(one+"/delegate", s.admit(asks, s.handOn), http.MethodPost)
	route(one+"/revoke", s.admit(ends, s.end(auth.CapabilityAdmin, (*store.Store).Revoke)), http.MethodPost)
	route(one+"/return", s.admit(ends, s.end(auth.Capability, (*store.Store).Return)), http.MethodPost)
}

func (s *Capabilities) admit(need door.Need, handle func(echo.Context, door.Admitted) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		need := need
		if need.Absent = s.absent(); need.Absent != nil {
			need.Permission = "" // every caller hears that, whatever it may do
		}
		admitted, err := s.Door.Admit(c, need)
		if err != nil {
			return err
		}
		defer admitted.Shift.End()
		err = handle(c, admitted)
		if known := problem(err); known != nil {
			return known
		}
		return err
	}
}

// absent is the refusal if there are no capabilities here.
func (s *Capabilities) absent() error {
	switch {
	case s.Closed != nil:
		return door.NewProblem(http.StatusServiceUnavailable,
			"the capabilities cannot be opened; the operator finds the reason in the service's log")
	case s.Broker == nil:
		return door.NewProblem(http.StatusNotFound,
			"there are no capabilities here; the operator gives the server a data directory with --data")
	}
	return nil
}

// problem is an error as callers see it, nil if it has no words of its own.
func problem(err error) error {
	var refusal *capability.Refusal
	var limit *store.LimitError
	var state *store.StateError
	var wider *capability.NotNarrower
	switch {
	case errors.As(err, &wider):
		p := door.NewProblem(http.StatusConflict, wider.Error())
		p.Pointer = "/" + wider.Member
		return p
	case errors.Is(err, broker.ErrHandedOn):
		return door.NewProblem(http.StatusConflict, "this capability was handed on; its parent is handed on once more in the place of a renewal")
	case errors.As(err, &limit):
		return door.TooMany("capabilities", limit.RetryAfter, http.StatusTooManyRequests,
			"this person, holder or tenant has too many capabilities, or asks for them too often; ask again after Retry-After seconds")
	case errors.As(err, &refusal) && refusal.Code == capability.Unavailable:
		return door.TooMany("capabilities", time.Second, http.StatusServiceUnavailable, "too many proofs at once; ask again after Retry-After seconds")
	case errors.As(err, &refusal) && refusal.Code == capability.ClockSkew:
		return door.NewProblem(http.StatusServiceUnavailable,
			"the clock of this replica may be wrong (clock_skew), and it takes no proofs until it agrees with the others; ask another replica, or again later")
	case errors.As(err, &refusal) && refusal.Code == capability.BadSignature: // it was just granted, and is not there yet
		return unstored()
	case errors.As(err, &refusal) && !strings.HasPrefix(string(refusal.Code), "proof_"): // it has ended meanwhile
		return door.NewProblem(http.StatusConflict, "this capability does not count any more: "+refusal.Text())
	case errors.As(err, &refusal):
		p := door.NewProblem(http.StatusBadRequest, fmt.Sprintf("the proof of the request does not count, %s: %s", refusal.Code, refusal.Suggestion()))
		p.Pointer = "/proof"
		return p
	case errors.As(err, &state):
		return door.NewProblem(http.StatusConflict, fmt.Sprintf("this capability is %s", state.State))
	case errors.Is(err, broker.ErrNoIssuer):
		return door.NewProblem(http.StatusNotFound, "no tokens are signed here, because the service does not know its own URL; the operator sets public_url")
	case errors.Is(err, store.ErrGranted):
		return door.NewProblem(http.StatusConflict, "this approval has granted a capability before; ask for a new one without approval_id")
	case errors.Is(err, store.ErrNotFound):
		return unknown()
	case errors.Is(err, store.ErrRenewals):
		return door.NewProblem(http.StatusConflict, fmt.Sprintf("this capability was renewed %d times, which is the most; ask for another", store.MostRenewals))
	case errors.Is(err, store.ErrInvalid):
		return door.NewProblem(http.StatusConflict, "it would be over, or have no use that is left; ask for another, or for more")
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrUnrecorded):
		return unstored()
	}
	return nil
}

func unstored() error {
	return door.NewProblem(http.StatusServiceUnavailable, "this cannot be stored or recorded at the moment; ask again later")
}

func unknown() error {
	return door.NewProblem(http.StatusNotFound, "no such capability, or none that you may see")
}

// asker is the caller of a request, with what others know the request by.
func asker(c echo.Context, caller *auth.Caller) evaluation.Asker {
	asker := caller.Asker()
	asker.RequestID, asker.TraceID = door.RequestID(c), telemetry.TraceID(c.Request().Context(), c.Request().Header)
	return asker
}

// ask answers a request for a capability.
func (s *Capabilities) ask(c echo.Context, a door.Admitted) error { return s.grant(c, a, nil, nil) }

// renew answers a request to renew the capability of the path: one that the caller may see.
func (s *Capabilities) renew(c echo.Context, a door.Admitted) error {
	one, _, err := s.see(c, a)
	if err != nil {
		return err
	}
	return s.grant(c, a, &one, nil)
}

// handOn answers a request to hand on the capability of the path: one that the caller may see, or whose holder it is.
func (s *Capabilities) handOn(c echo.Context, a door.Admitted) error {
	one, _, err := s.find(c, func(one *store.Capability) bool { return sees(a.Caller, one) || s.holds(a.Caller, one) })
	if err != nil {
		return err
	}
	return s.grant(c, a, nil, &one)
}

// holds reports whether a caller is the holder of a capability.
func (s *Capabilities) holds(caller auth.Caller, one *store.Capability) bool {
	caller = caller.In(one.Tenant)
	p := caller.Principal
	return caller.Serves(one.Tenant) && caller.May(auth.Capability) && p != (auth.Principal{}) && s.Broker.Is(one.Holder, p.Type, p.ID)
}

// grant answers a request that a capability be granted, that one be renewed, or handed on.
func (s *Capabilities) grant(c echo.Context, a door.Admitted, renews, parent *store.Capability) error {
	ask, err := capability.DecodeAsk(a.Body, s.Door.Options.Limits)
	if err != nil {
		return err
	}
	caller, err := s.in(a, ask.Tenant, auth.Capability)
	if err != nil {
		return err
	}
	holder := ask.Holder
	if parent != nil {
		if holder = parent.Holder; ask.Tenant != parent.Tenant {
			return unknown()
		}
	}
	if p := caller.Principal; p != (auth.Principal{}) && !s.Broker.Is(holder, p.Type, p.ID) {
		return door.NewProblem(http.StatusForbidden, "this credential is of one principal, and asks for that one alone; a credential without a principal asks for the holders that it vouches for")
	}
	if caller.Principal != (auth.Principal{}) && ask.Context.Len() > 0 {
		return door.NewProblem(http.StatusForbidden, "this credential is of one principal, and cannot say for whom it acts, or who keeps its key; leave context out")
	}
	ctx, cancel := s.Door.Within(c)
	defer cancel()
	decision, granted, denied, err := s.Broker.Ask(ctx, asker(c, &caller), broker.Request{
		Ask: ask, Renews: renews, Parent: parent, MayLackProof: renews == nil && parent == nil && caller.May(auth.CapabilityAdmin),
	})
	if err != nil {
		return s.refuse(c, err)
	}
	if decision != "" {
		c.Response().Header()["X-Decision-Id"] = []string{decision}
	}
	switch {
	case granted != nil:
		if decision != "" { // else it was granted before, and counted
			s.Count(telemetry.Granted)
		}
		c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
		return door.WriteJSON(c, http.StatusCreated, struct {
			Granted        bool `json:"granted"`
			*broker.Answer `json:",inline"`
		}{true, granted})
	case denied.Approval != nil && denied.Approval.ID != "":
		s.Count(telemetry.Waiting)
		return door.WriteJSON(c, http.StatusAccepted, refusal{false, denied})
	}
	s.Count(telemetry.Denied)
	return door.WriteJSON(c, http.StatusOK, refusal{false, denied})
}

// validate says what the capability in a question is worth, and spends nothing.
func (s *Capabilities) validate(c echo.Context, a door.Admitted) error {
	request, err := evaluation.DecodeNative(a.Body, s.Door.Options.Limits)
	if err != nil {
		return err
	}
	caller, err := s.in(a, request.Tenant, auth.Decide)
	if err != nil {
		return err
	}
	ctx, cancel := s.Door.Within(c)
	defer cancel()
	v, err := s.Broker.Validate(ctx, asker(c, &caller), request)
	if err != nil {
		return s.refuse(c, err)
	}
	return door.WriteJSON(c, http.StatusOK, v)
}

// refuse answers with an error. One of the PDP is answered as for any decision.
func (s *Capabilities) refuse(c echo.Context, err error) error {
	if problem(err) == nil {
		return s.Door.Refuse(c, err, evaluation.Native)
	}
	return err
}

type refusal struct {
	Granted        bool `json:"granted"`
	*broker.Denied `json:",inline"`
}

// State is what a caller sees of a capability. The token is not in it.
type State struct {
	ID       string         `json:"id"`
	Tenant   string         `json:"tenant_id"`
	State    store.State    `json:"state"`
	Holder   evaluation.Ref `json:"holder"`
	Person   string         `json:"person,omitzero"` // for whom it was granted
	JKT      string         `json:"jkt"`
	Audience string         `json:"audience"`
	Tools    []string       `json:"tools"`
	// Arguments are the types of the constraints on them, by name; without it they may be any. The values are left out.
	Arguments map[string]string `json:"arguments,omitzero"`
	Expires   time.Time         `json:"expires"`
	MaxUses   int               `json:"max_uses,omitzero"`
	Used      int               `json:"used,omitzero"`
	// InFlight are the uses of which it is not known yet if they are on record, where several replicas share capabilities.
	InFlight []evaluation.InFlight `json:"in_flight,omitzero"`
	// Parent is the capability that it was made from by handing on, and Depth how often that was done. MaxDepth is how often
	// it may be.
	Parent   string `json:"parent,omitzero"`
	Depth    int    `json:"depth,omitzero"`
	MaxDepth int    `json:"max_depth,omitzero"`
}

func stateOf(c *store.Capability) State {
	s := State{
		ID: c.ID, Tenant: c.Tenant, State: c.State, Holder: c.Holder, Person: c.Person, JKT: c.JKT, Audience: c.Audience,
		Arguments: capability.Kinds(c.Token.Layers), Expires: c.Expires.UTC(), MaxUses: c.MaxUses, Used: c.Used,
		Tools: c.Token.Tools(), Parent: c.Token.Parent, Depth: c.Token.Depth, MaxDepth: c.MaxDepth, InFlight: c.InFlight(),
	}
	return s
}

// see finds a capability that the caller may see: one that it asked for, or in whose tenant it takes capabilities back.
func (s *Capabilities) see(c echo.Context, a door.Admitted) (one store.Capability, caller auth.Caller, err error) {
	one, in, err := s.find(c, func(one *store.Capability) bool { return sees(a.Caller, one) })
	if in {
		caller = a.Caller.In(one.Tenant)
	}
	return one, caller, err
}

// find finds the capability of the path, if it is one that counts.
func (s *Capabilities) find(c echo.Context, counts func(*store.Capability) bool) (one store.Capability, is bool, err error) {
	ctx, cancel := s.Door.Within(c)
	defer cancel()
	one, found, err := s.Broker.Store.Get(ctx, c.Param("id"))
	if err != nil && !errors.Is(err, store.ErrUnrecorded) {
		return one, false, err
	}
	if !found || !counts(&one) {
		return store.Capability{}, false, unknown()
	}
	return one, true, err
}

// sees reports whether a caller may see a capability.
func sees(caller auth.Caller, one *store.Capability) bool {
	caller = caller.In(one.Tenant)
	asked := caller.May(auth.Capability) && one.Caller == caller.Name
	return caller.Serves(one.Tenant) && (asked || caller.May(auth.CapabilityAdmin))
}

func (s *Capabilities) state(c echo.Context, a door.Admitted) error {
	one, _, err := s.see(c, a)
	if err != nil {
		return err
	}
	return door.WriteJSON(c, http.StatusOK, stateOf(&one))
}

type ender = func(s *store.Store, ctx context.Context, id, by, reason string) (store.Capability, error)

// end ends a capability, with a reason.
func (s *Capabilities) end(permission auth.Permission, end ender) func(echo.Context, door.Admitted) error {
	return func(c echo.Context, a door.Admitted) error {
		reason, err := evaluation.DecodeWithdrawal(a.Body, s.Door.Options.Limits)
		if err != nil {
			return err
		}
		one, caller, err := s.see(c, a)
		if err != nil {
			return err
		}
		if !caller.May(permission) {
			return door.Lacks(permission)
		}
		ctx, cancel := s.Door.Within(c)
		defer cancel()
		if one, err = end(s.Broker.Store, ctx, one.ID, caller.Name, reason.Reason); err != nil {
			return err
		}
		return door.WriteJSON(c, http.StatusOK, stateOf(&one))
	}
}
