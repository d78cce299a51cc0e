package strangers_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	// Go's cache of tests must know the packages that the other module builds.

	_ "policy-service/evaluation/authzenclient"
	_ "policy-service/evaluation/authzenclient/approvals"
	_ "policy-service/evaluation/coaz/sdkpep"
	"policy-service/pdp"
	_ "policy-service/pdp/approval/webhook"
	_ "policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/filetree"
	"policy-service/policies"
)

// packages are those whose example_test.go is copied, with the directory testdata/example beside it if there is one.
var packages = []string{
	"pdp", "pdp/approval/webhook", "pdp/decisionlog/verify",
	"evaluation/authzenclient", "evaluation/authzenclient/approvals", "evaluation/coaz/sdkpep",
}

// needPeople are examples that are built and not run: somebody with a key must approve what they ask for.
var needPeople = []string{"ExampleEnforce", "ExampleResume", "ExampleAsk"}

// redirect is written beside each example. It sends what the example asks of 127.0.0.1:PORT to the address in PDP_PORT.
const redirect = `

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		if port, ok := strings.CutPrefix(to, "127.0.0.1:"); ok && os.Getenv("PDP_"+port) != "" {
			to = os.Getenv("PDP_" + port)
		}
		return dial(ctx, network, to)
	}
	http.DefaultTransport = transport
	os.Exit(m.Run())
}
`

const agents = `
@id("capability-suffices")
permit (principal is agent, action == Action::"tool.invoke", resource is tool) when { context.pdp.capability.held };
@id("capability-granted")
permit (principal == agent::"agent-a", action == Action::"capability.grant", resource == tool::"agent-b:restart");`

const customers = `
permit (principal == identity::"alice", action, resource);
@reason_user("Keep this customer.")
forbid (principal, action == Action::"get_customer", resource == customer::"kept");`

func TestExamples(t *testing.T) {
	t.Parallel()
	filetree.Checkout(t)
	module := writeModule(t)
	want := map[string]bool{}
	for _, p := range packages {
		copyExamples(t, p, filepath.Join(module, filepath.FromSlash(p)), want)
	}

	data := t.TempDir()
	apiKeys, err := keys.Open(data)
	check(t, err)
	key, err := apiKeys.Add(keys.Spec{Name: "agents", Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Capability}}})
	check(t, err)
	starter := pdptest.Start(t, pdp.FS(policies.Starter()))
	ofAgents := pdptest.Start(t, pdptest.Bundle(map[string]string{"a.cedar": agents}), func(c *server.Config) {
		c.Data, c.PublicURL, c.Program.PDP.Now = data, "http://127.0.0.1:8247", time.Now // proofs of the holder are of now
	})
	ofCustomers := pdptest.Start(t, pdptest.Bundle(map[string]string{"a.cedar": customers}))

	command := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-json", "-skip", "^("+strings.Join(needPeople, "|")+")$", "./...")
	command.Dir = module
	command.Env = append(os.Environ(), "GOFLAGS=-mod=mod -trimpath", "GOPROXY=off", "GOWORK=off",
		"PDP_8180="+starter.Addr(), "PDP_8247="+ofAgents.Addr(), "AGENTS_KEY="+key, "PDP_URL="+ofCustomers.URL)
	output, err := command.CombinedOutput()
	var text strings.Builder
	for line := range strings.Lines(string(output)) {
		var event struct{ Action, Package, Test, Output string }
		if json.Unmarshal([]byte(line), &event) != nil {
			event.Output = line
		}
		text.WriteString(event.Output)
		if event.Action == "pass" {
			delete(want, strings.TrimPrefix(event.Package, "example.com/stranger/")+"."+event.Test)
		}
	}
	if err != nil || len(want) > 0 {
		t.Errorf("%v; these examples did not pass: %v\n%s", err, slices.Sorted(maps.Keys(want)), &text)
	}
}

// writeModule returns the directory of a module that requires this one, and whatever this one requires.
func writeModule(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../../..")
	check(t, err)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	check(t, err)
	rest, ok := strings.CutPrefix(string(mod), "module policy-service\n")
	if !ok {
		t.Fatalf("go.mod begins otherwise:\n%.100s", mod)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	check(t, err)
	dir := t.TempDir()
	mod = []byte("module example.com/stranger\n" + rest + "\nrequire policy-service v0.0.0\n\nreplace policy-service => " + root + "\n")
	check(t, os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o600))
	return dir
}

// copyExamples copies the examples of a package to a directory, and adds to want those that are to be run.
func copyExamples(t *testing.T, pkg, to string, want map[string]bool) {
	t.Helper()
	from := filepath.Join("../../..", filepath.FromSlash(pkg))
	source, err := os.ReadFile(filepath.Join(from, "example_test.go"))
	check(t, err)
	check(t, os.MkdirAll(to, 0o700))
	check(t, os.WriteFile(filepath.Join(to, "example_test.go"), source, 0o600))
	check(t, os.WriteFile(filepath.Join(to, "main_test.go"), []byte("package "+path.Base(pkg)+"_test"+redirect), 0o600))
	if data := filepath.Join(from, "testdata", "example"); exists(data) {
		check(t, os.CopyFS(filepath.Join(to, "testdata", "example"), os.DirFS(data)))
	}
	before := len(want)
	for _, match := range regexp.MustCompile(`(?m)^func (Example\w*)\(\)`).FindAllSubmatch(source, -1) {
		if name := string(match[1]); !slices.Contains(needPeople, name) {
			want[pkg+"."+name] = true
		}
	}
	if len(want) == before {
		t.Errorf("no example of %s is run", pkg)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
