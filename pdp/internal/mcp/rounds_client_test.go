package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// roundsClient is alice's agent at one gateway, in one era. Those of the legacy era at several gateways share a session.
type roundsClient struct{ *visitor }

// client comes to the gateway at a URL. Beside is one at another whose session it shares, nil if there is none.
func (s *setting) client(era, url string, beside *roundsClient) roundsClient {
	s.t.Helper()
	v := (&siege{t: s.t, url: url, issuer: s.issuer}).stranger(era, s.issuer.Token(s.t, nil))
	v.capabilities = `{"elicitation":{"form":{}}}`
	if beside == nil {
		v.begin()
	} else {
		v.session = beside.session
	}
	return roundsClient{v}
}

// wasAsked is what came of a request, as far as it is looked at.
type wasAsked struct {
	kind string
	// state and keys are what a client of the modern era comes again with. Of the legacy era id is the question's.
	state string
	keys  []string
	id    jsontext.Value
	// approval is the one that the form, or the error, is about.
	approval string
	text     string
}

func (a wasAsked) String() string { return fmt.Sprintf("%s: %.700s", a.kind, a.text) }

// roundsPatience is for what must come.
const roundsPatience = time.Minute

// readQuestion reads a question, of ours or of the server.
func readQuestion(params jsontext.Value) (kind, approval string) {
	var of struct {
		Message string `json:"message"`
		Meta    struct {
			Original struct {
				RequestID string `json:"requestId"`
			} `json:"originalRequest"`
		} `json:"_meta"`
	}
	if json.Unmarshal(params, &of) != nil {
		return "unreadable", ""
	}
	if strings.HasPrefix(of.Message, "[rec asks]") {
		return roundsInput, ""
	}
	return roundsForm, of.Meta.Original.RequestID
}

// readResponse reads a response.
func readResponse(text []byte) (a wasAsked) {
	a.text = string(text)
	var said struct {
		Result *struct {
			Type     string `json:"resultType"`
			State    string `json:"requestState"`
			Requests map[string]struct {
				Method string         `json:"method"`
				Params jsontext.Value `json:"params"`
			} `json:"inputRequests"`
			IsError bool `json:"isError"`
		} `json:"result"`
		Error *struct {
			Code int `json:"code"`
			Data struct {
				Request *struct {
					ID string `json:"id"`
				} `json:"authorizationRequest"`
			} `json:"data"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(text, &said); {
	case err != nil:
		a.kind = "unreadable: " + err.Error()
	case said.Error != nil && said.Error.Data.Request != nil:
		a.kind, a.approval = roundsRequired, said.Error.Data.Request.ID
	case said.Error != nil && said.Error.Code == -32603:
		a.kind = roundsAway
	case said.Error != nil:
		a.kind = roundsRefused
	case said.Result == nil:
		a.kind = "no response"
	case said.Result.Type == "input_required":
		a.state, a.kind = said.Result.State, roundsWait
		for key, r := range said.Result.Requests {
			a.keys = append(a.keys, key)
			a.kind, a.approval = readQuestion(r.Params)
		}
	case said.Result.IsError:
		a.kind = "a result that is an error"
	default:
		a.kind = roundsRan
	}
	return a
}

// call calls a tool with arguments, and with a state and an answer to all that was asked for it if there are some.
func (a roundsClient) call(ctx context.Context, tool, arguments string, with *wasAsked, answer string) (wasAsked, error) {
	params := `{"name":"` + tool + `","arguments":` + arguments + a.again(with, answer) + `}`
	e, err := a.try(ctx, http.MethodPost, a.text("tools/call", params), a.headers("tools/call", params)...)
	if err != nil {
		return wasAsked{kind: roundsGone, text: err.Error()}, nil
	}
	if e.finals != 1 {
		return wasAsked{}, fmt.Errorf("%d responses: %s", e.finals, e)
	}
	return readResponse(lastMessage(e.text)), nil
}

func lastMessage(text string) []byte {
	if n := strings.LastIndex(text, "\ndata: "); n >= 0 {
		text = text[n+len("\ndata: "):]
	}
	return []byte(strings.TrimSpace(strings.TrimPrefix(text, "data: ")))
}

// again is what a client brings that sends a request again.
func (a roundsClient) again(with *wasAsked, answer string) (members string) {
	if with == nil {
		return ""
	}
	if with.state != "" {
		members = `,"requestState":"` + with.state + `"`
	}
	if answer == "" {
		return members
	}
	var answers []string
	for _, key := range with.keys {
		answers = append(answers, `"`+key+`":`+answerOf(with.kind, answer))
	}
	return members + `,"inputResponses":{` + strings.Join(answers, ",") + `}`
}

// answerOf is what a person answers to a question of a kind: accept, decline or cancel.
func answerOf(kind, answer string) string {
	switch {
	case answer != "accept":
		return `{"action":"` + answer + `"}`
	case kind == roundsInput:
		return `{"action":"accept","content":{"name":"alice"}}`
	}
	return `{"action":"accept","content":{"approve":true}}`
}

// waitingCall is a call of the legacy era that is under way.
type waitingCall struct {
	at     int // the replica that has it
	said   chan wasAsked
	cancel context.CancelFunc
	asked  wasAsked // what it waits for
	round  int      // how often the server has asked
}

// begins calls a tool. What comes of it is said, question by question, until the response or the end of the connection.
func (a roundsClient) begins(tool, arguments string) *waitingCall {
	ctx, cancel := context.WithCancel(a.s.t.Context())
	w := &waitingCall{said: make(chan wasAsked, 64), cancel: cancel}
	go func() {
		defer close(w.said)
		got, err := a.reads(ctx, tool, arguments, func(id, params jsontext.Value) {
			q := wasAsked{id: id, text: string(params)}
			q.kind, q.approval = readQuestion(params)
			w.said <- q
		})
		last := wasAsked{kind: roundsGone, text: fmt.Sprint(err)}
		if got.finals > 0 {
			last = readResponse(lastMessage(got.text))
		}
		w.said <- last
	}()
	return w
}

// next is what comes next of a call.
func (w *waitingCall) next() (wasAsked, error) {
	select {
	case a := <-w.said:
		if w.asked = a; a.kind == roundsInput {
			w.round++
		}
		return a, nil
	case <-time.After(roundsPatience):
		return wasAsked{}, fmt.Errorf("nothing comes of the call")
	}
}

// answer POSTs the answer to what a call asks, so many times at once.
func (a roundsClient) answer(ctx context.Context, q wasAsked, answer string, times int) error {
	var all sync.WaitGroup
	errs := make(chan error, times)
	body := `{"jsonrpc":"2.0","id":` + string(q.id) + `,"result":` + answerOf(q.kind, answer) + `}`
	for range times {
		all.Go(func() {
			e, err := a.try(ctx, http.MethodPost, body, a.headers("", "")...)
			if err == nil && e.status != http.StatusAccepted && times == 1 {
				err = fmt.Errorf("an answer is answered %s", e)
			}
			errs <- err
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
