package evaluation_test

import (
	"errors"
	"strings"
	"testing"

	"policy-service/evaluation"
)

// submission is one with a member more.
func submission(more string) string {
	return `{"subject":{"type":"agent","id":"bot"},"action":{"name":"push"},"resource":{"type":"repo","id":"r"},"context":{"n":1},"denial":{"expires_at":"2026-01-02T03:04:05Z","binding_token":"t"}` + more + `}`
}

func TestDecodeSubmission(t *testing.T) {
	t.Parallel()
	decode := func(body string) (evaluation.Submission, error) {
		return evaluation.DecodeSubmission([]byte(body), "", evaluation.DefaultLimits())
	}
	s, err := decode(submission(`,"client":{"actor":{"id":"bot"}},"callback":{"endpoint":"https://a","events":[]}`))
	if err != nil || len(s.Items) != 1 || s.Bulk || s.Actor != "bot" || s.Callback == nil || s.Callback.Events == nil || s.Items[0].Request.Tenant != evaluation.DefaultTenant || s.Items[0].Denial.BindingToken != "t" {
		t.Errorf("got %+v, %v", s, err)
	}
	for name, pair := range map[string][2]string{
		"spaces and order": {submission(""), strings.Replace(submission(""), `{"type":"repo","id":"r"}`, ` { "id":"r", "type":"repo" } `, 1)},
		"a number":         {submission(""), strings.Replace(submission(""), `"n":1`, `"n":1.0`, 1)},
		"null":             {submission(""), submission(`,"client":null`)},
	} {
		one, err := decode(pair[0])
		other, err2 := decode(pair[1])
		if err != nil || err2 != nil || one.Hash != other.Hash {
			t.Errorf("%s: %v, %v, or they differ", name, err, err2)
		}
	}
	one, _ := decode(submission(""))
	if other, err := decode(submission(`,"more":1`)); err != nil || other.Hash == one.Hash {
		t.Errorf("a member more is the same body: %v", err)
	}
}

// What is kept of a callback is small, whatever is sent.
func TestCallbackIsSmall(t *testing.T) {
	t.Parallel()
	events := func(n int, event string) string {
		return `,"callback":{"endpoint":"https://a","events":[` + strings.TrimSuffix(strings.Repeat(`"`+event+`",`, n), ",") + `]}`
	}
	for body, pointer := range map[string]string{
		events(16, strings.Repeat("e", 64)): "",
		events(17, "approved"):              "/callback/events",
		events(1, strings.Repeat("e", 65)):  "/callback/events/0",
		`,"callback":{"endpoint":"https://a","state":"` + strings.Repeat("s", 1025) + `"}`: "/callback/state",
	} {
		_, err := evaluation.DecodeSubmission([]byte(submission(body)), "", evaluation.DefaultLimits())
		var bad *evaluation.Error
		if errors.As(err, &bad) != (pointer != "") || bad != nil && bad.Pointer != pointer {
			t.Errorf("%.60s: %v", body, err)
		}
	}
}

func FuzzDecodeSubmission(f *testing.F) {
	for _, body := range bodies {
		f.Add([]byte(body))
	}
	f.Add([]byte(submission("")))
	f.Add([]byte(submission(`,"requested_access":{"requested_until":"2026-01-02T03:04:05Z","emergency":true},"client":{"actor":{"id":"x","act":{}}},"callback":{"endpoint":"e","state":"s","events":["approved",7]}`)))
	f.Add([]byte(`{"subject":{"type":"a","id":"b"},"items":[{"action":{"name":"x"},"resource":{"type":"r","id":"i"},"denial":{"expires_at":"x"}},7]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := evaluation.DecodeSubmission(body, "t1", evaluation.DefaultLimits())
		var bad *evaluation.Error
		switch {
		case err != nil && (!errors.As(err, &bad) || !validPointer(bad.Pointer) || bad.Detail == ""):
			t.Errorf("it is refused by %T with %v", err, err)
		case err != nil && (len(s.Items) > 0 || s.Hash != [32]byte{}):
			t.Errorf("it is refused, and yet a submission: %+v", s)
		case err == nil && (len(s.Items) == 0 || len(s.Items) > 50 || s.Hash == [32]byte{}):
			t.Errorf("it is taken, and asks for %d things", len(s.Items))
		}
		for _, item := range s.Items {
			if item.Request.Tenant != "t1" || item.Denial.Given && item.Denial.ExpiresAt.IsZero() {
				t.Errorf("got %+v", item)
			}
		}
	})
}
