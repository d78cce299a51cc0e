package clients_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/npm"
)

// TestTypeScriptBundles runs bundles of the packed client where there is no Node: in a browser, in Cloudflare's runtime of Workers,
// and in a context of an edge runtime. Each asks a real server as the table of cases says, and reads no lie as a yes.
func TestTypeScriptBundles(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	night.Whole(t, "a bundle breaks by what is Node's own, which TestTypeScriptWithoutNode finds in the text")
	p, err := typescriptTests()
	if err != nil {
		t.Fatal(err)
	}
	tools := npm.Install(t, "bundlers", os.DirFS("typescript/test/bundles"))
	dir := p.installed(t)
	p.link(t, dir, "hono", "@marcbachmann/cel-js")
	for _, name := range []string{"browser", "edge", "entry", "worker"} {
		copyTo(t, filepath.Join(dir, name+".js"), filepath.Join(tools, name+".js"))
	}
	for _, name := range []string{"calls", "holder"} {
		to := filepath.Join(dir, name+".js")
		copyTo(t, to, filepath.Join(p.Dir, "dist-test/test", name+".js"))
		text, err := os.ReadFile(to)
		if err == nil {
			err = os.WriteFile(to, bytes.ReplaceAll(text, []byte(`"../src/index.js"`), []byte(`"policy-service-client"`)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	places := map[string]func(*testing.T, *front, string) driver{
		"browser": inBrowser,
		"edge": func(t *testing.T, _ *front, bundle string) driver {
			return run(t, tools, filepath.Join(p.Bin, "node"), "edge.mjs", bundle)
		},
		"worker": func(t *testing.T, _ *front, bundle string) driver {
			return posting{inWorkerd(t, tools, bundle, "")}
		},
	}
	for _, bundler := range []string{"esbuild", "webpack", "vite"} {
		for place, open := range places {
			t.Run(bundler+", "+place, func(t *testing.T) {
				t.Parallel()
				out := filepath.Join(t.TempDir(), "bundle.js")
				p.must(t, dir, "node", filepath.Join(tools, "build.mjs"), bundler, place+".js", place, out)
				f := openFront(t, bundle(), `user::"mia"`)
				d := open(t, f, out)
				for _, c := range append(cases(october), capable()...) {
					if elsewhere[place][c.name] != "" {
						continue
					}
					for n, s := range c.steps {
						t.Run(fmt.Sprintf("%s/%d", c.name, n+1), func(t *testing.T) { f.step(t, d, c, n, s) })
					}
				}
				for id, want := range map[string]result{"d1": {Status: 200, Result: "done"}, "d0": {Status: 403, Result: "access denied"}} {
					f.setLie(nil)
					if got := d.do(t, call{Do: "route", What: id, Client: f.client(options{})}); !same(got, want) {
						t.Errorf("a route about %s: %+v", id, got)
					}
				}
				lied(t, f, d, october, elsewhere[place])
			})
		}
	}
	t.Run("the Worker of the page", func(t *testing.T) {
		t.Parallel()
		program := filepath.Join(dir, "page.ts")
		if err := os.WriteFile(program, []byte(readTypeScriptPage(t, "README.md").programs["worker.ts"]), 0o600); err != nil {
			t.Fatal(err)
		}
		alone := `{"compilerOptions": {"strict": true, "module": "esnext", "moduleResolution": "bundler", "target": "es2024", "lib": ["es2024", "dom"],
			"types": [], "noEmit": true}, "files": ["page.ts"]}` // without the types of Node
		if err := os.WriteFile(filepath.Join(dir, "tsconfig.json"), []byte(alone), 0o600); err != nil {
			t.Fatal(err)
		}
		p.must(t, dir, "node", filepath.Join(p.Dir, "node_modules/typescript/bin/tsc"), "-p", ".")
		out := filepath.Join(t.TempDir(), "bundle.js")
		p.must(t, dir, "node", filepath.Join(tools, "build.mjs"), "esbuild", "page.ts", "worker", out)
		s := starter(t)
		at := inWorkerd(t, tools, out, fmt.Sprintf(`(name = "PDP_URL", text = %q), (name = "PDP_KEY", text = %q)`, s.URL, s.key["pep"]))
		for user, want := range map[string]string{"alice": "200 created\n", "erin": "403 access denied", "": "403 access denied"} {
			if got := post(t, http.DefaultClient, at+"/tickets", "X-User", user); got != want {
				t.Errorf("%q gets %s, and should get %s", user, got, want)
			}
		}
	})
}

// elsewhere are the cases and lies of which another runtime than Node makes something else, by the runtime, and why.
var elsewhere = map[string]map[string]string{
	"browser": {
		"redirect 301": noStatus, "redirect 302": noStatus, "redirect 303": noStatus, "redirect 307": noStatus, "redirect 308": noStatus,
		"cut before an answer": sendsAgain, "cut, and asked again": sendsAgain, "cut each time": sendsAgain, "cut with an approval": sendsAgain,
	},
	"edge":   {"envelope: 999": "its fetch takes no such status"},
	"worker": {"cut, and asked again": saysNothing, "cut each time": saysNothing},
}

const (
	noStatus    = "it shows no status of a redirect"
	sendsAgain  = "it sends a request again by itself if a kept connection breaks"
	saysNothing = "its fetch does not say how far a request came, so the client does not send it again"
)

// TestTypeScriptWithoutNode finds what only Node has in the text of the client. The entries for Express and MCP have its types.
func TestTypeScriptWithoutNode(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("typescript/src/*.ts")
	if err != nil || len(sources) < 15 {
		t.Fatal(err, sources)
	}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			_, imports, isImport := strings.Cut(line, ` from "`)
			isOfNode := isImport && strings.HasPrefix(imports, "node:") && !strings.HasPrefix(line, "import type ")
			if isOfNode || regexp.MustCompile(`\bBuffer\b|\brequire\(|\b__dirname\b|(^|[^.)}?\w])process\.\w`).MatchString(line) {
				t.Errorf("%s: %s", source, line)
			}
		}
	}
}

func copyTo(t *testing.T, to, from string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// page is a page in a browser that does calls: it fetches each from the server that it comes from.
type page struct {
	calls    chan []byte
	outcomes chan []byte
}

// inBrowser opens a page at the origin of a front, as a browser lets a page ask no other one.
func inBrowser(t *testing.T, f *front, bundle string) driver {
	p := &page{make(chan []byte), make(chan []byte)}
	pdp := f.Config.Handler
	f.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/page":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, `<!doctype html><link rel=icon href="data:,"><script type=module src=/bundle.js></script>`)
		case "/bundle.js":
			http.ServeFile(w, r, bundle)
		case "/next":
			if outcome, err := io.ReadAll(r.Body); err == nil && len(outcome) > 0 {
				p.outcomes <- outcome
			}
			select {
			case line := <-p.calls:
				_, _ = w.Write(line)
			case <-r.Context().Done():
			}
		default:
			pdp.ServeHTTP(w, r)
		}
	})
	path, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		t.Fatalf("no browser: %v; try to install chromium-headless-shell", err)
	}
	ctx, stop := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path))...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(end)
	if _, err := chromedp.Run(ctx, chromedp.Navigate(f.URL+"/page")); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *page) do(t *testing.T, c call) (r result) {
	t.Helper()
	line, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p.calls <- line
	if err := json.Unmarshal(<-p.outcomes, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// inWorkerd serves a bundle with Cloudflare's runtime, and returns its URL.
func inWorkerd(t *testing.T, tools, bundle, bindings string) (url string) {
	t.Helper()
	arch := map[string]string{"amd64": "64", "arm64": "arm64"}[runtime.GOARCH]
	config := filepath.Join(filepath.Dir(bundle), "config.capnp")
	text := `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
	services = [
		(name = "main", worker = (modules = [(name = "worker", esModule = embed "` + filepath.Base(bundle) + `")],
			compatibilityDate = "2026-11-01", globalOutbound = "net", bindings = [` + bindings + `])),
		(name = "net", network = (allow = ["local"])),
	],
	sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), filepath.Join(tools, "node_modules/@cloudflare/workerd-"+runtime.GOOS+"-"+arch, "bin/workerd"), "serve", config, "--control-fd=1")
	c.Stderr = t.Output()
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Wait() }) // the test's context has ended it
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var listens struct{ Port int }
	if err == nil {
		err = json.Unmarshal(line, &listens)
	}
	if err != nil || listens.Port == 0 {
		t.Fatalf("workerd does not start: %v %s", err, line)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", listens.Port)
}

// posting does calls by a server, such as a Worker.
type posting struct{ url string }

func (p posting) do(t *testing.T, c call) (r result) {
	t.Helper()
	line, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post(p.url, "application/json", bytes.NewReader(line))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return r
}
