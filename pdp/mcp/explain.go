package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/spelling"
)

// Asked is a message as a client sends it, and for whom it is.
type Asked struct {
	Message []byte
	// Claims are those of a token, and empty with a fixed identity. Nothing about them is verified.
	Claims evaluation.Object
	// Tools are those that the servers have.
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
	API     coaz.API
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
	Code    int // of JSON-RPC
	Message string
	// InMapping reports that Pointer is into the mapping; otherwise it is into the message. Expression is what stands there
	// in the mapping, and Offset the byte in it.
	InMapping           bool
	Pointer, Expression string
	Offset              int
	Try                 string
}

// Explain says what a gateway of this configuration asks about a message: by the same code that asks. It verifies no token
// and forwards nothing. If d has a transport the questions are asked by it, and are on the PDP's record; otherwise nobody is
// asked anything.
func Explain(ctx context.Context, c Config, d Deps, a Asked) (Explanation, error) {
	form.SetDefaults(&c)
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
	op, refused, err := c.operation(asker, a)
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
	q.Mapping = c.mappingOf(plan.Source(n), op)
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

// operation is what a message asks for, and who.
func (c Config) operation(asker *ask.Asker, a Asked) (op ask.Operation, refused *Refused, err error) {
	who, err := c.whoAsks()
	if err != nil {
		return op, nil, err
	}
	if op.Principal, err = identity.Claimed(who, a.Claims); err != nil {
		return op, nil, fmt.Errorf("the claims: %w", err)
	}
	if len(a.Message) > int(c.Limits.MaxBody) {
		return op, unread(rpc.InvalidRequest, fmt.Sprintf("the message is larger than %d bytes (limits.max_body)", c.Limits.MaxBody)), nil
	}
	m, fault := rpc.Parse(a.Message, rpc.DefaultLimits())
	switch {
	case fault != nil:
		return op, unread(fault.Code, fault.Detail), nil
	case !m.IsRequest():
		return op, nil, errors.New("the message is an answer or a notification, about which a gateway asks nobody; give a request, such as tools/call")
	}
	if op.Params, err = paramsOf(m); err != nil {
		return op, nil, err
	}
	op.Method = m.Method
	if op.Params.GetObject("_meta").Get(era.MetaVersion) != nil {
		op.Era = era.Modern
		if meta, fault := era.ReadMeta(op.Params); fault != nil {
			return op, unread(fault.Code, fault.Message), nil
		} else if !slices.Contains(era.ModernVersions, meta.Version) {
			return op, unread(era.UnsupportedVersion, era.MetaVersion+" in params._meta is no revision that the gateway speaks"), nil
		}
	}
	return op, c.place(asker, &op, a.Tools), nil
}

func paramsOf(m rpc.Message) (rpc.Object, error) {
	if m.Params == nil {
		return rpc.Object{}, nil
	}
	return m.ParamsObject()
}

func unread(code int, what string) *Refused {
	return &Refused{Kind: "unreadable", Code: code, Message: what, Try: "write the message as a client sends it"}
}

// place finds the server that an operation is for, and its tool.
func (c Config) place(asker *ask.Asker, op *ask.Operation, tools []Tool) *Refused {
	for name := range c.Upstreams {
		op.Server = name
	}
	if op.Method != "tools/call" {
		return nil
	}
	name := op.Params.GetString("name")
	if size := len(op.Params.Get("arguments")); size > int(c.Limits.MaxArguments) {
		return &Refused{
			Kind: "invalid_params", Code: rpc.InvalidParams, Pointer: "/params/arguments",
			Message: fmt.Sprintf("the arguments are larger than %d bytes (limits.max_arguments)", c.Limits.MaxArguments), Try: "send less, or allow more there",
		}
	}
	var shown []string
	for _, t := range tools {
		definition, err := rpc.ParseObject(t.Definition)
		own := definition.GetString("name")
		if err != nil || own == "" || c.Upstreams[t.Server].Tools[own].Hidden {
			continue
		}
		if shown = append(shown, own); own != name {
			continue
		}
		tool, err := asker.Tool(t.Server, own, t.Definition, c.Upstreams[t.Server].Tools[own].Labels)
		if err != nil {
			return badTool(err)
		}
		op.Server, op.Tool = t.Server, tool
		return nil
	}
	r := refusedBy(ask.UnknownTool())
	r.Pointer, r.Try = "/params/name", "give the definition of the tool"
	if near, ok := spelling.Nearest(name, shown); ok {
		r.Try = "did you mean " + near + "?"
	}
	return r
}

// badTool is why a tool is neither listed nor callable.
func badTool(err error) *Refused {
	r := &Refused{Kind: string(ask.Unmapped), Code: rpc.InvalidParams, Message: "the tool is neither listed nor callable: " + err.Error(), Try: "mend the tool's definition, or set declared: ignore"}
	r.locate(err)
	return r
}

func refusedBy(r *ask.Refusal) *Refused {
	x := &Refused{Kind: string(r.Kind), Code: r.Code, Message: r.Message, Try: "a mapping for the method permits it to be asked about"}
	switch r.Kind {
	case ask.Unknown:
		x.Try = "write the method as MCP has it in the era of the message"
	case ask.Unmapped:
		x.Try = "mend the message"
	case ask.Unavailable:
		x.Message, x.Try = r.Why, "check pdp and identity in the configuration"
	}
	x.locate(r.Cause)
	return x
}

// locate says where an error is.
func (r *Refused) locate(err error) {
	var ofMapping *coaz.Error
	var ofMessage *evaluation.Error
	switch {
	case errors.As(err, &ofMapping):
		r.InMapping, r.Pointer, r.Expression, r.Offset = true, ofMapping.Pointer, ofMapping.Expression, ofMapping.Offset
		r.Try = "mend the mapping, or send what it reads"
	case errors.As(err, &ofMessage):
		r.Pointer, r.Try = ofMessage.Pointer, cmp.Or(ofMessage.Try, r.Try)
	}
}
