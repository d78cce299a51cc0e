package server

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/approval"
	"policy-service/pdp/server/door"
	"policy-service/pdp/visible"
)

// rpcMessage is a message of JSON-RPC 2.0, ready to send.
type rpcMessage struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitzero"` // a notification has none
	Method  string         `json:"method,omitempty"`
	Params  any            `json:"params,omitempty"`
	Error   *rpcError      `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data"`
}

// The codes of an answer to a call that waits for a person, and to one that is not to be.
const (
	authorizationRequired = -32001
	authorizationDenied   = -32002
)

// authorization is what is asked in the words of MCP: a tool that somebody wants to call.
type authorization struct {
	ID        string            `json:"id"`
	Tool      string            `json:"tool"`
	Arguments evaluation.Object `json:"arguments"`
	Requester string            `json:"requester"`
	Reason    string            `json:"reason"`
	ExpiresAt time.Time         `json:"expiresAt"`
	// Message is all of it as a person reads it.
	Message string `json:"message"`
	wholeRequest
}

// wholeRequest is what an approval is for: a tool, its arguments and who calls it are a
// part of that.
type wholeRequest struct {
	// Request is what is asked, masked, and Unbound what of it may be otherwise when it
	// is done.
	Request jsontext.Value `json:"request"`
	Unbound []string       `json:"unbound,omitempty"`
}

func wholeOf(a approval.Approval) wholeRequest { return wholeRequest{a.Shown, unbound(a)} }

// refusedCall is why a call is not to be.
type refusedCall struct {
	ID     string `json:"authorizationId"`
	Reason string `json:"reason"`
}

// authorizationRequest answers GET /v1/approvals/:id/authorization-request: what a gateway
// answers the call with, as long as nobody approved it.
func (s *Server) authorizationRequest(c echo.Context) error {
	a, given, err := s.asked(c, []string{"call"})
	if err != nil {
		return err
	}
	m := rpcMessage{Version: "2.0"}
	if m.ID, err = callID(given["call"], a.ID); err != nil {
		return err
	}
	switch a.Status {
	case approval.Pending:
		call, err := toolCallOf(a)
		if err != nil {
			return err
		}
		m.Error = &rpcError{authorizationRequired, "authorization required", struct {
			Request authorization `json:"authorizationRequest"`
		}{call.authorization(a)}}
	case approval.Approved, approval.UsedUp:
		return otherState(a)
	default:
		m.Error = &rpcError{authorizationDenied, "authorization " + string(a.Status), refusedCall{a.ID, whyNot(a)}}
	}
	return send(c, m)
}

// callID is the id of the call that is answered, so that whoever called knows: as JSON.
func callID(text, otherwise string) (jsontext.Value, error) {
	if text == "" {
		return jsontext.AppendQuote(nil, otherwise)
	}
	id := jsontext.Value(text)
	_, err := strconv.ParseInt(text, 10, 64)
	if !id.IsValid() || id.Kind() != '"' && err != nil {
		return nil, door.BadParameter("call", "is no id of JSON-RPC; give a whole number, or a string in double quotes")
	}
	return id, nil
}

// whyNot is why it came to nothing: what the person said who denied it.
func whyNot(a approval.Approval) string {
	if a.Status == approval.Denied {
		return a.Votes[len(a.Votes)-1].Reason
	}
	return map[approval.Status]string{
		approval.Expired:   "its time was up",
		approval.Cancelled: "whoever asked no longer wants it",
		approval.Revoked:   "an approver took it back",
	}[a.Status]
}

// authorizationNotification answers GET /v1/approvals/:id/authorization-notification.
func (s *Server) authorizationNotification(c echo.Context) error {
	a, call, _, err := s.pendingCall(c, door.NoParameters)
	if err != nil {
		return err
	}
	return send(c, rpcMessage{Version: "2.0", Method: "notifications/authorization/request", Params: call.authorization(a)})
}

// pendingCall is the call that waits for the approval that a request names.
func (s *Server) pendingCall(c echo.Context, known []string) (a approval.Approval, call toolCall, given map[string]string, err error) {
	if a, given, err = s.asked(c, known); err != nil {
		return a, call, nil, err
	}
	if a.Status != approval.Pending {
		return a, call, nil, otherState(a)
	}
	call, err = toolCallOf(a)
	return a, call, given, err
}

// asked is the approval request that a request names, where whoever asks may see it.
func (s *Server) asked(c echo.Context, known []string) (a approval.Approval, given map[string]string, err error) {
	v, err := s.approver(c, door.Need{Parameters: known})
	if err != nil {
		return a, nil, err
	}
	if a, _, err = v.find(c.Request().Context(), c.Param("id")); err != nil {
		return a, nil, approvalProblem(err)
	}
	return a, v.Given, nil
}

func otherState(a approval.Approval) error {
	return approvalProblem(&approval.StateError{Status: a.Status, Version: a.Version})
}

func send(c echo.Context, m rpcMessage) error {
	body, err := marshal(m)
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, body)
}

// toolCall is an approval request as the call of a tool, with what approvers are shown
// of its arguments.
type toolCall struct {
	tool, requester, reason string
	arguments               evaluation.Object
	// given are the arguments in whatever form they came, besides what else was sent.
	given   evaluation.Value
	besides evaluation.Object
}

// toolCallOf reads what was filed. That was within the limits of the form in which it was
// asked, and may be beyond them as it is shown: a native request is shown in another.
func toolCallOf(a approval.Approval) (toolCall, error) {
	n := len(a.Shown)
	shown, err := evaluation.ParseObject(a.Shown, evaluation.Limits{Body: n, Depth: n, Elements: n, NestedElements: n, ArrayDepth: n, Values: n})
	if err != nil { // it is not what was sent now that is wrong: no error of a body
		return toolCall{}, fmt.Errorf("the request of an approval cannot be read: %v", err)
	}
	about, _ := shown.Get("context")
	given, _ := about.Object().Get("arguments")
	besides := evaluation.Object{}
	for _, part := range []string{"action", "resource", "subject"} {
		one, _ := shown.Get(part)
		if sent, _ := one.Object().Get("properties"); sent.Len() > 0 {
			besides = besides.With(part, sent)
		}
	}
	rest := about.Object().Without(func(name string) bool { return name == "arguments" || evaluation.NamesActors(name) })
	if rest.Len() > 0 {
		besides = besides.With("context", rest.Value())
	}
	t := toolCall{tool: a.Resource.ID, requester: spelt(a.Subject), reason: cmp.Or(a.Terms.Message, "a person must approve this call"), arguments: given.Object(), given: given, besides: besides}
	if a.Agent != nil {
		t.requester = spelt(*a.Agent)
	}
	return t, nil
}

// spelt is an entity as text; of an agent that is named by its id alone there is no type.
func spelt(e evaluation.Ref) string {
	if e.Type == "" {
		return e.ID
	}
	return e.Type + "/" + e.ID
}

func (t *toolCall) authorization(a approval.Approval) authorization {
	return authorization{ID: a.ID, Tool: t.tool, Arguments: t.arguments, Requester: t.requester, Reason: visible.Text(t.reason), ExpiresAt: a.ExpiresAt, Message: t.question(a), wholeRequest: wholeOf(a)}
}
