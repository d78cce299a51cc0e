package server

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/approval"
	"policy-service/pdp/server/door"
	"policy-service/pdp/visible"
)

// elicitParams are the parameters of elicitation/create. What is known besides stands in
// them twice: SDKs hand on _meta alone of what MCP does not name, and who read of these
// messages elsewhere look for metadata.
type elicitParams struct {
	Meta     elicitMeta `json:"_meta"`
	Message  string     `json:"message"`
	Schema   formSchema `json:"requestedSchema"`
	Metadata elicitMeta `json:"metadata"`
}

type elicitMeta struct {
	Type     string          `json:"elicitationType"`
	Timeout  int64           `json:"timeout"` // milliseconds
	Priority string          `json:"priority"`
	Original originalRequest `json:"originalRequest"`
}

type originalRequest struct {
	From      string            `json:"from"`
	Tool      string            `json:"tool"`
	Arguments evaluation.Object `json:"arguments"`
	RequestID string            `json:"requestId"`
	wholeRequest
}

// formSchema is what MCP has of JSON Schema: a flat object of primitive fields.
type formSchema struct {
	Type       string           `json:"type"`
	Properties map[string]field `json:"properties"`
	Required   []string         `json:"required"`
}

type field struct {
	Type        string         `json:"type"`
	Title       string         `json:"title,omitempty"`
	Description string         `json:"description,omitempty"`
	Enum        []string       `json:"enum,omitempty"`
	MaxLength   int            `json:"maxLength,omitzero"`
	Default     jsontext.Value `json:"default,omitzero"`
}

// elicitation answers GET /v1/approvals/:id/elicitation: a whole elicitation/create, for
// the MCP client of an approver.
func (s *Server) elicitation(c echo.Context) error {
	a, call, given, err := s.pendingCall(c, []string{"form"})
	if err != nil {
		return err
	}
	schema, err := s.form(given["form"], &call)
	if err != nil {
		return err
	}
	id, err := jsontext.AppendQuote(nil, a.ID)
	if err != nil {
		return err
	}
	meta := elicitMeta{Type: "tool_approval", Priority: "normal", Timeout: max(0, a.ExpiresAt.Sub(s.now()).Milliseconds())}
	meta.Original = originalRequest{From: call.requester, Tool: call.tool, Arguments: call.arguments, RequestID: a.Decision, wholeRequest: wholeOf(a)}
	return send(c, rpcMessage{Version: "2.0", ID: id, Method: "elicitation/create", Params: elicitParams{Meta: meta, Message: call.question(a), Schema: schema, Metadata: meta}})
}

// question is the text that a person reads. It has all that the approval would be for, in
// every form: not all clients show more than this and the fields, and what is cut nobody
// could approve. Each line is the service's own, whatever names and values it holds: they
// break no line, and a name that could be read as more than a name is in quotes.
func (t *toolCall) question(a approval.Approval) string {
	lines := []string{t.reason, t.asks(a)}
	if t.besides.Len() > 0 {
		lines = append(lines, "Besides: "+jsonText(t.besides.Value()))
	}
	if other := unbound(a); len(other) > 0 {
		names := make([]string, len(other))
		for n, name := range other {
			names[n] = word(name)
		}
		lines = append(lines, "May be otherwise when it is done: "+strings.Join(names, ", "))
	}
	if a.Terms.Uses > 1 {
		lines = append(lines, fmt.Sprintf("Once approved it may be done %d times", a.Terms.Uses))
	}
	for n, line := range lines {
		lines[n] = visible.Text(line)
	}
	return strings.Join(lines, "\n")
}

// asks says who asks for what, for whom, and where.
func (t *toolCall) asks(a approval.Approval) string {
	var b strings.Builder
	by := a.Subject
	if a.Agent != nil {
		by = *a.Agent
	}
	fmt.Fprintf(&b, "%s asks for %s on %s", words(by), word(a.Action), words(a.Resource))
	if a.Agent != nil {
		b.WriteString(" for " + words(a.Subject))
	}
	for n, one := range a.Chain {
		b.WriteString([]string{" on behalf of ", ", "}[min(n, 1)] + words(one))
	}
	if a.Tenant != evaluation.DefaultTenant {
		b.WriteString(" in tenant " + word(a.Tenant))
	}
	if t.given.Kind() != evaluation.Null {
		b.WriteString(" with " + jsonText(t.given))
	}
	return b.String()
}

// words are an entity in a sentence; of an agent that is named by its id alone there is
// no type.
func words(e evaluation.Ref) string {
	if e.Type != "" {
		return word(e.Type) + "/" + word(e.ID)
	}
	if strings.Contains(e.ID, "/") { // it would pass for a type and an id
		return quotes(e.ID)
	}
	return word(e.ID)
}

// word is a name in a sentence: in quotes, unless it can be nothing but one word.
func word(name string) string {
	other := func(r rune) bool {
		return r >= utf8.RuneSelf || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._:@/-", r)
	}
	if name == "" || strings.ContainsFunc(name, other) {
		return quotes(name)
	}
	return name
}

func quotes(text string) string {
	v, _ := evaluation.Text(text) // names are UTF-8
	return jsonText(v)
}

// form is what a person is to fill in. An approval is never what a field begins with.
func (s *Server) form(name string, call *toolCall) (formSchema, error) {
	f := formSchema{Type: "object", Properties: map[string]field{"reason": {Type: "string", Title: "Reason", MaxLength: s.config.Program.Limits.Detail}}}
	switch name {
	case "", "approve", "review":
		f.Properties["approve"] = field{Type: "boolean", Title: "Approve"}
		f.Required = []string{"approve"}
	case "choose":
		f.Properties["action"] = field{Type: "string", Title: "Decision", Enum: []string{"approve", "deny", "delegate"}}
		f.Properties["delegateTo"] = field{Type: "string", Title: "Delegate to", Description: `Who decides instead, as policies name them, such as User::"mia".`}
		f.Required = []string{"action"}
	default:
		return f, door.BadParameter("form", "is no form; give approve, choose or review")
	}
	if name == "review" {
		for argument, v := range call.arguments.Members {
			f.Properties[evaluation.ArgumentPrefix+argument] = argumentField(argument, v)
			f.Required = append(f.Required, evaluation.ArgumentPrefix+argument)
		}
	}
	slices.Sort(f.Required)
	return f, nil
}

// argumentField is the field of an argument.
func argumentField(argument string, v evaluation.Value) field {
	v = offered(v)
	kind := map[evaluation.Kind]string{evaluation.Bool: "boolean", evaluation.Number: "number", evaluation.String: "string"}[v.Kind()]
	if _, err := strconv.ParseInt(v.Text(), 10, 64); err == nil && v.Kind() == evaluation.Number {
		kind = "integer"
	}
	return field{Type: kind, Title: visible.Text(argument), Default: jsontext.Value(jsonText(v))}
}

// offered is a value as a field holds it: as it is, or as JSON text where it is an
// object, an array, or a number that many programs would round.
func offered(v evaluation.Value) evaluation.Value {
	switch v.Kind() {
	case evaluation.Bool, evaluation.String:
		return v
	case evaluation.Number:
		if exact(v) {
			return v
		}
	}
	text, _ := evaluation.Text(jsonText(v)) // which is UTF-8
	return text
}

// exact reports whether a number survives programs that know no others than floats.
func exact(v evaluation.Value) bool {
	f, err := strconv.ParseFloat(v.Text(), 64)
	if err != nil || math.Abs(f) > 1<<53 {
		return false
	}
	kept, err := evaluation.NewObject(map[string]any{"n": f})
	n, _ := kept.Get("n")
	return err == nil && equal(n, v)
}

func jsonText(v evaluation.Value) string {
	text, _ := v.MarshalJSON() // never fails
	return string(text)
}
