package bundle

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func TestPace(t *testing.T) {
	var none *pace
	none.step()
	p := newPace()
	p.since = time.Now().Add(time.Hour)
	if p.step(); p.rests != 0 {
		t.Error("it rests before it has worked")
	}
	p.since = time.Now().Add(-longest)
	if p.step(); p.rests != 1 {
		t.Error("it does not rest after a stretch of work")
	}
	for range 5 {
		p.since = time.Now().Add(-longest)
		if p.step(); p.stretch < stretch || p.stretch > longest {
			t.Errorf("it works for %v", p.stretch)
		}
	}
}

// TestReloadRests: a load beside a bundle in force rests, in each of its parts that take long. The first load does not,
// because nobody is answered yet.
func TestReloadRests(t *testing.T) {
	t.Parallel()
	var entities, policies strings.Builder
	for n := range 8_000 {
		fmt.Fprintf(&entities, `,{"uid":{"type":"user","id":"u%d"},"attrs":{"level":%d},"parents":[{"type":"Role","id":"r%d"}]}`, n, n%7, n%100)
	}
	for n := range 800 {
		fmt.Fprintf(&policies, "permit (principal == user::\"u%d\", action, resource);\n", n)
	}
	fsys := fstest.MapFS{
		"bundle.yaml":       {Data: []byte("allow_trivial: true\n")},
		"a.cedar":           {Data: []byte(policies.String())},
		"entities/all.json": {Data: []byte("[" + entities.String()[1:] + "]")},
	}
	files := FS(fsys).Read()
	first := NewLoading(context.Background(), files, InForce{})
	made, problems := first.Build()
	if made.Bundle == nil {
		t.Fatal(problems)
	}
	if first.pace != nil {
		t.Error("the first load rests")
	}
	fsys["a.cedar"].Data = append(fsys["a.cedar"].Data, "permit (principal == user::\"x\", action, resource);"...)
	again := NewLoading(context.Background(), FS(fsys).Read(), made)
	if made, problems = again.Build(); made.Bundle == nil {
		t.Fatal(problems)
	}
	if again.pace.rests < 2 {
		t.Errorf("it rests %d times", again.pace.rests)
	}

	o := again.parseOwn("default", "", nil)
	use := UsageOf("default")
	use.pace = again.pace
	into := &entityLoader{own: o, bundle: again.bundle, store: o.store, use: use, problems: &problems}
	for part, work := range map[string]func(){
		"policies":  func() { ParsePolicies("a.cedar", use, fsys["a.cedar"].Data, &problems) },
		"entities":  func() { ParseEntities("all.json", fsys["entities/all.json"].Data, use, &problems) },
		"search":    func() { o.store.prepareSearch(again.pace) },
		"ancestors": into.checkAncestors,
		"load": func() {
			into.load("all.json", ParseEntities("all.json", []byte(`[{"uid":{"type":"user","id":"x"},"attrs":{},"parents":[]}]`), UsageOf("default"), &problems))
		},
	} {
		before := again.pace.rests
		again.pace.since = time.Now().Add(-longest)
		if work(); again.pace.rests == before {
			t.Errorf("%s: no rest", part)
		}
	}
}

// TestPacedReader: what is copied from it comes in pieces.
func TestPacedReader(t *testing.T) {
	text := make([]byte, 1<<20)
	var into pieces
	if n, err := io.Copy(&into, pacedReader{bytes.NewReader(text), newPace()}); err != nil || n != int64(len(text)) {
		t.Fatal(n, err)
	}
	if into.longest > 64<<10 {
		t.Errorf("a piece of %d bytes", into.longest)
	}
}

type pieces struct{ longest int }

func (p *pieces) Write(b []byte) (int, error) {
	p.longest = max(p.longest, len(b))
	return len(b), nil
}
