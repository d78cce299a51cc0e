package bundle

import (
	"maps"
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// Contents are what a policy names and reads, for who holds policies against what there is to decide about.
type Contents struct {
	PolicyInfo
	File         string
	Line, Column int
	// Names are the entities that the policy names, by the types of requests. Tested are those of which a request must have
	// one: otherwise the policy is false, whatever else stands in it.
	Names  []evaluation.Ref
	Tested []Tested
	// Reads are the attributes that the policy reads, or asks for.
	Reads       []AttributePath
	Obligations []*obligations.Definition
}

// Tested is a test that a policy makes before anything else: that the principal, action or resource is one of these, or,
// unless Only is set, below one of them.
type Tested struct {
	Of   string // principal, action or resource
	Any  []evaluation.Ref
	Only bool // the entity itself
}

// Contents lists what every policy of the bundle names and reads, by tenant and id.
func (b *Bundle) Contents() (all []Contents) {
	for _, tenant := range slices.Sorted(maps.Keys(b.Views)) {
		for _, p := range b.Views[tenant].Policies {
			if p.Tenant == tenant {
				all = append(all, b.contents(p))
			}
		}
	}
	return all
}

func (b *Bundle) contents(p *Policy) Contents {
	c := Contents{
		PolicyInfo: p.Info(), File: p.File, Line: p.Line, Column: p.Column, Names: b.refs(p.Facts.Uids),
		Reads: slices.Clone(p.Facts.Reads), Obligations: slices.Clone(p.Obliges),
	}
	for _, t := range p.Tests() {
		if t.Uids != nil {
			c.Tested = append(c.Tested, Tested{Of: VariableNames[t.Of], Any: b.refs(t.Uids), Only: t.Eq})
		}
	}
	return c
}

// refs are entities as requests name them. Actions, and what no request can name, have the types that Cedar has for them.
func (b *Bundle) refs(uids []types.EntityUID) []evaluation.Ref {
	all := make([]evaluation.Ref, len(uids))
	for n, uid := range uids {
		wire, ok := b.Config.WireType(uid.Type)
		switch {
		case uid.Type == b.Config.ActionType:
			wire = "Action"
		case !ok:
			wire = string(uid.Type)
		}
		all[n] = evaluation.Ref{Type: wire, ID: string(uid.ID)}
	}
	return all
}
