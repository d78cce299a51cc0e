package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"policy-service/pdp/internal/spelling"
)

var (
	yamlLine   = regexp.MustCompile(`line (\d+)`)
	yamlAnchor = regexp.MustCompile(`unknown anchor '(.*)' referenced`)
)

// maxSuggestions bounds how many names are compared with others. People read only some, and a file may hold tens of thousands.
const maxSuggestions = 100

// Map reads one YAML mapping strictly. Unknown keys, repeated keys and values of the wrong
// form are problems with their place.
type Map struct {
	File     string
	Problems *Problems
	Known    map[string]func(*yaml.Node)
}

// Read reads a file that is one YAML document. Anything else is a problem.
func Read(file string, text []byte, problems *Problems) (*yaml.Node, bool) {
	var doc, more yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	err := documents.Decode(&doc)
	if err == nil {
		// The reader stops at a line of three hyphens, and would silently skip the text
		// after it.
		if err = documents.Decode(&more); err == nil {
			problems.Add(file, more.Line, 1, "yaml_documents", "a second document begins here, and would not be read",
				"put everything into one")
			return nil, false
		}
	}
	if !errors.Is(err, io.EOF) {
		line, column, what, try := whereNot(text, err.Error())
		problems.Add(file, line, column, "yaml_syntax", "this is not YAML"+what, try)
		return nil, false
	}
	if len(doc.Content) == 0 {
		problems.Add(file, 1, 1, "yaml_empty", "the document is empty", "write a value or remove the file")
		return nil, false
	}
	return doc.Content[0], true
}

// blockText matches the end of a line below which the lines of a text stand.
var blockText = regexp.MustCompile(`[|>][-+0-9]*\s*(#.*)?$`)

// misplaced finds the first line that is indented less than the one above it, and as no block that is open there.
// Where it begins is its column. The reader itself names the line at which the block begins.
func misplaced(text []byte) (line, column int) {
	var open []int // how far the blocks are indented in which a line is
	inText := -1   // how far the line is indented below which the lines of a text stand
	for n, one := range strings.Split(string(text), "\n") {
		rest := strings.TrimLeft(one, " ")
		at := len(one) - len(rest)
		if rest == "" || rest[0] == '#' || inText >= 0 && at > inText {
			continue
		}
		inText = -1
		dedents := false
		for len(open) > 0 && open[len(open)-1] > at {
			open, dedents = open[:len(open)-1], true
		}
		if dedents && (len(open) == 0 || open[len(open)-1] != at) {
			return n + 1, at + 1
		}
		for {
			if len(open) == 0 || open[len(open)-1] < at {
				open = append(open, at)
			}
			item, is := strings.CutPrefix(rest, "- ")
			if !is {
				break
			}
			item = strings.TrimLeft(item, " ")
			at, rest = at+len(rest)-len(item), item
		}
		if blockText.MatchString(rest) {
			inText = open[len(open)-1]
		}
	}
	return 0, 0
}

// whereNot finds the place at which a text is no YAML, with the reason and a remedy.
func whereNot(text []byte, message string) (line, column int, what, try string) {
	try = "check indentation and quotes near this line"
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		_, _ = fmt.Sscan(m[1], &line)
		if tab, at := tabFrom(text, line-1); tab > 0 && strings.Contains(message, "cannot start any token") {
			return tab, at, ": a tab cannot indent", "indent with spaces"
		}
		if bad, at := misplaced(text); bad > 0 && strings.Contains(message, "did not find expected") && !strings.Contains(message, "','") {
			return bad, at, ": this line is indented as no line above it that it could stand beside", "indent it as the lines that it belongs to"
		}
		_, reason, _ := strings.Cut(message, m[0]+": ")
		return line, 1, ": " + reason, try
	}
	// The reader names no line if it is the first, or if the fault is no matter of syntax.
	at := 0
	if m := yamlAnchor.FindStringSubmatch(message); m != nil {
		at, try = bytes.Index(text, []byte("*"+m[1])), "write a text that begins with a star in quotes"
	} else if i := bytes.IndexFunc(text, notYAML); i >= 0 {
		at, try = i, "remove the control characters, and write the file as UTF-8"
	} else {
		_, reason, _ := strings.Cut(message, "yaml: ")
		what = ": " + reason
	}
	return bytes.Count(text[:max(at, 0)], []byte("\n")) + 1, 1, what, try
}

// tabFrom is the place of the first tab that indents a line, from a line on. The line is 0 if there is none.
func tabFrom(text []byte, from int) (line, column int) {
	for n, one := range bytes.Split(text, []byte("\n")) {
		indent := len(one) - len(bytes.TrimLeft(one, " \t"))
		if i := bytes.IndexByte(one[:indent], '\t'); n+1 >= from && i >= 0 {
			return n + 1, i + 1
		}
	}
	return 0, 0
}

// notYAML reports if a character cannot stand in YAML. Bytes that are no UTF-8 are such a character.
func notYAML(c rune) bool {
	return c < ' ' && c != '\t' && c != '\n' && c != '\r' || c > '~' && c < 0xA0 && c != 0x85 || c == utf8.RuneError || c > 0xFFFD && c < 0x10000
}

// Bad notes a problem at a node. It always returns false.
func (m *Map) Bad(n *yaml.Node, code, message, try string, mend ...Mend) bool {
	m.Problems.Add(m.File, n.Line, n.Column, code, message, try, mend...)
	return false
}

// Read reads the members of a mapping. Each member must be known.
func (m *Map) Read(n *yaml.Node) {
	m.Each(n, func(key, value *yaml.Node) {
		if set, ok := m.Known[key.Value]; ok {
			set(value)
			return
		}
		known, hint := slices.Sorted(maps.Keys(m.Known)), Near("")
		if near, ok := spelling.Nearest(key.Value, known); ok && len(*m.Problems) < maxSuggestions {
			hint = Near(near)
		}
		m.Bad(key, "unknown_key", "unknown key "+quoted(key.Value)+hint.String(), "use one of "+strings.Join(known, ", "), hint.At(key))
	})
}

// quoted quotes the beginning of a key. A key can be as long as a file, and there can be many.
func quoted(key string) string {
	const most = 64
	if beginning := []rune(key[:min(len(key), (most+1)*utf8.UTFMax)]); len(beginning) > most {
		return strconv.Quote(string(beginning[:most])) + "…"
	}
	return strconv.Quote(key)
}

// Each calls do for each member of a mapping.
func (m *Map) Each(n *yaml.Node, do func(key, value *yaml.Node)) {
	if n == nil {
		return
	}
	if n.Kind != yaml.MappingNode {
		m.Bad(n, "yaml_form", "this must be a mapping", "write key: value lines")
		return
	}
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || value.Kind == yaml.AliasNode || key.Tag == "!!merge":
			m.Bad(key, "yaml_form", "aliases, merges and complex keys are not read here", "write the value out")
		case seen[key.Value]:
			m.Bad(key, "duplicate_key", fmt.Sprintf("the key %s occurs twice", quoted(key.Value)), "keep one")
		default:
			seen[key.Value] = true
			do(key, value)
		}
	}
}

// List calls do for each element of a list.
func (m *Map) List(n *yaml.Node, do func(*yaml.Node)) {
	if n == nil {
		return
	}
	if n.Kind != yaml.SequenceNode {
		m.Bad(n, "yaml_form", "this must be a list", "write - item lines")
		return
	}
	for _, item := range n.Content {
		do(item)
	}
}

// Names reads a list of strings.
func (m *Map) Names(n *yaml.Node) (names []string) {
	m.List(n, func(item *yaml.Node) {
		if m.Text(item) {
			names = append(names, item.Value)
		}
	})
	return names
}

// Text reports if a node is a text that is not empty. Anything else is a problem.
func (m *Map) Text(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
		return m.Bad(n, "yaml_form", "this must be a name", "write it as a string")
	}
	return true
}

// OneOf is the text of a node. The text must be one of the values.
func (m *Map) OneOf(n *yaml.Node, values ...string) string {
	if n.Kind != yaml.ScalarNode || !slices.Contains(values, n.Value) {
		m.Bad(n, "yaml_value", "this must be one of "+strings.Join(values, ", "), "")
	}
	return n.Value
}
