package operate

import (
	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/server"
)

// Cluster is about the etcd that the replicas of a cluster share.
type Cluster struct {
	Import clusterImportCommand `cmd:"" help:"Take the API keys of one data directory into the etcd of a cluster."`
}

type clusterImportCommand struct {
	Data     string `required:"" placeholder:"DIR" help:"The data directory of a server that does not run. The command changes nothing in it."`
	Config   string `required:"" placeholder:"FILE" help:"The configuration of a replica, which says where etcd is."`
	KeysOnly bool   `required:"" help:"Take API keys alone. Approval requests and capabilities stay in the directory, and count no longer once its server is a replica."`
}

// Help ends the command's help.
func (clusterImportCommand) Help() string {
	return "The keys stay as they are: callers notice nothing. The decision log of each replica says which keys it has learned of.\n\n" +
		"The command refuses a directory in use, keys that its decision log has revoked and its file has not, and a cluster with " +
		"keys of its own. If it ends in the middle, run it again."
}

// Run imports the keys.
func (c clusterImportCommand) Run(s cli.Streams) error {
	told, err := readConfig(c.Config)
	if err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	all, err := server.ImportKeys(ctx, c.Data, told)
	if err == nil {
		s.Print("%s in the cluster", cli.Plural(all, "API key"))
	}
	return err
}

// Settle is about replicas that are gone with their decision logs.
type Settle struct {
	Config string `required:"" placeholder:"FILE" help:"The configuration of a replica that is left, which says where etcd is."`
	Lost   string `required:"" placeholder:"ORIGIN" help:"The name of the replica that will never come back, as /readyz and log.pub have it."`
	Reason string `required:"" placeholder:"TEXT" help:"Why its decision log is lost. It stays in etcd."`
	Now    bool   `help:"Do not wait until the replica has been gone for 11 minutes."`
}

// Help ends the command's help.
func (Settle) Help() string {
	return "Only the decision log of a replica can say which uses it granted in the moment before it ended. Once the log is " +
		"settled as lost, no replica waits for it any more, and the replica itself is never a member again.\n\n" +
		"The command refuses an origin whose replica runs, or was there less than 11 minutes ago."
}

// Run gives the origin up.
func (c Settle) Run(s cli.Streams) error {
	told, err := readConfig(c.Config)
	if err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	if err := server.SettleLost(ctx, told, c.Lost, c.Reason, c.Now); err != nil {
		return err
	}
	s.Print("%s is settled as lost", c.Lost)
	return nil
}
