package capabilities

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/capability/broker"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/internal/server/telemetry"
)

// TokenPath is where tokens of others are exchanged for capabilities, as RFC 8693 has it.
const TokenPath = "/v1/token"

const (
	exchangeGrant = "urn:ietf:params:oauth:grant-type:token-exchange"
	tokenTypes    = "urn:ietf:params:oauth:token-type:"
	issuedType    = tokenTypes + "jwt"
	detailsType   = "tool_capability"
	detailsAction = "tools/call"
)

// kinds are those of tokens, by the type that a request gives. An SVID has no type of its own: it is some JWT.
var kinds = map[string][]auth.TokenKind{
	tokenTypes + "access_token": {auth.AccessToken},
	tokenTypes + "id-jag":       {auth.IDJAG},
	tokenTypes + "jwt":          {auth.AccessToken, auth.SVID},
}

// exchanger is an authenticator that knows issuers whose tokens are exchanged.
type exchanger interface {
	Exchanges() bool
	Exchange(ctx context.Context, subject, actor auth.Presented) (auth.Exchanged, error)
}

// Exchanges reports whether there are issuers, among those that an authenticator knows, whose tokens are exchanged.
func Exchanges(by door.Authenticator) bool {
	x, knows := by.(exchanger)
	return knows && x.Exchanges()
}

// exchange is a request for a token.
type exchange struct {
	server  *Capabilities
	c       echo.Context
	by      exchanger
	read    bool
	form    url.Values
	details evaluation.Object
	said    auth.Exchanged
}

// token answers a request for a token. Without a credential of a client, the caller is the holder of the token that is
// exchanged.
func (s *Capabilities) token(c echo.Context) error {
	x := exchange{server: s, c: c}
	need := door.Need{
		Tenant: true, Permission: auth.Capability, Parameters: door.NoParameters, Body: door.Form, Work: door.ShortWork, Records: true,
	}
	if by := s.Door.Options.Callers(c.Request().Context()); Exchanges(by) {
		x.by = by.(exchanger)
		need.Brings = func(body []byte) (auth.Caller, error) {
			err := x.reads(body)
			return x.said.Holder, err
		}
	}
	if err := s.admit(need, x.answer)(c); err != nil {
		return s.Door.OAuth(c, err)
	}
	return nil
}

func refused(code, detail string) *door.Problem {
	p := door.NewProblem(http.StatusBadRequest, detail)
	p.OAuth = code
	return p
}

func malformed(detail string) error { return refused("invalid_request", detail) }

func badDetails(detail string) error { return refused("invalid_authorization_details", detail) }

// reads reads the form, and verifies its tokens.
func (x *exchange) reads(body []byte) (err error) {
	if x.by == nil {
		return refused("unsupported_grant_type", "no tokens are exchanged here; the operator gives an issuer in auth.jwt the member exchange")
	}
	if x.form, err = url.ParseQuery(string(body)); err != nil {
		return malformed("the body is no form; send it URL-encoded")
	}
	for name, values := range x.form {
		if name != "audience" && name != "resource" && len(values) > 1 || !utf8.ValidString(name+strings.Join(values, "")) {
			return malformed("a parameter is given more than once, or is no UTF-8; send each once")
		}
	}
	get := x.form.Get
	switch {
	case get("grant_type") != exchangeGrant:
		return refused("unsupported_grant_type", "grant_type is not "+exchangeGrant+"; send that")
	case x.form.Has("client_secret") || x.form.Has("client_assertion") || x.form.Has("client_assertion_type"):
		return malformed("a client's credential is taken in Authorization alone, or by TLS; send it there")
	case x.c.Request().Header["Dpop"] != nil:
		return malformed("the capability is bound to the key in authorization_details, by the proof there; leave the header DPoP out")
	case get("scope") != "":
		return refused("invalid_scope", "a capability has no scope; name the tools in authorization_details")
	case get("requested_token_type") != "" && get("requested_token_type") != issuedType:
		return malformed("requested_token_type is not " + issuedType + "; send that, or leave it out")
	case get("subject_token") == "" || kinds[get("subject_token_type")] == nil:
		return malformed("subject_token is missing, or subject_token_type is none of access_token, id-jag and jwt below " + tokenTypes + "; send both")
	case x.form.Has("actor_token") != x.form.Has("actor_token_type") || x.form.Has("actor_token") && (get("actor_token") == "" || kinds[get("actor_token_type")] == nil):
		return malformed("actor_token and actor_token_type are given both or not at all, and the type is access_token, id-jag or jwt below " + tokenTypes)
	}
	presented := func(name string) auth.Presented {
		return auth.Presented{Token: get(name), Kinds: kinds[get(name+"_type")]}
	}
	x.said, err = x.by.Exchange(x.c.Request().Context(), presented("subject_token"), presented("actor_token"))
	if bad := (*auth.Refusal)(nil); errors.As(err, &bad) {
		x.server.Door.Options.Meters.Credential(bad.Credential)
		return malformed(bad.Detail)
	}
	x.read = err == nil
	return err
}

// target is the server whose tools are asked for.
func (x *exchange) target() (string, error) {
	targets := slices.Concat(x.form["audience"], x.form["resource"])
	if len(targets) != 1 || targets[0] == "" {
		return "", refused("invalid_target", "a capability is for one server; give one audience, or one resource")
	}
	if u, err := url.Parse(targets[0]); x.form.Has("resource") && (err != nil || !u.IsAbs() || strings.Contains(targets[0], "#")) {
		return "", refused("invalid_target", "resource is no absolute URI without a fragment; give one, or the server as audience")
	}
	return targets[0], nil
}

// asks makes the request for a capability that the form is, in a tenant.
func (x *exchange) asks(tenant string) (r broker.Request, err error) {
	audience, err := x.target()
	if err != nil {
		return r, err
	}
	limits := x.server.Door.Options.Limits
	list, err := evaluation.ParseWithNulls([]byte(`{"details":`+x.form.Get("authorization_details")+`}`), limits)
	all, _ := list.Get("details")
	if err != nil || list.Len() != 1 || all.Kind() != evaluation.Array || all.Len() != 1 {
		return r, badDetails("authorization_details is no JSON array of one object; a capability has one entry")
	}
	for _, one := range all.Elements {
		x.details = one.Object()
	}
	wanted, err := evaluation.NewObject(common(audience))
	if err != nil {
		return r, badDetails(err.Error())
	}
	for name, v := range wanted.All {
		if said, _ := x.details.Get(name); !said.Equal(v) {
			return r, badDetails("/" + name + " is another; type is " + detailsType + ", locations the audience or the resource alone, and actions " + detailsAction + " alone")
		}
	}
	holder, err := x.ref(x.said.Holder.Principal)
	if err != nil {
		return r, err
	}
	ask, err := evaluation.NewObject(map[string]any{
		"tenant_id": tenant, "audience": audience, "holder": map[string]any{"type": holder.Type, "id": holder.ID},
	})
	if err != nil {
		return r, err
	}
	for name, v := range x.details.All {
		switch name {
		case "type", "locations", "actions":
		case "datatypes":
			ask = ask.With("tools", v)
		case "arguments", "duration", "max_uses", "reason", "key", "proof", "approval_id":
			ask = ask.With(name, v)
		default:
			return r, badDetails("it has a member that is none of type, locations, actions, datatypes, arguments, duration, max_uses, reason, key, proof and approval_id; leave it out")
		}
	}
	text, err := ask.MarshalJSON()
	if err != nil {
		return r, err
	}
	if r.Ask, err = capability.DecodeAsk(text, limits); err != nil {
		if bad := (*evaluation.Error)(nil); errors.As(err, &bad) {
			return r, badDetails(strings.Replace(bad.Pointer, "/tools", "/datatypes", 1) + " " + bad.Detail)
		}
		return r, err
	}
	for _, jkt := range x.said.Keys {
		if jkt != r.Ask.Key.Thumbprint() {
			return r, malformed("a token is bound to another key; ask with the key that it is bound to")
		}
	}
	r.Person = strings.Join(x.said.Persons, " ")
	for _, p := range x.said.Behind {
		of, err := x.ref(p)
		if err != nil {
			return r, err
		}
		r.Behind = append(r.Behind, of)
	}
	return r, nil
}

// common are the members of an entry that are always the same.
func common(audience string) map[string]any {
	return map[string]any{"type": detailsType, "locations": []string{audience}, "actions": []string{detailsAction}}
}

// ref is how requests name a principal.
func (x *exchange) ref(p auth.Principal) (evaluation.Ref, error) {
	of, known := x.server.Broker.Ref(p.Type, p.ID)
	if !known {
		return of, malformed("the policies have no entities of a type that the issuer's tokens name; the operator compares auth.jwt with the policies")
	}
	return of, nil
}

// brings refuses a client that may not bring the tokens: one of another client, or of a principal that is not their holder.
func (x *exchange) brings(client *auth.Caller) error {
	kind, name, _ := strings.Cut(client.Name, ":")
	switch wanted := x.said.Client; {
	case wanted != "" && (kind != "key" && kind != "mtls" || name != wanted):
		return refused("invalid_client", "the token is for a client that this request does not come from; send the API key, or the certificate, whose name is the token's client_id")
	case client.Principal != (auth.Principal{}) && client.Principal != x.said.Holder.Principal:
		return refused("unauthorized_client", "this credential is of one principal, and brings tokens of that one alone")
	}
	return nil
}

// answer answers a request that was let in.
func (x *exchange) answer(c echo.Context, a door.Admitted) error {
	if !x.read { // a client's
		if err := x.reads(a.Body); err != nil {
			return err
		}
	}
	if err := x.brings(&a.Caller); err != nil {
		return err
	}
	if !x.said.Permits(a.Tenant) {
		return refused("unauthorized_client", "tokens of this issuer are not exchanged in this tenant; the operator lists it in auth.jwt")
	}
	r, err := x.asks(a.Tenant)
	if err != nil {
		return err
	}
	ctx, cancel := x.server.Door.Within(c)
	defer cancel()
	decision, granted, denied, err := x.server.Broker.Ask(ctx, asker(c, &a.Caller), r)
	if err != nil {
		return x.fails(err)
	}
	if decision != "" {
		c.Response().Header()["X-Decision-Id"] = []string{decision}
	}
	if granted == nil {
		return x.denied(denied)
	}
	if decision != "" { // else it was granted before, and counted
		x.server.Count(telemetry.Granted)
	}
	return x.granted(granted)
}

// fails is the error of a request that was not decided.
func (x *exchange) fails(err error) error {
	known := (*door.Problem)(nil)
	if errors.As(problem(err), &known) && known.Pointer != "" { // the proof's
		return badDetails(known.Pointer + ": " + known.Detail)
	}
	return err
}

// denied answers that nothing was granted. A request that waits for people comes again, with approval_id, once they have decided.
func (x *exchange) denied(why *broker.Denied) error {
	outcome, e := telemetry.Denied, door.NewOAuthError("access_denied", "the policies do not grant it")
	switch {
	case why.Approval != nil && why.Approval.ID != "":
		outcome = telemetry.Waiting
		e = door.NewOAuthError("authorization_pending", "people have to approve it; ask again with the id of approval as approval_id")
	case why.ReasonUser != "":
		e = door.NewOAuthError(e.Error, why.ReasonUser)
	}
	x.server.Count(outcome)
	return door.WriteJSON(x.c, http.StatusBadRequest, struct {
		door.OAuthError `json:",inline"`
		*broker.Denied  `json:",inline"`
	}{e, why})
}

// granted answers with the token. It is no access token of RFC 6749: it counts with a proof alone, which is not of DPoP.
func (x *exchange) granted(g *broker.Answer) error {
	said := common(g.Audience)
	said["datatypes"], said["duration"] = g.Tools, int(g.Expires.Sub(g.ValidFrom)/time.Second)
	if g.MaxUses > 0 {
		said["max_uses"] = g.MaxUses
	}
	details, err := evaluation.NewObject(said)
	if err != nil {
		return err
	}
	if arguments, given := x.details.Get("arguments"); given {
		details = details.With("arguments", arguments)
	}
	return door.WriteJSON(x.c, http.StatusOK, struct {
		Token       string              `json:"access_token"`
		Issued      string              `json:"issued_token_type"`
		Type        string              `json:"token_type"`
		ExpiresIn   int                 `json:"expires_in"`
		Details     []evaluation.Object `json:"authorization_details"`
		Obligations []broker.Owed       `json:"obligations,omitzero"`
	}{g.Token, issuedType, "N_A", max(1, int(g.Expires.Sub(x.server.Door.Options.Now())/time.Second)), []evaluation.Object{details}, g.Obligations})
}
