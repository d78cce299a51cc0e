package authzenclient

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient/internal/link"
	"policy-service/obligations"
)

// This file alone knows Obligations Core and its Standard Types, as of 6 October 2026 (openid/authzen at 8491bc0d), for a PEP.
// Handlers get obligations as package obligations has them.

// custom is the type of every obligation that has no standard type. policy-service wraps its own types in it, as vendor, type
// and properties.
const (
	custom = "custom"
	vendor = "policy-service"
)

// adopt returns a context that declares types. It adopts the October drafts, unless the client speaks July's.
func (c *Client) adopt(context evaluation.Object, types []string) (evaluation.Object, error) {
	if _, err := evaluation.Texts(types); err != nil {
		return context, err
	}
	if !c.july {
		for n, typ := range types {
			types[n] = evaluation.October.Type(typ)
			// A PDP that advertises this type sends it, wrapped. Any other denies, and the PEP can request an approval.
			if typ == obligations.ApprovalRequired {
				types = append(types, typ)
			}
		}
		extensions, err := evaluation.Texts([]string{"obligations"})
		if err != nil {
			return context, err
		}
		context = context.With(evaluation.ExtensionsMember, extensions)
	} else {
		context = context.Without(func(name string) bool { return name == evaluation.ExtensionsMember })
	}
	slices.Sort(types)
	declared, err := evaluation.Texts(slices.Compact(types))
	return context.With(evaluation.SupportedMember, declared), err
}

// malformed begins the type of an obligation that cannot be read. No handler has such a type, so it is not executed, and denies.
const malformed = "malformed "

// owedInOctober reads the obligations of one place of an answer.
func owedInOctober(s said) ([]evaluation.Obligation, *Error) {
	var items []jsontext.Value
	var all []evaluation.Obligation
	switch {
	case link.Present(s.Details):
		return nil, odd("it has details of obligations in the native form")
	case len(s.Obligations) == 0:
		return nil, nil
	case s.Obligations.Kind() != '[' || json.Unmarshal(s.Obligations, &items) != nil || len(items) == 0:
		return []evaluation.Obligation{{Type: malformed + "obligations"}}, nil
	}
	for _, v := range items {
		o, ok := octoberObligation(v)
		if !ok {
			o.Type = malformed + o.Type
		}
		all = append(all, o)
	}
	return all, nil
}

// once returns each obligation once. If different obligations have the same id, that id is malformed.
func once(all []evaluation.Obligation) (single []evaluation.Obligation) {
	at := map[string]int{}
	for _, o := range all {
		first, known := at[o.ID]
		switch {
		case !known:
			at[o.ID] = len(single)
			single = append(single, o)
		case !same(single[first], o):
			single[first].Type = malformed + o.Type
		}
	}
	return single
}

func same(a, b evaluation.Obligation) bool {
	return a.ID == b.ID && a.Type == b.Type && a.Properties.Value().Equal(b.Properties.Value())
}

// octoberObligation reads one obligation, and reports whether it is well-formed. It ignores members beside id, type and
// properties.
func octoberObligation(v jsontext.Value) (o evaluation.Obligation, ok bool) {
	var i struct {
		ID         jsontext.Value `json:"id"`
		Type       jsontext.Value `json:"type"`
		Properties jsontext.Value `json:"properties"`
	}
	if v.Kind() != '{' || json.Unmarshal(v, &i) != nil {
		return o, false
	}
	o = evaluation.Obligation{ID: link.Text("", i.ID), Type: link.Text("", i.Type)}
	var members map[string]any
	bad := json.Unmarshal(i.Properties, &members, json.WithUnmarshalers(json.UnmarshalFromFunc(number)))
	properties, refused := evaluation.NewObject(members)
	if o.ID == "" || o.Type == "" || i.Properties.Kind() != '{' || bad != nil || refused != nil {
		return o, false
	}
	o.Properties = properties
	if maker, _ := properties.Get("vendor"); o.Type == custom && maker.Text() == vendor {
		typ, _ := properties.Get("type")
		within, _ := properties.Get("properties")
		if within.Kind() != evaluation.Map || len(members) != 3 || typ.Text() == "" || typ.Text() == custom || standardTypes[typ.Text()] != nil {
			return o, false
		}
		o.Type, o.Properties = typ.Text(), within.Object()
		return o, true
	}
	known := standardTypes[o.Type]
	if known == nil {
		return o, o.Type == custom
	}
	if len(members) != properties.Len() {
		return o, false // a member is null
	}
	for name, value := range properties.Members {
		if known[name] == nil || !known[name](value) {
			return o, false
		}
	}
	for _, name := range required[o.Type] {
		if _, has := properties.Get(name); !has {
			return o, false
		}
	}
	if to, _ := properties.Get("to"); o.Type == "notification" && to.Len() == 1 {
		for _, one := range to.Elements {
			o.Properties = properties.With("to", one)
		}
	}
	return o, true
}

// The properties of the standard types, and those that each must have.
var (
	standardTypes = map[string]map[string]func(evaluation.Value) bool{
		"notification":        {"to": func(v evaluation.Value) bool { return isTexts(v) && v.Len() > 0 }, "body": isText, "topic": isText},
		"session_termination": {"subject": isText},
		"step-up":             {"acr_value": isText, "amr_values": isTexts},
	}
	required = map[string][]string{"notification": {"to", "body"}, "session_termination": {"subject"}, "step-up": {"acr_value"}}
)

func isText(v evaluation.Value) bool { return v.Kind() == evaluation.String }

func isTexts(v evaluation.Value) bool {
	for _, one := range v.Elements {
		if !isText(one) {
			return false
		}
	}
	return v.Kind() == evaluation.Array
}

// unite adds the obligations of a second place of the answer. An obligation that both places have is owed once.
func (d *Decision) unite(more []evaluation.Obligation) {
	switch {
	case len(more) == 0: // many results can share the obligations of their page
		return
	case d.october:
		d.obligations = once(slices.Concat(d.obligations, more))
		return
	}
	text := func(o evaluation.Obligation) string {
		return string(o.Properties.AppendJSON(fmt.Appendf(nil, "%q %q ", o.ID, o.Type)))
	}
	first := map[string]bool{}
	for _, o := range d.obligations {
		first[text(o)] = true
	}
	for _, o := range more {
		if len(first) == 0 || !first[text(o)] {
			d.obligations = append(d.obligations, o)
		}
	}
}

// tellApart marks obligations as malformed if a page has different ones with the same id, because each id is executed once.
func tellApart(page []item) {
	var lists [][]evaluation.Obligation
	seen := map[*evaluation.Obligation]bool{}
	for _, i := range page {
		if owed := i.decision.obligations; len(owed) > 0 && !seen[&owed[0]] {
			seen[&owed[0]] = true
			lists = append(lists, owed)
		}
	}
	types := map[string]string{}
	for _, o := range once(slices.Concat(lists...)) {
		types[o.ID] = o.Type
	}
	for _, owed := range lists {
		for n := range owed {
			owed[n].Type = types[owed[n].ID]
		}
	}
}
