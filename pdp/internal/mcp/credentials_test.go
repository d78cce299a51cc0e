package mcp

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"policy-service/pdp/pdptest/mcptest"
)

func TestEnvironmentOfAProgram(t *testing.T) {
	t.Parallel()
	secret, open := filepath.Join(t.TempDir(), "secret"), filepath.Join(t.TempDir(), "open")
	for name, mode := range map[string]os.FileMode{secret: 0o600, open: 0o644} {
		mcptest.Must(t, os.WriteFile(name, []byte("hunter2\n"), mode))
	}
	u := UpstreamConfig{Env: map[string]string{"PATH": "/bin"}, EnvFiles: map[string]string{"GITHUB_TOKEN": secret}}
	got, err := u.environment()
	if diff := cmp.Diff(map[string]string{"PATH": "/bin", "GITHUB_TOKEN": "hunter2"}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if len(u.Env) != 1 {
		t.Error("the secret came into the configuration")
	}
	u.EnvFiles["GITHUB_TOKEN"] = open
	if _, err := u.environment(); err == nil || !strings.Contains(err.Error(), "GITHUB_TOKEN cannot be had") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a file that everybody can read: %v", err)
	}
	mcptest.Must(t, os.WriteFile(secret, []byte("hunter2\x00"), 0o600))
	u.EnvFiles["GITHUB_TOKEN"] = secret
	if _, err := u.environment(); err == nil || !strings.Contains(err.Error(), "env_files.GITHUB_TOKEN: the file is empty, or has a NUL") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a file with a NUL: %v", err)
	}
}

// TestSecretsOfAProgramAreKnownByNameOrListed, and no other variable is masked.
func TestSecretsOfAProgramAreKnownByNameOrListed(t *testing.T) {
	t.Parallel()
	u := UpstreamConfig{Env: map[string]string{"MODE": "a"}, EnvFiles: map[string]string{"GITHUB_TOKEN": "", "GITHUB_PAT": "", "DATABASE_URL": "", "CONFIG": ""}, Secret: []string{"DATABASE_URL"}}
	got := u.secrets(map[string]string{"MODE": "a", "GITHUB_TOKEN": "t", "GITHUB_PAT": "p", "DATABASE_URL": "u", "CONFIG": "c"})
	if slices.Sort(got); !slices.Equal(got, []string{"p", "t", "u"}) {
		t.Error(got)
	}
}

func TestCredentialsOfAnUpstream(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	mcptest.Must(t, os.WriteFile(file, []byte(`hunter2`), 0o600))
	at := TokenEndpoint{TokenURL: "https://idp.example.com/token", ClientID: "gateway", ClientSecretFile: file, Audience: "jira"}
	for name, a := range map[string]UpstreamAuth{
		"header": {HeaderFile: file, Header: "X-Api-Key"}, "exchange": {TokenExchange: &at},
		"own": {ClientCredentials: &at},
	} {
		if c, err := a.credentials(nil); err != nil || c == nil {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
	if c, err := (UpstreamAuth{}).credentials(nil); err != nil || c != nil {
		t.Errorf("none: %v, %v", c, err)
	}
}
