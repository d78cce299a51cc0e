package report

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"policy-service/pdp/internal/decisionlog/record"
)

// The properties that the decisions of a report can be counted by.
const (
	ByPolicy  = "policy"
	BySubject = "subject"
)

// TopMost is how many names a report counts at most, and TopUsual how many if nothing is said.
const (
	TopMost  = 1000
	TopUsual = 20
)

// ErrTopOf is the error for an answer without names by which decisions with it are counted.
var ErrTopOf = errors.New("decisions of one answer are counted by policy or by subject; say which")

// ErrTop is the error for a count that cannot be made.
var ErrTop = errors.New("count by policy or by subject, and from 1 to 1000 names")

// Top are the names with the most decisions.
type Top struct {
	By   string   `json:"by"`
	Rows []TopRow `json:"rows"`
	// Missed is 0 if there were few enough names to count each. Otherwise a name that is not in a row has no more
	// decisions than this.
	Missed int64 `json:"missed"`
	// Others is how many more names were counted at the end.
	Others int `json:"others"`
}

// TopRow counts the decisions of a name. Name is a policy, or a subject of a tenant as type/id, and "" for decisions that no
// policy made. A policy is counted once in a decision: with its answer if it determined the answer, or a reason denied
// its allow, and among the errors if it could not be evaluated. A subject's errors are decisions in which some policy could not.
type TopRow struct {
	Tenant    string `json:"tenant,omitzero"`
	Name      string `json:"name"`
	Decisions int64  `json:"decisions"`
	Allowed   int64  `json:"allowed"`
	Waiting   int64  `json:"waiting"`
	Denied    int64  `json:"denied"`
	Errors    int64  `json:"errors"`
	// Missed is how many earlier decisions may be of the name, too, and not counted.
	Missed int64 `json:"missed"`
}

// most is the upper bound of the decisions of a name.
func (r *TopRow) most() int64 { return r.Decisions + r.Missed }

// topping counts. It holds a bounded number of names: if there are too many, the half with the fewest decisions is given
// up. missed is the most that a name which is not held can have had.
type topping struct {
	by     string
	only   string // the answer; "" is all
	room   int
	rows   map[[2]string]*TopRow
	missed int64
}

// topRoom is how many names are held, in some 10 MB.
const topRoom = 20_000

func newTopping(by, only string, room int) *topping {
	return &topping{by: by, only: only, room: room, rows: map[[2]string]*TopRow{}}
}

func (t *topping) decided(s *record.Recorded) {
	if t.only != "" && s.Answer() != t.only {
		return
	}
	if t.by == BySubject {
		t.count(s.Tenant, s.Names.Subject.Type+"/"+s.Names.Subject.ID, s.Answer(), len(s.Errors) > 0)
		return
	}
	answers, failed := map[string]string{}, map[string]bool{} // by policy
	for _, e := range s.Errors {
		answers[e.Policy], failed[e.Policy] = "", true
	}
	for _, policy := range slices.Concat(s.Determining, s.Overruled) {
		answers[policy] = s.Answer()
	}
	if len(s.Determining)+len(s.Overruled) == 0 {
		answers[""], failed[""] = s.Answer(), len(s.Errors) > 0
	}
	for _, policy := range slices.Sorted(maps.Keys(answers)) {
		t.count("", policy, answers[policy], failed[policy])
	}
}

func (t *topping) count(tenant, name, answer string, failed bool) {
	key := [2]string{tenant, short(name)}
	row := t.rows[key]
	if row == nil {
		if len(t.rows) == t.room {
			t.giveUp()
		}
		row = &TopRow{Tenant: tenant, Name: key[1], Missed: t.missed}
		t.rows[key] = row
	}
	row.Decisions++
	switch answer {
	case record.Allow:
		row.Allowed++
	case record.Waiting:
		row.Waiting++
	case record.Deny:
		row.Denied++
	}
	if failed {
		row.Errors++
	}
}

// longestName is the length of the longest name that is held whole.
const longestName = 256

// short is a name, or its beginning with a digest of all of it.
func short(name string) string {
	if len(name) <= longestName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s… (SHA-256 %x)", strings.ToValidUTF8(name[:longestName/2], ""), sum[:8])
}

// giveUp drops the half of the names that have the fewest decisions.
func (t *topping) giveUp() {
	all := t.sorted((*TopRow).most)
	for _, row := range all[t.room/2:] {
		delete(t.rows, [2]string{row.Tenant, row.Name})
		t.missed = max(t.missed, row.most())
	}
}

// sorted are the rows, those with the most first.
func (t *topping) sorted(by func(*TopRow) int64) []*TopRow {
	return slices.SortedFunc(maps.Values(t.rows), func(a, b *TopRow) int {
		return cmp.Or(cmp.Compare(by(b), by(a)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Tenant, b.Tenant))
	})
}

func (t *topping) top(n int) *Top {
	all := t.sorted(func(r *TopRow) int64 { return r.Decisions })
	top := &Top{By: t.by, Rows: []TopRow{}, Missed: t.missed, Others: max(0, len(all)-n)}
	for _, row := range all[:min(n, len(all))] {
		top.Rows = append(top.Rows, *row)
	}
	return top
}
