package mcp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/internal/mcp"
)

// lines is a client over the standard streams.
type lines struct {
	t     testing.TB
	says  io.WriteCloser
	heard *bufio.Scanner
}

// stdio is a gateway with the same PDP that one client of alice's has over the standard streams.
func (w *world) stdio(t *testing.T, change func(*mcp.Config)) *lines {
	t.Helper()
	other := *w.siege
	other.config.Identity = mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice", ClientID: "agent-release", Issuer: w.issuer.URL}}
	other.deps.FixedToken = w.issuer.Token(t, nil)
	if change != nil {
		change(&other.config)
	}
	g, _ := other.beside()
	in, out := pipes(t, g)
	l := &lines{t, in, bufio.NewScanner(out)}
	l.say(`{"jsonrpc":"2.0","id":"begin","method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"x","version":"1"},"capabilities":{"elicitation":{}}}}`)
	l.hears(`"begin"`)
	return l
}

func (l *lines) say(text string) {
	l.t.Helper()
	_, err := io.WriteString(l.says, text+"\n")
	orFail(l.t, err)
}

func (l *lines) call(id, tool, arguments string) {
	l.t.Helper()
	l.say(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`)
}

// hears gives the next message, and its id; it fails unless there is a text in it.
func (l *lines) hears(want string) (id string, got echo) {
	l.t.Helper()
	if !l.heard.Scan() || !strings.Contains(l.heard.Text(), want) {
		l.t.Fatalf("heard %s, want %s: %v", l.heard.Text(), want, l.heard.Err())
	}
	var m struct {
		ID jsontext.Value `json:"id"`
	}
	orFail(l.t, json.Unmarshal(l.heard.Bytes(), &m))
	return string(m.ID), readAnswer(&http.Response{StatusCode: http.StatusOK}, slices.Clone(l.heard.Bytes()))
}

// What the PDP decides by an answer may be heard before the PDP has said so to who brought it: the client has answered all the
// same, and is not told to take away what it asked.
func TestApproveLegacyHeardFirst(t *testing.T) {
	t.Parallel()
	tap := newWiretap(t)
	over := make(chan struct{})
	defer close(over)
	w := newPeople(t, land{before: tap.before, serve: tap.serve})
	tap.answers(func(rw http.ResponseWriter, r *http.Request, _ []byte) bool {
		brings := strings.HasSuffix(r.URL.Path, "/response")
		if brings {
			said := httptest.NewRecorder()
			tap.proxy.ServeHTTP(said, r)
			<-over
			rw.WriteHeader(said.Code)
			_, _ = rw.Write(said.Body.Bytes())
		}
		return brings
	})
	l := w.stdio(t, nil)
	l.call("1", "confirm", `{}`)
	asked, _ := l.hears(`"elicitation/create"`)
	l.say(`{"jsonrpc":"2.0","id":` + asked + `,"result":` + saysYes + `}`)
	if _, got := l.hears(`"id":1`); endingOf(got) != itRuns {
		t.Errorf("%s", got)
	}
}

// If the streams end while people are asked, the call is given up.
func TestApproveLegacyStdioEnds(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	l := w.stdio(t, func(c *mcp.Config) { c.Approvals.OnDisconnect = mcp.DisconnectCancel })
	l.call("1", "confirm", `{}`)
	l.hears(`"elicitation/create"`)
	id := w.asks("confirm")
	orFail(t, l.says.Close())
	w.becomes(id, "cancelled")
	w.ran("confirm")
}

// withToken sends the token of alice's agent.
type withToken string

func (token withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultTransport.RoundTrip(r)
}

// A client of the SDK takes a form away if others have decided, and its session is as good as before.
func TestApproveLegacySDK(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	asked, taken := make(chan *sdk.ElicitParams, 1), make(chan error, 1)
	s := w.sdkClient("legacy", sdk.ClientOptions{ElicitationHandler: func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		asked <- r.Params
		<-ctx.Done()
		taken <- ctx.Err()
		return nil, ctx.Err()
	}})
	call := func(tool string) error {
		_, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: map[string]any{"n": 5}})
		return err
	}
	over := make(chan error, 1)
	go func() { over <- call("delegable") }()
	<-asked
	w.approve("mia", w.asks("delegable"))
	orFail(t, <-over)
	if err := <-taken; !errors.Is(err, context.Canceled) {
		t.Errorf("the form is taken away by %v", err)
	}
	w.ran("delegable", `{"n":5}`)
	orFail(t, call("free"))
}
