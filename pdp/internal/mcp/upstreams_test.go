package mcp_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp/internal/mcp"
)

// secretFile writes a file that only its owner can read.
func secretFile(t testing.TB, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	orFail(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

// sealed has gateways of one configuration share the keys of their sessions. The first is gateway-0.
func sealed(t *testing.T) func(c *mcp.Config) {
	file := secretFile(t, "0123456789abcdef0123456789abcdef")
	return func(c *mcp.Config) { c.Name, c.Seal.KeyFiles = "gateway-0", []string{file} }
}

func TestUpstreamProgramNeedsItsFiles(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"/nowhere", secretFile(t, ""), secretFile(t, "\n")} {
		c := mcp.Config{
			Listen: "127.0.0.1:0", Resource: "http://127.0.0.1/mcp", PDP: mcp.PDPConfig{URL: "http://127.0.0.1:1"},
			Identity:  mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice"}},
			Upstreams: map[string]mcp.UpstreamConfig{"up": {Command: []string{"/bin/true"}, EnvFiles: map[string]string{"API_KEY": file}}},
		}
		if _, err := mcp.New(t.Context(), c, mcp.Deps{}); err == nil || !strings.Contains(err.Error(), "env_files.API_KEY") {
			t.Errorf("%s: %v", file, err)
		}
	}
}
