package decisionlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// diary is what a log wrote to its files, in order. From it a test makes what a disk can have if the power is cut.
//
// The journal's files are written through it. Of a segment it sees what a transaction changed, after that was made
// durable. It knows in which order bbolt did so: first pages, then a sync, then one of the two metas, then a sync.
// When each of these happened, beside what else was written meanwhile, is chosen at random.
type diary struct {
	t   testing.TB
	dir string // the log's

	mu       sync.Mutex
	random   *rand.Rand
	events   []event
	segments map[string][]byte // as they were when last looked at
	begun    int               // events when the transaction was to be committed
}

// event is one thing that happened.
type event struct {
	what  string
	file  string // its name, or the id of what was answered
	at    int64
	bytes []byte
}

const (
	made     = "made"     // a file, in the place of what had the name; these bytes of it are durable
	sized    = "sized"    // a file has this size, durably
	wrote    = "wrote"    // bytes
	synced   = "synced"   // a file
	entered  = "entered"  // a file is durably in the directory
	answered = "answered" // a call that had this id
	signed   = "signed"   // a checkpoint
)

func keepDiary(t testing.TB, data string, random *rand.Rand) *diary {
	return &diary{t: t, dir: filepath.Join(data, format.LogDir), random: random, segments: map[string][]byte{}}
}

// options are those of a log whose diary it is.
func (d *diary) options(o Options) Options {
	o.Journal.OpenFile = d.open
	o.On.Step = d.step
	o.On.Checkpoint = func([]byte) { d.note(event{what: signed}) }
	return o
}

func (d *diary) note(e event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

// writtenDown is a file of the journal.
type writtenDown struct {
	*os.File
	diary *diary
	name  string
}

func (d *diary) open(name string, flag int, mode fs.FileMode) (journal.File, error) {
	f, err := os.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	d.note(event{what: made, file: filepath.Base(name)})
	return &writtenDown{f, d, filepath.Base(name)}, nil
}

func (f *writtenDown) WriteAt(b []byte, at int64) (int, error) {
	f.diary.note(event{wrote, f.name, at, bytes.Clone(b)})
	return f.File.WriteAt(b, at)
}

func (f *writtenDown) Sync() error {
	f.diary.note(event{what: synced, file: f.name})
	return nil
}

// step sees what becomes of segments.
func (d *diary) step(step string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch step {
	case StepFill, StepCommit:
		for name, is := range d.changed() {
			d.events = append(d.events, event{what: made, file: name, bytes: is}, event{what: entered, file: name})
			d.segments[name] = is
		}
		for _, path := range journal.Paths(d.dir) { // a transaction names the journal after its files are durable
			d.events = append(d.events, event{what: entered, file: filepath.Base(path)})
		}
		d.begun = len(d.events)
	case StepFilled, StepCommitted:
		changed := d.changed()
		for name, is := range changed {
			if d.segments[name] == nil { // the next one, which was prepared meanwhile
				continue
			}
			d.committed(name, is)
		}
	}
}

// changed are the segments that are not as they were.
func (d *diary) changed() map[string][]byte {
	all := map[string][]byte{}
	paths, err := filepath.Glob(filepath.Join(d.dir, "*.db"))
	if err != nil {
		d.t.Error(err)
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		name := filepath.Base(path)
		if err == nil && d.segments[name] != nil && info.Mode().Perm() == 0o400 { // which is sealed
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			d.t.Error(err)
		}
		if !bytes.Equal(b, d.segments[name]) {
			all[name] = b
		}
	}
	return all
}

// committed notes a transaction in a segment.
func (d *diary) committed(name string, is []byte) {
	page := os.Getpagesize()
	var pages, metas []event
	was := append(slices.Clone(d.segments[name]), make([]byte, max(0, len(is)-len(d.segments[name])))...)
	for at := 0; at < len(is); at += page {
		b := is[at:min(at+page, len(is))]
		switch {
		case bytes.Equal(b, was[at:at+len(b)]):
		case at < 2*page:
			metas = append(metas, event{wrote, name, int64(at), b})
		default:
			pages = append(pages, event{wrote, name, int64(at), b})
		}
	}
	d.segments[name] = is
	beside := d.events[d.begun:]
	first := d.random.IntN(len(beside) + 1)
	d.events = slices.Concat(d.events[:d.begun], []event{{what: sized, file: name, at: int64(len(is))}}, pages,
		beside[:first], []event{{what: synced, file: name}}, metas, beside[first:], []event{{what: synced, file: name}})
}

// drive is a disk: what is durable, and what is on its way.
type drive map[string]*stored

type stored struct {
	durable  []byte
	inFlight []event
	entered  bool
	before   []byte // what has the name until the file is entered
}

func (d drive) happens(e event) {
	f := d[e.file]
	if f == nil && e.what != made {
		return // an answer, or a file that is not there
	}
	switch e.what {
	case made:
		next := &stored{durable: slices.Clone(e.bytes)}
		if f != nil {
			next.before = f.durable
		}
		d[e.file] = next
	case sized:
		f.durable = append(f.durable[:min(int64(len(f.durable)), e.at)], make([]byte, max(0, e.at-int64(len(f.durable))))...)
	case wrote:
		f.inFlight = append(f.inFlight, e)
	case synced:
		for _, w := range f.inFlight {
			f.durable = put(f.durable, w.at, w.bytes)
		}
		f.inFlight = nil
	case entered:
		f.entered = true
	}
}

func put(b []byte, at int64, part []byte) []byte {
	if end := int(at) + len(part); end > len(b) {
		b = append(b, make([]byte, end-len(b))...)
	}
	copy(b[at:], part)
	return b
}

// sector is what a disk writes as a whole, or tears.
const sector = 512

// cut returns what each file has after the power was cut: of what was on its way some sectors are there, some are not, and
// some are neither what they were nor what was written.
func (d drive) cut(random *rand.Rand) map[string][]byte {
	chance, torn := [4]int{0, 100, 50, 90}[random.IntN(4)], random.IntN(4) == 0
	left := -1
	if random.IntN(3) == 0 { // what was written first is there
		left = random.IntN(200)
	}
	image := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(d)) {
		f := d[name]
		if fate := random.IntN(3); !f.entered && fate > 0 {
			if fate == 1 && f.before != nil {
				image[name] = f.before
			}
			continue
		}
		b := slices.Clone(f.durable)
		for _, w := range f.inFlight {
			for from := 0; from < len(w.bytes); from += sector {
				part := w.bytes[from:min(len(w.bytes), from+sector)]
				there := random.IntN(100) < chance
				if left >= 0 {
					there = left > 0
					left = max(0, left-1)
				}
				if torn && random.IntN(20) == 0 {
					part, there = bytes.Repeat([]byte{byte(random.Uint32())}, len(part)), true
				}
				if there {
					b = put(b, w.at+int64(from), part)
				}
			}
		}
		image[name] = b
	}
	return image
}

// cuts are the places where a test cuts the power.
type cuts struct {
	*testing.T
	random *rand.Rand
	data   string // of the log that was written down: what is beside the segments and the journal never changes
	seen   map[string]int
}

// judge cuts the power at some moments of a diary, which began with these files, and looks for what was answered by then.
func (c *cuts) judge(d *diary, begin map[string][]byte, before []string, times int, again bool) {
	c.Helper()
	on, ids, checkpoints := drive{}, slices.Clone(before), 0
	for name, b := range begin {
		on[name] = &stored{durable: slices.Clone(b), entered: true}
	}
	at := map[int]bool{}
	for range times {
		at[c.random.IntN(len(d.events)+1)] = true
	}
	for n := range len(d.events) + 1 {
		if at[n] {
			c.open(on.cut(c.random), ids, checkpoints > 0, again)
			if c.Failed() {
				c.Fatalf("that was after event %d of %d: %s", n, len(d.events), d.around(n))
			}
		}
		if n == len(d.events) {
			break
		}
		e := d.events[n]
		switch on.happens(e); e.what {
		case answered:
			ids = append(ids, e.file)
		case signed:
			checkpoints++
		}
	}
}

// around says what was on when the power was cut.
func (d *diary) around(n int) string {
	var all []string
	for i, e := range d.events[max(0, n-8):min(len(d.events), n+4)] {
		all = append(all, fmt.Sprintf("%d %s %s %d+%d", max(0, n-8)+i, e.what, e.file, e.at, len(e.bytes)))
	}
	return "\n" + strings.Join(all, "\n")
}

// open opens what is left of a log. All that was answered is there, once.
func (c *cuts) open(image map[string][]byte, ids []string, verifies, again bool) {
	c.Helper()
	data := memory(c)
	defer func() { _ = os.RemoveAll(data) }()
	c.copyTo(data, image)
	if verifies {
		must(c, JudgeDirectory(data))
	}
	d := keepDiary(c, data, c.random)
	maps.DeleteFunc(image, func(name string, _ []byte) bool { return image[name] == nil })
	for name, b := range image {
		if strings.HasSuffix(name, ".db") {
			d.segments[name] = b
		}
	}
	l, err := Open(data, d.options(powerOptions))
	must(c, err)
	must(c, l.Close())
	must(c, JudgeDirectory(data))
	c.onRecord(data, ids)
	if again {
		c.judge(d, image, ids, 1, false)
	}
}

// onRecord looks for ids in a log that is closed.
func (c *cuts) onRecord(data string, ids []string) {
	c.Helper()
	there := map[string]int{}
	for _, line := range verify(c, data) {
		id := idOf(line)
		if there[id]++; there[id] == 2 {
			c.Errorf("%s is there twice", id)
		}
		if _, n, is := bytes.Cut(line, []byte(`"replayed":`)); is {
			c.seen["replayed"]++
			if n[0] == '0' {
				c.Errorf("%s", line)
			}
		}
		if bytes.Contains(line, []byte(format.EventCrash)) {
			c.seen["crashed"]++
		}
	}
	for _, id := range ids {
		if there[id] == 0 {
			c.Errorf("%s was answered, and is not on record", id)
		}
	}
}

// copyTo makes a data directory of an image.
func (c *cuts) copyTo(data string, image map[string][]byte) {
	c.Helper()
	beside, err := os.ReadDir(c.data)
	c.ok(err)
	for _, one := range beside {
		if one.Type().IsRegular() && one.Name() != format.CheckpointFile { // it is of the end, and a cut may leave none
			b, err := os.ReadFile(filepath.Join(c.data, one.Name()))
			c.ok(err)
			c.ok(os.WriteFile(filepath.Join(data, one.Name()), b, 0o600))
		}
	}
	c.ok(os.Mkdir(filepath.Join(data, format.LogDir), 0o700))
	for name, b := range image {
		c.ok(os.WriteFile(filepath.Join(data, format.LogDir, name), b, 0o600))
	}
}

func (c *cuts) ok(err error) {
	c.Helper()
	must(c, err)
}

// memory is a directory without a disk, if there is one with room for all that run beside each other.
func memory(t testing.TB) string {
	t.Helper()
	var s unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &s); err != nil || uint64(s.Bavail)*uint64(s.Bsize) < 1<<30 {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/dev/shm", "decisionlog")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

var powerOptions = Options{
	SegmentBytes: 200_000, Checkpoints: Checkpoints{Records: 30}, Journal: journal.Options{Size: journal.MinSize},
}

// TestPowerCut: whatever a disk has of what was written to the journal and the segments when the power is cut, the log
// opens, all that was answered is on record once, and nothing looks altered. The same holds if the power is cut again
// while the log is opened.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	seeds, times := uint64(2), 12
	switch {
	case os.Getenv("SOAK") != "":
		seeds, times = 10, 60
	case testing.Short():
		times = 6
	}
	seen := map[string]int{}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := &cuts{T: t, random: rand.New(rand.NewPCG(seed, 25)), data: memory(t), seen: seen}
			d := keepDiary(t, c.data, rand.New(rand.NewPCG(seed, 26)))
			l := mustOpen(t, c.data, d.options(powerOptions))
			busy(t, l, seed, func(id string) { d.note(event{what: answered, file: id}) })
			c.ok(l.Close())
			c.judge(d, nil, nil, times, true)
		})
	}
	if seen["replayed"] == 0 || seen["crashed"] <= seen["replayed"] {
		t.Errorf("what was filled from the journal after a crash, and what was not: %v", seen)
	}
	t.Log(seen)
}

// busy has callers append, while the log is told to do all it can. tell gets the id of each record that was answered.
func busy(t *testing.T, l *Log, seed uint64, tell func(id string)) {
	t.Helper()
	var callers sync.WaitGroup
	for g := range 4 {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(g)))
			for i := range 40 {
				id := fmt.Sprintf("%d.%d", g, i)
				e := entry(id)
				size := [...]int{10, 100, 3000, 15_000}[random.IntN(4)]
				if random.IntN(20) == 0 {
					size = callBytes // which is not for the journal
				}
				e.Request.Context = []byte(`"` + strings.Repeat("x", size) + `"`)
				entries := []record.Entry{e}
				if random.IntN(15) == 0 {
					entries = append(entries, record.Entry{ID: id + "+", Kind: format.KindAdmin, Event: "data_read"})
				}
				if err := l.Append(context.Background(), entries); err != nil {
					t.Error(err)
				}
				for _, e := range entries {
					tell(e.ID)
				}
				var err error
				switch random.IntN(40) {
				case 0, 1:
					err = l.Flush(context.Background())
				case 2:
					_, err = l.Checkpoint(context.Background())
				case 3:
					err = l.Rotate(context.Background())
				case 4:
					err = l.writer.runHeld(context.Background(), l.writer.eraseJournal)
				}
				if err != nil && !errors.Is(err, segment.ErrUnavailable) {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
}
