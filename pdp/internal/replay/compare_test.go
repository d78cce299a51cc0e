package replay_test

import (
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/replay"
)

// sideOf loads a bundle.
func sideOf(t *testing.T, files map[string]string) *replay.Side {
	t.Helper()
	side, err := replay.ReadSide(sourceOf(files))
	must(t, err)
	return side
}

func sourceOf(files map[string]string) pdp.Source {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return pdp.FS(fsys)
}

// edited are the policies of a log of one bundle with an edit.
func edited(file, was, is string) map[string]string {
	files := policies(1)
	if !strings.Contains(files[file], was) {
		panic("there is no " + was)
	}
	files[file] = strings.Replace(files[file], was, is, 1)
	return files
}

// compare compares a candidate with the bundle in force, by the directory and by an export of it, with one worker and with several.
func (a *archive) compare(candidate map[string]string) (got replay.Compared) {
	a.t.Helper()
	base, next := sideOf(a.t, policies(1)), sideOf(a.t, candidate)
	first := ""
	a.sources(func(name string, from func() replay.Source) {
		for _, workers := range []int{1, 4} {
			made, err := replay.Compare(a.t.Context(), from(), base, next, replay.Options{Workers: workers}, nil)
			must(a.t, err)
			must(a.t, made.Causes(a.t.Context(), base, next, replay.Differ(base, next), evaluation.DefaultLimits()))
			if text := textOf(a.t, made); first == "" {
				first, got = text, made
			} else if text != first {
				a.t.Errorf("%s by %d workers:\n%s\nand not\n%s", name, workers, text, first)
			}
		}
	})
	return got
}

// What is in force changes nothing, and each edit changes what it should, and says why.
func TestCompare(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files   map[string]string
		changed map[replay.Class]int64
		cause   replay.Cause
		unknown int64
	}{
		"nothing": {policies(1), map[replay.Class]int64{}, replay.Cause{}, 0},
		"another layout": {
			edited("a.cedar", `@id("read") permit(principal, action`, "// who reads\n@id(\"read\")\npermit (principal , action"), map[replay.Class]int64{}, replay.Cause{}, 0,
		},
		"without the obligation": {
			edited("a.cedar", `@obligation("tell") `, ""), map[replay.Class]int64{replay.Weaker: 4, replay.Widened: 2},
			replay.Cause{Policy: "tell", Position: "a.cedar:2:1", Change: replay.Edited, Does: replay.Permits}, 0,
		},
		"a clause": {
			edited("a.cedar", "context.level > 1", "context.level > 1 && context.level < 9"), map[replay.Class]int64{replay.Narrowed: 2},
			replay.Cause{Policy: "read", Position: "a.cedar:1:95", Change: replay.Edited, Does: replay.PermitsNoMore, Clause: "when { context.level < 9 }"}, 0,
		},
		"a forbid": {
			edited("a.cedar", `resource.id == "closed"`, `resource.id == "open"`), map[replay.Class]int64{replay.Widened: 1 + 2 + 2, replay.Narrowed: 2*4 + 2, replay.Weaker: 0},
			replay.Cause{}, -1,
		},
		"a secret": {
			edited("a.cedar", `context.level > 1`, `context.level > 1 && context.arguments.token == "b"`), map[replay.Class]int64{replay.Narrowed: 8}, replay.Cause{}, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := open(t)
			a.load(policies(1), true)
			a.fill(1)
			got := a.compare(c.files)
			if c.unknown < 0 { // which ones is of no interest here
				return
			}
			if !maps.Equal(got.Changed, c.changed) || got.Unknown != c.unknown || got.Same != got.Decisions-sum(got.Changed)-got.Unknown {
				t.Errorf("got %v, %d unknown by %+v, of %d the same", got.Changed, got.Unknown, got.HiddenBy, got.Same)
			}
			if c.cause != (replay.Cause{}) && (len(got.Groups) == 0 || len(got.Groups[0].Cause) == 0 || got.Groups[0].Cause[0] != c.cause) {
				t.Errorf("because %+v", got.Groups[0].Cause)
			}
		})
	}
}

func sum(of map[replay.Class]int64) (all int64) {
	for _, n := range of {
		all += n
	}
	return all
}
