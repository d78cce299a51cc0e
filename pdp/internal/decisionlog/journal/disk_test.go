package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"syscall"
	"testing"

	"policy-service/pdp/pdptest/night"
)

// disk is where a journal's files stand in a test: real files, of which it knows what would be there if the power was cut.
type disk struct {
	mu    sync.Mutex
	files [2]*onDisk
	// sync is called before a sync; an error fails it. write is called before a write, and says how much of it is done.
	sync  func(which int) error
	write func(which int, b []byte, at int64) (int, error)
}

// onDisk is a file, and what of it is durable.
type onDisk struct {
	disk     *disk
	which    int
	file     *os.File
	durable  []byte
	inFlight []sector // written since the last sync, in order
	changes  int      // of what is durable
	dropped  bool     // its syncs are lies
}

// sector is what a disk writes as a whole, or tears.
type sector struct {
	which int
	at    int64
	bytes []byte
}

const sectorSize = 512

// open is for Options.OpenFile.
func (d *disk) open(name string, flag int, mode fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	which := int(name[len(name)-1] - '0')
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[which] = &onDisk{disk: d, which: which, file: f}
	return d.files[which], nil
}

func (f *onDisk) WriteAt(b []byte, at int64) (n int, err error) {
	n = len(b)
	if f.disk.write != nil {
		n, err = f.disk.write(f.which, b, at)
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	for from := 0; from < n; from += sectorSize {
		part := append([]byte(nil), b[from:min(n, from+sectorSize)]...)
		f.inFlight = append(f.inFlight, sector{f.which, at + int64(from), part})
	}
	if _, failed := f.file.WriteAt(b[:n], at); failed != nil {
		return 0, failed
	}
	return n, err
}

func (f *onDisk) Sync() error {
	if f.disk.sync != nil {
		if err := f.disk.sync(f.which); err != nil {
			return err
		}
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if !f.dropped {
		f.changes++
		for _, s := range f.inFlight {
			f.durable = s.put(f.durable)
		}
		f.inFlight = nil
	}
	return nil
}

func (f *onDisk) Close() error { return f.file.Close() }

func (s *sector) put(b []byte) []byte {
	if end := int(s.at) + len(s.bytes); end > len(b) {
		b = append(b, make([]byte, end-len(b))...)
	}
	copy(b[s.at:], s.bytes)
	return b
}

// What becomes of a sector that was written and not synced.
type fate int

const (
	lost fate = iota
	there
	torn // neither what it was nor what was written
)

// image is the disk after the power was cut.
type image struct {
	t     testing.TB
	disk  *disk
	dir   string
	files [2]*os.File
	has   [2]int // which change of each file is in the image
}

// memory is a directory without a disk, if there is one: what is read there was written a moment ago.
func memory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "journal")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func imageOf(t testing.TB, d *disk) *image {
	t.Helper()
	i := &image{t: t, disk: d, dir: memory(t)}
	for which, path := range Paths(i.dir) {
		f, err := os.Create(path)
		must(t, err)
		t.Cleanup(func() { _ = f.Close() })
		i.files[which] = f
	}
	return i
}

// inFlight are the sectors that were written and not synced, of both files.
func (d *disk) inFlight() (all []sector) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.files {
		all = append(all, f.inFlight...)
	}
	return all
}

// durable puts what is durable into the image.
func (i *image) durable() {
	i.disk.mu.Lock()
	defer i.disk.mu.Unlock()
	for which, f := range i.disk.files {
		if i.has[which] == f.changes {
			continue
		}
		i.has[which] = f.changes
		must(i.t, i.files[which].Truncate(int64(len(f.durable))))
		_, err := i.files[which].WriteAt(f.durable, 0)
		must(i.t, err)
	}
}

// cut puts some of the sectors into the image, calls check, and takes them out again.
func (i *image) cut(sectors []sector, fates []fate, check func()) {
	i.t.Helper()
	for n, s := range sectors {
		b := s.bytes
		if fates[n] == torn {
			b = make([]byte, len(b))
			for at := range b {
				b[at] = byte(rand.Uint32())
			}
		}
		if fates[n] != lost {
			_, err := i.files[s.which].WriteAt(b, s.at)
			must(i.t, err)
		}
	}
	check()
	i.disk.mu.Lock()
	defer i.disk.mu.Unlock()
	for n, s := range sectors {
		if fates[n] == lost {
			continue
		}
		was := i.disk.files[s.which].durable
		if from := min(s.at, int64(len(was))); from < int64(len(was)) {
			_, err := i.files[s.which].WriteAt(was[from:min(int64(len(was)), s.at+int64(len(s.bytes)))], s.at)
			must(i.t, err)
		}
	}
	for n, s := range sectors {
		if durable := int64(len(i.disk.files[s.which].durable)); fates[n] != lost && s.at+int64(len(s.bytes)) > durable {
			must(i.t, i.files[s.which].Truncate(durable))
		}
	}
}

// some are a few of the ways in which the power can be cut: all of them if there are not many.
func some(random *rand.Rand, n, most int) (all [][]fate) {
	with := func(f func(i int) fate) {
		fates := make([]fate, n)
		for i := range fates {
			fates[i] = f(i)
		}
		all = append(all, fates)
	}
	if n < 12 && 1<<n <= most {
		for bits := range 1 << n {
			with(func(i int) fate { return fate(bits >> i & 1) })
		}
		return all
	}
	with(func(int) fate { return lost })
	with(func(int) fate { return there })
	for range most / 4 {
		from, to := random.IntN(n), random.IntN(n+1)
		with(func(i int) fate { return thereIf(i < to) })                  // a prefix
		with(func(i int) fate { return thereIf(i != from) })               // all but one
		with(func(i int) fate { return fate(random.IntN(2)) })             // in any order
		with(func(i int) fate { return min(fate(random.IntN(30)), torn) }) // most of them torn
		with(func(i int) fate { return max(there, fate(random.IntN(3))) })
	}
	return all
}

func thereIf(is bool) fate {
	if is {
		return there
	}
	return lost
}

// model is a journal, and what must be found of it.
type model struct {
	t        testing.TB
	random   *rand.Rand
	disk     *disk
	image    *image
	j        *Journal
	calls    map[uint64]Call
	answered uint64 // the last frame whose Write returned nil
	filled   uint64
	cuts     int // how often the power is cut in each place
	seen     map[string]int
}

// power cuts the power in many ways. Whatever happens, the reader finds what was answered and not filled, and perhaps
// the frame in flight.
func (m *model) power() {
	m.t.Helper()
	sectors := m.disk.inFlight()
	m.image.durable()
	for _, fates := range some(m.random, len(sectors), m.cuts) {
		m.image.cut(sectors, fates, func() {
			// The log may have come further than it has told the journal.
			m.finds(m.filled+m.random.Uint64N(m.answered-m.filled+1)*m.random.Uint64N(2), fates)
		})
	}
}

func (m *model) finds(after uint64, fates []fate) {
	m.t.Helper()
	got, err := pending(m.t, m.image.dir, m.j.ID(), after)
	if err != nil {
		m.t.Fatalf("after frame %d of %d, with %v: %v", after, m.answered, fates, err)
	}
	next := after + 1
	for _, n := range numbers(m.t, got, m.calls) {
		if n != next {
			m.t.Fatalf("after frame %d comes frame %d", next-1, n)
		}
		next++
	}
	switch next {
	case m.answered + 1:
		m.seen["as answered"]++
	case m.answered + 2:
		m.seen["with the frame in flight"]++
	default:
		m.t.Fatalf("after frame %d of %d, with %v, the last frame is %d", after, m.answered, fates, next-1)
	}
}

func (m *model) put(blocksOf int) {
	m.t.Helper()
	c := blocks(int(m.answered+1), blocksOf)
	m.calls[m.answered+1] = c
	n, err := m.j.Write(encoded(c))
	switch err {
	case nil:
		m.answered = n
	case ErrFull, ErrTooLarge:
		delete(m.calls, m.answered+1)
	default:
		m.t.Fatal(err)
	}
	m.seen[fmt.Sprint("write: ", err)]++
}

// TestPowerCut: whatever is written when the power is cut, nothing that was answered is lost, nothing is found twice, and
// nothing looks damaged.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	for seed := range uint64(night.Cases(10)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { powerCut(t, seed) })
	}
}

func powerCut(t *testing.T, seed uint64) {
	m := &model{t: t, random: rand.New(rand.NewPCG(seed, 0)), disk: &disk{}, calls: map[uint64]Call{}, cuts: 12, seen: map[string]int{}}
	var err error
	m.j, err = Create(memory(t), Options{Size: MinSize, OpenFile: m.disk.open, Step: func(s string) { m.seen[s]++ }})
	must(t, err)
	defer func() { must(t, m.j.Close()) }()
	m.image = imageOf(t, m.disk)
	m.disk.sync = func(int) error { m.power(); return nil }
	for range 120 {
		switch m.random.IntN(9) {
		default:
			m.put(1 + m.random.IntN(4))
		case 0, 1:
			m.put(1 + m.random.IntN(perFile))
		case 2, 3, 4:
			m.filled += m.random.Uint64N(m.answered - m.filled + 1)
			m.j.Filled(m.filled)
		case 5:
			m.filled = m.answered
			m.j.Filled(m.filled)
		case 6:
			if m.filled == m.answered && m.random.IntN(2) == 0 {
				must(t, m.j.Erase())
			}
		}
		m.power()
	}
	for _, s := range append(Steps(), "as answered", "with the frame in flight", "write: <nil>") {
		if m.seen[s] == 0 {
			t.Errorf("%s did not happen", s)
		}
	}
	t.Log(m.seen)
}

// TestEverySubset: of the sectors of one frame, and of each header, any may be there, in whatever place the frame is.
func TestEverySubset(t *testing.T) {
	t.Parallel()
	m := &model{t: t, random: rand.New(rand.NewPCG(1, 1)), disk: &disk{}, calls: map[uint64]Call{}, cuts: 256, seen: map[string]int{}}
	var err error
	m.j, err = Create(memory(t), Options{Size: MinSize, OpenFile: m.disk.open})
	must(t, err)
	defer func() { must(t, m.j.Close()) }()
	m.image = imageOf(t, m.disk)
	count := 0
	one := func(do func()) {
		m.disk.sync = func(int) error { m.power(); count++; return nil }
		do()
		m.disk.sync = nil
	}
	fill := func() { m.filled = m.answered - 1; m.j.Filled(m.filled) }
	m.put(perFile - 2)
	one(func() { m.put(1) }) // over zeros, behind another
	m.put(1)
	one(func() { m.put(1) }) // over zeros, the first of a file
	fill()
	m.put(perFile - 1)
	one(func() { m.put(2) }) // each header over another, with frames of before behind it, and then over one of these
	if count != 7 || m.seen["with the frame in flight"] == 0 {
		t.Error(count, m.seen)
	}
}

// TestFailedForGood: after an error of the disk nothing is written any more, and what was answered before is found.
func TestFailedForGood(t *testing.T) {
	t.Parallel()
	fails := func(which int, at func(at int64) bool, short bool) func(*disk) {
		return func(d *disk) {
			d.write = func(w int, b []byte, offset int64) (int, error) {
				if w != which || !at(offset) {
					return len(b), nil
				}
				d.write = func(int, []byte, int64) (int, error) { panic("it is written to again") }
				if short {
					return 600, nil
				}
				return 0, syscall.ENOSPC
			}
		}
	}
	syncs := func(n int) func(*disk) {
		return func(d *disk) {
			d.sync = func(int) error {
				if n--; n > 0 {
					return nil
				}
				d.sync = func(int) error { panic("it is synced again") }
				d.write = func(int, []byte, int64) (int, error) { panic("it is written to again") }
				return syscall.EIO
			}
		}
	}
	frame := func(at int64) bool { return at >= framesAt }
	head := func(at int64) bool { return at < framesAt }
	write := func(j *Journal) error { _, err := j.Write(encoded(blocks(4, 1))); return err }
	toOther := func(j *Journal) error { _, err := j.Write(encoded(blocks(4, perFile-5))); return err }
	for what, c := range map[string]struct {
		fault func(*disk)
		do    func(*Journal) error
		want  error
	}{
		"a frame is not written":    {fails(1, frame, false), write, syscall.ENOSPC},
		"a part of a frame is":      {fails(1, frame, true), write, nil},
		"a frame is not synced":     {syncs(1), write, syscall.EIO},
		"the first header":          {syncs(1), toOther, syscall.EIO},
		"the second header":         {syncs(2), toOther, syscall.EIO},
		"a header is not written":   {fails(0, head, false), toOther, syscall.ENOSPC},
		"a part of a header is":     {fails(0, head, true), toOther, nil},
		"a frame after two headers": {syncs(3), toOther, syscall.EIO},
		"zeros over frames":         {fails(0, frame, false), (*Journal).Erase, syscall.ENOSPC},
		"zeros are not synced":      {syncs(2), (*Journal).Erase, syscall.EIO},
	} {
		t.Run(what, func(t *testing.T) {
			dir, d := memory(t), &disk{}
			j, err := Create(dir, Options{Size: MinSize, OpenFile: d.open})
			must(t, err)
			defer func() { must(t, j.Close()) }()
			for n, count := range []int{perFile, 3, 3} {
				_, err := j.Write(encoded(blocks(n+1, count)))
				must(t, err)
			}
			j.Filled(3)
			c.fault(d)
			failed := c.do(j)
			if failed == nil || c.want != nil && !errors.Is(failed, c.want) {
				t.Errorf("%v, want %v", failed, c.want)
			}
			if _, err := j.Write(encoded(callOf(1, 1, 1))); err != failed {
				t.Errorf("Write: %v", err)
			}
			if err := j.Erase(); err != failed {
				t.Errorf("Erase: %v", err)
			}
			if got, err := pending(t, dir, j.ID(), 3); err != nil || len(got) > 1 {
				t.Errorf("%d frames, %v", len(got), err)
			}
		})
	}
}

// TestCreatingFails: nothing is left behind.
func TestCreatingFails(t *testing.T) {
	t.Parallel()
	for which := range 2 {
		for what, fault := range map[string]func(d *disk){
			"zeros": func(d *disk) {
				d.write = func(w int, b []byte, at int64) (int, error) {
					if w == which && at > 0 {
						return 0, syscall.ENOSPC
					}
					return len(b), nil
				}
			},
			"sync": func(d *disk) {
				d.sync = func(w int) error {
					if w == which {
						return syscall.EIO
					}
					return nil
				}
			},
		} {
			dir, d := memory(t), &disk{}
			fault(d)
			if j, err := Create(dir, Options{OpenFile: d.open}); j != nil || err == nil {
				t.Errorf("%s: %v", what, err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%s: %v, %v", what, left, err)
			}
			for i, f := range d.files[:which+1] {
				if err := f.file.Close(); err == nil {
					t.Errorf("%s: file %d is still open", what, i)
				}
			}
		}
	}
	if _, err := Create(filepath.Join(memory(t), "none"), Options{}); err == nil {
		t.Error("created in no directory")
	}
}

// TestALyingDisk: a frame whose sync was a lie, before one that is durable, is damage.
func TestALyingDisk(t *testing.T) {
	t.Parallel()
	d := &disk{}
	j, err := Create(memory(t), Options{Size: MinSize, OpenFile: d.open})
	must(t, err)
	defer func() { must(t, j.Close()) }()
	put := func(n int, lie bool) {
		t.Helper()
		d.files[0].dropped = lie
		_, err := j.Write(encoded(callOf(n, n, 10)))
		must(t, err)
		if lie {
			d.files[0].inFlight = nil
		}
	}
	put(1, false)
	put(2, true)
	put(3, true)
	put(4, false)
	i := imageOf(t, d)
	i.durable()
	got, err := pending(t, i.dir, j.ID(), 0)
	want := &Damage{File: "journal.0", Offset: framesAt + block, Missing: [][2]uint64{{2, 3}}, Records: 5}
	if d, is := err.(*Damage); !is || len(got) != 2 || d.Reason == "" {
		t.Fatal(len(got), err)
	} else if d.Reason = ""; !reflect.DeepEqual(d, want) {
		t.Errorf("%+v", d)
	}
}
