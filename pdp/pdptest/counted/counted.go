// Package counted makes no promise: it is for the tests of this module alone. It judges histories of uses that are
// counted.
package counted

import (
	"time"

	"github.com/anishathalye/porcupine"
)

// Event is a part of a history: a use, the answer that none is left, or a use that is taken and later given back.
type Event struct {
	Kind Kind
	Of   int // which [Take] a [Give] is of; less than [Most]
}

// Kind is that of an [Event].
type Kind string

// The kinds. An operation that is on no record is a Take and a Give.
const (
	Use  Kind = "use"
	None Kind = "none"
	Take Kind = "take"
	Give Kind = "give"
)

// Most is how many uses of one history can be given back.
const Most = 64

// left are the uses that are left, and those that were taken and given back.
type left struct {
	uses         int
	taken, given uint64
}

func (l left) after(e Event) (is bool, next left) {
	bit := uint64(1) << e.Of
	switch e.Kind {
	case Use:
		l.uses--
		return l.uses >= 0, l
	case None:
		return l.uses == 0, l
	case Take:
		if l.given&bit == 0 && l.uses > 0 {
			l.uses, l.taken = l.uses-1, l.taken|bit
		}
	case Give:
		if l.given |= bit; l.taken&bit != 0 {
			l.uses++
		}
	}
	return true, l
}

// Judge looks for an order of a history of events in which each answer is true, for so long.
func Judge(uses int, history []porcupine.Operation, patience time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(porcupine.Model{
		Init: func() any { return left{uses: uses} },
		Step: func(state, input, _ any) (bool, any) {
			is, next := state.(left).after(input.(Event))
			return is, next
		},
	}, history, patience)
}
