package doctor

import (
	"context"
	"errors"

	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/server"
)

// shared is the cluster, of which nothing is changed.
type shared struct {
	*server.Config
	said  finding.List // of the configuration
	begun bool         // replicas have joined
	err   error        // why that is not known
}

func openCluster(ctx context.Context, c *server.Config, said finding.List) *shared {
	s := &shared{Config: c, said: said}
	if c.Cluster != nil {
		s.begun, s.err = cluster.Begun(ctx, *c.Cluster)
	}
	return s
}

// Findings looks whether etcd can be used, and whether this may be a replica.
func (s *shared) Findings(ctx context.Context) (found finding.List) {
	const check = "cluster"
	if s.Cluster == nil {
		return nil
	}
	found = of(check, s.said)
	switch {
	case errors.Is(s.err, cluster.ErrAway):
		found.Bites(check, "start etcd, and see to the network, the certificates and the user of etcd", "%v", s.err)
	case s.err != nil:
		found.Wrong(check, s.err)
	case s.begun:
		found.OK(check, "etcd answers, and replicas have joined")
		s.asReplica(ctx, &found)
	default:
		found.OK(check, "etcd answers, and no replica has joined yet: the first start makes the keys that all have")
	}
	return found
}

func (s *shared) asReplica(ctx context.Context, found *finding.List) {
	const check = "cluster"
	for _, err := range server.MissingShared(s.Data, s.Cluster) {
		found.Wrong(check, err)
	}
	if !server.IsReplica(s.Data) && len(server.MissingShared(s.Data, &cluster.Config{})) == 0 { // to open it would make the missing keys
		if err := server.CheckNew(ctx, *s.Config); err != nil {
			found.Wrong(check, err)
		} else {
			found.OK(check, "this is to be a new replica, beside others that run or are lost")
		}
	}
}
