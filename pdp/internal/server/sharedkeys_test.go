package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/night"
)

// A key that a command makes counts at each replica, and one that it revokes counts nowhere a second later.
func TestClusterKeys(t *testing.T) {
	t.Parallel()
	revokedInACluster(t)
}

// TestClusterKeysMeasured: a key that is revoked counts nowhere after a second.
func TestClusterKeysMeasured(t *testing.T) {
	night.Measures(t)
	if took := revokedInACluster(t); took > time.Second {
		t.Errorf("it was refused after %s", took)
	}
}

// revokedInACluster returns after how long all replicas refuse a key.
func revokedInACluster(t *testing.T) (took time.Duration) {
	t.Helper()
	g := openGroup(t, 2, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	config := server.Config{Data: g.all[0].data}
	g.config(0)(&config)
	apiKeys, done, err := server.OpenSharedKeys(t.Context(), config)
	must(t, err)
	defer done()
	secret, err := apiKeys.Add(keys.Spec{Name: "late"})
	must(t, err)
	g.key["late"] = "Bearer " + secret
	status := func(c *counter) int { is, _, _ := c.retry("late", "POST", "/access/v1/evaluation", free); return is }
	for _, c := range g.all {
		eventually(t, "it counts", func() bool { return status(c) == http.StatusOK })
	}
	must(t, apiKeys.Revoke("late"))
	revoked := time.Now()
	for _, c := range g.all {
		eventually(t, "it is refused", func() bool { return status(c) == http.StatusUnauthorized })
	}
	took = time.Since(revoked)
	for _, c := range g.all {
		if _, log := c.do("auditor", "GET", "/v1/decisions?event=api_key_revoked", ""); !strings.Contains(log, `"late"`) {
			t.Errorf("it is not on record: %s", log)
		}
	}
	return took
}

// The keys of a server that has run become those of a cluster. That can be done again, and not beside keys of the cluster.
func TestImportKeys(t *testing.T) {
	t.Parallel()
	g := &group{net: []*etcdtest.Net{etcdtest.Start(t, etcdtest.Options{Members: 1}).Client()}}
	c := openCounter(t)
	config := server.Config{Data: c.data}
	g.config(0)(&config)
	if _, err := server.ImportKeys(t.Context(), c.data, config); err == nil {
		t.Error("the directory is in use")
	}
	must(t, c.Stop(t.Context()))
	for range 2 {
		if all, err := server.ImportKeys(t.Context(), c.data, config); err != nil || all == 0 {
			t.Fatalf("%d keys, %v", all, err)
		}
	}
	apiKeys, done, err := server.OpenSharedKeys(t.Context(), config)
	must(t, err)
	defer done()
	secret := strings.TrimPrefix(c.key["pep"], "Bearer ")
	if _, err := apiKeys.Find(auth.KeyID(secret), auth.KeyHash(secret)); err != nil {
		t.Error("a key that was imported does not count")
	}
	_, err = apiKeys.Add(keys.Spec{Name: "of-the-cluster"})
	must(t, err)
	if all, err := server.ImportKeys(t.Context(), c.data, config); err != nil || all == 0 { // they are there
		t.Errorf("%d keys, %v", all, err)
	}
	c.grant("later", []string{"*"}, "", auth.Decide)
	if _, err := server.ImportKeys(t.Context(), c.data, config); err == nil || !strings.Contains(err.Error(), "keys of its own") {
		t.Errorf("got %v", err)
	}
	if err := server.SettleLost(t.Context(), config, "no.such.origin", "a test", true); err == nil || !strings.Contains(err.Error(), "no replica ever had") {
		t.Errorf("got %v", err)
	}
}
