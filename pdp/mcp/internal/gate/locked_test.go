package gate

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"policy-service/pdp/mcp/internal/drift"
	"policy-service/pdp/mcp/lock"
)

// Whoever is told of drift is told of each finding once, however often it is listed.
func TestDriftedIsToldOnce(t *testing.T) {
	var told []Drift
	g := &Gateway{o: Options{Logger: slog.New(slog.DiscardHandler), Lock: Lock{Drifted: func(d Drift) { told = append(told, d) }}}, drifts: drift.New(time.Now)}
	l := newLink(&Server{Name: "s"}, "alice", client{})
	was, err := lock.ParseTool([]byte(`{"name":"a","description":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	is, err := lock.ParseTool([]byte(`{"name":"b","description":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	locked, found := lock.Server{Tools: map[string]lock.Tool{"a": was}}, lock.Server{Tools: map[string]lock.Tool{"b": is}}
	file := &lock.File{}
	for range 3 {
		g.note(l, file, lock.CompareServer("s", locked, found), true)
	}
	want := []Drift{{Server: "s", Tool: "a", Change: "renamed", With: "b", Locked: was.Digest(), Found: is.Digest()}}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	g.note(l, new(lock.File), lock.CompareServer("s", locked, found), true) // with another lock it is another finding
	if len(told) != 2 {
		t.Errorf("told %v", told)
	}
}
