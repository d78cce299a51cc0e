package decisionlog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// operation is something that is done to a log, in steps. What happens between them is for a fault to say.
type operation struct {
	name    string
	begin   func(k *kept) []step
	removes []string  // the records whose content is gone for good once two steps are done
	crashes [2]int    // how many starts after a crash are on record, at least and at most, if the process is killed
	passes  [2]string // the steps of the log that it begins and ends with
}

type step = func(context.Context) error

// fault is what an operation meets. verify accepts the directory that is left, unless nothing was ever signed in it.
type fault struct {
	name  string
	meets func(o operation) bool
	meet  func(t *testing.T, o operation)
}

var operations = []operation{
	{
		name: "create", crashes: [2]int{0, 1}, begin: func(k *kept) []step { return []step{k.start} },
		passes: [2]string{"prepare prepared commit committed ", " created commit committed"},
	},
	{
		name: "replay", crashes: [2]int{1, 2}, begin: func(k *kept) []step { k.crashed(); return []step{k.start} },
		passes: [2]string{"replay fill filled commit committed replayed commit committed create ", " created commit committed"},
	},
	{name: "append", crashes: [2]int{1, 1}, begin: func(k *kept) []step {
		k.open()
		k.hooks.hold()
		large := entry("d")
		large.Request.Context = []byte(`"` + strings.Repeat("x", callBytes) + `"`) // which is not for the journal
		return []step{
			func(context.Context) error { return k.pend("b-1") },
			func(context.Context) error { return k.pend("b-2", "b-3") },
			func(ctx context.Context) error { k.hooks.goOn(); return k.log.Flush(ctx) },
			func(context.Context) error { return k.ask(large) },
		}
	}},
	{name: "live", begin: func(k *kept) []step { return k.life() }},
	{name: "rotate", crashes: [2]int{1, 1}, begin: onSome(func(k *kept, ctx context.Context) error { return k.log.Rotate(ctx) })},
	{name: "sign", crashes: [2]int{1, 1}, begin: onSome(func(k *kept, ctx context.Context) error {
		_, err := k.log.Checkpoint(ctx)
		return err
	})},
	{name: "change the key", crashes: [2]int{1, 1}, begin: onSome(func(k *kept, ctx context.Context) error {
		_, err := k.log.RotateKey(ctx, "")
		return err
	})},
	{name: "erase the journal", crashes: [2]int{1, 1}, begin: onSome(func(k *kept, ctx context.Context) error {
		return k.log.writer.runHeld(ctx, k.log.writer.eraseJournal)
	})},
	{name: "close", crashes: [2]int{0, 1}, begin: onSome(func(k *kept, _ context.Context) error { return k.log.Close() })},
	{name: "redact", crashes: [2]int{1, 1}, removes: []string{"b-2"}, begin: func(k *kept) []step {
		k.some()
		return k.redaction("b-2").steps()
	}},
	{name: "redact several", crashes: [2]int{1, 1}, removes: []string{"a-3", "b-2"}, begin: func(k *kept) []step {
		k.some()
		return k.redaction("a-3", "b-2").steps()
	}},
	{
		name: "retain", crashes: [2]int{1, 1}, removes: []string{"a-1", "a-2", "a-3", "b-1", "b-2", "b-3", "f"},
		begin: func(k *kept) []step {
			k.some()
			k.ok(k.log.Rotate(k.Context()))
			k.append("f")
			k.ok(k.log.Rotate(k.Context()))
			return k.retirement(2).steps()
		},
	},
}

// onSome returns the only step of an operation, for a log of which the journal alone has a part.
func onSome(do func(k *kept, ctx context.Context) error) func(k *kept) []step {
	return func(k *kept) []step {
		k.some()
		return []step{func(ctx context.Context) error { return do(k, ctx) }}
	}
}

var allFaults = []fault{
	// While somebody appends, no copy is what a process leaves: TestCrashAtEachStep kills one.
	{"the process is killed", func(o operation) bool { return o.name != "live" }, killedAtEachStep},
	{"the journal cannot be written", soon("live", "redact", "close"), cannotWrite(1, 1, false)},
	{"the journal cannot be written for a while", soon("live", "close"), cannotWrite(9, 4, false)},
	{"the journal cannot be written, and the process ends", soon("live", "close"), cannotWrite(1, 2, true)},
	{"a transaction fails", soon("live", "redact"), failsAt(StepFill, StepCommit)},
	{"a transaction seems to fail", soon("live", "redact", "change the key"), failsAt(StepFilled, StepCommitted)},
	// A removal stops after each of its steps, and the process does one thing more.
	{"it stops, and the log is closed", removes("redact", "retain"), stops(func(k *kept, _ int) {
		k.check()
		k.reopen()
	})},
	{"it stops, and the process ends", removes("redact", "retain"), stops(func(k *kept, _ int) {
		k.ok(k.pend("last"))
		crash(k.log)
		k.ok(JudgeDirectory(k.data))
		k.open()
	})},
	{"it stops, and retention has no bounds", removes("redact"), stops(func(k *kept, _ int) {
		kept, err := k.log.Retain(k.Context(), Retention{}, time.Now())
		if k.ok(err); kept.Segments != nil {
			k.Errorf("it dropped %+v", kept)
		}
	})},
	{"it stops, and another record is redacted", removes("redact"), stops(func(k *kept, _ int) {
		k.ok(k.pend("other"))
		k.look()
		sequence := sequenceOf(k, k.log, "other")
		k.ok(k.log.Redact(k.Context(), "", "other", "on request"))
		k.gone[int64(sequence)] = format.WhyRedacted
	})},
	{"half of the new files is left", removes("redact"), stops(func(k *kept, done int) {
		if done == 1 {
			for _, name := range k.left() {
				k.ok(errors.Join(os.Chmod(name, 0o600), os.Truncate(name, 5000)))
			}
		}
		k.reopen()
	})},
	// Its digest is on record, but as that of the sealed segment: it must not take its place.
	{"an old file has the name of a new one", removes("redact"), func(t *testing.T, o operation) {
		k := keep(t, memory(t))
		steps, path := o.begin(k), segment.FilePath(k.data, 1)
		old, err := os.ReadFile(path)
		k.ok(err)
		for _, step := range steps {
			k.ok(step(t.Context()))
		}
		k.ok(os.WriteFile(path+".0"+segment.NextSuffix, old, 0o400))
		k.reopen()
		k.settle(o, true)
	}},
}

// soon returns whether an operation meets a fault: with -short only these do.
func soon(names ...string) func(operation) bool {
	return func(o operation) bool { return !testing.Short() || slices.Contains(names, o.name) }
}

// removes is [soon] of removals.
func removes(names ...string) func(operation) bool {
	return func(o operation) bool { return o.isRemoval() && soon(names...)(o) }
}

func (o operation) isRemoval() bool { return o.removes != nil }

// TestFaults has each operation meet each fault. Afterwards all that was answered is on record once, and nothing that was
// refused; content that was to go is in no file, if its removal is on record, and else all of it is there; and verify
// accepts the directory before the next start, and after that.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, o := range operations {
		for _, f := range allFaults {
			if f.meets(o) && (!testing.Short() || o.name != "redact several") {
				t.Run(o.name+"/"+f.name, func(t *testing.T) {
					t.Parallel()
					f.meet(t, o)
				})
			}
		}
	}
}

// some opens a log of two parts. The journal has the content of both, the second is in no segment yet.
func (k *kept) some() {
	k.Helper()
	k.open()
	k.ok(k.pend("a-1", "a-2", "a-3"))
	k.ok(k.log.waitUntilFilled(k.Context()))
	k.ok(k.pend("b-1"))
	k.ok(k.pend("b-2", "b-3"))
	inJournal := func(path string) bool { return strings.Contains(path, "journal.") }
	for _, id := range []string{"a-2", "b-2"} {
		if files := k.holds("content-of-" + id); !slices.ContainsFunc(files, inJournal) {
			k.Fatalf("what was answered is not in the journal, but in %v", files)
		}
	}
}

// crashed makes the log one of which the journal alone has six calls of two records. Its clock went back between them.
func (k *kept) crashed() {
	k.Helper()
	was := keep(k.T, memory(k))
	now := crashStart
	was.options.Now = func() time.Time { was.hooks.mu.Lock(); defer was.hooks.mu.Unlock(); return now }
	turn := func(by time.Duration) { was.hooks.mu.Lock(); defer was.hooks.mu.Unlock(); now = crashStart.Add(by) }
	was.open()
	was.hooks.hold()
	for n, id := range []string{"a", "b", "c", "d", "e", "f"} {
		if turn(time.Minute); n > 2 {
			turn(-time.Hour)
		}
		k.ok(was.pend(id, id+"+"))
	}
	k.data = asKilled(k, was.data)
	k.hooks.signed.Store(was.hooks.signed.Load())
	was.hooks.goOn()
	k.ok(was.log.Close())
	lines := verify(k, was.data)
	k.onRecord(lines, was.answered)
	if len(lines) != 13 || !bytes.Contains(lines[12], []byte("clock_behind")) || bytes.Contains(lines[6], []byte("clock_behind")) {
		k.Fatalf("%d records:\n%s", len(lines), bytes.Join(lines, []byte("\n")))
	}
	k.answered, k.first = was.answered, was.first
	k.answered[idOf(lines[0])], k.first[idOf(lines[0])] = true, lines[0]
	k.options.Now = func() time.Time { return crashStart } // or its segment is old enough to be sealed
}

var crashStart = time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC)

// life returns the steps from the first start to the end of a log that does all that it asks of its journal.
func (k *kept) life() []step {
	k.options.SegmentBytes = 150_000
	steps := []step{k.start}
	for i := range 26 {
		steps = append(steps, func(ctx context.Context) error {
			e := entry(fmt.Sprint(i))
			e.Request.Context = []byte(`"` + strings.Repeat("x", 1+i%4*9_000) + `"`)
			if i == 13 { // which is not for the journal
				e = record.Entry{ID: e.ID, Kind: format.KindAdmin, Event: "data_read"}
			}
			err := k.ask(e)
			if i == 16 && err == nil {
				err = k.log.writer.runHeld(ctx, k.log.writer.eraseJournal)
			}
			return err
		})
	}
	return append(steps, func(context.Context) error { return k.log.Close() })
}

// ask has one record, and keeps in mind whether that was answered.
func (k *kept) ask(entries ...record.Entry) error {
	err := k.log.Append(k.Context(), entries)
	k.hooks.mu.Lock()
	defer k.hooks.mu.Unlock()
	for _, e := range entries {
		k.answered[e.ID] = err == nil
	}
	return err
}

// pend has decisions on record in one call, and does not look for them: at first only the journal has them.
func (k *kept) pend(ids ...string) error {
	var entries []record.Entry
	for _, id := range ids {
		entries = append(entries, entryOf(id, true))
	}
	err := k.ask(entries...)
	f := k.log.writer.frames
	f.mu.Lock()
	defer f.mu.Unlock()
	f.backlog.due.Stop() // so that nothing is filled because it is time
	return err
}

// asKilled is a copy of a data directory to which nobody writes at the moment: what a process leaves that is killed.
func asKilled(t testing.TB, data string) (dir string) {
	t.Helper()
	dir = filepath.Join(memory(t), "data")
	if err := os.CopyFS(dir, os.DirFS(data)); err != nil {
		t.Error(err) // a step may be another goroutine's
	}
	for _, name := range []string{format.KeyFile, format.NextKeyFile} {
		if err := os.Chmod(filepath.Join(dir, name), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	return dir
}

// onRecord asserts that the lines of a closed log have what was answered once, with the bytes that another copy of it has,
// nothing that was refused, and nothing of what is gone.
func (k *kept) onRecord(lines [][]byte, answered map[string]bool, gone ...string) {
	k.Helper()
	there := map[string]int{}
	for _, line := range lines {
		id := idOf(line)
		if there[id]++; there[id] > 1 && line != nil {
			k.Errorf("%s is there %d times", id, there[id])
		}
		if before := k.first[id]; answered[id] && before != nil && !bytes.Equal(line, before) {
			k.Errorf("%s\nwas\n%s", line, before)
		} else if answered[id] {
			k.first[id] = line
		}
	}
	for id, is := range answered {
		if want := is && !slices.Contains(gone, id); want != (there[id] > 0) {
			k.Errorf("%s, answered %v, is there %d times", id, is, there[id])
		}
	}
}

// contents asserts that no file has content that is gone, that some file has all other, and that no file of a removal is left.
func (k *kept) contents(data string, answered map[string]bool, gone ...string) {
	k.Helper()
	var contents []string
	for id := range answered {
		contents = append(contents, "content-of-"+id+`"`)
	}
	at := &kept{T: k.T, data: data}
	files := at.holding(contents...)
	for id, is := range answered {
		if files := files["content-of-"+id+`"`]; is && (files == nil) != slices.Contains(gone, id) {
			k.Errorf("the content of %s is in %v", id, files)
		}
	}
	if left := at.left(); left != nil {
		k.Errorf("left behind: %v", left)
	}
}

// left is what a process leaves that is killed.
type left struct {
	data, at string // at which step of the log, "" between two of the operation
	done     int    // how many of these are done
	answered map[string]bool
	signed   *string
}

// killedAtEachStep copies the directory at each step of the log and of its journal, and between the steps of the operation.
// Each copy is started.
func killedAtEachStep(t *testing.T, o operation) {
	k := keep(t, memory(t))
	k.options.Index = false
	steps := o.begin(k)
	var all []left
	done := 0
	look := func(at string) {
		if o.isRemoval() && slices.Contains([]string{journal.StepWrite, journal.StepWritten, journal.StepSynced}, at) {
			return // the writer may fill meanwhile: no process leaves such a copy
		}
		k.hooks.mu.Lock()
		defer k.hooks.mu.Unlock()
		one := left{at: at, done: done, answered: maps.Clone(k.answered), signed: k.hooks.signed.Load()}
		one.data = asKilled(t, k.data)
		all = append(all, one)
	}
	between := func() {
		if k.log == nil || closed(k.log) || k.hooks.holds() {
			look("")
			return
		}
		k.ok(k.log.writer.submitCall(t.Context(), &call{do: func() error { look(""); return nil }}))
	}
	k.hooks.set(look)
	for _, step := range steps {
		if o.isRemoval() {
			k.ok(k.pend(fmt.Sprint("c", done)))
		}
		between()
		k.ok(step(t.Context()))
		done++
	}
	between()
	k.hooks.set(nil)
	k.ok(k.log.Close())
	lines, named := verifyRemoved(t, k.data), []string{}
	k.onRecord(lines, k.answered, o.removes...)
	begun := o.name != "create"
	for n, one := range all {
		if _, err := os.Lstat(filepath.Join(one.data, format.KeyFile)); (err == nil) != begun { // else the log would be one that was cut
			t.Errorf("copy %d, at %q: the key and its name: %v", n, one.at, err)
		}
		begun = begun || one.at == StepCommitted
		if one.at != "" {
			named = append(named, one.at)
		}
		if testing.Short() && o.isRemoval() && one.at != "" && n%3 > 0 {
			continue
		}
		if k.judge(o, one); t.Failed() {
			t.Fatalf("that was copy %d of %d, at %q, with %d steps done", n, len(all), one.at, one.done)
		}
	}
	if at := strings.Join(named, " "); !strings.HasPrefix(at, o.passes[0]) || !strings.HasSuffix(at, o.passes[1]) {
		t.Errorf("it takes other steps: %s", at)
	}
}

// judge starts what a process left, twice. What is appended then is not before it.
func (k *kept) judge(o operation, one left) {
	k.Helper()
	defer func() { _ = os.RemoveAll(one.data) }()
	signed := one.signed
	if signed != nil {
		k.ok(JudgeKept(one.data, *signed))
	}
	if err := JudgeDirectory(one.data); (err == nil) != (signed != nil) {
		k.Errorf("a checkpoint: %v, and before the next start: %v", signed != nil, err)
	}
	again := k.options
	again.Journal, again.On = journal.Options{}, Hooks{Checkpoint: func(note []byte) { signed = new(string(note)) }}
	if again.Now != nil {
		again.Now = func() time.Time { return crashStart.Add(-2 * time.Hour) }
	}
	for _, id := range []string{"later", "and-later"} {
		l := mustOpen(k, one.data, again)
		mustAppend(k, l, entryOf(id, true))
		k.ok(l.Close())
		k.ok(JudgeKept(one.data, *signed))
		one.answered[id] = true
	}
	lines, events := verifyRemoved(k, one.data), map[string]int{}
	for _, line := range lines {
		for _, event := range []string{format.EventCrash, format.EventRedacted, format.EventRetired} {
			events[event] += bytes.Count(line, []byte(`"event":"`+event+`"`))
		}
	}
	if got := events[format.EventCrash]; got < o.crashes[0] || got > o.crashes[1] {
		k.Errorf("%d starts after a crash are on record", got)
	}
	if was := 13; o.name == "replay" && len(lines) >= was { // records before, and no time is before another
		for _, line := range lines[was:] {
			if !bytes.Contains(line, []byte("clock_behind")) && one.at == "" && one.done == 0 {
				k.Errorf("it does not say that the clock is behind: %s", line)
			}
		}
		if len(lines) != was+events[format.EventCrash]+2 {
			k.Errorf("%d records", len(lines))
		}
	}
	delete(k.first, "later")
	delete(k.first, "and-later")
	if !o.isRemoval() {
		k.onRecord(lines, one.answered)
		return
	}
	gone := o.removes
	if events[format.EventRedacted]+events[format.EventRetired] == 0 {
		gone = nil
	}
	if is := gone != nil; is != (one.done >= 2) && (one.at == "" || one.done != 1) {
		k.Errorf("the removal is on record: %v", is)
	}
	k.onRecord(lines, one.answered, gone...)
	k.contents(one.data, one.answered, gone...)
}

// closed reports whether nobody may append any more.
func closed(l *Log) bool {
	l.writer.queue.ending.RLock()
	defer l.writer.queue.ending.RUnlock()
	return l.writer.queue.closed
}

// cannotWrite has so many requests to the disk with the journal fail, from each on. If the process ends, it does at the first.
func cannotWrite(many, stride int, ends bool) func(t *testing.T, o operation) {
	return func(t *testing.T, o operation) {
		each := stride
		if testing.Short() && o.name == "live" {
			each += 3
		}
		told := map[string]int{}
		for from := 0; ; from += each {
			k := keep(t, memory(t))
			k.options.Index = false
			steps := o.begin(k)
			k.disk.next(many, from)
			told[k.suffer(o, steps, trouble{happened: k.disk.happened, ends: ends, maybe: ends, resumes: !ends})]++
			if !k.disk.happened() {
				break
			}
		}
		for what, of := range map[string]string{"start": "live", "append": "live", "close": "close"} {
			if o.name == of && told[what] == 0 {
				t.Errorf("nothing failed at: %s", what)
			}
		}
	}
}

// failsAt has one transaction fail at a step, each in its turn.
func failsAt(at ...string) func(t *testing.T, o operation) {
	return func(t *testing.T, o operation) {
		for n, failed := int64(0), true; failed; n++ {
			k := keep(t, memory(t))
			k.options.Index = false
			steps := o.begin(k)
			var came atomic.Int64
			k.hooks.set(func(step string) {
				if slices.Contains(at, step) && came.Add(1) == n+1 {
					panic("it fails")
				}
			})
			k.suffer(o, steps, trouble{happened: func() bool { return came.Load() > n }, maybe: at[0] == StepFilled})
			failed = came.Load() > n
		}
	}
}

// trouble is what a log has.
type trouble struct {
	happened func() bool // whether there was any
	ends     bool        // the process ends at the first
	maybe    bool        // what was refused may be on record
	resumes  bool        // the log goes on by itself, else when it is closed
}

// suffer takes the steps of an operation in trouble, and asserts that who is refused is told so with [segment.ErrUnavailable]. It
// returns where that was first.
func (k *kept) suffer(o operation, steps []step, in trouble) (told string) {
	defer func() { _ = os.RemoveAll(k.data) }()
	all := true
	for n, step := range steps {
		var err error
		if o.isRemoval() {
			err = k.pend(fmt.Sprint("c", n))
		}
		if err == nil {
			err = step(k.Context())
		}
		for ; err != nil && k.log == nil; err = step(k.Context()) {
			if told = "start"; !in.happened() {
				k.Fatal(err)
			}
			if errors.Is(err, segment.ErrLocked) { // the first segment is still open: only another process can start
				k.data = asKilled(k, k.data)
			}
		}
		if err == nil {
			continue
		}
		k.hooks.goOn()
		all = false
		switch {
		case in.happened() && closed(k.log):
			told = cmp.Or(told, "close")
		case in.happened() && errors.Is(err, segment.ErrUnavailable):
			told = cmp.Or(told, "append")
		default:
			k.Fatal(err)
		}
		if !in.resumes || closed(k.log) {
			break
		}
		if k.disk.resumes(); o.isRemoval() {
			break
		}
	}
	if was := closed(k.log); in.ends && !all && !was {
		crash(k.log)
	} else if err := k.log.Close(); err == nil {
		if left := k.log.writer.accounts.coming; left != 0 && !was {
			k.Errorf("%d bytes are still on their way", left)
		}
	} else if !in.happened() {
		k.Fatal(err)
	}
	k.disk.next(0, 0)
	k.hooks.set(nil)
	if k.hooks.signed.Load() != nil {
		k.ok(JudgeDirectory(k.data))
	}
	if in.maybe {
		maps.DeleteFunc(k.answered, func(_ string, answered bool) bool { return !answered })
	}
	k.open()
	removed := slices.ContainsFunc(k.lines, func(line []byte) bool { return newFiles(line) != nil })
	if all && o.isRemoval() && !removed {
		k.Error("it is done, and not on record")
	}
	k.settle(o, removed)
	return told
}

// stops has a removal end after each of its steps, and something done then.
func stops(then func(k *kept, done int)) func(t *testing.T, o operation) {
	return func(t *testing.T, o operation) {
		for n := range 5 {
			k := keep(t, memory(t))
			steps := o.begin(k)
			for _, step := range steps[:n] {
				k.ok(k.pend(fmt.Sprint("c", len(k.answered))))
				k.ok(step(t.Context()))
			}
			if n == len(steps) {
				maps.Copy(k.gone, k.going)
			}
			if files := k.holds("content-of-b-2"); (files == nil) != (n == len(steps)) {
				t.Errorf("after %d steps it is in %v", n, files)
			}
			then(k, n)
			if k.settle(o, n >= 2); t.Failed() {
				t.Fatalf("that was after %d steps", n)
			}
		}
	}
}

// settle asserts that an open log is whole, and that it stays so when it is started.
func (k *kept) settle(o operation, removed bool) {
	k.Helper()
	if removed {
		maps.Copy(k.gone, k.going)
	}
	var gone []string
	for sequence := range k.gone {
		gone = append(gone, idOf(k.lines[sequence]))
	}
	if o.isRemoval() {
		k.contents(k.data, k.answered, gone...)
	}
	k.check()
	k.reopen()
	k.check()
	for _, id := range gone {
		if _, err := k.log.ByID(id); !errors.Is(err, segment.ErrGone) && !errors.Is(err, segment.ErrNotFound) {
			k.Errorf("%s is gone, and by its id: %v", id, err)
		}
	}
	k.ok(k.log.Close())
	k.ok(JudgeDirectory(k.data))
	k.onRecord(verifyRemoved(k, k.data), k.answered, gone...)
	if o.isRemoval() {
		k.contents(k.data, k.answered, gone...)
	}
}

// faults are those of a disk that has the journal: some of what is asked of it fails.
type faults struct {
	mu    sync.Mutex
	asked int // how often something was asked: a file, a write, a sync
	from  int // the first that fails
	until int // the first that does not
	had   int // how many failed
	state chan error
}

func newFaults() *faults { return &faults{state: make(chan error, 10_000)} }

// options are those of a log on the disk.
func (f *faults) options(o Options) Options {
	o.Journal = journal.Options{Size: journal.MinSize, OpenFile: f.open}
	o.RetryEvery = time.Millisecond
	o.On.State = func(err error) { f.state <- err }
	return o
}

// fails reports whether what is asked now fails.
func (f *faults) fails() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.asked <= f.from || f.asked > f.until {
		return false
	}
	f.had++
	return true
}

// next has so much of what is asked next fail, after so much that does not.
func (f *faults) next(many, after int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from = f.asked + after
	f.until = f.from + many
}

// happened reports whether anything failed.
func (f *faults) happened() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.had > 0
}

// resumes waits until the log can be written again.
func (f *faults) resumes() {
	for err := range f.state {
		if err == nil {
			return
		}
	}
}

func (f *faults) open(name string, flag int, mode fs.FileMode) (journal.File, error) {
	if f.fails() {
		return nil, syscall.EMFILE
	}
	file, err := os.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	return &faulty{file, f}, nil
}

// faulty is a file on the disk.
type faulty struct {
	*os.File
	faults *faults
}

// WriteAt fails after half of what it should write. Sometimes it does not say so.
func (f *faulty) WriteAt(b []byte, at int64) (int, error) {
	if !f.faults.fails() {
		return f.File.WriteAt(b, at)
	}
	n, err := f.File.WriteAt(b[:len(b)/2], at)
	if err == nil && len(b)%(2<<12) == 0 {
		err = syscall.ENOSPC
	}
	return n, err
}

// Sync fails after all was written, so that a frame nobody was answered for is whole.
func (f *faulty) Sync() error {
	if f.faults.fails() {
		return syscall.EIO
	}
	return nil
}
