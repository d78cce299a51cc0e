package link

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/visible"
)

// A server may ask a person something through the client. The gateway builds the question again from the members that MCP
// gives one, so that a client gets nothing that it may show in a way of its own. Every text is as it looks, every line says
// that the server wrote it, and no field asks for a secret. Names and choices come back in the answer, so they stay as the
// server wrote them: a question with one that a person cannot see is refused.

// mostAddress is the length in bytes of the address of a page.
const mostAddress = 2 << 10

// A longer message has noSecrets without being searched for secrets, and a larger form is refused: servers choose the lengths.
const (
	mostSearched = 16 << 10
	mostForm     = 64 << 10
)

// noSecrets is the gateway's own line in a message that names a secret. Honest messages do: "Pin this issue?".
const noSecrets = "Do not enter passwords or codes here"

// elicitation returns a question to a person as the client gets it.
func (s *Server) elicitation(params rpc.Object) (rpc.Object, *Unasked) {
	var built rpc.Object
	if mode := params.Get("mode"); mode != nil {
		built = built.With("mode", mode) // url or form, or no client takes it
	}
	member, text := "requestedSchema", params.GetString("message")
	notes, about := visible.Notes(text), jsontext.Value(nil)
	if params.GetString("mode") == "url" {
		address := params.GetString("url")
		if no := s.refusesPage(address); no != nil {
			return built, no
		}
		member, about = "url", rpc.String(address)
		if reads, err := url.PathUnescape(address); err == nil { // some clients show an address so
			shown := visible.Of(reads)
			notes = append(notes, shown.Notes[:len(shown.Notes)-shown.CutNotes]...)
		}
	} else {
		asked := params.Get("requestedSchema")
		if len(asked) > mostForm {
			return built, &Unasked{Why: tooLarge}
		}
		schema, err := rpc.ParseObject(asked)
		if err != nil {
			return built, &Unasked{Why: "requestedSchema cannot be read"}
		}
		form, no := buildForm(schema)
		if no != "" {
			return built, &Unasked{Why: no}
		}
		about = form.Value()
		notes = append(notes, visible.NotesInJSON(about)...)
	}
	asks := "[" + s.Name + " asks"
	if careful := visible.Careful(notes); careful != "" {
		asks += "; careful: " + careful
	}
	message := asks + "] " + strings.NewReplacer("\n", "\n> ", "\t", " ").Replace(visible.Lines(text))
	if len(text) > mostSearched || asksForSecret(text) { // before a text that may be long
		message = noSecrets + "\n" + message
	}
	return built.With("message", rpc.String(message)).With(member, about), nil
}

// refusesPage returns the reason for which no person is shown the address of a page, nil if there is none. Programs read other
// characters than visible ASCII in different ways, and may show none of them.
func (s *Server) refusesPage(address string) *Unasked {
	u, err := url.Parse(address)
	switch hidden := func(r rune) bool { return r <= ' ' || r > '~' }; {
	case err != nil || u.Scheme != "https" || u.User != nil:
		return &Unasked{Why: "a page is opened by an https address without a name or password"}
	case len(address) > mostAddress || strings.ContainsFunc(address, hidden):
		return &Unasked{Why: "the address of a page has visible ASCII alone, and 2 KiB at most; write other characters in percent-encoding"}
	case !slices.Contains(s.Asks.Hosts, strings.ToLower(u.Host)):
		return byKey("server_requests.hosts", "pages of that host")
	}
	return nil
}

// The reasons for which a form is refused, for its server.
const (
	noSecret  = "no form asks for a password, or for another secret"
	unseen    = "a name or choice of the form has characters that cannot be seen; write visible characters alone"
	tooLarge  = "a form has 64 KiB at most; ask for less at once"
	likeOurs  = "a name or choice of the form begins as the gateway's messages do; leave out its brackets"
	noField   = "a field of the form is none of MCP: a string, number, integer, boolean, or an array of choices"
	noChoices = "the choices of a field are not as MCP has them: texts in enum, or objects with const and title"
)

// form builds a form. It keeps the first reason to refuse it.
type form struct{ no string }

func (f *form) refuse(why string) jsontext.Value {
	if f.no == "" {
		f.no = why
	}
	return nil
}

// buildForm returns a form as MCP's restricted schema has it, or the reason to refuse it. It has a field for each of the
// server's: an answer that lacks one, or that has one which nobody saw, would be no answer to the server's form.
func buildForm(schema rpc.Object) (built rpc.Object, no string) {
	f := &form{}
	var required []jsontext.Value
	fields, err := rpc.ParseObject(schema.Get("properties"))
	if err != nil && schema.Get("properties") != nil {
		return built, noField
	}
	all, _ := rpc.Elements(schema.Get("required"))
	for _, one := range all {
		if one.Kind() == '"' && fields.Get(textOf(one)) != nil {
			required = append(required, one)
		}
	}
	fields = fields.Map(f.field)
	built = built.With("type", rpc.String("object")).With("properties", fields.Value())
	if len(required) > 0 {
		built = built.With("required", rpc.Array(required))
	}
	return built, f.no
}

// membersOf are the members of a field by its type, besides type, title, description and default.
var membersOf = map[string][]string{
	"string":  {"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"},
	"number":  {"minimum", "maximum"},
	"integer": {"minimum", "maximum"},
	"boolean": {},
	"array":   {"minItems", "maxItems", "items"},
}

// formats are the formats of a string.
var formats = []string{"email", "uri", "date", "date-time"}

func (f *form) field(name string, v jsontext.Value) jsontext.Value {
	field, err := rpc.ParseObject(v)
	field = withoutNull(field)
	kind := field.GetString("type")
	members, known := membersOf[kind]
	switch {
	case asksForSecret(name):
		return f.refuse(noSecret)
	case name == "" || !isSeen(name):
		return f.refuse(unseen)
	case beginsLikeOurs(name):
		return f.refuse(likeOurs)
	case err != nil, !known, kind == "array" && field.Get("items") == nil:
		return f.refuse(noField)
	}
	return field.Map(func(member string, v jsontext.Value) jsontext.Value {
		switch {
		case member == "type":
			return v
		case member == "title", member == "description":
			return f.text(v)
		case member == "default":
			return f.preset(kind, v, choicesOf(kind, field))
		case !slices.Contains(members, member):
			return nil
		}
		switch member {
		case "format":
			if format := field.GetString("format"); !slices.Contains(formats, format) {
				return nil
			}
			return v
		case "enum", "enumNames":
			if field.Get("oneOf") != nil {
				return nil
			}
			if member == "enumNames" {
				return f.labels(v, field.Get("enum"))
			}
			return f.choices(v)
		case "oneOf":
			return f.titledChoices(v)
		case "items":
			return f.items(v)
		}
		if v.Kind() != '0' { // a bound
			return nil
		}
		return v
	}).Value()
}

// withoutNull returns a field that may also be null as what it is otherwise. MCP has no null: a field that is not required is
// left out. Python's models write such a field as anyOf, with title, description and default beside it.
func withoutNull(field rpc.Object) rpc.Object {
	isNull := func(v jsontext.Value) bool { return textOf(v) == "null" }
	if one := besideNull(field.Get("type"), isNull); one != nil {
		return field.With("type", one)
	}
	isOfNull := func(v jsontext.Value) bool {
		o, _ := rpc.ParseObject(v)
		return isNull(o.Get("type"))
	}
	for _, name := range []string{"anyOf", "oneOf"} {
		one, err := rpc.ParseObject(besideNull(field.Get(name), isOfNull))
		if err != nil || field.Get("type") != nil {
			continue
		}
		outer := field.Without(func(member string) bool { return member == name })
		return one.Without(func(member string) bool { return outer.Get(member) != nil }).And(outer)
	}
	return field
}

// besideNull returns the other one of two values if one is null, nil for any other v.
func besideNull(v jsontext.Value, isNull func(jsontext.Value) bool) jsontext.Value {
	all, _ := rpc.Elements(v)
	if len(all) != 2 {
		return nil
	}
	if n := slices.IndexFunc(all, isNull); n >= 0 {
		return all[1-n]
	}
	return nil
}

// text returns a text in one line as it looks, nil if nothing of it is seen. It may not ask for a secret.
func (f *form) text(v jsontext.Value) jsontext.Value {
	text := textOf(v)
	if asksForSecret(text) {
		return f.refuse(noSecret)
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' || r == '\t' }), " ")
	shown := visible.Text(text)
	if beginsLikeOurs(shown) { // as a further line of a message
		shown = "> " + shown
	}
	switch {
	case strings.TrimSpace(shown) == "":
		return nil
	case shown == textOf(v): // it keeps its bytes
		return v
	}
	return rpc.String(shown)
}

// preset returns the value that a field begins with, nil if it is not of the field's type, if it is none of the choices of a
// field that has some, or if a person does not see what it is.
func (f *form) preset(kind string, v jsontext.Value, choices []string) jsontext.Value {
	switch k := v.Kind(); {
	case kind == "string" && k == '"':
		return f.preseen(v, choices)
	case kind == "array" && k == '[':
		all, err := rpc.Elements(v)
		if err != nil || slices.ContainsFunc(all, func(one jsontext.Value) bool { return f.preseen(one, choices) == nil }) {
			return nil
		}
		return v
	case (kind == "number" || kind == "integer") && k == '0', kind == "boolean" && (k == 't' || k == 'f'):
		return v
	}
	return nil
}

func (f *form) preseen(v jsontext.Value, choices []string) jsontext.Value {
	switch text := textOf(v); {
	case asksForSecret(text):
		return f.refuse(noSecret)
	case v.Kind() != '"' || !isSeen(text) || beginsLikeOurs(text), choices != nil && !slices.Contains(choices, text):
		return nil
	}
	return v
}

// choicesOf returns the choices of a field that clients get, nil if any value answers it.
func choicesOf(kind string, field rpc.Object) (choices []string) {
	titled := "oneOf"
	if kind == "array" {
		field, _ = rpc.ParseObject(field.Get("items"))
		titled = "anyOf"
	}
	of, isTitled := field.Get(titled), true
	if of == nil {
		of, isTitled = field.Get("enum"), false
	}
	if of != nil {
		choices = []string{}
	}
	all, _ := rpc.Elements(of)
	for _, one := range all {
		if isTitled {
			o, _ := rpc.ParseObject(one)
			one = o.Get("const")
		}
		choices = append(choices, textOf(one))
	}
	return choices
}

// choice returns a choice as the server wrote it: it comes back in the answer.
func (f *form) choice(v jsontext.Value) jsontext.Value {
	switch text := textOf(v); {
	case v.Kind() != '"':
		return f.refuse(noChoices)
	case asksForSecret(text):
		return f.refuse(noSecret)
	case text == "" || !isSeen(text):
		return f.refuse(unseen)
	case beginsLikeOurs(text):
		return f.refuse(likeOurs)
	}
	return v
}

func (f *form) choices(v jsontext.Value) jsontext.Value {
	all, err := rpc.Elements(v)
	if err != nil {
		return f.refuse(noChoices)
	}
	for _, one := range all {
		f.choice(one)
	}
	return v
}

// labels returns the names of choices, nil if a choice has none that is seen: then clients show the choices themselves.
func (f *form) labels(v, choices jsontext.Value) jsontext.Value {
	names, err := rpc.Elements(v)
	all, err2 := rpc.Elements(choices)
	for n := range names {
		names[n] = f.text(names[n])
	}
	if err != nil || err2 != nil || len(names) != len(all) || slices.ContainsFunc(names, func(one jsontext.Value) bool { return one == nil }) {
		return nil
	}
	return rpc.Array(names)
}

func (f *form) titledChoices(v jsontext.Value) jsontext.Value {
	all, err := rpc.Elements(v)
	if err != nil {
		return f.refuse(noChoices)
	}
	for n, one := range all {
		o, err := rpc.ParseObject(one)
		if err != nil {
			return f.refuse(noChoices)
		}
		choice, title := f.choice(o.Get("const")), f.text(o.Get("title"))
		if title == nil { // clients take no choice without one
			title = choice
		}
		all[n] = rpc.Object{}.With("const", choice).With("title", title).Value()
	}
	return rpc.Array(all)
}

// items returns the choices of a field that takes several.
func (f *form) items(v jsontext.Value) jsontext.Value {
	o, err := rpc.ParseObject(v)
	switch {
	case err != nil:
		return f.refuse(noChoices)
	case o.Get("anyOf") != nil:
		return rpc.Object{}.With("anyOf", f.titledChoices(o.Get("anyOf"))).Value()
	}
	return rpc.Object{}.With("type", rpc.String("string")).With("enum", f.choices(o.Get("enum"))).Value()
}

// textOf returns the text of a value that is a string, "" of any other.
func textOf(v jsontext.Value) string { return rpc.Object{}.With("text", v).GetString("text") }

// isSeen reports whether a text is as it looks, and begins and ends with what is seen.
func isSeen(text string) bool {
	return utf8.ValidString(text) && visible.Quoted(text) == text && strings.TrimSpace(text) == text
}

// asksLine is how the gateway's messages begin: "[files asks] ".
var asksLine = regexp.MustCompile(`(?i)^\W*\[.*\basks\b`)

// beginsLikeOurs reports whether a text of a field, which clients show in a line of its own, begins as the gateway's messages do.
func beginsLikeOurs(text string) bool { return asksLine.MatchString(visible.Skeleton(text)) }
