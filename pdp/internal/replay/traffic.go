package replay

import (
	"context"
	"maps"
	"slices"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// Traffic says of a log which policies had a part in its decisions. It asks nothing again: the records say it.
type Traffic struct {
	Records   int64 `json:"records"`
	Decisions int64 `json:"decisions"`
	// Incomplete is how many records cannot be counted, by why: see [LacksContent] and the others.
	Incomplete map[string]int64    `json:"incomplete"`
	Examples   map[string][]string `json:"examples"`

	parts map[policyKey]Parts // by the tenant of the decision
}

// Parts are how many decisions a policy determined, in how many a reason denied what it allowed, and in how many it had an error.
type Parts struct {
	Determined int64 `json:"determined"`
	Overruled  int64 `json:"overruled"`
	Errors     int64 `json:"errors"`
}

func (p *Parts) add(more Parts) {
	p.Determined, p.Overruled, p.Errors = p.Determined+more.Determined, p.Overruled+more.Overruled, p.Errors+more.Errors
}

// PolicyParts are the parts of a policy.
type PolicyParts struct {
	pdp.PolicyInfo
	Parts
}

// CountTraffic counts the parts that policies had in the decisions of a log.
func CountTraffic(ctx context.Context, from Source, o Options) (Traffic, error) {
	made := Traffic{Incomplete: map[string]int64{}, Examples: map[string][]string{}, parts: map[policyKey]Parts{}}
	var err error
	made.Records, err = walk(ctx, from, &o, func(_ context.Context, q question) (question, error) { return q, nil }, made.add)
	return made, err
}

func (t *Traffic) add(q question) {
	if q.ID != "" { // else its kind is not known
		t.Decisions++
	}
	if q.ID == "" || q.lacks == LacksRoom { // the policies stand in the item's own record, also where that of its batch is gone
		lacking(t.Incomplete, t.Examples, q.lacks, q.ID)
		return
	}
	part := func(id string, one Parts) {
		key := policyKey{q.Tenant, id}
		parts := t.parts[key]
		parts.add(one)
		t.parts[key] = parts
	}
	for _, id := range q.Determining {
		part(id, Parts{Determined: 1})
	}
	for _, id := range q.Overruled {
		part(id, Parts{Overruled: 1})
	}
	for _, e := range q.Errors {
		part(e.Policy, Parts{Errors: 1})
	}
}

// Of are the parts of the policies of a bundle, and those of policies that it does not have. A policy of the root has those in all
// tenants; no tenant's own policy has its id.
func (t *Traffic) Of(b *pdp.Bundle) (all, others []PolicyParts) {
	of := map[policyKey]int{}
	for n, p := range b.Policies() {
		of[policyKey{p.Tenant, p.ID}] = n
		all = append(all, PolicyParts{PolicyInfo: p})
	}
	unknown := map[string]Parts{}
	for key, parts := range t.parts {
		n, found := of[key]
		if !found {
			n, found = of[policyKey{evaluation.DefaultTenant, key.id}]
		}
		if found {
			all[n].add(parts)
			continue
		}
		parts.add(unknown[key.id])
		unknown[key.id] = parts
	}
	for _, id := range slices.Sorted(maps.Keys(unknown)) {
		others = append(others, PolicyParts{pdp.PolicyInfo{ID: id}, unknown[id]})
	}
	return all, others
}
