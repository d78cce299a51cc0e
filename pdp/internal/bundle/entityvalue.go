package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/document"
)

// valueError says why an attribute or tag of an entity is no value of Cedar. It names the
// place, and never the value, which may be a secret.
type valueError struct {
	at, what, try string
	parent        types.EntityType // of a parent that the schema does not allow
	mend          document.Mend
}

func (e *valueError) Error() string { return e.at + " " + e.what }

func badValue(what, try string) error { return &valueError{what: what, try: try} }

// belowPlace puts the place of a container before the place of an error in the container.
func belowPlace(in string, err error) error {
	if bad, ok := err.(*valueError); ok {
		bad.at = in + bad.at
	}
	return err
}

// memberOf is the access to a member, as Cedar writes it.
func memberOf(name string) string {
	if identifier.MatchString(name) {
		return "." + name
	}
	return "[" + Quote(name) + "]"
}

// form says what to try if a value should be one of an extension type.
const form = `write {"__extn": {"fn": "ip", "arg": "10.0.0.1"}}, and likewise decimal, datetime and duration`

// maxExtensions bounds how many values of extension types stand in the arguments of others.
const maxExtensions = 4

// storedRecord reads attributes or tags in Cedar's JSON form. It is stricter than Cedar in one
// thing: if a member is called __entity, __extn or __expr and is none of Cedar's forms,
// storedRecord takes it for a mistake, not for a member of a record. cedar-go's own reader makes
// sets of elements that were chosen to collide, and its errors name no place.
func storedRecord(text jsontext.Value, use *Usage) (types.Record, error) {
	use.decoder.Reset(bytes.NewBuffer(text)) // unlike a reader, a buffer is not copied
	r := valueReader{Decoder: &use.decoder, use: use, extensions: maxExtensions}
	if r.PeekKind() != '{' {
		return types.Record{}, badValue("is no object", "write {…}")
	}
	v, err := r.value()
	if err != nil {
		return types.Record{}, err
	}
	record, ok := v.(types.Record)
	if !ok {
		return record, badValue("is a value, and no object of values", "write {…}")
	}
	return record, nil
}

// valueReader reads values. Their JSON is well-formed already.
type valueReader struct {
	*jsontext.Decoder
	use        *Usage
	extensions int // values of extension types that may still come in arguments of others
	depth      int // how many containers the next value is in
}

// value reads the next value.
func (r valueReader) value() (types.Value, error) {
	r.use.valueCount++
	kind := r.PeekKind()
	if kind == '{' || kind == '[' {
		r.depth++
	}
	switch {
	case r.use.valueCount > r.use.bounds.Values:
		return nil, errTooMuch
	case r.depth > storedDepth:
		return nil, badValue(fmt.Sprintf("nests more than %d deep", storedDepth), "write it flatter")
	case kind == '{':
		return r.object()
	case kind == '[':
		return r.set()
	}
	text, err := r.ReadValue()
	if err != nil {
		return nil, err
	}
	if text.Kind() == '"' {
		plain, err := jsontext.AppendUnquote(nil, text)
		return types.String(plain), err
	}
	var v types.Value
	switch err := types.UnmarshalJSON(text, &v); {
	case err == nil:
		return v, nil
	case text.Kind() == '0':
		return nil, badValue("is no integer of 64 bits", `write a decimal as {"__extn": {"fn": "decimal", "arg": "1.5"}}`)
	}
	return nil, badValue("is null, which Cedar does not have", "leave it out")
}

// errTooMuch ends a reading that reached a bound of its owner.
var errTooMuch = errors.New("there is more than may be")

// set reads an array. It has the limits of an array in a request, because policies compare the
// two.
func (r valueReader) set() (types.Value, error) {
	_, _ = r.ReadToken()
	var elements []types.Value
	most, of, within := MostElements, "of plain values", arrays{}
	for n := 0; r.PeekKind() != ']'; n++ {
		e, err := r.value()
		if err != nil {
			return nil, belowPlace("["+strconv.Itoa(n)+"]", err)
		}
		switch e.(type) {
		case types.Set, types.Record:
			most, of = MostNested, "of arrays or objects"
		}
		within.add(e)
		if n >= most {
			return nil, badValue(fmt.Sprintf("has more than the %d elements that an array %s may have", most, of),
				"make entities of them, or several attributes")
		}
		elements = append(elements, e)
	}
	if _, err := r.ReadToken(); err != nil {
		return nil, err
	}
	if within.deep > 1 && within.count > maxArraysWithin {
		return nil, badValue(fmt.Sprintf("holds arrays of arrays, and more than %d arrays in all", maxArraysWithin),
			"write fewer arrays within arrays")
	}
	set, ok := NewSet(elements)
	if !ok {
		return nil, badValue(
			"has elements that were chosen to make it slow: Cedar takes the square of their number for them",
			"write other elements",
		)
	}
	return set, nil
}

// maxArraysWithin bounds the arrays in an array that holds arrays of arrays. Comparing two
// such arrays takes the square of their number.
const maxArraysWithin = 64

// arrays counts the arrays within a value, and how deep they nest.
type arrays struct{ count, deep int }

func (a *arrays) add(v types.Value) {
	var in arrays
	switch v := v.(type) {
	case types.Set:
		for e := range v.All() {
			in.add(e)
		}
		in.count++
		in.deep++
	case types.Record:
		for _, m := range v.All() {
			in.add(m)
		}
	}
	a.count += in.count
	a.deep = max(a.deep, in.deep)
}

// object reads an object: a record, or one of the forms that begin with two underscores.
func (r valueReader) object() (types.Value, error) {
	_, _ = r.ReadToken()
	members := types.RecordMap{}
	for first := true; r.PeekKind() != '}'; first = false {
		token, err := r.ReadToken()
		if err != nil {
			return nil, err
		}
		name := token.String()
		switch name {
		case "__entity", "__extn", "__expr":
			text, err := r.ReadValue()
			if err != nil {
				return nil, err
			}
			text = text.Clone() // the next read may overwrite it
			if !first || r.PeekKind() != '}' {
				return nil, badValue("has "+name+" beside other members", "let it stand alone")
			}
			_, _ = r.ReadToken()
			return r.escaped(name, text)
		}
		if members[types.String(name)], err = r.value(); err != nil {
			return nil, belowPlace(memberOf(name), err)
		}
	}
	_, err := r.ReadToken()
	return types.NewRecord(members), err
}

// escaped reads a value that JSON has no form for.
func (r valueReader) escaped(name string, text jsontext.Value) (types.Value, error) {
	switch name {
	case "__entity":
		// Cedar ignores other members, and so do we. Their values must not be read: cedar-go
		// would make sets from the arrays in them.
		var ref struct {
			Type *string `json:"type"`
			ID   *string `json:"id"`
		}
		if err := json.Unmarshal(text, &ref); err == nil && ref.Type != nil && ref.ID != nil {
			if typ, err := types.NewEntityType(*ref.Type); err == nil {
				return types.NewEntityUID(typ, types.String(*ref.ID)), nil
			}
		}
		return nil, badValue("names no entity", `write {"__entity": {"type": "User", "id": "alice"}}`)
	case "__extn":
		return r.extension(text)
	}
	return nil, badValue("is an expression, which Cedar does not read any more", form)
}

// constructors are the functions that make a value from a text.
var constructors = map[string]*Shape{
	"ip":       {Form: shapeIP},
	"decimal":  {Form: ShapeDecimal},
	"datetime": {Form: ShapeDatetime},
	"duration": {Form: shapeDuration},
}

// extension reads a call of one of Cedar's functions: {"fn", "arg"}, or {"fn", "args"} with a
// list of arguments. It calls no function that makes a value from another value, except
// offset: Cedar itself writes a datetime as a call of offset.
func (r valueReader) extension(text jsontext.Value) (types.Value, error) {
	var call struct {
		Fn   string           `json:"fn"`
		Arg  jsontext.Value   `json:"arg"`
		Args []jsontext.Value `json:"args"`
	}
	switch err := json.Unmarshal(text, &call); {
	case err != nil || call.Fn == "" || call.Arg == nil && call.Args == nil:
		return nil, badValue("is no value of an extension type: it has no fn, or neither arg nor args", form)
	case r.extensions == 0:
		return nil, badValue("has more calls within calls than are read", form)
	case call.Arg != nil: // Cedar ignores args then
		call.Args = []jsontext.Value{call.Arg}
	}
	r.extensions--
	args := make([]types.Value, len(call.Args))
	for n, text := range call.Args {
		var err error
		r.Decoder = jsontext.NewDecoder(bytes.NewReader(text))
		if args[n], err = r.value(); err != nil {
			return nil, err
		}
	}
	if v, ok := callExtension(call.Fn, args); ok {
		return v, nil
	}
	switch of := constructors[call.Fn]; {
	case of != nil:
		return nil, badValue("is no "+of.String()+": "+call.Fn+" takes one text in its form", form)
	case call.Fn == "offset":
		return nil, badValue("is no datetime that Cedar can hold: offset takes a datetime and a duration", form)
	}
	return nil, badValue("calls a function other than ip, decimal, datetime, duration and offset", form)
}

// callExtension calls a function with arguments. It fails if they make no value.
func callExtension(fn string, args []types.Value) (types.Value, bool) {
	switch of := constructors[fn]; {
	case of != nil && len(args) == 1:
		text, ok := args[0].(types.String)
		if !ok {
			return nil, false
		}
		return FromText(string(text), of)
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

// impliedExtension is a value of an extension type in the form that is allowed if a schema
// declares the type: {"fn", "arg"}.
func impliedExtension(v types.Record) (types.Value, bool) {
	name, _ := v.Get("fn")
	fn, ok := name.(types.String)
	arg, has := v.Get("arg")
	if !ok || !has || v.Len() != 2 {
		return nil, false
	}
	return callExtension(string(fn), []types.Value{arg})
}
