package lint

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/places"
	"policy-service/pdp/internal/spelling"
)

// literals warns of ids that no entity has, in policies and among the parents of entities: most often they are misspelt.
// There is no warning if a policy names the same id that an entity stands below: a group works without an entity of its
// own. Nor is there one about a type of which no entity is stored, unless another one differs in the case of its first letter, or about ids that the schema enumerates, which are
// errors.
//
// A policy of the root decides in every tenant, so an id is known to it if any view has it. But what it is told to have
// meant is of the root alone.
func (l *linter) literals() {
	for _, v := range l.b.Views {
		views := []*bundle.View{v}
		if v.Tenant == evaluation.DefaultTenant {
			views = slices.AppendSeq(views, l.allViews)
		}
		k := known{l: l, own: v.Store, views: views, named: map[types.EntityUID]struct{}{}}
		for _, v := range views {
			for _, p := range v.Policies {
				for _, uid := range p.Facts.Uids {
					k.named[uid] = struct{}{}
				}
			}
		}
		for _, p := range v.Policies {
			if p.Tenant == v.Tenant && p.Access == "" {
				k.checkPolicy(p)
			}
		}
		k.checkParents(v)
	}
}

func (l *linter) allViews(yield func(*bundle.View) bool) {
	for _, v := range l.b.Views {
		if !yield(v) {
			return
		}
	}
}

// known are the ids that the author of a view can name.
type known struct {
	l     *linter
	own   *bundle.Store // of the author's view
	views []*bundle.View
	named map[types.EntityUID]struct{} // by policies
}

// otherCase is the same id of a type whose name begins with a capital in place of a small letter, or the other way round:
// in Cedar those are two types.
func otherCase(uid types.EntityUID) types.EntityUID {
	at := strings.LastIndex(string(uid.Type), ":") + 1
	first := uid.Type[at : at+1]
	swapped := strings.ToUpper(string(first))
	if swapped == string(first) {
		swapped = strings.ToLower(swapped)
	}
	return types.NewEntityUID(uid.Type[:at]+types.EntityType(swapped)+uid.Type[at+1:], uid.ID)
}

func (k *known) isStored(uid types.EntityUID) bool {
	return slices.ContainsFunc(k.views, func(v *bundle.View) bool {
		for s := v.Store; s != nil; s = s.Root {
			if _, ok := s.Entities[uid]; ok {
				return true
			}
		}
		return false
	})
}

// lacks reports if entities of the type are stored, and none has this id.
func (k *known) lacks(uid types.EntityUID) bool {
	if !k.l.b.Schema.AllowsAny(uid.Type) {
		return false
	}
	ofType := false
	for _, v := range k.views {
		for s := v.Store; s != nil; s = s.Root {
			if _, ok := s.Entities[uid]; ok {
				return false
			}
			ofType = ofType || len(s.Ids[uid.Type]) > 0
		}
	}
	return ofType
}

// isParent reports if an entity stands below the id.
func (k *known) isParent(uid types.EntityUID) bool {
	return slices.ContainsFunc(k.views, func(v *bundle.View) bool {
		for s := v.Store; s != nil; s = s.Root {
			if len(s.Children[uid]) > 0 {
				return true
			}
		}
		return false
	})
}

// mostCompared is how many ids are compared with misspelt ones in one check. Millions can be stored.
const mostCompared = 5_000_000

// meant suggests an id that the author of the view knows. near is set if it differs in a letter of four at most.
func (k *known) meant(uid types.EntityUID) (suggestion string, near bool, mend document.Mend) {
	var ids []string
	for s := k.own; s != nil; s = s.Root {
		ids = append(ids, s.Ids[uid.Type]...)
	}
	if k.l.compared += len(ids); k.l.compared > mostCompared {
		return "", false, mend
	}
	nearest, ok := bundle.Nearest(string(uid.ID), slices.Values(ids))
	if !ok {
		return "", false, mend
	}
	near = slices.ContainsFunc(ids, func(id string) bool {
		most := len(uid.ID) / 4
		return max(len(id)-len(uid.ID), len(uid.ID)-len(id)) <= most && spelling.Distance(id, string(uid.ID)) <= most
	})
	return "; did you mean " + string(uid.Type) + "::" + bundle.Quote(nearest) + "?", near, bundle.MendID(uid.String(), document.Near(nearest))
}

func (k *known) checkPolicy(p *bundle.Policy) {
	l := k.l
	for n, uid := range p.Facts.Uids {
		action := bundle.IsActionType(uid.Type)
		switch other := otherCase(uid); {
		case slices.Contains(p.Facts.Uids[:n], uid), k.isParent(uid):
			continue
		case l.b.Schema == nil && (k.isStored(other) || k.isParent(other)) && !k.isStored(uid):
			l.warnAt(placeOf(uid.String()), p, "literal_unknown",
				"names "+uid.String()+", and no entity has this id; did you mean "+other.String()+"?",
				"write the type as entities/ and requests do",
				document.Near(other.Type).For(string(uid.Type)),
			)
			continue
		case !k.lacks(uid):
			continue
		case action && l.b.Schema != nil: // an action that it does not declare is an error
			continue
		}
		meant, near, mend := k.meant(uid)
		if action && !near { // an entity need not stand for an action that is in no group
			continue
		}
		l.warnAt(placeOf(uid.String()), p, "literal_unknown",
			"names "+uid.String()+", and no entity has this id, while others of its type are stored"+meant,
			"correct the id, or add the entity to entities/",
			mend,
		)
	}
}

// checkParents checks the parents in the entity files of a view's owner. A group of actions needs no entity.
func (k *known) checkParents(v *bundle.View) {
	l, dir := k.l, "entities/"
	if v.Tenant != evaluation.DefaultTenant {
		dir = "tenants/" + v.Tenant + "/" + dir
	}
	for file, text := range l.files.Content {
		if in, _ := path.Split(file); in != dir || path.Ext(file) != ".json" {
			continue
		}
		for _, e := range bundle.EntitiesIn(file, text) {
			stored, _ := v.Store.Get(e.UID)
			for parent := range stored.Parents.All() {
				if _, named := k.named[parent]; named || bundle.IsActionType(parent.Type) || !k.lacks(parent) {
					continue
				}
				line, column := bundle.PlaceOfParent(text, e.Line, e.Column, func(uid types.EntityUID) bool { return uid == parent })
				meant, _, mend := k.meant(parent)
				l.problems.Warn(file, line, column, "literal_unknown",
					e.UID.String()+" stands below "+parent.String()+", and no entity has this id, while others of its type are stored"+meant,
					"correct the id, or add the entity to entities/", inReference(text, line, column, mend))
			}
		}
	}
}

// inReference is the replacement of an entity as policies write it in the reference to it of a file of entities.
func inReference(text []byte, line, column int, policies document.Mend) (m document.Mend) {
	begin := text[places.Offset(string(text), line, column):]
	reference, err := jsontext.NewDecoder(bytes.NewBuffer(begin)).ReadValue()
	id := func(uid string) string { return uid[strings.Index(uid, `"`):] }
	if err == nil && policies.Word != "" && bytes.Count(reference, []byte(id(policies.Word))) == 1 {
		m = document.Mend{Word: string(reference), Meant: strings.Replace(string(reference), id(policies.Word), id(policies.Meant), 1)}
	}
	return m
}
