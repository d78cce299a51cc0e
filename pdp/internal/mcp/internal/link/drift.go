package link

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/internal/visible"
)

const (
	// mostDrifts is the number of drifts of a server that are kept. One more entry stands for the rest.
	mostDrifts = 64
	// driftLasts is the time for which a drift is kept after the last listing that shows it.
	driftLasts = time.Hour
	// driftAgain is the pause after a failed record. The next listing after it that shows the drift records it.
	driftAgain  = time.Minute
	driftPost   = 5 * time.Second
	driftsNamed = 8 // in an error
)

// Drift is one difference of a server from the lock. Another change in the same place is another Drift. Its names contain
// only visible characters, and are no longer than a record allows.
type Drift struct {
	// Server is the server's name here. Tool is the server's name of the tool, "" if the drift is of no tool.
	Server, Tool string
	// Change is the kind of change, named as in package lock, or [MoreDrifts]. With is the other tool, if there is one: the
	// new name of a renamed tool.
	Change lock.Kind
	With   string
	// Locked and Found are digests, "" for nothing.
	Locked, Found string
}

// MoreDrifts is the change of a server that has more drifts than are kept.
const MoreDrifts lock.Kind = "more"

// String returns a drift as text on one line.
func (d Drift) String() string {
	if d.Tool == "" {
		return d.Server + ": " + string(d.Change)
	}
	return d.Server + ": tool " + d.Tool + ": " + string(d.Change)
}

// drifts keeps the drifts of all servers. A drift costs memory and a record once, however often a server shows it, and all new
// ones of a listing cost one log line. The drifts of a server are bounded.
type drifts struct {
	now func() time.Time

	mu   sync.Mutex
	file *lock.File // of the comparisons
	all  map[Drift]*sighting
}

// sighting is a drift in listings. It is kept for a while after the last listing that shows it, so that a drift that returns
// is not new.
type sighting struct {
	by     int // listings that show it
	last   time.Time
	id     string // of the request that records it: two records of one drift have the same id
	failed bool   // the record failed, and is not tried again before this:
	again  time.Time
}

// sightings are the drifts that one listing shows.
type sightings map[Drift]*sighting

// listed notes the drifts of a listing. A whole listing replaces the drifts that it showed before, a part adds to them. It
// returns the drifts that the listing shows now, the new ones, and those to record.
func (r *drifts) listed(file *lock.File, before sightings, changes []lock.Change, whole bool) (now sightings, news, record []Drift) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(file)
	now = sightings{}
	for _, c := range changes {
		d := r.driftOf(c)
		s := r.all[d]
		switch {
		case s == nil:
			s = &sighting{id: uuid.NewString()}
			r.all[d] = s
			news, record = append(news, d), append(record, d)
		case s.failed && !r.now().Before(s.again):
			s.again = r.now().Add(driftAgain)
			record = append(record, d)
		}
		s.last, now[d] = r.now(), s
	}
	for d, s := range before {
		switch {
		case !whole && now[d] == nil:
			now[d] = s
		case now[d] != s:
			s.by--
		}
	}
	for d, s := range now {
		if before[d] != s {
			s.by++
		}
	}
	return now, news, record
}

// forget drops old drifts, and all drifts if the lock file has changed.
func (r *drifts) forget(file *lock.File) {
	if r.file != file {
		r.file = file
		r.all = map[Drift]*sighting{}
	}
	for d, s := range r.all {
		if r.now().Sub(s.last) > driftLasts {
			delete(r.all, d)
		}
	}
}

// driftOf returns a change as a drift. Names of tools come from strangers.
func (r *drifts) driftOf(c lock.Change) Drift {
	name := func(text string) string { return shortened(visible.Text(text), evaluation.DriftTool) }
	d := Drift{c.Server, name(c.Tool), c.Kind, name(c.With), c.Locked, c.Found}
	kept := 0
	for other := range r.all {
		if other.Server == d.Server {
			kept++
		}
	}
	if r.all[d] == nil && kept >= mostDrifts {
		return Drift{Server: d.Server, Change: MoreDrifts}
	}
	return d
}

// shortened returns at most so many bytes of a text. An ellipsis ends a text that was longer.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

// lasting returns the drifts that a listing shows, sorted.
func (r *drifts) lasting() (all []Drift) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(r.file)
	for d, s := range r.all {
		if s.by > 0 {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b Drift) int {
		return cmp.Or(strings.Compare(a.String(), b.String()), strings.Compare(a.With, b.With), strings.Compare(a.Found, b.Found))
	})
	return all
}

// DriftCounts returns the number of drifts of each server, nil if nothing is compared.
func (g *Servers) DriftCounts() map[string]int64 {
	if g.o.Lock.File == nil {
		return nil
	}
	counts := map[string]int64{}
	for _, d := range g.drifts.lasting() {
		counts[d.Server]++
	}
	return counts
}

func (r *drifts) err() error {
	all := r.lasting()
	if len(all) == 0 {
		return nil
	}
	var words []string
	for _, d := range all[:min(len(all), driftsNamed)] {
		words = append(words, d.String())
	}
	if more := len(all) - driftsNamed; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("not as locked: %s; see what it is with policy-service mcp lock --diff, and accept it with --accept", strings.Join(words, ", "))
}

func (g *Servers) note(l *Link, file *lock.File, changes []lock.Change, whole bool) {
	l.tools.mu.Lock()
	now, news, record := g.drifts.listed(file, l.tools.drifts, changes, whole)
	l.tools.drifts = now
	l.tools.mu.Unlock()
	if len(news) > 0 {
		counts, first := map[lock.Kind]int{}, news[0]
		for _, d := range news {
			counts[d.Change]++
		}
		g.o.Logger.Warn("a server is not as it is locked", "server", first.Server, "what", first.String(), "new", counts, "enforced", g.o.Lock.Enforce, "locked", first.Locked, "found", first.Found)
	}
	for _, d := range record {
		if s := now[d]; g.o.Lock.Record != nil {
			g.doors.Background(func() { g.record(d, s) })
		}
	}
}

// record records a drift at the PDP. The log has the reason of the first failure.
func (g *Servers) record(d Drift, s *sighting) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.doors.Context), driftPost) // Close waits for it
	defer cancel()
	err := g.o.Lock.Record(ctx, d, s.id)
	g.drifts.mu.Lock()
	before := s.failed
	s.failed, s.again = err != nil, g.o.Now().Add(driftAgain)
	g.drifts.mu.Unlock()
	if err != nil && !before {
		g.o.Logger.Error("a difference from the lock is not on the PDP's record", slog.Group("", "server", d.Server), "what", d.String(), "why", err)
	}
}
