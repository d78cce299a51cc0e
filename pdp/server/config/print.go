package config

import (
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Write writes c, and the defaults of what c leaves out, as a file that gives the same configuration if it is read. A
// comment beside each value names its origin: a file, a flag, a variable or the default.
func (f Form[T]) Write(w io.Writer, c T, from Origins) error {
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(f.document(c, from)); err != nil {
		return fmt.Errorf("cannot write the configuration: %w; try another place", err)
	}
	return encoder.Close()
}

// Values are those of c, and the defaults of what c leaves out, by the names of the file. None of
// them is secret: see the tag secret of [Key].
func (f Form[T]) Values(c T) map[string]any {
	all := map[string]any{}
	_ = f.document(c, nil).Decode(&all) // every document that a file can say can be decoded
	return all
}

func (f Form[T]) document(c T, from Origins) *yaml.Node {
	f.SetDefaults(&c)
	return printer{f.table(), from}.section(reflect.ValueOf(c), "")
}

// printer makes a document of a configuration. Without origins the document has no comments.
type printer struct {
	keys keyTable
	from Origins
}

// section is a mapping without the keys that have no value.
func (p printer) section(v reflect.Value, path string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fields(v.Type()) {
		field := v.FieldByIndex(f.index)
		if value := p.value(field, join(path, f.name)); value != nil {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: f.name}, value)
		}
	}
	return n
}

// value is nil if there is none. An empty list is a value, and so is a section behind a
// pointer, which is on if it is there.
func (p printer) value(v reflect.Value, path string) *yaml.Node {
	switch {
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return p.section(v.Elem(), path)
	case v.Kind() == reflect.Struct:
		if n := p.section(v, path); len(n.Content) > 0 {
			return n
		}
		return nil
	case v.Type() == reflect.TypeFor[Object]():
		return p.object(v, path)
	case v.Kind() == reflect.Map:
		return p.entries(v, path)
	case v.Kind() == reflect.Slice:
		return p.list(v, path)
	case v.IsZero() && v.Kind() != reflect.Bool:
		return nil
	}
	k := p.keys.at(path)
	n := k.node(k.text(v))
	if v.Kind() == reflect.String {
		setText(n, n.Value)
	}
	p.comment(n, path)
	if k.secret && n.Value != v.String() && p.from != nil {
		n.LineComment += ", where more is said, which may be secret"
	}
	return n
}

func (p printer) list(v reflect.Value, path string) *yaml.Node {
	if v.IsNil() {
		return nil
	}
	n := &yaml.Node{Kind: yaml.SequenceNode}
	if v.Type().Elem().Kind() == reflect.String { // on one line, with one comment
		n.Style = yaml.FlowStyle
		p.comment(n, path)
	}
	for i := range v.Len() {
		if item := v.Index(i); item.Kind() == reflect.Struct {
			n.Content = append(n.Content, p.section(item, nth(path, i)))
		} else {
			text := &yaml.Node{}
			setText(text, p.keys.at(path).text(item))
			n.Content = append(n.Content, text)
		}
	}
	return n
}

// setText quotes text that is not ASCII. A printer of the document may then write invisible
// characters as escapes, and the value stays the same.
func setText(n *yaml.Node, text string) {
	n.SetString(text)
	if strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) {
		n.Style = yaml.DoubleQuotedStyle
	}
}

func (p printer) comment(n *yaml.Node, path string) {
	if p.from == nil {
		return
	}
	n.LineComment = "default"
	if place, given := p.from[path]; given {
		n.LineComment = place
	}
}

// text is a scalar of the key as it would be written anywhere.
func (k Key) text(v reflect.Value) string {
	text := fmt.Sprint(v.Interface())
	if k.secret {
		return shownURL(text)
	}
	if k.path {
		if whole, err := filepath.Abs(text); err == nil {
			return whole
		}
	}
	return text
}

// shownURL is the part of a URL that is not secret. Text that is no URL has none.
func shownURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "not shown, and no URL"
	}
	return u.Scheme + "://" + u.Host
}
