package pdptest_test

import (
	"fmt"
	"testing"

	"policy-service/pdp/pdptest"
)

func TestStart(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, pdptest.Txtar(`
-- rules.cedar --
permit (principal == user::"alice", action == Action::"read", resource)
when { context.pdp.now == datetime("2026-01-02T03:04:05Z") };
`))
	for i := range 3 {
		got := s.Post("/access/v1/evaluation", `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"d"}}`)
		if got.Status != 200 || got.Body != `{"decision":true}` {
			t.Errorf("got %d %s, want an allow by the clock that stands still", got.Status, got.Body)
		}
		if id, want := got.Header.Get("X-Decision-Id"), fmt.Sprintf("00000000-0000-7000-8000-%012d", i+1); id != want {
			t.Errorf("decision %s, want %s", id, want)
		}
	}
	if got := s.Get("/livez"); got.Status != 200 {
		t.Errorf("liveness: %d", got.Status)
	}
}
