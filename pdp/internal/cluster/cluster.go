// Package cluster is what the processes of one cluster share: the etcd that they keep their state in, and the list of them.
//
// [Open] reaches etcd, and [Cluster.Engine] is an engine of a ledger there. A process that serves joins the cluster with
// [Cluster.Join]: its secrets must be those of the others, and the name of its log its own. Commands need not join.
//
// Each name is one process's at a time, that which has its lease in etcd. Otherwise the list of members is shown, and bounds how
// far clocks may differ. Whether state can be used is decided by [Cluster.Usable], which each engine asks before each call.
package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/etcd"
)

// The errors that readers tell apart. Each stands for state that cannot be used now; nothing is granted meanwhile.
var (
	// ErrAway: etcd does not answer.
	ErrAway = errors.New("etcd does not answer")
	// ErrState is part of each error of state that cannot be used.
	ErrState = etcd.ErrEtcd
	// ErrRefused: this process must not be a member as it is.
	ErrRefused = errors.New("this process cannot be a member of the cluster")
	// ErrWaiting: this process cannot be a member yet.
	ErrWaiting = errors.New("this process waits")
	// ErrRestored: etcd is not what it was, and not all logs were compared with it yet.
	ErrRestored = etcd.ErrRestored
	// ErrElsewhere: another process is to record a change before anything may follow from it.
	ErrElsewhere = ledger.ErrElsewhere
	// ErrClosed: the cluster was left.
	ErrClosed = errors.New("the cluster was left")
)

// Options are what a [Cluster] is given. All but Key may be left out.
type Options struct {
	// Key is approvals.key: values in etcd are sealed with keys that are derived from it.
	Key []byte
	// Data is the directory in which a process that serves keeps what it knows of etcd; "" is none.
	Data string
	Now  func() time.Time
	// Elapsed is the time that passed since some moment, by a clock that nobody sets: the machine's monotonic one.
	Elapsed func() time.Duration
	// ClockSkew is by how much the clocks of two members may differ, ten seconds if it is 0. See [Cluster.Clock].
	ClockSkew time.Duration
	Logger    *slog.Logger
	// Later has Open not wait for etcd. [Cluster.Join] does then.
	Later bool
}

// Cluster is the connection of one process.
type Cluster struct {
	config  Config
	options Options
	client  *clientv3.Client
	history *etcd.History
	own     *etcd.Engine // of the values
	values  *ledger.Values

	peers   peers
	clocks  clocks
	full    quota
	run     string  // random: tells this process from any other of its name
	joining Joining // since [Cluster.Join]
	beats   int     // Run alone has it

	// Join has these, then the function that stopHolding stops, and then Run.
	leased      clientv3.LeaseID
	found       int64 // the revision of the entry of another process under the name; 0 is none
	stopHolding func()

	learning sync.Mutex // held from the read to [Cluster.mark]

	mu        sync.Mutex // guards what follows
	closed    bool
	opened    bool      // the ledgers are
	asks      bool      // for a vouch
	taken     bool      // another process had the name after this one
	until     time.Time // the name is this process's at least until then
	mark      mark      // what is in it never goes back
	waiting   []string  // the origins that have not compared their logs since etcd was restored
	away      error     // why the last beat failed, nil if it did not, and since when
	since     time.Time
	announced bool // that etcd was restored while this process ran
	engines   []*etcd.Engine
}

// The names of the engines.
const (
	Approvals    = "approvals"
	Capabilities = "capabilities"
	Keys         = "keys"
	Console      = "console"
	own          = "cluster"
)

// defaultPrefix begins the keys of a configuration that names no prefix.
const defaultPrefix = "/policy-service/v1/"

// Open reaches etcd. It refuses a version that is too old.
func Open(ctx context.Context, c Config, o Options) (*Cluster, error) {
	var mistakes []error
	if c.Etcd.Prefix == "" {
		c.Etcd.Prefix = defaultPrefix
	}
	c.Check(func(_ string, err error) { mistakes = append(mistakes, err) })
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	if len(o.Key) == 0 {
		return nil, errors.New("opening the cluster: there is no approvals.key; it must be the same file at all replicas")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Elapsed == nil {
		began := time.Now()
		o.Elapsed = func() time.Duration { return time.Since(began) }
	}
	o.ClockSkew = cmp.Or(o.ClockSkew, 10*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Etcd.Timeout == 0 {
		c.Etcd.Timeout = etcd.DefaultTimeout
	}
	client, err := dial(&c.Etcd)
	if err != nil {
		return nil, fmt.Errorf("opening the cluster: %w", err)
	}
	cl := &Cluster{config: c, options: o, client: client, history: new(etcd.History), run: rand.Text()}
	cl.peers.there, cl.peers.ahead = map[string]Member{}, map[string]time.Duration{}
	cl.peers.ask, cl.peers.asked = map[string]string{}, make(chan struct{}, 1)
	cl.clocks.others, cl.clocks.met = map[string]*otherClock{}, make(chan struct{}, 1)
	cl.own = cl.Engine(own, known)
	cl.values = ledger.NewValues(cl.own, cl.form())
	if o.Later {
		return cl, nil
	}
	if err := cl.CheckVersion(ctx); err != nil {
		cl.Close()
		return nil, err
	}
	return cl, nil
}

func (c *Cluster) form() ledger.Form {
	return ledger.Form{Items: "the cluster", Key: c.Derive("cluster values"), Version: 1, Errors: known}
}

// known are the errors of the cluster's own values.
var known = ledger.Errors{
	Unavailable: ErrAway,
	Closed:      ErrClosed,
	Locked:      ErrAway,
	Damaged:     errors.New("the cluster's values in etcd are damaged, or another approvals.key wrote them"),
	NotFound:    errors.New("there is no such value of the cluster"),
}

// dial makes a client. It does not wait for etcd, nor for a token of it.
func dial(c *EtcdConfig) (*clientv3.Client, error) {
	tls, err := c.tls()
	if err != nil {
		return nil, err
	}
	password, err := c.password()
	if err != nil {
		return nil, err
	}
	cfg := clientv3.Config{
		Endpoints:            c.Endpoints,
		DialTimeout:          c.Timeout,
		DialKeepAliveTime:    5 * time.Second, // or a network that drops everything is noticed by the timeout of TCP
		DialKeepAliveTimeout: 2 * time.Second,
		PermitWithoutStream:  true,
		TLS:                  tls,
		Logger:               zap.NewNop(), // what fails is an error here
	}
	if c.Username != "" {
		cfg.Token = "none" // has New not ask for one: the first call that is refused does
	}
	client, err := clientv3.New(cfg)
	if err == nil {
		client.Token, client.Username, client.Password = "", c.Username, password
	}
	return client, err
}

// leastMinor is the least version of etcd 3 that is supported.
const leastMinor = 6

// CheckVersion asks each member of etcd for its version, and refuses one that is too old. It suffices if one answers.
func (c *Cluster) CheckVersion(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.Etcd.Timeout)
	defer cancel()
	type answer struct {
		endpoint, version string
		err               error
	}
	answers := make(chan answer, len(c.config.Etcd.Endpoints))
	for _, endpoint := range c.config.Etcd.Endpoints {
		go func() {
			status, err := c.client.Status(ctx, endpoint)
			if err != nil {
				answers <- answer{endpoint: endpoint, err: cmp.Or(c.config.Etcd.unreached(endpoint), err)}
				return
			}
			answers <- answer{endpoint: endpoint, version: status.Version}
		}()
	}
	var errs []error
	answered := false
	for range c.config.Etcd.Endpoints {
		a := <-answers
		switch {
		case a.err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", a.endpoint, a.err))
		case !newEnough(a.version):
			return fmt.Errorf("%w: %s is etcd %s, and 3.%d is the least; upgrade etcd first", ErrRefused, a.endpoint, a.version, leastMinor)
		default:
			answered = true
		}
	}
	if !answered {
		return fmt.Errorf("%w: %w; see whether it runs, and whether cluster.etcd is right", ErrAway, errors.Join(errs...))
	}
	return nil
}

// unreached is why an endpoint cannot be reached: the client of etcd says no more than that it waited.
func (c *EtcdConfig) unreached(endpoint string) error {
	secure, err := c.tls()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	at, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at.Host)
	if err != nil || secure == nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	secure.ServerName, secure.NextProtos = at.Hostname(), []string{"h2"}
	over := tls.Client(conn, secure)
	if err := over.HandshakeContext(ctx); err != nil {
		return err
	}
	// A certificate is refused after the handshake; else the server speaks first.
	_ = over.SetReadDeadline(time.Now().Add(2 * time.Second))
	if _, err = over.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

func newEnough(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	m, err := strconv.Atoi(major)
	n, err2 := strconv.Atoi(minor)
	return err == nil && err2 == nil && (m > 3 || m == 3 && n >= leastMinor)
}

// Engine is the engine of a ledger: [Approvals], [Capabilities], [Keys] or [Console]. One that is to be used by two is made twice.
func (c *Cluster) Engine(name string, errs ledger.Errors) *etcd.Engine {
	usable := c.Usable
	if name == own {
		usable = c.open // or nothing could ever mend it
	}
	e := etcd.New(etcd.Options{
		Client:  c.client,
		Prefix:  c.config.Etcd.Prefix + name + "/",
		Errors:  errs,
		Timeout: c.config.Etcd.Timeout,
		Usable:  usable,
		Pulse:   name == Keys,
		History: c.history,
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engines = append(c.engines, e)
	return e
}

// Calls counts the calls of etcd by all engines: those that read, and the transactions that write.
func (c *Cluster) Calls() (reads, commits uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.engines {
		r, w := e.Calls()
		reads, commits = reads+r, commits+w
	}
	return reads, commits
}

// Usable is nil, or the reason why state cannot be used. It asks nothing of etcd. While etcd does not answer to the member
// itself, requests need not wait until it does not answer to them.
func (c *Cluster) Usable() error {
	if err := c.stands(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away
}

// stands is nil, or the reason why state stands still even if etcd answers.
func (c *Cluster) stands() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case !c.opened && !c.taken: // no request is served yet
		return nil
	case c.mark.Origins[c.config.Origin].Lost != nil: // it was counted out while it was cut off
		return fmt.Errorf("%w: %s was settled as lost; stop it, and begin with an empty data directory", ErrRefused, c.config.Origin)
	case !c.history.Restored() && (c.taken || c.mark.Origins[c.config.Origin].Run != c.run):
		return fmt.Errorf("%w: another process took the name %s after this one did not reach etcd for %d s, and has it now or had it; stop this one, "+
			"and see that no two processes have copies of one data directory", ErrRefused, c.config.Origin, memberTTL)
	case c.history.Restored() || slices.Contains(c.waiting, c.config.Origin):
		return fmt.Errorf("%w; restart this replica, which compares its log", ErrRestored)
	case len(c.waiting) > 0:
		return fmt.Errorf("%w; these have not compared their logs yet: %s; restart them, or settle as lost those that will never come back, and restart one replica then",
			ErrRestored, strings.Join(c.waiting, ", "))
	case time.Now().After(c.until): // an early word: not even this clock runs while a machine is suspended, and settling decides
		return fmt.Errorf("%w: the lease of %s has ended", ErrAway, c.config.Origin)
	}
	return nil
}

// Away is nil, or the reason why state could not be used at the last look, and since when.
func (c *Cluster) Away() (since time.Time, err error) {
	usable := c.stands()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = cmp.Or(usable, c.away); err != nil && c.away == nil {
		return c.options.Now().UTC(), err
	}
	return c.since, err
}

// open is [Cluster.Usable] for the values by which a cluster that stands still goes on.
func (c *Cluster) open() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	return nil
}

// Origin is the name of this process: that of its log. It is "" if the configuration does not say, until it has joined.
func (c *Cluster) Origin() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.config.Origin
}

// Generation is one more after each time that etcd was restored. It is known after [Cluster.Join].
func (c *Cluster) Generation() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mark.Generation
}

// NonceKey makes the nonces of all members. What etcd knows of proofs that were taken is forgotten when it is restored, so that
// each generation has another one.
func (c *Cluster) NonceKey() []byte {
	return c.Derive(fmt.Sprintf("nonces of generation %d", c.Generation()))
}

// Derive makes a key of one use, the same at all members.
func (c *Cluster) Derive(use string) []byte {
	return ledger.DeriveKey(c.options.Key, "policy-service "+use)
}

// KeysStale is how long API keys count after the last contact with etcd.
func (c *Cluster) KeysStale() time.Duration { return c.config.KeysStale }

// Close leaves the cluster. The engines must have been closed.
func (c *Cluster) Close() {
	c.mu.Lock()
	was := c.closed
	c.closed = true
	c.mu.Unlock()
	if !was {
		if c.stopHolding != nil {
			c.stopHolding()
		}
		c.giveName()
		_ = c.values.Close()
		_ = c.client.Close()
	}
}
