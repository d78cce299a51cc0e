package cluster

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/etcd"
	"policy-service/pdp/internal/plainfile"
)

// The values of the cluster, all of them sealed:
//
//	facts    → common to all members (facts)
//	l/ORIGIN → a log that was ever a member's, for ever (Origin)
//	import   → the import of what a server had (imported)
const (
	keyFacts      = "facts"
	keyImport     = "import"
	prefixOrigins = "l/"
)

func keyOrigin(origin string) string { return prefixOrigins + url.PathEscape(origin) }

// facts are common to all members.
type facts struct {
	// Generation is one more after each time that etcd was restored.
	Generation uint64 `json:"generation"`
	// Cluster is the id of the etcd cluster in which the generation began. A snapshot that was restored has another id, but etcd
	// whose disks were put back has not: an id that is the same proves nothing. 0 is unknown.
	Cluster uint64 `json:"cluster,string,omitzero"`
	// Secrets are the fingerprints of secrets, by the names of their files.
	Secrets map[string]string `json:"secrets"`
	// Signing are the ids of the keys that sign.
	Signing []string `json:"signing"`
}

// Origin is a log that was ever a member's.
type Origin struct {
	// Keys are the verifier keys of the log, oldest first. None is ever taken away.
	Keys []string `json:"keys"`
	// After is how long the log was at least, and Seen when its member last said so.
	After uint64    `json:"after"`
	Seen  time.Time `json:"seen"`
	// Shown is the latest reading of its member's clock when that was right, by [Cluster.Clock]. It never goes back.
	Shown time.Time `json:"shown,omitzero"`
	// Generation is the last in which the log was compared with the state.
	Generation uint64 `json:"generation"`
	// Run names the process that joined last.
	Run string `json:"run,omitzero"`
	// Lost is set if the log will never be compared any more.
	Lost *Lost `json:"lost,omitzero"`
}

// Lost says why and when an origin was given up.
type Lost struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

// waits reports whether the log may have uses that etcd has forgotten. If the origin is lost the log will never say so, and
// all that is open must be revoked.
func (o *Origin) waits(generation uint64) bool { return o.Generation < generation }

// lacks reports whether an origin in etcd is behind what was known of it.
func (o *Origin) lacks(known Origin) bool {
	return o.Generation < known.Generation || o.After < known.After || o.Lost == nil && known.Lost != nil ||
		slices.ContainsFunc(known.Keys, func(key string) bool { return !slices.Contains(o.Keys, key) })
}

// raise adds what was known of an origin.
func (o *Origin) raise(known Origin) {
	for _, key := range o.Keys {
		if !slices.Contains(known.Keys, key) {
			known.Keys = append(slices.Clone(known.Keys), key)
		}
	}
	if known.Seen.Before(o.Seen) {
		known.Seen = o.Seen
	}
	if known.Shown.Before(o.Shown) {
		known.Shown = o.Shown
	}
	known.After, known.Generation = max(known.After, o.After), max(known.Generation, o.Generation)
	known.Lost, known.Run = cmp.Or(o.Lost, known.Lost), o.Run
	*o = known
}

// Joining has the facts that a member states of itself.
type Joining struct {
	// Origin is the name of its log, LogKeys its verifier keys, oldest first, and Size how many records of it are durable.
	Origin  string
	LogKeys func() ([]string, error)
	Size    func() uint64
	// Secrets are the secrets that must be those of the others, by the names of their files. Signing are the ids of the
	// keys that sign: they are replaced by and by, so it suffices that one is known.
	Secrets map[string][]byte
	Signing func() []string
	// Address, Version and Bundle are for readers of the list of members.
	Address func() string
	Version string
	Bundle  func() string
	// Import says that the member takes the state of its data directory into the cluster, which has no other. Until it says that
	// it has, by [Cluster.Imported], there is no other member.
	Import bool
	// EtcdIsCurrent says that etcd is what the replicas left that are not there, for a process that cannot know.
	EtcdIsCurrent bool
}

// mark is the state of etcd as a member last knew it, in a file of its data directory.
type mark struct {
	Cluster    uint64            `json:"cluster,string"`
	Revision   int64             `json:"revision"`
	After      uint64            `json:"after"`
	Generation uint64            `json:"generation"`
	Origins    map[string]Origin `json:"origins"`
	// Last are the last transactions, by their keys; see [etcd.History.Last].
	Last map[string]etcd.Transaction `json:"transactions,omitzero"`
}

// MarkFile is the file of the data directory with the state of etcd as the member last knew it.
const MarkFile = "cluster.json"

const mostMark = 1 << 20

func (c *Cluster) readMark() (m mark, err error) {
	if c.options.Data == "" {
		return m, nil
	}
	name := filepath.Join(c.options.Data, MarkFile)
	text, err := plainfile.Read(name, mostMark)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		err = fmt.Errorf("%s cannot be read: %w; without it a restored etcd may pass for the one before; "+
			"put it back, or move it away: then each replica compares its log, as after that", name, err)
	}
	return m, err
}

// writeMark keeps the mark of now: once etcd was restored, that of before.
func (c *Cluster) writeMark() error {
	c.mu.Lock()
	m := c.mark
	c.mu.Unlock()
	m.Cluster, m.Revision = c.history.Known()
	m.Last = maps.Clone(m.Last) // an engine that is not open yet says nothing
	if m.Last == nil {
		m.Last = map[string]etcd.Transaction{}
	}
	maps.Copy(m.Last, c.history.Last())
	if c.options.Data == "" || m.Cluster == 0 {
		return nil
	}
	text, err := json.Marshal(m, json.Deterministic(true))
	if err != nil {
		return err
	}
	return plainfile.Replace(filepath.Join(c.options.Data, MarkFile), append(text, '\n'))
}

// fingerprint is by the key of the approvals: it says nothing of a secret to a reader of etcd.
func (c *Cluster) fingerprint(name string, secret []byte) string {
	mac := hmac.New(sha256.New, ledger.DeriveKey(c.options.Key, "policy-service cluster fingerprints"))
	_, _ = mac.Write(append([]byte(name+"\x00"), secret...)) // never fails
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// Join makes this process a member: it takes its name, reads what the members have in common, and says what it is. If the error is
// [ErrAway] or [ErrWaiting], the caller is to try again. Any other error says what is to be changed first.
//
// State can be used from then on, so that the ledgers can be opened: their opening compares them with the log here. After
// that [Cluster.Opened] says whether it can be used by others.
func (c *Cluster) Join(ctx context.Context, j Joining) error {
	if err := c.CheckVersion(ctx); err != nil {
		return err
	}
	if c.config.Origin != "" && c.config.Origin != j.Origin {
		return fmt.Errorf("%w: cluster.origin is %q, and the decision log here is %q; write that, or leave it out", ErrRefused, c.config.Origin, j.Origin)
	}
	if err := checkOrigin(j.Origin); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	known, err := c.readMark()
	if err != nil {
		return err
	}
	if err := c.values.Open(ctx); err != nil {
		return c.opening(err)
	}
	keys, err := j.LogKeys()
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.config.Origin, c.joining, c.mark = j.Origin, j, known
	c.mu.Unlock()
	c.history.Write(j.Origin)
	is, err := read(c.values)
	me, there := is.origins[j.Origin]
	if err == nil && there {
		// A log that is refused says nothing about etcd: the others go on.
		if err := me.fits(j.Origin, keys, j.Size()); err != nil {
			return err
		}
	}
	_, was := known.Origins[j.Origin] // a mark alone may be that of a start that was refused, or of another replica
	asks := !was && !there && !j.Import && !j.EtcdIsCurrent && is.hasOthers()
	c.setAsks(asks)
	if err == nil {
		err = c.takeName(ctx)
	}
	if err == nil && asks {
		err = c.findVouch(ctx, is)
	}
	why := ""
	if err == nil {
		why, err = c.restored(ctx, is, known, j.Origin)
	}
	if why != "" || is.facts.Generation > known.Generation || me.waits(is.facts.Generation) {
		c.mu.Lock()
		c.mark.Last = nil // it is of before
		c.mu.Unlock()
	}
	if why != "" {
		c.options.Logger.Error("state stands still until each replica has compared its own log", "error", fmt.Errorf("%w: %s", ErrRestored, why))
		id, _ := c.history.Known()
		err = c.nextGeneration(ctx, c.values, id, is, known)
	}
	if err == nil && j.Import {
		err = c.beginImport(ctx)
	}
	if err == nil {
		err = c.writeMark() // before the origin is there: a replica that had none is taken for one that forgot
	}
	if err == nil {
		err = c.meet(ctx, j, keys)
	}
	if err == nil {
		err = c.learn()
	}
	return c.opening(err)
}

// findVouch waits for a member to say that etcd is what it was, as this process knows nothing of before: etcd may be a copy that has
// forgotten uses, and the replicas that made these are to compare their logs first. A member that can use state answers the random
// name of this process after it compared etcd with what it knows, so that nothing in a copy is an answer.
func (c *Cluster) findVouch(ctx context.Context, is common) error {
	for until := time.Now().Add(vouchWithin); ; {
		entries, _, err := c.entries(ctx)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(entries, func(e entry) bool { return e.Vouches[c.joining.Origin] == c.run }) {
			c.setAsks(false)
			return nil
		}
		if err := is.missing(entries); err != nil || time.Now().After(until) {
			return cmp.Or(err, fmt.Errorf("%w: no replica whose state can be used has said yet that etcd was not restored; "+
				"if they stand still, restart them, so that they compare their logs", ErrWaiting))
		}
		select {
		case <-time.After(vouchEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Cluster) setAsks(asks bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asks = asks
}

const (
	vouchWithin = 2 * beatEvery
	vouchEvery  = 50 * time.Millisecond
)

// hasOthers reports whether etcd knows an origin that is not lost.
func (is *common) hasOthers() bool {
	for _, one := range is.origins {
		if one.Lost == nil {
			return true
		}
	}
	return false
}

// missing refuses a new member if no member is there that may vouch for etcd.
func (is *common) missing(there []entry) error {
	if !is.hasOthers() || slices.ContainsFunc(there, func(e entry) bool { return !e.Asks }) {
		return nil
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(is.origins)) {
		if one := is.origins[name]; one.Lost == nil {
			missing = append(missing, fmt.Sprintf("%s (last seen %s)", name, one.Seen.Format(time.RFC3339)))
		}
	}
	return fmt.Errorf("%w: no replica is there to say whether etcd was restored, and it may have forgotten what these did: %s; start one of them first. "+
		"If none will come back: where etcd was restored, settle each as lost by policy-service approvals settle; where it was not, "+
		"run policy-service cluster join --etcd-is-current", ErrRefused, strings.Join(missing, ", "))
}

// CheckNew refuses a replica with an origin that etcd does not know where none runs that could say what etcd was. See [Cluster.Join].
func (c *Cluster) CheckNew(ctx context.Context, origin string) error {
	if err := c.values.Open(ctx); err != nil {
		return err
	}
	is, err := read(c.values)
	if _, there := is.origins[origin]; err != nil || there {
		return err
	}
	entries, _, err := c.entries(ctx)
	return cmp.Or(err, is.missing(entries))
}

// Begun reports whether any process has joined the cluster. It needs no key.
func Begun(ctx context.Context, c Config) (bool, error) {
	probe, err := Open(ctx, c, Options{Key: make([]byte, 32)})
	if err != nil {
		return false, err
	}
	defer probe.Close()
	ctx, cancel := context.WithTimeout(ctx, probe.config.Etcd.Timeout)
	defer cancel()
	got, err := probe.client.Get(ctx, probe.config.Etcd.Prefix+own+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrAway, err)
	}
	return got.Count > 0, nil
}

func (c *Cluster) opening(err error) error {
	if err == nil || errors.Is(err, ErrRefused) || errors.Is(err, ErrWaiting) {
		return err
	}
	return fmt.Errorf("joining the cluster: %w", err)
}

// common are the values that all members have in common, as of one revision.
type common struct {
	facts   facts
	origins map[string]Origin
}

func read(values *ledger.Values) (is common, err error) {
	err = values.View(func(tx *ledger.Tx) {
		is = common{origins: map[string]Origin{}}
		tx.Get(keyFacts, &is.facts)
		for key, read := range tx.Scan(prefixOrigins, "") {
			name, err := url.PathUnescape(key)
			tx.Fail(err)
			var one Origin
			if read(&one) {
				is.origins[name] = one
			}
		}
	})
	return is, err
}

// lacks is "", or which value is behind what was known of it: none ever goes back or away, but by a copy or by another program.
func (is *common) lacks(known mark) string {
	if is.facts.Generation < known.Generation {
		return fmt.Sprintf("its generation is %d, and was %d", is.facts.Generation, known.Generation)
	}
	for _, name := range slices.Sorted(maps.Keys(known.Origins)) {
		if one := is.origins[name]; one.lacks(known.Origins[name]) {
			return "it has forgotten what was known of " + name
		}
	}
	return ""
}

// restored is "", or why etcd is not what it was when this process last knew it. Once another member has raised the generation, all
// that this process knew is there again.
func (c *Cluster) restored(ctx context.Context, is common, known mark, origin string) (why string, err error) {
	cluster, revision := c.history.Known()
	me, there := is.origins[origin]
	switch lacks := is.lacks(known); {
	case is.facts.isElsewhere(cluster):
		return "it has another cluster id, and no replica has compared its log since", nil
	case known.Cluster == 0 && there:
		return MarkFile + " is missing here", nil
	case known.Cluster == 0 || lacks != "" || is.facts.Generation > known.Generation || me.waits(is.facts.Generation):
		return lacks, nil // a log that waits is compared now
	case cluster != known.Cluster:
		return "it has another cluster id", nil
	case revision < known.Revision:
		return fmt.Sprintf("its revision is %d, and was %d", revision, known.Revision), nil
	}
	return c.own.Lacks(known.Last)
}

// isElsewhere reports whether the generation began in an etcd cluster with another id.
func (f *facts) isElsewhere(cluster uint64) bool { return f.Cluster != 0 && f.Cluster != cluster }

// nextGeneration has every log compared anew, also those that etcd has forgotten. Cluster is the id of etcd now, and known is what
// this process knew before. The generation is raised last, and only once if several members do this: they begin with the same one.
func (c *Cluster) nextGeneration(ctx context.Context, values *ledger.Values, cluster uint64, is common, known mark) error {
	next := max(is.facts.Generation, known.Generation) + 1
	for _, name := range slices.Sorted(maps.Keys(known.Origins)) {
		was := known.Origins[name]
		err := values.Update(ctx, func(ch *ledger.ValuesChange) {
			var there Origin
			ch.Get(keyOrigin(name), &there)
			switch {
			case there.lacks(was):
				there.raise(was)
			case was.Lost != nil && !was.waits(known.Generation): // the copy is from after its uses were counted
				there.Generation = next
			default:
				return
			}
			ch.Put(keyOrigin(name), there)
		})
		if err != nil {
			return err
		}
	}
	return values.Update(ctx, func(ch *ledger.ValuesChange) {
		var is facts
		ch.Get(keyFacts, &is)
		is.Generation, is.Cluster = max(is.Generation, next), cluster
		ch.Put(keyFacts, is)
	})
}

// meet compares this process with the facts that are common to all members, and writes its own.
func (c *Cluster) meet(ctx context.Context, j Joining, keys []string) error {
	secrets := map[string]string{}
	for name, secret := range j.Secrets {
		secrets[name] = c.fingerprint(name, secret)
	}
	size := j.Size()
	cluster, _ := c.history.Known()
	return c.values.Update(ctx, func(ch *ledger.ValuesChange) {
		var is facts
		found := ch.Get(keyFacts, &is) > 0
		before := maps.Clone(is.Secrets)
		if is.Secrets == nil {
			is.Secrets = map[string]string{}
		}
		for _, name := range slices.Sorted(maps.Keys(secrets)) {
			if there, is := before[name]; is && there != secrets[name] {
				ch.Fail(fmt.Errorf("%w: %s here is not that of the other replicas; copy the file of one of them over it", ErrRefused, name))
			}
			is.Secrets[name] = secrets[name]
		}
		signing := j.Signing()
		later := slices.DeleteFunc(slices.Clone(signing), func(id string) bool { return slices.Contains(is.Signing, id) })
		if len(is.Signing) > 0 && len(later) == len(signing) {
			ch.Fail(fmt.Errorf("%w: the signing keys here are not those of the other replicas; copy signing.jwks of one of them over it; "+
				"if that does not help, rotate it there by signing rotate --config FILE, and copy it then", ErrRefused))
		}
		// Keys that came later are those of a rotation, and stay known while a replica has those before.
		if len(later) > 0 {
			is.Signing = signing
		}
		if !found || is.Cluster == 0 || len(later) > 0 || !maps.Equal(before, is.Secrets) {
			is.Generation, is.Cluster = max(is.Generation, 1), cmp.Or(is.Cluster, cluster)
			ch.Put(keyFacts, is)
		}
		me, isNew := Origin{}, false
		isNew = ch.Get(keyOrigin(j.Origin), &me) == 0
		if isNew {
			me.Generation = is.Generation // it has nothing on record that is not here
			if c.mark.Cluster != 0 {
				me.Generation = 0
			}
		}
		ch.Fail(me.fits(j.Origin, keys, size))
		ch.Fail(c.meetImport(ch, j, found))
		me.Keys, me.Seen, me.After, me.Run = keys, c.options.Now().UTC(), max(me.After, size), c.run
		ch.Put(keyOrigin(j.Origin), me)
	})
}

// RotateSigning has the keys that sign replaced, and keeps the ids of those that sign and verify from now on: a start needs
// one of them. Nothing is replaced unless etcd answers.
func (c *Cluster) RotateSigning(ctx context.Context, rotate func() (signing []string, err error)) error {
	if err := c.values.Open(ctx); err != nil {
		return err
	}
	signing, err := rotate()
	if err != nil {
		return err
	}
	return c.values.Update(ctx, func(ch *ledger.ValuesChange) {
		var is facts
		if ch.Get(keyFacts, &is) > 0 { // else the first replica says so
			is.Signing = signing
			ch.Put(keyFacts, is)
		}
	})
}

// fits refuses a log that is not the one which the origin is bound to.
func (o *Origin) fits(origin string, keys []string, size uint64) error {
	another := fmt.Sprintf("take another origin (begin with an empty data directory that has the shared keys alone), and settle %s as lost", origin)
	if o.Lost != nil {
		return fmt.Errorf("%w: %s was settled as lost at %s (%s), and its uses are counted; read its log with the log commands, and %s",
			ErrRefused, origin, o.Lost.At.Format(time.RFC3339), o.Lost.Reason, another)
	}
	for _, key := range o.Keys {
		if !slices.Contains(keys, key) {
			return fmt.Errorf("%w: %s is the name of another log, with the key %s; %s", ErrRefused, origin, key, another)
		}
	}
	if size < o.After {
		return fmt.Errorf("%w: the log of %s had %d records at least, and has %d here; put the right log back, or %s", ErrRefused, origin, o.After, size, another)
	}
	return nil
}

// learn reads the origins, and finds out whether state can be used. What was known and is gone is [ErrRestored] from then on.
func (c *Cluster) learn() error {
	c.learning.Lock()
	defer c.learning.Unlock()
	is, err := read(c.values)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if lacks := is.lacks(c.mark); lacks != "" {
		c.history.Refuse()
		return fmt.Errorf("%w: %s", ErrRestored, lacks)
	}
	me := is.origins[c.config.Origin]
	c.mark.Generation, c.mark.Origins, c.mark.After = is.facts.Generation, is.origins, me.After
	c.waiting = nil
	for _, name := range slices.Sorted(maps.Keys(is.origins)) {
		if one := is.origins[name]; one.waits(is.facts.Generation) {
			c.waiting = append(c.waiting, name)
		}
	}
	return nil
}

// Opened says that the ledgers were opened, and so compared with the log here. It returns when state can be used, or stands
// still until others have compared theirs. If etcd was restored, and origins were lost since, revoke is called with these: it
// is to revoke all that is open, because its uses cannot be counted.
func (c *Cluster) Opened(ctx context.Context, revoke func(ctx context.Context, lost []string) error) error {
	if err := c.stands(); err != nil {
		return err // another process took the name meanwhile
	}
	lost, err := c.uncounted()
	if err == nil && len(lost) > 0 {
		err = revoke(ctx, lost)
	}
	if err == nil {
		err = c.values.Update(ctx, func(ch *ledger.ValuesChange) {
			var is facts
			ch.Get(keyFacts, &is)
			for _, origin := range append(lost, c.Origin()) {
				var one Origin
				if ch.Get(keyOrigin(origin), &one); one.Generation != is.Generation {
					one.Generation = is.Generation
					ch.Put(keyOrigin(origin), one)
				}
			}
		})
	}
	if err == nil {
		err = c.learn()
	}
	if err == nil {
		c.mu.Lock()
		c.opened = true
		c.mu.Unlock()
		err = c.writeMark()
	}
	if err == nil {
		if stands := c.stands(); errors.Is(stands, ErrRefused) {
			err = stands
		}
	}
	return c.opening(err)
}

// uncounted are the origins that are lost, and may have uses that etcd has forgotten.
func (c *Cluster) uncounted() (lost []string, err error) {
	if err := c.learn(); err != nil {
		return nil, c.opening(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.mark.Origins)) {
		if one := c.mark.Origins[name]; one.Lost != nil && one.waits(c.mark.Generation) {
			lost = append(lost, name)
		}
	}
	return lost, nil
}

// Origins are all logs that were ever a member's, by their names.
func (c *Cluster) Origins(ctx context.Context) (map[string]Origin, error) {
	if err := c.values.Open(ctx); err != nil {
		return nil, err
	}
	if err := c.learn(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.mark.Origins), nil
}

// LogKeys are the verifier keys of the log of an origin, which it is bound to for ever; none if it is unknown. Etcd is asked for
// those of an origin that was not there at the last beat.
func (c *Cluster) LogKeys(origin string) (keys []string, err error) {
	c.mu.Lock()
	is, known := c.mark.Origins[origin]
	c.mu.Unlock()
	if !known {
		err = c.values.View(func(tx *ledger.Tx) { tx.Get(keyOrigin(origin), &is) })
	}
	return is.Keys, err
}

// endedFor is how long a member must have been gone before its origin can be given up.
const endedFor = 10 * time.Minute

// SettleLost says that the log of an origin will never be compared any more. It is refused while the origin has a member,
// and, unless now is set, until 10 minutes after that ended.
func (c *Cluster) SettleLost(ctx context.Context, origin, reason string, now bool) error {
	if strings.TrimSpace(reason) == "" {
		return fmt.Errorf("%w: settling %s as lost needs a reason", ledger.ErrInvalid, origin)
	}
	if err := c.values.Open(ctx); err != nil {
		return err
	}
	members, err := c.Members(ctx)
	if err != nil {
		return err
	}
	// A clock says nothing here, as that of this machine may be ahead.
	if slices.ContainsFunc(members, func(m Member) bool { return m.Origin == origin }) {
		return fmt.Errorf("%w: %s has a member that runs, or ran %d s ago; stop it first", ledger.ErrInvalid, origin, memberTTL)
	}
	at := c.options.Now().UTC()
	return c.values.Update(ctx, func(ch *ledger.ValuesChange) {
		var is Origin
		switch {
		case ch.Get(keyOrigin(origin), &is) == 0:
			ch.Fail(fmt.Errorf("%w: no replica ever had the origin %s", ledger.ErrInvalid, origin))
		case is.Lost != nil: // once is enough
		case !now && at.Sub(is.Seen) < endedFor+sayEvery:
			ch.Fail(fmt.Errorf("%w: %s was there at %s, less than %v ago; wait, or add --now if it will never come back",
				ledger.ErrInvalid, origin, is.Seen.Format(time.RFC3339), endedFor+sayEvery))
		default:
			is.Lost = &Lost{at, reason}
			ch.Put(keyOrigin(origin), is)
		}
	})
}

// bypass runs a function on values of the cluster whose engine knows nothing of etcd before, with the id that etcd has.
func (c *Cluster) bypass(ctx context.Context, do func(values *ledger.Values, cluster uint64) error) error {
	history := new(etcd.History)
	e := etcd.New(etcd.Options{History: history, Client: c.client, Prefix: c.config.Etcd.Prefix + own + "/", Errors: known, Timeout: c.config.Etcd.Timeout, Usable: c.open})
	values := ledger.NewValues(e, c.form())
	if err := values.Open(ctx); err != nil {
		return err
	}
	cluster, _ := history.Known()
	return errors.Join(do(values, cluster), values.Close())
}
