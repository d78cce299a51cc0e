package console

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"sync"
	"time"

	"policy-service/pdp/server/auth"
)

// session is a time for which somebody is logged in. Of its id, which the cookie has, the console keeps the hash.
type session struct {
	login auth.Login
	who   string // the name of the caller
	key   []byte // of the tokens in forms
	began uint64 // counts the sessions
	used  time.Time
	end   time.Time
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

	mu    sync.Mutex // guards what follows
	began uint64
	byID  map[idHash]*session
}

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
	s.makeRoom(who)
	s.byID[sha256.Sum256(random)] = begun
	return base64.RawURLEncoding.EncodeToString(random)
}

// makeRoom deletes sessions that are over, and the oldest if there are too many.
func (s *sessions) makeRoom(who string) {
	var all, ofCaller []idHash
	for id, one := range s.byID {
		if s.over(one) {
			delete(s.byID, id)
			continue
		}
		all = append(all, id)
		if one.who == who {
			ofCaller = append(ofCaller, id)
		}
	}
	older := func(a, b idHash) int {
		if s.byID[a].began < s.byID[b].began {
			return -1
		}
		return 1
	}
	switch {
	case len(ofCaller) >= mostOfCaller:
		delete(s.byID, slices.MinFunc(ofCaller, older))
	case len(all) >= mostSessions:
		delete(s.byID, slices.MinFunc(all, older))
	}
}

func (s *sessions) over(one *session) bool {
	now := s.now()
	return !now.Before(one.end) || !now.Before(one.used.Add(s.idle))
}

// use finds a session that is not over. It counts as used now.
func (s *sessions) use(id idHash) (found session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.byID[id]
	if !ok {
		return found, false
	}
	if s.over(one) {
		delete(s.byID, id)
		return found, false
	}
	one.used = s.now()
	return *one, true
}

// drop ends a session.
func (s *sessions) drop(id idHash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
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

// sent is the value of a cookie. One that was sent more than once is none: nobody knows which is ours.
func (c *Console) sent(r *http.Request, name string) string {
	if all := r.CookiesNamed(c.cookieName(name)); len(all) == 1 {
		return all[0].Value
	}
	return ""
}
