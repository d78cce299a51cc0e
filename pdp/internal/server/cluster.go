package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
	store "policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/datakey"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/internal/server/telemetry"
	"policy-service/pdp/internal/signing"
	"policy-service/pdp/internal/version"
)

const keyCluster = "cluster"

// checkClusterValues looks for mistakes in the values of the section.
func (c *Config) checkClusterValues(r *config.Reading) {
	if c.Cluster == nil {
		return
	}
	c.Cluster.Check(func(key string, err error) { r.Add(keyCluster+"."+key, err) })
}

// checkCluster refuses what no replica can do.
func (c *Config) checkCluster() error {
	switch {
	case c.Cluster == nil:
		return nil
	case c.Data == "":
		return errors.New("cluster needs a directory for the decision log of this replica; add --data, or data in the configuration")
	case c.Program.PDP.Recorder != nil:
		return errors.New("cluster needs a decision log of the server's own, and the program that embeds it records by itself; leave cluster out")
	case c.Program.InProcess:
		return errors.New("cluster is for a server that others ask by its address; leave it out")
	}
	return nil
}

// MissingShared says which keys a data directory lacks that all replicas of a cluster have, one error a key. Only the first
// replica of all makes them, and a start takes those of cluster.secrets.
func MissingShared(data string, c *cluster.Config) (errs []error) {
	for _, name := range missingShared(data) {
		if c.Secrets != "" {
			if info, err := os.Stat(filepath.Join(c.Secrets, name)); err == nil && info.Size() > 0 {
				continue
			}
		}
		errs = append(errs, fmt.Errorf("%s is missing, and must be the same at all replicas; copy it from another replica (never log.key)",
			filepath.Join(data, name)))
	}
	return errs
}

// takeShared copies from cluster.secrets the keys that the data directory lacks.
func takeShared(data string, c *cluster.Config) error {
	if c.Secrets == "" {
		return nil
	}
	for _, name := range missingShared(data) {
		secret, err := plainfile.ReadPrivate(filepath.Join(c.Secrets, name), 1<<20)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the first replica makes it, and the others refuse to start
		}
		if err == nil {
			err = os.MkdirAll(data, 0o700)
		}
		if err == nil {
			err = plainfile.Replace(filepath.Join(data, name), secret)
		}
		if err != nil {
			return fmt.Errorf("cluster.secrets: %w", err)
		}
	}
	return nil
}

// shared are the keys that all replicas of a cluster have, besides that of signatures. Never that of a log.
func shared() []datakey.Key { return []datakey.Key{broker.Key, pageKey, maskKey} }

func missingShared(data string) (names []string) {
	for _, key := range shared() {
		if !key.There(data) {
			names = append(names, key.File)
		}
	}
	if info, err := os.Stat(filepath.Join(data, signing.File)); err != nil || info.Size() == 0 {
		names = append(names, signing.File)
	}
	return names
}

// IsReplica reports whether a data directory is that of a replica, whose state is in etcd.
func IsReplica(data string) bool {
	_, err := os.Lstat(filepath.Join(data, cluster.MarkFile))
	return err == nil
}

// checkShared refuses to make keys that the other replicas have. Only the first replica of all makes them. Without a cluster, it
// refuses the directory of a replica: what that knows is in etcd.
func (s *Server) checkShared(ctx context.Context) error {
	c := s.config.Cluster
	if c == nil {
		if s.config.Data != "" && IsReplica(s.config.Data) {
			return fmt.Errorf("%s is the directory of a replica, whose state is in etcd; add cluster to the configuration, or begin with a new directory", s.config.Data)
		}
		return nil
	}
	if err := takeShared(s.config.Data, c); err != nil {
		return err
	}
	missing := missingShared(s.config.Data)
	if len(missing) == 0 {
		return nil
	}
	begun, err := cluster.Begun(ctx, *c)
	if err != nil {
		return fmt.Errorf("%s has no %s, and whether other replicas have them cannot be known: %w", s.config.Data, strings.Join(missing, ", "), err)
	}
	if begun {
		return fmt.Errorf("%s has no %s, which must be the same at all replicas; copy these files from another replica (never log.key)",
			s.config.Data, strings.Join(missing, ", "))
	}
	return nil
}

// joinCluster makes the server a member. It waits for etcd, and for the end of another process under its name, and says so to
// callers meanwhile.
func (s *Server) joinCluster(ctx context.Context, key []byte) error {
	if s.config.Cluster == nil {
		return nil
	}
	c, joining, err := s.openCluster(ctx, key)
	if err != nil {
		return err
	}
	return s.join(ctx, c, joining, func(err error) error {
		waiting := "etcd does not answer"
		if errors.Is(err, cluster.ErrWaiting) {
			waiting = err.Error()
		}
		if said := s.waiting.Swap(&waiting); said == nil || *said != waiting {
			s.log.Error("waiting: nothing is answered until this replica has joined the cluster", "error", err)
		}
		if s.early == nil {
			return s.listenEarly(ctx)
		}
		return nil
	})
}

// join makes this process a member. Whenever it has to wait, it calls waits with the reason.
func (s *Server) join(ctx context.Context, c *cluster.Cluster, joining cluster.Joining, waits func(error) error) error {
	for {
		err := c.Join(ctx, joining)
		if err == nil {
			s.cluster = c
			return nil
		}
		if !errors.Is(err, cluster.ErrWaiting) && !errors.Is(err, cluster.ErrAway) {
			return err
		}
		if failed := waits(err); failed != nil {
			return failed
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// openCluster prepares for joining the cluster, and does not wait for etcd.
func (s *Server) openCluster(ctx context.Context, key []byte) (*cluster.Cluster, cluster.Joining, error) {
	joining := cluster.Joining{
		Origin:  s.decisions.log.Origin(),
		LogKeys: func() ([]string, error) { return segment.VerifierKeys(s.config.Data) },
		Size:    s.decisions.log.Size,
		Secrets: map[string][]byte{},
		Signing: s.keys.signing.IDs,
		Address: s.listeners.address,
		Version: version.This().Version,
		Bundle:  func() string { return s.pdp.Status().Digest },
	}
	if was := s.decisions.restored; was.goesOn() {
		// Whatever etcd knows beyond the backup came after it. The records of this start must not make up for that.
		joining.Size = func() uint64 {
			if s.decisions.restored != nil {
				return was.Record.Size
			}
			return s.decisions.log.Size()
		}
	}
	for _, one := range shared() {
		secret, err := one.Read(s.config.Data)
		if err != nil {
			return nil, joining, err
		}
		joining.Secrets[one.File] = secret
	}
	c, err := cluster.Open(ctx, *s.config.Cluster, cluster.Options{
		Key: key, Data: s.config.Data, Now: s.now, Elapsed: s.config.Program.elapsed, ClockSkew: s.config.Capabilities.ClockSkew, Logger: s.log, Later: true,
	})
	if err == nil {
		s.lifetime.add("cluster", closing(func() error { c.Close(); return nil }))
	}
	return c, joining, err
}

// approvalsOnCluster has approvals kept in etcd, if there is a cluster, and capabilitiesOnCluster capabilities.
func (s *Server) approvalsOnCluster(o *approval.Options) {
	if c := s.cluster; c != nil {
		o.Engine, o.Origin = c.Engine(cluster.Approvals, approval.EngineErrors()), c.Origin()
		o.Behind, o.Room, o.Lost = c.Behind, c.Room, s.lostOrigins
		o.Generation = c.Generation()
	}
}

func (s *Server) capabilitiesOnCluster(o *store.Options) {
	if c := s.cluster; c != nil {
		o.Engine, o.Origin = c.Engine(cluster.Capabilities, store.EngineErrors()), c.Origin()
		o.Behind, o.Room, o.Lost = c.Behind, c.Room, s.lostOrigins
		o.Generation = c.Generation()
	}
}

// logKeys are the keys of the log of another replica.
func (s *Server) logKeys(origin string) ([]string, error) {
	if s.cluster == nil {
		return nil, nil
	}
	return s.cluster.LogKeys(origin)
}

// lostOrigins are the replicas whose logs will never say anything any more.
func (s *Server) lostOrigins(ctx context.Context) (lost []string, err error) {
	all, err := s.cluster.Origins(ctx)
	for name, origin := range all {
		if origin.Lost != nil {
			lost = append(lost, name)
		}
	}
	return lost, err
}

// revokeUncounted revokes all that is open: the logs of some origins, which are lost, may have uses that etcd has forgotten.
func (s *Server) revokeUncounted(ctx context.Context, lost []string) error {
	reason := "etcd was restored, and the log of " + strings.Join(lost, ", ") + ", which may have uses of it, is lost"
	s.log.Warn("all that is open is revoked", "reason", reason)
	return onceRecorded(ctx, s.log, func() error { return s.revokeOpen(ctx, reason) })
}

// onceRecorded does something again, for a minute, while another replica has begun what it has not recorded yet: several may
// start at once.
func onceRecorded(ctx context.Context, log *slog.Logger, do func() error) error {
	for left := 60; ; left-- {
		err := do()
		switch {
		case !errors.Is(err, cluster.ErrElsewhere):
			return err
		case left == 0:
			return fmt.Errorf("%w; restart that replica, or settle it as lost, and then start this one", err)
		}
		log.Warn("waiting for what another replica is to record", "error", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

func (s *Server) revokeOpen(ctx context.Context, reason string) error {
	const by = "policy-service"
	lost, err := s.lostOrigins(ctx) // with those of before, of which the copy may have what was settled since
	if err != nil {
		return err
	}
	if b := s.approvals.Broker; b != nil {
		if err := settle(ctx, lost, b.Store.SettleLost); err != nil {
			return err
		}
		if err := b.Store.RevokeAll(ctx, by, reason); err != nil {
			return err
		}
	}
	if b := s.capabilities.Broker; b != nil {
		if err := settle(ctx, lost, b.Store.SettleLost); err != nil {
			return err
		}
		if _, err := b.Store.RevokeMany(ctx, store.Filter{}, by, reason); err != nil {
			return err
		}
	}
	return nil
}

// settle settles by one what each lost origin has begun, up to the first error.
func settle(ctx context.Context, lost []string, one func(ctx context.Context, origin string) error) error {
	for _, origin := range lost {
		if err := one(ctx, origin); err != nil {
			return err
		}
	}
	return nil
}

// early answers while the server waits to join the cluster, and hands on once there is a handler.
type early struct {
	handler atomic.Pointer[http.Handler]
	waiting *atomic.Pointer[string]
}

// earlyReadiness is the body of /readyz meanwhile, also for those who may not explain: nobody is known yet.
type earlyReadiness struct {
	Status  string `json:"status"`
	Waiting string `json:"waiting"`
}

// ServeHTTP implements [http.Handler].
func (e *early) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := e.handler.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	status, text := http.StatusServiceUnavailable, []byte(nil)
	switch r.URL.Path {
	case "/livez":
		status, text = http.StatusOK, []byte(`{"status":"ok"}`)
	case "/readyz":
		text, _ = json.Marshal(earlyReadiness{"unavailable", *e.waiting.Load()}) // of two texts
	default:
		w.Header().Set("Content-Type", "application/problem+json")
		text = []byte(`{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"this replica has not joined the cluster yet, and /readyz says for what it waits; ask again later, or ask another replica"}`)
	}
	if status != http.StatusOK {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text)
	}
}

// listenEarly opens the addresses before there is anything to answer with.
func (s *Server) listenEarly(ctx context.Context) error {
	if err := s.listeners.loadCertificates(); err != nil {
		return err
	}
	if err := s.listeners.open(ctx, true, &s.lifetime); err != nil { // credentials are checked once they are open
		return err
	}
	s.early, s.earlyOwn = &early{waiting: &s.waiting}, &early{waiting: &s.waiting}
	s.listenWith(s.early, s.earlyOwn)
	s.lifetime.add("waiting for the cluster", closing(func() error {
		s.door.Stopping.Store(true) // only a start that failed comes here before the drain
		for _, server := range s.servers {
			_ = server.Close()
		}
		return nil
	}))
	return nil
}

// clusterReadiness is the part of /readyz about the cluster.
type clusterReadiness struct {
	Origin string `json:"origin"`
	// Skew is by how many seconds the clocks of two members may differ at most, the delay of the message among them.
	Skew    float64          `json:"clock_skew_seconds"`
	Full    bool             `json:"full,omitzero"`
	Members []cluster.Member `json:"members"`
}

// stateReadiness says since when the state in etcd cannot be used, and why.
type stateReadiness struct {
	Since time.Time `json:"since"`
	Error string    `json:"error"`
}

// clusterMetrics are the values for metrics; nil without a cluster.
func (s *Server) clusterMetrics() *telemetry.Cluster {
	if s.cluster == nil {
		return nil
	}
	is, state := s.clusterState()
	used, quota := s.cluster.Quota()
	return &telemetry.Cluster{OK: state == nil, Full: is.Full, Members: 1 + len(is.Members), Skew: s.cluster.Skew(), Used: used, Quota: quota}
}

// mostSkew is how far the clocks of two members may differ.
const mostSkew = 2 * time.Second

func (s *Server) clusterState() (*clusterReadiness, *stateReadiness) {
	c := s.cluster
	is := &clusterReadiness{Origin: c.Origin(), Skew: c.Skew().Seconds(), Full: c.Room() != nil, Members: c.There()}
	if since, err := c.Away(); err != nil {
		return is, &stateReadiness{since, err.Error()}
	}
	return is, nil
}
