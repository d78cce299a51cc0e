// Command steps runs targets of the Makefile one after the other, and ends with a table of them:
//
//	go run ./.ci/steps build lint+test race
//
// Of targets that stand together by a + the first runs beside the second, and is printed after it. After a step that
// fails, -k goes on with the next one.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

type step struct {
	name      string
	wall, cpu time.Duration
	tests     string
	failed    bool
}

func main() {
	names, goOn := os.Args[1:], false
	if len(names) > 0 && names[0] == "-k" {
		names, goOn = names[1:], true
	}
	began := time.Now()
	var all []step
	failed := false
	for _, name := range names {
		for _, s := range run(strings.Split(name, "+")) {
			all = append(all, s)
			failed = failed || s.failed
		}
		if failed && !goOn {
			break
		}
	}
	var cpu time.Duration
	fmt.Printf("\n%-14s %9s %9s  %s\n", "step", "wall", "CPU", "tests")
	for _, s := range all {
		cpu += s.cpu
		if s.failed {
			s.tests = strings.TrimSuffix("FAILED, "+s.tests, ", ")
		}
		fmt.Printf("%-14s %7.0f s %7.0f s  %s\n", s.name, s.wall.Seconds(), s.cpu.Seconds(), s.tests)
	}
	fmt.Printf("%-14s %7.0f s %7.0f s\n", "all", time.Since(began).Seconds(), cpu.Seconds())
	if failed {
		os.Exit(1)
	}
}

// run runs targets beside one another. All but the last one are printed when all have ended.
func run(targets []string) (all []step) {
	ended := make([]chan step, len(targets))
	held := make([]bytes.Buffer, len(targets))
	for n, target := range targets {
		ended[n] = make(chan step, 1)
		var out io.Writer = os.Stdout
		if n < len(targets)-1 {
			out = &held[n]
		}
		go func() { ended[n] <- runOne(target, out) }()
	}
	for n := range targets {
		all = append(all, <-ended[n])
	}
	for n := range targets {
		_, _ = held[n].WriteTo(os.Stdout)
	}
	return all
}

// counted is the last line of a step that counts tests.
var counted = regexp.MustCompile(`(?m)^tests: (\d+ passed, \d+ failed, \d+ skipped)$`)

func runOne(target string, out io.Writer) step {
	began := time.Now()
	var text bytes.Buffer
	both := io.MultiWriter(out, &text)
	fmt.Fprintln(out, "== make", target)
	command := exec.Command("make", "--no-print-directory", target)
	command.Stdout, command.Stderr = both, both
	err := command.Run()
	s := step{name: target, wall: time.Since(began), failed: err != nil}
	if command.ProcessState != nil {
		s.cpu = command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	}
	if err != nil {
		fmt.Fprintf(out, "== make %s: %v\n", target, err)
	}
	if found := counted.FindAllStringSubmatch(text.String(), -1); found != nil {
		s.tests = found[len(found)-1][1]
	}
	return s
}
