// Command tests runs go test, and ends with what ran, what failed and what was skipped, why, and what runs that instead.
//
//	go run ./.ci/tests -short ./...                 as go test -short ./...
//	go run ./.ci/tests -list .ci/race -race         the packages of a list, each with the tests that stand beside it
//	go run ./.ci/tests -calls Measures -p 1         the tests that call night.Measures
//
// All other arguments go to go test.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	var list, calls string
	args := os.Args[1:]
	for len(args) > 1 && (args[0] == "-list" || args[0] == "-calls") {
		if args[0] == "-list" {
			list = args[1]
		} else {
			calls = args[1]
		}
		args = args[2:]
	}
	var groups []group
	var err error
	switch {
	case list != "":
		groups, err = listed(list)
	case calls != "":
		groups, err = calling(calls)
	default:
		groups = []group{{}}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		os.Exit(2)
	}
	r := &report{began: time.Now(), ran: map[string]bool{}, output: map[string][]string{}, skipped: map[string][]string{}}
	r.runAll(groups, args)
	if !r.print(groups) {
		os.Exit(1)
	}
}

// A group is one call of go test: some packages, and the tests to run in them, which are all of them if none is named.
type group struct{ packages, tests []string }

// runAll runs as many groups at once as there are cores, unless -p 1 is among the arguments.
func (r *report) runAll(groups []group, args []string) {
	free := make(chan struct{}, runtime.NumCPU())
	if n := slices.Index(args, "-p"); n >= 0 && n+1 < len(args) && args[n+1] == "1" {
		free = make(chan struct{}, 1)
	}
	var all sync.WaitGroup
	for _, g := range groups {
		free <- struct{}{}
		all.Go(func() { r.run(g, args); <-free })
	}
	all.Wait()
}

func (r *report) run(g group, args []string) {
	call := append([]string{"test", "-json"}, args...)
	if len(g.tests) > 0 {
		call = append(call, "-run", "^("+strings.Join(g.tests, "|")+")$")
	}
	goTest := exec.Command("go", append(call, g.packages...)...)
	goTest.Stderr = os.Stderr
	out, err := goTest.StdoutPipe()
	if err == nil {
		err = goTest.Start()
	}
	if err == nil {
		r.read(out)
		err = goTest.Wait()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if state := goTest.ProcessState; state != nil {
		r.cpu += state.UserTime() + state.SystemTime()
	}
	if exit := new(exec.ExitError); err != nil && (!errors.As(err, &exit) || r.failed == 0 && r.broken == 0) {
		r.broken++
		fmt.Printf("tests: %v: %v\n", goTest, err)
	}
}

// report is what came of all groups.
type report struct {
	began time.Time

	mu                     sync.Mutex
	cpu                    time.Duration
	packages               int
	passed, failed, broken int                 // tests of the top level that passed and failed; packages that failed without one
	ran                    map[string]bool     // by package and test
	output                 map[string][]string // of a test or package that has not ended, by its name
	skipped                map[string][]string // by the reason
	slow                   []event             // longer than a second
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string
	Elapsed                                                float64
}

func (r *report) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e event
		r.mu.Lock()
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text())
		} else {
			r.take(e)
		}
		r.mu.Unlock()
	}
}

func (r *report) take(e event) {
	name := e.Package + " " + e.Test
	top := !strings.Contains(e.Test, "/")
	switch e.Action {
	case "build-output":
		fmt.Print(e.Output)
	case "run":
		r.ran[name] = true
	case "output":
		r.output[name] = append(r.output[name], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.end(e)
			return
		}
		switch {
		case e.Action == "skip":
			why := reason(r.output[name])
			r.skipped[why] = append(r.skipped[why], e.Test)
		case e.Action == "fail":
			fmt.Print(strings.Join(r.output[name], ""))
			fallthrough
		default:
			if top && e.Action == "pass" {
				r.passed++
			} else if top {
				r.failed++
			}
			if top && e.Elapsed > 1 {
				r.slow = append(r.slow, e)
			}
		}
		delete(r.output, name)
	}
}

// end prints what came of a package. What it wrote outside of its tests is printed where none of them says why it failed.
func (r *report) end(e event) {
	name := strings.TrimPrefix(e.Package, "policy-service/")
	switch e.Action {
	case "pass":
		r.packages++
		fmt.Printf("ok   %-45s %6.1f s\n", name, e.Elapsed)
	case "fail":
		for of, lines := range r.output { // of tests that had not ended, too
			if strings.HasPrefix(of, e.Package+" ") {
				fmt.Print(strings.Join(lines, ""))
				delete(r.output, of)
			}
		}
		r.packages++
		r.broken++
		fmt.Printf("FAIL %-45s %6.1f s\n", name, e.Elapsed)
	}
	delete(r.output, e.Package+" ")
}

var logged = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)

// reason is what a skipped test wrote last.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		if found := logged.FindStringSubmatch(line); found != nil {
			return found[1]
		}
	}
	return "it does not say why"
}

// print ends the report, and returns whether all is well.
func (r *report) print(groups []group) bool {
	for _, g := range groups {
		for _, p := range g.packages {
			for _, test := range g.tests {
				if !r.ran["policy-service/"+strings.TrimPrefix(p, "./")+" "+test] {
					r.broken++
					fmt.Printf("tests: %s has no %s: correct the list\n", p, test)
				}
			}
		}
	}
	if len(r.slow) > 0 {
		fmt.Printf("tests of more than a second, %d:\n", len(r.slow))
		slices.SortFunc(r.slow, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
		for _, e := range r.slow {
			fmt.Printf("  %6.1f s  %s %s\n", e.Elapsed, strings.TrimPrefix(e.Package, "policy-service/"), e.Test)
		}
	}
	skips := 0
	var why []string
	for reason, tests := range r.skipped {
		skips += len(tests)
		slices.Sort(tests)
		tests = slices.Compact(tests)
		if len(tests) > 3 {
			tests = []string{fmt.Sprintf("%d tests", len(tests))}
		}
		why = append(why, strings.Join(tests, " ")+" ("+reason+")")
	}
	slices.Sort(why)
	fmt.Printf("%d packages in %.0f s, with %.0f s of CPU\n", r.packages, time.Since(r.began).Seconds(), r.cpu.Seconds())
	fmt.Printf("tests: %d passed, %d failed, %d skipped\n", r.passed, r.failed, skips)
	if skips == 0 {
		fmt.Println("nothing was skipped")
	} else {
		fmt.Println("skipped: " + strings.Join(why, ", "))
	}
	if r.passed+r.failed == 0 {
		fmt.Println("tests: no test ran")
		return false
	}
	return r.failed == 0 && r.broken == 0
}
