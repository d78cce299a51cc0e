package wire

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// AccessPolicy is 001's tool_access_policy: a participant names the agents that may use its tools. By itself it permits
// nothing: the operator of the PDP makes a declaration of it.
type AccessPolicy struct {
	// Envelope is the envelope around it, the zero one if there is none.
	Envelope Envelope
	// At is the JSON Pointer of the policy in the text.
	At string
	// Mode and Default are as they are sent. Default is "" if there is none.
	Mode, Default string
	Rules         []AccessRule
}

// AccessRule is a rule of an [AccessPolicy], its words as they are sent.
type AccessRule struct {
	Agent string
	// Tools are names, or [AllTools] alone.
	Tools []string
	// Expires is a time, "" for never.
	Expires          string
	RequiresApproval bool
	// Effect is not in 001: it says in the mode hybrid whether the rule allows or denies. It is "" if it is not sent.
	Effect string
}

// AllTools stands for all tools, in place of their names.
const AllTools = "*"

// ReadAccessPolicy reads a tool_access_policy: in its envelope, as the message of MCP that it is, as a payload by itself, or the
// policy alone. Its words are not interpreted. An unknown member is an error, in the envelope, too: a reader that passed
// over it could permit a call that it forbids. An error of package evaluation says where something is wrong.
func ReadAccessPolicy(text []byte) (p AccessPolicy, err error) {
	o, err := readObject(text)
	if err != nil {
		return p, err
	}
	var at []string
	var payload jsontext.Value
	switch {
	case o.Get("protocol") != nil:
		p.Envelope, err = aroundPolicy(o, text)
		at, payload = append(at, "payload"), p.Envelope.Payload
	case o.Get("jsonrpc") != nil:
		payload, err = asMessage(o)
		at = append(at, "params")
	}
	if err != nil {
		return AccessPolicy{}, err
	}
	if len(at) > 0 {
		if o, err = readObject(payload, at...); err != nil {
			return AccessPolicy{}, err
		}
	}
	if len(at) > 0 || o.Get("type") != nil {
		if o, err = inPayload(o, at); err != nil {
			return AccessPolicy{}, err
		}
		at = append(at, "policy")
	}
	for _, token := range at {
		p.At += "/" + token
	}
	if err = p.read(o, at); err != nil {
		return AccessPolicy{}, err
	}
	return p, nil
}

// aroundPolicy is the envelope of a policy.
func aroundPolicy(o object, text []byte) (e Envelope, err error) {
	if e, err = ReadEnvelope(text); err == nil {
		err = o.only(nil, envelopeNames...)
	}
	if err == nil && e.Kind != KindSystem {
		err = evaluation.Malformed("a "+typeAccess+" is of kind system", "", "kind")
	}
	return e, err
}

// asMessage is the payload of a policy that is a message of MCP.
func asMessage(o object) (payload jsontext.Value, err error) {
	said, err := o.wanted("jsonrpc")
	if err != nil {
		return nil, err
	}
	method, err := o.text("method")
	switch {
	case err != nil:
		return nil, err
	case said != version:
		return nil, evaluation.Malformed("no message of JSON-RPC 2.0", "", "jsonrpc")
	case method != MethodAccess:
		return nil, evaluation.Malformed("another message; what is read is "+MethodAccess, "", "method")
	case o.Get("id") != nil:
		return nil, evaluation.Malformed("a notification has none", "", "id")
	}
	return o.Get("params"), o.only(nil, "jsonrpc", "method", "params")
}

// inPayload is the policy that a payload has in it.
func inPayload(o object, at []string) (policy object, err error) {
	kind, err := o.wanted("type", at...)
	switch {
	case err != nil:
		return object{}, err
	case kind != typeAccess:
		return object{}, evaluation.Malformed("another message; what is read is "+typeAccess, "", append(at, "type")...)
	}
	if err := o.only(at, "type", "policy"); err != nil {
		return object{}, err
	}
	return readObject(o.Get("policy"), append(at, "policy")...)
}

// read reads the members of a policy.
func (p *AccessPolicy) read(o object, at []string) (err error) {
	if err = o.only(at, "mode", "default", "rules"); err != nil {
		return err
	}
	if p.Mode, err = o.wanted("mode", at...); err != nil {
		return err
	}
	if p.Default, err = o.text("default", at...); err != nil {
		return err
	}
	rules, err := o.elements("rules", "no array", at...)
	if err != nil {
		return err
	}
	for n, v := range rules {
		at := append(slices.Clone(at), "rules", strconv.Itoa(n))
		rule, err := readObject(v, at...)
		if err != nil {
			return err
		}
		r, err := readAccessRule(rule, at)
		if err != nil {
			return err
		}
		p.Rules = append(p.Rules, r)
	}
	return nil
}

func readAccessRule(o object, at []string) (r AccessRule, err error) {
	steps := []func() error{
		func() error { return o.only(at, "agent", "tools", "expires", "requires_approval", "effect") },
		func() (err error) { r.Agent, err = o.wanted("agent", at...); return },
		func() (err error) { r.Tools, err = o.tools(at); return },
		func() (err error) { r.Expires, err = o.text("expires", at...); return },
		func() (err error) { r.Effect, err = o.text("effect", at...); return },
		func() (err error) { r.RequiresApproval, err = o.truth("requires_approval", at); return },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return AccessRule{}, err
		}
	}
	return r, nil
}

// tools are the names of tools, or [AllTools].
func (o object) tools(at []string) (names []string, err error) {
	const want = `it must be an array of names, or "` + AllTools + `" for all tools`
	switch v := o.Get("tools"); string(v) {
	case "":
		return nil, evaluation.Malformed("missing; "+want, "", append(at, "tools")...)
	case `"` + AllTools + `"`:
		return []string{AllTools}, nil
	}
	all, err := o.elements("tools", want, at...)
	if err != nil {
		return nil, err
	}
	at = append(at, "tools")
	if len(all) == 0 {
		return nil, evaluation.Malformed("no tool; leave the rule out, or name some", "", at...)
	}
	for n, one := range all {
		name, err := textOf(one, append(slices.Clone(at), strconv.Itoa(n))...)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}
