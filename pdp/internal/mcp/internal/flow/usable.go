package flow

import (
	"crypto/sha256"
	"maps"
	"sync"
	"time"

	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/link"
)

// usable keeps the PDP's answers to the question whether a principal may use anything of a server. An answer opens a session
// with the server, or does not. It permits nothing: the PDP decides about each call and each item of a list.
type usable struct {
	mu  sync.Mutex
	all map[use]useAnswer
}

// use is all that the question depends on.
type use struct {
	principal, server string
	said              [sha256.Size]byte // the token, and the client's words for policies
	era               era.Era
	tools, requests   bool // asked about tools alone, and about requests for them
	permitted         bool
	known             link.Known
	bundle            string
}

type useAnswer struct {
	may   bool
	until time.Time
}

const (
	// usableFor is how long an answer is kept. A PDP that says nothing of its policies may have others meanwhile.
	usableFor = 2 * time.Second
	// mostUsable is how many answers are kept. Beyond it the PDP is asked each time.
	mostUsable = 10_000
)

// useOf returns what the question of this request depends on now.
func (x exchange) useOf(permitted bool) use {
	list := x.Request.Method == "tools/list"
	return use{
		principal: x.Who.Key, server: x.link.Server.Name, said: sha256.Sum256(ask.Said([]byte(x.Who.Token+"\x00"), x.Params)), era: x.Client.Era,
		tools: list, requests: list && x.Client.Knows(era.ToolRequests), permitted: permitted,
		known: x.g.servers.Known(x.link.Server), bundle: x.g.o.Asker.Bundle(x.Who),
	}
}

// of returns the answer that is kept for a use.
func (u *usable) of(by use, now time.Time) (may, kept bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	a, kept := u.all[by]
	return a.may, kept && now.Before(a.until)
}

func (u *usable) keep(by use, may bool, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.all) >= mostUsable {
		maps.DeleteFunc(u.all, func(_ use, a useAnswer) bool { return !now.Before(a.until) })
	}
	if len(u.all) < mostUsable {
		u.all[by] = useAnswer{may, now.Add(usableFor)}
	}
}

// forget forgets the answers about a principal.
func (u *usable) forget(principal string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.all, func(by use, _ useAnswer) bool { return by.principal == principal })
}
