// Member is one member of an etcd cluster, for tests. It ends with the process that started it: when its standard input does.
package main

import (
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "member:", err)
		os.Exit(1)
	}
}

func run() error {
	c := embed.NewConfig()
	flag.StringVar(&c.Name, "name", "m0", "the name of the member")
	flag.StringVar(&c.Dir, "data", "", "its data directory")
	flag.StringVar(&c.InitialCluster, "cluster", "", "all members, NAME=URL,...")
	flag.StringVar(&c.InitialClusterToken, "token", "test", "the token of the cluster")
	quota := flag.Int64("quota", 0, "the quota of the backend in bytes")
	listenClient := flag.String("client", "", "the URL for clients to listen at")
	listenPeer := flag.String("peer", "", "the URL for peers to listen at")
	advertisePeer := flag.String("advertise", "", "the URL that peers dial")
	flag.StringVar(&c.ClientTLSInfo.CertFile, "cert", "", "its certificate for clients")
	flag.StringVar(&c.ClientTLSInfo.KeyFile, "key", "", "the key of that")
	flag.StringVar(&c.ClientTLSInfo.TrustedCAFile, "ca", "", "the authority of the certificates that clients must show")
	heartbeat := flag.Uint("heartbeat", 20, "milliseconds")
	remove := flag.Bool("remove", false, "remove the data at the end of the standard input")
	flag.Parse()
	var err error
	urls := func(text string) []url.URL {
		all, failed := types.NewURLs([]string{text})
		if failed != nil {
			err = failed
		}
		return all
	}
	c.ListenClientUrls, c.AdvertiseClientUrls = urls(*listenClient), urls(*listenClient)
	c.ListenPeerUrls, c.AdvertisePeerUrls = urls(*listenPeer), urls(*advertisePeer)
	if err != nil {
		return err
	}
	c.ClientTLSInfo.ClientCertAuth = c.ClientTLSInfo.TrustedCAFile != ""
	c.TickMs, c.ElectionMs = *heartbeat, 10**heartbeat
	c.QuotaBackendBytes = *quota
	c.BcryptCost = 4 // the least: the passwords are those of tests
	c.LogLevel = "error"
	c.StrictReconfigCheck = true
	e, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	select {
	case <-e.Server.ReadyNotify():
		fmt.Println("ready")
	case err := <-e.Err():
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		if *remove {
			_ = os.RemoveAll(c.Dir)
		}
		os.Exit(0)
	}()
	return <-e.Err()
}
