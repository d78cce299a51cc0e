package clients_test

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/pdptest/filetree"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/npm"
)

// debian is the interpreter of the system, which has the system's packages.
const debian = "/usr/bin/python3"

// py runs a command for at most four minutes, and returns its output. It leaves no bytecode behind.
func py(t *testing.T, dir string, env []string, command ...string) (out string, err error) {
	t.Helper()
	filetree.Checkout(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Dir, c.Env = dir, pyEnv(env...)
	text, err := c.CombinedOutput()
	return string(text), err
}

// pyEnv is an environment in which Python and pip follow their arguments alone.
func pyEnv(more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "PYTHON") || strings.HasPrefix(e, "PIP_") || strings.HasPrefix(e, "VIRTUAL_ENV=")
	})
	return append(append(env, "PYTHONDONTWRITEBYTECODE=1", "PIP_NO_CACHE_DIR=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_ROOT_USER_ACTION=ignore"), more...)
}

func pyMust(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pyDone is py for a command that has to succeed.
func pyDone(t *testing.T, dir string, env []string, command ...string) string {
	t.Helper()
	out, err := py(t, dir, env, command...)
	if err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	return out
}

// pyCopy copies the package, without the leavings of a build of its page: a wheel would get old modules from there.
func pyCopy(t *testing.T, to string) {
	t.Helper()
	pyMust(t, os.CopyFS(to, os.DirFS("python")))
	pyMust(t, os.RemoveAll(filepath.Join(to, "build")))
}

// pyOthers are words of test files that need more than the standard library.
var pyOthers = regexp.MustCompile(`AsyncClient|httpx|policy_service\.capability|starlette|fastapi`)

// pyUnits runs the test files that need packages of others, or those that do not.
func pyUnits(t *testing.T, others bool) {
	t.Helper()
	files, err := filepath.Glob("python/tests/test_*.py")
	pyMust(t, err)
	command := []string{python(t), "-W", "error", "-m", "unittest"}
	for _, file := range files {
		text, err := os.ReadFile(file)
		pyMust(t, err)
		if pyOthers.Match(text) == others {
			command = append(command, "tests."+strings.TrimSuffix(filepath.Base(file), ".py"))
		}
	}
	if len(command) == 5 {
		t.Fatal("there are no such tests")
	}
	out := pyDone(t, "python", []string{"PYTHONPATH=src"}, command...)
	if ran := regexp.MustCompile(`Ran (\d+) tests?`).FindStringSubmatch(out); ran == nil || ran[1] == "0" || strings.Contains(out, "skipped=") {
		t.Error(out)
	}
}

// TestPythonUnits runs the tests that need nothing but the standard library.
func TestPythonUnits(t *testing.T) {
	t.Parallel()
	pyUnits(t, false)
}

// TestPythonUnitsOfOthers runs the tests that need httpx, cryptography and FastAPI.
func TestPythonUnitsOfOthers(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	pyUnits(t, true)
}

// pyFault is a finding of a type checker.
type pyFault struct{ file, line, checker, rule, text string }

var pyMypy = regexp.MustCompile(`(?m)^(\S+\.py):(\d+): error: (.*) \[([a-z-]+)\]$`)

var pyOnce struct {
	sync.Once
	faults []pyFault
	err    error
}

// pyCheckers are mypy and, in a whole run, pyright, each run once for all tests, over the sources, the tests, the careless lines and the
// programs of README.md. Mypy's knowledge of packages of others stays in the user's cache: to read them takes long.
func pyCheckers(t *testing.T) []pyFault {
	t.Helper()
	pyOnce.Do(func() {
		pyOnce.err = errors.New("the type checkers did not run")
		pyOnce.faults, pyOnce.err = pyCheck(t)
	})
	if pyOnce.err != nil {
		t.Fatal(pyOnce.err)
	}
	return pyOnce.faults
}

func pyCheck(t *testing.T) (faults []pyFault, err error) {
	t.Helper()
	dir := t.TempDir()
	pyCopy(t, dir)
	pyMust(t, os.Mkdir(filepath.Join(dir, "tests/page"), 0o700))
	for n, p := range pyPrograms(t) {
		pyMust(t, os.WriteFile(filepath.Join(dir, "tests/page", fmt.Sprintf("page%d.py", n)), []byte(p.text), 0o600))
	}
	project, err := os.ReadFile(filepath.Join(dir, "pyproject.toml"))
	pyMust(t, err)
	project = []byte(strings.ReplaceAll(string(project), `exclude = ["tests/naive"]`, ""))
	pyMust(t, os.WriteFile(filepath.Join(dir, "pyproject.toml"), project, 0o600))
	cache, err := os.UserCacheDir()
	pyMust(t, err)
	mypy, _ := py(t, dir, nil, "mypy", "--cache-dir", filepath.Join(cache, "policy-service-mypy"), "src", "tests")
	for _, m := range pyMypy.FindAllStringSubmatch(mypy, -1) {
		faults = append(faults, pyFault{m[1], m[2], "mypy", m[4], m[3]})
	}
	if n := regexp.MustCompile(`Found (\d+) errors? in `).FindStringSubmatch(mypy); n == nil || n[1] != strconv.Itoa(len(faults)) {
		return nil, fmt.Errorf("mypy: %s", mypy)
	}
	if !pyWhole() {
		return faults, nil
	}
	installed, err := npm.Keep(os.DirFS("python/testdata/pyright"))
	pyMust(t, err)
	said, _ := py(t, dir, nil, "node", filepath.Join(installed, "node_modules/pyright/index.js"), "-p", ".", "--pythonpath", debian, "--outputjson")
	var found struct {
		Diagnostics []struct {
			File, Rule, Message string
			Range               struct{ Start struct{ Line int } }
		} `json:"generalDiagnostics"`
		Summary struct{ FilesAnalyzed int }
	}
	if err := json.Unmarshal([]byte(said), &found); err != nil || found.Summary.FilesAnalyzed < 50 {
		return nil, fmt.Errorf("pyright: %w: %s", err, said)
	}
	for _, d := range found.Diagnostics {
		file, err := filepath.Rel(dir, d.File)
		pyMust(t, err)
		faults = append(faults, pyFault{file, strconv.Itoa(d.Range.Start.Line + 1), "pyright", d.Rule, d.Message})
	}
	return faults, nil
}

// pyWhole is whether pyright runs beside mypy: it takes a quarter of the time of all tests of the clients.
func pyWhole() bool { return !testing.Short() }

// TestPythonTypes holds the sources, the tests and the programs of README.md to type checkers and linters.
func TestPythonTypes(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	for _, f := range pyCheckers(t) {
		if !strings.HasPrefix(f.file, "tests/naive/") {
			t.Errorf("%+v", f)
		}
	}
	for _, command := range [][]string{
		{debian, "-m", "flake8", "src", "tests", "--extend-exclude", "tests/naive"},
		{"black", "--check", "--diff", "--quiet", "src", "tests", "--extend-exclude", "tests/naive/"},
	} {
		if out, err := py(t, "python", nil, command...); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// pyBuild builds the package as PEP 517 has it, in a directory of its own: the source distribution by the hook of its
// backend, and the wheel out of that by pip. It has no network.
func pyBuild(t *testing.T) (sdist, wheel string) {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	pyCopy(t, source)
	pyDone(t, source, nil, debian, "-c", `import setuptools.build_meta as b; b.build_sdist("..")`)
	sdist = filepath.Join(dir, "policy-service-client-0.1.0.tar.gz")
	pyDone(t, dir, nil, debian, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation", sdist)
	return sdist, filepath.Join(dir, "policy_service_client-0.1.0-py3-none-any.whl")
}

// TestPythonWheel holds the shipped files to a list, and installs it without a network into an empty environment.
func TestPythonWheel(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	sdist, wheel := pyBuild(t)
	sources, err := filepath.Glob("python/src/policy_service/*")
	pyMust(t, err)
	var inWheel, inSource []string
	for _, file := range sources {
		if name := filepath.Base(file); strings.HasSuffix(name, ".py") || name == "py.typed" {
			inWheel, inSource = append(inWheel, "policy_service/"+name), append(inSource, "src/policy_service/"+name)
		}
	}
	for _, name := range []string{"LICENSE", "METADATA", "RECORD", "WHEEL", "top_level.txt"} {
		inWheel = append(inWheel, "policy_service_client-0.1.0.dist-info/"+name)
	}
	inSource = append(inSource, "CHANGELOG.md", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg")
	if got := zipped(t, wheel); !slices.Equal(got, slices.Sorted(slices.Values(inWheel))) {
		t.Errorf("the wheel has %q", got)
	}
	got := slices.DeleteFunc(tarred(t, sdist), func(name string) bool { return strings.HasPrefix(name, "src/policy_service_client.egg-info/") })
	if !slices.Equal(got, slices.Sorted(slices.Values(inSource))) {
		t.Errorf("the source distribution has %q", got)
	}
	ours, err := os.ReadFile("../../LICENSE")
	pyMust(t, err)
	if shipped, err := os.ReadFile("python/LICENSE"); err != nil || string(shipped) != string(ours) {
		t.Errorf("the licence is not that of the repository: %v", err)
	}
	bin := pyInstall(t, wheel, false)
	out := pyDone(t, t.TempDir(), nil, bin+"/python", "-I", "-W", "error", "-c", `
import importlib.metadata, policy_service
from policy_service import AsyncClient, Client, Denied, Undecided
print(importlib.metadata.version("policy-service-client") == policy_service.__version__, *(d.name for d in importlib.metadata.distributions()))
try:
    AsyncClient("http://127.0.0.1:1")
except ImportError as error:
    print("httpx" in str(error))
`)
	if out != "True policy-service-client\nTrue\n" {
		t.Errorf("in an empty environment: %s", out)
	}
}

// pyInstall installs the wheel into a new environment, and returns where the environment's programs are.
func pyInstall(t *testing.T, wheel string, system bool) (bin string) {
	t.Helper()
	dir := t.TempDir()
	command := []string{debian, "-m", "venv", "--without-pip"}
	if system {
		command = append(command, "--system-site-packages")
	}
	pyDone(t, dir, nil, append(command, "venv")...)
	bin = filepath.Join(dir, "venv/bin")
	pyDone(t, dir, nil, debian, "-m", "pip", "--python", bin+"/python", "install", "--quiet", "--no-index", wheel)
	return bin
}

func zipped(t *testing.T, file string) (names []string) {
	t.Helper()
	r, err := zip.OpenReader(file)
	pyMust(t, err)
	defer r.Close()
	for _, f := range r.File {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return names
}

func tarred(t *testing.T, file string) (names []string) {
	t.Helper()
	f, err := os.Open(file)
	pyMust(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	pyMust(t, err)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names
		}
		pyMust(t, err)
		if h.Typeflag == tar.TypeReg {
			names = append(names, strings.SplitN(h.Name, "/", 2)[1])
		}
	}
}

// A pyProgram is one of README.md. It begins with the first one, unless it is a file of its own.
type pyProgram struct {
	text string
	want string // its output
}

var pyPrints = regexp.MustCompile(`(?m)# prints: (.*)$`)

// pyBlocks are the blocks of README.md that are tagged so.
func pyBlocks(t *testing.T, tag string) (blocks []string) {
	t.Helper()
	page, err := os.ReadFile("python/README.md")
	pyMust(t, err)
	for _, after := range strings.Split(string(page), "\n```"+tag+"\n")[1:] {
		block, _, _ := strings.Cut(after, "```\n")
		blocks = append(blocks, block)
	}
	return blocks
}

func pyPrograms(t *testing.T) (all []pyProgram) {
	t.Helper()
	for n, block := range pyBlocks(t, "python") {
		first := all
		if n > 0 && !strings.Contains(block, "FastAPI(") {
			block = first[0].text + "\n\n" + block
		}
		want := ""
		for _, line := range pyPrints.FindAllStringSubmatch(block, -1) {
			want += line[1] + "\n"
		}
		all = append(all, pyProgram{block, want})
	}
	return all
}

// TestPythonPage runs each program of README.md with the sources, beside a real server.
func TestPythonPage(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	programs := pyPrograms(t)
	if len(programs) < 6 {
		t.Errorf("README.md has %d programs", len(programs))
	}
	sources, err := filepath.Abs("python/src")
	pyMust(t, err)
	for n, p := range programs {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			d := starter(t)
			d.people(decides("approve"))
			env := append(d.env(), "PYTHONPATH="+sources)
			if strings.Contains(p.text, "AGENTS_URL") {
				a := agents(t)
				env = append(env, "AGENTS_URL="+a.URL, "AGENTS_KEY="+a.key["pep"])
			}
			dir := t.TempDir()
			pyMust(t, os.WriteFile(filepath.Join(dir, "program.py"), []byte(p.text), 0o600))
			if out := pyDone(t, dir, env, debian, "-W", "error", "-W", "ignore::ResourceWarning", "program.py"); out != p.want {
				t.Errorf("it prints\n%s\nand the page says\n%s", out, p.want)
			}
		})
	}
}

// TestNewcomerFastAPI follows README.md as a newcomer: build, install, write a route, serve it; then a person approves.
func TestNewcomerFastAPI(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	app := ""
	for _, block := range pyBlocks(t, "python") {
		if strings.Contains(block, "FastAPI(") {
			app = block
		}
	}
	if lines := strings.Count(strings.ReplaceAll(app, "\n\n", "\n"), "\n"); app == "" || lines > 15 {
		t.Fatalf("the newcomer writes %d lines", lines)
	}
	dir := t.TempDir()
	pyMust(t, os.MkdirAll(filepath.Join(dir, "evaluation/clients"), 0o700))
	pyCopy(t, filepath.Join(dir, "evaluation/clients/python"))
	pyMust(t, os.WriteFile(filepath.Join(dir, "app.py"), []byte(app), 0o600))
	d := starter(t)
	var serve string
	for _, block := range pyBlocks(t, "console python") {
		for _, line := range strings.Split(strings.TrimSuffix(block, "\n"), "\n") {
			command, is := strings.CutPrefix(line, "$ ")
			switch {
			case !is:
				t.Errorf("the page shows what %q prints, and nothing compares it", line)
			case strings.Contains(command, "uvicorn"):
				serve = command
			default:
				pyDone(t, dir, []string{"PATH=/usr/bin:" + os.Getenv("PATH")}, "sh", "-ec", command) // where python3 is Debian's
			}
		}
	}
	address := pyServe(t, d, dir, serve)
	push := func(user string) string {
		return post(t, http.DefaultClient, "http://"+address+"/push", "X-User", user)
	}
	if got := push("mallory"); !strings.HasPrefix(got, "403 ") {
		t.Errorf("another user gets %s", got)
	}
	if got := push("alice"); !strings.HasPrefix(got, "403 ") || !strings.Contains(got, "approval") {
		t.Errorf("before the approval: %s", got)
	}
	if waiting := d.approvals("pending"); len(waiting) != 1 {
		t.Errorf("there wait %v", waiting)
	}
	decides("approve")(d)
	if got := push("alice"); got != `200 {"pushed":true}` {
		t.Errorf("after the approval: %s", got)
	}
	if got := push("alice"); !strings.HasPrefix(got, "403 ") || !strings.Contains(got, "approval") {
		t.Errorf("the approval was used: %s", got)
	}
}

// pyServe serves as the page's command does, on a socket that is handed over, and returns its address.
func pyServe(t *testing.T, d *front, dir, command string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	pyMust(t, err)
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	pyMust(t, err)
	defer file.Close()
	c := exec.CommandContext(t.Context(), "sh", "-c", "exec "+command+" --fd 3")
	c.Dir, c.Env, c.ExtraFiles = dir, pyEnv(d.env()...), []*os.File{file}
	out := &strings.Builder{}
	c.Stdout, c.Stderr = out, out
	pyMust(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Log(out)
		}
	})
	return l.Addr().String()
}

// pyRefused is the comment of a careless line that type checkers refuse.
var pyRefused = regexp.MustCompile(`  # refused: (.*)$`)

// TestPythonNaive runs each careless line beside a PDP that says no, and has type checkers read it. Each program of
// tests/naive names its outcome, and the rules of the checkers that refuse it.
func TestPythonNaive(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	d := starter(t)
	pyDone(t, "python", append(d.env(), "PYTHONPATH=src"), debian, "tests/naive/run.py")
	sources, err := filepath.Glob("python/tests/naive/*.py")
	pyMust(t, err)
	if len(sources) < 40 {
		t.Errorf("there are %d careless programs", len(sources))
	}
	want := map[string]bool{}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		pyMust(t, err)
		name, refused := "tests/naive/"+filepath.Base(source), false
		for n, line := range strings.Split(string(text), "\n") {
			if rules := pyRefused.FindStringSubmatch(line); rules != nil {
				refused = true
				for _, rule := range strings.Split(rules[1], ", ") {
					if strings.HasPrefix(rule, "pyright ") && !pyWhole() {
						continue
					}
					want[fmt.Sprintf("%s:%d %s", name, n+1, rule)] = true
				}
			}
		}
		if !refused && strings.Contains(string(text), "# comes of it: acted\n") {
			t.Errorf("%s acts, and no type checker refuses it", name)
		}
	}
	got := map[string]bool{}
	for _, f := range pyCheckers(t) {
		if strings.HasPrefix(f.file, "tests/naive/") {
			got[f.file+":"+f.line+" "+f.checker+" "+f.rule] = true
		}
	}
	for _, line := range slices.Sorted(maps.Keys(got)) {
		if !want[line] {
			t.Errorf("it is refused, and does not say so: %s", line)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(want)) {
		if !got[line] {
			t.Errorf("it is not refused: %s", line)
		}
	}
}
