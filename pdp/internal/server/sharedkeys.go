package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/signing"
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
	if err := takeShared(c.Data, c.Cluster); err != nil {
		return nil, nil, err
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
func OpenSharedKeys(ctx context.Context, c Config) (apiKeys *keys.Keys, done func(), err error) {
	shared, key, err := openCluster(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	apiKeys, err = keys.OpenShared(ctx, sharedKeys(shared, key, c.Cluster.KeysStale, time.Now, slog.New(slog.DiscardHandler)))
	if err != nil {
		shared.Close()
		return nil, nil, err
	}
	return apiKeys, func() { _ = apiKeys.Close(); shared.Close() }, nil
}

// ImportKeys takes the API keys of the directory of a server that does not run into the cluster of a configuration, and returns
// how many there are. What the decision log of the directory says of them counts, as it did for the server.
func ImportKeys(ctx context.Context, data string, c Config) (all int, err error) {
	_, _, release, err := decisionlog.CopyStopped(data)
	if err != nil {
		return 0, fmt.Errorf("cannot read the decision log in %s: %w; give the data directory of a server that has run, and stop it first", data, err)
	}
	defer release()
	log, err := segment.OpenReader(data)
	if err != nil {
		return 0, err
	}
	all, err = importKeys(ctx, data, log, c)
	return all, errors.Join(err, log.Close())
}

func importKeys(ctx context.Context, data string, log keys.Log, c Config) (all int, err error) {
	from, err := keys.Open(data)
	if err != nil {
		return 0, err
	}
	known, damage, err := keys.ReadLog(ctx, log, from)
	if err != nil || damage != nil {
		return 0, fmt.Errorf("cannot take the API keys of %s: %w; see policy-service doctor", data, cmp.Or(err, damage))
	}
	if wrong := known.Against(from); len(wrong) > 0 {
		return 0, fmt.Errorf("%s has keys that are not in force by the decision log: %s; see policy-service doctor", keys.File,
			strings.Join(slices.Sorted(maps.Keys(wrong)), ", "))
	}
	to, done, err := OpenSharedKeys(ctx, c)
	if err != nil {
		return 0, err
	}
	defer done()
	return to.Import(from)
}

// RotateSigning makes a new signing key in the data directory of a replica, and has the cluster of its configuration know it. The
// file is to be copied to the other replicas.
func RotateSigning(ctx context.Context, c Config) (kid string, err error) {
	shared, _, err := openCluster(ctx, c)
	if err != nil {
		return "", err
	}
	defer shared.Close()
	err = shared.RotateSigning(ctx, func() ([]string, error) {
		if kid, err = signing.Rotate(c.Data); err != nil {
			return nil, err
		}
		keys, err := signing.Open(c.Data, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		return keys.IDs(), nil
	})
	if err != nil && kid != "" {
		err = fmt.Errorf("the key is rotated here, and the cluster does not know it: %w; rotate it once more", err)
	}
	return kid, err
}

// CheckNew refuses a data directory that is to be a new replica where none runs that could say what etcd was. It writes nothing.
func CheckNew(ctx context.Context, c Config) error {
	shared, _, err := openCluster(ctx, c)
	if err != nil {
		return err
	}
	defer shared.Close()
	keys, err := segment.VerifierKeys(c.Data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	origin, _, _ := strings.Cut(strings.Join(keys, "+"), "+")
	return shared.CheckNew(ctx, origin)
}

// SettleLost says in the cluster of a configuration that the log of a replica will never come back. See [cluster.Cluster.SettleLost].
func SettleLost(ctx context.Context, c Config, origin, reason string, now bool) error {
	shared, _, err := openCluster(ctx, c)
	if err != nil {
		return err
	}
	defer shared.Close()
	return shared.SettleLost(ctx, origin, reason, now)
}
