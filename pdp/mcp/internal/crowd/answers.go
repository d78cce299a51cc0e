package crowd

import (
	"crypto/sha256"
	"time"

	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
)

// What news are to somebody is kept for a while, so that who opens stream after stream has nobody asked each time. It holds for the
// very token: two tokens of one principal may say different things of it.

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

func (c *Crowd) about(s *Seat, p *posted) about { return about{p.number, s.by} }

// AnswersFor is how long an answer holds: policies change, and so does what is known of a person.
const AnswersFor = time.Minute

// mostAnswers is how many answers are kept of each of two generations, and mostAnswerBytes how large their messages may be together.
const (
	mostAnswers     = 1 << 15
	mostAnswerBytes = 8 << 20
)

// answer is what was said, and how long after all began: a message, or nil if it is none of theirs.
type answer struct {
	what *rpc.Message
	at   time.Duration
}

// answers are what was said last.
type answers struct {
	clock       func() time.Time
	began       time.Time
	now, before map[about]answer
	size        int // of the messages of those now
}

// known is what was said, if that is kept.
func (c *Crowd) known(of about) (what *rpc.Message, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers.get(of)
}

func (a *answers) get(of about) (what *rpc.Message, ok bool) {
	kept, now := a.now[of]
	if !now {
		if kept, ok = a.before[of]; !ok {
			return nil, false
		}
	}
	switch {
	case a.clock().Sub(a.began)-kept.at >= AnswersFor:
		return nil, false
	case !now:
		a.put(of, kept)
	}
	return kept.what, true
}

func (c *Crowd) keep(of about, what *rpc.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers.put(of, answer{what, c.o.Now().Sub(c.answers.began)})
}

func (a *answers) put(of about, kept answer) {
	size := 0
	if kept.what != nil {
		size = len(kept.what.Params)
	}
	if a.now == nil || len(a.now) >= mostAnswers || len(a.now) > 0 && a.size+size > mostAnswerBytes {
		a.now, a.before, a.size = map[about]answer{}, a.now, 0
	}
	if before := a.now[of].what; before != nil {
		a.size -= len(before.Params)
	}
	a.now[of] = kept
	a.size += size
}
