package link

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"policy-service/pdp/internal/mcp/internal/doors"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/pdptest/mcptest"
)

// A drift is logged and recorded once, however often it is listed. One that the PDP does not record is recorded by the first
// listing after a minute, and its log line stays the only one.
func TestDriftIsToldOnce(t *testing.T) { synctest.Test(t, testDriftIsToldOnce) }

func testDriftIsToldOnce(t *testing.T) {
	var recorded []Drift
	var ids []string
	var logs bytes.Buffer
	var away error
	clock := time.Unix(1, 0)
	now := func() time.Time { return clock }
	g := New(doors.New(slog.New(slog.DiscardHandler)), Options{Now: now, Logger: slog.New(slog.NewTextHandler(&logs, nil)), Lock: Lock{
		Record: func(_ context.Context, d Drift, id string) error {
			recorded, ids = append(recorded, d), append(ids, id)
			return away
		},
	}})
	l := g.newLink(&Server{Name: "s"}, &identity.Principal{Key: "alice"}, Client{})
	was, err := lock.ParseTool([]byte(`{"name":"a","description":"x"}`))
	mcptest.Must(t, err)
	is, err := lock.ParseTool([]byte(`{"name":"b\u202e","description":"x"}`))
	mcptest.Must(t, err)
	changes := lock.CompareServer("s", lock.Server{Tools: map[string]lock.Tool{"a": was}}, lock.Server{Tools: map[string]lock.Tool{is.Name(): is}})
	file := &lock.File{}
	listed := func(times int) {
		for range times {
			g.note(l, file, changes, true)
			synctest.Wait()
		}
	}
	listed(3)
	want := []Drift{{Server: "s", Tool: "a", Change: "renamed", With: `b\u202e`, Locked: was.Digest(), Found: is.Digest()}}
	if diff := cmp.Diff(want, recorded); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	file, away = new(lock.File), errors.New("the PDP is away") // with another lock file it is another drift
	listed(3)
	clock = clock.Add(driftAgain - 1)
	listed(3)
	if len(recorded) != 2 || ids[0] == ids[1] {
		t.Errorf("recorded %v by %v", recorded, ids)
	}
	clock = clock.Add(1)
	listed(3)
	away, clock = nil, clock.Add(driftAgain)
	listed(3)
	clock = clock.Add(driftAgain)
	listed(3)
	if len(recorded) != 4 || ids[1] != ids[2] || ids[1] != ids[3] {
		t.Errorf("recorded %v by %v", recorded, ids)
	}
	if n := strings.Count(logs.String(), "the PDP is away"); n != 1 {
		t.Errorf("the failure is logged %d times", n)
	}
	if n := strings.Count(logs.String(), "is not as it is locked"); n != 2 {
		t.Errorf("the drifts are logged %d times", n)
	}
}
