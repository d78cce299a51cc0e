package gate

import (
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/unicode/norm"

	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/visible"
)

// secretWords name fields for values that no server may ask for.
var secretWords = []string{"password", "passwd", "passphrase", "secret", "token", "apikey", "privatekey", "credential", "cvv", "cardnumber"}

// asksForSecret reports whether a text has such a word in it, by its letters alone.
func asksForSecret(text string) bool {
	letters := strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, norm.NFKC.String(text))
	return slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(letters, w) })
}

// elicitation is a question to a person as it is shown: it names the server, leads only where the operator lets it, asks for no
// secret, has no character that hides another, and says what only looks like something else.
func (s *Server) elicitation(params rpc.Object) (rpc.Object, *unasked) {
	params = params.Without(func(name string) bool { return strings.EqualFold(name, "metadata") }) // it repeats _meta, for some clients
	text, asks := params.GetString("message"), s.Name+" asks"
	if careful := visible.Careful(slices.Concat(visible.Notes(text), visible.NotesInJSON(params.Get("requestedSchema")))); careful != "" {
		asks += "; careful: " + careful
	}
	params = params.With("message", rpc.String("["+asks+"] "+visible.Lines(text)))
	if params.GetString("mode") == "url" {
		params = params.Without(func(name string) bool { return name == "requestedSchema" })
		switch u, err := url.Parse(params.GetString("url")); {
		case err != nil || u.Scheme != "https" || u.User != nil:
			return params, &unasked{why: "a page is opened by an https address without a name or password"}
		case !slices.Contains(s.Asks.Hosts, strings.ToLower(u.Host)):
			return params, byKey("server_requests.hosts", "pages of that host")
		}
		return params, nil
	}
	schema, err := rpc.ParseObject(params.Get("requestedSchema"))
	if err != nil {
		return params, &unasked{why: "requestedSchema cannot be read"}
	}
	drawn, ok := drawnField("", schema)
	fields, _ := rpc.ParseObject(schema.Get("properties"))
	fields = fields.Map(func(name string, v jsontext.Value) jsontext.Value {
		field, err := rpc.ParseObject(v)
		if err != nil {
			ok = ok && !asksForSecret(name)
			return v
		}
		plain, fine := drawnField(name, field)
		ok = ok && fine
		return plain.Value()
	})
	if fields.Len() > 0 {
		drawn = drawn.With("properties", fields.Value())
	}
	if !ok {
		return params, &unasked{why: "no form asks for a password, or for another secret"}
	}
	return params.With("requestedSchema", drawn.Value()), nil
}

// drawnField is a field of a form whose words are what they look like. It is not ok if it is one for a secret.
func drawnField(name string, field rpc.Object) (drawn rpc.Object, ok bool) {
	ok = !asksForSecret(name) && !asksForSecret(field.GetString("title")) && !asksForSecret(field.GetString("description"))
	return drawnWords(field).Map(func(member string, v jsontext.Value) jsontext.Value {
		switch member {
		case "enumNames":
			return eachOf(v, func(one jsontext.Value) jsontext.Value { return drawnText(one, textOf(one)) })
		case "items":
			return drawnChoice(v)
		}
		return v
	}), ok
}

// drawnChoice is one of several that may be chosen, or the list of them.
func drawnChoice(v jsontext.Value) jsontext.Value {
	o, err := rpc.ParseObject(v)
	if err != nil {
		return v
	}
	return drawnWords(o).Value()
}

// drawnWords has its title and description, and those of its choices.
func drawnWords(o rpc.Object) rpc.Object {
	return o.Map(func(member string, v jsontext.Value) jsontext.Value {
		switch member {
		case "title", "description":
			return drawnText(v, o.GetString(member))
		case "oneOf", "anyOf":
			return eachOf(v, drawnChoice)
		}
		return v
	})
}

// drawnText is a text in JSON as it looks, and the same bytes if it is what it looks like.
func drawnText(v jsontext.Value, text string) jsontext.Value {
	if plain := visible.Lines(text); plain != text {
		return rpc.String(plain)
	}
	return v
}

func textOf(v jsontext.Value) string {
	return rpc.Object{}.With("text", v).GetString("text")
}

// eachOf is an array with each element changed, and what it was if it is none.
func eachOf(v jsontext.Value, f func(jsontext.Value) jsontext.Value) jsontext.Value {
	all, err := rpc.Elements(v)
	if err != nil {
		return v
	}
	for n := range all {
		all[n] = f(all[n])
	}
	return rpc.Array(all)
}
