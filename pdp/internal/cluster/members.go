package cluster

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/etcd"
)

// Member is a process of the cluster that is there now.
type Member struct {
	Origin  string `json:"origin"`
	Address string `json:"address,omitzero"`
	// Version is that of the program, and Bundle the digest of the bundle in force.
	Version string `json:"version,omitzero"`
	Bundle  string `json:"bundle,omitzero"`
	// Clock is the reading of its clock when it last wrote this.
	Clock time.Time `json:"clock"`
	// Ahead is by how many nanoseconds its clock may be ahead of that of each other member, at most: the delay of the
	// message is in it. It is negative if the clock is behind for certain.
	Ahead map[string]int64 `json:"ahead,omitzero"`
}

// entry is the value of a member in etcd.
type entry struct {
	Member `json:",inline"`
	// Run is a random name of the process.
	Run string `json:"run"`
	// Starts is set until the process watches the clocks of the others. Until then it takes no proofs.
	Starts bool `json:"starts,omitzero"`
	// Asks is set while the process needs a member that says of etcd what it was, and Vouches are the processes to which this member
	// said it: by the origin of each its Run.
	Asks    bool              `json:"asks,omitzero"`
	Vouches map[string]string `json:"vouches,omitzero"`
}

// Each member stands under PREFIX/members/ORIGIN, which only the process whose lease it has writes: see [Cluster.putName]. It is
// JSON after its HMAC-SHA256. A writer to etcd without the key makes none; an older value that it puts back makes clocks differ
// by more, which refuses more.
const (
	prefixMembers = "members/"
	beatEvery     = 2 * time.Second
	memberTTL     = 10 // seconds
	sayEvery      = time.Minute
	quotaEvery    = 5 // beats
)

func (c *Cluster) keyMember(origin string) string {
	return c.config.Etcd.Prefix + prefixMembers + url.PathEscape(origin)
}

func (c *Cluster) sumMember(key string, text []byte) []byte {
	mac := hmac.New(sha256.New, ledger.DeriveKey(c.options.Key, "policy-service cluster members"))
	_, _ = mac.Write(append([]byte(key+"\x00"), text...)) // never fails
	return mac.Sum(nil)
}

func (c *Cluster) readMember(key string, value []byte) (e entry, ok bool) {
	if len(value) < sha256.Size || !hmac.Equal(value[:sha256.Size], c.sumMember(key, value[sha256.Size:])) {
		return e, false
	}
	return e, json.Unmarshal(value[sha256.Size:], &e) == nil && c.keyMember(e.Origin) == key
}

// mostMembers bounds a read.
const mostMembers = 1000

// Members are the processes that are there, by their origins.
func (c *Cluster) Members(ctx context.Context) (members []Member, err error) {
	entries, _, err := c.entries(ctx)
	for _, e := range entries {
		members = append(members, e.Member)
	}
	return members, err
}

func (c *Cluster) entries(ctx context.Context) (all []entry, revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Etcd.Timeout)
	defer cancel()
	var got *clientv3.GetResponse
	err = etcd.Led(ctx, func(ctx context.Context) error {
		got, err = c.client.Get(ctx, c.config.Etcd.Prefix+prefixMembers, clientv3.WithPrefix(), clientv3.WithLimit(mostMembers))
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrAway, err)
	}
	for _, kv := range got.Kvs {
		if e, ok := c.readMember(string(kv.Key), kv.Value); ok {
			all = append(all, e)
		}
	}
	return all, got.Header.Revision, nil
}

// peers are the other members, as the watch brings them.
type peers struct {
	mu    sync.Mutex
	there map[string]Member
	ahead map[string]time.Duration // of this process, at most
	ask   map[string]string        // those that ask for a vouch, by their origins: their Run
	asked chan struct{}            // another one asks
}

func (p *peers) set(e entry, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.there[e.Origin], p.ahead[e.Origin] = e.Member, now.Sub(e.Clock)
	if !e.Asks {
		delete(p.ask, e.Origin)
	} else if p.ask[e.Origin] != e.Run {
		p.ask[e.Origin] = e.Run
		select {
		case p.asked <- struct{}{}:
		default:
		}
	}
}

func (p *peers) asks() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.ask)
}

func (p *peers) gone(origin string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.there, origin)
	delete(p.ask, origin)
	delete(p.ahead, origin)
}

// Skew is how far the clocks of any two members may differ, at most.
func (c *Cluster) Skew() (most time.Duration) {
	c.peers.mu.Lock()
	defer c.peers.mu.Unlock()
	for origin, m := range c.peers.there {
		most = max(most, c.peers.ahead[origin])
		for _, ahead := range m.Ahead {
			most = max(most, time.Duration(ahead))
		}
	}
	return most
}

// Behind is how far the clock here may be behind that of another member, at most. What expires by the clock of any has
// expired.
func (c *Cluster) Behind() (most time.Duration) {
	origin := c.Origin()
	c.peers.mu.Lock()
	defer c.peers.mu.Unlock()
	for _, m := range c.peers.there {
		most = max(most, time.Duration(m.Ahead[origin]))
	}
	return most
}

// There are the other members, as they were last heard of.
func (c *Cluster) There() []Member {
	c.peers.mu.Lock()
	defer c.peers.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.peers.there), func(a, b Member) int { return strings.Compare(a.Origin, b.Origin) })
}

// Run keeps this process a member until its context ends, and watches the others.
func (c *Cluster) Run(ctx context.Context) {
	c.stopHolding()
	c.clocks.mu.Lock()
	c.clocks.runs = true
	c.clocks.mu.Unlock()
	var all sync.WaitGroup
	all.Go(func() { c.watchMembers(ctx) })
	defer all.Wait()
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		if err := c.beat(ctx); ctx.Err() == nil {
			c.heard(err)
		}
		if c.beats++; c.beats%quotaEvery == 1 { // also after a beat that failed: etcd at its quota refuses each
			c.full.look(ctx, c)
		}
		select {
		case <-tick.C:
		case <-c.peers.asked:
		case <-c.clocks.met:
		case <-ctx.Done():
			c.leave()
			return
		}
	}
}

// heard notes whether etcd answers, and logs each change.
func (c *Cluster) heard(err error) {
	c.mu.Lock()
	before := c.away
	if c.away = err; err != nil && before == nil {
		c.since = c.options.Now().UTC()
	}
	c.mu.Unlock()
	switch {
	case err != nil && (before == nil || errors.Is(err, ErrRefused) && !errors.Is(before, ErrRefused)):
		c.options.Logger.Error("the state in etcd cannot be used; what needs it is answered 503", "error", err)
	case err == nil && before != nil:
		c.options.Logger.Info("the state in etcd can be used again")
	}
}

// beat writes this member, and reads the others. Once etcd was restored it has that on record here and there, before it says so:
// this process may end at any moment.
func (c *Cluster) beat(ctx context.Context) (err error) {
	if !c.history.Restored() {
		err = c.contact(ctx)
	}
	if c.history.Restored() {
		if failed := c.writeMark(); failed != nil {
			c.options.Logger.Error("etcd was restored, and that cannot be kept here", "error", failed)
		}
		c.restoredMeanwhile(ctx)
		return cmp.Or(err, ErrRestored)
	}
	return err
}

func (c *Cluster) contact(ctx context.Context) error {
	began, asks := time.Now(), c.peers.asks() // to vouch for etcd as it is after these asked
	if err := c.keepLease(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrAway, err)
	}
	if err := c.learn(); err != nil {
		return err
	}
	if lacks, err := c.own.Lacks(c.history.Last()); err != nil {
		return err
	} else if lacks != "" {
		c.history.Refuse()
		return fmt.Errorf("%w: %s", ErrRestored, lacks)
	}
	switch err := c.stands(); {
	case errors.Is(err, ErrRefused):
		return err // the name may be another's
	case err != nil:
		asks = nil
	}
	if err := c.putName(ctx, began, asks); err != nil {
		return err
	}
	if said, err := c.say(ctx); err != nil {
		return err
	} else if said {
		if err := c.learn(); err != nil {
			return err
		}
	}
	if err := c.writeMark(); err != nil {
		c.options.Logger.Error("what is known of etcd cannot be kept; after a restart a restored etcd may pass for this one", "error", err)
	}
	return c.stands()
}

// holdName keeps the name of a process that starts, until [Cluster.Run] does.
func (c *Cluster) holdName() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c.stopHolding = func() {
		cancel()
		<-done
	}
	go func() {
		defer close(done)
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if began := time.Now(); c.keepLease(ctx) == nil {
				_ = c.putName(ctx, began, nil) // a refusal is kept, and an error of etcd is Join's to find
			}
		}
	}()
}

// takeName puts this process under its name. Where that is another process's, the error is [ErrWaiting] until the other's lease
// has ended, and [ErrRefused] once the other has written its entry again: it lives. Nothing in a data directory shows that the
// other was this replica before, as a copy of the directory has the same.
func (c *Cluster) takeName(ctx context.Context) error {
	if c.stopHolding != nil {
		return c.stands() // an earlier Join took it
	}
	began := time.Now()
	if err := c.keepLease(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrAway, err)
	}
	other, err := c.writeName(ctx, nil)
	origin := c.joining.Origin
	switch {
	case err != nil:
		return err
	case other == nil:
		c.hasName(began)
		c.holdName()
		return nil
	case c.found == 0:
		c.found = other.ModRevision
	case c.found != other.ModRevision:
		return fmt.Errorf("%w: another process runs under the name %s; if this data directory is a copy, begin with an empty one that has "+
			"the shared keys alone, or else stop the other first", ErrRefused, origin)
	}
	return fmt.Errorf("%w: another process has the name %s, until its lease in etcd ends: %d s after it was killed or cut off",
		ErrWaiting, origin, memberTTL)
}

// keepLease renews the lease of this process, or takes one.
func (c *Cluster) keepLease(running context.Context) error {
	ctx, cancel := context.WithTimeout(running, c.config.Etcd.Timeout)
	defer cancel()
	if c.leased != 0 {
		err := etcd.Led(ctx, func(ctx context.Context) error {
			_, err := c.client.KeepAliveOnce(ctx, c.leased)
			return err
		})
		if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return err
		}
		c.leased = 0 // it ended, and what stood under it is gone
	}
	return etcd.Led(ctx, func(ctx context.Context) error {
		granted, err := c.client.Grant(ctx, memberTTL)
		if err == nil {
			c.leased = granted.ID
		}
		return err
	})
}

// putName writes the member again, whose lease was renewed after began, with its vouches. If its name stands under another lease,
// this process is no member any more, whatever becomes of the other.
func (c *Cluster) putName(ctx context.Context, began time.Time, vouches map[string]string) error {
	other, err := c.writeName(ctx, vouches)
	if err != nil {
		return err
	}
	if other == nil {
		c.hasName(began)
		return nil
	}
	c.mu.Lock()
	c.taken = true
	c.mu.Unlock()
	return c.stands()
}

// hasName notes that the name is this process's for the life of a lease that was renewed after began.
func (c *Cluster) hasName(began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = began.Add(memberTTL * time.Second)
}

// writeName writes the member, unless its name stands under the lease of another process: then it returns that entry.
func (c *Cluster) writeName(running context.Context, vouches map[string]string) (other *mvccpb.KeyValue, err error) {
	ctx, cancel := context.WithTimeout(running, c.config.Etcd.Timeout)
	defer cancel()
	c.mu.Lock()
	j, opened, asks := c.joining, c.opened, c.asks
	c.mu.Unlock()
	e := entry{Member: Member{Origin: j.Origin, Version: j.Version, Ahead: map[string]int64{}}, Run: c.run, Asks: asks, Vouches: vouches}
	if opened { // else the server has neither yet
		e.Address, e.Bundle = j.Address(), j.Bundle()
	}
	c.clocks.mu.Lock()
	e.Starts = !c.clocks.runs
	c.clocks.mu.Unlock()
	c.peers.mu.Lock()
	for origin, ahead := range c.peers.ahead {
		e.Ahead[origin] = int64(ahead)
	}
	c.peers.mu.Unlock()
	key := c.keyMember(j.Origin)
	err = etcd.Led(ctx, func(ctx context.Context) error {
		e.Clock = c.options.Now().UTC() // as late as can be
		text, err := json.Marshal(e, json.Deterministic(true))
		if err != nil {
			return err
		}
		put := []clientv3.Op{clientv3.OpPut(key, string(append(c.sumMember(key, text), text...)), clientv3.WithLease(c.leased))}
		under := []clientv3.Cmp{clientv3.Compare(clientv3.LeaseValue(key), "=", c.leased)}
		made, err := c.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(put...).
			Else(clientv3.OpTxn(under, put, []clientv3.Op{clientv3.OpGet(key)})).Commit()
		if err != nil || made.Succeeded {
			return err
		}
		if own := made.Responses[0].GetResponseTxn(); !own.Succeeded {
			other = own.Responses[0].GetResponseRange().Kvs[0]
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	}
	return other, nil
}

// say writes how far the log has come, from time to time, and its keys as soon as there is another.
func (c *Cluster) say(ctx context.Context) (said bool, err error) {
	keys, err := c.joining.LogKeys()
	if err != nil {
		return false, err
	}
	now, origin := c.options.Now().UTC(), c.Origin()
	c.mu.Lock()
	was := c.mark.Origins[origin]
	c.mu.Unlock()
	right := c.Clock() == nil
	seen, late := now.Sub(was.Seen), right && now.Sub(was.Shown) >= sayEvery
	if 0 <= seen && seen < sayEvery && !late && slices.Equal(was.Keys, keys) {
		return false, nil
	}
	size := c.joining.Size()
	return true, c.values.Update(ctx, func(ch *ledger.ValuesChange) {
		var me Origin
		ch.Get(keyOrigin(origin), &me)
		ch.Fail(me.fits(origin, keys, size))
		me.Keys, me.Seen, me.After = keys, now, max(me.After, size)
		if right && me.Shown.Before(now) {
			me.Shown = now
		}
		ch.Put(keyOrigin(origin), me)
	})
}

// giveName takes away what stands under the lease of this process, and nothing else: it would be there until the lease ends.
func (c *Cluster) giveName() {
	if c.leased == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.config.Etcd.Timeout)
	defer cancel()
	_, _ = c.client.Revoke(ctx, c.leased)
	c.leased = 0
}

// leave ends the membership.
func (c *Cluster) leave() {
	c.giveName()
	ctx, cancel := context.WithTimeout(context.Background(), c.config.Etcd.Timeout)
	defer cancel()
	if c.history.Restored() {
		c.restoredMeanwhile(ctx) // or the next start would take it for what it was
	}
	_ = c.writeMark()
}

// restoredMeanwhile has all logs compared, once etcd was restored below this process.
func (c *Cluster) restoredMeanwhile(ctx context.Context) {
	c.mu.Lock()
	known, done := c.mark, c.announced
	c.mu.Unlock()
	if done {
		return
	}
	err := c.bypass(ctx, func(v *ledger.Values, cluster uint64) error {
		is, err := read(v)
		me := is.origins[c.Origin()]
		raised := is.facts.Generation > known.Generation || me.waits(is.facts.Generation)
		if err != nil || raised && is.lacks(known) == "" && !is.facts.isElsewhere(cluster) {
			return err // another member did it
		}
		return c.nextGeneration(ctx, v, cluster, is, known)
	})
	if err != nil {
		c.options.Logger.Error("etcd was restored, and that cannot be written there yet", "error", err)
		return
	}
	c.mu.Lock()
	c.announced = true
	c.mu.Unlock()
}

// watchMembers learns of the others as soon as they write: the shorter the way, the less is in the bound of the clocks.
func (c *Cluster) watchMembers(ctx context.Context) {
	for ctx.Err() == nil {
		members, revision, err := c.entries(ctx)
		if err == nil {
			there := map[string]bool{c.Origin(): true}
			for _, m := range members {
				there[m.Origin] = true
			}
			for _, m := range c.There() {
				if !there[m.Origin] {
					c.peers.gone(m.Origin)
				}
			}
			c.list(members)
			c.followMembers(ctx, revision+1)
		}
		select {
		case <-time.After(beatEvery):
		case <-ctx.Done():
		}
	}
}

func (c *Cluster) followMembers(ctx context.Context, from int64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := c.config.Etcd.Prefix + prefixMembers
	for got := range c.client.Watch(clientv3.WithRequireLeader(ctx), prefix, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		now := c.options.Now()
		if got.Err() != nil {
			return
		}
		for _, event := range got.Events {
			key := string(event.Kv.Key)
			if event.Type == clientv3.EventTypeDelete {
				if origin, err := url.PathUnescape(strings.TrimPrefix(key, prefix)); err == nil {
					c.peers.gone(origin)
					c.hear(origin, nil, now)
				}
			} else if e, ok := c.readMember(key, event.Kv.Value); ok && e.Origin == c.Origin() {
				c.hearOwn(e)
			} else if ok {
				c.peers.set(e, now)
				c.hear(e.Origin, &e, now)
			}
		}
	}
}

// quota is how full etcd is, as one member of the cluster finds it.
type quota struct {
	mu    sync.Mutex
	full  bool
	used  int64
	limit int64
}

// ErrFull: etcd is so full that nothing new may be begun.
var ErrFull = errors.New("etcd has used 80 % of its quota; nothing new is filed until it was compacted and defragmented, or its quota raised")

// look asks the members of etcd how full they are. If none answers, what was known stays.
func (q *quota) look(ctx context.Context, c *Cluster) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Etcd.Timeout)
	defer cancel()
	var used, limit int64
	for _, endpoint := range c.config.Etcd.Endpoints {
		status, err := c.client.Status(ctx, endpoint)
		if err != nil {
			continue
		}
		if status.DbSizeQuota > 0 && (limit == 0 || status.DbSize*limit > used*status.DbSizeQuota) {
			used, limit = status.DbSize, status.DbSizeQuota
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if limit > 0 {
		q.used, q.limit, q.full = used, limit, used >= limit/5*4
	}
}

// Room is nil, or [ErrFull].
func (c *Cluster) Room() error {
	c.full.mu.Lock()
	defer c.full.mu.Unlock()
	if c.full.full {
		return ErrFull
	}
	return nil
}

// Quota is how many bytes etcd has, and may have; 0 if that is not known.
func (c *Cluster) Quota() (used, limit int64) {
	c.full.mu.Lock()
	defer c.full.mu.Unlock()
	return c.full.used, c.full.limit
}
