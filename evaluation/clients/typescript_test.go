package clients_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/npm"
	"policy-service/policies"
)

// typescript is the package in the directory of that name.
type typescript struct{ npm.Package }

// typescriptOnce makes it for all tests.
var typescriptOnce = sync.OnceValues(func() (typescript, error) {
	p, err := npm.Pack("typescript", filepath.Join(shared, "typescript"))
	return typescript{p}, err
})

// typescriptTests compiles its tests into dist-test, as its own command does.
var typescriptTests = sync.OnceValues(func() (p typescript, err error) {
	if p, err = typescriptOnce(); err == nil {
		_, err = p.Run(context.Background(), p.Dir, "node", "node_modules/typescript/bin/tsc", "-p", "tsconfig.json")
	}
	return p, err
})

// typescriptClient is the package, packed: see typescriptOnce. The test that calls it has called night.Npm.
func typescriptClient(t testing.TB) typescript {
	t.Helper()
	p, err := typescriptOnce()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// must returns the output of a command.
func (p typescript) must(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	out, err := p.Run(t.Context(), dir, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTypeScriptBuilds: strict tsc compiles the package and its tests, and biome finds nothing.
func TestTypeScriptBuilds(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	p, err := typescriptTests()
	if err != nil {
		t.Fatal(err)
	}
	p.must(t, p.Dir, "node", "node_modules/@biomejs/biome/bin/biome", "ci", "--colors=off", "--error-on-warnings", ".")
	var manifest struct {
		Dependencies map[string]string
		Scripts      map[string]string
	}
	text, err := os.ReadFile("typescript/package.json")
	if err == nil {
		err = json.Unmarshal(text, &manifest)
	}
	if err != nil {
		t.Fatal(err)
	}
	scripts := slices.Sorted(maps.Keys(manifest.Scripts))
	if len(manifest.Dependencies) > 0 || !slices.Equal(scripts, []string{"build", "lint", "prepack", "test"}) {
		t.Errorf("the package depends on %v, and has the scripts %v: no user may have to install anything, or to run a script", manifest.Dependencies, scripts)
	}
}

// TestTypeScriptUnits runs the tests of the package with the oldest Node that it is for, and at night with a newer one.
func TestTypeScriptUnits(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	t.Run("node22", func(t *testing.T) { runUnits(t, "node22") })
	t.Run("node24", func(t *testing.T) {
		night.Whole(t, "both run the same JavaScript")
		runUnits(t, "node24")
	})
}

func runUnits(t *testing.T, version string) {
	p, err := typescriptTests()
	if err == nil {
		p.Bin, err = npm.Node(filepath.Join(p.Dir, "test", version))
	}
	if err != nil {
		t.Fatal(err)
	}
	if v := p.must(t, p.Dir, "node", "--version"); !strings.HasPrefix(v, "v"+strings.TrimPrefix(version, "node")+".") {
		t.Fatalf("%s is %s", version, v)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	units := p.Command(t.Context(), p.Dir, "node", "--test", "--test-reporter=tap", "dist-test/test/*.test.js")
	units.Env = append(units.Env, "REPOSITORY="+root)
	out, err := units.CombinedOutput()
	passed := regexp.MustCompile(`(?m)^# pass (\d+)$`).FindSubmatch(out)
	if err != nil || passed == nil || len(passed[1]) < 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s tests of the package pass", passed[1])
}

// TestTypeScriptPack: the packed file has the files for users, and installs without a network into an empty directory, where
// each of its entries can be imported.
func TestTypeScriptPack(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	p := typescriptClient(t)
	files := strings.Fields(p.must(t, p.Dir, "tar", "tzf", p.File))
	want := []string{"package/CHANGELOG.md", "package/LICENSE", "package/MCP.md", "package/README.md", "package/package.json"}
	sources, err := filepath.Glob("typescript/src/*.ts")
	if err != nil || len(sources) == 0 {
		t.Fatal(err, "no sources")
	}
	for _, source := range sources {
		name := "package/dist/" + strings.TrimSuffix(filepath.Base(source), ".ts")
		want = append(want, name+".js", name+".d.ts")
	}
	slices.Sort(files)
	slices.Sort(want)
	if !slices.Equal(files, want) {
		t.Errorf("the packed file has\n%s\nand should have\n%s", strings.Join(files, "\n"), strings.Join(want, "\n"))
	}
	dir := p.installed(t)
	ours, err := os.ReadFile("../../LICENSE")
	if packed, e := os.ReadFile(filepath.Join(dir, "node_modules/policy-service-client/LICENSE")); err != nil || e != nil || !bytes.Equal(packed, ours) {
		t.Errorf("the packed licence is not that of the repository: %v %v", err, e)
	}
	p.link(t, dir, "express", "hono", "@marcbachmann/cel-js")
	var manifest struct {
		Exports map[string]any
	}
	text, err := os.ReadFile("typescript/package.json")
	if err == nil {
		err = json.Unmarshal(text, &manifest)
	}
	if err != nil || len(manifest.Exports) < 4 {
		t.Fatal(err, manifest)
	}
	for entry := range manifest.Exports {
		name := path.Join("policy-service-client", entry)
		if out := p.must(t, dir, "node", "--input-type=module", "-e", `console.log(Object.keys(await import(process.argv[1])).length > 0)`, name); out != "true\n" {
			t.Errorf("%s has nothing: %s", name, out)
		}
	}
}

// installed is a directory where npm installed the packed file, and nothing else, without a network.
func (p typescript) installed(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	npmi := p.Command(t.Context(), dir, "npm", "install", "--offline", "--no-audit", "--no-fund", "--loglevel=error", p.File)
	npmi.Env = append(npmi.Env, "npm_config_registry=http://127.0.0.1:1/", "npm_config_cache="+filepath.Join(dir, ".npm"))
	if out, err := npmi.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}
	entries, err := filepath.Glob(filepath.Join(dir, "node_modules", "[^.]*"))
	if err != nil || len(entries) != 1 {
		t.Fatal(err, entries, "are installed, and the package alone should be")
	}
	return dir
}

// link puts packages of others beside the installed one, as npm would from the registry.
func (p typescript) link(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		to := filepath.Join(dir, "node_modules", name)
		err := os.MkdirAll(filepath.Dir(to), 0o755)
		if err == nil {
			err = os.Symlink(filepath.Join(p.Dir, "node_modules", name), to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestTypeScriptNaive: of the careless lines in types.ts tsc refuses each for its own reason. Those that JavaScript would
// run are in naive.test.ts, among the units.
func TestTypeScriptNaive(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	p := typescriptClient(t)
	text, err := os.ReadFile("typescript/test/naive/types.ts")
	if err != nil {
		t.Fatal(err)
	}
	got, want := map[string][]string{}, map[string][]string{}
	lines := strings.Split(string(text), "\n")
	for n, line := range lines {
		if codes, ok := strings.CutPrefix(line, "// TS"); ok {
			at := fmt.Sprintf("%d: %s", n+2, lines[n+1])
			want[at] = strings.Fields("TS" + codes)
			slices.Sort(want[at])
		}
	}
	out, err := p.Run(t.Context(), p.Dir, "node", "node_modules/typescript/bin/tsc", "-p", "test/naive/tsconfig.json")
	if err == nil {
		t.Error("tsc refuses nothing")
	}
	for _, m := range regexp.MustCompile(`(?m)^(\S+)\((\d+),\d+\): error (TS\d+): `).FindAllStringSubmatch(out, -1) {
		var n int
		_, _ = fmt.Sscan(m[2], &n)
		if m[1] != "test/naive/types.ts" {
			t.Errorf("an error elsewhere: %s", m[0])
			continue
		}
		at := fmt.Sprintf("%d: %s", n, lines[n-1])
		got[at] = append(got[at], m[3])
		slices.Sort(got[at])
	}
	for at, codes := range want {
		if !slices.Equal(got[at], codes) {
			t.Errorf("%s\nis refused by %v, and should be by %v", at, got[at], codes)
		}
	}
	for at, codes := range got {
		if want[at] == nil {
			t.Errorf("%s\nis refused by %v", at, codes)
		}
	}
	if len(want) < 50 {
		t.Errorf("there are %d careless lines", len(want))
	}
}

// TestTypeScriptPage runs the programs of README.md, by the packed file, against a real server: each prints the text in its
// comments. Frank approves the request of the one that waits.
func TestTypeScriptPage(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	p := typescriptClient(t)
	page := readTypeScriptPage(t, "README.md", "MCP.md")
	dir := p.newcomer(t, page)
	p.link(t, dir, "@modelcontextprotocol/sdk", "@marcbachmann/cel-js", "zod")
	p.must(t, dir, "node", "node_modules/typescript/bin/tsc", "-p", ".")
	s, granting := starter(t), agents(t)
	s.people(decides("approve"))
	env := append(s.env(), "AGENTS_URL="+granting.URL, "AGENTS_KEY="+granting.key["pep"])
	ran := 0
	for name, program := range page.programs {
		if strings.Contains(program, ".listen(") || strings.Contains(program, "serve(") || strings.Contains(program, "export default") || name == "client.ts" {
			continue // worker.ts is run by TestTypeScriptBundles
		}
		ran++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := p.Command(t.Context(), dir, "node", name)
			run.Env = append(run.Env, env...)
			var failure bytes.Buffer
			run.Stderr = &failure
			out, err := run.Output()
			want := ""
			for _, says := range regexp.MustCompile(`// prints: (.*)`).FindAllStringSubmatch(program, -1) {
				want += says[1] + "\n"
			}
			if err != nil || string(out) != want || want == "" {
				t.Errorf("%v\n%s\nit prints\n%s\nand the page says\n%s", err, &failure, out, want)
			}
		})
	}
	t.Run("hono.ts", func(t *testing.T) {
		t.Parallel()
		line := p.serve(t, dir, "hono.ts", append(env, "PORT=0"))
		port, ok := strings.CutPrefix(line, "listening on ")
		if !ok {
			t.Fatal(line)
		}
		for user, want := range map[string]string{"alice": "200 created by ", "erin": "403 access denied", "": "403 access denied"} {
			if got := post(t, http.DefaultClient, "http://127.0.0.1:"+port+"/tickets", "X-User", user); !strings.HasPrefix(got, want) {
				t.Errorf("%q gets %s, and should get %s", user, got, want)
			}
		}
	})
	t.Run("tenants.ts", func(t *testing.T) {
		t.Parallel()
		files := map[string]string{"tenants/acme/closed.cedar": `@id("closed") forbid(principal, action, resource);`}
		all := policies.Starter()
		if err := fs.WalkDir(all, ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			text, err := fs.ReadFile(all, name)
			files[name] = string(text)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		tenants := openFront(t, pdptest.Bundle(files), `User::"frank"`)
		socket := filepath.Join(t.TempDir(), "s")
		if line := p.serve(t, dir, "tenants.ts", append(tenants.env(), "NODE_ENV=production", "PORT="+socket)); line != "listening" {
			t.Fatal(line)
		}
		browser := overSocket(t, socket)
		for tenant, want := range map[string]string{"default": "200 created\n", "acme": "403 ", "nobody": "503 ", "": "503 ", "../acme": "503 "} {
			if got := post(t, browser, "http://app/tickets", "X-Tenant", tenant); !strings.HasPrefix(got, want) {
				t.Errorf("%q gets %s, and should get %s", tenant, got, want)
			}
		}
	})
	if ran < 5 {
		t.Errorf("%d programs ran", ran)
	}
}

// overSocket is a browser that finds each server at one socket.
func overSocket(t testing.TB, socket string) *http.Client {
	browser := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	t.Cleanup(browser.CloseIdleConnections)
	return browser
}

// TestNewcomerExpress: from the packed file to a route that people's approval opens, in 15 lines that README.md shows. The first
// try files the approval request, Frank approves, and the next try gets through: once, as the policies say.
func TestNewcomerExpress(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	p := typescriptClient(t)
	page := readTypeScriptPage(t, "README.md")
	dir := p.newcomer(t, page)
	own := 0
	for _, line := range strings.Split(page.programs["app.ts"]+page.programs["client.ts"], "\n") {
		if line != "" && !strings.HasPrefix(line, "//") && !strings.HasPrefix(line, "import ") {
			own++
		}
	}
	if own > 15 {
		t.Errorf("a newcomer writes %d lines", own)
	}
	s := starter(t)
	socket := filepath.Join(dir, "s") // a port could be taken
	if line := p.serve(t, dir, "app.ts", append(s.env(), "NODE_ENV=production", "PORT="+socket)); line != "listening" {
		t.Fatal(line)
	}
	browser := overSocket(t, socket)
	push := func() string { return post(t, browser, "http://app/push") }
	for range 2 {
		if got := push(); !strings.HasPrefix(got, "403 ") || !strings.Contains(got, "Forbidden") {
			t.Fatalf("nobody has approved, and it gets %s", got)
		}
	}
	decides("approve")(s)
	if got := push(); got != "200 pushed\n" {
		t.Errorf("Frank has approved, and it gets %s", got)
	}
	if got := push(); !strings.HasPrefix(got, "403 ") {
		t.Errorf("the approval was for once, and it gets %s", got)
	}
	if waiting := s.approvals("pending"); len(waiting) != 1 {
		t.Errorf("there should be one approval request, of the last try: %v", waiting)
	}
}

// tsPage is README.md: its TypeScript by the names that the first lines have, and the other blocks by their tags.
type tsPage struct {
	programs map[string]string
	blocks   map[string][]string
}

func readTypeScriptPage(t testing.TB, names ...string) tsPage {
	t.Helper()
	text := ""
	for _, name := range names {
		one, err := os.ReadFile("typescript/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text += string(one)
	}
	page := tsPage{map[string]string{}, map[string][]string{}}
	for _, m := range regexp.MustCompile("(?ms)^```(\\S[^\n]*)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		name, ok := strings.CutPrefix(strings.SplitN(m[2], "\n", 2)[0], "// ")
		switch {
		case m[1] != "ts":
			page.blocks[m[1]] = append(page.blocks[m[1]], m[2])
		case !ok || !strings.HasSuffix(name, ".ts") || page.programs[name] != "":
			t.Fatalf("a program has no name of its own:\n%s", m[2])
		default:
			page.programs[name] = m[2]
		}
	}
	return page
}

// newcomer is a directory after the commands of the page, with its programs and the packages that they import.
func (p typescript) newcomer(t testing.TB, page tsPage) (dir string) {
	t.Helper()
	dir = t.TempDir()
	file, err := os.ReadFile(p.File)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, filepath.Base(p.File)), file, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.Join(page.blocks["console node"], "")) {
		command, is := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		words := strings.Fields(command)
		switch {
		case !is || len(words) < 2:
			t.Errorf("the page shows %q, and nothing types or compares it", line)
		case command == "node app.ts": // TestNewcomerExpress does
		case strings.HasPrefix(command, "npm install ./"), words[1] != "install":
			typed := p.Command(t.Context(), dir, "sh", "-ec", command)
			typed.Env = append(typed.Env, "npm_config_offline=true", "npm_config_registry=http://127.0.0.1:1/", "npm_config_cache="+filepath.Join(dir, ".npm"))
			if out, err := typed.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", command, err, out)
			}
		default:
			p.link(t, dir, words[2:]...)
		}
	}
	p.link(t, dir, "hono", "@hono/node-server", "@types/node", "@types/express", "typescript")
	files := maps.Clone(page.programs)
	files["tsconfig.json"] = `{"compilerOptions": {"strict": true, "module": "nodenext", "target": "es2024", "noEmit": true, "types": ["node"],
		"allowImportingTsExtensions": true, "erasableSyntaxOnly": true, "verbatimModuleSyntax": true}, "include": ["*.ts"]}`
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// serve runs a program that serves until the test ends, and returns the first line that it prints.
func (p typescript) serve(t testing.TB, dir, name string, env []string) string {
	t.Helper()
	c := p.Command(t.Context(), dir, "node", name)
	c.Env = append(c.Env, env...)
	var failure bytes.Buffer
	c.Stderr = &failure
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Wait() // the test's context has ended it
		if t.Failed() {
			t.Logf("%s:\n%s", name, &failure)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(name, "does not start:", err)
	}
	return strings.TrimSpace(line)
}
