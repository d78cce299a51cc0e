package pdp

import (
	"bytes"
	"math"
	"slices"
	"strconv"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// valueError is what keeps an attribute or tag of an entity from being one of Cedar's:
// where, and never the value, which may be a secret.
type valueError struct{ at, what, try string }

func (e *valueError) Error() string { return e.at + " " + e.what }

// below puts the place of an error into what it is in.
func below(in string, err error) error {
	if bad, ok := err.(*valueError); ok {
		bad.at = in + bad.at
	}
	return err
}

// memberOf is how Cedar writes the access to a member.
func memberOf(name string) string {
	if identifier.MatchString(name) {
		return "." + name
	}
	return "[" + quote(name) + "]"
}

// form is what to try where a value should be one of an extension type.
const form = `write {"__extn": {"fn": "ip", "arg": "10.0.0.1"}}, and likewise decimal, datetime and duration`

// maxExtensions bounds values of extension types in the arguments of others.
const maxExtensions = 4

// storedRecord reads attributes or tags in Cedar's JSON form. It is stricter than Cedar in
// one thing: a member called __entity, __extn or __expr that is none of Cedar's forms is
// no member of a record, but a mistake.
func storedRecord(text jsontext.Value) (types.Record, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	if dec.PeekKind() != '{' {
		return types.Record{}, &valueError{what: "is no object", try: "write {…}"}
	}
	v, err := storedValue(dec, maxExtensions)
	if err != nil {
		return types.Record{}, err
	}
	record, ok := v.(types.Record)
	if !ok {
		return record, &valueError{what: "is a value, and no object of values", try: "write {…}"}
	}
	return record, nil
}

// storedValue reads the next value, whose JSON is well-formed.
func storedValue(dec *jsontext.Decoder, extensions int) (types.Value, error) {
	switch dec.PeekKind() {
	case '{':
		return storedObject(dec, extensions)
	case '[':
		_, _ = dec.ReadToken()
		var elements []types.Value
		for n := 0; dec.PeekKind() != ']'; n++ {
			e, err := storedValue(dec, extensions)
			if err != nil {
				return nil, below("["+strconv.Itoa(n)+"]", err)
			}
			elements = append(elements, e)
		}
		_, err := dec.ReadToken()
		return types.NewSet(elements...), err
	}
	text, err := dec.ReadValue()
	if err != nil {
		return nil, err
	}
	var v types.Value
	switch err := types.UnmarshalJSON(text, &v); {
	case err == nil:
		return v, nil
	case text.Kind() == '0':
		return nil, &valueError{what: "is no integer of 64 bits", try: `write a decimal as {"__extn": {"fn": "decimal", "arg": "1.5"}}`}
	}
	return nil, &valueError{what: "is null, which Cedar does not have", try: "leave it out"}
}

func storedObject(dec *jsontext.Decoder, extensions int) (types.Value, error) {
	_, _ = dec.ReadToken()
	members := types.RecordMap{}
	for first := true; dec.PeekKind() != '}'; first = false {
		token, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		name := token.String()
		switch name {
		case "__entity", "__extn", "__expr":
			text, err := dec.ReadValue()
			if err != nil {
				return nil, err
			}
			text = text.Clone() // what is read next may take its place
			if !first || dec.PeekKind() != '}' {
				return nil, &valueError{what: "has " + name + " beside other members", try: "let it stand alone"}
			}
			_, _ = dec.ReadToken()
			return escapedValue(name, text, extensions)
		}
		if members[types.String(name)], err = storedValue(dec, extensions); err != nil {
			return nil, below(memberOf(name), err)
		}
	}
	_, err := dec.ReadToken()
	return types.NewRecord(members), err
}

// escapedValue is a value that JSON has no form for.
func escapedValue(name string, text jsontext.Value, extensions int) (types.Value, error) {
	switch name {
	case "__entity":
		var v types.Value
		if err := types.UnmarshalJSON(slices.Concat([]byte(`{"__entity":`), text, []byte(`}`)), &v); err == nil {
			if uid, ok := v.(types.EntityUID); ok {
				return uid, nil
			}
		}
		return nil, &valueError{what: "names no entity", try: `write {"__entity": {"type": "User", "id": "alice"}}`}
	case "__extn":
		return extension(text, extensions)
	}
	return nil, &valueError{what: "is an expression, which Cedar does not read any more", try: form}
}

// constructors are the functions that make a value of a text.
var constructors = map[string]*shape{
	"ip": {form: shapeIP}, "decimal": {form: shapeDecimal}, "datetime": {form: shapeDatetime}, "duration": {form: shapeDuration},
}

// extension is a call of one of Cedar's functions: {"fn", "arg"}, or {"fn", "args"} with a
// list of them. Those that make a value of another one are not called, but for offset, as
// which Cedar itself writes a datetime.
func extension(text jsontext.Value, extensions int) (types.Value, error) {
	var call struct {
		Fn   string           `json:"fn"`
		Arg  jsontext.Value   `json:"arg"`
		Args []jsontext.Value `json:"args"`
	}
	switch err := json.Unmarshal(text, &call); {
	case err != nil || call.Fn == "" || call.Arg == nil && call.Args == nil:
		return nil, &valueError{what: "is no value of an extension type: it has no fn, or neither arg nor args", try: form}
	case extensions == 0:
		return nil, &valueError{what: "has more calls within calls than are read", try: form}
	case call.Arg != nil: // Cedar looks no further
		call.Args = []jsontext.Value{call.Arg}
	}
	args := make([]types.Value, len(call.Args))
	for n, text := range call.Args {
		var err error
		if args[n], err = storedValue(jsontext.NewDecoder(bytes.NewReader(text)), extensions-1); err != nil {
			return nil, err
		}
	}
	if v, ok := called(call.Fn, args); ok {
		return v, nil
	}
	switch of := constructors[call.Fn]; {
	case of != nil:
		return nil, &valueError{what: "is no " + of.String() + ": " + call.Fn + " takes one text in its form", try: form}
	case call.Fn == "offset":
		return nil, &valueError{what: "is no datetime that Cedar can hold: offset takes a datetime and a duration", try: form}
	}
	return nil, &valueError{what: "calls a function other than ip, decimal, datetime, duration and offset", try: form}
}

// called is what a function makes of its arguments.
func called(fn string, args []types.Value) (types.Value, bool) {
	switch of := constructors[fn]; {
	case of != nil && len(args) == 1:
		text, ok := args[0].(types.String)
		if !ok {
			return nil, false
		}
		return fromText(string(text), of)
	case fn != "offset" || len(args) != 2:
		return nil, false
	}
	from, ok1 := args[0].(types.Datetime)
	by, ok2 := args[1].(types.Duration)
	a, b := from.Milliseconds(), by.ToMilliseconds()
	if !ok1 || !ok2 || b > 0 && a > math.MaxInt64-b || b < 0 && a < math.MinInt64-b {
		return nil, false
	}
	return types.NewDatetimeFromMillis(a + b), true
}

// implied is a value of an extension type as it may be written where a schema says the type:
// {"fn", "arg"} or {"fn", "args"}. A list of arguments has become a set by now, but those of
// offset cannot be taken for each other.
func implied(v types.Record) (types.Value, bool) {
	name, _ := v.Get("fn")
	fn, ok := name.(types.String)
	if !ok || v.Len() != 2 {
		return nil, false
	}
	if arg, ok := v.Get("arg"); ok {
		return called(string(fn), []types.Value{arg})
	}
	list, _ := v.Get("args")
	set, ok := list.(types.Set)
	if args := set.Slice(); !ok || len(args) != 2 {
		return called(string(fn), args)
	}
	var args [2]types.Value
	for arg := range set.All() {
		for _, of := range []*shape{constructors["datetime"], constructors["duration"]} {
			switch v := coerce(arg, of).(type) {
			case types.Datetime:
				args[0] = v
			case types.Duration:
				args[1] = v
			}
		}
	}
	return called(string(fn), args[:])
}
