package bundle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/cedartext"
	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/places"
	"policy-service/pdp/internal/source"
)

// ParsedEntity is an entity with its place in its file.
type ParsedEntity struct {
	types.Entity
	Line, Column int
}

// ParseEntities reads an array of entities in Cedar's JSON form. Its problems name places and
// no values, because a value may be a secret.
func ParseEntities(file string, text []byte, use *Usage, problems *Problems) []ParsedEntity {
	text = withoutMark(text)
	at := cedartext.Position{Line: 1, Column: 1}
	place := func(offset int64) (line, column int) { // offsets come in ascending order
		at = at.After(string(text[at.Offset:max(at.Offset, min(int(offset), len(text)))]))
		return at.Line, at.Column
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(text))
	fail := func(offset int64, what string) []ParsedEntity {
		line, column := place(offset)
		try := `write [{"uid": {"type": …, "id": …}, "attrs": {…}, "parents": […]}, …]`
		before := bytes.TrimRight(text[:min(offset, int64(len(text)))], " \t\r\n")
		if bytes.HasSuffix(before, []byte(",")) && bytes.ContainsAny(text[offset:min(offset+1, int64(len(text)))], "]}") {
			line, column = places.Position(string(text), len(before)-1)
			what, try = "this is not valid JSON: nothing follows this comma", "take the comma out"
		}
		problems.Add(file, line, column, "entity_syntax", what, try)
		return nil
	}
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '[' {
		return fail(dec.InputOffset(), "this is not a JSON array of entities")
	}
	entities := make([]ParsedEntity, 0, min(bytes.Count(text, []byte(`"uid"`)), use.bounds.Entities))
	for dec.PeekKind() != ']' {
		value, err := dec.ReadValue()
		if err != nil {
			return fail(offsetOf(err, dec), jsonFault(err))
		}
		line, column := place(dec.InputOffset() - int64(len(value)))
		e := ParsedEntity{Line: line, Column: column}
		var more bool
		e.Entity, more, err = readEntity(value, use)
		if use.tooManyEntities(entityPlace{file, line, column}, &e, problems) {
			return entities
		}
		if err != nil {
			what := "this is no entity in Cedar's JSON form"
			try := "it needs uid, attrs and parents, and may have tags; uid and parents are references {\"type\", \"id\"}"
			if e.UID.Type != "" {
				what = "this entity of type " + string(e.UID.Type) + " is not in Cedar's JSON form"
			}
			var bad *valueError
			if errors.As(err, &bad) {
				try = cmp.Or(bad.try, try)
				line, column = within(text, line, column, bad.at)
			}
			problems.Add(file, line, column, "entity_form", what+": "+err.Error(), try)
			if use.tooManyErrors() {
				return entities
			}
			continue
		}
		if more {
			// Cedar ignores the member. If it is a misspelt "parents", the entity loses a parent.
			problems.Warn(file, line, column, "entity_member",
				fmt.Sprintf("%s has a member that is none of uid, attrs, parents and tags", e.UID),
				"correct its name, or move it to attrs")
		}
		entities = append(entities, e)
	}
	if _, err := dec.ReadToken(); err != nil {
		return fail(offsetOf(err, dec), "the array does not end: "+jsonFault(err))
	}
	if rest := bytes.TrimSpace(text[dec.InputOffset():]); len(rest) > 0 {
		return fail(dec.InputOffset(), "something follows the array")
	}
	return entities
}

// EntitiesIn are the entities of a file by itself, without its problems.
func EntitiesIn(file string, text []byte) []ParsedEntity {
	return ParseEntities(file, text, UsageOf(source.OwnerOf(file)), new(Problems))
}

// offsetOf is the place of an error, or else the place that the decoder has reached.
func offsetOf(err error, dec *jsontext.Decoder) int64 {
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		return syntax.ByteOffset
	}
	return dec.InputOffset()
}

// jsonFault is the reason why a text is no JSON, without a part of the text.
func jsonFault(err error) string {
	var syntax *jsontext.SyntacticError
	switch {
	case !errors.As(err, &syntax) || syntax.Err == nil:
		return "this is not valid JSON"
	case errors.Is(err, jsontext.ErrDuplicateName):
		return "a member occurs twice in one object: " + Quote(syntax.JSONPointer.LastToken())
	}
	return "this is not valid JSON: " + syntax.Err.Error()
}

// within is the place of a value in an entity, by the path of the value as messages write it: attrs.from[0]. It is the place
// of what is around the value if the entity does not have it. It reads the entity once more, which costs nothing that counts:
// errors are few.
func within(text []byte, line, column int, path string) (int, int) {
	start := places.Offset(string(text), line, column)
	dec := jsontext.NewDecoder(bytes.NewBuffer(text[start:]))
	wanted := pointerOf(path)
	best, found := start, 0
	for {
		before := dec.InputOffset()
		if _, err := dec.ReadToken(); err != nil || dec.StackDepth() == 0 {
			break
		}
		pointer := string(dec.StackPointer())
		if pointer != "" && len(pointer) > found && (wanted == pointer || strings.HasPrefix(wanted, pointer+"/")) {
			rest := text[start+int(before):]
			best = start + int(before) + len(rest) - len(bytes.TrimLeft(rest, " \t\r\n,:"))
			found = len(pointer)
		}
		if pointer == wanted {
			break
		}
	}
	return places.Position(string(text), best)
}

// pathPart matches one step of a path as messages write it.
var pathPart = regexp.MustCompile(`^\.?([_a-zA-Z][_a-zA-Z0-9]*)|^\[([0-9]+)\]|^\[("(?:[^"\\]|\\.)*")\]`)

// pointerOf is the JSON Pointer of a path. It ends where the path leads into a set, which has no order.
func pointerOf(path string) string {
	var pointer jsontext.Pointer
	for {
		m := pathPart.FindStringSubmatch(path)
		if m == nil {
			return string(pointer)
		}
		pointer = pointer.AppendToken(cmp.Or(m[1], m[2], bareName(m[3])))
		path = path[len(m[0]):]
	}
}

// readEntity reads one entity, as far as it can. It sets more if the entity has members that
// mean nothing.
func readEntity(text jsontext.Value, use *Usage) (e types.Entity, more bool, err error) {
	var parts struct {
		UID     jsontext.Value `json:"uid"`
		Attrs   jsontext.Value `json:"attrs"`
		Parents jsontext.Value `json:"parents"`
		Tags    jsontext.Value `json:"tags"`
		Other   jsontext.Value `json:",embed"`
	}
	if json.Unmarshal(text, &parts) != nil {
		return e, false, errors.New("it is no object")
	}
	for _, part := range []struct {
		name string
		text jsontext.Value
	}{{"uid", parts.UID}, {"parents", parts.Parents}, {"attrs", parts.Attrs}} {
		if part.text == nil || part.text.Kind() == 'n' {
			return e, false, &valueError{at: part.name, what: "is missing"}
		}
	}
	if json.Unmarshal(parts.UID, &e.UID) != nil {
		return types.Entity{}, false, &valueError{at: "uid", what: "names no entity", try: `write {"type": …, "id": …}`}
	}
	if json.Unmarshal(parts.Parents, &e.Parents) != nil {
		return e, false, &valueError{at: "parents", what: "is no list of references", try: `write [{"type": …, "id": …}]`}
	}
	if e.Attributes, err = storedRecord(parts.Attrs, use); err != nil {
		return e, false, belowPlace("attrs", err)
	}
	if parts.Tags != nil {
		if e.Tags, err = storedRecord(parts.Tags, use); err != nil {
			return e, false, belowPlace("tags", err)
		}
	}
	return e, len(parts.Other) > 0, nil
}

// entityLoader puts the entities of a view's files into the store of the view.
type entityLoader struct {
	ctx      context.Context // of the load
	own      *own
	bundle   *Bundle
	store    *Store
	use      *Usage
	text     []byte // of the file that is loaded now
	problems *Problems
}

// entityPlace is a place in a file of the bundle.
type entityPlace struct {
	file         string
	line, column int
}

func (l *entityLoader) load(file string, entities []ParsedEntity) {
	for _, e := range entities {
		if l.use.errorCount > MostErrors || l.ctx.Err() != nil {
			return
		}
		at := entityPlace{file, e.Line, e.Column}
		if taken := l.definedAt(e.UID); taken != "" {
			l.bad(at, "duplicate_entity", fmt.Sprintf("%s is defined already, %s", e.UID, taken),
				"define an entity once; a tenant cannot redefine what stands above it")
			continue
		}
		l.own.places[e.UID] = at
		l.own.order = append(l.own.order, e.UID)
		l.put(e.Entity, at)
	}
}

func (l *entityLoader) bad(at entityPlace, code, message, try string, mend ...document.Mend) {
	l.problems.Add(at.file, at.line, at.column, code, message, try, mend...)
	l.use.tooManyErrors()
}

// within is the place of an error in the entity at a place, and the replacement that mends it there.
func (l *entityLoader) within(at entityPlace, err error) (entityPlace, document.Mend) {
	var bad *valueError
	switch {
	case !errors.As(err, &bad) || l.text == nil:
	case bad.parent != "":
		at.line, at.column = PlaceOfParent(l.text, at.line, at.column, func(uid types.EntityUID) bool { return uid.Type == bad.parent })
	default:
		at.line, at.column = within(l.text, at.line, at.column, bad.at)
		return at, bad.mend
	}
	return at, document.Mend{}
}

// PlaceOfParent is the place of the first such parent of the entity at a place. It is the place of the entity if an
// attribute gives the parent.
func PlaceOfParent(text []byte, line, column int, is func(types.EntityUID) bool) (int, int) {
	text = withoutMark(text)
	var entity struct {
		Parents []types.EntityUID `json:"parents"`
	}
	begin := text[places.Offset(string(text), line, column):]
	if json.UnmarshalDecode(jsontext.NewDecoder(bytes.NewBuffer(begin)), &entity) != nil {
		return line, column
	}
	n := slices.IndexFunc(entity.Parents, is)
	if n < 0 {
		return line, column
	}
	return within(text, line, column, fmt.Sprintf("parents[%d]", n))
}

// definedAt says where an entity is defined already, "" if it is not.
func (l *entityLoader) definedAt(uid types.EntityUID) string {
	if other, ok := l.own.places[uid]; ok {
		return fmt.Sprintf("at %s:%d:%d", other.file, other.line, other.column)
	}
	if _, ok := l.store.Root.Get(uid); ok {
		return "in the root of the bundle"
	}
	return ""
}

// put adds one entity. It gives the values of the entity the types of the schema, and adds the
// parents that bundle.yaml finds in its attributes.
func (l *entityLoader) put(e types.Entity, at entityPlace) {
	if s := l.bundle.Schema; s != nil && s.Declares(e.UID.Type) {
		e = typedEntity(e, s.entities[e.UID.Type])
	}
	written := e.Parents
	for _, rule := range l.bundle.Config.Parents[e.UID.Type] {
		value, ok := e.Attributes.Get(types.String(rule.Attribute))
		if !ok {
			continue
		}
		more, ok := StoredParents(value, rule.Parent)
		if !ok {
			l.bad(at, "parent_attribute",
				fmt.Sprintf("attribute %s of %s gives parents, and is neither a string nor a set of strings or %s references",
					rule.Attribute, e.UID, rule.Parent),
				"write ids only")
			continue
		}
		l.store.Written[e.UID] = written
		e.Parents = types.NewEntityUIDSet(append(slices.Collect(e.Parents.All()), more...)...)
	}
	if s := l.bundle.Schema; s != nil {
		if err := s.fitsEntity(e); err != nil {
			at, mend := l.within(at, err)
			l.bad(at, "schema_entity", fmt.Sprintf("%s does not fit the schema: %s", e.UID, err), "correct the entity or its declaration", mend)
		}
		if _, action := s.Actions[e.UID]; action {
			return // the store keeps the schema's own
		}
	}
	if _, _, ok := identitiesOf(e); !ok {
		l.problems.Warn(at.file, at.line, at.column, "identities_form",
			fmt.Sprintf("attribute %s of %s is no set of entities or ids, so nobody knows who that is: it approves nothing, and what it asks for nobody can approve",
				identities, e.UID),
			`write a list of {"__entity": {"type": …, "id": …}}, or of ids`)
	}
	l.store.Entities[e.UID] = e
}

// typedEntity gives the attributes and tags of an entity the types that the schema declares.
func typedEntity(e types.Entity, s entityShape) types.Entity {
	if members := e.Attributes.Map(); len(members) > 0 {
		coerceMembers(members, s.attributes)
		e.Attributes = types.NewRecord(members)
	}
	if members := e.Tags.Map(); len(members) > 0 {
		for name, value := range members {
			members[name] = coerce(value, s.tags)
		}
		e.Tags = types.NewRecord(members)
	}
	return e
}

// named are the entities that the root's policies and entity files name.
func (v *View) named() map[types.EntityUID]struct{} {
	named := map[types.EntityUID]struct{}{}
	for _, p := range v.Policies {
		for _, uid := range p.Facts.Uids {
			named[uid] = struct{}{}
		}
	}
	for uid, e := range v.Store.Entities {
		named[uid] = struct{}{}
		for parent := range e.Parents.All() {
			named[parent] = struct{}{}
		}
		for _, values := range []types.Record{e.Attributes, e.Tags} {
			for _, value := range values.All() {
				for _, uid := range appendUIDs(nil, value) {
					named[uid] = struct{}{}
				}
			}
		}
	}
	return named
}

func compareUIDs(a, b types.EntityUID) int {
	return cmp.Or(strings.Compare(string(a.Type), string(b.Type)), strings.Compare(string(a.ID), string(b.ID)))
}
