package sdkpep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/coaz"
)

// question has the requests of one message to the PDP.
type question []evaluation.Request

func (q question) ask(ctx context.Context, pdp *authzenclient.Client, types []string) []authzenclient.Undischarged {
	switch len(q) {
	case 0:
		return make([]authzenclient.Undischarged, 1) // no answer is a deny
	case 1:
		return []authzenclient.Undischarged{pdp.Decide(ctx, q[0], types)}
	}
	return pdp.DecideBatch(ctx, evaluation.DenyOnFirstDeny, types, q...)
}

func denied(answers []authzenclient.Undischarged) bool {
	return slices.ContainsFunc(answers, authzenclient.Undischarged.Denied)
}

// questions are those to the PDP about a message.
func (p *pep) questions(ctx context.Context, c call) ([]question, coaz.Dialect, *refusal) {
	op, err := operationOf(c)
	if err != nil {
		return nil, 0, mappingError(err)
	}
	mapping, err := p.mapping(ctx, c)
	switch {
	case err != nil:
		return nil, 0, mappingError(err)
	case mapping == nil:
		return nil, 0, unknownMethod()
	}
	asked, err := mapping.Questions(op)
	if err != nil {
		return nil, 0, mappingError(err)
	}
	for _, w := range asked.Warnings {
		p.log.WarnContext(ctx, w.Detail, "method", c.method, "mapping", mapping.Digest(), "at", w.Pointer)
	}
	all := questionsOf(asked)
	if c.method == "subscriptions/listen" && mapping == p.binding.Forgotten(c.method) {
		more, refusal := p.subscriptions(c, op)
		return append(all, more...), mapping.Dialect(), refusal
	}
	return all, mapping.Dialect(), nil
}

func questionsOf(asked coaz.Questions) (all []question) {
	for _, e := range asked.Envelopes {
		all = append(all, e.Requests)
	}
	return all
}

// subscriptions returns a listener's questions about resources: it hears of those that it could subscribe to.
func (p *pep) subscriptions(c call, op coaz.Operation) (all []question, _ *refusal) {
	listen, ok := c.request.GetParams().(*mcp.SubscriptionsListenParams)
	if !ok || listen == nil || listen.Notifications == nil {
		return nil, nil
	}
	// Each is a question: one message must not become any number of them.
	if most := coaz.DefaultLimits().Entries; len(listen.Notifications.ResourceSubscriptions) > most {
		return nil, mappingError(fmt.Errorf("more than %d resourceSubscriptions; listen once more for the others", most))
	}
	subscribe, _ := p.binding.Default("resources/subscribe")
	for _, uri := range listen.Notifications.ResourceSubscriptions {
		params, err := evaluation.NewObject(map[string]any{"uri": uri})
		if err != nil {
			return nil, mappingError(err)
		}
		asked, err := subscribe.Questions(coaz.Operation{Method: "resources/subscribe", Params: params, Token: op.Token})
		if err != nil {
			return nil, mappingError(err)
		}
		all = append(all, questionsOf(asked)...)
	}
	return all, nil
}

// operationOf is a message as its handler gets it.
func operationOf(c call) (op coaz.Operation, err error) {
	op.Method, op.Token = c.method, claimsOf(tokenOf(c.request))
	// Strictly: a member twice in a tool's arguments, or bytes that are no UTF-8, are refused here. Only members that are the
	// same as absent to the handler are left out, and empty arguments are not.
	text, err := json.Marshal(c.request.GetParams(), jsonv1.OmitEmptyWithLegacySemantics(true))
	if err != nil {
		return op, errors.New("the parameters are ambiguous: a member comes twice in them, or they are not valid UTF-8")
	}
	if jsontext.Value(text).Kind() == 'n' {
		return op, nil
	}
	op.Params, err = evaluation.ParseWithNulls(text, evaluation.DefaultLimits())
	return op, err
}

// mapping is the one that applies to a message, nil if there is none.
func (p *pep) mapping(ctx context.Context, c call) (*coaz.Mapping, error) {
	if params, ok := c.request.GetParams().(*mcp.CallToolParamsRaw); ok && params != nil {
		if m, err := p.declaredBy(ctx, c, params.Name); m != nil || err != nil {
			return m, err
		}
	}
	if m := p.methods[c.method]; m != nil {
		return m, nil
	}
	m, _ := p.binding.Default(c.method)
	return cmp.Or(m, p.binding.Forgotten(c.method)), nil
}

// declaredBy returns the mapping that a tool declares, nil if it declares none. A tool without a definition is an error: the
// default would be asked about in place of a declaration that nobody knows.
func (p *pep) declaredBy(ctx context.Context, c call, name string) (*coaz.Mapping, error) {
	if p.tools == nil {
		definition, err := listed(ctx, c, name)
		if err != nil {
			return nil, err
		}
		return p.declared.of(p.binding, name, definition)
	}
	definition, ok := p.tools(name)
	if own, _ := definition.Get("name"); !ok || own.Kind() != evaluation.String || own.Text() != name {
		return nil, errors.New("there is no definition of such a tool")
	}
	return p.declared.of(p.binding, name, definition)
}

// listed looks for a tool in the server's own list, as the caller would. It is an error if it is not there: another
// middleware may hide a tool from the caller that can be called, and its declaration would be unknown.
func listed(ctx context.Context, c call, name string) (o evaluation.Object, err error) {
	session, is := c.request.GetSession().(*mcp.ServerSession)
	if !is {
		return o, errors.New("the tools of the server cannot be listed")
	}
	for cursor := ""; ; {
		r := &mcp.ListToolsRequest{Session: session, Params: &mcp.ListToolsParams{Cursor: cursor}, Extra: c.request.GetExtra()}
		result, err := c.next(ctx, "tools/list", r)
		page, is := result.(*mcp.ListToolsResult)
		if err != nil || !is {
			return o, errors.New("the tools of the server cannot be listed")
		}
		for _, t := range page.Tools {
			if t.Name == name {
				return Definition(t)
			}
		}
		if page.NextCursor == "" || page.NextCursor == cursor {
			return o, errors.New("the server lists no such tool")
		}
		cursor = page.NextCursor
	}
}

// Definition is the part of a tool's definition, a [mcp.Tool] or its JSON, that maps its calls.
func Definition(tool any) (evaluation.Object, error) {
	text, err := json.Marshal(tool)
	if err != nil {
		return evaluation.Object{}, errors.New("the tool's definition is ambiguous, or no JSON")
	}
	var d struct {
		Name   jsontext.Value `json:"name"`
		Mark   jsontext.Value `json:"coaz,omitzero"`
		Schema struct {
			Mapping jsontext.Value `json:"x-authzen-mapping,omitzero"`
			Older   jsontext.Value `json:"x-coaz-mapping,omitzero"`
		} `json:"inputSchema"`
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return evaluation.Object{}, errors.New("the tool's definition has no name, or an inputSchema that is no object")
	}
	if text, err = json.Marshal(d); err != nil {
		return evaluation.Object{}, errors.New("the tool's definition is no JSON")
	}
	// A mapping that is null is malformed, and not one that is not there.
	return evaluation.ParseWithNulls(text, evaluation.DefaultLimits())
}

// mappings are the mappings that tools declare, compiled.
type mappings struct {
	mu  sync.Mutex
	all map[string]compiled
}

type compiled struct {
	definition evaluation.Object
	mapping    *coaz.Mapping
	err        error
}

func (m *mappings) of(b *coaz.Binding, name string, definition evaluation.Object) (*coaz.Mapping, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.all[name]
	if !ok || !known.definition.Same(definition) && !known.definition.Value().Equal(definition.Value()) {
		known = compiled{definition: definition}
		known.mapping, known.err = b.Parse(definition)
		if m.all == nil {
			m.all = map[string]compiled{}
		}
		m.all[name] = known
	}
	return known.mapping, known.err
}
