package lock

import (
	"bytes"
	"cmp"
	"slices"

	"policy-service/evaluation"
)

// Kind is how something is other than it was.
type Kind string

// The kinds. A definition that is changed in several ways has a change of each.
const (
	NewServer     Kind = "new_server"
	GoneServer    Kind = "gone_server"
	Instructions  Kind = "instructions"
	NewTool       Kind = "new_tool"
	GoneTool      Kind = "gone_tool"
	Renamed       Kind = "renamed" // all but the name is as it was
	Swapped       Kind = "swapped" // all but the name is as another tool had it
	Title         Kind = "title"
	Description   Kind = "description"
	InputSchema   Kind = "input_schema"
	OutputSchema  Kind = "output_schema"
	Annotations   Kind = "annotations"
	Mapping       Kind = "mapping" // x-authzen-mapping, coaz and x-coaz-mapping
	Authorization Kind = "authorization"
	Other         Kind = "other" // _meta, icons, and whatever else there is
)

// Change is one difference of a server from the lock.
type Change struct {
	Server string
	// Tool is by the server's own name; for [Renamed] it is the name that is locked. It is "" if no tool is meant.
	Tool string
	Kind Kind
	// With is the other tool: the new name if it is [Renamed], whose body it was if it is [Swapped].
	With string
	// Locked and Found are digests, "" for an absent definition.
	Locked, Found string

	was, is evaluation.Value // as people compare them
}

// Compare lists the differences of found from locked, sorted by server and tool.
func Compare(locked, found File) (all []Change) {
	for _, name := range both(locked.Servers, found.Servers) {
		was, isLocked := locked.Servers[name]
		is, isFound := found.Servers[name]
		switch {
		case !isLocked:
			all = append(all, Change{Server: name, Kind: NewServer})
		case !isFound:
			all = append(all, Change{Server: name, Kind: GoneServer})
		}
		all = append(all, CompareServer(name, was, is)...)
	}
	return all
}

// CompareServer is [Compare] for one server.
func CompareServer(name string, locked, found Server) (all []Change) {
	if locked.Instructions != found.Instructions {
		c := Change{Kind: Instructions}
		c.was, c.Locked = locked.told()
		c.is, c.Found = found.told()
		all = append(all, c)
	}
	changed, gone, fresh := differing(locked.Tools, found.Tools)
	bodies := map[string]string{} // of locked tools, by digest; of several the first
	if len(changed) > 0 {
		for _, tool := range slices.Backward(sorted(locked.Tools)) {
			bodies[locked.Tools[tool].body()] = tool
		}
	}
	for _, tool := range changed {
		was, is := locked.Tools[tool], found.Tools[tool]
		if other, ok := bodies[is.body()]; ok && other != tool {
			all = append(all, change(Swapped, was, is, other))
			continue
		}
		all = append(all, members(was, is)...)
	}
	all = append(all, comeAndGone(locked.Tools, found.Tools, gone, fresh)...)
	for i := range all {
		all[i].Server = name
	}
	slices.SortStableFunc(all, func(a, b Change) int { return cmp.Compare(a.Tool, b.Tool) })
	return all
}

// differing are the tools that both have and that differ, those that are not found, and those that are not locked.
func differing(locked, found map[string]Tool) (changed, gone, fresh []string) {
	for _, name := range both(locked, found) {
		was, isLocked := locked[name]
		is, isFound := found[name]
		switch {
		case !isFound:
			gone = append(gone, name)
		case !isLocked:
			fresh = append(fresh, name)
		case was.digest != is.digest:
			changed = append(changed, name)
		}
	}
	return changed, gone, fresh
}

// comeAndGone are the tools that are there no longer, or newly. A tool that goes by one name and comes by another is renamed.
func comeAndGone(locked, found map[string]Tool, gone, fresh []string) (all []Change) {
	comes := map[string][]string{}
	if len(gone) > 0 {
		for _, name := range fresh {
			body := found[name].body()
			comes[body] = append(comes[body], name)
		}
	}
	renamed := map[string]bool{}
	for _, name := range gone {
		was := locked[name]
		if names := comes[was.body()]; len(names) > 0 {
			comes[was.body()] = names[1:]
			renamed[names[0]] = true
			all = append(all, change(Renamed, was, found[names[0]], names[0]))
			continue
		}
		all = append(all, Change{Tool: name, Kind: GoneTool, Locked: was.digest, was: was.definition.Value()})
	}
	for _, name := range fresh {
		if !renamed[name] {
			all = append(all, Change{Tool: name, Kind: NewTool, Found: found[name].digest, is: found[name].definition.Value()})
		}
	}
	return all
}

func change(kind Kind, was, is Tool, with string) Change {
	return Change{
		Tool: was.name, Kind: kind, With: with, Locked: was.digest, Found: is.digest,
		was: was.definition.Value(), is: is.definition.Value(),
	}
}

// members are the changes of a definition, a kind each.
func members(was, is Tool) (all []Change) {
	for _, kind := range []Kind{Title, Description, InputSchema, OutputSchema, Annotations, Mapping, Authorization, Other} {
		old, new := part(was.definition, kind), part(is.definition, kind)
		if bytes.Equal(canonical(old), canonical(new)) {
			continue
		}
		c := change(kind, was, is, "")
		c.was, c.is = ofPart(old, kind), ofPart(new, kind)
		all = append(all, c)
	}
	return all
}

// kinds has the kind of change for each member of a definition. All others are [Other].
var kinds = map[string]Kind{
	"title": Title, "description": Description, "inputSchema": InputSchema, "outputSchema": OutputSchema, "annotations": Annotations,
	"authorization": Authorization, "coaz": Mapping, "x-authzen-mapping": Mapping, "x-coaz-mapping": Mapping,
}

// part has the members of a definition that are of a kind. Each member is of one kind, and so is each of inputSchema.
func part(definition evaluation.Object, kind Kind) evaluation.Object {
	of := definition.Without(func(name string) bool { return name == "name" || cmp.Or(kinds[name], Other) != kind })
	schema, _ := definition.Get("inputSchema")
	if schema.Kind() != evaluation.Map || kind != InputSchema && kind != Mapping {
		return of
	}
	less := schema.Object().Without(func(name string) bool {
		return (name == "x-authzen-mapping" || name == "x-coaz-mapping") != (kind == Mapping)
	})
	if kind == Mapping && less.Value().Equal(evaluation.Object{}.Value()) {
		return of
	}
	return of.With("inputSchema", less.Value())
}

// told are the instructions of a server as people compare them, and their digest; nothing if there are none.
func (s Server) told() (text evaluation.Value, sum string) {
	if s.Instructions == "" {
		return text, ""
	}
	text, _ = evaluation.Text(s.Instructions) // they are UTF-8
	return text, digest([]byte(s.Instructions))
}

// both are the names in either, sorted.
func both[V any](a, b map[string]V) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(sorted(a), sorted(b)))))
}
