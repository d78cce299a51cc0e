package mcp_test

import (
	"fmt"
	"slices"
)

// R3, before there was code for it: one call of a tool that needs people, as it must go. It is a value, and knows nothing
// of HTTP. What it says of a step, the gateway must do; see TestRounds.

// roundsTool is what of a call does not change while it goes.
type roundsTool struct {
	name string
	// uses are those of one approval, and quorum is how many people must agree.
	uses, quorum int
}

var roundsTools = []roundsTool{{"once", 1, 1}, {"twice", 2, 1}, {"both", 1, 2}}

// roundsCall is the call.
type roundsCall struct {
	era  string
	tool roundsTool
	asks int // how often the server asks for input before it answers
	// approvals are all that people were asked, the newest last. That one alone can be open.
	approvals []roundsApproval
	// held is what the client has in hand, the oldest first: states that it was given (modern), or calls that wait (legacy).
	held []roundsHeld
	// forwards is how often the server must have seen the call, rounds and all.
	forwards int
}

// roundsApproval is what people were asked once.
type roundsApproval struct {
	status string
	yes    []string // who agrees
	// spent are the uses that were made, each with how often the server saw the call by it.
	spent []int
}

// What may have become of an approval. No use of one that has used itself up can be made, and none of it can be taken back.
const (
	roundsPending  = "pending"
	roundsApproved = "approved"
	roundsUsedUp   = "used up"
	roundsDenied   = "denied"
	roundsRevoked  = "revoked"
)

// roundsHeld is one state, or one call that waits. If round is 0 it is for people, else for the server, which has seen the
// call so often by this use. Told is how often the client was told to come again with nothing to answer.
type roundsHeld struct{ approval, use, round, told int }

// roundsMostTold is how often a client is told that: there are clients that give up on the third.
const roundsMostTold = 2

// roundsStep is one thing that somebody does.
type roundsStep struct {
	do string
	// n says which of what the client holds is meant, counted round and round in a plan, or it is roundsNewest.
	n int
	// with is what the client brings besides: accept, decline, cancel, or "" for nothing.
	with string
	// by is the replica that gets it, and times how often it is sent at once.
	by, times int
}

const roundsNewest = -1

// of is which of so many is meant.
func (s roundsStep) of(all int) int {
	if s.n == roundsNewest {
		return all - 1
	}
	return s.n % all
}

// What somebody can do. Of the legacy era are roundsAnswer, in place of roundsRepeat, and roundsLeave.
const (
	roundsSend    = "call"    // the call, with nothing beside it
	roundsRepeat  = "repeat"  // the call, with a state
	roundsAnswer  = "answer"  // what a call that waits is waiting for
	roundsLeave   = "leave"   // the client of a call that waits closes its stream
	roundsApprove = "approve" // somebody else does, elsewhere
	roundsDeny    = "deny"
	roundsRevoke  = "revoke"
	roundsReplace = "replace" // the replica ends, and another comes with the same keys
)

func (s roundsStep) String() string {
	switch text := s.do; s.do {
	case roundsSend:
		return fmt.Sprintf("%s, %d at once, at %d", text, s.times, s.by)
	case roundsRepeat, roundsAnswer:
		return fmt.Sprintf("%s %d with %q, %d at once, at %d", text, s.n, s.with, s.times, s.by)
	case roundsLeave:
		return fmt.Sprintf("%s %d", text, s.n)
	case roundsReplace:
		return fmt.Sprintf("%s %d", text, s.by)
	default:
		return text
	}
}

// Who says something to people's questions: alice, whose agent calls, by a form in her client, and bob in the console.
const (
	roundsAlice = "alice"
	roundsBob   = "bob"
)

// How a request can be answered.
const (
	roundsRan      = "ran"      // the server's result
	roundsInput    = "input"    // what the server wants to know
	roundsForm     = "form"     // our form
	roundsWait     = "wait"     // nothing to fill in, and a state to come again with
	roundsRequired = "required" // the error that says what people must approve
	roundsRefused  = "refused"  // nothing to wait for
	roundsOpen     = "open"     // no answer yet (legacy)
	roundsGone     = "gone"     // the connection ended
	roundsAway     = "away"     // -32603: something did not answer
)

// newest is the approval that a call joins, nil if it would have people asked anew.
func (c *roundsCall) newest() *roundsApproval {
	if n := len(c.approvals) - 1; n >= 0 && c.approvals[n].open() {
		return &c.approvals[n]
	}
	return nil
}

func (a *roundsApproval) open() bool { return a.status == roundsPending || a.status == roundsApproved }

// agree is one more vote for it.
func (c *roundsCall) agree(a *roundsApproval, who string) {
	if a.status == roundsPending && !slices.Contains(a.yes, who) {
		if a.yes = append(a.yes, who); len(a.yes) >= c.tool.quorum {
			a.status = roundsApproved
		}
	}
}

// file is the approval that a call is for.
func (c *roundsCall) file() int {
	if c.newest() == nil {
		c.approvals = append(c.approvals, roundsApproval{status: roundsPending})
	}
	return len(c.approvals) - 1
}

// use spends one use of an approval, if there is one: the server sees the call.
func (c *roundsCall) use(n int) (h roundsHeld, ok bool) {
	a := &c.approvals[n]
	if a.status != roundsApproved {
		return h, false
	}
	if a.spent = append(a.spent, 1); len(a.spent) == c.tool.uses {
		a.status = roundsUsedUp
	}
	c.forwards++
	return roundsHeld{approval: n, use: len(a.spent) - 1, round: 1}, true
}

// goOn spends the next round of a use, if it is that round's turn: the server sees the call again.
func (c *roundsCall) goOn(h roundsHeld) (next roundsHeld, ok bool) {
	a := &c.approvals[h.approval]
	if a.status == roundsRevoked || a.spent[h.use] != h.round {
		return next, false
	}
	a.spent[h.use]++
	c.forwards++
	h.round++
	return h, true
}

// seen is what the server answers that has seen the call by a use, and what the client then has in hand.
func (c *roundsCall) seen(h roundsHeld) string {
	if h.round > c.asks {
		return roundsRan
	}
	c.held = append(c.held, h)
	return roundsInput
}

// shown is the answer to a call that people must agree to.
func (c *roundsCall) shown(n int) string {
	if slices.Contains(c.approvals[n].yes, roundsAlice) { // who has voted is shown no form: others are waited for
		return roundsRequired
	}
	c.held = append(c.held, roundsHeld{approval: n})
	return roundsForm
}

// modern is the answer to a request of the modern era, which is held up by nobody.
func (c *roundsCall) modern(s roundsStep) string {
	if s.do == roundsSend {
		n := c.file()
		if h, ok := c.use(n); ok {
			return c.seen(h)
		}
		return c.shown(n)
	}
	h := c.held[s.n]
	if h.round > 0 {
		next, ok := c.goOn(h)
		if !ok {
			return roundsRefused
		}
		return c.seen(next)
	}
	a := &c.approvals[h.approval]
	answers := s.with != "" && h.told == 0 // then there is nothing to answer
	switch {
	case a.status == roundsDenied:
		return roundsRefused
	case answers && s.with == "decline" && a.status == roundsPending && !slices.Contains(a.yes, roundsAlice):
		a.status = roundsDenied
		return roundsRefused
	case answers && s.with != "accept":
		return roundsRequired // whatever others say: this client does not go on
	case answers:
		c.agree(a, roundsAlice)
	}
	if a.status == roundsPending {
		if !answers && h.told == 0 || h.told == roundsMostTold {
			return roundsRequired
		}
		h.told++
		c.held = append(c.held, h)
		return roundsWait
	}
	next, ok := c.use(h.approval)
	if !ok {
		return roundsRefused
	}
	return c.seen(next)
}

// elsewhere is what somebody else does. It reports whether that can be.
func (c *roundsCall) elsewhere(do string) bool {
	a := c.newest()
	switch {
	case a == nil:
		return false
	case do == roundsApprove && a.status == roundsPending && !slices.Contains(a.yes, roundsBob):
		c.agree(a, roundsBob)
	case do == roundsDeny && a.status == roundsPending && !slices.Contains(a.yes, roundsBob):
		a.status = roundsDenied
	case do == roundsRevoke && a.status == roundsApproved:
		a.status = roundsRevoked
	default:
		return false
	}
	return true
}

// clone is the same call, that nothing done to c changes.
func (c *roundsCall) clone() *roundsCall {
	d := *c
	d.approvals, d.held = slices.Clone(c.approvals), slices.Clone(c.held)
	for n := range d.approvals {
		d.approvals[n].yes, d.approvals[n].spent = slices.Clone(d.approvals[n].yes), slices.Clone(d.approvals[n].spent)
	}
	return &d
}

// sound says what the model itself must never come to: a round that nobody agreed to, one that was made twice, or people
// asked while they are being asked.
func (c *roundsCall) sound() error {
	forwards := 0
	for n, a := range c.approvals {
		if a.open() && n != len(c.approvals)-1 {
			return fmt.Errorf("two approvals are open at once")
		}
		if len(a.spent) > 0 && len(a.yes) < c.tool.quorum || len(a.spent) > c.tool.uses {
			return fmt.Errorf("%d uses by %q", len(a.spent), a.yes)
		}
		for _, rounds := range a.spent {
			if rounds > c.asks+1 {
				return fmt.Errorf("%d rounds, and the server asks %d times", rounds, c.asks)
			}
			forwards += rounds
		}
	}
	if forwards != c.forwards {
		return fmt.Errorf("%d forwards, and %d are accounted for", c.forwards, forwards)
	}
	return nil
}
