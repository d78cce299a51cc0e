package crowd

import (
	"crypto/sha256"

	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
)

// What news are to somebody is kept, so that who opens stream after stream has nobody asked each time. It holds for the very
// token: two tokens of one principal may say different things of it.

// token is a digest of a principal and its token.
type token [sha256.Size]byte

func tokenOf(who *identity.Principal) token {
	return sha256.Sum256([]byte(who.Key + "\x00" + who.Token))
}

// about is what was asked: of news, and of somebody.
type about struct {
	number uint64
	by     token
}

// mostAnswers is how many answers are kept of each of two generations, and mostAnswerBytes how large their messages may be together.
const (
	mostAnswers     = 1 << 15
	mostAnswerBytes = 8 << 20
)

// answers are what was said last: a message, or nil if it is none of theirs.
type answers struct {
	now, before map[about]*rpc.Message
	size        int // of the messages of those now
}

// known is what was said, if that is kept.
func (c *Crowd) known(of about) (what *rpc.Message, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers.get(of)
}

func (a *answers) get(of about) (what *rpc.Message, ok bool) {
	if what, ok = a.now[of]; ok {
		return what, true
	}
	if what, ok = a.before[of]; ok {
		a.put(of, what)
	}
	return what, ok
}

func (c *Crowd) keep(of about, what *rpc.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers.put(of, what)
}

func (a *answers) put(of about, what *rpc.Message) {
	size := 0
	if what != nil {
		size = len(what.Params)
	}
	if a.now == nil || len(a.now) >= mostAnswers || len(a.now) > 0 && a.size+size > mostAnswerBytes {
		a.now, a.before, a.size = map[about]*rpc.Message{}, a.now, 0
	}
	a.now[of] = what
	a.size += size
}
