package server

import (
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Write writes the configuration that is in force with c, as a file that says the same,
// and beside each value where it came from.
func (c Config) Write(w io.Writer, from Origins) error {
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(c.document(from)); err != nil {
		return fmt.Errorf("cannot write the configuration: %w; try another place", err)
	}
	return encoder.Close()
}

// recorded is the configuration as it goes on record, by the names of the file. None of
// it is secret: see the tag secret of [Key].
func (c Config) recorded() map[string]any {
	all := map[string]any{}
	_ = c.document(nil).Decode(&all) // it is made of what a file can say
	return all
}

func (c Config) document(from Origins) *yaml.Node {
	c.setDefaults()
	return from.section(reflect.ValueOf(c), "")
}

// section is a mapping without the keys that have no value.
func (o Origins) section(v reflect.Value, path string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range configFields(v.Type()) {
		field := v.FieldByIndex(f.index)
		if value := o.value(field, joinKey(path, f.name)); value != nil {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: f.name}, value)
		}
	}
	return n
}

// value is nil where there is none. An empty list is one, and so is a section behind a
// pointer, which is on where it is there.
func (o Origins) value(v reflect.Value, path string) *yaml.Node {
	switch {
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return o.section(v.Elem(), path)
	case v.Kind() == reflect.Struct:
		if n := o.section(v, path); len(n.Content) > 0 {
			return n
		}
		return nil
	case v.Kind() == reflect.Slice:
		return o.list(v, path)
	case v.IsZero() && v.Kind() != reflect.Bool:
		return nil
	}
	n := keyAt(path).node(configText(v, keyAt(path)))
	if v.Kind() == reflect.String {
		setText(n, n.Value)
	}
	o.comment(n, path)
	if keyAt(path).secret && n.Value != v.String() && o != nil {
		n.LineComment += ", where more is said, which may be secret"
	}
	return n
}

func (o Origins) list(v reflect.Value, path string) *yaml.Node {
	if v.IsNil() {
		return nil
	}
	n := &yaml.Node{Kind: yaml.SequenceNode}
	if v.Type().Elem().Kind() == reflect.String {
		n.Style = yaml.FlowStyle
		o.comment(n, path)
		o = nil // it is said once, for the whole line
	}
	for i := range v.Len() {
		item := path + "[" + strconv.Itoa(i) + "]"
		if v.Index(i).Kind() == reflect.Struct {
			n.Content = append(n.Content, o.section(v.Index(i), item))
		} else {
			text := &yaml.Node{}
			setText(text, v.Index(i).String())
			n.Content = append(n.Content, text)
		}
	}
	return n
}

// setText quotes what is not ASCII: whoever prints it may then write what cannot be seen
// as an escape, and the value stays the same.
func setText(n *yaml.Node, text string) {
	n.SetString(text)
	if strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) {
		n.Style = yaml.DoubleQuotedStyle
	}
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

// configText is a scalar as it would be written anywhere.
func configText(v reflect.Value, k Key) string {
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

// shownURL is as much of a URL as anybody may see. Of what is no URL that is nothing.
func shownURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "not shown, and no URL"
	}
	return u.Scheme + "://" + u.Host
}
