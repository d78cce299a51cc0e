package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"sync"
	"time"

	"policy-service/pdp/server/auth"
)

// session is a login and its time. Of its id, which the cookie has, the console keeps the hash.
type session struct {
	login auth.Login
	who   string // the name of the caller
	key   []byte // of the tokens in forms
	began uint64 // counts the sessions
	used  time.Time
	end   time.Time
	// stream ends the stream of the session, nil without one.
	stream *context.CancelCauseFunc
}

// How many sessions there may be, and how many of one caller. One more ends the oldest.
const (
	mostSessions = 10_000
	mostOfCaller = 50
)

// sessions are kept in memory: a restart logs people out.
type sessions struct {
	max, idle time.Duration
	now       func() time.Time

	mu       sync.Mutex // guards the rest
	began    uint64
	byID     map[idHash]*session
	ofCaller map[string]int // how many each has
	streams  int
	swept    time.Time
}

// sweepEvery is how often sessions that are over are looked for, at most.
const sweepEvery = time.Minute

// idHash is the hash of a session's id.
type idHash [sha256.Size]byte

// idSize is how many random bytes an id has.
const idSize = 32

// hashOf is of an id as the cookie has it.
func hashOf(id string) (hash idHash, ok bool) {
	random, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil || len(random) != idSize {
		return hash, false
	}
	return sha256.Sum256(random), true
}

func newSessions(o Options) *sessions {
	return &sessions{max: o.MaxSession, idle: o.IdleSession, now: o.Now, byID: map[idHash]*session{}, ofCaller: map[string]int{}}
}

// begin begins a session, and returns its id.
func (s *sessions) begin(login auth.Login, who string) (id string) {
	random, key := randomBytes(idSize), randomBytes(sha256.Size)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.began++
	begun := &session{login: login, who: who, key: key, began: s.began, used: now, end: now.Add(s.max)}
	if ends := login.Ends(); !ends.IsZero() && ends.Before(begun.end) {
		begun.end = ends
	}
	if len(s.byID) >= mostSessions || s.ofCaller[who] >= mostOfCaller || !now.Before(s.swept.Add(sweepEvery)) {
		s.makeRoom(who)
	}
	s.byID[sha256.Sum256(random)] = begun
	s.ofCaller[who]++
	return base64.RawURLEncoding.EncodeToString(random)
}

// makeRoom deletes sessions that are over, and the oldest if there are too many.
func (s *sessions) makeRoom(who string) {
	s.swept = s.now()
	var oldest, oldestOfCaller idHash
	older := func(id, than idHash) bool {
		other, found := s.byID[than]
		return !found || s.byID[id].began < other.began
	}
	for id, one := range s.byID {
		if s.over(one) {
			s.remove(id)
			continue
		}
		if older(id, oldest) {
			oldest = id
		}
		if one.who == who && older(id, oldestOfCaller) {
			oldestOfCaller = id
		}
	}
	if s.ofCaller[who] >= mostOfCaller {
		s.remove(oldestOfCaller)
	} else if len(s.byID) >= mostSessions {
		s.remove(oldest)
	}
}

func (s *sessions) remove(id idHash) {
	one, found := s.byID[id]
	if !found {
		return
	}
	delete(s.byID, id)
	one.endStream(errOver)
	if s.ofCaller[one.who]--; s.ofCaller[one.who] == 0 {
		delete(s.ofCaller, one.who)
	}
}

func (s *sessions) over(one *session) bool {
	now := s.now()
	return !now.Before(one.end) || !now.Before(one.used.Add(s.idle))
}

// use finds a session that is not over. It counts as used now.
func (s *sessions) use(id idHash) (session, bool) { return s.find(id, true) }

// look is use for programs, such as a stream: it keeps no session from being unused.
func (s *sessions) look(id idHash) (session, bool) { return s.find(id, false) }

func (s *sessions) find(id idHash, uses bool) (found session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.byID[id]
	if !ok {
		return found, false
	}
	if s.over(one) {
		s.remove(id)
		return found, false
	}
	if uses {
		one.used = s.now()
	}
	return *one, true
}

// drop ends a session.
func (s *sessions) drop(id idHash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(id)
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: it ends the program instead
	return b
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
