package tools_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/tools"
)

// A bundle without a schema loads with the one that is written into it. Beside a schema, and elsewhere, a part is written, and
// elsewhere the command says so.
func TestSchemaLoadsAlone(t *testing.T) {
	t.Parallel()
	const whole = "entity mcp_server;"
	dir := setup{config: with("ask: tool\n")}.write(t)
	write := func(file string) (text, said string) {
		t.Helper()
		var err bytes.Buffer
		c := tools.Schema{Config: cli.Given(filepath.Join(dir, "g.yaml")), Lock: cli.Given(filepath.Join(dir, "tools.lock.json")), Output: cli.Given(filepath.Join(dir, file))}
		orFatal(t, c.Run(cli.Streams{Err: &err}))
		c.Check, c.Output = c.Output, ""
		orFatal(t, c.Run(cli.Streams{Err: &bytes.Buffer{}}))
		made, failed := os.ReadFile(filepath.Join(dir, file))
		orFatal(t, failed)
		return string(made), err.String()
	}
	loads := func(bundle string) {
		t.Helper()
		for range 2 { // also where it was written before
			text, said := write(bundle + "/tools.cedarschema")
			if !strings.Contains(text, whole) || !strings.Contains(said, "only schema") {
				t.Errorf("%s\n%s", said, text)
			}
			if b, problems := pdp.Load(pdp.Dir(filepath.Join(dir, bundle))); b == nil {
				t.Errorf("%s does not load: %+v", bundle, problems)
			}
		}
	}
	loads("policies")
	// What is below the bundle is no schema of it, and a bundle may be found by a link, or have no policy file.
	orFatal(t, os.Mkdir(filepath.Join(dir, "policies", "tests"), 0o700))
	orFatal(t, os.WriteFile(filepath.Join(dir, "policies", "tests", "old.cedarschema"), []byte("entity user;"), 0o600))
	orFatal(t, os.Symlink("policies", filepath.Join(dir, "current")))
	loads("current")
	orFatal(t, os.MkdirAll(filepath.Join(dir, "declared", "access"), 0o700))
	orFatal(t, os.WriteFile(filepath.Join(dir, "declared", "access", "jira.yaml"), []byte("mode: allowlist\nrules: [{agent: helpdesk, tools: [browse]}]\n"), 0o600))
	loads("declared")

	if text, said := write("tools.cedarschema"); strings.Contains(text, whole) || !strings.Contains(said, "give --whole") {
		t.Errorf("beside no policies: %s\n%s", said, text)
	}
	orFatal(t, os.WriteFile(filepath.Join(dir, "policies", "schema.cedarschema"), []byte("entity user;"), 0o600))
	if text, said := write("policies/tools.cedarschema"); strings.Contains(text, whole) || said != "" {
		t.Errorf("beside a schema: %s\n%s", said, text)
	}
	var out, said bytes.Buffer
	c := tools.Schema{Config: cli.Given(filepath.Join(dir, "g.yaml")), Lock: cli.Given(filepath.Join(dir, "tools.lock.json"))}
	orFatal(t, c.Run(cli.Streams{Out: &out, Err: &said}))
	if strings.Contains(out.String(), whole) || !strings.Contains(said.String(), "-o FILE") {
		t.Errorf("to a place that is not known: %s\n%s", &said, &out)
	}
}
