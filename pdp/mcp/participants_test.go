package mcp_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/mcp"
)

// Participants are clients by the official SDK: each says what the SDK has no name for by a custom method.

// sdkToolRequest and sdkToolRequested are tools/request and its answers.
type sdkToolRequest struct {
	sdk.ParamsBase
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
	Reason    string         `json:"reason,omitempty"`
	RequestID string         `json:"requestId,omitempty"`
}

type sdkToolRequested struct {
	sdk.ResultBase
	Status            string           `json:"status"`
	RequestID         string           `json:"requestId"`
	Content           []map[string]any `json:"content"`
	FulfilledBy       string           `json:"fulfilledBy"`
	OriginalRequester string           `json:"originalRequester"`
}

// sdkRespond and sdkResponded are authorization/respond and its answer.
type sdkRespond struct {
	sdk.ParamsBase
	AuthorizationID string `json:"authorizationId"`
	Decision        string `json:"decision"`
	Reason          string `json:"reason,omitempty"`
}

type sdkResponded struct {
	sdk.ResultBase
	AuthorizationID string `json:"authorizationId"`
	Status          string `json:"status"`
}

// sdkListens are the params of subscriptions/listen with a member that the SDK does not know.
type sdkListens struct {
	sdk.ParamsBase
	Notifications map[string]bool `json:"notifications"`
}

// participant is a client with a session.
type participant struct {
	t *testing.T
	*sdk.ClientSession
	heard chan string
}

// participant has a client come.
func (w *topic) participant(t *testing.T, era, id string) *participant {
	t.Helper()
	p := &participant{t: t, heard: make(chan string, 64)}
	client := sdk.NewClient(&sdk.Implementation{Name: id, Version: "1"}, &sdk.ClientOptions{
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) {}, // without it the SDK does not listen
	})
	orFail(t, sdk.AddSendingCustomMethod[*sdkToolRequest, *sdkToolRequested](client, "tools/request"))
	orFail(t, sdk.AddSendingCustomMethod[*sdkRespond, *sdkResponded](client, "authorization/respond"))
	client.AddSendingMiddleware(func(to sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
			if session, ok := r.GetSession().(*sdk.ClientSession); ok && method == "subscriptions/listen" {
				params := &sdkListens{Notifications: map[string]bool{"io.policy-service/authorization": true}}
				params.SetMeta(r.GetParams().GetMeta())
				r = &sdk.ClientRequest[*sdkListens]{Session: session, Params: params}
			}
			return to(ctx, method, r)
		}
	})
	version := ""
	if era == "legacy" {
		version = "2025-11-25"
	}
	var err error
	p.ClientSession, err = client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: w.replicas[0].url, HTTPClient: &http.Client{Transport: overhears{withToken(w.issuer.Token(t, claimsOf(id))), p.heard}}},
		&sdk.ClientSessionOptions{ProtocolVersion: version})
	orFail(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// hears gives the next message of a method, read into params.
func (p *participant) hears(method string, params any) {
	p.t.Helper()
	for {
		text := next(p.t, p.heard)
		var m struct {
			Method string         `json:"method"`
			Params jsontext.Value `json:"params"`
		}
		if json.Unmarshal([]byte(text), &m) == nil && m.Method == method {
			orFail(p.t, json.Unmarshal(m.Params, params, json.MatchCaseInsensitiveNames(true)))
			return
		}
	}
}

// overhears tells what comes on streams: the SDK drops notifications that it does not know.
type overhears struct {
	by    http.RoundTripper
	heard chan<- string
}

func (o overhears) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := o.by.RoundTrip(r)
	if err == nil && strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		answer.Body = &overheard{ReadCloser: answer.Body, heard: o.heard}
	}
	return answer, err
}

type overheard struct {
	io.ReadCloser
	line  []byte
	heard chan<- string
}

func (o *overheard) Read(b []byte) (int, error) {
	n, err := o.ReadCloser.Read(b)
	o.line = append(o.line, b[:n]...)
	for {
		line, rest, whole := bytes.Cut(o.line, []byte("\n"))
		if !whole {
			return n, err
		}
		if text, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			o.heard <- string(text)
		}
		o.line = rest
	}
}

// A restricted agent asks for a call, a privileged participant hears of it and makes it, and both have the result.
func TestParticipantsFulfil(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			w := newTopic(t, nil, fulfilledByUser1, "", "Operation completed", nil)
			agent, user := w.participant(t, era, "agent-a"), w.participant(t, era, "user-1")
			var welcome struct{ TokenType, ParticipantID string }
			for p, want := range map[*participant]string{agent: "restricted agent-a", user: "full user-1"} {
				if p.hears("notifications/welcome", &welcome); welcome.TokenType+" "+welcome.ParticipantID != want {
					t.Errorf("%s is welcome as %+v", want, welcome)
				}
			}

			over := make(chan *sdkToolRequested, 1)
			go func() {
				got, err := sdk.CallCustomMethod[*sdkToolRequest, *sdkToolRequested](t.Context(), agent.ClientSession, "tools/request",
					&sdkToolRequest{Name: "dangerous_operation", Arguments: map[string]any{"target": "staging"}, Reason: "Need to complete maintenance task"})
				if err != nil {
					t.Error(err)
				}
				over <- got
			}()
			var pending struct{ Requester, Target, Tool, Reason, RequestID string }
			user.hears("notifications/tools/request_pending", &pending)
			if pending.Requester != "agent-a" || pending.Target != "agent-b" || pending.Tool != "dangerous_operation" || pending.Reason != "Need to complete maintenance task" {
				t.Errorf("it hears %+v", pending)
			}
			w.untouched(t)
			got, err := user.CallTool(t.Context(), &sdk.CallToolParams{
				Meta: sdk.Meta{"io.policy-service/onBehalfOf": pending.Requester, "io.policy-service/requestId": pending.RequestID},
				Name: pending.Tool, Arguments: map[string]any{"target": "staging"},
			})
			orFail(t, err)
			if got.IsError || got.Meta["io.policy-service/fulfilledBy"] != "user/user-1" || got.Meta["io.policy-service/originalRequester"] != "agent/agent-a" {
				t.Errorf("who fulfils it has %+v", got)
			}
			if got := next(t, over); got == nil || got.FulfilledBy != "user-1" || got.OriginalRequester != "agent-a" || len(got.Content) != 1 || got.Content[0]["text"] != "Operation completed" {
				t.Errorf("who asked for it has %+v", got)
			}
			w.reached("dangerous_operation", `{"target":"staging"}`)
		})
	}
}

// An approver hears what waits for people, and answers while the call of an agent waits.
func TestParticipantsApprove(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			w := newTopic(t, nil, approvedByUser1, asksUser1, "Operation completed successfully", func(c *mcp.Config) { c.Approvals.Channels = []string{"form", "wait"} })
			agent, user := w.participant(t, era, "agent-a"), w.participant(t, era, "user-1")
			says := func(target, decision, status string) (got *sdk.CallToolResult, failed error) {
				t.Helper()
				over := make(chan struct{})
				go func() {
					defer close(over)
					got, failed = agent.CallTool(t.Context(), &sdk.CallToolParams{Name: "dangerous_operation", Arguments: map[string]any{"target": target}})
				}()
				var asked struct {
					ID, Tool, Requester string
					Arguments           map[string]string
				}
				user.hears("notifications/authorization/request", &asked)
				if asked.Tool != "dangerous_operation" || asked.Requester != "agent-a" || asked.Arguments["target"] != target {
					t.Errorf("it hears %+v", asked)
				}
				is, err := sdk.CallCustomMethod[*sdkRespond, *sdkResponded](t.Context(), user.ClientSession, "authorization/respond", &sdkRespond{AuthorizationID: asked.ID, Decision: decision, Reason: "as agreed"})
				orFail(t, err)
				if is.AuthorizationID != asked.ID || is.Status != status {
					t.Errorf("it is told %+v", is)
				}
				<-over
				return got, failed
			}
			if got, err := says("production", "approve", "approved"); err != nil || got.IsError {
				t.Errorf("%+v, %v", got, err)
			}
			if got, err := says("staging", "deny", "denied"); err == nil || !strings.Contains(err.Error(), "denied") {
				t.Errorf("%+v, %v", got, err)
			}
			w.reached("dangerous_operation", `{"target":"production"}`)
		})
	}
}
