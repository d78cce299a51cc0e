package decisionlog

import (
	"crypto/sha256"
	"strings"
)

// A term is a letter for a member of a record, and the member's value.
const (
	termTenant   = 't'
	termKind     = 'k'
	termEvent    = 'e'
	termDecision = 'd' // allow or deny
	termSubject  = 's' // the id alone: a filter need not know the type
	termResource = 'r'
	termAction   = 'a'
	termPolicy   = 'p'
	termOf       = 'o' // receipts: the decision
	termApproval = 'g' // steps of an approval request, and decisions that went by it

	// termOdd is that of lines that cannot be understood. Every query looks at them,
	// and what filters them says what is wrong.
	termOdd = "!"
)

// termLength bounds what is kept of a value; longer ones are hashed. Two values
// with one term are told apart by the filter.
const termLength = 256

func term(letter byte, value string) string {
	if len(value) > termLength {
		sum := sha256.Sum256([]byte(value))
		value = "\x00" + string(sum[:])
	}
	return string(letter) + value
}

// terms are what a record must have: of each list one at least, the lists that are short
// as a rule first. None says that the index is of no help.
func (f Filter) terms() (all [][]string) {
	one := func(letter byte, value string) {
		if value != "" {
			all = append(all, []string{term(letter, value)})
		}
	}
	one(termOf, f.Of)
	one(termApproval, f.Approval)
	for letter, name := range map[byte]string{termSubject: f.Subject, termResource: f.Resource} {
		if name != "" {
			all = append(all, entityTerms(letter, name))
		}
	}
	one(termPolicy, f.Policy)
	one(termAction, f.Action)
	one(termEvent, f.Event)
	one(termTenant, f.Tenant)
	if f.Tenants != nil {
		any := make([]string, len(f.Tenants))
		for i, tenant := range f.Tenants {
			any[i] = term(termTenant, tenant)
		}
		all = append(all, any)
	}
	one(termDecision, f.Decision)
	one(termKind, f.Kind)
	return all
}

// entityTerms are those of an id, or "type/id": both may have slashes in them.
func entityTerms(letter byte, name string) []string {
	terms := []string{term(letter, name)}
	for rest, more := name, true; more; {
		if _, rest, more = strings.Cut(rest, "/"); more && rest != "" {
			terms = append(terms, term(letter, rest))
		}
	}
	return terms
}
