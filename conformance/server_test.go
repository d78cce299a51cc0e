package conformance_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"policy-service/conformance"
	"policy-service/pdp"
	"policy-service/pdp/pdptest"
)

func TestOurServer(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(*testing.T) mode{
		"plain HTTP":          func(*testing.T) mode { return mode{} },
		"data, no key":        withData,
		"key, no requests":    withKeyThatRequestsNothing,
		"TLS":                 overTLS,
		"key":                 withKey,
		"key as Basic":        withBasicKey,
		"token":               withToken,
		"certificate":         withCertificate,
		"tenant":              func(*testing.T) mode { return mode{path: "/tenants/acme"} },
		"tenant, key and TLS": tenantKeyTLS,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := make(t)
			server := pdptest.Start(t, pdp.Dir(bundleWithTenant(t)), m.options...)
			if m.trust != nil {
				m.trust(server)
			}
			report := run(t, m, server.URL, server.Client)
			wantAllPassed(t, report, m.authorization != "")
		})
	}
}

// run asks every plan there is.
func run(t *testing.T, m mode, url string, client *http.Client) conformance.Report {
	t.Helper()
	target := conformance.Target{URL: url + m.path, Client: client, Header: http.Header{}, Plans: allPlans(), Timeout: time.Minute}
	if m.authorization != "" {
		target.Header.Set("Authorization", m.authorization)
	}
	report, err := conformance.Run(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func allPlans() (names []string) {
	for _, p := range conformance.Plans() {
		names = append(names, p.Name)
	}
	return names
}

// wantAllPassed holds our own server to what is only advice, too.
func wantAllPassed(t *testing.T, r conformance.Report, credential bool) {
	t.Helper()
	advised := 0
	for _, one := range r.Results {
		if one.Outcome == conformance.Advised {
			advised++
		}
	}
	if skips := r.Count(conformance.Skipped); r.OK() && advised == 0 && credential == (skips == 0) {
		return
	}
	var b strings.Builder
	_ = r.WriteText(&b)
	t.Error(b.String())
}

// bundleWithTenant is the bundle with a tenant that adds nothing to it.
func bundleWithTenant(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("bundle")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "tenants", "acme"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "tenants", "acme", "none.cedar"), "// acme has the policies of everybody.\n")
	return dir
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
