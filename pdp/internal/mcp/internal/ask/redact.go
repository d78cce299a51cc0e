package ask

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/leak"
	"policy-service/pdp/internal/rpc"
)

// part is a member of a result without the fields.
type part func(*redactor, jsontext.Value) (kept jsontext.Value, ok bool)

// parts are the members of results that have data, and by which they leave without the fields: by the method. Of results of
// other methods nothing can be taken out. A request for a tool gets the result of the tool.
var (
	partsOfTool = map[string]part{"structuredContent": (*redactor).structured, "content": each((*redactor).block)}
	parts       = map[string]map[string]part{
		toolsCall:     partsOfTool,
		toolsRequest:  partsOfTool,
		resourcesRead: {"contents": each((*redactor).contents)},
		promptsGet:    {"messages": each((*redactor).message)},
	}
)

// pointer is a JSON Pointer. The token * stands for each member or element.
type pointer []string

const mostFields = 256

func fieldsOf(o evaluation.Obligation) (fields []pointer, err error) {
	list, _ := o.Properties.Get("fields")
	if list.Kind() != evaluation.Array || list.Len() == 0 || list.Len() > mostFields {
		return nil, errors.New("redact does not say which fields")
	}
	for _, v := range list.Elements {
		if !strings.HasPrefix(v.Text(), "/") {
			return nil, errors.New("a field of redact is not a JSON Pointer into the result")
		}
		fields = append(fields, evaluation.Tokens(v.Text()))
	}
	return fields, nil
}

const (
	withheldText = "[withheld: this part of the result cannot be shown]"
	failedText   = "the request failed; what the server says of it is withheld"
)

// redactResponse is a response without fields. It is not ok if they cannot be taken out of it.
//
// Fields are pointers into structuredContent, and into each text that is a JSON object or array. Their values are masked
// wherever else they occur; if one occurs in pieces, nothing leaves. Text of another form is withheld by itself, and so are blocks that are not text. Members that we
// do not know, and _meta, do not leave.
func redactResponse(method string, m rpc.Message, fields []pointer) (rpc.Message, bool) {
	if m.Error != nil {
		return rpc.Failure(m.ID, rpc.Error{Code: codeOf(m.Error), Message: failedText}), true
	}
	result, err := m.ResultObject()
	if err != nil {
		return m, false
	}
	if kind := result.Get("resultType"); kind != nil && result.GetString("resultType") != "complete" {
		return m, false // it is not final, and asks for something in words
	}
	r := &redactor{fields: fields}
	if _, ok := r.result(method, result); !ok || r.removed.tooMany {
		return m, false
	}
	r.removed.known() // all that was there; now it is masked as well
	var ok bool
	m.Result, ok = r.result(method, result)
	return m, ok && !r.removed.inPieces()
}

// codeOf is the code of an error, if it is one that a code can be.
func codeOf(text jsontext.Value) int {
	e, err := rpc.ReadError(text)
	if err != nil || e.Code != int(int32(e.Code)) || e.Code == era.URLRequired { // which is none without its pages
		return rpc.InternalError
	}
	return e.Code
}

// redactor takes fields out of one response, and remembers their values.
type redactor struct {
	fields  []pointer
	removed secrets
}

func (r *redactor) result(method string, result rpc.Object) (jsontext.Value, bool) {
	var out rpc.Object
	for name, v := range result.Members {
		without, has := parts[method][name]
		if !has && !harmless(name, v) {
			continue
		}
		if has {
			var ok bool
			if v, ok = without(r, v); !ok {
				return nil, false
			}
		}
		out = out.With(name, v)
	}
	return out.Value(), true
}

// harmless reports whether a member of a result has no data in it.
func harmless(name string, v jsontext.Value) bool {
	switch name {
	case "resultType": // which was read
		return true
	case "isError":
		return v.Kind() == 't' || v.Kind() == 'f'
	case "ttlMs":
		return v.Kind() == '0'
	case "cacheScope":
		return string(v) == `"private"` || string(v) == `"public"`
	}
	return false
}

// The most that a result may nest, and hold, from which something is taken out: deeper or larger ones are withheld.
const (
	mostNesting = 100
	mostValues  = 200_000
)

var errTooMuch = errors.New("too large, or too deep")

// structured is an object or array without the fields. It is read strictly: a member that stands twice, or bytes behind
// the value, are an error.
func (r *redactor) structured(v jsontext.Value) (jsontext.Value, bool) {
	in := jsontext.NewDecoder(bytes.NewReader(v))
	if kind := in.PeekKind(); kind != '{' && kind != '[' {
		return nil, false
	}
	left := mostValues
	kept, err := r.value(nil, in, r.fields, mostNesting, &left)
	if err != nil {
		return nil, false
	}
	_, err = in.ReadToken()
	return kept, err == io.EOF
}

// value appends the next value without the fields below it, and with secrets masked. A field that is a member is left
// out; an element of an array becomes null, so that those after it keep their places.
func (r *redactor) value(b []byte, in *jsontext.Decoder, fields []pointer, depth int, left *int) ([]byte, error) {
	if *left--; *left < 0 {
		return nil, errTooMuch
	}
	kind := in.PeekKind()
	if kind != '{' && kind != '[' {
		v, err := in.ReadValue()
		return append(b, r.removed.masked(v)...), err
	}
	if _, err := in.ReadToken(); err != nil || depth == 0 {
		return nil, cmp.Or(err, errTooMuch)
	}
	first := len(b) + 1
	b = append(b, byte(kind))
	for n := 0; in.PeekKind() != kind+2; n++ { // in ASCII a bracket closes two characters after it opens
		step, begins := strconv.Itoa(n), ""
		if kind == '{' {
			name, err := in.ReadToken()
			if err != nil {
				return nil, err
			}
			step = name.String()
			begins = string(rpc.String(step)) + ":"
		}
		below, gone := within(fields, step)
		leave := kind == '{' && (gone || r.removed.in(step) != step)
		if !leave && len(b) > first {
			b = append(b, ',')
		}
		var err error
		switch {
		case leave:
			err = r.skip(in, gone)
		case gone:
			b, err = append(b, "null"...), r.skip(in, gone)
		default:
			b, err = r.value(append(b, begins...), in, below, depth-1, left)
		}
		if err != nil {
			return nil, err
		}
	}
	_, err := in.ReadToken()
	return append(b, byte(kind+2)), err
}

// skip passes over the next value. One that is a field is remembered.
func (r *redactor) skip(in *jsontext.Decoder, isField bool) error {
	v, err := in.ReadValue()
	if err == nil && isField {
		r.removed.add(v)
	}
	return err
}

// within are the rests of the pointers that lead on behind a step. Gone reports that one of them ends there.
func within(fields []pointer, step string) (below []pointer, gone bool) {
	for _, p := range fields {
		if p[0] != "*" && p[0] != step {
			continue
		}
		if len(p) == 1 {
			return nil, true
		}
		below = append(below, p[1:])
	}
	return below, false
}

// text is a text without the fields, or one that says that it was withheld.
func (r *redactor) text(v jsontext.Value) jsontext.Value {
	s, err := jsontext.AppendUnquote(nil, v) // nothing of what is no text
	kept, ok := r.structured(s)
	if err != nil || v.Kind() != '"' || !ok {
		return rpc.String(withheldText)
	}
	return rpc.String(string(kept))
}

func textBlock(text jsontext.Value) jsontext.Value {
	return rpc.Object{}.With("type", rpc.String("text")).With("text", text).Value()
}

func (r *redactor) block(v jsontext.Value) jsontext.Value {
	o, err := rpc.ParseObject(v)
	if err != nil || o.GetString("type") != "text" {
		return textBlock(rpc.String(withheldText))
	}
	return textBlock(r.text(o.Get("text")))
}

func (r *redactor) contents(v jsontext.Value) jsontext.Value {
	o, _ := rpc.ParseObject(v) // the empty one of what is none
	out := rpc.Object{}.With("uri", rpc.String(r.removed.in(o.GetString("uri"))))
	return out.WithText("mimeType", r.removed.in(o.GetString("mimeType"))).With("text", r.text(o.Get("text"))).Value()
}

func (r *redactor) message(v jsontext.Value) jsontext.Value {
	o, _ := rpc.ParseObject(v)
	role := "user"
	if o.GetString("role") == "assistant" {
		role = "assistant"
	}
	return rpc.Object{}.With("role", rpc.String(role)).With("content", r.block(o.Get("content"))).Value()
}

func each(change func(*redactor, jsontext.Value) jsontext.Value) part {
	return func(r *redactor, v jsontext.Value) (jsontext.Value, bool) {
		all, err := rpc.Elements(v)
		for n := range all {
			all[n] = change(r, all[n])
		}
		return rpc.Array(all), err == nil
	}
}

// secrets are the values that were taken out of a result. Once all are known, they are masked wherever else they occur in it,
// also as a part of a text. Longer ones are found in Base64, too, and in pieces that follow each other.
type secrets struct {
	texts   map[string]bool
	tooMany bool
	masks   *strings.Replacer // nil until all are known
	encoded *strings.Replacer
	pieced  *strings.Replacer
	joined  strings.Builder // the texts of the result, in their order, without the masked ones
}

const (
	leastSecret = 4 // bytes; a shorter value could come from anywhere
	leastLong   = 8 // of one that is looked for in other forms: a shorter one is in there by chance
	mostSecrets = 10_000
	mask        = "[redacted]"
)

// add remembers all strings and numbers of a value that was read, until all are known.
func (s *secrets) add(v jsontext.Value) {
	if s.masks != nil {
		return
	}
	for in := jsontext.NewDecoder(bytes.NewReader(v)); !s.tooMany; {
		container, members := in.StackIndex(in.StackDepth())
		token, err := in.ReadToken()
		switch isName := container == '{' && members%2 == 0; {
		case err != nil: // the end
			return
		case token.Kind() == '"' && !isName:
			s.text(token.String())
		case token.Kind() == '0':
			s.text(token.String())
			s.text(canonicalNumber(token.String()))
		}
	}
}

func (s *secrets) text(text string) {
	if len(text) < leastSecret {
		return
	}
	if s.texts == nil {
		s.texts = map[string]bool{}
	}
	s.texts[text] = true
	quoted := rpc.String(text) // as it stands in a text that is JSON itself
	s.texts[string(quoted[1:len(quoted)-1])] = true
	s.tooMany = len(s.texts) > mostSecrets
}

// known says that there are no more.
func (s *secrets) known() {
	all := slices.Collect(maps.Keys(s.texts))
	// The longest first, so that nothing is left of one that begins with another.
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	var pairs, encoded, pieced []string
	for _, secret := range all {
		pairs = append(pairs, secret, mask)
		if len(secret) < leastLong {
			continue
		}
		pieced = append(pieced, secret, mask)
		for _, form := range leak.Base64(secret) {
			encoded = append(encoded, form, mask)
		}
	}
	s.masks, s.encoded, s.pieced = strings.NewReplacer(pairs...), strings.NewReplacer(encoded...), strings.NewReplacer(pieced...)
}

// in masks the secrets in a text: all of it, if it has a secret in Base64.
func (s *secrets) in(text string) string {
	switch {
	case len(s.texts) == 0 || s.masks == nil:
		return text
	case s.encoded.Replace(text) != text:
		return mask
	}
	return s.masks.Replace(text)
}

// inPieces reports whether the texts that stay make a secret, one behind the other.
func (s *secrets) inPieces() bool {
	all := s.joined.String()
	return s.pieced.Replace(all) != all
}

// masked is a string, number, boolean or null of which a secret is masked: a number becomes null.
func (s *secrets) masked(v jsontext.Value) jsontext.Value {
	if len(s.texts) == 0 || s.masks == nil {
		return v
	}
	switch v.Kind() {
	case '"':
		unquoted, _ := jsontext.AppendUnquote(nil, v) // it was read
		text := string(unquoted)
		kept := s.in(text)
		if kept != text {
			v, text = rpc.String(kept), "\x00"
		}
		s.joined.WriteString(text)
	case '0':
		literal, canonical := string(v), canonicalNumber(string(v))
		if s.in(literal) != literal || s.in(canonical) != canonical {
			return jsontext.Value("null")
		}
	}
	return v
}

// canonicalNumber is the one text that all ways of writing a number have; "" if that takes too long.
func canonicalNumber(text string) string {
	o, err := evaluation.ParseObject([]byte(`{"n":`+text+`}`), evaluation.DefaultLimits())
	if err != nil {
		return ""
	}
	v, _ := o.Get("n")
	canonical, ok := v.AppendCanonical(nil)
	if !ok {
		return ""
	}
	return string(canonical)
}
