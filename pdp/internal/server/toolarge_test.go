package server_test

import (
	"fmt"
	"strings"
	"testing"

	"policy-service/pdp/pdptest"
)

// TestNoRecordThatIsTooLargeIsTheServersFault: what filling in or masking makes larger than
// a record can be is the caller's to mend. Asked again it would be as large.
//
// It takes seconds: a record that is just too large has 16 MB, and four of them are made.
func TestNoRecordThatIsTooLargeIsTheServersFault(t *testing.T) {
	t.Parallel()
	const copies = 16
	var names []string
	obligations := ""
	for n := range copies {
		names = append(names, fmt.Sprintf("copy-%d", n))
		obligations += fmt.Sprintf("copy-%d: {type: custom, properties: {n: %d, a: \"${context.a}\"}}\n", n, n)
	}
	data := t.TempDir()
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"p.cedar":          `@obligation("` + strings.Join(names, ",") + `") permit(principal is user, action == Action::"read", resource);`,
		"obligations.yaml": obligations,
	}), withData(data))
	const text = "hunter22"
	native := func(size int, more string) string {
		return `{"tenant_id":"default","actor":{"actor_id":"a","actor_type":"user"},"action":"read","resource":{"type":"doc","id":"1"},"context":{"supported_obligations":["custom"]` + more + `,"a":"` + strings.Repeat(text, size/len(text)) + `"}}`
	}
	authzen := func(size int, more string) string {
		_, context, _ := strings.Cut(native(size, more), `"context":`)
		return `{"subject":{"type":"user","id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"},"context":` + context
	}
	secret := `,"token":"` + text + `"`
	const masked = 280_000 // and so in all copies more than is on record of one that is just not too large
	for _, c := range []struct {
		name, path, body string
		status           int
	}{
		{"small", evaluationPath, authzen(1000, secret), 200},
		{"just not", evaluationPath, authzen(900_000, ""), 200},
		{"filled in", evaluationPath, authzen(1_048_000, ""), 413},
		{"masked", evaluationPath, authzen(masked, secret), 413},
		{"masked, native", authorizePath, native(masked, secret), 413},
		{"masked, in a batch", "/access/v1/evaluations", strings.TrimSuffix(authzen(masked, secret), "}") + `,"evaluations":[{}]}`, 413},
	} {
		got := s.Post(c.path, c.body)
		if got.Status != c.status || c.status != 200 && (got.Header.Get("X-Decision-Id") != "" || strings.Contains(got.Body, text)) {
			t.Errorf("%s: got %d %.300s, want %d", c.name, got.Status, got.Body, c.status)
		}
	}
	replied(t, s.Get("/readyz"), 200, `"ok":true`)
	stopAndWait(t, s)
	decisions := 0
	for _, l := range lines(t, data) {
		if l.Kind == "decision" {
			decisions++
		}
	}
	if decisions != 2 {
		t.Errorf("%d decisions are on record, want the 2 that were answered", decisions)
	}
}
