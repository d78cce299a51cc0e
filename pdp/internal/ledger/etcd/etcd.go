// Package etcd keeps a ledger's values in etcd, for any number of processes that write to it.
//
// Each key of a ledger is PREFIX + "v/" + the key. Each transaction that writes also writes PREFIX + "rev", whose revision is
// therefore that of the last transaction; its value is the name of the process. It writes PREFIX + "rev/" + the name of its
// writer, too: what a writer has made is gone only if etcd was restored, however much others wrote since.
// Values that are kept for a while hang on leases. Etcd removes them by its own clock, in no transaction.
//
// A [ledger.State] is of one revision, which a linearizable read gave: what was answered to any process before is in it. Values
// that were read before come from memory, as far as the watch has brought all transactions of the state. Nothing is decided by
// memory: a transaction compares the revisions of what it has read.
package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/pdp/internal/ledger"
)

// Options say where the values are.
type Options struct {
	Client *clientv3.Client
	// Prefix begins all keys, and ends with a slash. No other engine has it.
	Prefix string
	// Errors are those that the readers know.
	Errors ledger.Errors
	// Timeout is how long one call of etcd may take, DefaultTimeout unless it is given.
	Timeout time.Duration
	// Usable is asked before everything. Its error refuses it.
	Usable func() error
	// Pulse has the engine find out again and again that its watch is current: see [Engine.Contact].
	Pulse bool
	// History is what is known of the etcd cluster. Engines of one client share it; the default is a new one.
	History *History
}

// DefaultTimeout is how long one call of etcd may take.
const DefaultTimeout = 3 * time.Second

// Engine is a [ledger.Engine].
type Engine struct {
	Options
	name string // of this process

	reads, commits atomic.Uint64
	news           news
	handing        sync.Mutex // held while readers are called

	mu      sync.Mutex // guards what follows
	closed  bool
	stop    context.CancelFunc
	done    chan struct{} // closed when the watch has ended
	cache   *cache
	contact time.Time
	readers map[int]func(keys []string)
	nextID  int
	leased  *lease // nil if the next value that is kept for a while needs another one
}

// New makes an engine, which is to be opened.
func New(o Options) *Engine {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Usable == nil {
		o.Usable = func() error { return nil }
	}
	if o.History == nil {
		o.History = new(History)
	}
	return &Engine{Options: o, name: rand.Text(), cache: newCache(), readers: map[int]func([]string){},
		news: news{come: make(chan struct{}, 1)}}
}

// The keys of a prefix.
const (
	values = "v/"
	last   = "rev"
	by     = last + "/"
)

func (e *Engine) key(key string) string { return e.Prefix + values + key }

// Calls counts the calls of etcd: those that read, and the transactions that write.
func (e *Engine) Calls() (reads, commits uint64) { return e.reads.Load(), e.commits.Load() }

// Contact is the last moment at which all that was in etcd had come to the readers of [Engine.Watch], if the engine has a
// [Options.Pulse].
func (e *Engine) Contact() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.contact
}

// Shared implements [ledger.Engine].
func (e *Engine) Shared() bool { return true }

// Erase implements [ledger.Engine]. It does nothing: etcd forgets older values when it is compacted, and frees their pages
// when it is defragmented, and both are for its operator to do.
func (e *Engine) Erase() error { return nil }

// Ready implements [ledger.Engine].
func (e *Engine) Ready() error {
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return e.Errors.Closed
	}
	return e.failed(e.Usable())
}

// ErrEtcd is part of each error of an engine that comes from etcd.
var ErrEtcd = errors.New("etcd")

func (e *Engine) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w: %w", e.Errors.Unavailable, ErrEtcd, err)
}

// call makes one call of etcd, and holds its answer against what is known of the cluster.
func call[R any](e *Engine, header func(R) *etcdserverpb.ResponseHeader, do func(context.Context) (R, error)) (answer R, err error) {
	if err := e.Ready(); err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.Timeout)
	defer cancel()
	least := e.History.begin()
	err = Led(ctx, func(ctx context.Context) error {
		answer, err = do(ctx)
		return err
	})
	if err == nil {
		err = e.History.end(least, header(answer))
	}
	return answer, e.failed(err)
}

// Led makes a call at a member that knows a leader. One that is cut off from the others refuses at once, having done nothing, and
// another is asked.
func Led(ctx context.Context, call func(context.Context) error) error {
	ctx = clientv3.WithRequireLeader(ctx)
	for {
		if err := call(ctx); !errors.Is(err, rpctypes.ErrNoLeader) || !pause(ctx, nextMember) {
			return err
		}
	}
}

// nextMember is how long a call that a member without a leader refused waits before the next one.
const nextMember = 10 * time.Millisecond

// pause waits, and reports whether the context goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func (e *Engine) get(key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	e.reads.Add(1)
	return call(e, func(r *clientv3.GetResponse) *etcdserverpb.ResponseHeader { return r.Header },
		func(ctx context.Context) (*clientv3.GetResponse, error) { return e.Client.Get(ctx, key, options...) })
}

// Open implements [ledger.Engine].
func (e *Engine) Open() error {
	now, err := e.now()
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.stop, e.done = cancel, make(chan struct{})
	e.cache.restart(now.at)
	go func() {
		defer close(e.done)
		e.watch(ctx, now.at+1)
	}()
	return nil
}

// Close implements [ledger.Engine]. The client stays open.
func (e *Engine) Close() error {
	e.mu.Lock()
	stop, done := e.stop, e.done
	e.closed, e.stop = true, nil
	e.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
	return nil
}

// now is the state of this moment.
func (e *Engine) now() (*state, error) {
	known, is := e.History.Last(), map[string]Transaction{}
	got, err := e.get(e.Prefix+last, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	for key := range known {
		if strings.HasPrefix(key, e.Prefix) {
			is[key] = Transaction{} // unless it is there
		}
	}
	for _, kv := range got.Kvs {
		is[string(kv.Key)] = transactionOf(kv)
	}
	for key, one := range is {
		if err := e.History.goesOn(key, known[key], one); err != nil {
			return nil, e.failed(err)
		}
	}
	return &state{e: e, at: got.Header.Revision, last: is[e.Prefix+last].Revision}, nil
}

func transactionOf(kv *mvccpb.KeyValue) Transaction { return Transaction{kv.Version, kv.ModRevision} }

// mostCompared is how many transactions one call asks for: etcd takes 128.
const mostCompared = 64

// Lacks is "", or says which of the transactions that are known, of any engine and by their keys, etcd has not.
func (e *Engine) Lacks(known map[string]Transaction) (string, error) {
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(known)), mostCompared) {
		var gets []clientv3.Op
		for _, key := range keys {
			gets = append(gets, clientv3.OpGet(key))
		}
		e.reads.Add(1)
		got, err := call(e, func(r *clientv3.TxnResponse) *etcdserverpb.ResponseHeader { return r.Header },
			func(ctx context.Context) (got *clientv3.TxnResponse, err error) {
				for { // the client asks another member only in reads of one key or range
					if got, err = e.Client.Txn(ctx).Then(gets...).Commit(); err == nil || !pause(ctx, nextMember) {
						return got, err
					}
				}
			})
		if err != nil {
			return "", err
		}
		for n, key := range keys {
			is := Transaction{}
			for _, kv := range got.Responses[n].GetResponseRange().Kvs {
				is = transactionOf(kv)
			}
			if !is.Follows(known[key]) {
				return fmt.Sprintf("%s has %d transactions, and had %d", key, is.Number, known[key].Number), nil
			}
		}
	}
	return "", nil
}

// View implements [ledger.Engine].
func (e *Engine) View(read func(ledger.State) error) error {
	s, err := e.now()
	if err != nil {
		return err
	}
	e.cache.wait(s.last, catchUpWithin)
	return read(s)
}

// catchUpWithin is how long a reader waits for the watch, which is faster than to ask etcd for each value.
const catchUpWithin = 20 * time.Millisecond

// Write implements [ledger.Engine]. A transaction is sent twice only if the first member refused it: one that has no answer was
// made, or not, or will be.
func (e *Engine) Write(t ledger.Transaction) (revision uint64, err error) {
	if err := t.Fits(); err != nil {
		return 0, err
	}
	// An etcd that was restored has fewer transactions, and may have a higher revision.
	own := e.Prefix + by + e.History.writer()
	known := e.History.lastKnown(own)
	holds := []clientv3.Cmp{
		clientv3.Compare(clientv3.Version(e.Prefix+last), ">", e.History.lastKnown(e.Prefix+last).Number-1),
		clientv3.Compare(clientv3.Version(own), ">", known.Number-1),
	}
	for key, is := range t.If {
		holds = append(holds, clientv3.Compare(clientv3.ModRevision(e.key(key)), "=", int64(is)))
	}
	var then, otherwise []clientv3.Op
	var options []clientv3.OpOption
	var under *lease
	if t.KeepFor > 0 {
		if under = e.leaseOf(t.KeepFor); under.err != nil {
			e.leave(under)
			return 0, under.err
		}
		holds = append(holds, clientv3.Compare(clientv3.CreateRevision(under.open), ">", 0))
		options, otherwise = append(options, clientv3.WithLease(under.id)), append(otherwise, clientv3.OpGet(under.open))
	}
	for key, value := range t.Puts {
		if value == nil {
			then = append(then, clientv3.OpDelete(e.key(key)))
		} else {
			then = append(then, clientv3.OpPut(e.key(key), string(value), options...))
		}
	}
	if len(t.Puts) > 0 {
		then = append(then, clientv3.OpPut(e.Prefix+last, e.name), clientv3.OpPut(own, e.name), clientv3.OpGet(own))
		e.commits.Add(1)
	} else { // etcd compares on any member, however old its state, unless something is read
		then = append(then, clientv3.OpGet(e.Prefix+last))
		e.reads.Add(1)
	}
	made, err := call(e, func(r *clientv3.TxnResponse) *etcdserverpb.ResponseHeader { return r.Header },
		func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return e.Client.Txn(ctx).If(holds...).Then(then...).Else(otherwise...).Commit()
		})
	if under != nil && (err != nil || !made.Succeeded && len(made.Responses[0].GetResponseRange().Kvs) == 0) {
		e.leave(under)
	}
	switch {
	case err != nil:
		return 0, err
	case !made.Succeeded:
		return 0, ledger.ErrConflict
	case len(t.Puts) == 0:
		return 0, nil
	}
	// That it was made is known from now on, even if the watch never says so.
	for _, kv := range made.Responses[len(then)-1].GetResponseRange().Kvs {
		err = e.History.goesOn(own, known, transactionOf(kv))
	}
	if err != nil {
		return 0, e.failed(err)
	}
	return uint64(made.Header.Revision), nil
}

// state is a [ledger.State].
type state struct {
	e    *Engine
	at   int64 // the revision of etcd
	last int64 // that of the last transaction before or at it
}

// Revision implements [ledger.State].
func (s *state) Revision() uint64 { return uint64(s.last) }

// Versions implements [ledger.State].
func (s *state) Versions() bool { return true }

// Get implements [ledger.State].
func (s *state) Get(key string) (value []byte, meta ledger.Meta, err error) {
	found, is := s.e.cache.get(key, s.at, s.last)
	if is {
		return found.value, found.meta, nil
	}
	got, err := s.e.get(s.e.key(key), clientv3.WithRev(s.at))
	if err != nil {
		return nil, meta, err
	}
	one := stored{at: s.at}
	for _, kv := range got.Kvs {
		one.value, one.meta = kv.Value, metaOf(kv)
	}
	s.e.cache.keep(key, one)
	return one.value, one.meta, nil
}

func metaOf(kv *mvccpb.KeyValue) ledger.Meta {
	return ledger.Meta{Revision: uint64(kv.ModRevision), Version: uint64(kv.Version), Created: uint64(kv.CreateRevision)}
}

// page is how many keys one call reads.
const page = 100

// Range implements [ledger.State].
func (s *state) Range(from, to string, backward bool, each func(key string, value []byte, meta ledger.Meta) bool) error {
	order := clientv3.SortAscend
	if backward {
		order = clientv3.SortDescend
	}
	most := int64(8) // most readers look at the first few
	for {
		got, err := s.e.get(s.e.key(from), clientv3.WithRange(s.e.key(to)), clientv3.WithRev(s.at), clientv3.WithLimit(most),
			clientv3.WithSort(clientv3.SortByKey, order))
		if err != nil {
			return err
		}
		for _, kv := range got.Kvs {
			key := strings.TrimPrefix(string(kv.Key), s.e.key(""))
			if !each(key, kv.Value, metaOf(kv)) {
				return nil
			}
			if backward {
				to = key
			} else {
				from = ledger.After(key)
			}
		}
		if !got.More || len(got.Kvs) == 0 {
			return nil
		}
		most = page
	}
}

// changesPage is how many changes one call reads: more than one transaction makes.
const changesPage = 1000

// Since implements [ledger.State].
func (s *state) Since(prefix string, revision uint64, each func(key string, revision uint64) bool) error {
	for from := int64(revision) + 1; ; {
		got, err := s.e.get(s.e.key(prefix), clientv3.WithPrefix(), clientv3.WithRev(s.at), clientv3.WithMinModRev(from),
			clientv3.WithLimit(changesPage), clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
		if err != nil || len(got.Kvs) == 0 {
			return err
		}
		last := got.Kvs[len(got.Kvs)-1].ModRevision
		for _, kv := range got.Kvs {
			if got.More && kv.ModRevision == last && last > from {
				break // the others of its transaction may be on the next page
			}
			if !each(strings.TrimPrefix(string(kv.Key), s.e.key("")), uint64(kv.ModRevision)) {
				return nil
			}
		}
		if !got.More {
			return nil
		}
		from = max(last, from+1)
	}
}

// ErrRestored: etcd has not what it had before. A copy was put back, or another cluster is in its place.
var ErrRestored = errors.New("etcd is not what it was: it was restored from a copy, or is another cluster")

// History is what is known of an etcd cluster. A linearizable answer is of a revision that is no smaller than any that was
// known before the question.
type History struct {
	mu       sync.Mutex
	cluster  uint64
	revision int64
	last     map[string]Transaction // by their keys
	restored bool
	name     string
}

// Write says who writes the transactions from now on. No two processes that run at once have the same name, but "".
func (h *History) Write(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.name = name
}

func (h *History) writer() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.name
}

// Transaction is the last one of an engine, or of one of its writers. A copy of etcd can begin with any revision, but fewer
// transactions were made, and at least one writer made fewer.
type Transaction struct {
	Number   int64 `json:"number"`
	Revision int64 `json:"revision"`
}

// Follows reports whether this one may be the last now, if that one was.
func (t Transaction) Follows(known Transaction) bool {
	return t == known || t.Number > known.Number && t.Revision > known.Revision
}

// Last are the last transactions that are known, by their keys: of each engine that of all, and those of each writer.
func (h *History) Last() map[string]Transaction {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.last)
}

func (h *History) lastKnown(key string) Transaction {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[key]
}

// goesOn compares a transaction with the last one of its key that was known before it was asked for.
func (h *History) goesOn(key string, known, is Transaction) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.restored = h.restored || !is.Follows(known); h.restored {
		return ErrRestored
	}
	if h.last == nil {
		h.last = map[string]Transaction{}
	}
	if is.Number > h.last[key].Number {
		h.last[key] = is
	}
	return nil
}

// Known is the id of the cluster, and the last revision.
func (h *History) Known() (cluster uint64, revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cluster, h.revision
}

// Restored reports whether an answer was refused with [ErrRestored]. From then on all are.
func (h *History) Restored() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.restored
}

// Refuse has all answers refused from now on.
func (h *History) Refuse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.restored = true
}

func (h *History) begin() (least int64) {
	_, least = h.Known()
	return least
}

func (h *History) end(least int64, is *etcdserverpb.ResponseHeader) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.restored || h.cluster != 0 && h.cluster != is.ClusterId || is.Revision < least {
		h.restored = true
		return ErrRestored
	}
	h.cluster, h.revision = is.ClusterId, max(h.revision, is.Revision)
	return nil
}
