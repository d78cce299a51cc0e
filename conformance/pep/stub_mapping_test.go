package pep

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// How the stub makes questions of messages.

// template is a mapping on its way: which envelope, and what stands in it.
type template struct {
	envelope string
	body     any
	sep      bool
}

// stubDefaults are the binding's default mappings: action.name is the method.
func stubDefault(method string) (template, bool) {
	typ, id := "mcp_server", "$token.aud"
	context := object{"agent": "$token.?client_id"}
	switch method {
	case "initialize":
		context["protocol_version"] = "$params.protocolVersion"
	case "logging/setLevel":
		context["level"] = "$params.level"
	case "tools/list", "resources/list", "prompts/list", "tasks/list":
	case "tools/call":
		typ, id = "tool", "$params.name"
	case "prompts/get":
		typ, id = "prompt", "$params.name"
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		typ, id = "resource", "$params.uri"
	case "tasks/get", "tasks/result", "tasks/cancel":
		typ, id = "task", "$params.taskId"
	case "completion/complete":
		typ, id = "$params.ref.type == 'ref/prompt' ? 'prompt' : 'resource'", "$params.ref.type == 'ref/prompt' ? params.ref.name : params.ref.uri"
	default:
		return template{}, false
	}
	return template{envelope: "evaluation", body: object{
		"subject": object{"type": "identity", "id": "$token.sub"}, "context": context,
		"action": object{"name": method}, "resource": object{"type": typ, "id": id},
	}}, true
}

// template selects the mapping of a message.
func (s *stub) template(method string, params any) (template, error) {
	name, _ := member(params, "name").(string)
	if tool := s.tools[name]; method == "tools/call" && tool != nil {
		schema, _ := tool["inputSchema"].(object)
		mapping, declared := schema["x-authzen-mapping"]
		if declared && !s.wrong["ignores declared mappings"] {
			return s.declared(mapping)
		}
		if _, there := tool["coaz"]; there && !s.wrong["does not know the old dialect"] {
			return s.old(name, schema["x-coaz-mapping"])
		}
	}
	t, ok := stubDefault(method)
	if !ok && method == "completion/complete" && s.wrong["asks completions about the server"] {
		t, ok = stubDefault("tools/list")
	}
	if s.wrong["asks completions about the server"] && method == "completion/complete" {
		t.body.(object)["resource"] = object{"type": "mcp_server", "id": "$token.aud"}
	}
	switch {
	case ok:
		return t, s.anchored(&t, t.body.(object))
	case s.wrong["lets unknown methods through"]:
		return template{}, nil
	}
	return t, errDenied
}

// declared is a mapping that a tool declares, if it is one.
func (s *stub) declared(mapping any) (t template, err error) {
	o, ok := mapping.(object)
	if s.wrong["takes the first envelope"] && len(o) > 1 {
		o = object{"evaluation": o["evaluation"]}
	}
	if !ok || len(o) != 1 {
		return t, mappingError("the mapping has not exactly one envelope")
	}
	for t.envelope, t.body = range o {
	}
	if s.wrong["passes over unknown envelopes"] && t.envelope == "search" {
		t.envelope = "evaluation"
	}
	body, ok := t.body.(object)
	if !ok || t.envelope != "evaluation" && t.envelope != "evaluations" {
		return t, mappingError("unknown envelope")
	}
	entries, there := body["evaluations"]
	list, isList := entries.([]any)
	if t.envelope == "evaluation" && there || t.envelope == "evaluations" && (!isList || len(list) == 0 && !s.wrong["takes no entries for a permit"]) {
		return t, mappingError("evaluations is no list of entries")
	}
	for _, e := range list {
		if member(e, "subject") != nil && !s.wrong["takes subjects in entries"] {
			return t, mappingError("a subject in an entry")
		}
	}
	return t, s.anchored(&t, body)
}

// anchored supplies what the mapping leaves out of the subject, and reads $token.sub as the claim that names it.
func (s *stub) anchored(t *template, body object) error {
	subject, there := body["subject"]
	o, isObject := subject.(object)
	if !there && !s.wrong["supplies no subject"] {
		o, isObject = object{}, true
	}
	if !isObject {
		return nil // it is an expression, or nothing
	}
	o = maps.Clone(o)
	if o["id"] == "$token.sub" && s.wrong["knows no subject claim but sub"] {
		return nil
	}
	if _, there := o["id"]; !there || o["id"] == "$token.sub" {
		o["id"] = "$token." + s.claim
	}
	if _, there := o["type"]; !there && !s.wrong["supplies no subject type"] {
		o["type"] = "identity"
	}
	t.body = with(body, object{"subject": o})
	return nil
}

// authorize is nil if a message may have its effect.
func (s *stub) authorize(method string, params any, claims object) error {
	if s.wrong["asks nobody"] {
		return nil
	}
	key := method + show(params)
	s.mu.Lock()
	known := s.permits[key]
	s.mu.Unlock()
	if known && s.wrong["remembers permits"] {
		return nil
	}
	err := s.decide(method, params, claims)
	s.mu.Lock()
	s.permits[key] = err == nil
	s.mu.Unlock()
	return err
}

// decide asks what the mapping of a message says.
func (s *stub) decide(method string, params any, claims object) error {
	t, err := s.template(method, params)
	if err != nil || t.body == nil {
		return err
	}
	body, err := s.resolve(t, params, claims)
	if err != nil {
		if s.wrong["asks the default where a mapping fails"] {
			t, _ = stubDefault(method)
			body, err = s.resolve(t, params, claims)
		}
		if err != nil {
			return err
		}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return mappingError("no JSON")
	}
	count := max(len(complete(body, t.envelope == "evaluations")), 1)
	switch {
	case s.wrong["asks everything at evaluations"]:
		return s.ask("evaluations", text, count)
	case (s.wrong["asks one by one"] || s.wrong["asks one by one, the last first"]) && t.envelope == "evaluations":
		return s.askEach(body)
	}
	if s.wrong["asks twice"] {
		_ = s.ask(t.envelope, text, count)
	}
	err = s.ask(t.envelope, text, count)
	if err == errUnavailable && t.envelope == "evaluations" && s.wrong["asks the first alone without batches"] {
		return s.askEach(with(body, object{"evaluations": body["evaluations"].([]any)[:1]}))
	}
	if err == errDenied && t.sep {
		return refusal{200, -32401, "denied"}
	}
	return err
}

func (s *stub) askEach(body object) error {
	all := complete(body, true)
	if s.wrong["asks one by one, the last first"] {
		slices.Reverse(all)
	}
	for _, q := range all {
		text, err := json.Marshal(q)
		if err != nil {
			return mappingError("no JSON")
		}
		if err := s.ask("evaluation", text, 1); err != nil {
			return err
		}
		if s.wrong["asks the first of a batch only"] {
			return nil
		}
	}
	return nil
}

// resolve makes the request of a template.
func (s *stub) resolve(t template, params any, claims object) (object, error) {
	e := &evaluator{stub: s, params: params, claims: claims, sep: t.sep}
	v, err := e.value(t.body)
	if err != nil {
		return nil, err
	}
	body := v.(object)
	if list, ok := t.body.(object)["evaluations"].([]any); ok {
		if resolved, _ := body["evaluations"].([]any); len(resolved) != len(list) {
			return nil, mappingError("another number of entries")
		}
	}
	if t.envelope == "evaluation" && s.wrong["fans out over lists"] {
		if ids, ok := member(body, "resource", "id").([]any); ok {
			body["resource"].(object)["id"] = ids[0]
		}
	}
	for _, q := range complete(body, t.envelope == "evaluations") {
		if err := s.possible(q, t, claims); err != nil {
			return nil, err
		}
	}
	return s.changed(body), nil
}

// changed makes the question what a faulty PEP asks.
func (s *stub) changed(body object) object {
	context, _ := body["context"].(object)
	if s.wrong["adds the arguments"] {
		body = with(body, object{"context": with(object{"arguments": object{}}, context)})
	}
	if s.wrong["adds a member"] {
		body = with(body, object{"arguments": object{}})
	}
	if s.wrong["wants the first permit alone"] {
		body = with(body, object{"options": object{"evaluations_semantic": "permit_on_first_permit"}})
	}
	if s.wrong["leaves the context out"] {
		body = with(body, object{"context": nil})
	}
	if s.wrong["asks about an agent that is the user"] && context["agent"] != nil {
		body = with(body, object{"context": with(context, object{"agent": alice})})
	}
	return body
}

// possible holds one question to the Authorization API, and its subject to the token.
func (s *stub) possible(q object, t template, claims object) error {
	for _, path := range []string{"subject type", "subject id", "action name", "resource type", "resource id"} {
		entity, name, _ := strings.Cut(path, " ")
		o, _ := q[entity].(object)
		if _, ok := o[name].(string); !ok && !s.wrong["asks whatever comes out"] {
			return mappingError("no %s", path)
		}
		for other := range o {
			if !slices.Contains([]string{"type", "id", "name", "properties"}, other) && !s.wrong["takes siblings of id"] {
				return mappingError("%s beside %s", other, path)
			}
		}
	}
	if context, there := q["context"]; there && !isObject(context) && !s.wrong["asks whatever comes out"] {
		return mappingError("context is no object")
	}
	if anchor := s.anchor(t, claims); member(q, "subject", "id") != anchor && !s.wrong["does not anchor the subject"] {
		return mappingError("the subject is not the token's")
	}
	return nil
}

func (s *stub) anchor(t template, claims object) any {
	if t.sep {
		return claims["sub"]
	}
	return claims[s.claim]
}

func isObject(v any) bool { _, ok := v.(object); return ok }

// value resolves a template: every string is a leaf, at any depth.
func (e *evaluator) value(v any) (any, error) {
	switch v := v.(type) {
	case object:
		all := object{}
		for name, inner := range v {
			resolved, err := e.value(inner)
			if err == errAbsent {
				if e.stub.wrong["writes null for absent"] {
					all[name] = nil
				}
				continue
			}
			if err != nil {
				return nil, err
			}
			if resolved == nil && e.stub.wrong["leaves nulls out"] {
				continue
			}
			all[name] = resolved
		}
		return all, nil
	case []any:
		all := []any{}
		for _, inner := range v {
			resolved, err := e.value(inner)
			if err == errAbsent {
				continue
			}
			if err != nil {
				return nil, err
			}
			all = append(all, resolved)
		}
		return all, nil
	case string:
		return e.leaf(v)
	}
	return v, nil
}

func (e *evaluator) leaf(text string) (any, error) {
	switch {
	case e.sep && strings.HasPrefix(text, "$"):
		return e.path(text)
	case e.sep || !strings.HasPrefix(text, "$"):
		return text, nil
	case strings.HasPrefix(text, "$$") && !e.stub.wrong["does not know $$"]:
		return text[1:], nil
	case text == "$token.aud" && e.aud() != nil:
		return e.aud(), nil
	}
	v, err := e.cel(text[1:])
	if err != nil && err != errAbsent && e.stub.wrong["quotes values"] {
		return nil, mappingError("%s of %s", text, fmt.Sprint(e.params))
	}
	if err != nil && err != errAbsent && e.stub.wrong["takes a failed expression for absent"] {
		return nil, errAbsent
	}
	return v, err
}

// aud is this server, where the default mappings say $token.aud; a declared mapping gets the claim as it is.
func (e *evaluator) aud() any {
	if list, ok := e.claims["aud"].([]any); ok && e.stub.wrong["sends aud as a list"] {
		return list
	}
	if member(e.params, "name") == nil {
		return e.stub.resource
	}
	return nil
}
