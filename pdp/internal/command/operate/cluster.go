package operate

import (
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/logging"
	"policy-service/pdp/internal/server"
)

// Cluster is about the etcd that the replicas of a cluster share.
type Cluster struct {
	Import clusterImportCommand `cmd:"" help:"Take the state of one data directory into the etcd of a cluster."`
	Join   clusterJoinCommand   `cmd:"" help:"Begin a replica where none of those runs that etcd knows."`
}

type clusterImportCommand struct {
	Data     string `required:"" placeholder:"DIR" help:"The data directory of a server that does not run. It becomes that of the first replica."`
	Config   string `required:"" placeholder:"FILE" help:"The configuration of the first replica, which says where etcd is."`
	KeysOnly bool   `help:"Take API keys alone, and change nothing in the directory. Approval requests and capabilities stay there, and count no longer once its server is a replica."`
}

// Help ends the command's help.
func (clusterImportCommand) Help() string {
	return "API keys, approval requests and capabilities go on as they are, with their votes and the uses that are left. The decision " +
		"log of the directory stays where it is, goes on as that of the first replica, and has a record of the import.\n\n" +
		"State is taken once, into a cluster that has had no replica: the command refuses a directory in use, an older copy of one that was " +
		"taken, and uses of which the decision log cannot say whether they were made. If it ends in the middle, run it again; no replica " +
		"starts before."
}

// Run imports the state.
func (c clusterImportCommand) Run(s cli.Streams) error {
	told, err := readConfig(c.Config)
	if err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	if c.KeysOnly {
		all, err := server.ImportKeys(ctx, c.Data, told)
		if err == nil {
			s.Print("%s in the cluster", cli.Plural(all, "API key"))
		}
		return err
	}
	log := logging.New(s.Err, told.Log)
	defer log.Close()
	told.Program.Logger = log.Logger
	done, err := server.Import(ctx, c.Data, told)
	if err == nil {
		s.Print("in the cluster: API keys %d, waiting approval requests %d, live capabilities %d", done.Keys, done.Approvals, done.Capabilities)
	}
	return err
}

type clusterJoinCommand struct {
	Config        string `required:"" placeholder:"FILE" help:"The configuration of the replica, which says where etcd is. Its data directory may be empty, but for the keys that all replicas have."`
	EtcdIsCurrent bool   `required:"" help:"Your word that etcd was not restored from a copy, and has all that the replicas wrote that do not run."`
}

// Help ends the command's help.
func (clusterJoinCommand) Help() string {
	return "A new replica does not know what etcd had before. Beside a replica that runs it asks that one. Where none runs, serve refuses " +
		"to start, and names the replicas that etcd knows and when each was last there: their logs may have uses that a restored etcd has " +
		"forgotten. If one of them can come back, start it instead. If etcd was restored, do not give your word: settle the others as lost, " +
		"and start the new one. All approvals and capabilities that are open are revoked then.\n\n" +
		"The command makes the data directory that of a replica, which serve starts from then on. It does not take your word where etcd's " +
		"cluster id is another than it was: then each log is compared first, as after any restore."
}

// Run begins the replica.
func (c clusterJoinCommand) Run(s cli.Streams) error {
	told, err := readConfig(c.Config)
	if err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	log := logging.New(s.Err, told.Log)
	defer log.Close()
	told.Program.Logger = log.Logger
	origin, err := server.JoinCurrent(ctx, told)
	if err == nil {
		s.Print("%s is a replica of the cluster; start it with serve", origin)
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
