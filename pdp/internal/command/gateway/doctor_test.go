package gateway

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// The program that doctor names is the one that the gateway starts: it is looked for in the PATH of the upstream.
func TestDoctorNamesTheProgramThatRuns(t *testing.T) {
	ours, theirs := t.TempDir(), t.TempDir()
	for _, dir := range []string{ours, theirs} {
		if err := os.WriteFile(filepath.Join(dir, "files-server"), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", ours)
	for name, test := range map[string]struct {
		env  map[string]string
		want string
	}{
		"its own PATH":      {map[string]string{"PATH": theirs}, filepath.Join(theirs, "files-server")},
		"the gateway's":     {nil, filepath.Join(ours, "files-server")},
		"a PATH without it": {map[string]string{"PATH": t.TempDir()}, "no program"},
		"another variable":  {map[string]string{"HOME": theirs}, filepath.Join(ours, "files-server")},
	} {
		told := mcp.Config{Upstreams: map[string]mcp.UpstreamConfig{"files": {Command: []string{"files-server"}, Env: test.env}}}
		found := upstreams{told}.Findings(t.Context())
		if len(found) != 1 || !strings.Contains(found[0].Message, test.want) || found[0].Bites != (test.want == "no program") {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// A PDP that calls itself otherwise than the gateway does names requests for approval by addresses that the gateway
// does not ask.
func TestDoctorComparesAddresses(t *testing.T) {
	start := func(public string) *pdptest.Server {
		return pdptest.Start(t, pdptest.Bundle(map[string]string{"all.cedar": `permit (principal, action == Action::"read", resource);`}), func(c *server.Config) {
			c.PublicURL = public
		})
	}
	plain, elsewhere := start(""), start("http://LOCALHOST/authz")
	for name, test := range map[string]struct{ url, want string }{
		"the same":        {plain.URL, ""},
		"the same, slash": {plain.URL + "/", ""},
		"localhost":       {strings.Replace(plain.URL, "127.0.0.1", "localhost", 1), plain.URL},
		"another":         {elsewhere.URL, "http://localhost:80, and pdp.url is " + elsewhere.URL},
	} {
		var found finding.List
		remotePDP{mcp.Config{PDP: mcp.PDPConfig{URL: test.url}}}.addresses(t.Context(), http.DefaultClient, &found)
		switch {
		case test.want == "" && len(found) == 0:
		case test.want == "" || len(found) != 1 || !found[0].Bites || !strings.Contains(found[0].Message, test.want):
			t.Errorf("%s: %+v", name, found)
		}
	}
}
