package index

import (
	"crypto/sha256"
	"encoding/binary"
)

// A term is one of these letters, for a member of a record, and the member's value.
const (
	TermTenant   = 't'
	TermKind     = 'k'
	TermEvent    = 'e'
	TermDecision = 'd' // the answer
	TermSubject  = 's' // the id alone: a filter need not know the type
	TermResource = 'r'
	TermAction   = 'a'
	TermPolicy   = 'p'
	TermOf       = 'o' // receipts: the decision
	TermApproval = 'g' // steps of an approval request, and decisions that went by it

	TermCapability = 'c' // steps of a capability, decisions that granted it, and those on calls that showed it

	// TermOdd is that of lines that cannot be understood. Every query looks at them,
	// and what filters them says what is wrong.
	TermOdd = "!"
)

// termLength bounds the kept part of a value; longer ones are hashed. Two values
// with one term are distinguished by the filter.
const termLength = 256

// Term is the term of a value.
func Term(letter byte, value string) string {
	_, term, _ := Terms(nil).Add(letter, value).cut()
	return string(term)
}

// Terms are the terms of a record, one behind the other, each with its length before it. None says that they are not
// known.
type Terms []byte

// Odd are the terms of a line that cannot be understood.
func Odd() Terms { return Terms{1, TermOdd[0]} }

// Add adds the term of a value.
func (t Terms) Add(letter byte, value string) Terms {
	if len(value) <= termLength {
		t = append(binary.AppendUvarint(t, uint64(1+len(value))), letter)
		return append(t, value...)
	}
	sum := sha256.Sum256([]byte(value))
	t = append(binary.AppendUvarint(t, uint64(2+len(sum))), letter, 0)
	return append(t, sum[:]...)
}

// cut cuts off the first term.
func (t Terms) cut() (rest Terms, term []byte, ok bool) {
	length, width := binary.Uvarint(t)
	if width <= 0 || uint64(len(t)-width) < length {
		return nil, nil, false
	}
	end := width + int(length)
	return t[end:], t[width:end], true
}
