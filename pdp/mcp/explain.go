package mcp

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/gate"
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

// Explanation is what a gateway asks about a message before it lets it go on.
type Explanation struct {
	Method, Tenant string
	// Questions are in the order in which they are asked. There are none if the message goes on unasked, or is refused.
	Questions []Question
	// Refused says why nothing can be asked, nil if something can.
	Refused *Refused
}

// Question is one message to the PDP.
type Question struct {
	Mapping Mapping
	// Whole reports that it is the gateway's own and all of a call is in it: then people can be asked for their approval.
	Whole bool
	API   coaz.API
	// Path is where it goes at the PDP, and Body is its text, byte for byte.
	Path string
	Body jsontext.Value
	// Answers are the PDP's, one for each request that is in the question, if the PDP was asked.
	Answers []Answer
}

// Mapping is what a question is made by.
type Mapping struct {
	// Author is operator, built-in, binding or declared.
	Author string
	// Digest and Text are those of the mapping, and "" and nil if the author is built-in.
	Digest string
	Text   jsontext.Value
}

// Answer is what a PDP said. It permits nothing: nobody has done what it obliges to.
type Answer struct {
	Denied             bool
	Reason, ReasonUser string
	Obligations        []evaluation.Obligation
	Record             string // the id of the decision
	Err                error  // why there is no answer
}

// Refused is why a gateway refuses a message and asks nobody.
type Refused struct {
	Kind    string
	Code    int // of JSON-RPC, 0 if clients get the result of the tool instead
	Message string
	// In is where Pointer leads, "" if there is none. Expression is what stands there in a mapping, and Offset the byte in it.
	In                  Place
	Pointer, Expression string
	Offset              int
	Try                 string
}

// Place is what a pointer is into.
type Place string

// The places.
const (
	InMessage    Place = "message"
	InMapping    Place = "mapping"
	InDefinition Place = "definition" // of the tool
)

// Explain says what a gateway of this configuration asks about a message: by the same code that asks. It verifies no token
// and forwards nothing. If d has a transport the questions are asked by it, and are on the PDP's record; otherwise nobody is
// asked anything.
func Explain(ctx context.Context, c Config, d Deps, a Asked) (Explanation, error) {
	Form.SetDefaults(&c)
	if err := c.Check(); err != nil {
		return Explanation{}, err
	}
	to := &watched{next: d.Transport}
	if d = d.withDefaults(); to.next == nil {
		c.PDP = PDPConfig{Embedded: &EmbeddedConfig{}, Tenant: c.PDP.Tenant, Timeout: c.PDP.Timeout}
	}
	c.PDP.Breaker.Failures = mostQuestions // each question is asked, whatever became of those before
	d.Transport = to
	asker, err := c.asker(d, c.Obligations.promised())
	if err != nil {
		return Explanation{}, err
	}
	locked, err := c.readLock()
	if err != nil {
		return Explanation{}, err
	}
	if locked != nil && len(a.Tools) == 0 {
		a.Tools = Locked(*locked)
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
		q, err := c.pose(ctx, to, plan, n, &op)
		if err != nil {
			return x, err
		}
		x.Questions = append(x.Questions, q)
	}
	return x, nil
}

// Compile says of each tool why a gateway of this configuration neither lists nor calls it; nil if it does.
func Compile(c Config, tools []Tool) ([]error, error) {
	Form.SetDefaults(&c)
	c.PDP = PDPConfig{Embedded: &EmbeddedConfig{}, Tenant: c.PDP.Tenant, Timeout: c.PDP.Timeout, Breaker: c.PDP.Breaker}
	d := Deps{Transport: &watched{}}.withDefaults()
	asker, err := c.asker(d, c.Obligations.promised())
	if err != nil {
		return nil, err
	}
	all := make([]error, len(tools))
	for n, t := range tools {
		if _, all[n] = asker.Tool(t.Server, "", t.Definition, nil); all[n] != nil {
			continue
		}
		all[n] = c.readable(t)
	}
	return all, nil
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
		_, err = gate.Schema(locked, c.members())
	}
	return err
}

// mostQuestions is more than are asked about one message.
const mostQuestions = 1000

// pose has a question put, and watches what is sent.
func (c Config) pose(ctx context.Context, to *watched, plan ask.Plan, n int, op *ask.Operation) (q Question, err error) {
	to.path, to.body = "", nil
	answers := plan.Pose(ctx, n)
	if q.Path, q.Body = to.path, to.body; q.Body == nil {
		return q, fmt.Errorf("the question cannot be sent: %w; leave out of the message what makes it too large", answers[0].Err())
	}
	if q.API = coaz.Evaluation; strings.HasSuffix(q.Path, string(coaz.Evaluations)) {
		q.API = coaz.Evaluations
	}
	q.Mapping, q.Whole = c.mappingOf(plan.Source(n), op), plan.Whole(n)
	for _, u := range answers {
		if to.next != nil {
			q.Answers = append(q.Answers, Answer{u.Denied(), u.Reason(), u.ReasonUser(), u.Obligations(), u.ID(), u.Err()})
		}
	}
	return q, nil
}

// mappingOf is a mapping with the text that its author wrote.
func (c Config) mappingOf(s ask.Source, op *ask.Operation) Mapping {
	m := Mapping{Author: string(s.Author)}
	if s.Mapping == nil {
		return m
	}
	m.Digest = s.Mapping.Digest()
	switch s.Author {
	case ask.Operator:
		if op.Tool != nil {
			m.Text = jsontext.Value(c.Mappings[op.Method+" "+op.Tool.Server+":"+op.Tool.Name])
		}
		if m.Text == nil {
			m.Text = jsontext.Value(c.Mappings[op.Method])
		}
	case ask.BindingDefault:
		defaults, _ := rpc.ParseObject(jsontext.Value(coaz.Defaults)) // our own text
		m.Text = defaults.Get(op.Method)
	case ask.DeclaredMapping:
		definition, _ := rpc.ParseObject(op.Tool.Definition) // it was read when the tool was made
		m.Text = definition.GetObject("inputSchema").Without(func(name string) bool {
			return name != "x-authzen-mapping" && name != "x-coaz-mapping"
		}).Value()
	}
	return m
}
