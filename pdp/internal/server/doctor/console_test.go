package doctor_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/doctor"
)

// What would keep people out of the console is found, and nothing is said of one that is not configured.
func TestConsoleIsLookedAt(t *testing.T) {
	t.Parallel()
	data := lived(t)
	grants := []auth.ClaimGrant{{Claim: "groups", Value: "leads", Permissions: []auth.Permission{auth.LogRead}, Tenants: []string{"*"}}}
	down := httptest.NewServer(http.NotFoundHandler())
	defer down.Close()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = taken.Close() }()
	look := func(data string, c server.ConsoleConfig) finding.List {
		p := patient(data)
		p.Config.Console = &c
		return doctor.Examine(t.Context(), p)
	}
	mustBeWell(t, look(data, server.ConsoleConfig{}))
	mustBeWell(t, look(data, server.ConsoleConfig{Listen: "127.0.0.1:0", PublicURL: "https://pdp.example.com/console"}))
	mustBite(t, look(filepath.Join(t.TempDir(), "none"), server.ConsoleConfig{}), "console", "nobody can log in: there are neither")
	mustBite(t, look(data, server.ConsoleConfig{Listen: taken.Addr().String()}), "console", "cannot be listened on")
	mustBite(t, look(data, server.ConsoleConfig{PublicURL: "https://tools.example.com/pdp/console"}), "console", "the host has other pages, too")
	mustBite(t, look(data, server.ConsoleConfig{PublicURL: "http://pdp.example.com/console"}), "configuration", "is plain HTTP")
	oidc := &auth.OIDC{Issuer: down.URL, ClientID: "console", ClientSecretFile: filepath.Join(data, "no such file"), Grants: grants}
	found := look(data, server.ConsoleConfig{OIDC: oidc})
	mustBite(t, found, "console", "nobody can log in by "+down.URL+": its keys cannot be fetched")
	mustBite(t, found, "console", "no such file cannot be read")
	if biting(doctor.Examine(t.Context(), patient(data)), "console") != "" {
		t.Error("something is said of a console that there is not")
	}
}
