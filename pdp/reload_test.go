package pdp

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"
)

// hooked is a directory in which something happens each time a policy has been read.
type hooked struct {
	fs.FS
	after func(reading int)
	count *atomic.Int32
}

func hook(dir string, after func(reading int)) Source {
	return Source{Fsys: hooked{os.DirFS(dir), after, new(atomic.Int32)}, Dir: dir}
}

func (h hooked) Open(name string) (fs.File, error) {
	f, err := h.FS.Open(name)
	if name != "a.cedar" || err != nil {
		return f, err
	}
	return hookedFile{f, h}, nil
}

// Stat is here so that measuring a file is not taken for reading it.
func (h hooked) Stat(name string) (fs.FileInfo, error) { return fs.Stat(h.FS, name) }

type hookedFile struct {
	fs.File
	h hooked
}

func (f hookedFile) Close() error {
	err := f.File.Close()
	f.h.after(int(f.h.count.Add(1)))
	return err
}

func digestOf(dir string) string { return Dir(dir).Read().Digest() }

// A policy file that is cut behind a complete policy would load, without its forbids.
func TestSettledWaitsForAHalfWrittenFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": more[:len(smallest)]}.Write(t, dir)
	last := 0
	source := hook(dir, func(reading int) {
		if last = reading; reading <= 3 {
			tree{"a.cedar": more[:len(smallest)+reading*(len(more)-len(smallest))/3]}.Write(t, dir)
		}
	})
	files := Settled(t.Context(), source, time.Millisecond)
	if string(files.Content["a.cedar"]) != more || len(files.Problems) > 0 || last != 5 {
		t.Errorf("after %d readings: %q %v", last, files.Content["a.cedar"], files.Problems)
	}
	p, err := New(hook(dir, func(int) {}), Options{Quiet: time.Millisecond})
	if err != nil || p.Status().Digest != digestOf(dir) {
		t.Error(err)
	}
}

func TestSettledEndsWithItsContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": smallest}.Write(t, dir)
	p, err := New(Dir(dir), Options{Quiet: time.Millisecond, OnLoad: func(Status) { t.Error("a load") }})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	p.source = hook(dir, func(reading int) {
		tree{"a.cedar": more + "// " + time.Duration(reading).String()}.Write(t, dir)
		if reading == 10 {
			cancel()
		}
	})
	before := p.Status()
	if err := p.Reload(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if p.Status() != before {
		t.Error("something was loaded")
	}
	if files := Settled(ctx, p.source, time.Millisecond); !slices.Contains(codes(files.Problems), " unsettled") {
		t.Error(files.Problems)
	}
}

func TestReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": smallest}.Write(t, dir)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var loads []Status
	options := Options{Quiet: time.Millisecond, OnLoad: func(s Status) { loads = append(loads, s) }}
	options.Now = func() time.Time { at = at.Add(time.Second); return at }
	p, err := New(Dir(dir), options)
	must(t, err)
	first := p.Status()
	if first.Digest != digestOf(dir) || !first.LoadedAt.Equal(at) || first.Refused != nil {
		t.Errorf("%+v", first)
	}

	must(t, p.Reload(t.Context()))
	if len(loads) > 0 || p.Status() != first {
		t.Error("what is in force was loaded again")
	}

	tree{"a.cedar": ""}.Write(t, dir)
	err = p.Reload(t.Context())
	var problems Problems
	if !errors.As(err, &problems) || !slices.Contains(codes(problems), "a.cedar empty_file") {
		t.Error(err)
	}
	refused := p.Status()
	if refused.Digest != first.Digest || refused.LoadedAt != first.LoadedAt || refused.Refused == nil || !refused.Refused.At.Equal(at) ||
		!slices.Equal(refused.Refused.Problems, problems) || len(loads) != 1 || loads[0] != refused {
		t.Errorf("%+v, told %+v", refused, loads)
	}

	tree{"a.cedar": smallest}.Write(t, dir)
	must(t, p.Reload(t.Context()))
	if p.Status() != first || len(loads) != 2 || loads[1] != first {
		t.Errorf("back to what is in force: %+v, told %+v", p.Status(), loads)
	}

	tree{"a.cedar": ""}.Write(t, dir)
	_ = p.Reload(t.Context())
	tree{"a.cedar": more}.Write(t, dir)
	must(t, p.Reload(t.Context()))
	if now := p.Status(); now.Digest != digestOf(dir) || now.Refused != nil || !now.LoadedAt.Equal(at) || len(loads) != 4 || loads[3] != now {
		t.Errorf("%+v, told %+v", now, loads)
	}

	tree{"README": "hello"}.Write(t, dir)
	before := p.Bundle()
	must(t, p.Reload(t.Context()))
	if len(loads) != 5 || p.Bundle() == before || len(p.inForce.Load().problems) == 0 {
		t.Error("a new warning is not in force")
	}
}

func TestReloadsAreDoneOneAfterTheOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": smallest}.Write(t, dir)
	var running, loads atomic.Int32
	p, err := New(Dir(dir), Options{Quiet: time.Millisecond, OnLoad: func(Status) {
		loads.Add(1)
		if running.Add(1) > 1 {
			t.Error("two loads at a time")
		}
		running.Add(-1)
	}})
	must(t, err)
	tree{"a.cedar": more}.Write(t, dir)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := p.Reload(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if loads.Load() != 1 || p.Status().Digest != digestOf(dir) {
		t.Error(loads.Load(), "loads")
	}
}

func TestReloadWaitsItsTurnNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"a.cedar": smallest}.Write(t, dir)
	p, err := New(Dir(dir), Options{Quiet: time.Millisecond})
	must(t, err)
	p.reloader.turn <- struct{}{} // a load that goes on for ever
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Reload(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestReloadOfOtherSources(t *testing.T) {
	t.Parallel()
	mapped := fstest.MapFS{"a.cedar": {Data: []byte(smallest)}}
	p, err := New(FS(mapped), Options{Quiet: time.Millisecond})
	must(t, err)
	mapped["b.cedar"] = &fstest.MapFile{Data: []byte("@id(\"q\")\npermit (principal is Robot, action, resource);\n")}
	before := p.Status()
	must(t, p.Reload(t.Context()))
	if p.Status().Digest == before.Digest {
		t.Error("the file system was not read again")
	}
	bundle := bundleFrom(t, FS(mapped))
	if err := Of(bundle, Options{}).Reload(t.Context()); err == nil {
		t.Error("reloaded from nothing")
	}
	for _, p := range []*PDP{p, Of(bundle, Options{})} {
		if err := p.Watch(t.Context()); err == nil {
			t.Error("something without a directory was watched")
		}
	}
}

func TestNewRefusesWhatDoesNotLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var problems Problems
	if _, err := New(Dir(filepath.Join(dir, "gone")), Options{Quiet: time.Millisecond}); !errors.As(err, &problems) || !problems.Refuse() {
		t.Error(err)
	}
}
