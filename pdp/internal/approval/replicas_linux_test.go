package approval_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-json-experiment/json"
	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/evaluation"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/decisionlog/vouch"
	"policy-service/pdp/internal/ledger/etcd"
	"policy-service/pdp/pdptest/counted"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/memorydisk"
	"policy-service/pdp/pdptest/night"
)

// The replicas of these tests share three members of etcd. Each has a log of its own on a disk of its own, and its own way to
// each member. One call of etcd takes oneCall at most, and one operation oneOperation while there is a fault; else each is
// answered, and nothing is waited for longer than patience.
const (
	oneCall      = 800 * time.Millisecond
	oneOperation = 1200 * time.Millisecond
	patience     = 2 * time.Minute
)

var errEnded = errors.New("the replica has ended")

// replica is one process of three.
type replica struct {
	scene *scene
	n     int
	data  string
	way   *etcdtest.Net

	mu     sync.RWMutex // guards what follows
	ended  bool
	client *clientv3.Client
	engine *etcd.Engine
	log    *decisionlog.Log
	store  *approval.Store
}

// scene is a round: three replicas on a prefix of their own, a fault, and all operations meanwhile.
type scene struct {
	t        *testing.T
	cluster  *etcdtest.Cluster
	prefix   string
	replicas []*replica
	random   *rand.Rand
	began    time.Time
	recorded sync.Map // ids of steps whose records are durable

	mu       sync.Mutex    // guards what follows
	most     time.Duration // of one operation
	uses     []use
	answered map[string]func(approval.Approval) string // by the id of an approval that an answer was about: how the answer is untrue
	of       []error                                   // that operations ended with
	all, ok  int                                       // operations while no fault held, and those that were answered
}

// use is an operation: a decision wanted a use of an approval. Known is an answer, and got that it has the use.
type use struct {
	approval, decision string
	call, end          time.Duration
	got, known         bool
}

func newScene(t *testing.T, c *etcdtest.Cluster, seed uint64) *scene {
	t.Helper()
	s := &scene{t: t, cluster: c, most: patience, random: rand.New(rand.NewPCG(seed, 0)), began: time.Now(), answered: map[string]func(approval.Approval) string{}}
	s.prefix = "/" + t.Name() + "/"
	for n := range 3 {
		r := &replica{scene: s, n: n, data: memorydisk.New(t, "size=64m"), way: c.Client()}
		s.replicas = append(s.replicas, r)
		r.open()
		t.Cleanup(func() {
			r.way.Heal()
			r.end()
		})
	}
	return s
}

// open starts a replica with its log, which takes no step until the replica is open.
func (r *replica) open() {
	t := r.scene.t
	t.Helper()
	client, err := etcdtest.Dial(r.way.Endpoints()...)
	must(t, err)
	l, err := decisionlog.Open(r.data, decisionlog.Options{Kinds: []string{kind}, Checkpoints: decisionlog.Checkpoints{Records: 50}})
	must(t, err)
	o := logged(l)
	record := o.Record
	o.Record = func(ctx context.Context, step approval.Step) error {
		if r.isEnded() {
			return errEnded
		}
		err := record(ctx, step)
		if r.scene.saw(err); err == nil {
			r.scene.recorded.Store(step.ID, true)
		}
		return err
	}
	steps := vouch.Steps[approval.Step]{Log: l, KeyOf: r.scene.keysOf, Of: func(line []byte) ([]approval.Step, error) {
		s, err := stepOf(line)
		return []approval.Step{s}, err
	}}
	o.Prove = func(ctx context.Context, id string) (p approval.Proof, found bool, err error) {
		p.Line, p.Proof, found, err = steps.Prove(ctx, id)
		return p, found, err
	}
	o.Verify = func(p approval.Proof) (approval.Step, error) { return steps.Verify(p.Line, p.Proof, p.Origin) }
	o.Origin = l.Origin()
	o.OnError = r.scene.saw
	var engine *etcd.Engine
	var s *approval.Store
	etcdtest.Succeeds(t, "it opens, once etcd answers in time", func() error {
		engine = etcd.New(etcd.Options{Client: client, Prefix: r.scene.prefix, Errors: approval.Known, Timeout: oneCall})
		o.Engine = engine
		s, err = approval.Open("", o)
		return err
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.client, r.engine, r.log, r.store, r.ended = client, engine, l, s, false
}

// keysOf are the keys of the log of a replica.
func (s *scene) keysOf(origin string) (keys []string, err error) {
	for _, r := range s.replicas {
		if log := r.its(); log != nil && log.Origin() == origin {
			return segment.VerifierKeys(r.data)
		}
	}
	return nil, fmt.Errorf("%s is no replica", origin)
}

// end ends a replica as it stands: nothing more goes to etcd or to its log.
func (r *replica) end() {
	r.mu.Lock()
	ended := r.ended
	r.ended = true
	r.mu.Unlock()
	if !ended && r.client != nil {
		_ = r.client.Close()
		_ = r.engine.Close()
		_ = r.log.Close()
	}
}

func (r *replica) isEnded() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.ended
}

func (r *replica) its() *decisionlog.Log {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.log
}

// saw notes an error.
func (s *scene) saw(err error) {
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.of = append(s.of, err)
	}
}

// hasSeen reports whether an operation ended with an error of a kind.
func (s *scene) hasSeen(is func(error) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.of, is)
}

// do does an operation at a replica. Without an error it is answered.
func (s *scene) do(r *replica, do func(ctx context.Context, store *approval.Store) error) (answered bool) {
	s.mu.Lock()
	most := s.most
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	r.mu.RLock()
	store, ended := r.store, r.ended
	r.mu.RUnlock()
	err := errEnded
	if !ended {
		err = do(ctx, store)
	}
	s.saw(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	// How much is answered while a fault holds is how quick the machine is, and so is whether etcd answers within oneCall.
	if slow := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil; most == patience && !slow {
		s.all++
		if err == nil {
			s.ok++
		}
	}
	return err == nil
}

// lasts says how long one operation may take from now on.
func (s *scene) lasts(most time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = most
}

// is notes an answer about an approval, which is to be true in the end.
func (s *scene) is(id string, untrue func(approval.Approval) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.answered[id]; before != nil {
		now := untrue
		untrue = func(a approval.Approval) string { return before(a) + now(a) }
	}
	s.answered[id] = untrue
}

// spend has a decision use an approval.
func (s *scene) spend(r *replica, a approval.Approval, decision string) use {
	u := use{approval: a.ID, decision: decision, call: time.Since(s.began)}
	u.known = s.do(r, func(ctx context.Context, store *approval.Store) error {
		reservation, err := store.Reserve(ctx, a.ID, a.Digest, decision)
		if reservation == nil || err != nil {
			return err
		}
		s.counts(reservation.Item())
		err = errEnded
		if !r.isEnded() {
			err = allow(r.log, decision, a.ID)(context.WithoutCancel(ctx))
		}
		if err != nil {
			reservation.InDoubt()
			return err
		}
		if err := reservation.Spent(ctx); err != nil {
			return err
		}
		u.got = true
		if r.isEnded() { // it is on record, and the answer is lost
			err = errEnded
		}
		return err
	})
	u.end = time.Since(s.began)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses = append(s.uses, u)
	return u
}

// counts checks that the votes by which an approval is used are on record somewhere.
func (s *scene) counts(a approval.Approval) {
	steps := []string{a.Agreed}
	for _, v := range a.Votes {
		steps = append(steps, v.Step)
	}
	for _, step := range steps {
		if _, is := s.recorded.Load(step); !is && !slices.ContainsFunc(s.replicas, func(r *replica) bool {
			_, err := r.its().ByID(step)
			return err == nil
		}) {
			s.t.Errorf("%s is used, and its step %q is on no record", a.ID, step)
		}
	}
}

// granted files an approval and has it approved, at two replicas.
func (s *scene) granted(name string, uses int) (a approval.Approval) {
	s.t.Helper()
	there := len(name) % 3
	a = s.filed(there, name, uses, 1)
	store := s.replicas[(there+1)%3].store
	etcdtest.Succeeds(s.t, "it is approved, once etcd answers in time", func() error {
		if is, _, err := store.Get(s.t.Context(), a.ID); err == nil && is.Status == approval.Approved {
			return nil
		}
		_, err := store.Decide(s.t.Context(), a.ID, 0, by("mia"), all, equal)
		return err
	})
	return a
}

func (s *scene) filed(there int, name string, uses, quorum int) (a approval.Approval) {
	s.t.Helper()
	etcdtest.Succeeds(s.t, "it is filed, once etcd answers in time", func() (err error) {
		a, err = s.replicas[there].store.File(s.t.Context(), s.question(name, uses, quorum))
		return err
	})
	return a
}

func (s *scene) question(name string, uses, quorum int) approval.ApprovalRequest {
	return question(name, func(q *approval.ApprovalRequest) {
		q.Terms.Uses, q.Terms.Quorum = uses, quorum
		q.Terms.Timeout, q.Terms.ValidFor = 24*time.Hour, 24*time.Hour // by the real clock
	})
}

// wanted are the approvals of one part of a round.
type wanted struct {
	last, some, voted, revoked, late approval.Approval
}

func (s *scene) ask(part string) wanted {
	return wanted{
		last: s.granted("last "+part, 1), some: s.granted("some "+part, 5), revoked: s.granted("revoked "+part, 2),
		voted: s.filed(0, "voted "+part, 1, 2), late: s.filed(1, "late "+part, 1, 1),
	}
}

// race does all that people and programs do, at once: 16 decisions want each use, two people vote, three replicas are asked
// the same and something else, and an approval is revoked while a use of it is reserved. Meanwhile each replica does the work that
// is due. After some operations it calls in.
func (s *scene) race(part string, q wanted, in func()) {
	s.t.Helper()
	var wait sync.WaitGroup
	var done atomic.Int32
	enough := make(chan struct{})
	step := func() {
		if done.Add(1) == 8 {
			close(enough)
		}
	}
	for n := range 16 {
		r := s.replicas[n%3]
		for _, a := range []approval.Approval{q.last, q.some, q.voted} {
			wait.Go(func() {
				s.spend(r, a, fmt.Sprintf("%s %s %d", a.ID, part, n))
				step()
			})
		}
	}
	for n, name := range []string{"mia", "ben"} {
		wait.Go(func() {
			if s.do(s.replicas[n+1], func(ctx context.Context, store *approval.Store) error {
				_, err := store.Decide(ctx, q.voted.ID, 0, by(name), all, equal)
				return err
			}) {
				s.is(q.voted.ID, func(a approval.Approval) string {
					return lacks("vote of "+name, slices.ContainsFunc(a.Votes, func(v approval.Vote) bool { return v.By == name }))
				})
			}
			step()
		})
	}
	for n, r := range s.replicas {
		for _, name := range []string{"same " + part, fmt.Sprint("own ", part, n)} {
			wait.Go(func() {
				var a approval.Approval
				if s.do(r, func(ctx context.Context, store *approval.Store) (err error) {
					a, err = store.File(ctx, s.question(name, 1, 1))
					return err
				}) {
					s.is(a.ID, func(is approval.Approval) string { return lacks("question", is.Digest == digest(name)) })
				}
				step()
			})
		}
	}
	wait.Go(func() { s.revoke(part, q.revoked) })
	go func() {
		wait.Wait()
		for done.Load() < 8 {
			step()
		}
	}()
	working, stop := context.WithCancel(s.t.Context())
	var work sync.WaitGroup
	for _, r := range s.replicas {
		r.mu.RLock()
		store := r.store
		r.mu.RUnlock()
		work.Go(func() {
			often := time.NewTicker(30 * time.Millisecond) // a server works each second; to work without a pause takes the time of the others
			defer often.Stop()
			for !r.isEnded() {
				select {
				case <-often.C:
					store.Work(working)
				case <-working.Done():
					return
				}
			}
		})
	}
	<-enough
	in()
	wait.Wait()
	stop()
	work.Wait()
}

func lacks(what string, is bool) string {
	if is {
		return ""
	}
	return "it lacks the " + what + "; "
}

// revoke takes an approval back at one replica while another has reserved a use of it.
func (s *scene) revoke(part string, a approval.Approval) {
	here, there, decision := s.replicas[0], s.replicas[1], a.ID+" "+part
	s.do(here, func(ctx context.Context, store *approval.Store) error {
		use, err := store.Reserve(ctx, a.ID, a.Digest, decision)
		if use == nil || err != nil {
			return err
		}
		if s.do(there, func(ctx context.Context, store *approval.Store) error {
			_, err := store.Revoke(ctx, a.ID, 0, by("mia"))
			return err
		}) {
			s.is(a.ID, func(a approval.Approval) string { return lacks("end", a.Status == approval.Revoked) })
			s.spend(there, a, decision+" after")
		}
		if err := errEnded; here.isEnded() {
			use.InDoubt()
			return err
		}
		if err := allow(here.log, decision, a.ID)(ctx); err != nil {
			use.InDoubt()
			return err
		}
		return use.Spent(ctx)
	})
}

// settled works at all replicas until nothing is in doubt, and returns all approvals.
func (s *scene) settled() (all map[string]approval.Approval) {
	s.t.Helper()
	for late := time.Now().Add(patience); ; {
		why := ""
		for _, r := range s.replicas {
			r.store.Work(s.t.Context())
		}
		all = map[string]approval.Approval{}
		stored, next, err := s.replicas[1].store.StoredPage("", 10_000)
		if err != nil || next != "" {
			why = fmt.Sprint(next, err)
		}
		for _, a := range stored {
			got, found, err := s.replicas[2].store.Get(s.t.Context(), a.ID)
			if !found || err != nil || got.Unrecorded || len(got.Reserved) > 0 {
				why = fmt.Sprintf("%s is %+v, %v", a.ID, got, err)
			}
			all[a.ID] = got
		}
		if why == "" && len(all) > 0 {
			return all
		}
		if time.Now().After(late) {
			s.t.Fatal("it is never settled: ", why)
		}
	}
}

// logs are the logs of all replicas together.
type logs struct {
	uses     map[string][]string // of each approval
	released map[string]bool     // decisions
}

// read ends all replicas, and reads their logs, which verify.
func (s *scene) read() logs {
	s.t.Helper()
	said, seen := logs{uses: map[string][]string{}, released: map[string]bool{}}, map[string]string{}
	for _, r := range s.replicas {
		r.end()
		report := verify.Directory(r.data, verify.Options{Record: func(_ int64, line []byte) {
			var record struct {
				ID         string           `json:"id"`
				Event      string           `json:"event"`
				Details    onRecord         `json:"details"`
				Discharged []evaluation.Met `json:"discharged"`
			}
			must(s.t, json.Unmarshal(line, &record))
			if other := seen[record.ID]; other != "" {
				s.t.Errorf("record %s is in %s and in %s", record.ID, other, r.data)
			}
			seen[record.ID] = r.data
			for _, d := range record.Discharged {
				said.uses[d.Approval] = append(said.uses[d.Approval], record.ID)
			}
			if record.Event == approval.StepReleased {
				said.released[record.Details.UsedBy] = true
			}
		}})
		if report.Code != verify.Verified {
			s.t.Errorf("the log of replica %d does not verify: %+v", r.n, report.Problem)
		}
	}
	return said
}

// check holds all answers against the end, and reports whether a last use was contended.
func (s *scene) check(kept map[string]approval.Approval, said logs) (contended bool) {
	s.t.Helper()
	open := map[[32]byte]string{}
	for id, a := range kept {
		slices.Sort(a.Used)
		slices.Sort(said.uses[id])
		if !slices.Equal(a.Used, said.uses[id]) || len(a.Used) > a.Terms.Uses {
			s.t.Errorf("%s grants %d uses; it was used by %v, and on record are %v", id, a.Terms.Uses, a.Used, said.uses[id])
		}
		if other := open[a.Digest]; other != "" && (a.Status == approval.Pending || a.Status == approval.Approved) {
			s.t.Errorf("%s and %s are open for the same", id, other)
		}
		if a.Status == approval.Pending || a.Status == approval.Approved {
			open[a.Digest] = id
		}
	}
	for id := range said.uses {
		if _, is := kept[id]; !is {
			s.t.Errorf("%s was used, and is lost", id)
		}
	}
	for id, untrue := range s.answered {
		if a, is := kept[id]; !is || untrue(a) != "" {
			s.t.Errorf("%s was answered, and is %v: %s%+v", id, is, untrue(a), a)
		}
	}
	for _, u := range s.uses {
		if is := slices.Contains(said.uses[u.approval], u.decision); u.known && u.got != is {
			s.t.Errorf("decision %s was answered %v, and on record it is %v", u.decision, u.got, is)
		}
	}
	if s.ok*2 < s.all {
		s.t.Errorf("of %d operations without a fault %d were answered", s.all, s.ok)
	}
	return s.linearizable(kept, said)
}

// linearizable checks that the uses of each approval have an order in which each answer is true, and reports whether decisions
// have contended for a last use. An operation without an answer is open to the end.
func (s *scene) linearizable(kept map[string]approval.Approval, said logs) (contended bool) {
	s.t.Helper()
	histories := map[string][]porcupine.Operation{}
	for _, a := range kept {
		if a.Status == approval.Revoked || a.Terms.Quorum > 1 || a.Digest == digest("late 1") { // it also ends, or begins, otherwise
			continue
		}
		var history []porcupine.Operation
		var latest, refused use
		released := 0
		for n, u := range s.uses {
			if u.approval != a.ID {
				continue
			}
			put := func(e counted.Event) {
				end := int64(u.end)
				if !u.known {
					end = math.MaxInt64
				}
				history = append(history, porcupine.Operation{ClientId: n, Input: e, Call: int64(u.call), Return: end})
			}
			switch {
			case slices.Contains(said.uses[a.ID], u.decision):
				if put(counted.Event{Kind: counted.Use}); u.end > latest.end {
					latest = u
				}
			case u.known:
				put(counted.Event{Kind: counted.None})
			case said.released[u.decision]:
				put(counted.Event{Kind: counted.Take, Of: released})
				put(counted.Event{Kind: counted.Give, Of: released})
				if released++; released > counted.Most {
					s.t.Fatal("too many uses were given back")
				}
			}
		}
		for _, u := range s.uses {
			if u.approval == a.ID && u.known && !u.got && u.call < latest.end && (refused.decision == "" || u.end < refused.end) {
				refused = u
			}
		}
		contended = contended || len(said.uses[a.ID]) == a.Terms.Uses && refused.decision != ""
		histories[a.ID] = history
	}
	for id, history := range histories {
		if got := counted.Judge(kept[id].Terms.Uses, history, patience); got != porcupine.Ok {
			s.t.Errorf("the history of %s, which grants %d uses, is %s: %+v", id, kept[id].Terms.Uses, got, history)
		}
	}
	return contended
}

// fault is what goes wrong in a round: took says whether it has taken effect.
type fault struct {
	name  string
	begin func(*scene)
	took  func(*scene) bool
	end   func(*scene)
}

// small is the member that has a disk of its own.
const small = 2

// faults are those of a cluster.
func faults(c *etcdtest.Cluster) []fault {
	var term, leader, refused = uint64(0), 0, int64(0)
	var empty func()
	grew := func(*scene) bool { _, now := c.Leader(); return now > term }
	late := func(s *scene) bool {
		return s.hasSeen(func(err error) bool { return errors.Is(err, context.DeadlineExceeded) })
	}
	full := func(s *scene) bool {
		return s.hasSeen(func(err error) bool { return strings.Contains(err.Error(), syscall.ENOSPC.Error()) })
	}
	all := []fault{
		{"the leader is cut off", func(*scene) {
			leader, term = c.Leader()
			refused = c.Refused()
			c.Isolate(leader)
		}, func(s *scene) bool { return grew(s) && c.Refused() > refused }, func(*scene) { c.Join() }},
		{"a replica is with the minority", func(s *scene) {
			leader, _ = c.Leader()
			alone := (leader + 1) % 3
			c.Isolate(alone)
			s.replicas[0].way.Cut(leader, (leader+2)%3)
		}, func(s *scene) bool { return s.replicas[0].way.Refused() > 0 && late(s) },
			func(s *scene) { c.Join(); s.replicas[0].way.Heal() }},
		{"all are cut off", func(s *scene) {
			for _, r := range s.replicas {
				r.way.Cut()
			}
		}, func(s *scene) bool {
			return !slices.ContainsFunc(s.replicas, func(r *replica) bool { return r.way.Refused() == 0 })
		}, func(s *scene) {
			for _, r := range s.replicas {
				r.way.Heal()
			}
		}},
		{"a member is killed", func(*scene) {
			leader, term = c.Leader()
			c.Kill(leader)
		}, func(s *scene) bool { return grew(s) && !c.Runs(leader) }, func(*scene) { c.Restart(leader) }},
		{"a replica ends", func(s *scene) { s.replicas[0].end() },
			func(s *scene) bool {
				return s.replicas[0].isEnded() && s.hasSeen(func(err error) bool { return errors.Is(err, errEnded) })
			},
			func(s *scene) { s.replicas[0].open() }},
		{"the disk of a replica is full", func(s *scene) {
			empty = etcdtest.Fill(s.t, s.replicas[1].data)
			big := []byte(`"` + strings.Repeat("x", 100_000) + `"`)
			for n := 0; !full(s); n++ { // the log needs no more room than it has
				s.saw(s.replicas[1].log.Append(s.t.Context(), []record.Entry{{
					ID: fmt.Sprint(s.prefix, n), Kind: kind, Tenant: "acme", Event: "ballast", Details: big,
				}}))
			}
		}, full, func(*scene) { empty() }},
		{"the disk of a member is full", func(s *scene) {
			empty = c.Fill(small)
			client, err := etcdtest.Dial(s.replicas[0].way.Endpoints()...)
			must(s.t, err)
			defer func() { _ = client.Close() }()
			for n := 0; n < 60 && c.Runs(small); n++ { // or the member needs no more room than it has
				ctx, cancel := context.WithTimeout(s.t.Context(), oneCall)
				_, _ = client.Put(ctx, s.prefix+"ballast", strings.Repeat("x", 1<<20))
				cancel()
			}
		}, func(*scene) bool { return !c.Runs(small) && strings.Contains(c.Said(small), syscall.ENOSPC.Error()) },
			func(*scene) { empty(); c.Restart(small) }},
		{"a replica is half a second away", func(s *scene) { s.replicas[2].way.Delay(500 * time.Millisecond) }, late,
			func(s *scene) { s.replicas[2].way.Heal() }},
		{"the answers to a replica are held", func(s *scene) { s.replicas[2].way.Hold() }, late,
			func(s *scene) { s.replicas[2].way.Heal() }},
	}
	if testing.Short() { // of the kinds above: a leader that is gone, replicas without etcd, answers that are late
		again := []string{"a member is killed", "all are cut off", "a replica is half a second away"}
		all = slices.DeleteFunc(all, func(f fault) bool { return slices.Contains(again, f.name) })
	}
	return all
}

// late has a person vote while the fault holds, at the replica whose disk may be full, and decisions want the use elsewhere. The
// vote counts for them if it is on record.
func (s *scene) late(a approval.Approval) {
	s.do(s.replicas[1], func(ctx context.Context, store *approval.Store) error {
		_, err := store.Decide(ctx, a.ID, 0, by("mia"), all, equal)
		return err
	})
	var wait sync.WaitGroup
	for n, r := range s.replicas {
		wait.Go(func() { s.spend(r, a, fmt.Sprint(a.ID, " late ", n)) })
	}
	wait.Wait()
}

// reach waits until each replica reaches etcd.
func (s *scene) reach() {
	s.t.Helper()
	for late := time.Now().Add(patience); ; {
		var failed error
		for _, r := range s.replicas {
			if _, _, err := r.store.Stored("none"); err != nil {
				failed = fmt.Errorf("replica %d: %w", r.n, err)
			}
		}
		if failed == nil {
			return
		}
		if time.Now().After(late) {
			s.t.Fatal("it does not reach etcd any more: ", failed)
		}
	}
}

// round is a fault that begins while much is asked, and ends before as much is asked again. It reports whether a last use was
// contended.
func round(t *testing.T, c *etcdtest.Cluster, f fault, seed uint64) (contended bool) {
	t.Helper()
	s := newScene(t, c, seed)
	first, second := s.ask("1"), s.ask("2")
	s.lasts(oneOperation)
	s.race("1", first, func() { f.begin(s) })
	for late := time.Now().Add(patience); !f.took(s); {
		if time.Now().After(late) {
			t.Errorf("it has not taken effect: %d errors, such as %v", len(s.of), s.of[:min(3, len(s.of))])
			break
		}
		for n, r := range s.replicas {
			s.do(r, func(ctx context.Context, store *approval.Store) error {
				_, err := store.File(ctx, s.question(fmt.Sprint("more ", n, len(s.of)), 1, 1))
				return err
			})
		}
	}
	s.late(first.late)
	f.end(s)
	c.Settled()
	s.lasts(patience)
	s.reach()
	s.race("2", second, func() {})
	s.settled()
	all := []approval.Approval{first.last, first.some, second.last, second.some}
	kept := s.left(all)
	for _, a := range all {
		if is := kept[a.ID]; is.Status != approval.UsedUp {
			t.Errorf("a use is lost: it is %+v", is)
		}
	}
	t.Logf("of %d operations without a fault %d were answered; %d uses were asked for", s.all, s.ok, len(s.uses))
	return s.check(kept, s.read())
}

// left uses what is left of approvals: each use is there for somebody. An operation that etcd does not answer in time may
// hold a use until all is settled, so those after it are asked again.
func (s *scene) left(all []approval.Approval) (kept map[string]approval.Approval) {
	for late, n := time.Now().Add(patience), 0; ; {
		answered := true
		for _, a := range all {
			for range a.Terms.Uses + 1 {
				n++
				answered = s.spend(s.replicas[s.random.IntN(3)], a, fmt.Sprint(a.ID, " left ", n)).known && answered
			}
		}
		if kept = s.settled(); answered || time.Now().After(late) {
			return kept
		}
	}
}

// rounds has so many rounds, each with one of the faults. New members begin with the first fault: those before keep what filled
// their disk.
func rounds(t *testing.T, n int) {
	t.Helper()
	night.Other(t, "etcd")
	seed, contended := rand.Uint64(), 0
	t.Logf("seed %d", seed)
	for first := 0; first < n; {
		passed := t.Run(fmt.Sprint("from ", first), func(t *testing.T) {
			disk := memorydisk.New(t, "size=512m")
			c := etcdtest.Start(t, etcdtest.Options{Dir: func(n int) string {
				if n == small {
					return disk
				}
				return ""
			}})
			for _, f := range faults(c) {
				if first == n {
					return
				}
				if !t.Run(fmt.Sprint(first, " ", f.name), func(t *testing.T) {
					if round(t, c, f, seed+uint64(first)) {
						contended++
					}
				}) {
					return
				}
				first++
			}
		})
		if !passed {
			return
		}
	}
	if t.Logf("in %d of %d rounds a last use was contended", contended, n); contended == 0 {
		t.Error("no last use was contended")
	}
}

// TestReplicas: one use is one use wherever it is asked, under each fault of replicas and members.
func TestReplicas(t *testing.T) {
	t.Parallel()
	rounds(t, len(faults(nil)))
}

// TestReplicasOfARestoredEtcd: a copy of etcd is taken, 16 uses are made, and the copy is put back. All replicas refuse it. Once
// each has held its own log against it, all uses are known again.
func TestReplicasOfARestoredEtcd(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	s := newScene(t, c, rand.Uint64())
	a, other := s.granted("restored", 20), s.granted("voted before", 1)
	spend := func(part string, n int) (got int) {
		var wait sync.WaitGroup
		var all atomic.Int32
		for n := range n {
			wait.Go(func() {
				if u := s.spend(s.replicas[n%3], a, fmt.Sprint(a.ID, part, n)); u.known && u.got {
					all.Add(1)
				}
			})
		}
		wait.Wait()
		return int(all.Load())
	}
	copied := c.CopyOf()
	s.reach()
	got := spend("before", 16)
	for n := 0; got < 8 && n < 16; n++ { // the others waited too long for one another
		got += spend(fmt.Sprint("alone", n, " "), 1)
	}
	if got < 8 {
		t.Fatalf("%d uses were had", got)
	}
	for _, r := range s.replicas {
		r.store.Work(t.Context())
	}
	c.PutBack(copied)
	for _, r := range s.replicas {
		var err error
		for late := time.Now().Add(patience); !errors.Is(err, etcd.ErrRestored) && time.Now().Before(late); {
			_, _, err = r.store.Stored(a.ID)
		}
		if !errors.Is(err, etcd.ErrRestored) || !errors.Is(err, approval.ErrUnavailable) {
			t.Errorf("replica %d: %v", r.n, err)
		}
		if _, live, _ := r.store.Live(other.Digest, other.ID); live {
			t.Errorf("replica %d goes by an approval in a copy", r.n)
		}
	}
	if got := spend("restored", 3); got != 0 {
		t.Errorf("%d uses were had of a copy", got)
	}
	for _, r := range s.replicas {
		r.end()
		r.open()
	}
	s.settled()
	spend("after", 24)
	kept := s.settled()
	for n := 0; kept[a.ID].Status != approval.UsedUp && n < 20; n++ {
		s.spend(s.replicas[n%3], a, fmt.Sprint(a.ID, "last", n))
		kept = s.settled()
	}
	s.check(kept, s.read())
}

// TestReplicasAtNight is TestReplicas for 200 rounds.
func TestReplicasAtNight(t *testing.T) {
	night.Soaks(t)
	rounds(t, 200)
}
