// Package etcdtest makes no promise: it is for the tests of this module alone. It starts etcd for tests: real members,
// each a process, whose traffic goes through proxies that can cut it, delay it and hold it. The members end with the
// test.
package etcdtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/etcd"
	"policy-service/pdp/pdptest/judged"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/port"
)

// Options say how a cluster is.
type Options struct {
	Members int   // 3
	Quota   int64 // bytes of each member; 0 is etcd's default
	// Dir is where a member has its data, in memory unless it is given or "".
	Dir func(n int) string
}

// Cluster is some members. What is done to a member is done by its number.
type Cluster struct {
	t       testing.TB
	options Options
	members []*member
	token   string

	mu      sync.Mutex
	clients []*Net
}

type member struct {
	name         string
	data         string
	client, peer string // where it listens
	peers        *proxy // that the others dial
	said         *words // on its standard error

	mu      sync.Mutex // guards what follows
	command *exec.Cmd
	stdin   io.Closer
	ended   chan struct{}
}

// Start starts members, and returns when they have a leader.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	night.Other(t, "etcd")
	if o.Members == 0 {
		o.Members = 3
	}
	c := &Cluster{t: t, options: o, token: "test"}
	dir, err := quick()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for n := range o.Members {
		m := &member{name: fmt.Sprint("m", n), data: filepath.Join(dir, fmt.Sprint("m", n)), client: port.Free(t), peer: port.Free(t), said: new(words)}
		if o.Dir != nil && o.Dir(n) != "" {
			m.data = filepath.Join(o.Dir(n), m.name)
		}
		m.peers = newProxy(t, m.peer)
		c.members = append(c.members, m)
	}
	for _, m := range c.members {
		m.peers.mu.Lock()
		m.peers.of = c.ofMember
		m.peers.mu.Unlock()
	}
	t.Cleanup(func() {
		for n := range c.members {
			c.Kill(n)
		}
	})
	c.startAll()
	return c
}

func (c *Cluster) startAll() {
	c.t.Helper()
	var all sync.WaitGroup
	for n := range c.members {
		all.Go(func() { c.Restart(n) })
	}
	all.Wait()
	c.Settled()
}

// Settled waits until all members that run know the same leader.
func (c *Cluster) Settled() {
	c.t.Helper()
	c.eventually("the members have a leader", func() bool {
		leaders := map[uint64]bool{}
		for n, m := range c.members {
			if !m.runs() {
				continue
			}
			status, err := c.status(n)
			if err != nil {
				return false
			}
			leaders[status.Leader] = true
		}
		return len(leaders) == 1 && !leaders[0]
	})
}

func (c *Cluster) eventually(what string, is func() bool) {
	c.t.Helper()
	Eventually(c.t, what, is)
}

// Eventually waits for another process, which says nothing when it is done: it looks again and again, for a minute at most.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	Succeeds(t, what, func() error {
		if !is() {
			return errors.New("it is not so")
		}
		return nil
	})
}

// Succeeds does something again and again until it succeeds, for a minute at most.
func Succeeds(t testing.TB, what string, do func() error) {
	t.Helper()
	late := time.After(time.Minute)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := do()
		if err == nil {
			return
		}
		select {
		case <-late:
			t.Fatalf("never: %s: %v", what, err)
		case <-time.After(pause):
		}
	}
}

// Restart starts a member that does not run, with the data that it has. While it did not run, a connection of another process may
// have taken its port: it starts once that is free.
func (c *Cluster) Restart(n int) {
	c.t.Helper()
	for late := time.Now().Add(time.Minute); ; {
		said := c.start(n)
		if said == "" {
			return
		}
		if !strings.Contains(said, "address already in use") || time.Now().After(late) {
			c.t.Errorf("member %d did not start: %s", n, said)
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}

// start starts a member, and returns its words if it does not start.
func (c *Cluster) start(n int) (said string) {
	c.t.Helper()
	m := c.members[n]
	before := len(m.said.String())
	command := exec.Command(judged.ProgramOf(c.t, "etcd", "member"), "-name", m.name, "-data", m.data, "-cluster", c.peers(),
		"-token", c.token, "-client", "http://"+m.client, "-peer", "http://"+m.peer, "-advertise", "http://"+m.peers.address(),
		"-quota", fmt.Sprint(c.options.Quota), "-heartbeat", "50") // on a busy machine a leader must not lose others by being late
	stdin, err := command.StdinPipe()
	if err != nil {
		return err.Error()
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return err.Error()
	}
	ended := make(chan struct{})
	command.Stderr = m.said
	m.mu.Lock()
	err = command.Start()
	if err == nil {
		m.command, m.stdin, m.ended = command, stdin, ended
	}
	m.mu.Unlock()
	if err != nil {
		return err.Error()
	}
	ready := make(chan bool, 1)
	go func() {
		said := bufio.NewScanner(stdout)
		ready <- said.Scan()
		_, _ = io.Copy(io.Discard, stdout)
		_ = command.Wait()
		close(ended)
	}()
	select {
	case is := <-ready:
		if !is {
			<-ended
			return "it ended: " + m.said.String()[before:]
		}
	case <-time.After(10 * time.Second): // without a quorum none is ready
	}
	return ""
}

// peers are all members, as each knows them.
func (c *Cluster) peers() string {
	var all []string
	for _, one := range c.members {
		all = append(all, one.name+"=http://"+one.peers.address())
	}
	return strings.Join(all, ",")
}

func (m *member) runs() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.command == nil {
		return false
	}
	select {
	case <-m.ended:
		return false
	default:
		return true
	}
}

// words are those that a process says.
type words struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// Said is all that a member wrote to its standard error since it was first started.
func (c *Cluster) Said(n int) string { return c.members[n].said.String() }

// Fill leaves no room on the disk of a member, which is to have one of its own, until empty.
func (c *Cluster) Fill(n int) (empty func()) {
	c.t.Helper()
	return Fill(c.t, filepath.Dir(c.members[n].data))
}

// Fill leaves no room on the disk of a directory until empty: pages that are given back meanwhile are taken at once.
func Fill(t testing.TB, dir string) (empty func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	fill := func() (err error) {
		for size := 1 << 20; size > 0; {
			if _, err = f.Write(make([]byte, size)); err != nil {
				size /= 2
			}
		}
		return err
	}
	if err := fill(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk of %s is not full: %v", dir, err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		each := time.NewTicker(10 * time.Millisecond)
		defer each.Stop()
		for {
			select {
			case <-stop:
				return
			case <-each.C:
				_ = fill()
			}
		}
	}()
	empty = sync.OnceFunc(func() {
		close(stop)
		<-done
		_ = f.Close()
		_ = os.Remove(f.Name())
	})
	t.Cleanup(empty)
	return empty
}

// Runs reports whether a member runs.
func (c *Cluster) Runs(n int) bool { return c.members[n].runs() }

// Kill ends a member as kill -9 does.
func (c *Cluster) Kill(n int) {
	m := c.members[n]
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.command == nil {
		return
	}
	_ = m.command.Process.Kill()
	<-m.ended
	_ = m.stdin.Close()
	m.command = nil
}

// PID is the process of a member.
func (c *Cluster) PID(n int) int {
	m := c.members[n]
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.command == nil {
		return 0
	}
	return m.command.Process.Pid
}

// ofMember returns the member that has a connection, -1 if the member has ended.
func (c *Cluster) ofMember(from, to net.Addr) int {
	for range 20 {
		inode := inodeOf(from, to)
		for n := range c.members {
			if hasSocket(c.PID(n), inode) {
				return n
			}
		}
		time.Sleep(5 * time.Millisecond) // a socket is in the list of its process a little later than in that of all
	}
	return -1
}

// Isolate cuts a member off from the other members, or from some of them.
func (c *Cluster) Isolate(n int, from ...int) {
	for other, m := range c.members {
		if other == n || len(from) > 0 && !slices.Contains(from, other) {
			continue
		}
		m.peers.cut(n)
		c.members[n].peers.cut(other)
	}
}

// Join undoes all that Isolate did.
func (c *Cluster) Join() {
	for _, m := range c.members {
		m.peers.heal()
	}
}

// Refused is how many connections the proxies have cut or refused, those between members and those of clients.
func (c *Cluster) Refused() (n int64) {
	for _, m := range c.members {
		n += m.peers.refused.Load()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.clients {
		n += one.Refused()
	}
	return n
}

// direct is a client of one member, past all proxies.
func (c *Cluster) direct(n int, within time.Duration, do func(ctx context.Context, client *clientv3.Client) error) error {
	client, err := Dial(c.members[n].client)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return do(ctx, client)
}

func (c *Cluster) status(n int) (status *clientv3.StatusResponse, err error) {
	err = c.direct(n, 2*time.Second, func(ctx context.Context, client *clientv3.Client) error {
		status, err = client.Status(ctx, c.members[n].client)
		return err
	})
	return status, err
}

// Leader is the member that the members take for their leader, and the term.
func (c *Cluster) Leader() (n int, term uint64) {
	c.t.Helper()
	n = -1
	c.eventually("there is a leader", func() bool {
		newest := uint64(0)
		for one, m := range c.members {
			if !m.runs() {
				continue
			}
			status, err := c.status(one)
			if err == nil && status.Leader == status.Header.MemberId && status.RaftTerm > newest {
				n, term, newest = one, status.RaftTerm, status.RaftTerm
			}
		}
		return n >= 0
	})
	return n, term
}

// Snapshot copies what a member has.
func (c *Cluster) Snapshot(n int) (file string) {
	c.t.Helper()
	file = filepath.Join(c.t.TempDir(), "snapshot")
	err := c.direct(n, time.Minute, func(ctx context.Context, client *clientv3.Client) error {
		from, err := client.Snapshot(ctx)
		if err != nil {
			return err
		}
		to, err := os.Create(file)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, from)
		return errors.Join(err, to.Close())
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return file
}

// CopyOf keeps the data of all members, which do not run meanwhile; PutBack has them go on from there, with the same addresses
// and ids, as from an older disk.
func (c *Cluster) CopyOf() (dir string) {
	c.t.Helper()
	dir = c.t.TempDir()
	c.still(func(m *member) error { return os.CopyFS(filepath.Join(dir, m.name), os.DirFS(m.data)) })
	return dir
}

// PutBack puts back what CopyOf kept.
func (c *Cluster) PutBack(dir string) {
	c.t.Helper()
	c.still(func(m *member) error {
		if err := os.RemoveAll(m.data); err != nil {
			return err
		}
		return os.CopyFS(m.data, os.DirFS(filepath.Join(dir, m.name)))
	})
}

// Restore has etcdutl make all members anew of a snapshot, with the same addresses and ids.
func (c *Cluster) Restore(snapshot string, flags ...string) {
	c.t.Helper()
	etcdutl := judged.ProgramOf(c.t, "etcd", "etcdutl")
	c.still(func(m *member) error {
		if err := os.RemoveAll(m.data); err != nil {
			return err
		}
		said, err := exec.Command(etcdutl, append([]string{"snapshot", "restore", snapshot, "--name", m.name, "--data-dir", m.data,
			"--initial-cluster", c.peers(), "--initial-cluster-token", c.token, "--initial-advertise-peer-urls", "http://" + m.peers.address()}, flags...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return nil
	})
}

func (c *Cluster) still(do func(*member) error) {
	c.t.Helper()
	for n := range c.members {
		c.Kill(n)
	}
	for _, m := range c.members {
		if err := do(m); err != nil {
			c.t.Fatal(err)
		}
	}
	c.startAll()
}

// Alarms are those that the members have raised, such as that no space is left.
func (c *Cluster) Alarms() (all []*etcdserverpb.AlarmMember) {
	c.t.Helper()
	for n, m := range c.members {
		if !m.runs() {
			continue
		}
		err := c.direct(n, time.Minute, func(ctx context.Context, client *clientv3.Client) error {
			got, err := client.AlarmList(ctx)
			if err == nil {
				all = got.Alarms
			}
			return err
		})
		if err == nil {
			break
		}
	}
	return all
}

// Net is the way of one client to the members: it has proxies of its own.
type Net struct{ proxies []*proxy }

// Client makes the way of one client.
func (c *Cluster) Client() *Net {
	c.t.Helper()
	n := &Net{}
	for _, m := range c.members {
		n.proxies = append(n.proxies, newProxy(c.t, m.client))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = append(c.clients, n)
	return n
}

// Endpoints are the addresses that the client dials, by member.
func (n *Net) Endpoints() (all []string) {
	for _, p := range n.proxies {
		all = append(all, p.address())
	}
	return all
}

// Cut cuts the client off from some members, or from all.
func (n *Net) Cut(members ...int) {
	for one, p := range n.proxies {
		if len(members) == 0 || slices.Contains(members, one) {
			p.cut(everyone)
		}
	}
}

// Heal undoes Cut, Delay and Hold.
func (n *Net) Heal() {
	for _, p := range n.proxies {
		p.heal()
	}
}

// Delay delays all that goes to and fro.
func (n *Net) Delay(by time.Duration) {
	for _, p := range n.proxies {
		p.slow.Store(int64(by))
	}
}

// Hold keeps all that comes from some members, or from all, until Heal: requests arrive, and are not answered.
func (n *Net) Hold(members ...int) {
	for one, p := range n.proxies {
		if len(members) == 0 || slices.Contains(members, one) {
			p.hold()
		}
	}
}

// Refused is how many connections were cut or refused.
func (n *Net) Refused() (all int64) {
	for _, p := range n.proxies {
		all += p.refused.Load()
	}
	return all
}

// Dial makes a client.
func Dial(endpoints ...string) (*clientv3.Client, error) {
	return DialHearing(func(string, error) {}, endpoints...)
}

// DialHearing makes a client, and calls a function with what each member answers, by the address of the member. The client may
// ask several for one call.
func DialHearing(answer func(member string, err error), endpoints ...string) (*clientv3.Client, error) {
	hear := func(ctx context.Context, method string, request, reply any, on *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
		asked := peer.Peer{Addr: &net.TCPAddr{}}
		err := call(ctx, method, request, reply, on, append(options, grpc.Peer(&asked))...)
		answer(asked.Addr.String(), rpctypes.Error(err))
		return err
	}
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 5 * time.Second, DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
		Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(hear)},
	})
}

// quick is a directory in memory where there is one: a member that is killed loses nothing that it wrote there.
func quick() (string, error) {
	dir, err := os.MkdirTemp("/dev/shm", "etcd")
	if err != nil {
		dir, err = os.MkdirTemp("", "etcd")
	}
	return dir, err
}

var one struct {
	sync.Once
	stdin     io.Closer // open until this program ends
	endpoints []string
	err       error
}

// One is a member that all tests of a program share: each has a prefix of its own. It ends with the program.
func One(t testing.TB) (endpoints []string) {
	t.Helper()
	night.Other(t, "etcd") // before Do, which a test that is skipped would leave done
	one.Do(func() {
		var client string
		if client, one.stdin, one.err = alone(t, "http"); one.err == nil {
			one.endpoints = []string{client}
		}
	})
	if one.err != nil {
		t.Fatal(one.err)
	}
	return one.endpoints
}

// Secure is a member for one test, with TLS. It asks each client for a certificate of the authority in a file.
func Secure(t testing.TB, caFile, certFile, keyFile string) (endpoint string) {
	t.Helper()
	endpoint, stdin, err := alone(t, "https", "-ca", caFile, "-cert", certFile, "-key", keyFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close() })
	return endpoint
}

// alone starts a member without others, which ends with its standard input.
func alone(t testing.TB, scheme string, flags ...string) (client string, stdin io.WriteCloser, err error) {
	dir, err := quick()
	if err != nil {
		return "", nil, err
	}
	client, peer := port.Free(t), port.Free(t)
	command := exec.Command(judged.ProgramOf(t, "etcd", "member"), append(flags, "-data", dir, "-cluster", "m0=http://"+peer,
		"-client", scheme+"://"+client, "-peer", "http://"+peer, "-advertise", "http://"+peer, "-remove")...)
	if stdin, err = command.StdinPipe(); err != nil {
		return "", nil, err
	}
	stdout, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err == nil && !bufio.NewScanner(stdout).Scan() {
		err = fmt.Errorf("the member did not start")
	}
	return client, stdin, err
}

// Change makes a change below the prefix of an engine, as a transaction of another engine: a reader waits for it. Of any other change
// readers learn when their watch brings it.
func Change(ctx context.Context, client *clientv3.Client, prefix string, change clientv3.Op) (revision int64, err error) {
	made, err := client.Txn(ctx).Then(change, clientv3.OpPut(prefix+"rev", "another program")).Commit()
	if err != nil {
		return 0, err
	}
	return made.Header.Revision, nil
}

// Patience is how long a call of etcd may take in tests in which etcd is there, however busy the machine is.
const Patience = 30 * time.Second

// Engine is the engine of one process on a prefix.
func Engine(t testing.TB, prefix string, known ledger.Errors) *etcd.Engine {
	t.Helper()
	return engine(t, prefix, known, One(t))
}

// Engine is the engine of one process on a prefix, by a way of its own.
func (c *Cluster) Engine(prefix string, known ledger.Errors) *etcd.Engine {
	c.t.Helper()
	return engine(c.t, prefix, known, c.Client().Endpoints())
}

func engine(t testing.TB, prefix string, known ledger.Errors, endpoints []string) *etcd.Engine {
	t.Helper()
	client, err := Dial(endpoints...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return etcd.New(etcd.Options{Client: client, Prefix: prefix + "/", Errors: known, Timeout: Patience})
}
