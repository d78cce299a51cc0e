package authzenclient

import (
	"cmp"
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

// The members of a context by which a PEP adopts the drafts, and declares what it can discharge.
const (
	extensionsMember = "supported_mandatory_extensions"
	supportedMember  = "supported_obligations"
)

// ofVendor are the types of obligations that a PDP of ours sends as custom.
var ofVendor = []string{obligations.ApprovalRequired, obligations.CapabilityTerms, "log", "redact"}

const vendor = "policy-service"

// adopt declares types, and adopts October's drafts unless the client speaks July's.
func (c *Client) adopt(context evaluation.Object, types []string) (evaluation.Object, error) {
	if !c.july {
		for n, typ := range types {
			if !slices.Contains(ofVendor, typ) {
				continue
			}
			types[n] = "custom"
			// A PDP that advertises this type sends it to a PEP with a handler. Others deny, and approvals can be requested.
			if typ == obligations.ApprovalRequired {
				types = append(types, typ)
			}
		}
		extensions, err := evaluation.Texts([]string{"obligations"})
		if err != nil {
			return context, err
		}
		context = context.With(extensionsMember, extensions)
	} else {
		context = context.Without(func(name string) bool { return name == extensionsMember })
	}
	slices.Sort(types)
	declared, err := evaluation.Texts(slices.Compact(types))
	return context.With(supportedMember, declared), err
}

// owedInOctober reads the obligations of one place of an answer. What is malformed is an error, and is not among them: it must
// not be executed. Two with one id are one obligation if they are the same, and else both are malformed.
func owedInOctober(s said) (all []evaluation.Obligation, err *Error) {
	if link.Present(s.Details) {
		err = odd("it has details of obligations in the native form")
	}
	if len(s.Obligations) == 0 {
		return nil, err
	}
	var items []jsontext.Value
	if s.Obligations.Kind() != '[' || json.Unmarshal(s.Obligations, &items) != nil || len(items) == 0 {
		return nil, odd("obligations are no array with obligations in it")
	}
	for _, v := range items {
		o, bad := octobers(v)
		if err = cmp.Or(err, bad); bad == nil {
			all = append(all, o)
		}
	}
	all, twice := once(all)
	return all, cmp.Or(err, twice)
}

// once returns obligations without those that repeat another one, and without those that have the id of one that is different.
func once(all []evaluation.Obligation) (single []evaluation.Obligation, err *Error) {
	differs := map[string]bool{}
	for _, o := range all {
		at := slices.IndexFunc(single, func(other evaluation.Obligation) bool { return other.ID == o.ID })
		switch {
		case at < 0:
			single = append(single, o)
		case !same(single[at], o):
			differs[o.ID] = true
			err = odd(fmt.Sprintf("two different obligations have the id %q", o.ID))
		}
	}
	return slices.DeleteFunc(single, func(o evaluation.Obligation) bool { return differs[o.ID] }), err
}

func same(a, b evaluation.Obligation) bool {
	return a.ID == b.ID && a.Type == b.Type && a.Properties.Value().Equal(b.Properties.Value())
}

// octobers reads one obligation. Members beside id, type and properties are ignored.
func octobers(v jsontext.Value) (o evaluation.Obligation, err *Error) {
	var i struct {
		ID         jsontext.Value `json:"id"`
		Type       jsontext.Value `json:"type"`
		Properties jsontext.Value `json:"properties"`
	}
	if v.Kind() != '{' || json.Unmarshal(v, &i) != nil {
		return o, odd("an obligation is not an object")
	}
	o = evaluation.Obligation{ID: link.Text("", i.ID), Type: link.Text("", i.Type)}
	wrong := func(what string) *Error {
		return odd(fmt.Sprintf("obligation %q of type %q %s", o.ID, o.Type, what))
	}
	var members map[string]any
	bad := json.Unmarshal(i.Properties, &members, json.WithUnmarshalers(json.UnmarshalFromFunc(number)))
	properties, refused := evaluation.NewObject(members)
	if o.ID == "" || o.Type == "" || i.Properties.Kind() != '{' || bad != nil || refused != nil {
		return o, wrong("lacks an id, a type or properties")
	}
	o.Properties = properties
	if maker, _ := properties.Get("vendor"); o.Type == "custom" && maker.Text() == vendor {
		typ, _ := properties.Get("type")
		within, _ := properties.Get("properties")
		if within.Kind() != evaluation.Map || properties.Len() != 3 || !slices.Contains(ofVendor, typ.Text()) {
			return o, wrong("is none that " + vendor + " sends")
		}
		o.Type, o.Properties = typ.Text(), within.Object()
		return o, nil
	}
	if slices.Contains(ofVendor, o.Type) {
		return o, wrong("has a type of an earlier draft")
	}
	for name, value := range properties.Members {
		if known, standard := standardTypes[o.Type]; standard && (known[name] == nil || !known[name](value)) {
			return o, wrong("has a property that its type does not define")
		}
	}
	for _, name := range required[o.Type] {
		if _, has := properties.Get(name); !has {
			return o, wrong("lacks the property " + name)
		}
	}
	if to, _ := properties.Get("to"); o.Type == "notification" && to.Len() == 1 {
		for _, one := range to.Elements {
			o.Properties = properties.With("to", one)
		}
	}
	return o, nil
}

// The properties of the standard types, and those that each must have.
var (
	standardTypes = map[string]map[string]func(evaluation.Value) bool{
		"notification":        {"to": isTexts, "body": isText, "topic": isText},
		"session_termination": {"subject": func(evaluation.Value) bool { return true }},
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
	return v.Kind() == evaluation.Array && v.Len() > 0
}

// unite takes the obligations of a second place of an answer in. One that the first place has as well is the same one.
func (d *Decision) unite(more []evaluation.Obligation) (err *Error) {
	if d.october {
		d.obligations, err = once(slices.Concat(d.obligations, more))
		return err
	}
	first := d.obligations
	for _, o := range more {
		if !slices.ContainsFunc(first, func(other evaluation.Obligation) bool { return same(other, o) }) {
			d.obligations = append(slices.Clip(d.obligations), o)
		}
	}
	return nil
}

// tellApart refuses the results of a page that have an obligation with the id of a different one: an id is executed once.
func tellApart(page []item) {
	first, differs := map[string]evaluation.Obligation{}, map[string]bool{}
	each := func(do func(*item, evaluation.Obligation)) {
		for n := range page {
			for _, o := range page[n].decision.obligations {
				do(&page[n], o)
			}
		}
	}
	each(func(_ *item, o evaluation.Obligation) {
		if other, has := first[o.ID]; has && !same(other, o) {
			differs[o.ID] = true
		}
		first[o.ID] = o
	})
	each(func(i *item, o evaluation.Obligation) {
		if differs[o.ID] {
			i.decision.permit, i.decision.err = false, odd(fmt.Sprintf("two different obligations have the id %q", o.ID))
		}
	})
}
