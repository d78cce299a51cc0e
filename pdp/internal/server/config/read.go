package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"policy-service/pdp/internal/plainfile"
)

// maxFile bounds a configuration file.
const maxFile = 1 << 20

// Given is everything that a configuration is read from. The environment wins over the file, and a flag over both.
type Given struct {
	// File is the configuration file; "" is none. It is YAML, of which JSON is a part, and is read strictly: a value that
	// is probably not meant is a mistake, with its place. Paths in it are relative to its directory.
	File string
	// Environ are variables, as [os.Environ] has them. Those that begin with the prefix of the form set the scalar keys;
	// see [Key.Variable].
	Environ []string
	// Flags are those given on a command line.
	Flags []Flag
}

// Flag is a flag that sets a key. Name is the flag as people write it.
type Flag struct{ Key, Name, Value string }

// Mistakes are all mistakes of a configuration, a line each: place, mistake, remedy.
type Mistakes []string

func (m Mistakes) Error() string { return strings.Join(m, "\n") }

// Origins are the places where values were given: file:line:column, a variable or a flag, by the path of the key. A key
// that is not there has its default. The path of a value in an [Object] ends with its JSON Pointer.
type Origins map[string]string

// Below is the path of the value at a JSON Pointer in an [Object], or of the nearest place above it that was given.
func (o Origins) Below(path, pointer string) string {
	return nearest(path+pointer, func(path string) bool { return o[path] != "" })
}

// nearest is the nearest path upwards that was given; "" if none was.
func nearest(path string, given func(string) bool) string {
	for path != "" && !given(path) {
		path = path[:max(strings.LastIndexAny(path, "/.["), 0)]
	}
	return path
}

// Read sets in c all that is given. Its error is of type [Mistakes], unless the file cannot be read at all.
func (f Form[T]) Read(given Given, c *T) (Origins, error) {
	r, keys, root := newReading(given.File), f.root(), reflect.ValueOf(c).Elem()
	if given.File != "" {
		text, err := plainfile.Read(given.File, maxFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read the configuration: %w; try another --config", err)
		}
		if document := r.document(text); document != nil {
			r.value(document, keys, root, "")
		}
	}
	for _, flag := range append(f.environment(given.Environ, r), given.Flags...) {
		r.set(flag, keys, root)
	}
	if f.Check != nil {
		checked := *c
		f.SetDefaults(&checked)
		f.Check(&checked, r)
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	from := Origins{}
	for path, n := range r.at {
		from[path] = r.place(n)
	}
	return from, nil
}

// Reading is one configuration while it is read or verified. It collects all mistakes, and knows the place of every value
// that was read.
type Reading struct {
	file      string
	mistakes  Mistakes
	at        map[string]*yaml.Node // the value of each key that was given, by paths as a.b[0].c
	elsewhere map[*yaml.Node]string // the names of variables and flags, by the values they gave
	wrong     map[string]bool       // the paths with a mistake in their value, or below it
}

func newReading(file string) *Reading {
	return &Reading{file: file, at: map[string]*yaml.Node{}, elsewhere: map[*yaml.Node]string{}, wrong: map[string]bool{}}
}

func (r *Reading) err() error {
	if len(r.mistakes) > 0 {
		return r.mistakes
	}
	return nil
}

// Empty reports whether a key was given a list or a section with nothing in it.
func (r *Reading) Empty(path string) bool {
	n := r.at[path]
	return n != nil && len(n.Content) == 0
}

// Add adds a mistake at the place of a key, or of the nearest key above it that was given. The error includes a remedy. It
// is left out if the value there has a mistake already, which may be the reason for it.
func (r *Reading) Add(path string, err error) {
	given := nearest(path, func(path string) bool { return r.at[path] != nil })
	if err != nil && (given == "" || !r.wrong[given]) {
		r.mistakes = append(r.mistakes, at(r.place(r.at[given]))+err.Error())
	}
}

// Addf is [Reading.Add] of an error that it makes.
func (r *Reading) Addf(path, format string, args ...any) { r.Add(path, fmt.Errorf(format, args...)) }

// add adds a mistake at a place that has a name: a variable, a flag or file:line:column.
func (r *Reading) add(place, what, try string) {
	r.mistakes = append(r.mistakes, at(place)+what+"; "+try)
}

func at(place string) string {
	if place == "" {
		return ""
	}
	return place + ": "
}

func (r *Reading) addAt(n *yaml.Node, what, try string) { r.add(r.place(n), what, try) }

func (r *Reading) place(n *yaml.Node) string {
	switch name, is := r.elsewhere[n]; {
	case is:
		return name
	case n == nil:
		return r.file
	}
	return r.position(n.Line, n.Column)
}

func (r *Reading) position(line, column int) string {
	return fmt.Sprintf("%s:%d:%d", r.file, max(line, 1), max(column, 1))
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

// document returns the root of the only document. It returns nil if there is none, which is no mistake: a file may be
// empty or hold comments alone.
func (r *Reading) document(text []byte) *yaml.Node {
	var doc, more yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	err := documents.Decode(&doc)
	if err == nil {
		if err = documents.Decode(&more); err == nil {
			r.addAt(&more, "a second document begins here, and would not be read", "put everything into one")
			return nil
		}
	}
	if !errors.Is(err, io.EOF) {
		line := 0
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			_, _ = fmt.Sscan(m[1], &line)
		}
		r.add(r.position(line, 1), "this is not YAML", "check indentation and quotes near this line")
		return nil
	}
	if len(doc.Content) == 0 {
		return nil
	}
	return doc.Content[0]
}
