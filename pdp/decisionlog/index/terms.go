package index

import (
	"crypto/sha256"
)

// A term is one of these letters, for a member of a record, and the member's value.
const (
	TermTenant   = 't'
	TermKind     = 'k'
	TermEvent    = 'e'
	TermDecision = 'd' // allow or deny; besides, waiting, or possible and impossible, of which the filter knows which it is
	TermSubject  = 's' // the id alone: a filter need not know the type
	TermResource = 'r'
	TermAction   = 'a'
	TermPolicy   = 'p'
	TermOf       = 'o' // receipts: the decision
	TermApproval = 'g' // steps of an approval request, and decisions that went by it

	// TermOdd is that of lines that cannot be understood. Every query looks at them,
	// and what filters them says what is wrong.
	TermOdd = "!"
)

// ApprovalRequired is the type of obligation with which an allow is waiting.
const ApprovalRequired = "approval_required"

// termLength bounds what is kept of a value; longer ones are hashed. Two values
// with one term are told apart by the filter.
const termLength = 256

// Term is the term of a value.
func Term(letter byte, value string) string { return string(appendTerm(nil, letter, []byte(value))) }

func appendTerm(b []byte, letter byte, value []byte) []byte {
	b = append(b, letter)
	if len(value) <= termLength {
		return append(b, value...)
	}
	sum := sha256.Sum256(value)
	return append(append(b, 0), sum[:]...)
}
