package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/lock"
)

// Asked is a message as a client sends it, and for whom it is.
type Asked struct {
	Message []byte
	// Claims are those of a token, and empty with a fixed identity. Nothing about them is verified.
	Claims evaluation.Object
	// Tools are those that the servers have. If there are none, they are those that are locked.
	Tools []Tool
}

// Tool is a tool of a server's, as the server defines it.
type Tool struct {
	Server     string
	Definition jsontext.Value
}

// Explanation has the questions of a gateway about a message, before it lets it go on.
type Explanation struct {
	Method, Tenant string
	// Questions are in the order in which they are asked. There are none if the message goes on unasked, or is refused.
	Questions []Question
	// Refused says why nothing can be asked, nil if something can.
	Refused *Refused
}

// Question is one message to the PDP.
type Question struct {
	// Author of the mapping that the question is made by: operator, built-in, binding or declared.
	Author string
	// Digest of the mapping, "" if the author is built-in.
	Digest string
	// Whole reports that the question is the gateway's own and has all of a call in it: then people can approve the call.
	Whole bool
	API   coaz.API
	// Path at the PDP, and Body, byte for byte.
	Path string
	Body jsontext.Value
}

// Refused is why a gateway refuses a message without a question.
type Refused struct {
	Kind    string
	Code    int // of JSON-RPC, 0 if clients get the result of the tool instead
	Message string
	// In is the text that Pointer leads into, "" for none. Expression stands there in a mapping.
	In, Pointer, Expression string
	Try                     string
}

// The texts that a pointer leads into.
const (
	InMessage    = "message"
	InMapping    = "mapping"
	InDefinition = "definition" // of the tool
)

// Explain makes the questions of a gateway of this configuration about a message, by the same code that asks. It verifies
// no token, forwards nothing and sends nothing.
func Explain(ctx context.Context, c Config, a Asked) (Explanation, error) {
	Form.SetDefaults(&c)
	if err := c.Check(); err != nil {
		return Explanation{}, err
	}
	caught := &caught{}
	asker, err := c.dry(caught)
	if err != nil {
		return Explanation{}, err
	}
	locked, err := c.readLock()
	if err != nil {
		return Explanation{}, err
	}
	if locked != nil && len(a.Tools) == 0 {
		a.Tools = toolsOf(*locked)
	}
	op, refused, err := c.operation(asker, a, locked)
	if err != nil || refused != nil {
		return Explanation{Method: op.Method, Refused: refused}, err
	}
	x := Explanation{Method: op.Method, Tenant: cmp.Or(op.Principal.Tenant, evaluation.DefaultTenant)}
	plan, refusal := asker.Plan(ctx, op)
	if refusal != nil {
		x.Refused = refusedBy(refusal)
		return x, nil
	}
	for n := range plan.Len() {
		caught.body = nil
		answers := plan.Pose(ctx, n)
		if caught.body == nil {
			return x, fmt.Errorf("the question cannot be sent: %w; leave out of the message what makes it too large", answers[0].Err())
		}
		q := Question{Author: string(plan.Source(n).Author), Whole: plan.Whole(n), API: coaz.Evaluation, Path: caught.path, Body: caught.body}
		if m := plan.Source(n).Mapping; m != nil {
			q.Digest = m.Digest()
		}
		if strings.HasSuffix(q.Path, string(coaz.Evaluations)) {
			q.API = coaz.Evaluations
		}
		x.Questions = append(x.Questions, q)
	}
	return x, nil
}

// dry makes an asker whose questions go nowhere.
func (c Config) dry(to http.RoundTripper) (*ask.Asker, error) {
	c.PDP = PDPConfig{Embedded: &EmbeddedConfig{}, Tenant: c.PDP.Tenant, Timeout: c.PDP.Timeout}
	c.PDP.Breaker.Failures = mostQuestions // no question gets an answer, and each of them is wanted
	return c.asker(Deps{Transport: to}.withDefaults(), c.Obligations.promised())
}

// mostQuestions is more than are asked about one message.
const mostQuestions = 1000

// caught is a transport that keeps the last request, and sends nothing.
type caught struct {
	path string
	body []byte
}

// RoundTrip implements [http.RoundTripper].
func (c *caught) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(r.Body)
	c.path, c.body = r.URL.Path, text
	return nil, errors.Join(err, r.Body.Close(), errors.New("the question is not sent"))
}

// Compile says of each tool why a gateway of this configuration neither lists nor calls it; nil if it does.
func Compile(c Config, tools []Tool) ([]error, error) {
	Form.SetDefaults(&c)
	asker, err := c.dry(&caught{})
	if err != nil {
		return nil, err
	}
	all := make([]error, len(tools))
	for n, t := range tools {
		if _, all[n] = asker.Tool(t.Server, "", t.Definition, nil); all[n] == nil {
			all[n] = c.readable(t)
		}
	}
	return all, nil
}

// Unjudged says why a gateway of this configuration does not hold the arguments of a locked tool against its inputSchema; nil
// if it does, or has no such tool.
func Unjudged(c Config, t lock.Tool) error {
	_, unjudged, _ := link.Schema(t, c.members())
	return unjudged
}

// readable is an error if the inputSchema of a tool cannot be used.
func (c Config) readable(t Tool) error {
	definition, err := rpc.ParseObject(t.Definition)
	if err == nil {
		_, err = era.HeaderParams(definition.Get("inputSchema"))
	}
	if err != nil {
		return err
	}
	locked, err := lock.ParseTool(t.Definition)
	if err == nil {
		_, _, err = link.Schema(locked, c.members())
	}
	return err
}
