package pdp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/source"
)

const forbidAll = "@id(\"stop\")\nforbid (principal, action, resource);\n"

// tenants is a directory of two tenants, and a PDP that does not watch it.
type tenants struct {
	*PDP
	t        *testing.T
	dir      string
	loads    []Status
	incoming []Incoming
}

func tenantsIn(t *testing.T) *tenants {
	t.Helper()
	w := &tenants{t: t, dir: t.TempDir()}
	w.write(tree{"a.cedar": smallest, "tenants/acme/x.cedar": ofTenant("x", 0), "tenants/other/y.cedar": ofTenant("y", 0)})
	p, err := New(Dir(w.dir), Options{Quiet: time.Millisecond,
		OnLoad:     func(s Status) { w.loads = append(w.loads, s) },
		BeforeSwap: func(b Incoming) error { w.incoming = append(w.incoming, b); return nil }})
	must(t, err)
	w.PDP = p
	return w
}

func ofTenant(id string, n int) string { return renamed(numbered(n), id) }

// write puts each file in its place by one rename.
func (w *tenants) write(files tree) {
	w.t.Helper()
	for name, text := range files {
		at := filepath.Join(w.dir, name)
		must(w.t, os.MkdirAll(filepath.Dir(at), 0o755))
		next := filepath.Join(filepath.Dir(at), ".next")
		must(w.t, os.WriteFile(next, []byte(text), 0o644))
		must(w.t, os.Rename(next, at))
	}
}

// serves fails if the bundle in force is not that of these files, by its digest, its status
// and its record.
func (w *tenants) serves(what string, files tree) {
	w.t.Helper()
	dir := w.t.TempDir()
	files.Write(w.t, dir)
	want, last := Dir(dir).Read(), w.incoming[len(w.incoming)-1]
	if got := w.Status(); got.Digest != want.Digest() || got.Refused != nil || last.Digest != want.Digest() || digestOfContent(last.Files) != want.Digest() {
		w.t.Errorf("%s: in force is %+v, told of %s, want %s", what, got, last.Digest, want.Digest())
	}
}

func digestOfContent(content map[string][]byte) string { return (&Files{Content: content}).Digest() }

// restless is a source of which one tenant writes a file during each reading, after the
// root was read and before the tenants are.
func (w *tenants) restless(name string, writes func() bool) Source {
	n := 0
	var turn sync.Mutex // the search for edits of the root reads it too
	return hook(w.dir, func(int) {
		turn.Lock()
		defer turn.Unlock()
		if n++; writes() {
			w.write(tree{name: ofTenant("x", 1000+n)})
		}
	})
}

// A tenant that writes without a pause makes no two readings equal.
func TestATenantThatNeverLiesStillHoldsUpNoEditOfOthers(t *testing.T) {
	t.Parallel()
	w := tenantsIn(t)
	writes := true
	w.source = w.restless("tenants/acme/x.cedar", func() bool { return writes })

	w.write(tree{"stop.cedar": forbidAll})
	if err := w.Reload(t.Context()); !errors.Is(err, errLater) || len(w.loads) != 1 {
		t.Errorf("got %v and %d loads", err, len(w.loads))
	}
	inForce := tree{"a.cedar": smallest, "stop.cedar": forbidAll, "tenants/acme/x.cedar": ofTenant("x", 0), "tenants/other/y.cedar": ofTenant("y", 0)}
	w.serves("an edit of the root", inForce)
	if later := w.incoming[1].Later; !slices.Equal(later, []string{"acme"}) {
		t.Errorf("told of %v", later)
	}

	w.write(tree{"tenants/other/y.cedar": ofTenant("y", 1)})
	if err := w.Reload(t.Context()); !errors.Is(err, errLater) || len(w.loads) != 2 {
		t.Errorf("got %v and %d loads", err, len(w.loads))
	}
	inForce["tenants/other/y.cedar"] = ofTenant("y", 1)
	w.serves("an edit of another tenant", inForce)

	if err := w.Reload(t.Context()); !errors.Is(err, errLater) || len(w.loads) != 2 {
		t.Errorf("nobody else edited: %v and %d loads", err, len(w.loads))
	}

	w.write(tree{"bad.cedar": "forbid("})
	if err := w.Reload(t.Context()); err == nil || len(w.loads) != 3 || w.Status().Refused == nil || w.Status().Refused.Problems[0].File != "bad.cedar" {
		t.Errorf("an edit of the root that does not load: %v, %+v", err, w.Status())
	}
	if err := w.Reload(t.Context()); !errors.Is(err, errLater) || len(w.loads) != 3 {
		t.Errorf("the same was refused again: %v, %d loads", err, len(w.loads))
	}
	must(t, os.Remove(filepath.Join(w.dir, "bad.cedar")))

	writes = false
	w.write(tree{"tenants/acme/x.cedar": ofTenant("x", 7)})
	must(t, w.Reload(t.Context()))
	inForce["tenants/acme/x.cedar"] = ofTenant("x", 7)
	w.serves("the tenant's own edit, once it lies still", inForce)
}

// Which tenants there are is the root's to say: one that is moved out is gone, whatever
// happens in the other directories, and a new one is there when it lies still.
func TestARestlessTenantIsMovedOutAtOnce(t *testing.T) {
	t.Parallel()
	w := tenantsIn(t)
	writes := true
	w.source = w.restless("tenants/acme/x.cedar", func() bool { return writes })
	must(t, os.Rename(filepath.Join(w.dir, "tenants/other"), filepath.Join(t.TempDir(), "other")))
	if err := w.Reload(t.Context()); !errors.Is(err, errLater) {
		t.Error(err)
	}
	w.serves("another tenant moved out", tree{"a.cedar": smallest, "tenants/acme/x.cedar": ofTenant("x", 0)})
	writes = false
	must(t, os.Rename(filepath.Join(w.dir, "tenants/acme"), filepath.Join(t.TempDir(), "acme")))
	must(t, w.Reload(t.Context()))
	w.serves("the restless one moved out", tree{"a.cedar": smallest})

	writes = true
	must(t, os.Mkdir(filepath.Join(w.dir, "tenants/fresh"), 0o755))
	w.source = w.restless("tenants/fresh/x.cedar", func() bool { return writes })
	w.write(tree{"stop.cedar": forbidAll})
	if err := w.Reload(t.Context()); !errors.Is(err, errLater) || w.Bundle().HasTenant("fresh") {
		t.Errorf("%v, fresh is there: %v", err, w.Bundle().HasTenant("fresh"))
	}
	w.serves("a new tenant that does not lie still", tree{"a.cedar": smallest, "stop.cedar": forbidAll})
	writes = false
	must(t, w.Reload(t.Context()))
	if !w.Bundle().HasTenant("fresh") {
		t.Error("a tenant that lies still is not there")
	}
}

// Where a MANIFEST stands it says which state is whole. A state that never matches it is refused, and
// not waited for in silence.
func TestARestlessTenantIsRefusedWhereAManifestStands(t *testing.T) {
	t.Parallel()
	w := tenantsIn(t)
	must(t, Dir(w.dir).WriteManifest())
	must(t, w.Reload(t.Context()))
	before, readings := w.Status().Digest, 0
	w.source = w.restless("tenants/acme/x.cedar", func() bool { readings++; return true })
	w.write(tree{"stop.cedar": forbidAll})
	var problems Problems
	if err := w.Reload(t.Context()); !errors.As(err, &problems) || !slices.Contains(codes(problems), "tenants/acme/x.cedar manifest_differs") {
		t.Error(err)
	}
	if s := w.Status(); s.Refused == nil || s.Digest != before || readings > 3+aWhile {
		t.Errorf("%+v after %d readings", s, readings)
	}
}

// An edit of the root and of tenants that lie still is seen whole.
func TestAnEditThatSpansTenantsIsSeenWhole(t *testing.T) {
	t.Parallel()
	w := tenantsIn(t)
	w.write(tree{"tenants/acme/x.cedar": ofTenant("x", 1)})
	must(t, w.reload(t.Context(), false))
	files := tree{"a.cedar": numbered(2), "tenants/acme/x.cedar": ofTenant("x", 2), "tenants/other/y.cedar": ofTenant("y", 2)}
	w.write(files)
	must(t, w.reload(t.Context(), false))
	w.serves("all of it", files)
	if len(w.loads) != 2 {
		t.Errorf("%d loads", len(w.loads))
	}
}

// A tenant that edits again and again waits once it has brought as much as it may, be it
// refused or not; a waiting edit comes with time. No other tenant waits. An edit of the root, and a
// forced reload, take the waiting edits along.
func TestATenantThatEditsWithoutEndWaits(t *testing.T) {
	t.Parallel()
	w := tenantsIn(t)
	w.reloader.allowance = newAllowance()
	w.reloader.least, w.reloader.most, w.reloader.second = 1000, 2000, 1
	inForce := tree{"a.cedar": smallest, "tenants/acme/x.cedar": ofTenant("x", 0), "tenants/other/y.cedar": ofTenant("y", 0)}
	edit := func(name, text string, want error) {
		t.Helper()
		w.write(tree{name: text})
		if err := w.reload(t.Context(), false); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	edit("tenants/acme/x.cedar", ofTenant("x", 1), nil)
	w.write(tree{"tenants/acme/x.cedar": "forbid("})
	if err := w.reload(t.Context(), false); !errors.As(err, new(Problems)) {
		t.Error(err)
	}
	edit("tenants/acme/x.cedar", ofTenant("x", 3), nil)
	inForce["tenants/acme/x.cedar"] = ofTenant("x", 3)
	w.serves("what it may bring", inForce)

	loads := len(w.loads)
	edit("tenants/acme/x.cedar", ofTenant("x", 4), errLater)
	edit("tenants/acme/x.cedar", "forbid(", errLater)
	if later := w.Later(); len(w.loads) != loads || !slices.Equal(later, []string{"acme"}) {
		t.Errorf("%d loads more, %v waits", len(w.loads)-loads, later)
	}
	w.serves("more than that", inForce)

	edit("tenants/other/y.cedar", ofTenant("y", 1), errLater)
	inForce["tenants/other/y.cedar"] = ofTenant("y", 1)
	w.serves("another's edit", inForce)
	w.reloader.good["acme"] = w.reloader.good["acme"].Add(-time.Hour)
	edit("tenants/acme/x.cedar", ofTenant("x", 5), nil)
	inForce["tenants/acme/x.cedar"] = ofTenant("x", 5)
	w.serves("later", inForce)
	if later := w.Later(); len(later) > 0 {
		t.Errorf("%v waits still", later)
	}

	for _, files := range []tree{{"tenants/acme/x.cedar": ofTenant("x", 6), "stop.cedar": forbidAll}, {"tenants/acme/x.cedar": ofTenant("x", 7)}} {
		w.reloader.good["acme"] = time.Now().Add(24 * time.Hour)
		w.write(files)
		if _, ofRoot := files["stop.cedar"]; ofRoot {
			must(t, w.reload(t.Context(), false))
		} else {
			must(t, w.Reload(t.Context()))
		}
		for name, text := range files {
			inForce[name] = text
		}
		w.serves("with the root's, or where somebody insists", inForce)
	}
}

// While the log cannot be written, the demand is kept again and again: the allowance
// holds, the same is counted once, and comes into force as soon as it can.
func TestAnAllowanceHoldsWhileTheLogCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := tenantsIn(t)
	w.reloader.least, w.reloader.most, w.reloader.second = 1000, 1900, 1
	broken, asked := errors.New("the disk is full"), 0
	w.options.BeforeSwap = func(b Incoming) error { asked++; w.incoming = append(w.incoming, b); return broken }
	try := func(what string, n int, later bool, want int) {
		t.Helper()
		w.write(tree{"tenants/acme/x.cedar": ofTenant("x", n)})
		err := w.reload(t.Context(), false)
		if errors.Is(err, errLater) != later || broken != nil && !later && !errors.As(err, new(Problems)) || asked != want {
			t.Errorf("%s: %v, asked %d times, want %d", what, err, asked, want)
		}
	}
	try("an edit", 1, false, 1)
	once := w.reloader.good["acme"]
	try("the same", 1, false, 2)
	try("the same", 1, false, 3)
	if !w.reloader.good["acme"].Equal(once) {
		t.Error("the same is counted again")
	}
	try("another", 2, false, 4)
	try("the same, all being spent", 2, false, 5)
	try("more than it may", 3, true, 5)
	try("more than it may", 4, true, 5)
	broken = nil
	try("what was kept", 2, false, 6)
	w.serves("what was kept", tree{"a.cedar": smallest, "tenants/acme/x.cedar": ofTenant("x", 2), "tenants/other/y.cedar": ofTenant("y", 0)})
	try("more than it may, with the log", 5, true, 6)
}

// Going back and forth between the files in force and refused ones makes a record
// each time, and pays for it.
func TestAnEditBackAndForthIsCountedEachTime(t *testing.T) {
	t.Parallel()
	w := tenantsIn(t)
	w.reloader.least, w.reloader.most, w.reloader.second = 1000, 1900, 1
	for n := range 4 {
		loads := len(w.loads)
		w.write(tree{"tenants/acme/x.cedar": "forbid("})
		err := w.reload(t.Context(), false)
		if waits := errors.Is(err, errLater); waits != (n >= 2) || waits && len(w.loads) != loads {
			t.Errorf("round %d: %v, %d loads", n, err, len(w.loads)-loads)
		}
		w.write(tree{"tenants/acme/x.cedar": ofTenant("x", 0)})
		must(t, w.reload(t.Context(), false))
	}
}

// Each load that comes into force keeps a list of all files of all owners. Whose edit made
// it pays for it.
func TestAnEditPaysForTheListThatIsKept(t *testing.T) {
	t.Parallel()
	w := tenantsIn(t)
	w.reloader.least, w.reloader.most, w.reloader.second = 1, 1<<30, 1
	data := t.TempDir()
	kept, err := segment.OpenBundles(data)
	must(t, err)
	began := time.Now()
	w.write(tree{"tenants/acme/x.cedar": ofTenant("x", 1)})
	must(t, w.reload(t.Context(), false))
	_, err = kept.Put(Dir(w.dir).Read().Content)
	must(t, err)
	all, err := os.ReadDir(filepath.Join(data, segment.BundlesDir))
	must(t, err)
	var stored int64
	for _, one := range all {
		info, err := one.Info()
		must(t, err)
		stored += info.Size()
	}
	// The others' files were there already.
	stored -= int64(len(smallest) + len(ofTenant("y", 0)))
	if paid := int64(w.reloader.good["acme"].Sub(began) / time.Second); paid < stored || paid > stored+60 {
		t.Errorf("%d bytes are kept and %d paid for", stored, paid)
	}
	if !w.reloader.good["other"].IsZero() {
		t.Error("another pays")
	}
}

// A refusal of the root is reported until it is taken back, not as long as a tenant
// does not lie still. A refusal of a tenant is reported while that tenant waits.
func TestARestlessTenantDoesNotKeepARefusalUp(t *testing.T) {
	t.Parallel()
	w := tenantsIn(t)
	w.reloader.most = 1 << 40
	good := w.source
	w.source = w.restless("tenants/acme/x.cedar", func() bool { return true })
	w.write(tree{"bad.cedar": "forbid("})
	if err := w.Reload(t.Context()); !errors.As(err, new(Problems)) || w.Status().Refused == nil {
		t.Errorf("%v, %+v", err, w.Status())
	}
	must(t, os.Remove(filepath.Join(w.dir, "bad.cedar")))
	if err := w.Reload(t.Context()); !errors.Is(err, errLater) || w.Status().Refused != nil || w.loads[len(w.loads)-1].Refused != nil {
		t.Errorf("taken back: %v, %+v", err, w.Status())
	}

	w.source = good
	w.write(tree{"tenants/acme/x.cedar": "forbid("})
	if err := w.reload(t.Context(), false); !errors.As(err, new(Problems)) {
		t.Error(err)
	}
	w.reloader.good["acme"], w.reloader.most = time.Now().Add(time.Hour), 1
	w.write(tree{"tenants/other/y.cedar": ofTenant("y", 0), "tenants/acme/z.cedar": ofTenant("z", 0)})
	if err := w.reload(t.Context(), false); !errors.Is(err, errLater) || w.Status().Refused == nil {
		t.Errorf("a tenant's that waits: %v, %+v", err, w.Status())
	}
	must(t, os.Remove(filepath.Join(w.dir, "tenants/acme/z.cedar")))
	w.write(tree{"tenants/acme/x.cedar": ofTenant("x", 0)})
	if err := w.reload(t.Context(), false); err != nil || w.Status().Refused != nil || len(w.Later()) > 0 {
		t.Errorf("taken back too: %v, %+v", err, w.Status())
	}
}

// An edit counts by its new files, and at least by the cost of keeping it.
func TestAnAllowanceIsOfBytes(t *testing.T) {
	t.Parallel()
	a, now := newAllowance(), time.Unix(0, 0)
	for n := range 16 {
		if a.spent("acme", now) {
			t.Errorf("after %d of all that it may bring", n)
		}
		a.spend("acme", 4<<20, now)
	}
	if !a.spent("acme", now) || a.spent("other", now) {
		t.Error("16 are not counted, or others pay")
	}
	if a.spent("acme", now.Add(129*time.Second)) {
		t.Error("nothing is made good")
	}
	for range 1023 {
		a.spend("small", 1, now)
	}
	if a.spent("small", now) {
		t.Error("a thousand small edits are too many")
	}
}

// A tenant's edits make the service read all files again only once in a while; an edit of
// the root does at once.
func TestATenantDoesNotKeepTheReaderBusy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": smallest, "tenants/acme/x.cedar": ofTenant("x", 0)}.Write(t, dir)
	acme := &tenants{t: t, dir: dir} // by rename: a half-written file would be an edit
	readings := make(chan int, 1000)
	watchWith(t, dir, nil, func(p *PDP) {
		p.options.Quiet = time.Hour // nothing that is done here is an edit
		p.source = hook(dir, func(reading int) { readings <- reading })
	})
	<-readings
	for range 50 {
		acme.write(tree{"tenants/acme/x.cedar": ofTenant("x", 0)})
		pause(t.Context(), 10*time.Millisecond)
	}
	if len(readings) > 1 { // one edit may have been before the first reading
		t.Errorf("the tenant had everything read %d times", len(readings))
	}
	for len(readings) > 0 {
		<-readings
	}
	must(t, os.Chmod(filepath.Join(dir, "a.cedar"), 0o600))
	select {
	case <-readings:
	case <-time.After(soon):
		t.Error("what was done to the root was not noticed")
	}
}

// Nor do changes of its directory, which stands in the root's, or in a directory on
// the root's way that a link of the tenant's leads to.
func TestATenantsDirectoryDoesNotKeepTheReaderBusy(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir := filepath.Join(top, "bundle")
	tree{"a.cedar": smallest, "tenants/acme/x.cedar": ofTenant("x", 0), ".far/y.cedar": ofTenant("y", 0), "tenants/far": "-> ../.far"}.Write(t, dir)
	tree{"tenants/acme/.y": "-> " + top + "/of-acme", "tenants/acme/y.cedar": "-> .y", "tenants/acme/tests": "-> " + top}.Write(t, dir)
	for name, touch := range map[string]func() error{
		"its mode":            func() error { return os.Chmod(filepath.Join(dir, "tenants/acme"), 0o755) },
		"its times":           func() error { return os.Chtimes(filepath.Join(dir, "tenants/acme"), time.Now(), time.Now()) },
		"behind a link":       func() error { return os.Chmod(filepath.Join(dir, ".far"), 0o755) },
		"on the root's way":   func() error { return os.WriteFile(filepath.Join(top, "of-acme"), nil, 0o644) },
		"beside the bundle's": func() error { return os.WriteFile(filepath.Join(top, "any"), nil, 0o644) },
	} {
		out, err := newLookout(dir)
		must(t, err)
		must(t, touch())
		if !out.wait(t.Context(), time.Minute, false) {
			t.Errorf("%s: it is taken for the root's", name)
		}
		out.close()
	}
	for name, touch := range map[string]func() error{
		"the tenants' mode": func() error { return os.Chmod(filepath.Join(dir, "tenants"), 0o755) },
		"a root file's":     func() error { return os.Chmod(filepath.Join(dir, "a.cedar"), 0o644) },
		"the bundle moved":  func() error { return os.Rename(dir, dir+"2") },
	} {
		out, err := newLookout(dir)
		must(t, err)
		must(t, touch())
		if out.wait(t.Context(), time.Minute, false) {
			t.Errorf("%s: it is taken for a tenant's", name)
		}
		out.close()
		_ = os.Rename(dir+"2", dir)
	}
	out, err := newLookout(dir)
	must(t, err)
	defer out.close()
	must(t, os.Rename(filepath.Join(dir, "tenants/acme"), filepath.Join(dir, "tenants/.acme")))
	if out.wait(t.Context(), time.Minute, false) {
		t.Error("moving a tenant out is taken for the tenant's")
	}
}

// held is a PDP that watches a directory, the first load of which is held up until it is
// ended.
func held(t *testing.T) (w *watched, begun chan struct{}) {
	dir := t.TempDir()
	tree{"a.cedar": smallest, "tenants/acme/x.cedar": ofTenant("x", 0), "tenants/other/y.cedar": ofTenant("y", 0)}.Write(t, dir)
	begun = make(chan struct{})
	var once sync.Once
	w = watchWith(t, dir, nil, func(p *PDP) {
		p.reloader.building = func(ctx context.Context) {
			once.Do(func() {
				close(begun)
				<-ctx.Done()
			})
		}
	})
	return w, begun
}

// puts puts a file in its place by one rename.
func (w *watched) puts(name, text string) {
	w.t.Helper()
	next := filepath.Join(w.t.TempDir(), "next")
	must(w.t, os.WriteFile(next, []byte(text), 0o644))
	replaceFile(w.t, next, filepath.Join(w.dir, name))
}

// An edit of the root does not wait for the load of a tenant's edit.
func TestAnEditOfTheRootOvertakesTheLoadOfATenants(t *testing.T) {
	t.Parallel()
	w, begun := held(t)
	w.puts("tenants/acme/x.cedar", ofTenant("x", 1))
	<-begun
	w.puts("stop.cedar", forbidAll)
	first := <-w.loads // the load before it never ends by itself
	dir := t.TempDir()
	tree{"a.cedar": smallest, "stop.cedar": forbidAll, "tenants/acme/x.cedar": ofTenant("x", 0), "tenants/other/y.cedar": ofTenant("y", 0)}.Write(t, dir)
	if first.Digest != digestOf(dir) || first.Refused != nil {
		t.Errorf("the first load is %+v, want the root's edit alone, %s", first, digestOf(dir))
	}
	w.sees("the tenant's edit")
}

// Where the tenant's files in force do not load beside the root's edit, that is in force at once all the same, and nothing is
// refused.
func TestAnEditThatOvertakesMayNeedTheTenants(t *testing.T) {
	t.Parallel()
	w, begun := held(t)
	w.puts("tenants/acme/x.cedar", ofTenant("renamed", 1))
	<-begun
	w.puts("x.cedar", ofTenant("x", 1)) // the id that the tenant gave up
	dir := t.TempDir()
	tree{"a.cedar": smallest, "x.cedar": ofTenant("x", 1), "tenants/other/y.cedar": ofTenant("y", 0)}.Write(t, dir)
	if first := <-w.loads; first.Refused != nil || first.Digest != digestOf(dir) {
		t.Errorf("got %+v", first)
	}
	w.sees("the tenant's edit")
}

// A tenant that is moved out is out at once, too.
func TestMovingATenantOutOvertakesItsLoad(t *testing.T) {
	t.Parallel()
	w, begun := held(t)
	tree{"tenants/acme/x.cedar": ofTenant("x", 1)}.Write(t, w.dir)
	<-begun
	replaceFile(t, filepath.Join(w.dir, "tenants/acme"), filepath.Join(t.TempDir(), "acme"))
	if first := <-w.loads; first.Refused != nil || w.Bundle().HasTenant("acme") {
		t.Errorf("got %+v", first)
	}
}

// An edit of a tenant ends no load.
func TestATenantsEditOvertakesNoLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": smallest, "entities/e.json": "[]", "tenants/acme/x.cedar": ofTenant("x", 0), "tenants/acme/entities/e.json": "[]", "tests/t.yaml": "[]"}.Write(t, dir)
	out, err := newLookout(dir)
	must(t, err)
	defer out.close()
	for name, want := range map[string]bool{
		"a.cedar": true, "new.cedar": true, "entities/e.json": true, "entities": true, "tenants/new": true, "tenants": true,
		"tenants/acme/x.cedar": false, "tenants/acme/entities/e.json": false, "tenants/acme/new": false, "tenants/acme/entities": false,
	} {
		if _, got := out.matters(fsnotify.Event{Name: filepath.Join(dir, name), Op: fsnotify.Write}); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	w := tenantsIn(t)
	before := Dir(w.dir).Read().Reading()
	w.write(tree{"tenants/acme/x.cedar": ofTenant("x", 1), "tenants/acme/z.cedar": "forbid("})
	ctx, cancel := context.WithCancel(t.Context())
	w.reloader.pollWatched = time.Millisecond
	w.source = hook(w.dir, func(reading int) {
		if reading == 5 {
			cancel()
		}
	})
	if w.rootChanges(ctx, before) {
		t.Error("the load was ended")
	}
	w.write(tree{"stop.cedar": forbidAll})
	if !w.rootChanges(t.Context(), before) {
		t.Error("the load was not ended by an edit of the root")
	}
}

// Nor for each directory on the ways of as many links as it may have, and it has no more
// followed than others wait for. The others' directories are watched all the same, and the
// tenant is polled.
func TestATenantsWindingLinksTakeFewWatches(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": smallest, "tenants/acme/e/": "", "tenants/other/y.cedar": ofTenant("y", 0)}.Write(t, dir)
	at := func(name string) string { return filepath.Join(dir, "tenants", name) }
	look := func(what string, mostSteps, mostDirectories int, blind bool) {
		t.Helper()
		out, err := newLookout(dir)
		must(t, err)
		defer out.close()
		before := strings.Count(dir, "/") + 4 // on the way to the tenants, and the other's
		_, other := out.names[at("other")][everyName]
		_, acme := out.names[at("acme")][everyName]
		if all := len(out.names) - before; all > mostDirectories || out.blind != blind || !other || !acme {
			t.Errorf("%s: %d directories are watched, blind: %v", what, all, out.blind)
		}
		out.steps, out.armed, out.bounds = 0, 0, source.TenantBounds
		out.watchOwner(at("acme"))
		if out.steps > mostSteps {
			t.Errorf("%s: %d names are followed", what, out.steps)
		}
	}
	for n := range source.TenantBounds.Names - 3 { // as in a volume
		must(t, os.Symlink("..data/x", at(fmt.Sprintf("acme/l%d.cedar", n))))
	}
	tree{"tenants/acme/..1/x": "// nothing", "tenants/acme/..data": "-> ..1"}.Write(t, dir)
	look("a volume", source.TenantBounds.Followed, 2, false)

	const links = 250 // more than directories that may be watched
	relink := func(target func(n int) string) {
		for n := range links {
			must(t, os.Remove(at(fmt.Sprintf("acme/l%d.cedar", n))))
			must(t, os.Symlink(target(n), at(fmt.Sprintf("acme/l%d.cedar", n))))
		}
	}
	relink(func(int) string { return strings.Repeat("e/../", 120) + "e" })
	look("winding links", source.TenantBounds.Followed, 3, true)
	relink(func(int) string { return strings.Repeat("e/../", 800) + "e" })
	look("links that are too long", source.TenantBounds.Followed, 2, true)
	for n := range links {
		must(t, os.Mkdir(at(fmt.Sprintf("acme/e/%d", n)), 0o755))
	}
	relink(func(n int) string { return fmt.Sprintf("e/%d/x", n) })
	look("links to many directories", source.TenantBounds.Followed, source.TenantBounds.Armed, true)
}

// A directory that is really watched, and a tenant that really does not stop.
func TestWatchSeesTheRootBesideARestlessTenant(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": smallest, "tenants/acme/x.cedar": ofTenant("x", 0)}.Write(t, dir)
	w := watchWith(t, dir, nil, func(p *PDP) { p.options.Quiet = 50 * time.Millisecond }) // longer than the tenant pauses
	at := filepath.Join(dir, "tenants/acme")
	ctx, cancel := context.WithCancel(t.Context())
	var tenant sync.WaitGroup
	defer tenant.Wait()
	defer cancel()
	wrote := make(chan struct{}, 1000)
	tenant.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			if os.WriteFile(at+"/.next", []byte(ofTenant("x", n)), 0o644) != nil || os.Rename(at+"/.next", at+"/x.cedar") != nil {
				t.Error("the tenant cannot write")
				return
			}
			select {
			case wrote <- struct{}{}:
			default:
			}
			pause(ctx, time.Millisecond)
		}
	})
	for range 20 {
		<-wrote
	}
	for round := range 3 {
		name := fmt.Sprintf("stop%d.cedar", round)
		tree{name: strings.Replace(forbidAll, "stop", name, 1)}.Write(t, dir)
		loads := 0
		w.until("the root's forbid", func(s Status) bool {
			loads++
			return s.Refused == nil && slices.ContainsFunc(w.Bundle().Policies(), func(p PolicyInfo) bool { return p.ID == name })
		})
		if loads > 3 {
			t.Errorf("in force after %d loads", loads)
		}
	}
}
