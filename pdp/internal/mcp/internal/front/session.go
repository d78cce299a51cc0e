package front

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/flights"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/people"
	"policy-service/pdp/internal/seal"
)

// session is a session of a client of the legacy era. Everything that must outlive this process is in its id, which is sealed:
// a gateway that restarts, or another one with the same keys, continues the session.
type session struct {
	*people.Conversation
	who    string // the key of its principal
	client link.Client
	reach  *link.Reach
	ends   time.Time
	// foreign is set if another gateway began the session. The subscriptions of its stream are there, and not here.
	foreign bool

	flights   flights.Flights
	begun     atomic.Bool // the client has its id
	mu        sync.Mutex
	listening bool
	left      bool // the client had a stream, and closed it
	used      time.Time
}

type sealedSession struct {
	// Gateway is the name of the gateway that began the session. The id shows it before the seal, for load balancers.
	Gateway      string         `json:"gateway,omitzero"`
	Version      string         `json:"version"`
	Info         jsontext.Value `json:"info,omitzero"`
	Capabilities jsontext.Value `json:"capabilities,omitzero"`
	// Nonce distinguishes two sessions of one client.
	Nonce string `json:"nonce"`
}

const (
	sessionLife = 24 * time.Hour
	// mostKept is how many sessions this process keeps, and how many reaches.
	mostKept = 10000
	// mostEnded bounds how many ended sessions are remembered. Beyond it an ended session may go on: it still belongs to its
	// own principal, and the PDP decides about all its requests.
	mostEnded = 100000
	// mostClientInfo is how large a client's description of itself may be: it travels in a header.
	mostClientInfo = 4096
)

// sessions are the sessions that this process keeps in memory.
type sessions struct {
	o       *Options
	servers *link.Servers
	mu      sync.Mutex
	all     map[string]*session
	// ended holds the digest of the id of each session that has ended before its time, and the time until which the id would
	// open.
	ended map[[sha256.Size]byte]time.Time
}

// make makes a session, which counts only once it is added.
func (t *sessions) make(who *identity.Principal, c link.Client) (*session, error) {
	if len(c.Info)+len(c.Capabilities) > mostClientInfo {
		return nil, errors.New("clientInfo and capabilities are too large")
	}
	if !era.IsClientInfo(c.Info) {
		return nil, errors.New("clientInfo is no object with the strings name and version")
	}
	ends := t.o.Now().Add(sessionLife)
	kept := sealedSession{Gateway: t.o.Name, Version: c.Version, Info: c.Info, Capabilities: c.Capabilities, Nonce: rand.Text()}
	id, err := seal.SealJSON(t.o.Ring, seal.Session, []byte(who.Key), kept, ends)
	if err != nil {
		return nil, err
	}
	return t.newSession(sessionID(kept.Gateway, id), who, c, ends), nil
}

// sessionID is the id of a session of a gateway. No seal has a dot in it, and no name.
func sessionID(gateway, sealed string) string {
	if gateway == "" {
		return sealed
	}
	return gateway + "." + sealed
}

func (t *sessions) newSession(id string, who *identity.Principal, c link.Client, ends time.Time) *session {
	return &session{
		Conversation: people.NewConversation(id, t.o.Ring), who: who.Key, client: c.Kept(), ends: ends, used: t.o.Now(), reach: t.servers.Reach(who, c),
	}
}

// add puts a session into the table, and returns the session that the table has then: another one if one with the same id was
// added before, and nil if the session has ended meanwhile or there is no room. If the person or the process has too many
// sessions, the one unused for longest ends first: what it had at the servers is gone, so its client begins another. A busy
// session never ends for this.
func (t *sessions) add(s *session) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	if other := t.all[s.ID]; other != nil {
		return other
	}
	if !t.ended[sha256.Sum256([]byte(s.ID))].IsZero() {
		return nil
	}
	id, oldest, ok := room(t.all, s.reach.Account, t.o.SessionsEach)
	if !ok {
		return nil
	}
	if oldest != nil {
		delete(t.all, id)
		t.noteEnd(oldest)
		go oldest.close()
	}
	t.all[s.ID] = s
	return s
}

// noteEnd makes the id of a session useless. The caller holds the lock.
func (t *sessions) noteEnd(s *session) {
	if len(t.ended) < mostEnded {
		t.ended[sha256.Sum256([]byte(s.ID))] = s.ends
	}
}

func (t *sessions) hasRoom(who *identity.Principal) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _, ok := room(t.all, who.Account(), t.o.SessionsEach)
	return ok
}

type kept interface {
	// account is the person for whom it is kept.
	account() string
	// lastUse is when it was used last, and whether it is unused.
	lastUse() (last time.Time, unused bool)
}

// room returns the value that must go for another one of a person, none if there is room: the one unused for longest, of the
// person if they have as many as one may have, and else of all. It is not ok if every candidate is in use.
func room[K comparable, V kept](all map[K]V, person string, each int) (key K, oldest V, ok bool) {
	own := 0
	for _, v := range all {
		if v.account() == person {
			own++
		}
	}
	if own < each && len(all) < mostKept {
		return key, oldest, true
	}
	var since time.Time
	for k, v := range all {
		if own >= each && v.account() != person {
			continue
		}
		if last, unused := v.lastUse(); unused && (since.IsZero() || last.Before(since)) {
			key, oldest, since, ok = k, v, last, true
		}
	}
	return key, oldest, ok
}

// find returns the session with an id, nil if this principal has no such session.
func (t *sessions) find(id string, who *identity.Principal) *session {
	now := t.o.Now()
	t.mu.Lock()
	s, ended := t.all[id], t.ended[sha256.Sum256([]byte(id))]
	if s != nil && s.who == who.Key && now.Before(s.ends) {
		s.touch(now)
		t.mu.Unlock()
		if server := s.reach.Stale(); server != nil && !s.flights.Any() {
			t.o.Logger.Warn("a session ends: the server began anew, and does not take again what the client told it", slog.Group("", "server", server.Name), "principal", who.Key)
			go t.end(s)
			return nil
		}
		return s
	}
	t.mu.Unlock()
	if s != nil || !ended.IsZero() {
		return nil
	}
	sealed := id[strings.LastIndexByte(id, '.')+1:]
	kept, ends, ok := seal.OpenJSON[sealedSession](t.o.Ring, seal.Session, []byte(who.Key), sealed)
	if !ok || id != sessionID(kept.Gateway, sealed) {
		return nil
	}
	foreign := kept.Gateway != t.o.Name
	if foreign && t.servers.Programs() { // they run at the other gateway, with the state of the client
		return nil
	}
	c := link.Client{Era: era.Legacy, Version: kept.Version, Info: kept.Info, Capabilities: kept.Capabilities}
	s = t.newSession(id, who, c, ends)
	s.foreign = foreign
	return t.add(s)
}

// end ends a session for good, as far as this process can.
func (t *sessions) end(s *session) {
	t.mu.Lock()
	delete(t.all, s.ID)
	t.noteEnd(s)
	t.mu.Unlock()
	s.close()
}

// idle removes the sessions that have been unused for longer than most, and returns how to close them. Of sessions that are not
// busy it also returns how to stop the server programs that need not run. All drop old lists of tools.
func (t *sessions) idle(now time.Time, most time.Duration) (idle []func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, s := range t.all {
		s.reach.Sweep(now)
		last, unused := s.lastUse()
		switch {
		case s.reach.Stale() != nil && !s.flights.Any(): // its stream ends, and no other one begins
			idle = append(idle, func() { t.end(s) })
		case now.After(s.ends), unused && now.Sub(last) > most:
			idle = append(idle, s.close)
			delete(t.all, id)
		case unused: // nor is it used before find
			idle = append(idle, s.rest(now.Sub(last))...)
		}
	}
	for id, ends := range t.ended {
		if now.After(ends) {
			delete(t.ended, id)
		}
	}
	return idle
}

func (s *session) close() {
	s.flights.CancelAll()
	s.reach.Close()
}

// rest closes sessions at servers that need not be kept for a client that has closed its stream: the client's next message
// opens them again.
func (s *session) rest(unused time.Duration) (idle []func()) {
	s.mu.Lock()
	left := s.left
	s.mu.Unlock()
	for _, l := range s.reach.Links {
		if left && l.Server.Idle > 0 && unused > l.Server.Idle {
			if open := l.Rest(); open != nil {
				idle = append(idle, open.Close)
			}
		}
	}
	return idle
}

func (s *session) touch(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = now
}

func (s *session) account() string { return s.reach.Account }

func (s *session) lastUse() (last time.Time, unused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, !s.flights.Any() && !s.listening
}
