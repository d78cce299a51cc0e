package cluster

import (
	"context"
	"time"
)

// Member is a process of the cluster that is there now.
type Member struct {
	Origin  string `json:"origin"`
	Address string `json:"address,omitzero"`
	// Version is that of the program, and Bundle the digest of the bundle in force.
	Version string `json:"version,omitzero"`
	Bundle  string `json:"bundle,omitzero"`
	// Clock is what its clock said when it last wrote this.
	Clock time.Time `json:"clock"`
	// Ahead is how far its clock may be ahead of that of each other member, at most: in it is the delay of the message.
	Ahead map[string]time.Duration `json:"ahead,omitzero,format:nano"`
}

// Members are the processes that are there, by their origins.
func (c *Cluster) Members(ctx context.Context) ([]Member, error) { return nil, nil }
