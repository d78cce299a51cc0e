package server

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
	"policy-service/pdp/server/auth"
)

// maxConfig bounds a configuration file.
const maxConfig = 1 << 20

// Given is all that a configuration is read from. The environment wins over the file,
// and a flag over both.
type Given struct {
	// File is the configuration file; "" is none. It is YAML, of which JSON is a part,
	// and is read strictly: whatever cannot be what was meant is a mistake, with its
	// place. Paths in it are relative to its directory.
	File string
	// Environ are variables, as [os.Environ] has them. Those that begin with
	// [EnvironmentPrefix] set the scalar keys; see [Key.Variable].
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
// path of the key. What is not there has its default.
type Origins map[string]string

// ReadConfig sets what a configuration file says in c, and looks at nothing else.
func ReadConfig(name string, c *Config) error {
	_, err := Given{File: name}.Read(c)
	return err
}

// Read sets what is given in c. Its error is of type [Mistakes], but where the file cannot
// be read at all.
func (g Given) Read(c *Config) (Origins, error) {
	r := newConfigReader(g.File)
	if g.File != "" {
		text, err := plainfile.Read(g.File, maxConfig)
		if err != nil {
			return nil, fmt.Errorf("cannot read the configuration: %w; try another --config", err)
		}
		if root := r.document(text); root != nil {
			r.value(root, reflect.ValueOf(c).Elem(), "")
		}
	}
	r.environment(g.Environ, c)
	for _, f := range g.Flags {
		r.set(keyAt(f.Key), f.Name, f.Value, c)
	}
	r.check(c)
	if len(r.mistakes) > 0 {
		return nil, r.mistakes
	}
	return r.origins(), nil
}

// configReader reads a document into a struct and collects everything wrong with it.
type configReader struct {
	file     string
	mistakes Mistakes
	at       map[string]*yaml.Node // where the value of each key stands, as a.b[0].c
	named    map[*yaml.Node]string // what stands in no file, by where it does
	wrong    map[string]bool       // whether there is a mistake in the value of a key, or below it
}

func newConfigReader(file string) *configReader {
	return &configReader{file: file, at: map[string]*yaml.Node{}, named: map[*yaml.Node]string{}, wrong: map[string]bool{}}
}

func (r *configReader) bad(line, column int, what, try string) {
	r.badHere(fmt.Sprintf("%s:%d:%d", r.file, max(line, 1), max(column, 1)), what, try)
}

func (r *configReader) badNode(n *yaml.Node, what, try string) { r.badHere(r.place(n), what, try) }

// badAt is an error that says itself what to try, at the place of a key.
func (r *configReader) badAt(path string, err error) {
	r.mistakes = append(r.mistakes, fmt.Sprintf("%s: %v", r.place(r.at[path]), err))
}

func (r *configReader) place(n *yaml.Node) string {
	switch name, there := r.named[n]; {
	case there:
		return name
	case n == nil:
		return r.file
	}
	return fmt.Sprintf("%s:%d:%d", r.file, max(n.Line, 1), max(n.Column, 1))
}

func (r *configReader) origins() Origins {
	all := Origins{}
	for path, n := range r.at {
		all[path] = r.place(n)
	}
	return all
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

// document returns the root of the only document; nil where there is none, which is
// no error where the file is empty: a file may hold comments alone.
func (r *configReader) document(text []byte) *yaml.Node {
	var doc, more yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	err := documents.Decode(&doc)
	if err == nil {
		if err = documents.Decode(&more); err == nil {
			r.badNode(&more, "a second document begins here, and would not be read", "put everything into one")
			return nil
		}
	}
	if !errors.Is(err, io.EOF) {
		line := 0
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			_, _ = fmt.Sscan(m[1], &line)
		}
		r.bad(line, 1, "this is not YAML", "check indentation and quotes near this line")
		return nil
	}
	if len(doc.Content) == 0 {
		return nil
	}
	return doc.Content[0]
}

// check finds what is wrong with values that were read, where the place is still known.
// Those with a mistake are passed over: it may be what is wrong with them.
func (r *configReader) check(c *Config) {
	if r.at["public_url"] != nil && !r.wrong["public_url"] {
		if _, err := cleanPublicURL(c.PublicURL); err != nil {
			r.badAt("public_url", err)
		}
	}
	if !r.wrong["decision_log.mask"] {
		r.checkMask(c.DecisionLog.Mask)
	}
	if !r.wrong["decision_log.retain"] {
		r.checkRetain(c.DecisionLog.Retain)
	}
	if !r.wrong["auth"] {
		r.checkAuth(c.Auth)
	}
	if !r.wrong["rate_limit"] {
		r.checkRates(c.Load.RateLimit)
	}
	if err := c.checkAdmin(); err != nil {
		r.badAt("admin_listen", err)
	}
}

func (r *configReader) checkAuth(c AuthConfig) {
	for _, key := range []string{"auth", "auth.jwt", "auth.mtls"} {
		if n := r.at[key]; n != nil && len(n.Content) == 0 {
			r.badNode(n, key+" is empty, and would let nobody in", "list who may ask, or leave it out")
		}
	}
	_, err := auth.NewJWT(c.JWT, auth.JWTOptions{})
	r.located(err)
	_, err = auth.NewMTLS(c.MTLS, nil)
	r.located(err)
}

var authEntry = regexp.MustCompile(`^auth\.\w+\[\d+\]`)

// located puts the place of the entry before each line of an error that begins with its path.
func (r *configReader) located(err error) {
	if err == nil {
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		r.badAt(authEntry.FindString(line), errors.New(line))
	}
}
