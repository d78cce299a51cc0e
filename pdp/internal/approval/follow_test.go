package approval_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/pdptest/night"
)

// reader follows the tasks of a caller, and notes how each stood when it was told of it.
type reader struct {
	tenant, caller string
	at             approval.Position
	told           map[string]string
}

func newReader(t *testing.T, s *approval.Store, caller string) *reader {
	t.Helper()
	at, err := s.Start("acme", caller)
	must(t, err)
	return &reader{"acme", caller, at, map[string]string{}}
}

// reads goes on until there is no more, or until what comes is not on record.
func (r *reader) reads(t *testing.T, s *approval.Store, most func() int) {
	t.Helper()
	for more := true; more; {
		most := most()
		found, end, is, err := s.Follow(r.tenant, r.caller, r.at, most)
		must(t, err)
		if more = is; len(found) > most {
			t.Fatalf("%d are found, and %d were wanted", len(found), most)
		}
		for _, f := range found {
			text, recorded := standing(t, s, f.Task)
			if f.At.Waiting == "" && !recorded {
				return
			}
			r.told[f.ID], r.at = text, f.At
		}
		r.at = end
	}
}

// standing is how the approvals of a task stand, as far as they are on record.
func standing(t *testing.T, s *approval.Store, of approval.Task) (text string, recorded bool) {
	t.Helper()
	all, err := s.Of(t.Context(), of)
	must(t, err)
	recorded = true
	for _, a := range all {
		if a.Unrecorded {
			a.Status, recorded = approval.Pending, false
		}
		text += string(a.Status) + " "
	}
	return text, recorded
}

// TestPropertyFollowers: whoever follows tasks ends up knowing each that waited when it began, or changed since, as it
// is; whatever fails in between, and over restarts; and nothing is told that is not on record.
func TestPropertyFollowers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(night.Cases(20)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			g := rand.New(rand.NewPCG(seed, 11))
			r, data := newRecord(), quick(t)
			s := mustOpen(t, data, r.options())
			callers := []string{"key:gateway", "key:other"}
			var tasks []approval.Task
			type following struct {
				*reader
				final map[string]bool // what had ended when it began
			}
			var readers []following
			most := func() int { return 1 + g.IntN(3) }
			some := func() string {
				t := tasks[max(0, len(tasks)-1-g.IntN(6))]
				return t.Items[g.IntN(len(t.Items))]
			}
			used := 0
			for step := range 500 {
				switch kind := g.IntN(20); {
				case kind < 4 || len(tasks) == 0:
					task := approval.Task{ID: fmt.Sprintf("task%04d", g.Uint32()), Tenant: "acme", Caller: callers[g.IntN(2)]}
					for range 1 + g.IntN(3) {
						q := question(fmt.Sprint(task.Caller, g.IntN(6)), func(q *approval.ApprovalRequest) {
							q.Caller, q.Terms.Uses = task.Caller, 2
						})
						if a, err := s.File(t.Context(), q); err == nil {
							task.Items = append(task.Items, a.ID)
						}
					}
					if len(task.Items) > 0 {
						task.Key[0], task.Key[1], task.Key[2] = byte(step), byte(step>>8), 1
						begun, err := s.Begin(task)
						must(t, err)
						tasks = append(tasks, begun)
					}
				case kind < 7:
					_, _ = s.Decide(t.Context(), some(), 0, by([]string{"mia", "ben"}[g.IntN(2)]), all, equal)
				case kind == 7:
					_, _ = s.Decide(t.Context(), some(), 0, approval.Vote{Statement: approval.Statement{By: "eva"}, Kind: approval.Deny}, all, equal)
				case kind == 8:
					_, _ = s.Cancel(t.Context(), some(), 0, "", "key:gateway", "")
				case kind == 9:
					_, _ = s.Revoke(t.Context(), some(), 0, by("mia"))
				case kind < 12:
					if a, found, _ := s.Stored(some()); found {
						used++
						d := fmt.Sprint("d", used)
						_, _ = spend(t.Context(), s, a.ID, a.Digest, d, r.decide(d))
					}
				case kind == 12:
					r.Pass([]time.Duration{time.Minute, 5 * time.Minute, time.Hour}[g.IntN(3)])
				case kind < 15:
					r.Set(g.IntN(2) == 0, g.IntN(2) == 0, g.IntN(4) == 0)
				case kind == 15:
					must(t, s.Close())
					s = mustOpen(t, data, r.options())
				case kind == 16:
					s.Work(t.Context())
				case kind == 17:
					f := following{newReader(t, s, callers[g.IntN(2)]), map[string]bool{}}
					for _, task := range tasks {
						text, _ := standing(t, s, task)
						f.final[task.ID] = !strings.Contains(text, "pending")
					}
					readers = append(readers, f)
				default:
					for _, f := range readers {
						f.reads(t, s, most)
					}
				}
			}
			r.Set(false, false, false)
			s.Work(t.Context())
			known := 0
			for _, f := range readers {
				f.reads(t, s, most)
				for _, task := range tasks {
					told, is := f.told[task.ID]
					want, recorded := standing(t, s, task)
					if !recorded {
						t.Fatalf("%s is not on record", task.ID)
					}
					switch {
					case task.Caller != f.caller:
						if is {
							t.Errorf("%s is told of %s, which is of %s", f.caller, task.ID, task.Caller)
						}
					case told != want && !(f.final[task.ID] && !is):
						t.Errorf("%s knows %q of %s, and it is %s", f.caller, told, task.ID, want)
					default:
						known++
					}
				}
			}
			if t.Logf("%d tasks, %d followers, who know %d", len(tasks), len(readers), known); known < 100 {
				t.Error("it shows little")
			}
		})
	}
}

// TestFollowNeedsItsFile: from a position of another file, or of what an older copy does not know, nobody goes on, whatever
// has changed since in the file that is there; and an older copy gives no number twice.
func TestFollowNeedsItsFile(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	begin := func(name string) approval.Task {
		t.Helper()
		task, err := s.Begin(approval.Task{ID: name, Tenant: "acme", Caller: "key:gateway", Items: []string{mustFile(t, s, question(name)).ID}})
		must(t, err)
		return task
	}
	one := func() int { return 1 }
	again := func() {
		t.Helper()
		must(t, s.Close())
		s = mustOpen(t, data, r.options())
	}
	refuses := func(what string, at approval.Position) {
		t.Helper()
		if _, _, _, err := s.Follow("acme", "key:gateway", at, 1); !errors.Is(err, approval.ErrPosition) {
			t.Errorf("%s: %v", what, err)
		}
	}
	begin("a")
	before := newReader(t, s, "key:gateway")
	before.reads(t, s, one)
	old := copyOf(t, data)
	reader := newReader(t, s, "key:gateway")
	reader.reads(t, s, one)
	begin("b")
	reader.reads(t, s, one)
	again()
	later := newReader(t, s, "key:gateway") // by a name that the older copy does not know
	must(t, s.Close())
	putBack(t, data, old)
	s = mustOpen(t, data, r.options())
	refuses("an older copy", reader.at)
	begin("c")
	for range 2 {
		refuses("an older copy that has changed", reader.at)
		refuses("an older copy, by a later name", later.at)
		if before.reads(t, s, one); before.told["a"] != "pending " || before.told["c"] != "pending " || before.told["b"] != "" {
			t.Errorf("who knew the older copy is told %v", before.told)
		}
		again()
	}
	for range approval.MostNames {
		again()
	}
	refuses("a name of long ago", before.at)
	must(t, s.Close())
	s = mustOpen(t, quick(t), newRecord().options())
	begin("d")
	if _, _, _, err := s.Follow("acme", "key:gateway", reader.at, 1); !errors.Is(err, approval.ErrPosition) {
		t.Errorf("another file: %v", err)
	}
	if _, _, _, err := s.Follow("acme", "key:gateway", approval.Position{}, 1); !errors.Is(err, approval.ErrPosition) {
		t.Errorf("no position: %v", err)
	}
	of := func(generation uint64) approval.Options {
		o := r.options()
		o.Generation = generation
		return o
	}
	data = quick(t)
	s = mustOpen(t, data, of(1))
	at, err := s.Start("acme", "key:gateway")
	must(t, err)
	if _, _, _, err := s.Follow("acme", "key:gateway", at, 1); err != nil {
		t.Error(err)
	}
	must(t, s.Close())
	s = mustOpen(t, data, of(2))
	refuses("of another generation", at)
}

// followed is a store in which so many tasks of one caller wait, and who was told of all of them.
func followed(t testing.TB, n int) (*approval.Store, []approval.Task, *reader) {
	t.Helper()
	r := newRecord()
	s := mustOpen(t, quick(t), many(r))
	questions := make([]approval.ApprovalRequest, n)
	for i := range questions {
		questions[i] = question(fmt.Sprint(i))
	}
	for some := range slices.Chunk(questions, 500) {
		must(t, s.FileAll(some))
	}
	page, _, err := s.StoredPage(approval.Pending, n)
	must(t, err)
	tasks := make([]approval.Task, n)
	for i, a := range page {
		tasks[i], err = s.Begin(approval.Task{ID: fmt.Sprintf("task%06d", i), Tenant: "acme", Caller: "key:gateway", Items: []string{a.ID}})
		must(t, err)
	}
	at, err := s.Start("acme", "key:gateway")
	must(t, err)
	reader := &reader{"acme", "key:gateway", at, map[string]string{}}
	for told := 0; told < n; {
		found, end, _, err := s.Follow(reader.tenant, reader.caller, reader.at, 200)
		must(t, err)
		told += len(found)
		reader.at = end
	}
	return s, tasks, reader
}

// TestAChangeCostsAChange: who follows many tasks looks at those that have changed, and at no other.
func TestAChangeCostsAChange(t *testing.T) {
	night.Measures(t)
	costs := map[int]float64{}
	for _, n := range []int{20, 2000} {
		s, tasks, reader := followed(t, n)
		mustDecide(t, s, tasks[n/2].Items[0], by("mia"))
		costs[n] = testing.AllocsPerRun(100, func() {
			found, _, more, err := s.Follow(reader.tenant, reader.caller, reader.at, 50)
			if err != nil || more || len(found) != 1 || found[0].ID != tasks[n/2].ID {
				t.Fatal(found, more, err)
			}
		})
	}
	if t.Logf("allocations beside 20 and 2,000 tasks: %v", costs); costs[2000] > 1.2*costs[20] {
		t.Error("it costs more beside more tasks")
	}
}

// What does it cost whoever follows 2,000 tasks that one has changed?
func BenchmarkFollowAmong2000Tasks(b *testing.B) {
	s, tasks, reader := followed(b, 2000)
	mustDecide(b, s, tasks[1000].Items[0], by("mia"))
	b.ReportAllocs()
	for b.Loop() {
		if found, _, _, err := s.Follow(reader.tenant, reader.caller, reader.at, 50); err != nil || len(found) != 1 {
			b.Fatal(found, err)
		}
	}
}

// TestAnEndThatIsNotOnRecordYetIsToCome: who begins to follow before it is on record gets it.
func TestAnEndThatIsNotOnRecordYetIsToCome(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	a := mustFile(t, s, question("a"))
	r.Set(true, false, false)
	no := by("mia")
	no.Kind = approval.Deny
	if _, err := s.Decide(t.Context(), a.ID, 0, no, all, equal); !errors.Is(err, approval.ErrUnrecorded) {
		t.Fatal(err)
	}
	_, err := s.Begin(approval.Task{ID: "task", Tenant: a.Tenant, Caller: a.Caller, Items: []string{a.ID}})
	must(t, err)
	at, err := s.Start(a.Tenant, a.Caller)
	must(t, err)
	r.Set(false, false, false)
	s.Work(t.Context())
	if found, _, _, err := s.Follow(a.Tenant, a.Caller, at, 10); len(found) != 1 || err != nil {
		t.Errorf("found is %v, %v", found, err)
	}
}

// TestWhatAnOlderCopyCatchesUpIsNew: a follower of the newer file does not take it for what it had.
func TestWhatAnOlderCopyCatchesUpIsNew(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	var ids []string
	for n := range 6 {
		a := mustFile(t, s, question(fmt.Sprint(n)))
		ids = append(ids, a.ID)
		_, err := s.Begin(approval.Task{ID: fmt.Sprint("task", n), Tenant: a.Tenant, Caller: a.Caller, Items: []string{a.ID}})
		must(t, err)
	}
	old := copyOf(t, data)
	for _, id := range ids[3:] {
		mustDecide(t, s, id, by("mia"))
	}
	follower := newReader(t, s, "key:gateway")
	follower.reads(t, s, func() int { return 100 })
	mustDecide(t, s, ids[0], by("mia")) // which the follower does not have
	must(t, s.Close())
	putBack(t, data, old)
	s = mustOpen(t, data, r.options())
	found, _, _, err := s.Follow("acme", "key:gateway", follower.at, 100)
	has := slices.ContainsFunc(found, func(one approval.Followed) bool { return one.ID == "task0" })
	if !errors.Is(err, approval.ErrPosition) && !has {
		t.Errorf("it is told of %v, and not of the first: %v", found, err)
	}
}
