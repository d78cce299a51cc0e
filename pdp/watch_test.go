package pdp

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"policy-service/pdp/pdptest/night"
)

// soon is longer than any machine stands still, and far below the poll of what is watched
// here, which would hide a change that made no event.
const soon = time.Minute

// watched is a PDP that watches a real directory.
type watched struct {
	*PDP
	t     *testing.T
	dir   string
	loads chan Status
	// last is the digest that was in force after the loads that were looked at.
	last string
}

func watch(t *testing.T, dir string, onLoad func(Status)) *watched {
	t.Helper()
	return watchWith(t, dir, onLoad, func(*PDP) {})
}

// watchWith is watch of a PDP that is set up before it is watched.
func watchWith(t *testing.T, dir string, onLoad func(Status), set func(*PDP)) *watched {
	t.Helper()
	w := &watched{t: t, dir: dir, loads: make(chan Status, 1000)}
	p, err := New(Dir(dir), Options{Quiet: 20 * time.Millisecond, OnLoad: func(s Status) {
		if onLoad != nil {
			onLoad(s)
		}
		w.loads <- s
	}})
	must(t, err)
	w.PDP, w.last = p, p.Status().Digest
	p.reloader.pollBlind, p.reloader.pollWatched = time.Hour, time.Hour // only events count here
	set(p)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		defer close(done)
		done <- p.Watch(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error("Watch:", err)
		}
	})
	return w
}

// sees waits until what the directory says now is in force.
func (w *watched) sees(what string) {
	w.t.Helper()
	digest := digestOf(w.dir)
	w.until(what, func(s Status) bool { return s.Digest == digest && s.Refused == nil })
}

// refuses waits until a load was refused for a reason. What is half done may have been
// loaded before, or refused for another.
func (w *watched) refuses(code string) {
	w.t.Helper()
	w.until(code, func(s Status) bool {
		return s.Refused != nil && strings.Contains(strings.Join(codes(s.Refused.Problems), "\n"), code)
	})
}

// looks at a load: after one that was refused the bundle before it serves on.
func (w *watched) looks(s Status) {
	w.t.Helper()
	if s.Refused != nil && len(s.Refused.Tenants) == 0 && s.Digest != w.last {
		w.t.Errorf("%s is in force after a refusal, and was %s", s.Digest, w.last)
	}
	w.last = s.Digest
}

func (w *watched) until(what string, want func(Status) bool) {
	w.t.Helper()
	deadline := time.After(soon)
	for {
		select {
		case s := <-w.loads:
			w.looks(s)
			if want(s) {
				return
			}
		case <-deadline:
			w.t.Fatalf("%s: not noticed in %v; in force is %+v", what, soon, w.Status())
		}
	}
}

// numbered is a bundle's policy file, each number another one.
func numbered(n int) string { return smallest + "// " + strconv.Itoa(n) + "\n" }

func replaceFile(t testing.TB, from, to string) {
	t.Helper()
	must(t, os.Rename(from, to))
}

func TestWatchSeesEdits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": smallest, "README": "x"}.Write(t, dir)
	w := watch(t, dir, nil)
	at := func(name string) string { return filepath.Join(dir, name) }

	tree{"a.cedar": numbered(1)}.Write(t, dir)
	w.sees("a file written in place")

	tree{".a.cedar.tmp": numbered(2)}.Write(t, dir)
	replaceFile(t, at(".a.cedar.tmp"), at("a.cedar"))
	w.sees("an editor that renames over the file")

	replaceFile(t, at("a.cedar"), at("a.cedar~"))
	tree{"a.cedar": numbered(3)}.Write(t, dir)
	must(t, os.Remove(at("a.cedar~")))
	w.sees("an editor that moves the file away first")

	tree{"entities/users.json": "[]\n"}.Write(t, dir)
	w.sees("a new entities directory")
	tree{"entities/users.json": "[ ]\n"}.Write(t, dir)
	w.sees("a file in the new entities directory")

	tree{"access/desk.yaml": "mode: open\n"}.Write(t, dir)
	w.sees("a new directory of access declarations")
	tree{"access/desk.yaml": "mode: denylist\n"}.Write(t, dir)
	w.sees("a declaration in it")

	tree{"tenants/acme/b.cedar": renamed(smallest, "b")}.Write(t, dir)
	w.sees("the first tenant")
	tree{"tenants/acme/b.cedar": renamed(numbered(1), "b")}.Write(t, dir)
	w.sees("a file of the new tenant")
	tree{"tenants/acme/entities/x.json": "[]\n"}.Write(t, dir)
	w.sees("the tenant's entities")
	tree{"tenants/acme/access/desk.yml": "mode: open\n"}.Write(t, dir)
	w.sees("the tenant's access declarations")
	tree{"tenants/acme/access/desk.yml": "mode: denylist\n"}.Write(t, dir)
	w.sees("an edit of the tenant's declaration")

	tree{".new/c.cedar": renamed(smallest, "c")}.Write(t, dir)
	replaceFile(t, at(".new"), at("tenants/other"))
	w.sees("a tenant moved in")
	tree{"tenants/other/c.cedar": renamed(numbered(2), "c")}.Write(t, dir)
	w.sees("a file of the tenant moved in")

	must(t, os.RemoveAll(at("tenants/acme")))
	w.sees("a tenant removed")
	replaceFile(t, at("tenants/other"), filepath.Join(t.TempDir(), "other"))
	w.sees("a tenant moved out")
	must(t, os.RemoveAll(at("tenants")))
	tree{"a.cedar": numbered(4)}.Write(t, dir)
	w.sees("the last edit")
}

func TestWatchRefusesAndRecovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": smallest}.Write(t, dir)
	w := watch(t, dir, nil)
	at := filepath.Join(dir, "b.cedar")
	before := w.Status()
	for _, c := range []struct {
		code string
		make func() error
	}{
		{"b.cedar", func() error { return os.WriteFile(at, []byte(smallest[:20]), 0o644) }}, // half-written, for good
		{"b.cedar empty_file", func() error { return os.WriteFile(at, nil, 0o644) }},
		{"b.cedar not_a_file", func() error { return syscall.Mkfifo(at, 0o644) }},
		{"b.cedar symlink_loop", func() error { return os.Symlink("b.cedar", at) }},
		{"b.cedar link_astray", func() error { return os.Symlink("/proc/self/mem", at) }},
	} {
		must(t, c.make())
		w.refuses(c.code)
		must(t, os.Remove(at))
		w.sees("recovery from " + c.code)
		if w.Status() != before {
			t.Errorf("%s: %+v in force, before it %+v", c.code, w.Status(), before)
		}
	}
}

// A change of filters.yaml alone is loaded, with the views of before. A wrong one is refused, and the mapping of before stays.
func TestWatchSeesMappings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": smallest, "filters.yaml": "doc: {table: docs, id: id, actions: [read]}\n",
		"s.cedarschema": "entity User, doc; action read appliesTo { principal: User, resource: doc };"}.Write(t, dir)
	w := watch(t, dir, nil)
	in := func(table string) {
		t.Helper()
		if m := w.Bundle().Mappings["doc"]; m == nil || m.Table[0] != table {
			t.Errorf("the mapping in force is %+v, want table %s", m, table)
		}
	}
	in("docs")
	views := w.Bundle().Views
	tree{"filters.yaml": "doc: {table: papers, id: id, actions: [read]}\n"}.Write(t, dir)
	w.sees("another table")
	in("papers")
	if !maps.Equal(views, w.Bundle().Views) {
		t.Error("a view is made again, of which nothing has changed")
	}
	tree{"filters.yaml": "doc: {table: 'papers; --', id: id, actions: [read]}\n"}.Write(t, dir)
	w.refuses("filters.yaml filter_name")
	in("papers")
	must(t, os.Remove(filepath.Join(dir, "filters.yaml")))
	w.sees("no mapping")
	if w.Bundle().Mappings != nil {
		t.Error("a mapping is in force of a file that is not there")
	}
}

// The three ways in which a directory is replaced as a whole.
func TestWatchSeesAnotherDirectory(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	tree{
		"v1/policies/a.cedar": numbered(1), "v2/policies/a.cedar": numbered(2), "v3/policies/a.cedar": numbered(3),
		"current": "-> v1", "hop": "-> current/policies", "root": "-> hop",
	}.Write(t, top)
	point := func(name, target string) {
		must(t, os.Symlink(target, at(".new")))
		replaceFile(t, at(".new"), at(name))
	}
	w := watch(t, at("root"), nil)
	tree{"v1/policies/a.cedar": numbered(10)}.Write(t, top)
	w.sees("an edit behind two links")
	point("current", "v2")
	w.sees("a link on the way pointed elsewhere")
	tree{"v2/policies/a.cedar": numbered(20)}.Write(t, top)
	w.sees("an edit behind the new link")
	point("root", filepath.Join(top, "v3/policies"))
	w.sees("the root pointed elsewhere, by an absolute link")
	tree{"v3/policies/a.cedar": numbered(30)}.Write(t, top)
	w.sees("an edit there")
	replaceFile(t, at("v3"), at("v3.old"))
	w.refuses("no_directory")
	tree{"v3/policies/a.cedar": numbered(31)}.Write(t, top)
	w.sees("another directory of that name above the root")
	tree{"v3/policies/a.cedar": numbered(32)}.Write(t, top)
	w.sees("an edit in it")
}

func TestWatchSeesADirectoryVanishAndComeBack(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir := filepath.Join(top, "policies")
	tree{"a.cedar": smallest, "tenants/acme/b.cedar": renamed(smallest, "b")}.Write(t, dir)
	w := watch(t, dir, nil)
	for n := range 3 {
		must(t, os.RemoveAll(dir))
		w.refuses("no_directory")
		tree{"a.cedar": numbered(2 * n)}.Write(t, dir)
		w.sees("the directory made anew")
		replaceFile(t, dir, filepath.Join(top, "aside"))
		w.refuses("no_directory")
		replaceFile(t, filepath.Join(top, "aside"), dir)
		w.sees("the directory moved back")
		tree{"a.cedar": numbered(2*n + 1)}.Write(t, dir)
		w.sees("an edit in it")
	}
}

func TestWatchOfARelativeDirectory(t *testing.T) {
	dir := t.TempDir()
	tree{"far/away/x": "", "far/policies/a.cedar": smallest, "policies/a.cedar": more, "link": "-> far/away"}.Write(t, dir)
	t.Chdir(filepath.Join(dir, "far/policies"))
	for _, name := range []string{".", "../policies", "../../link/../policies"} {
		w := watch(t, name, nil)
		tree{"a.cedar": numbered(len(name))}.Write(t, ".")
		w.sees("an edit of " + name)
	}
}

// Kubernetes updates a mounted volume by pointing ..data at another directory.
func TestWatchSeesTheDataLinkSwapped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{
		"..0/a.cedar": numbered(0), "..data": "-> ..0", "a.cedar": "-> ..data/a.cedar",
		".elsewhere/c.cedar": renamed(smallest, "c"), "c.cedar": "-> " + filepath.Join(dir, ".elsewhere/c.cedar"),
	}.Write(t, dir)
	w := watch(t, dir, nil)
	for n := 1; n < 5; n++ {
		name := fmt.Sprintf("..%d", n)
		tree{name + "/a.cedar": numbered(n), "..data_tmp": "-> " + name}.Write(t, dir)
		replaceFile(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
		must(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..%d", n-1))))
		w.sees("..data swapped")
	}
	tree{"..4/a.cedar": numbered(9)}.Write(t, dir)
	w.sees("a file behind ..data edited in place")
	tree{".elsewhere/c.cedar": renamed(more, "c")}.Write(t, dir)
	w.sees("a file behind an absolute link edited in place")
}

// A volume with tenants, and a tenant's directory that is a volume of its own: what the
// kubelet makes of paths in a ConfigMap, and of a mount below another.
func TestWatchSeesATenantsVolumeSwapped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{
		"..0/a.cedar": numbered(0), "..0/entities/e.json": "[]\n", "..0/tenants/acme/b.cedar": renamed(smallest, "b"), "..data": "-> ..0",
		"a.cedar": "-> ..data/a.cedar", "entities": "-> ..data/entities", "tenants": "-> ..data/tenants",
		"..0/tenants/own/..0/c.cedar": renamed(smallest, "c"), "..0/tenants/own/..data": "-> ..0", "..0/tenants/own/c.cedar": "-> ..data/c.cedar",
	}.Write(t, dir)
	w := watch(t, dir, nil)
	tree{"tenants/own/..1/c.cedar": renamed(more, "c"), "tenants/own/..data_tmp": "-> ..1"}.Write(t, dir)
	replaceFile(t, filepath.Join(dir, "tenants/own/..data_tmp"), filepath.Join(dir, "tenants/own/..data"))
	w.sees("the tenant's ..data swapped")
	tree{"..1/a.cedar": numbered(1), "..1/entities/e.json": "[]\n", "..1/tenants/acme/b.cedar": renamed(more, "b"), "..data_tmp": "-> ..1"}.Write(t, dir)
	replaceFile(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
	w.sees("..data swapped")
	must(t, os.Remove(filepath.Join(dir, "tenants/acme/b.cedar")))
	tree{"tenants/acme/b.cedar": "-> ../../../a.cedar"}.Write(t, dir)
	w.refuses("tenants/acme/b.cedar link_astray")
}

// An edit right after a reading, before anything waits for events again.
func TestWatchSeesAnEditBetweenReadingAndWaiting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": numbered(0)}.Write(t, dir)
	n := 0
	w := watch(t, dir, func(Status) {
		if n++; n <= 10 {
			tree{"a.cedar": numbered(n)}.Write(t, dir)
		}
	})
	tree{"a.cedar": numbered(100)}.Write(t, dir)
	last := t.TempDir()
	tree{"a.cedar": numbered(10)}.Write(t, last)
	w.until("ten edits", func(s Status) bool { return s.Digest == digestOf(last) })
}

// A file somebody writes slowly never loads in part, and the whole of it does.
func TestWatchNeverLoadsAPart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": smallest}.Write(t, dir)
	w := watch(t, dir, nil)
	digests := map[string]bool{digestOf(dir): true}
	for n := range 20 {
		other := t.TempDir()
		text := more + "// " + strconv.Itoa(n) + "\n"
		tree{"a.cedar": text}.Write(t, other)
		digests[digestOf(other)] = true
		must(t, Dir(other).WriteManifest())
		manifest, err := os.ReadFile(filepath.Join(other, "MANIFEST"))
		must(t, err)
		tree{"MANIFEST": string(manifest[:len(manifest)*n/20])}.Write(t, dir)
		tree{"a.cedar": text[:len(smallest)+n]}.Write(t, dir)
		if n%4 == 0 {
			w.refuses("manifest") // longer than the quiet period: the MANIFEST holds
		}
		tree{"a.cedar": text, "MANIFEST": string(manifest)}.Write(t, dir)
		w.until("a whole file", func(s Status) bool {
			if !digests[s.Digest] {
				t.Errorf("%d: a part is in force", n)
			}
			return s.Digest == digestOf(other) && s.Refused == nil
		})
	}
}

// visible lets a test edit a directory that is watched with nothing set. An edit returns how long it took to be in force.
func visible(t *testing.T, edits func(edit func() time.Duration)) {
	dir := t.TempDir()
	tree{"a.cedar": smallest}.Write(t, dir)
	loads := make(chan Status, 1000)
	p, err := New(Dir(dir), Options{OnLoad: func(s Status) { loads <- s }})
	must(t, err)
	p.reloader.pollWatched = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Watch(ctx) }()
	n := 0
	edits(func() time.Duration {
		start := time.Now()
		n++
		tree{"a.cedar": numbered(n)}.Write(t, dir)
		for digest, late := digestOf(dir), time.After(soon); ; {
			select {
			case s := <-loads:
				if s.Digest == digest && s.Refused == nil { // and not half written
					return time.Since(start)
				}
			case <-late:
				t.Fatal("not noticed")
			}
		}
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAnEditIsVisible(t *testing.T) {
	t.Parallel()
	visible(t, func(edit func() time.Duration) { edit() })
}

func TestAnEditIsVisibleWithinASecond(t *testing.T) {
	night.Measures(t)
	visible(t, func(edit func() time.Duration) {
		if took := edit(); took > time.Second {
			t.Errorf("an edit was visible after %v", took)
		}
	})
}
