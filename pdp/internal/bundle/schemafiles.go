package bundle

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/ast"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/places"
)

// maxSchemaText is how many bytes all files of a schema may have together.
const maxSchemaText = 4 << 20

// SchemaFile is one file of a schema. All files of a schema are read together as one: a file may refer to what another
// declares, and each name is declared in one file.
type SchemaFile struct {
	Name string
	Text []byte

	tree  *ast.Schema
	names map[string]bool // that the file declares
}

// schemaFiles are the files of one schema, by name.
type schemaFiles []SchemaFile

// parse reads each file by itself. It reports if all could be read.
func (all schemaFiles) parse(problems *Problems) bool {
	use, size := UsageOf(evaluation.DefaultTenant), 0
	for n := range all {
		if size += len(all[n].Text); size > maxSchemaText {
			problems.Add(all[n].Name, 0, 0, "too_large",
				fmt.Sprintf("all files of a schema may have %d bytes together, and with this one they have more", maxSchemaText), "say less in them")
			break
		}
		all[n].parse(use, problems)
	}
	return !problems.Refuse()
}

func (f *SchemaFile) parse(use *Usage, problems *Problems) {
	var s schema.Schema
	s.SetFilename("schema") // numbers in the name of a file would be taken for a place
	f.Text = withoutMark(f.Text)
	if strings.HasSuffix(f.Name, ".json") {
		if !isJSON(f.Name, f.Text, problems) {
			return
		}
		if err := s.UnmarshalJSON(f.Text); err != nil {
			problems.Add(f.Name, 0, 0, "schema_syntax", "the schema cannot be read: "+err.Error(), "check it against the form of a schema in JSON")
			return
		}
	} else {
		if !checkText(f.Name, f.Text, use, problems) {
			return
		}
		if err := s.UnmarshalCedar(f.Text); err != nil {
			refuseText(f.Name, "schema_syntax", "the schema cannot be read", places.InSchema(string(f.Text), err.Error()), problems)
			return
		}
	}
	f.tree, f.names = s.AST(), map[string]bool{}
	for _, d := range declarationsOf(f.tree) {
		f.names[d.name] = true
	}
}

// isJSON notes what keeps a text from being JSON, and bounds how deep the recursion of a parser goes in it.
func isJSON(file string, text []byte, problems *Problems) bool {
	dec := jsontext.NewDecoder(bytes.NewBuffer(text))
	for {
		_, err := dec.ReadToken()
		switch {
		case err == io.EOF:
			return true
		case err != nil:
			line, column := places.Position(string(text), int(offsetOf(err, dec)))
			problems.Add(file, line, column, "schema_syntax", "the schema cannot be read: "+jsonFault(err), "check the syntax at this place")
			return false
		case dec.StackDepth() > maxNesting:
			line, column := places.Position(string(text), int(dec.InputOffset())-1)
			problems.Add(file, line, column, "schema_nesting",
				fmt.Sprintf("objects and arrays nest more than %d deep", maxNesting),
				"name inner types, and refer to them")
			return false
		}
	}
}

// joined is one tree of all files. A name that two files declare is a problem.
func (all schemaFiles) joined(problems *Problems) *ast.Schema {
	tree := &ast.Schema{Namespaces: ast.Namespaces{}}
	j := joining{files: all, in: map[string]int{}, problems: problems}
	for j.now = range all {
		t := all[j.now].tree
		tree.Entities = join(&j, "entity", "", tree.Entities, t.Entities)
		tree.Enums = join(&j, "entity", "", tree.Enums, t.Enums)
		tree.Actions = join(&j, "action", "", tree.Actions, t.Actions)
		tree.CommonTypes = join(&j, "type", "", tree.CommonTypes, t.CommonTypes)
		for name, more := range t.Namespaces {
			ns := tree.Namespaces[name]
			ns.Annotations = join(nil, "", name, ns.Annotations, more.Annotations)
			ns.Entities = join(&j, "entity", name, ns.Entities, more.Entities)
			ns.Enums = join(&j, "entity", name, ns.Enums, more.Enums)
			ns.Actions = join(&j, "action", name, ns.Actions, more.Actions)
			ns.CommonTypes = join(&j, "type", name, ns.CommonTypes, more.CommonTypes)
			tree.Namespaces[name] = ns
		}
	}
	return tree
}

// joining remembers which file declares what.
type joining struct {
	files    schemaFiles
	now      int            // the file that is joined now
	in       map[string]int // the file that declares a thing
	problems *Problems
}

// join adds the declarations of one kind in one namespace. What is declared already stays.
func join[M ~map[K]V, K ~string, V any](j *joining, kind string, ns types.Path, into, more M) M {
	if into == nil {
		into = M{}
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if j == nil || j.first(kind, ns, string(name)) {
			into[name] = more[name]
		}
	}
	return into
}

// first reports if no other file declares a thing. A file that does so itself twice was refused when it was parsed.
func (j *joining) first(kind string, ns types.Path, name string) bool {
	key := kind + " " + string(inNamespace(ns, name))
	earlier, taken := j.in[key]
	if !taken || earlier == j.now {
		j.in[key] = j.now
		return true
	}
	var line, column int
	other := j.files[earlier].Name
	if len(*j.problems) < maxPlaced {
		line, column = declarationAt(string(j.files[j.now].Text), name)
		if at, on := declarationAt(string(j.files[earlier].Text), name); at > 0 {
			other = fmt.Sprintf("%s:%d:%d", other, at, on)
		}
	}
	j.problems.Add(j.files[j.now].Name, line, column, "schema_twice",
		fmt.Sprintf("%s %s is declared at %s already", kind, Quote(name), other), "declare it in one of the two files")
	return false
}

// declaring is the file that declares a name, in whatever namespace. It is the first file if none does.
func (all schemaFiles) declaring(name string) (file SchemaFile, found bool) {
	for _, f := range all {
		if f.names[name] {
			return f, true
		}
	}
	return all[0], false
}

// declarationOf is the place where the files seem to declare a name.
func (all schemaFiles) declarationOf(name string) (file string, line, column int) {
	f, found := all.declaring(name)
	if found {
		line, column = declarationAt(string(f.Text), name)
	}
	return f.Name, line, column
}

var quotedText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// namedIn is the place of the first declaration that an error of cedar-go names.
func (all schemaFiles) namedIn(err error) (file string, line, column int) {
	for _, quoted := range quotedText.FindAllString(err.Error(), 2) {
		name, _ := strconv.Unquote(quoted)
		bare := name[strings.LastIndex(name, "::")+1:]
		for _, name := range []string{name, strings.TrimPrefix(bare, ":")} {
			if _, found := all.declaring(name); found {
				return all.declarationOf(name)
			}
		}
	}
	if len(all) > 1 {
		return "", 0, 0
	}
	return all[0].Name, 0, 0
}

// builtinTypes are the types that a schema need not declare.
var builtinTypes = []string{"Bool", "Boolean", "Long", "String", "Set", "ipaddr", "decimal", "datetime", "duration"}

// refuseUndeclared notes every name that the files refer to and that none declares. It reports if there is one.
func (all schemaFiles) refuseUndeclared(tree *ast.Schema, problems *Problems) bool {
	known := map[string]map[string]bool{"entity type": {}, "type": {}, "action": {}}
	for _, name := range builtinTypes {
		known["type"][name], known["type"]["__cedar::"+name] = true, true
	}
	declarations := declarationsOf(tree)
	kinds := map[string][]string{"entity": {"entity type", "type"}, "type": {"type"}, "action": {"action"}}
	for _, d := range declarations {
		for _, kind := range kinds[d.kind] {
			known[kind][string(inNamespace(d.in, d.name))] = true
		}
	}
	missing := 0
	for _, d := range declarations {
		refer := func(kind, name string) {
			if known[kind][name] || known[kind][string(inNamespace(d.in, name))] {
				return
			}
			if missing++; missing > maxPlaced {
				return
			}
			file, line, column := all.refers(d.name, kind, name)
			near := DidYouMean(name, maps.Keys(known[kind]))
			problems.Add(file, line, column, "schema_reference",
				fmt.Sprintf("%s %s refers to the %s %s, which is declared nowhere%s", d.kind, Quote(d.name), kind, Quote(name), near),
				"declare it, or correct the name", near.For(name))
		}
		for _, ref := range slices.Concat(d.entities...) {
			refer("entity type", string(ref))
		}
		for _, ref := range d.actions {
			if ref.Type == "" {
				refer("action", string(ref.ID))
			}
		}
		for _, t := range d.types {
			eachType(t, func(t ast.IsType) {
				switch ref := t.(type) {
				case ast.TypeRef:
					refer("type", string(ref))
				case ast.EntityTypeRef:
					refer("entity type", string(ref))
				}
			})
		}
	}
	return missing > 0
}

// refers is the place where a declaration refers to a name that no file declares.
func (all schemaFiles) refers(by, kind, name string) (file string, line, column int) {
	f, found := all.declaring(by)
	if !found {
		return "", 0, 0
	}
	text := string(f.Text)
	tokens := places.Tokens(text)
	at := tokenOf(tokens, by)
	for i := at + 1; i < len(tokens); i++ {
		t := tokens[i]
		if !isMember(tokens, i) &&
			(t.IsText() && t.Name() == name || kind != "action" && places.Find(tokens[i:min(i+16, len(tokens))], name) == t.From) {
			at = i
			break
		}
	}
	line, column = placeOf(text, tokens, at)
	return f.Name, line, column
}

// declarationAt is the place where the text of a schema seems to declare a name. Line and
// column are 0 if there is no such place.
func declarationAt(text, name string) (line, column int) {
	tokens := places.Tokens(text)
	return placeOf(text, tokens, tokenOf(tokens, name))
}

// declaredAt is the place where the text of a schema declares a member of an action's context.
// If the member is not found, it is the place of the action, because the member may be
// declared in a named type. We search the text because cedar-go keeps no places.
func declaredAt(text, action, member string) (line, column int) {
	tokens := places.Tokens(text)
	at := tokenOf(tokens, action)
	for i := at + 1; at >= 0 && i < len(tokens); i++ {
		if isMember(tokens, i) && bareName(tokens[i].Text) == member {
			at = i
			break
		}
		if tokens[i].Text == "action" && !isMember(tokens, i) { // the next action begins
			break
		}
	}
	return placeOf(text, tokens, at)
}

// tokenOf is the index of the token by which a schema seems to declare a name. It is -1 if
// there is none.
func tokenOf(tokens []places.Token, name string) int {
	listed, member := -1, -1
	for i, t := range tokens {
		if bareName(t.Text) != name {
			continue
		}
		before, after := textAt(tokens, i-1), textAt(tokens, i+1)
		begins := slices.Contains([]string{"entity", "action", "type"}, before)
		switch ends := slices.Contains([]string{",", ";", "=", "{", "in", "enum", "tags", "appliesTo"}, after); {
		case begins && ends:
			return i
		case before == "," && ends && listed < 0:
			listed = i
		case t.IsText() && after == ":" && member < 0: // in JSON
			member = i
		}
	}
	if listed >= 0 {
		return listed
	}
	return member
}

// isMember reports if a token is the name of a member.
func isMember(tokens []places.Token, i int) bool {
	after := textAt(tokens, i+1)
	return after == ":" || after == "?"
}

func textAt(tokens []places.Token, i int) string {
	if i < 0 || i >= len(tokens) {
		return ""
	}
	return tokens[i].Text
}

// placeOf is the place of a token, or 0 if the index is -1.
func placeOf(text string, tokens []places.Token, at int) (line, column int) {
	if at < 0 {
		return 0, 0
	}
	return places.Position(text, tokens[at].From)
}

// bareName is a name without its quotes, if it has any.
func bareName(token string) string {
	if name, err := strconv.Unquote(token); err == nil {
		return name
	}
	return token
}
