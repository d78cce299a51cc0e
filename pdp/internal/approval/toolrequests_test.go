package approval_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/ledger/ledgertest"
	"policy-service/pdp/pdptest/etcdtest"
)

// keeps writes a request for a tool of gateway "gate" in tenant "acme", in place of the one with a revision.
func keeps(ctx context.Context, s *approval.Store, id string, r approval.ToolRequest) (approval.ToolRequest, error) {
	return s.KeepToolRequest(ctx, "acme", "gate", id, r)
}

func takes(ctx context.Context, s *approval.Store, r approval.ToolRequest) error {
	_, err := keeps(ctx, s, "one", r)
	return err
}

func waits(text string) approval.ToolRequest {
	return approval.ToolRequest{Open: true, Text: text, Until: start.Add(15 * time.Minute)}
}

// A request is there after a restart, as it was left. The value that another has replaced is refused, and when its time is up
// nothing is left of it.
func TestToolRequestOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	r, data, ctx := newRecord(), quick(t), t.Context()
	s := mustOpen(t, data, r.options())
	before, err := s.ToolKeys()
	must(t, err)
	filed, err := keeps(ctx, s, "one", waits("asked"))
	must(t, err)
	restart := func() {
		t.Helper()
		must(t, s.Close())
		s = mustOpen(t, data, r.options())
	}
	restart()
	is := func(text string, open bool, ids ...string) (got approval.ToolRequest) {
		t.Helper()
		got, found, err := s.ToolRequest("acme", "gate", "one")
		if err != nil || !found || got.Text != text || got.Open != open {
			t.Errorf("got %+v, %t, %v; want %q", got, found, err, text)
		}
		if got, err := s.OpenToolRequests("acme", "gate"); err != nil || !slices.Equal(got, ids) {
			t.Errorf("open: got %v, %v, want %v", got, err, ids)
		}
		return got
	}
	if got := is("asked", true, "one"); got.Revision != filed.Revision {
		t.Errorf("its revision is %d, and was %d", got.Revision, filed.Revision)
	}
	taken, err := keeps(ctx, s, "one", approval.ToolRequest{Text: "taken", Until: start.Add(20 * time.Minute), Revision: filed.Revision})
	must(t, err)
	restart()
	is("taken", false)
	for name, old := range map[string]uint64{"a new one": 0, "what was replaced": filed.Revision, "another": taken.Revision + 1} {
		again := waits("again")
		again.Revision = old
		if _, err := keeps(ctx, s, "one", again); !errors.Is(err, approval.ErrReplaced) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	is("taken", false)
	r.Pass(20 * time.Minute)
	if _, found, err := s.ToolRequest("acme", "gate", "one"); found || err != nil {
		t.Errorf("its time is up: got %t, %v", found, err)
	}
	if _, err := keeps(ctx, s, "one", approval.ToolRequest{Text: "late", Until: r.Time().Add(time.Minute), Revision: taken.Revision}); !errors.Is(err, approval.ErrReplaced) {
		t.Errorf("its time is up: got %v", err)
	}
	s.Work(ctx)
	if after, err := s.ToolKeys(); after != before || err != nil {
		t.Errorf("%d keys are left, %v; there were %d", after, err, before)
	}
}

// Of several that take one request at two processes at once one succeeds.
func TestToolRequestIsTakenOnce(t *testing.T) {
	t.Parallel()
	all := places(t, &ledgertest.Cluster{Late: time.Millisecond})
	for n := range 5 {
		id := fmt.Sprint("one-", n)
		var filers, takers sync.WaitGroup
		var filed, took atomic.Int32
		for n := range 8 {
			filers.Go(func() {
				if _, err := keeps(t.Context(), all[n%2].s, id, waits(fmt.Sprint("asked by ", n))); err == nil {
					filed.Add(1)
				} else if !errors.Is(err, approval.ErrReplaced) {
					t.Error(err)
				}
			})
		}
		filers.Wait()
		of, found, err := all[0].s.ToolRequest("acme", "gate", id)
		must(t, err)
		for n := range 8 {
			takers.Go(func() {
				taken := of
				taken.Open, taken.Text = false, fmt.Sprint("taken by ", n)
				if _, err := keeps(t.Context(), all[n%2].s, id, taken); err == nil {
					took.Add(1)
				} else if !errors.Is(err, approval.ErrReplaced) {
					t.Error(err)
				}
			})
		}
		takers.Wait()
		if !found || filed.Load() != 1 || took.Load() != 1 {
			t.Errorf("found: %t, filed %d times, taken %d times", found, filed.Load(), took.Load())
		}
	}
}

// A gateway has nothing of another gateway, nor of itself in another tenant.
func TestToolRequestsOfOthers(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, quick(t), newRecord().options())
	of, err := keeps(t.Context(), s, "one", waits("asked"))
	must(t, err)
	for _, other := range [][2]string{{"acme", "other"}, {"default", "gate"}, {"acmegate", ""}, {"", "acmegate"}} {
		if got, found, err := s.ToolRequest(other[0], other[1], "one"); found || err != nil {
			t.Errorf("%v: got %+v, %v", other, got, err)
		}
		if ids, err := s.OpenToolRequests(other[0], other[1]); len(ids) > 0 || err != nil {
			t.Errorf("%v: got %v, %v", other, ids, err)
		}
		if _, err := s.KeepToolRequest(t.Context(), other[0], other[1], "one", of); !errors.Is(err, approval.ErrReplaced) {
			t.Errorf("%v: got %v", other, err)
		}
	}
}

// What one gateway keeps is bounded, and takes no room of another. A request that is kept can be taken, however full it is. What
// ended makes room.
func TestToolRequestsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	large := strings.Repeat("x", evaluation.ToolRequestText)
	for n := range approval.MostToolTexts / len(large) {
		_, err := keeps(t.Context(), s, fmt.Sprint(n), waits(large))
		must(t, err)
	}
	more := 0
	full := func(want bool) {
		t.Helper()
		more++
		_, err := keeps(t.Context(), s, fmt.Sprint("more ", more), waits("x"))
		if _, is := errors.AsType[*approval.LimitError](err); is != want || !want && err != nil {
			t.Errorf("full: got %v, want %t", err, want)
		}
	}
	before, err := s.ToolKeys()
	must(t, err)
	full(true)
	if after, err := s.ToolKeys(); after != before || err != nil {
		t.Errorf("what was refused left %d keys, %v; there were %d", after, err, before)
	}
	_, err = s.KeepToolRequest(t.Context(), "acme", "other", "one", waits("x"))
	must(t, err)
	first, _, err := s.ToolRequest("acme", "gate", "0")
	must(t, err)
	first.Open, first.Text = false, large+"taken"
	first, err = keeps(t.Context(), s, "0", first)
	must(t, err)
	first.Text += large // what came of it
	if _, err = keeps(t.Context(), s, "0", first); !errors.As(err, new(*approval.LimitError)) {
		t.Errorf("a large result: got %v", err)
	}
	full(true)
	first.Text = "done"
	_, err = keeps(t.Context(), s, "0", first)
	must(t, err)
	full(false)
}

// In etcd, what a request was before it was taken is refused when it is put back; and nothing of it counts once the engine was
// put back as a whole.
func TestToolRequestPutBack(t *testing.T) {
	t.Parallel()
	r, prefix, ctx := newRecord(), t.TempDir(), t.Context()
	o := r.options()
	open := func(generation uint64) *approval.Store {
		o.Engine, o.Origin, o.Generation = etcdtest.Engine(t, prefix, approval.Known), "here", generation
		return mustOpen(t, "", o)
	}
	s := open(1)
	client, err := etcdtest.Dial(etcdtest.One(t)...)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	of, err := keeps(ctx, s, "one", waits("asked"))
	must(t, err)
	_, err = keeps(ctx, s, "two", waits("asked"))
	must(t, err)
	before, err := client.Get(ctx, prefix+"/v/u/", clientv3.WithPrefix())
	must(t, err)
	taken := of
	taken.Open, taken.Text = false, "taken"
	_, err = keeps(ctx, s, "one", taken)
	must(t, err)
	for _, deletes := range []bool{false, true} {
		for _, kv := range before.Kvs {
			if !strings.HasSuffix(string(kv.Key), "/one") {
				continue
			}
			if deletes {
				_, err := etcdtest.Change(ctx, client, prefix+"/", clientv3.OpDelete(string(kv.Key)))
				must(t, err)
			}
			put, err := etcdtest.Change(ctx, client, prefix+"/", clientv3.OpPut(string(kv.Key), string(kv.Value)))
			must(t, err)
			for _, revision := range []int64{put, kv.ModRevision} {
				if taken.Revision = uint64(revision); takes(ctx, s, taken) == nil {
					t.Errorf("put back (deleted: %t), it is taken as of %d", deletes, revision)
				}
			}
		}
		if got, found, err := s.ToolRequest("acme", "gate", "one"); found {
			t.Errorf("put back: got %+v, %v", got, err)
		}
	}
	if _, found, err := s.ToolRequest("acme", "gate", "two"); !found || err != nil {
		t.Errorf("another: got %t, %v", found, err)
	}
	must(t, s.Close())
	s = open(2)
	if got, found, err := s.ToolRequest("acme", "gate", "two"); found || err != nil {
		t.Errorf("another generation: got %+v, %t, %v", got, found, err)
	}
}
