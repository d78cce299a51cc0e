package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"policy-service/pdp/approval/broker"
	"policy-service/pdp/cluster"
	"policy-service/pdp/server/auth"
)

// errNoCluster is for commands whose configuration has none.
var errNoCluster = errors.New("the configuration has no cluster, and a server without one keeps its state in its data directory; give that with --data")

// openCluster is for commands: it reaches the cluster of a configuration, and is no member.
func openCluster(ctx context.Context, c Config) (*cluster.Cluster, []byte, error) {
	if c.Cluster == nil {
		return nil, nil, errNoCluster
	}
	if c.Data == "" {
		return nil, nil, fmt.Errorf("the configuration has no data, and %s of its directory seals what is in etcd; add it", broker.Key.File)
	}
	key, err := broker.Key.Read(c.Data)
	if err == nil && key == nil { // as a start would: see checkShared
		begun, away := cluster.Begun(ctx, *c.Cluster)
		switch {
		case away != nil:
			err = away
		case begun:
			err = fmt.Errorf("%s is missing, which must be the same at all replicas; copy it from another replica", filepath.Join(c.Data, broker.Key.File))
		default:
			if err = os.MkdirAll(c.Data, 0o700); err == nil {
				key, err = broker.OpenKey(c.Data)
			}
		}
	}
	if err != nil {
		return nil, nil, err
	}
	shared, err := cluster.Open(ctx, *c.Cluster, cluster.Options{Key: key})
	return shared, key, err
}

// OpenSharedKeys opens the API keys of the cluster that a configuration names, for commands. Done is to be called at the end.
func OpenSharedKeys(ctx context.Context, c Config) (keys *auth.Keys, done func(), err error) {
	shared, key, err := openCluster(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	keys, err = auth.OpenSharedKeys(ctx, sharedKeys(shared, key, c.Cluster.KeysStale, time.Now, slog.New(slog.DiscardHandler)))
	if err != nil {
		shared.Close()
		return nil, nil, err
	}
	return keys, func() { _ = keys.Close(); shared.Close() }, nil
}
