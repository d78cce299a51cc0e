package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"policy-service/pdp/internal/approval/broker"
	store "policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/console/sessions"
	"policy-service/pdp/internal/datakey"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/server/approvals"
	"policy-service/pdp/internal/server/capabilities"
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
func checkShared(ctx context.Context, data string, c *cluster.Config) error {
	if c == nil {
		if data != "" && IsReplica(data) {
			return fmt.Errorf("%s is the directory of a replica, whose state is in etcd; add cluster to the configuration, or begin with a new directory", data)
		}
		return nil
	}
	if err := takeShared(data, c); err != nil {
		return err
	}
	missing := missingShared(data)
	if len(missing) == 0 {
		return nil
	}
	begun, err := cluster.Begun(ctx, *c)
	if err != nil {
		return fmt.Errorf("%s has no %s, and whether other replicas have them cannot be known: %w", data, strings.Join(missing, ", "), err)
	}
	if begun {
		return fmt.Errorf("%s has no %s, which must be the same at all replicas; copy these files from another replica (never log.key)",
			data, strings.Join(missing, ", "))
	}
	return nil
}

// replica is a server as a member of a cluster. Without a cluster it is nil, and its methods do nothing.
type replica struct {
	*cluster.Cluster
	sessions *sessions.Shared // of the console; nil without one
}

// openReplica makes the server a member. It waits for etcd, and for the end of another process under its name, and says so to
// callers meanwhile.
func openReplica(ctx context.Context, b *base, k ownKeys, d *decisionLog, p *policies, l *listeners) (*replica, error) {
	if b.config.Cluster == nil {
		return nil, nil
	}
	joining, err := d.joining(k, l)
	if err != nil {
		return nil, err
	}
	joining.Bundle = func() string { return p.Status().Digest }
	r, err := newReplica(ctx, b, k)
	if err != nil {
		return nil, err
	}
	return r, r.join(ctx, joining, func(err error) error {
		waiting := "etcd does not answer"
		if errors.Is(err, cluster.ErrWaiting) {
			waiting = err.Error()
		}
		return l.answerEarly(ctx, waiting, err)
	})
}

// newReplica prepares for joining the cluster, and does not wait for etcd.
func newReplica(ctx context.Context, b *base, k ownKeys) (*replica, error) {
	c, err := cluster.Open(ctx, *b.config.Cluster, cluster.Options{
		Key: k.approvals, Data: b.config.Data, Now: b.now, Elapsed: b.config.Program.elapsed, ClockSkew: b.config.Capabilities.ClockSkew, Logger: b.log, Later: true,
	})
	if err != nil {
		return nil, err
	}
	b.lifetime.add("cluster", closing(func() error { c.Close(); return nil }))
	return &replica{Cluster: c}, nil
}

// join makes this process a member. Whenever it has to wait, it calls waits with the reason.
func (r *replica) join(ctx context.Context, joining cluster.Joining, waits func(error) error) error {
	for {
		err := r.Join(ctx, joining)
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

// joining returns what a member says of itself.
func (d *decisionLog) joining(k ownKeys, l *listeners) (joining cluster.Joining, err error) {
	joining = cluster.Joining{
		Origin:  d.Origin(),
		LogKeys: func() ([]string, error) { return segment.VerifierKeys(d.config.Data) },
		Size:    d.Size,
		Secrets: map[string][]byte{},
		Signing: k.signing.IDs,
		Address: l.address,
		Version: version.This().Version,
		Bundle:  func() string { return "" }, // none is loaded
	}
	if was := d.restored; was.goesOn() {
		// Whatever etcd knows beyond the backup came after it. The records of this start must not make up for that.
		joining.Size = func() uint64 {
			if d.restored != nil {
				return was.Record.Size
			}
			return d.Size()
		}
	}
	for _, one := range shared() {
		if joining.Secrets[one.File], err = one.Read(d.config.Data); err != nil {
			return joining, err
		}
	}
	return joining, nil
}

// run goes on as a member, once the stores are open. If etcd was restored, it first revokes what may have uses that etcd has
// forgotten.
func (r *replica) run(ctx context.Context, b *base, a *approvals.Approvals, c *capabilities.Capabilities) error {
	if r == nil {
		return nil
	}
	err := r.Opened(ctx, r.revokeUncounted(b, a, c))
	if err == nil {
		b.lifetime.background("membership", r.Run)
	}
	return err
}

// logKeys returns the keys of the log of another replica.
func (r *replica) logKeys(origin string) ([]string, error) {
	if r == nil {
		return nil, nil
	}
	return r.LogKeys(origin)
}

// lost returns the names of the replicas whose logs will never say anything any more.
func (r *replica) lost(ctx context.Context) (lost []string, err error) {
	all, err := r.Origins(ctx)
	for name, origin := range all {
		if origin.Lost != nil {
			lost = append(lost, name)
		}
	}
	return lost, err
}

// revokeUncounted revokes all that is open: the logs of some origins, which are lost, may have uses that etcd has forgotten.
func (r *replica) revokeUncounted(b *base, a *approvals.Approvals, c *capabilities.Capabilities) func(context.Context, []string) error {
	return func(ctx context.Context, lost []string) error {
		reason := "etcd was restored, and the log of " + strings.Join(lost, ", ") + ", which may have uses of it, is lost"
		b.log.Warn("all that is open is revoked", "reason", reason)
		return onceRecorded(ctx, b.log, func() error { return r.revokeOpen(ctx, reason, a, c) })
	}
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

func (r *replica) revokeOpen(ctx context.Context, reason string, a *approvals.Approvals, c *capabilities.Capabilities) error {
	const by = "policy-service"
	lost, err := r.lost(ctx) // with those of before, of which the copy may have what was settled since
	if err != nil {
		return err
	}
	if b := a.Broker; b != nil {
		if err := settle(ctx, lost, b.Store.SettleLost); err != nil {
			return err
		}
		if err := b.Store.RevokeAll(ctx, by, reason); err != nil {
			return err
		}
	}
	if b := c.Broker; b != nil {
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

// mostSkew is how far the clocks of two members may differ.
const mostSkew = 2 * time.Second

// Ready implements [ready]. A replica without etcd is degraded: unavailable would take all replicas out of the balancer at once.
func (r *replica) Ready(is *readiness) {
	if r == nil {
		return
	}
	is.Cluster = &clusterReadiness{Origin: r.Origin(), Skew: r.Skew().Seconds(), Full: r.Room() != nil, Members: r.There()}
	if since, err := r.Away(); err != nil {
		is.State = &stateReadiness{since, err.Error()}
	}
	if is.State != nil || is.Cluster.Full || is.Cluster.Skew > mostSkew.Seconds() {
		is.degrade()
	}
}

// metrics returns the values for metrics, or nil without a cluster.
func (r *replica) metrics() *telemetry.Cluster {
	if r == nil {
		return nil
	}
	var is readiness
	r.Ready(&is)
	used, quota := r.Quota()
	return &telemetry.Cluster{OK: is.State == nil, Full: is.Cluster.Full, Members: 1 + len(is.Cluster.Members), Skew: r.Skew(), Used: used, Quota: quota}
}
