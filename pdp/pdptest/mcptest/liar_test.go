package mcptest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
)

// No lie permits, whatever the question's shape; without one the honest PDP permits.
func TestLiesPermitNothing(t *testing.T) {
	honest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		say(w, r, answerTo(r, question, `{"VERDICT":true}`))
	}))
	t.Cleanup(honest.Close)
	var now atomic.Value
	l := NewLiar(t, honest.URL, func(int64) string { return now.Load().(string) })
	client := func(timeout time.Duration) *authzenclient.Client {
		c, err := authzenclient.New(l.URL, authzenclient.WithTenant("default"), authzenclient.WithMaxBody(1<<16),
			authzenclient.WithTimeout(timeout), authzenclient.WithRetries(0), authzenclient.WithBreaker(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	patient, impatient := client(time.Minute), client(200*time.Millisecond)
	question, err := evaluation.Decode([]byte(`{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"a:b"}}`), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	for _, lie := range append([]string{""}, Lies()...) {
		now.Store(lie)
		c := patient
		if endless := lie == "connection: hangs" || lie == "connection: drips"; endless {
			c = impatient
		}
		if d := c.Evaluate(t.Context(), question); d.Permitted() != (lie == "") {
			t.Errorf("%q: %v", lie, d)
		}
		if d := c.EvaluateBatch(t.Context(), "", question, question)[1]; d.Permitted() != (lie == "") {
			t.Errorf("%q: in a batch %v", lie, d)
		}
	}
	if n := int64(len(Lies())+1) * 2; l.Asked() < n {
		t.Errorf("asked %d times, not %d", l.Asked(), n)
	}
	if !slices.ContainsFunc(Lies(), func(s string) bool { return strings.HasPrefix(s, "envelope: 5") }) {
		t.Error("no 5xx among the lies")
	}
}
