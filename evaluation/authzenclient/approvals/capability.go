package approvals

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/internal/link"
	"policy-service/evaluation/capability"
)

// Grant is the answer to a request for a capability. Only a Grant with Granted has a token.
type Grant struct {
	Granted            bool      `json:"granted"`
	ID                 string    `json:"id"`
	Token              string    `json:"token"`
	Encrypted          bool      `json:"encrypted"` // the Token, to the key of the request: see [Grant.Unseal]
	Tools              []string  `json:"tools"`
	Audience           string    `json:"audience"`
	ValidFrom, Expires time.Time `json:"-"`
	MaxUses            int       `json:"max_uses"`
	Verify             string    `json:"verify"` // see [capability.Token]
	// Narrowed are the members of the request of which less was granted.
	Narrowed []string `json:"narrowed"`
	// Approval is what people were asked, nil if no person was.
	Approval *evaluation.Approval `json:"approval"`
	// Reason, ReasonUser and Refused say why nothing is granted, and for which tools.
	Reason     string   `json:"reason"`
	ReasonUser string   `json:"reason_user"`
	Refused    []string `json:"refused"`
	// Needs are members of the request without which the policies grant nothing.
	Needs []string `json:"needs"`

	// JSON is the whole answer. It holds the token.
	JSON jsontext.Value `json:"-"`

	bound capability.Key // to which the Token is bound
}

// Waits reports whether people are still to decide.
func (g Grant) Waits() bool { return !g.Granted && g.Approval != nil && g.Approval.ID != "" }

// Obligations are owed for the grant, each once.
func (g Grant) Obligations() (all []evaluation.Obligation, err error) {
	var owes struct {
		Obligations []struct {
			ID         string         `json:"id"`
			Type       string         `json:"type"`
			Properties jsontext.Value `json:"properties"`
		} `json:"obligations"`
	}
	if err := json.Unmarshal(g.JSON, &owes); err != nil {
		return nil, err
	}
	for _, o := range owes.Obligations {
		properties, err := evaluation.ParseObject(o.Properties, evaluation.DefaultLimits())
		if err != nil {
			return nil, err
		}
		all = append(all, evaluation.Obligation{ID: o.ID, Type: o.Type, Properties: properties})
	}
	return all, nil
}

// AskCapability asks for a capability, once, or for a new token of one if renews is its id. If people have to approve it,
// the Grant waits: ask again with its approval as ask.ApprovalID once they have, or use [RequestCapability]. The holder's
// key and a proof of it are added to the request. If holder is nil, ask.Key is the key of a holder that is away: the
// service takes that from a credential with the permissions capability and capability.admin alone.
//
// The base URL of the client has to be the service's own, which is the issuer of its tokens (public_url). The error is an
// [*authzenclient.Error]. A no is no error.
func AskCapability(
	ctx context.Context, c *authzenclient.Client, renews string, holder *capability.Holder, ask capability.Ask,
) (g Grant, err error) {
	path := ""
	if renews != "" {
		path = "/" + url.PathEscape(renews) + "/renew"
	}
	return askFor(ctx, c, path, ask, func(a *capability.Ask, issuer string, now time.Time) error {
		if holder == nil {
			return nil
		}
		return holder.Request(a, issuer, now)
	})
}

// DelegateCapability has the holder of a capability, the parent, hand on a narrower one to ask.Holder, with ask.Key, as
// [AskCapability] asks for one: once.
func DelegateCapability(
	ctx context.Context, c *authzenclient.Client, parent string, holder *capability.Holder, ask capability.Ask,
) (Grant, error) {
	return askFor(ctx, c, "/"+url.PathEscape(parent)+"/delegate", ask, func(a *capability.Ask, issuer string, now time.Time) error {
		if holder == nil {
			return errors.New("no holder; its holder alone can hand a capability on")
		}
		return holder.HandOn(a, parent, issuer, now)
	})
}

func askFor(
	ctx context.Context, c *authzenclient.Client, path string, ask capability.Ask, prove func(a *capability.Ask, issuer string, now time.Time) error,
) (g Grant, err error) {
	l, r := c.Link(), link.Request{Op: "request", Statuses: []int{http.StatusOK, http.StatusCreated, http.StatusAccepted}, Once: true}
	r.URL = l.Base + "/v1/capabilities" + path
	if err := prove(&ask, l.PDP, l.Now()); err != nil {
		return g, of("request", &authzenclient.Error{Kind: authzenclient.NotAsked, Detail: link.Printable(err.Error()), Cause: err})
	}
	if r.Body, err = json.Marshal(ask); err != nil {
		return g, of("request", notAsked("the request cannot be encoded"))
	}
	r.Secret = ask.Proof
	err = l.Send(ctx, r, func(a link.Answer) error {
		g, err = readGrant(a.Body, ask.Key)
		return err
	})
	if err != nil {
		return Grant{}, of("request", err)
	}
	return g, nil
}

// readGrant takes a token only if it is bound to the key, as the answer says.
func readGrant(body []byte, key capability.Key) (g Grant, err error) {
	if json.Unmarshal(body, &g) != nil {
		return g, odd("it is no answer to a request for a capability")
	}
	g.JSON = body
	if !g.Granted {
		g.ID, g.Token = "", ""
		return g, nil
	}
	if g.bound = key; g.Encrypted {
		return g, nil
	}
	return g.read()
}

// read reads the token.
func (g Grant) read() (Grant, error) {
	t, refusal := capability.ParseToken(g.Token)
	if refusal != nil || t.ID != g.ID || t.Key.Thumbprint() != g.bound.Thumbprint() {
		return g, odd("the token is none, or of another capability or key")
	}
	g.ValidFrom, g.Expires = t.NotBefore, t.Expires
	return g, nil
}

// Unseal is a Grant whose Token is encrypted, with the Token as it was granted.
func (g Grant) Unseal(key *ecdsa.PrivateKey) (Grant, error) {
	token, err := capability.Unseal(g.Token, key)
	if err != nil {
		return Grant{}, of("request", odd(err.Error()))
	}
	g.Token, g.Encrypted = token, false
	if g, err = g.read(); err != nil {
		return Grant{}, of("request", err)
	}
	return g, nil
}

// RequestCapability is [AskCapability], and waits for people if they have to approve it: as long as they take, as the
// approval request lasts, or as ctx lasts. Waiting, if it is not nil, is called before that, once. The Grant is granted, or
// a no of the policies. If people did not approve it the error is of kind NotApproved.
func RequestCapability(
	ctx context.Context, c *authzenclient.Client, renews string, holder *capability.Holder, ask capability.Ask,
	waiting func(evaluation.Approval),
) (Grant, error) {
	return await(ctx, c, ask, waiting, func(ask capability.Ask) (Grant, error) { return AskCapability(ctx, c, renews, holder, ask) })
}

// RequestDelegation is [DelegateCapability], and waits for people as [RequestCapability] does.
func RequestDelegation(
	ctx context.Context, c *authzenclient.Client, parent string, holder *capability.Holder, ask capability.Ask,
	waiting func(evaluation.Approval),
) (Grant, error) {
	return await(ctx, c, ask, waiting, func(ask capability.Ask) (Grant, error) { return DelegateCapability(ctx, c, parent, holder, ask) })
}

func await(
	ctx context.Context, c *authzenclient.Client, ask capability.Ask, waiting func(evaluation.Approval),
	request func(capability.Ask) (Grant, error),
) (Grant, error) {
	w, err := newWaiter(c, nil, nil)
	if err != nil {
		return Grant{}, of("request", err)
	}
	g, err := request(ask)
	if err != nil || !g.Waits() {
		return g, err
	}
	if waiting != nil {
		waiting(*g.Approval)
	}
	ask.ApprovalID = g.Approval.ID
	status, url := g.Approval.Status, w.link.Base+"/v1/approvals/"+url.PathEscape(ask.ApprovalID)
	err = w.until(ctx, g.Approval.ExpiresAt, func() (done bool, err error) {
		status, err = statusOf(ctx, w.link, url)
		return status != taskPending, err
	})
	if err == nil && status != taskApproved {
		err = notApproved("the request is " + link.Printable(status))
	}
	if err == nil {
		err = w.until(ctx, time.Time{}, func() (done bool, err error) {
			g, err = request(ask)
			return true, err
		})
	}
	if err == nil && g.Waits() { // another used it, or it ended
		err = notApproved("the approval counts no more")
	}
	if err != nil {
		return Grant{}, of("await", err)
	}
	return g, nil
}

// until tries until it is done, and after a failure that says nothing of it once more.
func (w *waiter) until(ctx context.Context, end time.Time, try func() (done bool, err error)) error {
	for n := 0; ; n++ {
		pause := time.Duration(0)
		switch done, err := try(); {
		case err != nil && (!passing(err) || ctx.Err() != nil):
			return err
		case err != nil:
			pause = failureOf(err).RetryAfter
		case done:
			return nil
		}
		if err := w.pause(ctx, n, pause, end); err != nil {
			return err
		}
	}
}

// statusOf asks for the status of an approval request. The PDP holds its answer back while it is pending.
func statusOf(ctx context.Context, l link.Link, url string) (status string, err error) {
	r := link.Request{Op: "await", Method: http.MethodGet, URL: url, Wait: 30 * time.Second}
	err = l.Send(ctx, r, func(a link.Answer) error {
		var said struct {
			Status string `json:"status"`
		}
		if json.Unmarshal(a.Body, &said) != nil || said.Status == "" {
			return odd("it is no approval request")
		}
		status = said.Status
		return nil
	})
	return status, err
}

// CapabilityIssuer returns the name by which the PDP signs capabilities, and for which the proof of a request is made. It is ""
// if the PDP has none. unused reports whether the PDP says that no policy looks at capabilities: then no call needs one. The
// error is an [*authzenclient.Error], as those of the other functions about capabilities are.
func CapabilityIssuer(ctx context.Context, c *authzenclient.Client) (issuer string, unused bool, err error) {
	var said struct {
		Point    string         `json:"policy_decision_point"`
		Endpoint string         `json:"capability_endpoint"`
		Policies jsontext.Value `json:"capability_policies"`
	}
	l := c.Link()
	err = read(ctx, l, link.Request{Method: http.MethodGet, URL: l.Metadata}, &said)
	var e *authzenclient.Error
	switch {
	case errors.As(err, &e) && e.Kind == authzenclient.Refused && e.Status == http.StatusNotFound:
		return "", false, nil // it publishes nothing
	case err != nil:
		return "", false, err
	case said.Endpoint == "":
		return "", false, nil
	}
	return strings.TrimSuffix(said.Point, "/"), said.Policies.Kind() == 'f', nil
}

// ValidateCapability asks what the capability in the context of a question is worth, and spends nothing of it. The answer is
// that of the service, as it came.
func ValidateCapability(ctx context.Context, c *authzenclient.Client, tenant string, q evaluation.Request) (worth jsontext.Value, err error) {
	l := c.Link()
	body, err := json.Marshal(map[string]any{
		"tenant_id": tenant,
		"actor":     map[string]string{"actor_id": q.Subject.ID, "actor_type": q.Subject.Type},
		"action":    q.Action.Name,
		"resource":  map[string]string{"type": q.Resource.Type, "id": q.Resource.ID},
		"context":   q.Context,
	})
	if err != nil {
		return nil, of("request", notAsked("the question cannot be encoded"))
	}
	shown, _ := q.CapabilityShown()
	err = read(ctx, l, link.Request{URL: l.Base + "/v1/capabilities/validate", Body: body, Secret: shown.Proof}, &worth)
	return worth, err
}

// CapabilityState is a capability as the service keeps it, without its token.
type CapabilityState struct {
	ID        string            `json:"id"`
	State     string            `json:"state"`
	Holder    evaluation.Ref    `json:"holder"`
	Person    string            `json:"person,omitzero"` // for whom it was granted
	JKT       string            `json:"jkt"`
	Audience  string            `json:"audience"`
	Tools     []string          `json:"tools"`
	Arguments map[string]string `json:"arguments,omitzero"`
	Expires   time.Time         `json:"expires"`
	MaxUses   int               `json:"max_uses,omitzero"`
	Used      int               `json:"used,omitzero"`
}

// CapabilityOwner says whose capabilities are meant: those of the Holder that were granted for the Person, or for no person if Person
// is "". A holder can be an application that many people share.
type CapabilityOwner struct {
	Tenant string
	Holder evaluation.Ref
	Person string // as context.person of questions names it
}

func (o CapabilityOwner) has(tenant string, s CapabilityState) bool {
	return tenant == o.Tenant && s.Holder == o.Holder && s.Person == o.Person
}

// mostPages bounds the pages of a list of capabilities.
const mostPages = 20

// Capabilities returns those of an owner that count, of those that the client's credential may see.
func Capabilities(ctx context.Context, c *authzenclient.Client, owner CapabilityOwner) (all []CapabilityState, err error) {
	query := url.Values{"tenant": {owner.Tenant}, "holder": {owner.Holder.Type + ":" + owner.Holder.ID}, "state": {"active"}, "limit": {"100"}}
	if owner.Person != "" {
		query.Set("person", owner.Person)
	}
	for range mostPages {
		var page struct {
			Items []CapabilityState `json:"items"`
			Next  string            `json:"next"`
		}
		l := c.Link()
		if err := read(ctx, l, link.Request{Method: http.MethodGet, URL: l.Base + "/v1/capabilities?" + query.Encode()}, &page); err != nil {
			return nil, err
		}
		for _, one := range page.Items {
			if owner.has(owner.Tenant, one) {
				all = append(all, one)
			}
		}
		if page.Next == "" {
			break
		}
		query.Set("cursor", page.Next)
	}
	return all, nil
}

// CapabilityOf returns a capability of an owner. One of another is refused as one that does not exist.
func CapabilityOf(ctx context.Context, c *authzenclient.Client, owner CapabilityOwner, id string) (state CapabilityState, err error) {
	l := c.Link()
	var said struct {
		Tenant          string `json:"tenant_id"`
		CapabilityState `json:",inline"`
	}
	err = read(ctx, l, link.Request{Method: http.MethodGet, URL: l.Base + "/v1/capabilities/" + url.PathEscape(id)}, &said)
	if state = said.CapabilityState; err == nil && !owner.has(said.Tenant, state) {
		err = of("request", &authzenclient.Error{Kind: authzenclient.Refused, Status: http.StatusNotFound, Detail: "no such capability of this owner"})
	}
	if err != nil {
		return CapabilityState{}, err
	}
	return state, nil
}

// ReturnCapability ends a capability of an owner.
func ReturnCapability(ctx context.Context, c *authzenclient.Client, owner CapabilityOwner, id, reason string) (state CapabilityState, err error) {
	if state, err = CapabilityOf(ctx, c, owner, id); err != nil {
		return state, err
	}
	l := c.Link()
	body, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil {
		return CapabilityState{}, of("request", notAsked("the reason cannot be encoded"))
	}
	err = read(ctx, l, link.Request{URL: l.Base + "/v1/capabilities/" + url.PathEscape(id) + "/return", Body: body}, &state)
	return state, err
}

// CapabilityApproval is the approval request that a request for a capability waits for.
func CapabilityApproval(ctx context.Context, c *authzenclient.Client, id string) (view evaluation.ApprovalView, err error) {
	l := c.Link()
	err = read(ctx, l, link.Request{Method: http.MethodGet, URL: l.Base + "/v1/approvals/" + url.PathEscape(id)}, &view)
	return view, err
}

// read reads the answer to a request.
func read(ctx context.Context, l link.Link, r link.Request, to any) error {
	r.Op = "request"
	err := l.Send(ctx, r, func(a link.Answer) error {
		if json.Unmarshal(a.Body, to) != nil {
			return odd("it is no such answer")
		}
		return nil
	})
	if err != nil {
		return of(r.Op, err)
	}
	return nil
}
