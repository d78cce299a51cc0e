package bundle

import (
	"fmt"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/source"
)

// checkAncestors bounds the ancestors of every entity. Each decision walks them, and so does each
// candidate of a search. Most entities need no walk: an entity
// has no more ancestors than its parents and the ancestors of its parents together, and these
// sums are counted from the top down. An entity is walked only if its sum is too large,
// because several ways lead to one ancestor, or if it has no sum, because entities stand in a
// circle.
func (l *entityLoader) checkAncestors() {
	s := l.store
	above, waits := make(map[types.EntityUID]int, len(s.Entities)), make(map[types.EntityUID]int, len(s.Entities))
	var next []types.EntityUID
	for uid, e := range s.Entities {
		for parent := range e.Parents.All() {
			if _, here := s.Entities[parent]; here {
				waits[uid]++
			}
		}
		if waits[uid] == 0 {
			next = append(next, uid)
		}
	}
	for len(next) > 0 {
		uid := next[len(next)-1]
		next = next[:len(next)-1]
		n := 0
		for parent := range s.Entities[uid].Parents.All() {
			n += 1 + above[parent]
		}
		above[uid] = min(n, l.use.bounds.Ancestors+1)
		for _, child := range s.Children[uid] {
			if waits[child]--; waits[child] == 0 {
				next = append(next, child)
			}
		}
	}
	left := l.use.bounds.Walked
	for _, uid := range l.own.order {
		if n, ok := above[uid]; ok && n <= l.use.bounds.Ancestors {
			continue
		}
		if l.ctx.Err() != nil {
			return
		}
		if n := l.countAncestors(uid, &left); n > l.use.bounds.Ancestors {
			l.bad(l.own.places[uid], "many_ancestors",
				fmt.Sprintf("%s is in more than %d others, with all that those are in", uid, l.use.bounds.Ancestors),
				tryFlatly)
			return
		}
		if left < 0 {
			l.bad(l.own.places[uid], "many_ways_up",
				fmt.Sprintf("from the entities of %s so many ways lead up that following them takes more than %d steps, here at last",
					source.OwnerName(l.use.Owner), l.use.bounds.Walked),
				tryFlatly)
			return
		}
	}
}

// countAncestors counts the ancestors of an entity. It stops at one ancestor too many, or if
// no steps are left.
func (l *entityLoader) countAncestors(uid types.EntityUID, left *int) int {
	seen := map[types.EntityUID]struct{}{}
	for todo := []types.EntityUID{uid}; len(todo) > 0 && len(seen) <= l.use.bounds.Ancestors && *left >= 0; {
		e := l.store.Entities[todo[len(todo)-1]]
		todo = todo[:len(todo)-1]
		*left -= 1 + e.Parents.Len()
		for parent := range e.Parents.All() {
			if _, known := seen[parent]; !known {
				seen[parent] = struct{}{}
				todo = append(todo, parent)
			}
		}
	}
	return len(seen)
}
