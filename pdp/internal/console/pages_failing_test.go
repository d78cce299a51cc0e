package console_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// What is beside an approval request may be missing. Without what the person may do there are no buttons. Who is nobody
// any more gets no page, whichever request the API refused.
func TestPageWithoutExtras(t *testing.T) {
	t.Parallel()
	f := &coreTrouble{}
	c := openCore(t, coreWith{api: func(api http.RoundTripper) http.RoundTripper { f.RoundTripper = api; return f }})
	id := c.waits("deploy")
	mia := c.browser()
	mia.logIn("mia")
	page := func(end string, status int) coreAnswer {
		f.answers(end, status)
		defer f.answers("", 0)
		return mia.do(http.MethodGet, "/approvals/"+id, "")
	}
	buttons := []string{`value="approve"`, `value="deny"`, `value="delegate"`}
	for end, says := range map[string]string{"/why": "You cannot decide:", "/previous": "Whether there was one like it before cannot be said", "/deciders": "Waits for you", "/v1/approvals": "Waits for you"} {
		for _, status := range []int{http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusTooManyRequests} {
			got := page(end, status)
			if got.Status != http.StatusOK {
				t.Fatalf("%s, %d: %d %s", end, status, got.Status, got.Body)
			}
			has(t, got.Body, says, "do it")
			for _, button := range buttons {
				if there := strings.Contains(got.Body, button); there != (end != "/why") {
					t.Errorf("%s, %d: %s is there: %v", end, status, button, there)
				}
			}
		}
	}
	if got := page("/"+id, http.StatusServiceUnavailable); got.Status != http.StatusServiceUnavailable || strings.Contains(got.Body, "do it") {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	for _, end := range []string{"/why", "/previous", "/deciders", "/v1/approvals", "/" + id} {
		again := c.browser()
		again.logIn("mia")
		mia = again
		if got := page(end, http.StatusUnauthorized); got.Status != http.StatusSeeOther || strings.Contains(got.Body, "do it") {
			t.Errorf("%s: %d %s", end, got.Status, got.Body)
		}
	}
}

// Whoever waits until the time for a page is up is told that there was not enough of it, and is not shown an empty page
// that looks like a success.
func TestNoTimeIsNoEmptyPage(t *testing.T) {
	t.Parallel()
	s := &coreTrouble{}
	var limit atomic.Int64
	limit.Store(int64(time.Minute))
	c := openCore(t, coreWith{
		api: func(api http.RoundTripper) http.RoundTripper { s.RoundTripper = api; return s },
		within: func(pages http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithTimeout(r.Context(), time.Duration(limit.Load()))
				defer cancel()
				pages.ServeHTTP(w, r.WithContext(ctx))
			})
		},
	})
	id := c.waits("deploy")
	mia := c.browser()
	mia.logIn("mia")
	decision := "/approvals/" + id + "/decision"
	form := mia.fields("/approvals/"+id, decision)
	limit.Store(int64(50 * time.Millisecond))
	for end, ask := range map[string]func() coreAnswer{
		"/v1/me": func() coreAnswer { return mia.get("/approvals") },
		"/" + id: func() coreAnswer { return mia.get("/approvals/" + id) },
		"/decision": func() coreAnswer {
			return mia.send(decision, "token", form["token"], "version", form["version"], "shown", form["shown"], "decision", "approve", "reason", "so")
		},
	} {
		s.answers(end, coreNever)
		if got := ask(); got.Status != http.StatusServiceUnavailable || !strings.Contains(got.Body, "</html>") {
			t.Errorf("%s: got %d %q", end, got.Status, got.Body)
		}
	}
}
