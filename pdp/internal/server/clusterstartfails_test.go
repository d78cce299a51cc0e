//go:build linux

package server_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/port"
)

// TestReplicaStartsAfterAFailure: the same holds for a replica, also while it answers at its addresses that it waits.
func TestReplicaStartsAfterAFailure(t *testing.T) {
	night.Other(t, "etcd")
	if !alone(t) {
		return
	}
	g := openGroup(t, 1, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	must(t, g.all[0].Stop(t.Context()))
	config := server.Config{Listen: port.Free(t), Console: &server.ConsoleConfig{Listen: port.Free(t)}, Policies: t.TempDir(), Data: g.all[0].data}
	writeAll(t, config.Policies, approvalFiles())
	g.hasty = []int{0}
	for _, option := range []pdptest.Option{g.config(0), withTLS(pdptest.NewAuthority(t))} {
		option(&config)
	}
	server.TuneElapsed(&config, g.all[0].Elapsed)
	config.Program.PDP.Now = g.all[0].Now
	away := func(spoil spoils) spoils {
		return func(t *testing.T, c *server.Config) func() {
			mend := spoil(t, c)
			g.net[0].Cut()
			return func() { g.net[0].Heal(); mend() }
		}
	}
	nothing := func(*testing.T, *server.Config) func() { return func() {} }
	waits := func(then func(cancel func())) func(*server.Config, func()) {
		return func(c *server.Config, cancel func()) {
			eventually(t, "it says that it waits", func() bool { return askOnce(t, c.Listen, "") == http.StatusServiceUnavailable })
			then(cancel)
		}
	}
	gives := func(cancel func()) { cancel() }
	comes := func(func()) { g.net[0].Heal() }
	console := func(c *server.Config) string { return c.Console.Listen }
	wrong := content(func(c *server.Config) string { return filepath.Join(c.Policies, "b.cedar") }, "permit(")
	all := []failure{
		{"etcd away", "context canceled", away(nothing), waits(gives)},
		{"etcd away and a key missing", "cannot be known", away(gone(inData("mask.key"))), nil},
		{"etcd away and the console's address taken", "try another console.listen", away(taken("tcp", console)), nil},
		{"etcd away and no certificate", "cannot read a TLS file", away(directory(func(c *server.Config) string { return c.TLS.CertFile })), nil},
		{"etcd comes, and the bundle is wrong", "this is not Cedar", away(wrong), waits(comes)},
		{"bundle wrong", "this is not Cedar", wrong, nil},
		{"another key", "page.key here is not that of the other replicas", content(inData("page.key"), strings.Repeat("k", 32)), nil},
		{"another approvals.key", "another approvals.key wrote them", content(inData("approvals.key"), strings.Repeat("k", 32)), nil},
		{"a key missing", "has no signing.jwks", gone(inData("signing.jwks")), nil},
		{"console's address taken", "try another console.listen", taken("tcp", console), nil},
	}
	answers(t, config, g.key["pep"])
	for _, one := range all {
		t.Run(one.name, func(t *testing.T) { one.fails(t, config, g.key["pep"]) })
	}
}
