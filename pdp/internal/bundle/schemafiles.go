package bundle

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/ast"

	"policy-service/evaluation"
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
	s.SetFilename("schema") // positionIn would take numbers in the name of a file for a place
	var err error
	if strings.HasSuffix(f.Name, ".json") {
		if !checkJSONNesting(f.Name, f.Text, problems) {
			return
		}
		err = s.UnmarshalJSON(f.Text)
	} else {
		if !checkText(f.Name, f.Text, use, problems) {
			return
		}
		err = s.UnmarshalCedar(f.Text)
	}
	if err != nil {
		line, column := positionIn(err.Error())
		problems.Add(f.Name, line, column, "schema_syntax", "the schema cannot be read"+expectation(err.Error()), "check the syntax at this place")
		return
	}
	f.tree = s.AST()
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
		if declaresIn(ast.Namespace{Entities: f.tree.Entities, Enums: f.tree.Enums, Actions: f.tree.Actions, CommonTypes: f.tree.CommonTypes}, name) {
			return f, true
		}
		for _, ns := range f.tree.Namespaces {
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

// declarationAt is the place where the text of a schema seems to declare a name. Line and
// column are 0 if there is no such place.
func declarationAt(text, name string) (line, column int) {
	written := regexp.QuoteMeta(strings.Trim(Quote(name), `"`))
	const follows = `\s*(?:[,;={]|in\b|enum\b|tags\b|appliesTo\b)`
	code := withoutComments(text)
	for _, pattern := range []string{
		`\b(?:entity|action|type)\s+("?` + written + `"?)` + follows,
		`,\s*("?` + written + `"?)` + follows,
		`("` + written + `")\s*:`, // in JSON
	} {
		if at := regexp.MustCompile(pattern).FindStringSubmatchIndex(code); at != nil {
			return placeOf(text, at[2])
		}
	}
	return 0, 0
}

var stringOrComment = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|//[^\n]*`)

// withoutComments has spaces in place of comments. What they say is no declaration.
func withoutComments(text string) string {
	return stringOrComment.ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasPrefix(found, "//") {
			return strings.Repeat(" ", len(found))
		}
		return found
	})
}

// schemaToken matches a string, a name, a comment, or one other character, in either form of a
// schema.
var schemaToken = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[\pL_][\pL\pN_]*|//[^\n]*|\S`)

// declaredAt is the place where the text of a schema declares a member of an action's context.
// If the member is not found, it is the place of the action, because the member may be
// declared in a named type. If the action is not found either, line and column are 0. We
// search the text because cedar-go keeps no places.
func declaredAt(text, action, member string) (line, column int) {
	tokens := schemaToken.FindAllStringIndex(text, -1)
	token := func(i int) string {
		if i < 0 || i >= len(tokens) {
			return ""
		}
		return text[tokens[i][0]:tokens[i][1]]
	}
	at, found := 0, false
	for i := range tokens {
		switch before, here, after := token(i-1), bareName(token(i)), token(i+1); {
		case !found && here == action && (before == "action" || before == "," || after == ":"):
			at, found = i, true
		case found && token(i) == "action" && after != ":" && after != "?": // the next action begins
			return placeOf(text, tokens[at][0])
		case found && here == member && (after == ":" || after == "?"):
			return placeOf(text, tokens[i][0])
		}
	}
	if !found {
		return 0, 0
	}
	return placeOf(text, tokens[at][0])
}

// bareName is a name without its quotes, if it has any.
func bareName(token string) string {
	if name, err := strconv.Unquote(token); err == nil {
		return name
	}
	return token
}

// placeOf is the line and column of an offset. Columns count bytes, as Cedar counts them.
func placeOf(text string, offset int) (line, column int) {
	before := text[:offset]
	return strings.Count(before, "\n") + 1, offset - strings.LastIndex(before, "\n")
}
