package authzenclient

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient/internal/link"
)

// wanted reads the obligations of one place of an answer: AuthZEN's array of
// obligations, or the native object that maps each type to true, beside which
// obligation_details is such an array. An empty one is none. Any other form is
// an error, and so never lost; readable obligations beside it are returned as well,
// because a PEP discharges them also for an answer that it must deny.
func wanted(s said) ([]evaluation.Obligation, *Error) {
	details, err := array(s.Details)
	switch s.Obligations.Kind() {
	case '{':
		types, odd := types(s.Obligations)
		all, contradiction := detailed(types, details)
		return all, cmp.Or(odd, err, contradiction)
	case '[':
		all, bad := array(s.Obligations)
		if len(details) > 0 {
			err = cmp.Or(err, odd("it has obligations, and details of them, as two arrays"))
		}
		return append(all, details...), cmp.Or(bad, err)
	case 0, 'n':
		if len(details) > 0 {
			err = cmp.Or(err, odd("it has details of obligations, and no obligations"))
		}
		return details, err
	}
	return details, odd("obligations are neither an array nor an object")
}

// detailed gives each type its details. One that has none is an obligation named
// as its type, without properties. The types are sorted.
func detailed(types []string, details []evaluation.Obligation) (all []evaluation.Obligation, err *Error) {
	has := map[string]bool{}
	for _, o := range details {
		has[o.Type] = true
		if _, named := slices.BinarySearch(types, o.Type); !named {
			err = odd("it has details of an obligation that it does not name")
		}
	}
	for _, name := range types {
		if !has[name] {
			all = append(all, evaluation.Obligation{ID: name, Type: name})
		}
	}
	return append(all, details...), err
}

func types(v jsontext.Value) (all []string, err *Error) {
	var owed map[string]jsontext.Value
	if json.Unmarshal(v, &owed) != nil {
		return nil, odd("obligations cannot be read")
	}
	for _, name := range slices.Sorted(maps.Keys(owed)) {
		if owed[name].Kind() != 't' {
			err = odd("an obligation is something else than true")
			continue
		}
		all = append(all, name)
	}
	return all, err
}

func array(v jsontext.Value) (all []evaluation.Obligation, err *Error) {
	if !link.Present(v) {
		return nil, nil
	}
	var items []jsontext.Value
	if v.Kind() != '[' || json.Unmarshal(v, &items) != nil {
		return nil, odd("obligations are not an array")
	}
	for _, i := range items {
		o, bad := obligation(i)
		err = cmp.Or(err, bad)
		all = append(all, o)
	}
	return all, err
}

// obligation reads {id, type, properties}. In AuthZEN's profile for obligations
// there are no properties, and the parameters of a type (acr_value, to) stand
// beside its id. Both are read as properties, so that a handler sees one form
// and nothing is lost; a name that has two values is an error.
func obligation(v jsontext.Value) (evaluation.Obligation, *Error) {
	var i struct {
		ID   jsontext.Value `json:"id"`
		Type jsontext.Value `json:"type"`
	}
	if v.Kind() != '{' || json.Unmarshal(v, &i) != nil {
		return evaluation.Obligation{}, odd("an obligation is not an object")
	}
	o := evaluation.Obligation{ID: link.Text("", i.ID), Type: link.Text("", i.Type)}
	if o.Type == "" {
		return o, odd("an obligation has no type")
	}
	// Members that the rules of evaluation refuse cannot be given to a handler.
	var members map[string]any
	err := json.Unmarshal(v, &members, json.WithUnmarshalers(json.UnmarshalFromFunc(number)))
	all, refused := evaluation.NewObject(members)
	if inner, there := all.Get("properties"); err != nil || refused != nil || there && inner.Kind() != evaluation.Map {
		return o, odd("the properties of an obligation cannot be read")
	} else if there {
		o.Properties = inner.Object()
	}
	beside := all.Without(func(name string) bool { return name == "id" || name == "type" || name == "properties" })
	for name, value := range beside.Members {
		if mine, twice := o.Properties.Get(name); twice && !mine.Equal(value) {
			return o, odd("a property of an obligation has two values")
		}
	}
	o.Properties = o.Properties.Beside(beside)
	return o, nil
}

// number keeps integers exact; the default would make floats of them. Any other number is a float, so 1.0 is 1.
func number(dec *jsontext.Decoder, v *any) error {
	if dec.PeekKind() != '0' {
		return errors.ErrUnsupported
	}
	literal, _ := dec.ReadValue() // if it fails, the literal is empty, which is no number
	n, err := strconv.ParseInt(string(literal), 10, 64)
	if *v = n; err != nil {
		*v, err = strconv.ParseFloat(string(literal), 64)
	}
	return err
}
