package approvals_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
)

// A person hears of a request by a notification, and answers it; others hear nothing.
func TestHeardNotification(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	gateway, mia := d.pep(), d.pep(authzenclient.WithKey(d.key["mia"]))
	s, err := approvals.Ask(t.Context(), gateway, denies(t, gateway, push(nil)))
	d.must(err)
	id := s.Approvals()[0]
	var nobody approvals.Person
	message, err := approvals.Notification(t.Context(), mia, id, nobody)
	if err != nil || !strings.Contains(string(message), `"method":"notifications/authorization/request","params":{"id":"`+id+`"`) {
		t.Fatalf("%s, %v", message, err)
	}
	for _, odd := range []string{"", ".", "..", "../../x", "none"} {
		if message, err := approvals.Notification(t.Context(), mia, odd, nobody); err == nil {
			t.Errorf("%q is %s", odd, message)
		}
	}
	if message, err := approvals.Notification(t.Context(), d.pep(authzenclient.WithKey(d.key["other"])), id, nobody); err == nil {
		t.Errorf("another is told %s", message)
	}
	if status, err := approvals.Respond(t.Context(), mia, id, nobody, []byte(`{"authorizationId":"`+id+`","decision":"approve"}`)); err != nil || status != "approved" {
		t.Errorf("%s, %v", status, err)
	}
	if message, err := approvals.Notification(t.Context(), mia, id, nobody); err == nil {
		t.Errorf("what is approved is told: %s", message)
	}
}

// Decidable is false only where the PDP says so in as many words: it is true with an error, or another answer.
func TestDecidableUnlessSaid(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		a       said
		is, err bool
	}{
		"nobody":     {said{200, `{"items":[],"more":false}`, nil}, false, false},
		"others":     {said{200, `{"items":[],"more":true}`, nil}, true, false},
		"somebody":   {said{200, `{"items":["user::\"a\""],"more":false}`, nil}, true, false},
		"no more":    {said{200, `{"items":[]}`, nil}, true, true},
		"no items":   {said{200, `{"more":false}`, nil}, true, true},
		"nothing":    {said{200, `{}`, nil}, true, true},
		"null":       {said{200, `{"items":null,"more":null}`, nil}, true, true},
		"not for us": {said{403, `{}`, nil}, true, true},
		"not there":  {said{404, `{"items":[],"more":false}`, nil}, true, true},
		"away":       {said{503, ``, nil}, true, true},
	} {
		h := fair()
		h.before = func(*http.Request) (said, bool) { return test.a, true }
		may, err := approvals.Decidable(t.Context(), h.client(t, authzenclient.WithRetries(0)), "a1")
		if may != test.is || (err != nil) != test.err {
			t.Errorf("%s: %t, %v", name, may, err)
		}
	}
}

// A client without tasks learns from a watch which approval requests wait, and which do no more.
func TestHeardWaiting(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	asks, watcher := d.pep(), d.pep()
	said := func(changes approvals.Changes) map[string]bool { return maps.Collect(changes.Waiting()) }
	ask := func(n int) approvals.Standing {
		s, err := approvals.Ask(t.Context(), asks, denies(t, asks, push(map[string]any{"n": n})))
		d.must(err)
		return s
	}
	first, second, third := ask(1), ask(2), ask(3)
	id := func(s approvals.Standing) string { return s.Approvals()[0] }
	changes := watches(t, watcher, "", 0)
	if got, want := said(changes), map[string]bool{id(first): true, id(second): true, id(third): true}; !maps.Equal(got, want) {
		t.Fatalf("at first: %v, want %v", got, want)
	}
	for one := range changes.Waiting() {
		if one != id(first) {
			t.Errorf("it goes on with %s", one)
		}
		break
	}
	d.decides("approve", id(first))
	d.decides("deny", id(second))
	d.must(approvals.Cancel(t.Context(), asks, third.Task()))
	fourth := ask(4)
	changes = watches(t, watcher, changes.Cursor(), time.Second)
	if got, want := said(changes), map[string]bool{id(first): false, id(second): false, id(third): false, id(fourth): true}; !maps.Equal(got, want) {
		t.Errorf("then: %v, want %v", got, want)
	}
	if got := said(watches(t, d.pep(authzenclient.WithKey(d.key["other"])), "", 0)); len(got) != 0 {
		t.Errorf("another hears %v", got)
	}
	if got := said(approvals.Changes{}); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
