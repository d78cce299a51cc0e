package server_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"policy-service/pdp/internal/logging"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/written"
)

// withToken has a test server take a metrics token.
func withToken(file string) pdptest.Option {
	return func(c *server.Config) { c.Metrics.TokenFile = file }
}

// A scraper with the token of now reads the metrics, and nothing else with it.
func TestMetricsToken(t *testing.T) {
	t.Parallel()
	data, file := t.TempDir(), filepath.Join(t.TempDir(), "token")
	addKey(t, data, "pep", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide}})
	put := func(token string) {
		t.Helper()
		must(t, os.WriteFile(file, []byte(token), 0o600))
	}
	token := strings.Repeat("t0ken-", 6)
	put(token + "\n")
	var told written.Text
	s := pdptest.Start(t, bundle(t), withData(data), withToken(file), logAs(&told, logging.Config{Access: true}))
	ask := func(header ...string) int { t.Helper(); return s.Get("/metrics", header...).Status }
	with := func(token string) int { t.Helper(); return ask("Authorization", "Bearer "+token) }
	if got := with(token); got != 200 {
		t.Fatalf("with the token: %d", got)
	}
	eventually(t, "the line about it says who asked", func() bool { return strings.Contains(told.String(), "route=/metrics status=200") })
	if !regexp.MustCompile(`route=/metrics status=200 .* caller=metrics `).MatchString(told.String()) {
		t.Error(told.String())
	}
	for name, got := range map[string]int{
		"without it":   ask(),
		"with another": with(strings.Repeat("t0ken-", 5) + "t0ken+"),
		"with a part":  with(token[:32]),
		"with more":    with(token + "x"),
		"with none":    with(""),
		"as Basic":     ask("Authorization", "Basic "+token),
		"in a query":   s.Get("/metrics?access_token=" + token).Status,
	} {
		if got != 401 {
			t.Errorf("%s: %d, want 401", name, got)
		}
	}
	if got := ask("Authorization", "Bearer "+token, "Approver-Token", "x"); got != 403 {
		t.Errorf("with a person's token beside it: %d", got)
	}
	routes, err := server.Routes()
	must(t, err)
	tried := 0
	for _, route := range routes {
		method, path, _ := strings.Cut(strings.NewReplacer("{tenant}", "acme", "{id}", "00000000-0000-7000-8000-000000000001", "{digest}", "h1:x").Replace(route), " ")
		without := s.Do(method, path, "{}", "Content-Type", "application/json")
		got := s.Do(method, path, "{}", "Content-Type", "application/json", "Authorization", "Bearer "+token)
		if path != "/metrics" && without.Status == 401 {
			if tried++; got.Status != 401 {
				t.Errorf("%s: the token gets %d %.100s", route, got.Status, got.Body)
			}
		}
		if strings.HasSuffix(path, "/readyz") && got.Body != without.Body {
			t.Errorf("%s tells the scraper more: %s", route, got.Body)
		}
	}
	if tried < 10 {
		t.Errorf("only %d routes were asked", tried)
	}

	// The token of now is the only one, and without a usable file there is none.
	other := strings.Repeat("0ther-", 6)
	put(other)
	if was, is := with(token), with(other); was != 401 || is != 200 {
		t.Errorf("after a change: the one before %d, the new one %d", was, is)
	}
	for name, damage := range map[string]func(){
		"too short": func() { put(other[:31]) }, "gone": func() { must(t, os.Remove(file)) }, "two lines": func() { put(other + "\n" + other) },
		"empty": func() { put("") }, "open to all": func() { put(other); must(t, os.Chmod(file, 0o644)) },
	} {
		damage()
		if one, two := with(other), with(""); one != 401 || two != 401 {
			t.Errorf("%s: %d, %d, want 401", name, one, two)
		}
		_ = os.Remove(file)
		put(other)
		if got := with(other); got != 200 {
			t.Errorf("after %s: %d", name, got)
		}
	}
	if n := strings.Count(told.String(), "no usable token"); n != 5 {
		t.Errorf("logged %d times, want once for each state of the file", n)
	}
	if strings.Contains(told.String(), "t0ken-") || strings.Contains(told.String(), "0ther-") {
		t.Error("the token is in the log")
	}
}

// The token is no credential: it neither opens an address to others nor closes the door to this machine.
func TestMetricsTokenIsNoCredential(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte(strings.Repeat("x", 32)), 0o600))
	a := pdptest.NewAuthority(t)
	refusedAtStart(t, "without credentials anybody could ask", withData(t.TempDir()), withToken(file), withTLS(a), func(c *server.Config) { c.Listen = "0.0.0.0:0" })
	refusedAtStart(t, "refusing to serve a proxy that terminates TLS", withData(t.TempDir()), withToken(file), terminated("10.0.0.5"))
	s := pdptest.Start(t, bundle(t), withToken(file))
	replied(t, s.Post(evaluationPath, readQuestion), 200)
	replied(t, s.Get("/metrics"), 200)

	must(t, os.WriteFile(file, []byte(strings.Repeat("x", 31)), 0o600))
	refusedAtStart(t, "metrics.token_file: "+file+" has a token of fewer than 32 bytes", withToken(file))
	must(t, os.Chmod(file, 0o604))
	refusedAtStart(t, "is open to every user of this machine", withToken(file), func(*server.Config) { must(t, os.WriteFile(file, []byte(strings.Repeat("x", 32)), 0o604)) })
}
