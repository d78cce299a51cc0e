package mcptest

import (
	"context"
	"embed"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"policy-service/pdp/pdptest/npm"
)

//go:embed node
var node embed.FS

// Others are programs of others that speak MCP, and the Node that runs them.
type Others struct{ dir, node string }

// others is what a test lacks that cannot have them.
const others = "clients and suite of others"

// Install installs what node/package-lock.json pins. Where that cannot be done the test fails if CI is set, and is
// skipped elsewhere.
func Install(t testing.TB) *Others {
	t.Helper()
	files, err := fs.Sub(node, "node")
	if err != nil {
		t.Fatal(err)
	}
	o := &Others{dir: npm.Install(t, others, files)}
	o.node = o.program("node")
	if _, err := exec.LookPath(o.node); err != nil { // the packages have none for this machine
		o.node = "node"
	}
	version, err := exec.CommandContext(t.Context(), o.node, "--version").Output()
	if err != nil {
		npm.Without(t, others, err.Error())
	}
	if !newEnough.Match(version) {
		npm.Without(t, others, "Node 22.19 or later is needed, and this is "+string(version))
	}
	return o
}

var newEnough = regexp.MustCompile(`^v(22\.(19|[2-9]\d)|2[3-9]|[3-9]\d)\.`)

// program is the path of an installed program.
func (o *Others) program(name string) string {
	return filepath.Join(o.dir, "node_modules", ".bin", name)
}

// Server is the command line of an installed MCP server that speaks over its standard streams: everything, filesystem or
// memory.
func (o *Others) Server(name string, args ...string) []string {
	return append([]string{o.node, o.program("mcp-server-" + name)}, args...)
}

// InspectorWeb returns the files of the web client of the Inspector.
func (o *Others) InspectorWeb() fs.FS {
	return os.DirFS(filepath.Join(o.dir, "node_modules/@modelcontextprotocol/inspector/clients/web/dist"))
}

func (o *Others) command(ctx context.Context, script string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, o.node, append([]string{script}, args...)...)
	c.Dir = o.dir
	return c
}
