// Mutate asks whether the tests notice mistakes: it makes one after the other in a copy of a file, and runs the tests of the
// packages that import the file's package, the nearest first, until one fails.
//
//	go run ./.ci/mutate -list                     print the mutants
//	go run ./.ci/mutate                           run them against the tests of the gate (go test -short)
//	go run ./.ci/mutate -only 3,17 -packages 2    run two of them, against the two packages that are nearest
//	go run ./.ci/mutate -tree ../before -full     run them against all tests of another checkout
//
// Mutants are chosen by the seed from the files of one commit, so that they are the same in each tree. A file of the tree that
// lacks the statement has no such mutant, and the program says so. The tree is not touched: the go command takes the changed
// file from an overlay. What survives is printed line by line; whether it is a mistake at all is for the reader to say.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const before = "62e008c69a9503551017298d54ccdc9b080e1ae2" // issue 49

var (
	at       = flag.String("at", before, "the commit whose files have the mutants")
	seed     = flag.String("seed", before, "what they are chosen by")
	n        = flag.Int("n", 40, "how many")
	list     = flag.Bool("list", false, "print them only")
	only     = flag.String("only", "", "numbers of those to run, such as 3,17; all without it")
	tree     = flag.String("tree", ".", "the checkout whose tests are run")
	full     = flag.Bool("full", false, "run all tests, also those that go test -short leaves out")
	timeout  = flag.Duration("timeout", 10*time.Minute, "for the tests of one package")
	packages = flag.Int("packages", 0, "how many packages to test for a mutant at most; 0 is all that import its package")
)

// rooms are the directories that have two mutants each, with all below them.
var rooms = []string{
	"pdp/internal/access", "pdp/internal/bundle", "pdp/internal/document", "pdp/internal/engine", "pdp/internal/lint", "pdp/internal/outline", "pdp/internal/places", "pdp/internal/source",
	"pdp/internal/decisionlog", "pdp/decisionlog/verify", "pdp/internal/approval", "pdp/internal/ledger", "pdp/internal/server/auth", "pdp/internal/mcp",
}

// noProduct is what only tests and examples use.
var noProduct = regexp.MustCompile(`_test\.go$|/(testdata|mcptest|upstreamtest|examples)/`)

const (
	flip = "flipped condition"
	drop = "dropped check"
	swap = "swapped order"
	pass = "error passed over"
)

var kinds = []string{flip, drop, swap, pass}

// site is a place in a file where a mistake can be made.
type site struct {
	room, file, kind string
	text             string // the statement, or the two
	nth              int    // of the sites of this kind in the file with the same text, from 0
	start, end       int    // of what is replaced
	new              string // what stands there instead
}

// mutant is a site as the tree has it, and its file with the mistake; nil where the tree has no such statement.
type mutant struct {
	site
	old, change []byte
}

func main() {
	log.SetFlags(0)
	flag.Parse()
	dir := must(os.MkdirTemp("", "mutate-"))
	defer func() { _ = os.RemoveAll(dir) }()
	importers := readImporters()
	counts := map[string]int{} // by what is counted, and outcome
	var survivors []int
	for i, m := range choose(dir, sites()) {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), strconv.Itoa(i+1)) {
			continue
		}
		outcome, says := "gone", "the tree has no such statement"
		switch {
		case *list && m.change != nil:
			outcome, says = "", ""
		case m.change != nil:
			outcome, says = m.test(dir, importers(path.Dir(m.file)))
		}
		fmt.Printf("%2d %s:%d %s: %s %s\n", i+1, m.file, 1+bytes.Count(m.old[:min(m.start, len(m.old))], []byte("\n")), m.kind, outcome, says)
		if *list || outcome == "survived" {
			fmt.Print(m.diff())
		}
		if outcome == "survived" {
			survivors = append(survivors, i+1)
		}
		for _, of := range []string{m.kind, m.room, "all"} {
			counts[of+outcome]++
		}
	}
	if *list {
		return
	}
	fmt.Printf("\n%-24s %8s %8s %8s %8s\n", "", "caught", "survived", "broken", "gone")
	for _, of := range slices.Concat(kinds, rooms, []string{"all"}) {
		fmt.Printf("%-24s %8d %8d %8d %8d\n", of, counts[of+"caught"], counts[of+"survived"], counts[of+"broken"], counts[of+"gone"])
	}
	fmt.Println("survived:", survivors)
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal("mutate: ", err)
	}
	return v
}

// output runs a program in a directory.
func output(dir, name string, args ...string) []byte {
	c := exec.Command(name, args...)
	c.Dir, c.Stderr = dir, os.Stderr
	return must(c.Output())
}

// sites are those of all rooms, as the commit has them.
func sites() (all []site) {
	for _, name := range strings.Fields(string(output("", "git", append([]string{"ls-tree", "-r", "--name-only", *at, "--"}, rooms...)...))) {
		if path.Ext(name) == ".go" && !noProduct.MatchString(name) {
			all = append(all, sitesOf(name, output("", "git", "show", *at+":"+name))...)
		}
	}
	return all
}

// sitesOf are those of one file.
func sitesOf(name string, text []byte) (all []site) {
	files := token.NewFileSet()
	file := must(parser.ParseFile(files, name, text, 0))
	room := rooms[slices.IndexFunc(rooms, func(room string) bool { return strings.HasPrefix(name, room+"/") })]
	offset := func(p token.Pos) int { return files.Position(p).Offset }
	between := func(from, to token.Pos) string { return string(text[offset(from):offset(to)]) }
	seen := map[string]int{}
	add := func(kind, whole string, from, to ast.Node, change string) {
		all = append(all, site{room, name, kind, whole, seen[kind+whole], offset(from.Pos()), offset(to.End()), change})
		seen[kind+whole]++
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch s := n.(type) {
		case *ast.IfStmt:
			whole, condition := between(s.Pos(), s.End()), between(s.Cond.Pos(), s.Cond.End())
			never := "(" + condition + ") && false"
			switch guards := endsInReturn(s); {
			case guards && isError(s.Cond):
				add(pass, whole, s.Cond, s.Cond, never)
			case guards:
				add(drop, whole, s.Cond, s.Cond, never)
			}
			if !isError(s.Cond) {
				add(flip, whole, s.Cond, s.Cond, "!("+condition+")")
			}
		case *ast.BlockStmt:
			for i := 1; i < len(s.List); i++ {
				if a, b := s.List[i-1], s.List[i]; acts(a) && acts(b) && strings.Contains(between(a.Pos(), b.End()), "(") { // one that calls
					space := between(a.End(), b.Pos())
					add(swap, between(a.Pos(), b.End()), a, b, between(b.Pos(), b.End())+space+between(a.Pos(), a.End()))
				}
			}
		}
		return true
	})
	return all
}

// isError is whether a condition is that there is an error.
func isError(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	if !ok || b.Op != token.NEQ {
		return false
	}
	x, isName := b.X.(*ast.Ident)
	y, isNil := b.Y.(*ast.Ident)
	return isName && isNil && y.Name == "nil" && strings.Contains(strings.ToLower(x.Name), "err")
}

func endsInReturn(s *ast.IfStmt) (ends bool) {
	for _, inner := range s.Body.List {
		_, ends = inner.(*ast.ReturnStmt)
	}
	return ends && s.Else == nil
}

// acts is whether a statement has an effect, so that its place may matter.
func acts(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt, *ast.IncDecStmt:
		return true
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	case *ast.IfStmt:
		return endsInReturn(s)
	}
	return false
}

// choose takes two sites of each room, of two kinds, and the rest of all rooms: each kind as often as the others. Of the
// swaps it passes over those that do not compile; mistakes of the other kinds always do.
func choose(dir string, sites []site) (chosen []mutant) {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(*seed))
	random := rand.New(rand.NewPCG(hash.Sum64(), 49))
	random.Shuffle(len(sites), func(i, k int) { sites[i], sites[k] = sites[k], sites[i] })
	used := map[string]bool{} // places
	next := func(i int, kind string) bool {
		for _, s := range sites {
			place := fmt.Sprint(s.file, s.start)
			if s.kind != kind || used[place] || i < 2*len(rooms) && s.room != rooms[i%len(rooms)] {
				continue
			}
			m := find(s)
			if m.change == nil || kind != swap || m.run(dir, "build", "./"+path.Dir(s.file)).Run() == nil {
				used[place], chosen = true, append(chosen, m)
				return true
			}
		}
		return false
	}
	for i := range *n {
		for turn := range kinds { // a small room may lack a kind
			if next(i, kinds[(i+i/len(rooms)+turn)%len(kinds)]) {
				break
			}
		}
	}
	return chosen
}

// find makes the mistake in the tree's file.
func find(s site) mutant {
	text, err := os.ReadFile(filepath.Join(*tree, filepath.FromSlash(s.file)))
	if os.IsNotExist(err) {
		return mutant{site: s}
	}
	for _, there := range sitesOf(s.file, must(text, err)) {
		if there.kind == s.kind && there.text == s.text && there.nth == s.nth {
			return mutant{there, text, slices.Concat(text[:there.start], []byte(there.new), text[there.end:])}
		}
	}
	return mutant{site: s}
}

// run is a go command that takes the mutant for its file, and so do the go commands that tests run.
func (m mutant) run(dir string, args ...string) *exec.Cmd {
	changed, overlay := filepath.Join(dir, path.Base(m.file)), filepath.Join(dir, "overlay.json")
	file := must(filepath.Abs(filepath.Join(*tree, filepath.FromSlash(m.file))))
	text := must(json.Marshal(map[string]any{"Replace": map[string]string{file: changed}}))
	must(0, os.WriteFile(changed, m.change, 0o600))
	must(0, os.WriteFile(overlay, text, 0o600))
	c := exec.Command("go", args...)
	c.Dir, c.Env = *tree, append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	return c
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^((?:panic|fatal error): .*)`)

// test runs the packages' tests until one fails. A package that ends otherwise is broken.
func (m mutant) test(dir string, importers []string) (outcome, says string) {
	args := []string{"test", "-failfast", "-vet=off", "-count=1", "-timeout", timeout.String()}
	if !*full {
		args = append(args, "-short")
	}
	if *packages > 0 {
		importers = importers[:min(*packages, len(importers))]
	}
	begun := time.Now()
	took := func() string { return fmt.Sprintf("in %.0f s", time.Since(begun).Seconds()) }
	for _, p := range importers {
		out, err := m.run(dir, append(slices.Clone(args), p)...).CombinedOutput()
		switch found := failed.FindSubmatch(out); {
		case err == nil:
		case found == nil:
			return "broken", fmt.Sprintf("%s: %v\n%s", p, err, out)
		default:
			return "caught", fmt.Sprintf("by %s %s%s %s", p, found[1], found[2], took())
		}
	}
	return "survived", fmt.Sprintf("%d packages %s", len(importers), took())
}

// diff is the mistake, in whole lines.
func (m mutant) diff() string {
	if m.change == nil {
		return ""
	}
	from, to := bytes.LastIndexByte(m.old[:m.start], '\n')+1, m.end+bytes.IndexByte(m.old[m.end:], '\n')
	head, tail := string(m.old[from:m.start]), string(m.old[m.end:to])
	lines := func(sign, text string) string { return sign + strings.ReplaceAll(text, "\n", "\n"+sign) + "\n" }
	return lines("   -", head+string(m.old[m.start:m.end])+tail) + lines("   +", head+m.new+tail)
}

// readImporters has the packages whose tests import the package of a directory, the nearest first: its own, those that
// import it, those that import these.
func readImporters() func(dir string) []string {
	type pkg struct{ name, imports, tests, count string }
	var all []pkg
	const format = `{{.ImportPath}}| {{join .Imports " "}} | {{join .TestImports " "}} {{join .XTestImports " "}} |{{len .TestGoFiles}}{{len .XTestGoFiles}}`
	for line := range strings.Lines(string(output(*tree, "go", "list", "-f", format, "./..."))) {
		part := strings.Split(strings.TrimSpace(line), "|")
		all = append(all, pkg{part[0], part[1], part[2], part[3]})
	}
	return func(dir string) (near []string) {
		own := "policy-service/" + dir
		reached := map[string]bool{own: true}
		for last := []string{own}; len(last) > 0; {
			names := func(imports string) bool {
				return slices.ContainsFunc(last, func(name string) bool { return strings.Contains(imports, " "+name+" ") })
			}
			var more []string
			for _, p := range all {
				imports := names(p.imports) && !reached[p.name]
				if imports {
					more = append(more, p.name)
				}
				if p.count != "00" && (imports || p.name == own || names(p.tests)) && !slices.Contains(near, p.name) {
					near = append(near, p.name)
				}
			}
			for _, name := range more {
				reached[name] = true
			}
			last = more
		}
		if i := slices.Index(near, own); i > 0 { // its own before others
			near = slices.Insert(slices.Delete(near, i, i+1), 0, own)
		}
		return near
	}
}
