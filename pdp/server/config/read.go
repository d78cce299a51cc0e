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

	"policy-service/pdp/plainfile"
)

// maxFile bounds a configuration file.
const maxFile = 1 << 20

// Given is everything that a configuration is read from. The environment wins over the file,
// and a flag over both.
type Given struct {
	// File is the configuration file; "" is none. It is YAML, of which JSON is a part,
	// and is read strictly: a value that is probably not what was meant is a mistake, with
	// its place. Paths in it are relative to its directory.
	File string
	// Environ are variables, as [os.Environ] has them. Those that begin with the prefix of
	// the form set the scalar keys; see [Key.Variable].
	Environ []string
	// Flags are those given on a command line.
	Flags []Flag
}

// Flag is a flag that sets a key. Name is how people write it.
type Flag struct{ Key, Name, Value string }

// Mistakes are all that is wrong with a configuration, a line each: where it is, what it
// is, and what to try.
type Mistakes []string

func (m Mistakes) Error() string { return strings.Join(m, "\n") }

// Origins say where each value was given: file:line:column, a variable or a flag, by the
// path of the key. A key that is not there has its default.
type Origins map[string]string

// Read sets in c what is given. Its error is of type [Mistakes], unless the file cannot be
// read at all.
func (f Form[T]) Read(given Given, c *T) (Origins, error) {
	r := newReading(given.File, f.table())
	root := reflect.ValueOf(c).Elem()
	if given.File != "" {
		text, err := plainfile.Read(given.File, maxFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read the configuration: %w; try another --config", err)
		}
		if document := r.document(text); document != nil {
			r.value(document, root, "")
		}
	}
	f.environment(given.Environ, r, root)
	for _, flag := range given.Flags {
		r.set(flag, root)
	}
	if f.Check != nil {
		f.Check(c, r)
	}
	if len(r.mistakes) > 0 {
		return nil, r.mistakes
	}
	return r.origins(), nil
}

// Reading is one configuration while it is read. It collects all mistakes, and knows the
// place of every value.
type Reading struct {
	file      string
	keys      keyTable
	mistakes  Mistakes
	at        map[string]*yaml.Node // the value of each key that was given, by paths as a.b[0].c
	elsewhere map[*yaml.Node]string // the names of variables and flags, by the values they gave
	wrong     map[string]bool       // the keys with a mistake in their value, or below it
}

func newReading(file string, keys keyTable) *Reading {
	return &Reading{
		file:      file,
		keys:      keys,
		at:        map[string]*yaml.Node{},
		elsewhere: map[*yaml.Node]string{},
		wrong:     map[string]bool{},
	}
}

// Sound reports whether there is no mistake in the value of a key or below it. A further
// check of a value that is not sound would find the same mistake again.
func (r *Reading) Sound(path string) bool { return !r.wrong[path] }

// Given reports whether a key was given a value.
func (r *Reading) Given(path string) bool { return r.at[path] != nil }

// Empty reports whether a key was given a list or a section with nothing in it.
func (r *Reading) Empty(path string) bool {
	n := r.at[path]
	return n != nil && len(n.Content) == 0
}

// Add adds a mistake at the place of a key. The error also says what to try.
func (r *Reading) Add(path string, err error) {
	r.mistakes = append(r.mistakes, fmt.Sprintf("%s: %v", r.place(r.at[path]), err))
}

// add adds a mistake at a place that has a name: a variable, a flag or file:line:column.
func (r *Reading) add(place, what, try string) {
	r.mistakes = append(r.mistakes, fmt.Sprintf("%s: %s; %s", place, what, try))
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

func (r *Reading) origins() Origins {
	all := Origins{}
	for path, n := range r.at {
		all[path] = r.place(n)
	}
	return all
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

// document returns the root of the only document. It returns nil if there is none, which is
// no mistake: a file may be empty or hold comments alone.
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
