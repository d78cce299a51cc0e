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

	tree *ast.Schema
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
		if !checkJSONNesting(f.Name, f.Text, problems) {
			return
		}
		if err := s.UnmarshalJSON(f.Text); err != nil {
			line, column, what := f.notJSON(err)
			problems.Add(f.Name, line, column, "schema_syntax", "the schema cannot be read: "+what, "check the syntax at this place")
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
	f.tree = s.AST()
}

// checkJSONNesting bounds how deep the recursion of a parser goes in a JSON text.
func checkJSONNesting(file string, text []byte, problems *Problems) bool {
	dec := jsontext.NewDecoder(bytes.NewBuffer(text))
	for {
		if _, err := dec.ReadToken(); err != nil {
			return true // the parser has a better message
		}
		if dec.StackDepth() > maxNesting {
			line, column := places.Position(string(text), int(dec.InputOffset())-1)
			problems.Add(file, line, column, "schema_nesting",
				fmt.Sprintf("objects and arrays nest more than %d deep", maxNesting),
				"name inner types, and refer to them")
			return false
		}
	}
}

// notJSON says why a text is no schema, and where if it is no JSON.
func (f *SchemaFile) notJSON(err error) (line, column int, what string) {
	dec := jsontext.NewDecoder(bytes.NewReader(f.Text))
	for {
		switch _, bad := dec.ReadToken(); {
		case bad == io.EOF:
			return 0, 0, err.Error()
		case bad != nil:
			line, column = places.Position(string(f.Text), int(offsetOf(bad, dec)))
			return line, column, jsonFault(bad)
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
		for _, ns := range spacesOf(f.tree) {
			if declaresIn(ns, name) {
				return f, true
			}
		}
	}
	return all[0], false
}

func declaresIn(ns ast.Namespace, name string) bool {
	_, entity := ns.Entities[ast.Ident(name)]
	_, enum := ns.Enums[ast.Ident(name)]
	_, action := ns.Actions[types.String(name)]
	_, common := ns.CommonTypes[ast.Ident(name)]
	return entity || enum || action || common
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

// undeclared is a name that a schema refers to and that no file declares.
type undeclared struct {
	of   string // the declaration that refers to it
	name string
	kind string // entity type, type or action
}

// refuseUndeclared notes every name that the files refer to and that none declares. It reports if there is one.
func (all schemaFiles) refuseUndeclared(tree *ast.Schema, problems *Problems) bool {
	d := declared{types: map[string]bool{}, entities: map[string]bool{}, actions: map[string]bool{}}
	spaces := spacesOf(tree)
	for name, ns := range spaces {
		d.add(name, ns)
	}
	for _, name := range slices.Sorted(maps.Keys(spaces)) {
		d.look(name, spaces[name])
	}
	for n, missing := range d.missing {
		if n == maxPlaced {
			break
		}
		file, line, column := all.refers(missing)
		candidates := map[string]map[string]bool{"entity type": d.entities, "type": d.types, "action": d.actions}[missing.kind]
		problems.Add(file, line, column, "schema_reference",
			fmt.Sprintf("%s refers to the %s %s, which nobody declares%s", missing.of, missing.kind, Quote(missing.name),
				DidYouMean(missing.name, maps.Keys(candidates))),
			"declare it, or correct the name")
	}
	return len(d.missing) > 0
}

// declared are the names that a schema declares, as references may write them.
type declared struct {
	types, entities, actions map[string]bool
	missing                  []undeclared
}

// builtinTypes are the types that a schema need not declare.
var builtinTypes = []string{"Bool", "Boolean", "Long", "String", "Set", "ipaddr", "decimal", "datetime", "duration"}

func (d *declared) add(ns types.Path, in ast.Namespace) {
	add := func(to map[string]bool, name string) { to[string(inNamespace(ns, name))] = true }
	for name := range in.Entities {
		add(d.entities, string(name))
		add(d.types, string(name))
	}
	for name := range in.Enums {
		add(d.entities, string(name))
		add(d.types, string(name))
	}
	for name := range in.CommonTypes {
		add(d.types, string(name))
	}
	for name := range in.Actions {
		d.actions[string(name)] = true
	}
	for _, name := range builtinTypes {
		d.types[name], d.types["__cedar::"+name] = true, true
	}
}

// look notes the references of one namespace that lead nowhere.
func (d *declared) look(ns types.Path, in ast.Namespace) {
	refer := func(known map[string]bool, kind, of, name string) {
		if !known[name] && !known[string(inNamespace(ns, name))] {
			d.missing = append(d.missing, undeclared{of, name, kind})
		}
	}
	entities := func(of string, refs []ast.EntityTypeRef) {
		for _, ref := range refs {
			refer(d.entities, "entity type", of, string(ref))
		}
	}
	var inside func(of string, t ast.IsType)
	inside = func(of string, t ast.IsType) {
		switch t := t.(type) {
		case ast.SetType:
			inside(of, t.Element)
		case ast.RecordType:
			for _, name := range slices.Sorted(maps.Keys(t)) {
				inside(of, t[name].Type)
			}
		case ast.TypeRef:
			refer(d.types, "type", of, string(t))
		case ast.EntityTypeRef:
			refer(d.entities, "entity type", of, string(t))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.CommonTypes)) {
		inside("type "+Quote(string(name)), in.CommonTypes[name].Type)
	}
	for _, name := range slices.Sorted(maps.Keys(in.Entities)) {
		e, of := in.Entities[name], "entity "+Quote(string(name))
		entities(of, e.ParentTypes)
		inside(of, e.Shape)
		inside(of, e.Tags)
	}
	for _, name := range slices.Sorted(maps.Keys(in.Actions)) {
		a, of := in.Actions[name], "action "+Quote(string(name))
		for _, parent := range a.Parents {
			if parent.Type == "" {
				refer(d.actions, "action", of, string(parent.ID))
			}
		}
		if to := a.AppliesTo; to != nil {
			entities(of, to.Principals)
			entities(of, to.Resources)
			inside(of, to.Context)
		}
	}
}

// refers is the place where a declaration refers to a name that no file declares.
func (all schemaFiles) refers(m undeclared) (file string, line, column int) {
	_, quoted, _ := strings.Cut(m.of, " ")
	f, found := all.declaring(bareName(quoted))
	if !found {
		return "", 0, 0
	}
	text := string(f.Text)
	tokens := places.Tokens(text)
	at := declaration(tokens, bareName(quoted))
	for i := at + 1; i < len(tokens); i++ {
		t := tokens[i]
		if !isMember(tokens, i) &&
			(t.IsText() && t.Name() == m.name || m.kind != "action" && places.Find(tokens[i:min(i+16, len(tokens))], m.name) == t.From) {
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
	return placeOf(text, tokens, declaration(tokens, name))
}

// declaredAt is the place where the text of a schema declares a member of an action's context.
// If the member is not found, it is the place of the action, because the member may be
// declared in a named type. We search the text because cedar-go keeps no places.
func declaredAt(text, action, member string) (line, column int) {
	tokens := places.Tokens(text)
	at := declaration(tokens, action)
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

// declaration is the index of the token by which a schema seems to declare a name. It is -1 if
// there is none.
func declaration(tokens []places.Token, name string) int {
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
