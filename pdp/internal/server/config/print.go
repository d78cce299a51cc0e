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

// Write writes c, and the defaults of the keys that c leaves out, as a file that gives the same configuration if it is
// read. A comment beside each value names its origin: a file, a flag, a variable or the default.
func (f Form[T]) Write(w io.Writer, c T, from Origins) error {
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(f.document(c, from)); err != nil {
		return fmt.Errorf("cannot write the configuration: %w; try another place", err)
	}
	return encoder.Close()
}

// Values are those of c, and the defaults of the keys that c leaves out, by the names of the file. None of them is
// secret: see the tag secret of [Key].
func (f Form[T]) Values(c T) map[string]any {
	all := map[string]any{}
	_ = f.document(c, nil).Decode(&all) // every document that a file can say can be decoded
	return all
}

// document is a configuration as a file. Without origins it has no comments.
func (f Form[T]) document(c T, from Origins) *yaml.Node {
	f.SetDefaults(&c)
	return from.node(f.root(), reflect.ValueOf(c), "")
}

func (o Origins) node(k *Key, v reflect.Value, path string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.Struct:
		for _, one := range k.keys {
			if value := o.member(one, v.FieldByIndex(one.index), join(path, one.name)); value != nil {
				n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: one.name}, value)
			}
		}
	case v.Kind() == reflect.Map:
		for _, name := range names(v) {
			if value := o.node(k.item, v.MapIndex(name), Entry(path, name.String())); value != nil {
				n.Content = append(n.Content, quoted(name.String()), value)
			}
		}
	case k.item != nil:
		n.Kind = yaml.SequenceNode
		for i := range v.Len() {
			n.Content = append(n.Content, o.node(k.item, v.Index(i), fmt.Sprintf("%s[%d]", path, i)))
		}
		if k.item.scalar != nil { // on one line, with one comment
			n.Style = yaml.FlowStyle
			o.comment(n, path)
			for _, item := range n.Content {
				item.LineComment = ""
			}
		}
	case k.scalar == nil: // an Object, on one line
		var document yaml.Node
		if err := yaml.Unmarshal(v.Bytes(), &document); err != nil || len(document.Content) == 0 {
			return nil // it is no JSON: no file can have said it
		}
		n = document.Content[0]
		o.comment(n, path)
	default:
		if n = quoted(k.text(v)); v.Kind() != reflect.String {
			n = &yaml.Node{Kind: yaml.ScalarNode, Tag: k.scalar.tags[len(k.scalar.tags)-1], Value: k.text(v)}
		}
		o.comment(n, path)
		if k.secret && n.Value != v.String() && o != nil {
			n.LineComment += ", where more is said, which may be secret"
		}
	}
	return n
}

// member is nil for a key that has no value. An empty list is a value, and so is a section behind a pointer, which is on if
// it is there.
func (o Origins) member(k *Key, v reflect.Value, path string) *yaml.Node {
	switch v.Kind() {
	case reflect.Bool:
	case reflect.Struct:
		if n := o.node(k, v, path); len(n.Content) > 0 {
			return n
		}
		return nil
	default:
		if v.IsZero() {
			return nil
		}
	}
	return o.node(k, v, path)
}

// quoted is a text, in quotes if it needs them or is not ASCII. A printer of the document may then write invisible
// characters as escapes, and the value stays the same.
func quoted(text string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(text)
	if strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func (o Origins) comment(n *yaml.Node, path string) {
	if o == nil {
		return
	}
	n.LineComment = "default"
	if place, given := o[path]; given {
		n.LineComment = place
	}
}

// text is a value of the key as a file would have it. Of a secret URL it is the part that is not secret.
func (k *Key) text(v reflect.Value) string {
	text := fmt.Sprint(v.Interface())
	if k.secret {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" {
			return "not shown, and no URL"
		}
		return u.Scheme + "://" + u.Host
	}
	if k.path {
		if whole, err := filepath.Abs(text); err == nil {
			return whole
		}
	}
	return text
}
