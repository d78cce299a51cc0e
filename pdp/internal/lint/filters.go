package lint

import (
	"strings"

	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/filter"
)

// filters warns of policies that keep filters from being made which filters.yaml lists.
func (l *linter) filters() {
	for _, u := range filter.Check(l.b) {
		l.warnAt(placeOfPath(u.Reads), u.Policy, u.Reason,
			"keeps filters of type "+bundle.Quote(u.Type)+" from being made for "+strings.Join(u.Actions, ", ")+": in "+u.Expression+", "+u.Detail,
			u.Try)
	}
}
