package cluster_test

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/etcdtest"
)

// Over TLS, with a certificate and as a user of etcd that may do no more than it needs. What is wrong is said, and what to look at.
func TestTLSAndUser(t *testing.T) {
	t.Parallel()
	ours, another := pdptest.NewAuthority(t), pdptest.NewAuthority(t)
	cert, key := ours.Server()
	otherCert, otherKey := another.Server()
	at := etcdtest.Secure(t, ours.File, cert, key)
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "password")
		must(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	right := func(r *replica) *cluster.EtcdConfig {
		r.config.Etcd = cluster.EtcdConfig{Endpoints: []string{"https://" + at}, CAFile: ours.File, CertFile: cert, KeyFile: key,
			Username: "pdp", PasswordFile: file("secret\n"), Prefix: "/secure/", Timeout: etcdtest.Patience}
		return &r.config.Etcd
	}

	// Of a certificate that does not fit the client of etcd says nothing: the call takes all of its time.
	const silent, answered = time.Second, time.Minute
	pair, err := tls.LoadX509KeyPair(cert, key)
	must(t, err)
	to := clientv3.Config{Endpoints: []string{at}, Logger: zap.NewNop(), DialTimeout: answered,
		TLS: &tls.Config{RootCAs: ours.Pool, Certificates: []tls.Certificate{pair}}}
	begun, err := clientv3.New(to)
	must(t, err)
	ctx := t.Context()
	for _, name := range []string{"root", "pdp", "other"} {
		_, err = begun.UserAdd(ctx, name, "secret")
		must(t, err)
		_, err = begun.RoleAdd(ctx, name)
		must(t, err)
		_, err = begun.UserGrantRole(ctx, name, name)
		must(t, err)
	}
	_, err = begun.RoleGrantPermission(ctx, "pdp", "/secure/", clientv3.GetPrefixRangeEnd("/secure/"), clientv3.PermissionType(clientv3.PermReadWrite))
	must(t, err)
	_, err = begun.AuthEnable(ctx)
	must(t, err)
	must(t, begun.Close())
	to.Username, to.Password = "root", "secret"
	root, err := clientv3.New(to)
	must(t, err)
	t.Cleanup(func() { _ = root.Close() })

	wrong := map[string]struct {
		set    func(*cluster.EtcdConfig)
		within time.Duration
		want   string
	}{
		"another authority":      {func(c *cluster.EtcdConfig) { c.CAFile = another.File }, silent, "certificate signed by unknown authority"},
		"no certificate":         {func(c *cluster.EtcdConfig) { c.CertFile, c.KeyFile = "", "" }, silent, "certificate required"},
		"another certificate":    {func(c *cluster.EtcdConfig) { c.CertFile, c.KeyFile = otherCert, otherKey }, silent, "tls: "},
		"another password":       {func(c *cluster.EtcdConfig) { c.PasswordFile = file("another") }, answered, "invalid user ID or password"},
		"no user":                {func(c *cluster.EtcdConfig) { c.Username, c.PasswordFile = "", "" }, answered, "permission denied"},
		"a user without a right": {func(c *cluster.EtcdConfig) { c.Username = "other" }, answered, "permission denied"},
	}
	t.Run("wrong", func(t *testing.T) {
		for name, one := range wrong {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newReplica(t, "r", "secure")
				one.set(right(r))
				r.config.Etcd.Timeout = one.within
				refuses(t, name, r.join(), one.want)
			})
		}
	})

	r := newReplica(t, "a", "secure")
	right(r)
	r.run()
	must(t, r.Usable())
	// The tokens of all users end, as they do after a time.
	_, err = root.AuthDisable(ctx)
	must(t, err)
	_, err = root.AuthEnable(ctx)
	must(t, err)
	etcdtest.Eventually(t, "it goes on with another token", func() bool {
		_, err := r.Members(ctx)
		return err == nil && r.Usable() == nil
	})
	if _, err := r.LogKeys("another"); errors.Is(err, cluster.ErrAway) {
		t.Error(err)
	}
}
