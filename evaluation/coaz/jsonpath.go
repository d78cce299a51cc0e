package coaz

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const notSingular = "a string that begins with $ must be a JSONPath that selects one place, from $.properties or $.token on"

// query compiles an expression of the older dialect.
func (c *compiler) query(l *leaf) (node, *Error) {
	steps, ok := parseSingular(l.text)
	if !ok || len(steps) == 0 || steps[0].isIndex || steps[0].name != "properties" && steps[0].name != "token" {
		return nil, c.fail(l.at, notSingular)
	}
	s := selection{root: "token", steps: steps[1:], alone: true}
	if steps[0].name == "properties" {
		s = selection{root: "params", steps: append([]step{{name: "arguments"}}, steps[1:]...), alone: true}
	}
	l.reads = []selection{s}
	return place{l.at, s}, nil
}

// place is one place in the arguments or the claims. If nothing is there, it has no value.
type place struct {
	at        string
	selection selection
}

func (p place) append(b []byte, r *resolution) ([]byte, bool, *Error) {
	r.vars.op = r.op
	v, ok := p.selection.in(&r.vars)
	if !ok {
		return b, false, nil
	}
	return r.within(append(b, literalOf(v)...), p.at)
}

// parseSingular reads a query that can select one node at most (RFC 9535, 2.3.5.1): names and indices, nothing else.
func parseSingular(text string) ([]step, bool) {
	rest, ok := strings.CutPrefix(text, "$")
	if !ok || !utf8.ValidString(text) {
		return nil, false
	}
	steps := []step{}
	for rest != "" {
		var s step
		if rest = trimBlanks(rest); strings.HasPrefix(rest, ".") {
			s, rest, ok = shorthand(rest[1:])
		} else {
			s, rest, ok = bracketed(rest)
		}
		if !ok {
			return nil, false
		}
		steps = append(steps, s)
	}
	return steps, true
}

func trimBlanks(s string) string { return strings.TrimLeft(s, " \t\n\r") }

// shorthand reads a name that stands without brackets and quotes.
func shorthand(s string) (step, string, bool) {
	end := strings.IndexFunc(s, func(c rune) bool {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= utf8.RuneSelf
		return !letter && (c < '0' || c > '9')
	})
	if end < 0 {
		end = len(s)
	}
	name := s[:end]
	return step{name: name}, s[end:], name != "" && (name[0] < '0' || name[0] > '9')
}

// bracketed reads a quoted name or an index in brackets.
func bracketed(s string) (next step, rest string, ok bool) {
	if s, ok = strings.CutPrefix(s, "["); !ok {
		return step{}, "", false
	}
	if s = trimBlanks(s); strings.HasPrefix(s, `'`) || strings.HasPrefix(s, `"`) {
		next.name, s, ok = quoted(s)
	} else {
		next.isIndex = true
		next.index, s, ok = index(s)
	}
	rest, closed := strings.CutPrefix(trimBlanks(s), "]")
	return next, rest, ok && closed
}

// quoted reads a name in quotes. Its escapes are those of JSON, but that of the quotes only its own can be escaped.
func quoted(s string) (name, rest string, ok bool) {
	quote := s[0]
	asJSON := []byte{'"'}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			asJSON = append(asJSON, '"')
			text, err := jsontext.AppendUnquote(nil, asJSON)
			return string(text), s[i+1:], err == nil
		case c == '"':
			asJSON = append(asJSON, `\"`...)
		case c == '\\' && i+1 < len(s):
			i++
			switch s[i] {
			case quote:
				if quote == '"' {
					asJSON = append(asJSON, '\\')
				}
				asJSON = append(asJSON, quote)
			case '"':
				return "", "", false
			default:
				asJSON = append(asJSON, '\\', s[i])
			}
		default:
			asJSON = append(asJSON, c)
		}
	}
	return "", "", false
}

// index reads an integer that every reader of JSON has.
func index(s string) (n int64, rest string, ok bool) {
	const greatest = 1<<53 - 1
	end := strings.IndexFunc(s, func(c rune) bool { return c != '-' && (c < '0' || c > '9') })
	if end < 0 {
		end = len(s)
	}
	n, err := strconv.ParseInt(s[:end], 10, 64)
	return n, s[end:], err == nil && strconv.FormatInt(n, 10) == s[:end] && -greatest <= n && n <= greatest
}
