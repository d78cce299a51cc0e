// Package drift keeps what of servers is not as it is locked, for as long as that lasts. Begin with [Register.Listed].
//
// What a server says costs memory and a line of a log once, however often it says it, and only so much of it.
package drift

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"policy-service/pdp/mcp/lock"
	"policy-service/pdp/visible"
)

const (
	// Most is how many findings of a server are kept. That there are more is one as well, of kind [More].
	Most = 64
	// Lasts is how long a finding lasts that nobody sees any longer, and nobody sees mended.
	Lasts = time.Hour
	// named is how many are named where all would be too much to read.
	named = 8
	// mostName is how much of a name that a server gave is kept, in bytes.
	mostName = 256
)

// More is that a server has more that is not as it is locked than is kept.
const More lock.Kind = "more"

// Finding is one thing that is not as it is locked. A change of it is another.
type Finding struct {
	Server, Tool  string
	Change        lock.Kind
	With          string // the other tool, if there is one
	Locked, Found string // digests
}

// Register has the findings of all servers. Make one with [New].
type Register struct {
	now func() time.Time

	mu   sync.Mutex
	lock *lock.File // with which all was compared
	all  map[Finding]*entry
	of   map[string]int // how many are kept, by server
}

// entry is what is known of a finding. It is kept after its end for as long as it could come back: it is not told again.
type entry struct {
	by   int // how many lists show it
	over bool
	last time.Time
}

// Seen is what one list shows. Only its [Register] uses it.
type Seen map[Finding]*entry

// New makes a register.
func New(now func() time.Time) *Register {
	return &Register{now: now, all: map[Finding]*entry{}, of: map[string]int{}}
}

// Listed notes what a list shows: in place of what it showed before if that is the whole of it, and else besides. It gives
// what the list shows now, and what is to be told because it was not told before.
func (r *Register) Listed(with *lock.File, before Seen, changes []lock.Change, whole bool) (now Seen, news []Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renew(with)
	now = Seen{}
	for _, c := range changes {
		news = append(news, r.see(c, before, now)...)
	}
	for f, e := range before {
		switch {
		case now[f] == e:
		case !whole && now[f] == nil:
			now[f] = e
		default:
			if e.by--; e.by == 0 {
				e.over = true
			}
		}
	}
	return now, news
}

// renew forgets what was compared with another lock, and what has had its time.
func (r *Register) renew(with *lock.File) {
	if r.lock != with {
		r.lock = with
		clear(r.all)
		clear(r.of)
	}
	now := r.now()
	for f, e := range r.all {
		if now.Sub(e.last) > Lasts {
			delete(r.all, f)
			r.of[f.Server]--
		}
	}
}

// see adds a change to what a list shows.
func (r *Register) see(c lock.Change, before, now Seen) (news []Finding) {
	f := Finding{c.Server, short(c.Tool), c.Kind, short(c.With), c.Locked, c.Found}
	if r.all[f] == nil && r.of[f.Server] >= Most {
		f = Finding{Server: f.Server, Change: More}
	}
	e := r.all[f]
	if e == nil {
		e = &entry{}
		r.all[f] = e
		r.of[f.Server]++
		news = append(news, f)
	}
	e.last, e.over = r.now(), false
	if now[f] == nil {
		now[f] = e
		if before[f] != e {
			e.by++
		}
	}
	return news
}

func short(name string) string {
	if len(name) <= mostName {
		return name
	}
	cut := mostName
	for !utf8.RuneStart(name[cut]) {
		cut--
	}
	return name[:cut] + "…"
}

// Counts are how many findings last, by server.
func (r *Register) Counts() map[string]int {
	counts := map[string]int{}
	for _, f := range r.lasting() {
		counts[f.Server]++
	}
	return counts
}

// Err says which findings last; nil if none does. Names that servers gave are escaped.
func (r *Register) Err() error {
	all := r.lasting()
	if len(all) == 0 {
		return nil
	}
	var words []string
	for _, f := range all[:min(len(all), named)] {
		words = append(words, f.String())
	}
	if more := len(all) - named; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("not as locked: %s; see what it is with policy-service mcp lock --diff, and accept it with --accept", strings.Join(words, ", "))
}

// lasting are the findings that are not over, sorted.
func (r *Register) lasting() (all []Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renew(r.lock)
	for f, e := range r.all {
		if !e.over {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b Finding) int { return strings.Compare(a.key(), b.key()) })
	return all
}

func (f Finding) key() string {
	return strings.Join([]string{f.Server, f.Tool, string(f.Change), f.With, f.Locked, f.Found}, "\x00")
}

// String is a finding in words, on one line.
func (f Finding) String() string {
	if f.Tool == "" {
		return visible.Text(f.Server + ": " + string(f.Change))
	}
	return visible.Text(f.Server + ": tool " + f.Tool + ": " + string(f.Change))
}
