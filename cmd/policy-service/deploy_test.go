package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/cmd/policy-service/internal/process"
)

// What stands in deploy/ is for machines that no test has: no Docker engine, no cluster and no systemd. What can be held
// without them is held here and in the files beside this one: that it says what was meant, to the programs it is for and
// to this program.

// parsed is a command line as the program itself reads it, and the command's path, as "keys add".
func parsed(t *testing.T, args []string) (c commands, command string) {
	t.Helper()
	parser, err := newParser(&c, cli.Streams{Out: io.Discard, Err: io.Discard})
	must(t, err)
	context, err := parser.Parse(args)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return c, strings.TrimPrefix(context.Selected().Path(), "policy-service ")
}

// nobody is the user of the image and of the manifests.
const nobody = 65534

// stopsWithin is what a stop takes at most: requests are drained, then sinks and the record of the stop have 5 s each.
const stopsWithin = process.Drain + 10*time.Second

func deployed(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("deploy", name))
	must(t, err)
	return content
}

// instruction is one of a Dockerfile, in one line.
type instruction struct{ name, args string }

func dockerfile(t *testing.T) (all []instruction) {
	t.Helper()
	text := strings.ReplaceAll(string(deployed(t, "Dockerfile")), "\\\n", " ")
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, args, _ := strings.Cut(line, " ")
		all = append(all, instruction{name, strings.TrimSpace(args)})
	}
	return all
}

// execForm is a command that no shell reads, as scratch has none.
func execForm(t *testing.T, text string) []string {
	t.Helper()
	inner, bracketed := strings.CutPrefix(text, `["`)
	inner, closed := strings.CutSuffix(inner, `"]`)
	if !bracketed || !closed {
		t.Fatalf("%s is not in the exec form", text)
	}
	return strings.Split(inner, `", "`)
}

func TestDockerfile(t *testing.T) {
	var names []string
	last := map[string]string{}
	var runs []string
	for _, i := range dockerfile(t) {
		names = append(names, i.name)
		last[i.name] = i.args
		if i.name == "RUN" {
			runs = append(runs, i.args)
		}
	}
	want := strings.Fields("FROM WORKDIR COPY RUN COPY RUN RUN FROM COPY COPY COPY USER EXPOSE HEALTHCHECK ENTRYPOINT CMD")
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("its instructions, and none after scratch that need a shell: %s", diff)
	}
	needProgram(t, "make")
	if build, err := makeBuild(); err != nil || !slices.Contains(runs, build) {
		t.Errorf("make builds by %q, and it by one of %q (%v)", build, runs, err)
	}
	if last["FROM"] != "scratch" || last["USER"] != fmt.Sprintf("%d:%d", nobody, nobody) || last["EXPOSE"] != "8180" {
		t.Error(last)
	}
	if entry := execForm(t, last["ENTRYPOINT"]); len(entry) != 1 || entry[0] != "/policy-service" {
		t.Error(entry)
	}
	c, command := parsed(t, execForm(t, last["CMD"]))
	if command != "serve" || c.Serve.Listen != ":8180" || !strings.HasPrefix(string(c.Serve.Data), "/data/") || c.Serve.TLSCert == "" {
		t.Errorf("%s %+v", command, c.Serve)
	}
	_, check, _ := strings.Cut(last["HEALTHCHECK"], "CMD ")
	args := execForm(t, check)
	probe, command := parsed(t, args[1:])
	if args[0] != "/policy-service" || command != "health" || probe.Health.URL != "https://127.0.0.1:8180" || probe.Health.TLSCert != c.Serve.TLSCert {
		t.Errorf("%s %s %+v", args[0], command, probe.Health)
	}
}

// TestDockerfileGo: the image builds with the Go that go.mod asks for.
func TestDockerfileGo(t *testing.T) {
	module, err := os.ReadFile("../../go.mod")
	must(t, err)
	base := strings.Fields(dockerfile(t)[0].args)[0]
	minor, ok := strings.CutPrefix(base, "golang:")
	if !ok || !bytes.Contains(module, []byte("\ngo "+minor+".")) {
		t.Errorf("it builds on %s", base)
	}
}

// TestDockerfileComments: the commands that its comments show are ones that this program has.
func TestDockerfileComments(t *testing.T) {
	text := string(deployed(t, "Dockerfile"))
	found := 0
	for line := range strings.Lines(text) {
		if _, args, ok := strings.Cut(line, " policy-service keys "); ok {
			_, command := parsed(t, append([]string{"keys"}, strings.Fields(args)...))
			if found++; command != "keys add" {
				t.Error(command)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d commands are shown", found)
	}
	if !strings.Contains(text, "--stop-timeout 45 ") || stopsWithin > 45*time.Second {
		t.Errorf("a stop takes up to %v", stopsWithin)
	}
}
