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
	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/pdp/ledger"
	"policy-service/pdp/ledger/etcd"
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

// Each member stands under PREFIX/members/ORIGIN with a lease. It is JSON after its HMAC-SHA256. A writer to etcd without
// the key makes none; an older value that it puts back makes clocks differ by more, which refuses more.
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

func (c *Cluster) readMember(key string, value []byte) (m Member, ok bool) {
	if len(value) < sha256.Size || !hmac.Equal(value[:sha256.Size], c.sumMember(key, value[sha256.Size:])) {
		return m, false
	}
	return m, json.Unmarshal(value[sha256.Size:], &m) == nil && c.keyMember(m.Origin) == key
}

// mostMembers bounds a read.
const mostMembers = 1000

// Members are the processes that are there, by their origins.
func (c *Cluster) Members(ctx context.Context) ([]Member, error) {
	members, _, err := c.members(ctx)
	return members, err
}

func (c *Cluster) members(ctx context.Context) (members []Member, revision int64, err error) {
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
		if m, ok := c.readMember(string(kv.Key), kv.Value); ok {
			members = append(members, m)
		}
	}
	return members, got.Header.Revision, nil
}

// peers are the other members, as the watch brings them.
type peers struct {
	mu    sync.Mutex
	there map[string]Member
	ahead map[string]time.Duration // of this process, at most
}

func (p *peers) set(m Member, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.there[m.Origin], p.ahead[m.Origin] = m, now.Sub(m.Clock)
}

func (p *peers) gone(origin string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.there, origin)
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
		case <-ctx.Done():
			c.leave()
			return
		}
	}
}

// heard notes whether etcd answers, and says so once.
func (c *Cluster) heard(err error) {
	c.mu.Lock()
	before := c.away
	if c.away = err; err != nil && before == nil {
		c.since = c.options.Now().UTC()
	}
	c.mu.Unlock()
	switch {
	case err != nil && before == nil:
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
	if err := c.lease(ctx); err != nil {
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
	if err := c.stands(); err != nil && errors.Is(err, ErrRefused) {
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

// lease writes the member.
func (c *Cluster) lease(running context.Context) error {
	ctx, cancel := context.WithTimeout(running, c.config.Etcd.Timeout)
	defer cancel()
	if c.leased != 0 {
		err := etcd.Led(ctx, func(ctx context.Context) error {
			_, err := c.client.KeepAliveOnce(ctx, c.leased)
			return err
		})
		if running.Err() != nil {
			return err // and leave takes the lease away
		}
		if err != nil {
			c.leased = 0 // it ended, or is looked for in vain: another is as good
		}
	}
	if c.leased == 0 {
		err := etcd.Led(ctx, func(ctx context.Context) error {
			granted, err := c.client.Grant(ctx, memberTTL)
			if err == nil {
				c.leased = granted.ID
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	j := c.joining
	m := Member{Origin: j.Origin, Address: j.Address(), Version: j.Version, Bundle: j.Bundle(), Ahead: map[string]int64{}}
	c.peers.mu.Lock()
	for origin, ahead := range c.peers.ahead {
		m.Ahead[origin] = int64(ahead)
	}
	c.peers.mu.Unlock()
	key := c.keyMember(j.Origin)
	return etcd.Led(ctx, func(ctx context.Context) error {
		m.Clock = c.options.Now().UTC() // as late as can be
		text, err := json.Marshal(m, json.Deterministic(true))
		if err == nil {
			_, err = c.client.Put(ctx, key, string(append(c.sumMember(key, text), text...)), clientv3.WithLease(c.leased))
		}
		return err
	})
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
	if now.Sub(was.Seen) < sayEvery && slices.Equal(was.Keys, keys) {
		return false, nil
	}
	size := c.joining.Size()
	return true, c.values.Update(ctx, func(ch *ledger.ValuesChange) {
		var me Origin
		ch.Get(keyOrigin(origin), &me)
		ch.Fail(me.fits(origin, keys, size))
		me.Keys, me.Seen, me.After = keys, now, max(me.After, size)
		ch.Put(keyOrigin(origin), me)
	})
}

// leave takes the member away, or it would stand there until its lease ends.
func (c *Cluster) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), c.config.Etcd.Timeout)
	defer cancel()
	if c.leased != 0 {
		_, _ = c.client.Revoke(ctx, c.leased)
	}
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
	err := c.bypass(ctx, func(v *ledger.Values) error {
		is, err := read(v)
		me := is.origins[c.Origin()]
		if err != nil || (is.facts.Generation > known.Generation || me.waits(is.facts.Generation)) && is.lacks(known) == "" {
			return err // another member did it
		}
		return c.nextGeneration(ctx, v, is, known)
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
		members, revision, err := c.members(ctx)
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
				}
			} else if m, ok := c.readMember(key, event.Kv.Value); ok && m.Origin != c.Origin() {
				c.peers.set(m, now)
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
