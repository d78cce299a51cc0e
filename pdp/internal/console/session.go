package console

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"sync"
	"time"

	"policy-service/pdp/internal/server/auth"
)

// Session is a login and its time.
type Session struct {
	Login  auth.Login
	Caller string // its name
	Used   time.Time
	End    time.Time
}

// Over reports whether a session has ended, or was not used for so long.
func (s Session) Over(now time.Time, idle time.Duration) bool {
	return !now.Before(s.End) || !now.Before(s.Used.Add(idle))
}

// SessionID is the hash of a session's id, which the browser alone has.
type SessionID [sha256.Size]byte

// Sessions keep sessions. Any error means that it is not known which there are.
type Sessions interface {
	// Begin keeps a session. It may end the oldest of the caller.
	Begin(context.Context, SessionID, Session) error
	// Find finds a session that is not over. If it uses it, the session counts as used now.
	Find(_ context.Context, _ SessionID, uses bool) (_ Session, found bool, _ error)
	// Drop ends a session.
	Drop(context.Context, SessionID) error
}

// How many sessions there may be in one process, and how many of one caller anywhere. One more ends the oldest.
const (
	mostSessions = 10_000
	MostOfCaller = 50
)

// kept is a session in memory.
type kept struct {
	Session
	began uint64 // counts the sessions
}

// memory keeps sessions in this process: a restart logs people out.
type memory struct {
	idle time.Duration
	now  func() time.Time

	mu       sync.Mutex // guards the rest
	began    uint64
	byID     map[SessionID]*kept
	ofCaller map[string]int // how many each has
	swept    time.Time
}

// sweepEvery is how often sessions that are over are looked for, at most.
const sweepEvery = time.Minute

func newMemory(idle time.Duration, now func() time.Time) *memory {
	return &memory{idle: idle, now: now, byID: map[SessionID]*kept{}, ofCaller: map[string]int{}}
}

// Begin implements [Sessions].
func (m *memory) Begin(_ context.Context, id SessionID, s Session) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began++
	if len(m.byID) >= mostSessions || m.ofCaller[s.Caller] >= MostOfCaller || !m.now().Before(m.swept.Add(sweepEvery)) {
		m.makeRoom(s.Caller)
	}
	m.byID[id] = &kept{s, m.began}
	m.ofCaller[s.Caller]++
	return nil
}

// makeRoom deletes sessions that are over, and the oldest if there are too many.
func (m *memory) makeRoom(caller string) {
	m.swept = m.now()
	var oldest, oldestOfCaller SessionID
	older := func(id, than SessionID) bool {
		other, found := m.byID[than]
		return !found || m.byID[id].began < other.began
	}
	for id, one := range m.byID {
		if one.Over(m.swept, m.idle) {
			m.remove(id)
			continue
		}
		if older(id, oldest) {
			oldest = id
		}
		if one.Caller == caller && older(id, oldestOfCaller) {
			oldestOfCaller = id
		}
	}
	if m.ofCaller[caller] >= MostOfCaller {
		m.remove(oldestOfCaller)
	} else if len(m.byID) >= mostSessions {
		m.remove(oldest)
	}
}

func (m *memory) remove(id SessionID) {
	one, found := m.byID[id]
	if !found {
		return
	}
	delete(m.byID, id)
	if m.ofCaller[one.Caller]--; m.ofCaller[one.Caller] == 0 {
		delete(m.ofCaller, one.Caller)
	}
}

// Find implements [Sessions].
func (m *memory) Find(_ context.Context, id SessionID, uses bool) (found Session, ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one, ok := m.byID[id]
	if !ok {
		return found, false, nil
	}
	if one.Over(m.now(), m.idle) {
		m.remove(id)
		return found, false, nil
	}
	if uses {
		one.Used = m.now()
	}
	return one.Session, true, nil
}

// Drop implements [Sessions].
func (m *memory) Drop(_ context.Context, id SessionID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(id)
	return nil
}

// ticket is the id of a session, as the browser has it.
type ticket [32]byte

func newTicket() (t ticket) {
	_, _ = rand.Read(t[:]) // never fails: it ends the program instead
	return t
}

// ticket is the one that the browser sent, if it is one.
func (v *visit) ticket() (t ticket, ok bool) {
	random, err := base64.RawURLEncoding.Strict().DecodeString(v.sent(sessionCookie))
	if err != nil || len(random) != len(t) {
		return t, false
	}
	return ticket(random), true
}

func (t ticket) cookie() string { return base64.RawURLEncoding.EncodeToString(t[:]) }

func (t ticket) id() SessionID { return sha256.Sum256(t[:]) }

// formKey is the key of the tokens in forms. The console keeps nothing that it could be made of.
func (t ticket) formKey() []byte {
	key, err := hkdf.Key(sha256.New, t[:], nil, "forms of the console", sha256.Size)
	if err != nil {
		panic(err) // of the length alone, which is constant
	}
	return key
}

// cookie is one of the console's cookies. A browser takes a name with __Host- only with Secure and for this host alone.
func (c *Console) cookie(name, value string, age time.Duration) *http.Cookie {
	cookie := &http.Cookie{
		Name: c.cookieName(name), Value: value, Path: "/", Secure: c.options.Secure, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, MaxAge: int(age.Seconds()),
	}
	if value == "" {
		cookie.MaxAge = -1 // delete it
	}
	return cookie
}

func (c *Console) cookieName(name string) string {
	if c.options.Secure {
		return "__Host-" + name
	}
	return name
}

// The cookies, as they are named on plain loopback.
const (
	sessionCookie = "session"
	loginCookie   = "login"
)

// sent is the value of a cookie. One that was sent more than once is none: it is not known which is ours.
func (v *visit) sent(name string) string {
	if all := v.r.CookiesNamed(v.cookieName(name)); len(all) == 1 {
		return all[0].Value
	}
	return ""
}
