package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"policy-service/pdp/internal/approval"
	store "policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/plainfile"
)

// Imported is how much a cluster has taken of a data directory: API keys, the approval requests that waited, and the capabilities
// that had not ended.
type Imported struct {
	Keys         int `json:"keys"`
	Approvals    int `json:"approvals"`
	Capabilities int `json:"capabilities"`
}

// Import takes the state of the directory of a server that does not run into the cluster of a configuration, once. The directory
// becomes that of the first replica, and goes on with its decision log. After an error it can be called again.
func Import(ctx context.Context, data string, c Config) (done Imported, err error) {
	c.Data = data
	keys, err := segment.VerifierKeys(data)
	if err != nil || len(keys) == 0 {
		return done, errors.Join(err, fmt.Errorf("%s has no decision log; give the data directory of a server that has run", data))
	}
	if err := importable(ctx, keys, c); err != nil { // before anything is written to a log
		return done, err
	}
	s, err := New(c)
	if err != nil {
		return done, err
	}
	err = s.lifetime.start(ctx, func(ctx context.Context) (err error) {
		done, err = s.importState(ctx)
		return err
	})
	if err == nil {
		err = s.Stop(context.WithoutCancel(ctx))
	}
	return done, err
}

func importable(ctx context.Context, keys []string, c Config) error {
	log, err := segment.OpenReader(c.Data)
	if err != nil {
		return err
	}
	size := log.Size()
	if err := log.Close(); err != nil {
		return err
	}
	shared, _, err := openCluster(ctx, c)
	if err != nil {
		return err
	}
	defer shared.Close()
	origin, _, _ := strings.Cut(keys[0], "+")
	return shared.Importable(origin, keys, size)
}

// importState is a start that serves nothing.
func (s *Server) importState(ctx context.Context) (done Imported, err error) {
	if err = s.openState(ctx); err != nil {
		return done, err
	}
	if err = s.settleHere(); err != nil {
		return done, err
	}
	if done.Keys, err = importKeys(ctx, s.config.Data, s.decisions.Log, s.config); err != nil {
		return done, err
	}
	if _, err = s.joinAlone(ctx, func(j *cluster.Joining) { j.Import = true }); err != nil {
		return done, err
	}
	if err = s.decisions.recordRestored(ctx); err != nil {
		return done, err
	}
	c, key, size := s.replica, s.keys.approvals, s.decisions.Size()
	err = approval.Take(s.config.Data, key, c.Engine(cluster.Approvals, approval.EngineErrors()), c.Origin(), size)
	if err == nil {
		err = setAside(s.config.Data, approval.FileName)
	}
	if err == nil {
		err = store.Take(s.config.Data, key, c.Engine(cluster.Capabilities, store.EngineErrors()), c.Origin(), size)
	}
	if err == nil {
		err = setAside(s.config.Data, store.FileName)
	}
	// As at each start of a replica, the records by which an item counts get their origin and their proofs.
	if err == nil {
		err = s.openStores()
	}
	if err == nil {
		err = c.Opened(ctx, c.revokeUncounted(&s.base, s.approvals, s.capabilities))
	}
	if err == nil {
		done.Approvals = s.approvals.Broker.Store.Pending()
		done.Capabilities, err = s.capabilities.Broker.Store.Live()
	}
	if err == nil {
		err = s.decisions.events.Record(ctx, recorder.Event{Name: format.EventImported, Details: done})
	}
	if err == nil {
		err = c.Imported(ctx)
	}
	return done, err
}

// JoinCurrent makes the data directory of a configuration that of a replica, on its operator's word that etcd is what the replicas
// left that do not run. It returns the name of the replica.
func JoinCurrent(ctx context.Context, c Config) (origin string, err error) {
	if c.Cluster == nil {
		return "", errNoCluster
	}
	s, err := New(c)
	if err != nil {
		return "", err
	}
	err = s.lifetime.start(ctx, func(ctx context.Context) error {
		err := checkShared(ctx, s.config.Data, s.config.Cluster)
		if err == nil {
			err = s.openState(ctx)
		}
		if err == nil {
			origin, err = s.joinAlone(ctx, func(j *cluster.Joining) { j.EtcdIsCurrent = true })
		}
		return err
	})
	if err == nil {
		err = s.Stop(context.WithoutCancel(ctx))
	}
	return origin, err
}

// openState opens what the commands about a cluster need of a data directory.
func (s *Server) openState(ctx context.Context) (err error) {
	if err = s.openTelemetry(ctx); err != nil {
		return err
	}
	if s.keys, err = openKeys(&s.config); err != nil {
		return err
	}
	s.decisions, err = openLog(ctx, &s.base, s.audit)
	return err
}

// joinAlone joins the cluster for a command. It waits for the end of another process under its name, such as one that was
// killed. It does not wait for etcd: that is for its operator to see to.
func (s *Server) joinAlone(ctx context.Context, how func(*cluster.Joining)) (origin string, err error) {
	joining, err := s.decisions.joining(s.keys, s.listeners)
	if err != nil {
		return "", err
	}
	how(&joining)
	if s.replica, err = newReplica(ctx, &s.base, s.keys); err != nil {
		return "", err
	}
	return joining.Origin, s.replica.join(ctx, joining, func(err error) error {
		if errors.Is(err, cluster.ErrAway) {
			return err
		}
		s.log.Warn("waiting to join the cluster", "error", err)
		return nil
	})
}

// settleHere settles uses in doubt by the log of the directory, as each start does.
func (s *Server) settleHere() error {
	if err := s.openStores(); err != nil {
		return err
	}
	if s.capabilities.Broker == nil {
		return errors.New("the capabilities cannot be opened; see the messages before, and policy-service doctor")
	}
	return errors.Join(s.approvals.Broker.Store.Close(), s.capabilities.Broker.Store.Close())
}

// asideSuffix is in the name of a file that counts no longer. No backup has it.
const asideSuffix = ".imported"

// setAside renames a file whose state is in etcd. A second import has made one anew.
func setAside(data, name string) error {
	from := filepath.Join(data, name)
	to := from + asideSuffix
	for n := 2; ; n++ {
		if _, err := os.Lstat(to); err != nil {
			break
		}
		to = fmt.Sprintf("%s%s%d", from, asideSuffix, n)
	}
	return plainfile.Rename(from, to)
}
