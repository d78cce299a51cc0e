package approvals_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/pdptest"
)

// played is a PDP of four answers: to the question, to a submission, to a look, and
// to the question with an approval.
type played struct {
	t                          *testing.T
	first, submit, look, again []byte
	asked                      int
}

func (p *played) RoundTrip(r *http.Request) (*http.Response, error) {
	body, status := p.look, http.StatusOK
	switch {
	case strings.HasSuffix(r.URL.Path, "/evaluation"):
		body = p.again
		if p.asked++; p.asked == 1 {
			body = p.first
		}
	case r.Method == http.MethodPost:
		body, status = p.submit, http.StatusAccepted
	}
	if !strings.EqualFold(r.URL.Host, "pdp") || r.URL.Scheme != "https" { // pDp is the same host
		p.t.Errorf("%s was asked", r.URL)
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}

// client waits fifty times at most.
func (p *played) client() *authzenclient.Client {
	now, waits := pdptest.Now, 0
	clock := authzenclient.WithClock(func() time.Time { return now }, func(_ context.Context, by time.Duration) error {
		now = now.Add(by)
		if waits++; waits > 50 {
			return errors.New("enough")
		}
		return nil
	})
	c, err := authzenclient.New("https://pdp", authzenclient.WithHTTPClient(&http.Client{Transport: p}), clock)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

func atPDP(s string) []byte {
	return []byte(strings.NewReplacer("BASE", "https://pdp", "EVIL", "https://evil").Replace(s))
}

// FuzzApproval holds each permit to the reading of the standard library of the
// PDP's answers to questions: whatever is said of tasks, one of those said yes.
func FuzzApproval(f *testing.F) {
	yes, no := []byte(`{"decision":true,"context":{"approval":{"id":"a1","approved_until":"2026-01-02T03:30:00Z"}}}`), []byte(`{"decision":false}`)
	for _, again := range [][]byte{yes, no, atPDP(requestable), []byte(`{"decision":false,"context":{"next_action":"retry"}}`)} {
		for _, look := range []string{approvedYes, pendingTask, strings.Replace(approvedYes, "approved", "denied", 1)} {
			f.Add(atPDP(requestable), atPDP(pendingTask), atPDP(look), again)
		}
	}
	f.Add(yes, no, yes, no)
	f.Fuzz(func(t *testing.T, first, submit, look, again []byte) {
		p := &played{t: t, first: first, submit: submit, look: look, again: again}
		e := approvals.Enforce(t.Context(), p.client(), question, nil)
		if last := p.asked > 1 && permits(again, "decision", "allow"); e.Permitted() && !last && (p.asked > 1 || !permits(first, "decision", "allow")) {
			t.Errorf("permit of %q, %q, %q, %q", first, submit, look, again)
		}
	})
}

// FuzzTask reads tasks that anybody may have written: they permit nothing by
// themselves, and send nothing elsewhere.
func FuzzTask(f *testing.F) {
	p := &played{first: atPDP(requestable), submit: atPDP(pendingTask), look: atPDP(approvedYes), again: []byte(`{"decision":false}`)}
	approvals.Enforce(context.Background(), p.client(), question, nil, approvals.KeepTask(func(_ context.Context, h approvals.Task) error {
		text, err := json.Marshal(h)
		f.Add(text)
		f.Add(bytes.ReplaceAll(text, []byte("https://pdp/"), []byte("https://evil/")))
		return err
	}))
	f.Fuzz(func(t *testing.T, text []byte) {
		var h approvals.Task
		if json.Unmarshal(text, &h) != nil {
			return
		}
		written, err := json.Marshal(h)
		if err != nil {
			t.Fatalf("%q was read, and cannot be written: %v", text, err)
		}
		if again, err := json.Marshal(moved(t, h)); err != nil || !bytes.Equal(again, written) {
			t.Errorf("%s is written again as %s, %v", written, again, err)
		}
		for _, look := range [][]byte{p.look, p.submit} {
			q := &played{t: t, first: p.again, submit: p.submit, look: look, again: p.again}
			if e := approvals.Resume(t.Context(), q.client(), h, question, nil); e.Permitted() {
				t.Errorf("permit of %s", written)
			}
			_ = approvals.Cancel(t.Context(), q.client(), h) // where it went is checked
		}
	})
}

// permits reports whether an answer permits, to the standard library's reader.
func permits(body []byte, verdict, other string) bool {
	var o map[string]any
	if !json.Valid(body) || json.Unmarshal(body, &o) != nil || o[verdict] != true || o[other] == false {
		return false
	}
	context, _ := o["context"].(map[string]any)
	if o["context"] != nil && context == nil {
		return false
	}
	for _, place := range []map[string]any{o, context} {
		for _, name := range []string{"obligations", "obligation_details", "required_obligations", "error"} {
			if owes(place[name]) {
				return false
			}
		}
	}
	return true
}

func owes(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return true
}
