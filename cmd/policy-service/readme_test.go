package main // and not main_test: a cached result must not outlive a change of the program that the test builds

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The README promises answers. Here it is taken at its word: its transcripts are run against a real server on the
// starter bundle, in the order in which they stand. The convention is in the comment at the README's top.

const readmePath = "../../README.md"

// readmeAddr is the address that the README and `make run` name. The test's server has another one.
const readmeAddr = "127.0.0.1:8180"

func TestREADME(t *testing.T) {
	all := readmeSteps(t)
	needProgram(t, "curl")
	reader := newReadmeReader(t)
	for _, step := range all {
		t.Run(fmt.Sprintf("line %d", step.line), func(t *testing.T) {
			if got, stderr := reader.run(t, step.command); got != reader.rewrite(step.want) {
				t.Errorf("$ %s\nstdout:\n%s\nREADME.md:%d says:\n%s\nstderr:\n%s", step.command, got, step.line, step.want, stderr)
			}
		})
	}
}

// TestREADMEFirstCurl holds together what `make run` prints and what the README shows, with its answer, as the first thing to try.
func TestREADMEFirstCurl(t *testing.T) {
	needProgram(t, "make")
	line := strings.TrimSuffix(runMake(t, "-s", "first-curl"), "\n")
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^run:.* first-curl\b`).Match(makefile) {
		t.Error("make run no longer makes first-curl, which prints the request")
	}
	all := readmeSteps(t)
	if first := all[0]; first.command != line || first.want != "{\"decision\":true}\n" {
		t.Errorf("make run prints\n%s\nbut README.md:%d starts with\n%s\n%s", line, first.line, first.command, first.want)
	}
}

// TestREADMEBlocks lets no example into the README that nothing executes: what is not a transcript must be make, which
// knows the target, or a picture.
func TestREADMEBlocks(t *testing.T) {
	needProgram(t, "make")
	for _, b := range readmeBlocks(t) {
		switch b.tag {
		case "console", "text", "go":
		case "sh":
			for _, line := range b.lines {
				words := strings.Fields(line)
				if len(words) < 2 || words[0] != "make" {
					t.Errorf("README.md:%d: %q is executed by no test: make it a console block", b.line, line)
					continue
				}
				runMake(t, append([]string{"-n"}, words[1:]...)...)
			}
		default:
			t.Errorf("README.md:%d: a block tagged %q is executed by no test", b.line, b.tag)
		}
	}
}

func TestREADMELinks(t *testing.T) {
	text, err := os.ReadFile(readmePath)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join("../..", string(link[1]))); err != nil {
			t.Errorf("README.md links to %s: %v", link[1], err)
		}
	}
}

// A readmeBlock is what stands between two fences, a readmeStep one command of a console block with the output it promises.
type (
	readmeBlock struct {
		tag   string
		line  int // of the opening fence
		lines []string
	}
	readmeStep struct {
		command, want string
		line          int
	}
)

func readmeBlocks(t *testing.T) (all []readmeBlock) {
	t.Helper()
	text, err := os.ReadFile(readmePath)
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for n, line := range strings.Split(string(text), "\n") {
		tag, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !inside:
			all = append(all, readmeBlock{tag: tag, line: n + 1})
			inside = true
		case fence:
			inside = false
		case inside:
			last := &all[len(all)-1]
			last.lines = append(last.lines, line)
		}
	}
	if inside {
		t.Fatalf("README.md:%d: this block is not closed", all[len(all)-1].line)
	}
	return all
}

func readmeSteps(t *testing.T) (all []readmeStep) {
	t.Helper()
	for _, b := range readmeBlocks(t) {
		if b.tag != "console" {
			continue
		}
		var current *readmeStep
		for n, line := range b.lines {
			command, isCommand := strings.CutPrefix(line, "$ ")
			more, isMore := strings.CutPrefix(line, "> ")
			switch {
			case isCommand:
				all = append(all, readmeStep{command: command, line: b.line + 1 + n})
				current = &all[len(all)-1]
			case current == nil:
				t.Fatalf("README.md:%d: a console block begins with a line that starts with %q", b.line, "$ ")
			case isMore && current.want == "":
				current.command += "\n" + more
			default:
				current.want += line + "\n"
			}
		}
	}
	if len(all) == 0 {
		t.Fatal("README.md has no transcripts: nothing of it would be tested")
	}
	return all
}

// A readmeReader does what a reader of the README does: runs the service in one terminal and types into the other.
type readmeReader struct {
	dir, addr string
	env       []string
}

func newReadmeReader(t *testing.T) *readmeReader {
	t.Helper()
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "policy-service"), ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	r := &readmeReader{dir: t.TempDir()}
	if err := os.CopyFS(filepath.Join(r.dir, "policies"), os.DirFS("../../policies")); err != nil {
		t.Fatal(err)
	}
	r.addr = serveReadme(t, filepath.Join(bin, "policy-service"), filepath.Join(r.dir, "policies/starter"))
	r.env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "PDP=http://"+r.addr)
	return r
}

func (r *readmeReader) rewrite(text string) string {
	return strings.ReplaceAll(text, readmeAddr, r.addr)
}

// run runs a command and returns what it printed. The last newline is added where it is missing, as in an answer over HTTP.
func (r *readmeReader) run(t *testing.T, command string) (stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	sh := exec.CommandContext(ctx, "sh", "-c", r.rewrite(command))
	sh.Dir, sh.Env, sh.Stdout, sh.Stderr = r.dir, r.env, &out, &errs
	if err := sh.Run(); err != nil {
		fmt.Fprintln(&errs, err) // a transcript may show a command that fails; what counts is what it prints
	}
	stdout = out.String()
	if stdout != "" && !strings.HasSuffix(stdout, "\n") {
		stdout += "\n"
	}
	return stdout, errs.String()
}

// serveReadme starts the service and returns its address once it answers. It ends with the test, with exit 0.
func serveReadme(t *testing.T, bin, policies string) (addr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "addr")
	var output bytes.Buffer
	cmd := exec.Command(bin, "serve", "--policies", policies, "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--addr-file", file)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("serve after SIGTERM: %v\n%s", err, &output)
			}
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Error("serve did not end on SIGTERM")
		}
	})
	tick, deadline := time.NewTicker(10*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if line, err := os.ReadFile(file); err == nil {
				return strings.TrimSpace(string(line))
			}
		case err := <-ended:
			ended <- err
			t.Fatalf("serve ended by itself: %v\n%s", err, &output)
		case <-deadline:
			t.Fatal("serve wrote no address file")
		}
	}
}

func runMake(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"--no-print-directory", "-C", "../.."}, args...)...)
	// An outer make's flags are not this one's.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "MAKE") || strings.HasPrefix(e, "MFLAGS") })
	cmd.Stderr = io.Discard
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	return string(out)
}

// needProgram skips the test on a machine without the program; CI has it, and must not pass by skipping.
func needProgram(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	} else if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skipf("there is no %s on this machine", program)
}
