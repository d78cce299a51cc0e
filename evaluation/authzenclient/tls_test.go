package authzenclient_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"policy-service/evaluation/authzenclient"
)

// Whom to trust is what the http.Client says: a certificate it does not know is no PDP.
func TestTLS(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(says(`{"decision":true,"allow":true}`))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // the stranger hangs up on it
	s.StartTLS()
	defer s.Close()
	stranger := newClient(t, s.URL, authzenclient.WithKey(secret))
	wantDeny(t, stranger.Evaluate(t.Context(), question), authzenclient.Unreachable)
	friend := newClient(t, s.URL, authzenclient.WithKey(secret), authzenclient.WithHTTPClient(s.Client()))
	if d := friend.Evaluate(t.Context(), question); !d.Permitted() {
		t.Error(d)
	}
}

// One client serves a whole PEP, and discovers while it does.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	var flip sync.Mutex
	n := 0
	c := newClient(t, stub(t, func(w http.ResponseWriter, r *http.Request) {
		flip.Lock()
		n++
		fails := n%3 == 0
		flip.Unlock()
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if fails {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		says(`{"decision":false,"allow":false,"evaluations":[{"decision":false}],"results":[]}`)(w, r)
	}), authzenclient.WithBreaker(2, 0))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				if askAll(t, c) > 0 {
					t.Error("a permit that nobody gave")
				}
				_ = c.Discover(t.Context())
			}
		})
	}
	all.Wait()
}
