package lint

import (
	"fmt"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"go.yaml.in/yaml/v3"

	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/source"
)

// names warns of what a policy shows without following its evaluation.
func (l *linter) names(p *bundle.Policy) {
	if len(p.Tests()) == 0 && (l.b.Config.AllowTrivial || !permitsEverything(p)) {
		l.warn(p, "no_scope",
			"has neither a scope nor a first condition that says for which principals, actions or resources it is, "+
				"so every decision evaluates it",
			"name the action, or the types, in its scope",
		)
	}
	if !p.Named {
		l.warn(p, "no_id",
			"is named by its place, and gets another name when a policy is put before it",
			"write @id(\"…\") above it",
		)
	}
	for _, read := range p.Facts.Reads {
		if read.Protocol() {
			l.warn(p, "protocol_member",
				"looks at "+read.String()+
					", which belongs to the protocol between PEP and PDP and never reaches a policy",
				"look at context.pdp, or have the fact sent under another name",
			)
		}
	}
	l.actionTypes(p)
	var named []types.EntityType
	for _, uid := range p.Facts.Uids {
		named = append(named, uid.Type)
	}
	for _, t := range p.Facts.Scope {
		named = append(named, t.Is)
	}
	for t := range termsIn(p.Terms()) {
		named = append(named, t.Test.Is)
		if t.Op != bundle.OpCall || t.Name != "decimal" {
			continue
		}
		// cedar-go relies on ParseInt, which accepts the sign. Cedar's grammar has no plus sign.
		if text, _ := t.Args[0].Value.(types.String); strings.HasPrefix(string(text), "+") {
			l.warn(p, "decimal_sign",
				"writes a decimal with a plus sign, which cedar-go accepts and Cedar does not",
				"leave the sign out",
			)
		}
	}
	for _, typ := range named {
		if typ != "" && !bundle.IsActionType(typ) && l.undeclaredType(typ) {
			near := l.b.Schema.LikeType(typ)
			l.warnAt(placeOf(string(typ)), p, "unknown_entity_type",
				"names the entity type "+string(typ)+", which the schema does not declare"+near.String(),
				"declare it, or correct its name",
				near.For(string(typ)),
			)
		}
	}
}

func (l *linter) undeclaredType(typ types.EntityType) bool {
	return l.b.Schema != nil && !l.b.Schema.Declares(typ)
}

// actionTypes warns of actions that no request can ask for. It does not warn of a group of
// actions from another namespace if the group holds an action of the right type.
func (l *linter) actionTypes(p *bundle.Policy) {
	wanted := l.b.Config.ActionType
	var wrong []types.EntityType
	for _, t := range p.Tests() {
		if t.Of != bundle.ActionVar {
			continue
		}
		if t.Is != "" && t.Is != wanted {
			wrong = append(wrong, t.Is)
		}
		for _, uid := range t.Uids {
			if uid.Type != wanted && (t.Eq || !bundle.IsActionType(uid.Type) || !l.isAbove(p, uid, wanted)) {
				wrong = append(wrong, uid.Type)
			}
		}
	}
	for _, typ := range wrong {
		l.warn(p, "action_type",
			fmt.Sprintf("names an action of type %s, while those of requests are of type %s", typ, wanted),
			"write "+string(wanted)+"::\"…\", or set namespace in bundle.yaml",
		)
	}
}

// readConfig reads bundle.yaml again, to find the lines on which some of its keys and values
// stand. The file is well formed, because the bundle has loaded.
func (l *linter) readConfig(text []byte, keys func(doc *document.Map) map[string]func(*yaml.Node)) {
	if text == nil {
		return
	}
	var unused bundle.Problems
	if root, ok := document.Read(source.ConfigFile, text, &unused); ok {
		doc := document.Map{File: source.ConfigFile, Problems: &unused}
		doc.Known = keys(&doc)
		doc.Read(root)
	}
}

// configTypes warns of what has no effect in bundle.yaml: types that the schema does not
// declare, and the key unknown_entities if there is no schema.
func (l *linter) configTypes(text []byte) {
	c := &l.b.Config
	l.readConfig(text, func(doc *document.Map) map[string]func(*yaml.Node) {
		if l.b.Schema == nil {
			return map[string]func(*yaml.Node){"unknown_entities": func(n *yaml.Node) {
				l.problems.Warn(source.ConfigFile, n.Line, n.Column, "unknown_entities_unused",
					"unknown_entities changes nothing where there is no schema that requires an attribute: "+
						"what was sent is evaluated",
					"list types under known to deny entities that are in no store",
				)
			}}
		}
		wire := func(n *yaml.Node) { l.configType(n, c.TypeIn(doc, n)) }
		right := func(n *yaml.Node) { l.configType(n, c.Qualify(types.EntityType(n.Value))) }
		return map[string]func(*yaml.Node){
			"types":      func(n *yaml.Node) { doc.Each(n, func(_, typ *yaml.Node) { right(typ) }) },
			"attributes": func(n *yaml.Node) { doc.Each(n, func(typ, _ *yaml.Node) { wire(typ) }) },
			"known":      func(n *yaml.Node) { doc.List(n, wire) },
			"tenants": func(n *yaml.Node) {
				doc.Each(n, func(_, list *yaml.Node) {
					doc.List(list, func(item *yaml.Node) { // a type, or an entity
						of := *item
						of.Value, _, _ = strings.Cut(item.Value, `::"`)
						wire(&of)
					})
				})
			},
		} // parents is not among them: a bundle with a rule for such a type does not load
	})
}

func (l *linter) configType(n *yaml.Node, typ types.EntityType) {
	if l.undeclaredType(typ) {
		near := l.b.Schema.LikeType(typ)
		wire, _ := l.b.Config.WireType(types.EntityType(near))
		l.problems.Warn(source.ConfigFile, n.Line, n.Column, "unknown_entity_type",
			"the schema does not declare the entity type "+string(typ)+near.String(),
			"declare it, or correct its name",
			document.Near(wire).At(n),
		)
	}
}
