package journal

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"syscall"
	"testing"
)

// written is a journal that was closed, and what is in it.
type written struct {
	dir   string
	id    ID
	calls map[uint64]Call
	files [2][]byte
	heads map[uint64]place
}

type place struct {
	which int
	at    int64
	count int // of blocks
}

// someFrames makes a journal: the first file was begun again, and has the frames 4 to 6, the second one has 2 and 3, or,
// of a newer journal, the first file has 1 and the second one 2 and 3.
func someFrames(t testing.TB, newer bool) *written {
	t.Helper()
	w := &written{dir: memory(t), calls: map[uint64]Call{}, heads: map[uint64]place{}}
	j, err := Create(w.dir, Options{Size: MinSize})
	must(t, err)
	w.id = j.ID()
	put := func(which int, at int64, count int) {
		t.Helper()
		n := uint64(len(w.calls) + 1)
		c := blocks(int(n), count)
		got, err := j.Write(encoded(c))
		must(t, err)
		w.calls[n], w.heads[n] = c, place{which, at, count}
		if got != n || j.files[which].at != at+int64(count)*block {
			t.Fatalf("frame %d is elsewhere", n)
		}
	}
	put(0, framesAt, perFile-1)
	put(1, framesAt, perFile-2)
	put(1, framesAt+(perFile-2)*block, 1)
	if !newer {
		j.Filled(1)
		put(0, framesAt, 2)
		put(0, framesAt+2*block, 3)
		put(0, framesAt+5*block, 2)
	}
	must(t, j.Close())
	for which, path := range Paths(w.dir) {
		w.files[which], err = os.ReadFile(path)
		must(t, err)
	}
	return w
}

// with changes the files, and reads them.
func (w *written) with(t testing.TB, after uint64, change func(files *[2][]byte)) (found []uint64, d *Damage) {
	t.Helper()
	files := [2][]byte{bytes.Clone(w.files[0]), bytes.Clone(w.files[1])}
	change(&files)
	for which, path := range Paths(w.dir) {
		if files[which] == nil {
			must(t, os.RemoveAll(path))
			continue
		}
		must(t, os.WriteFile(path, files[which], 0o600))
	}
	got, err := pending(t, w.dir, w.id, after)
	if err != nil && !errors.As(err, &d) {
		t.Fatal(err)
	}
	if d != nil && (d.Reason == "" || d.Error() == "") {
		t.Error("the damage does not say what it is")
	}
	return numbers(t, got, w.calls), d
}

// from are the numbers from one to another.
func from(first, last uint64) (all []uint64) {
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}

// TestAFlippedBit: in each block of each frame.
func TestAFlippedBit(t *testing.T) {
	t.Parallel()
	w := someFrames(t, false)
	for n, p := range w.heads {
		if n == 1 {
			continue // there is nothing left of it
		}
		for i := range p.count {
			if i > 3 && i < p.count-3 { // a large frame
				continue
			}
			for _, bit := range []int{16, 30, headSize + 5, sectorSize + 1, block - 1} {
				at := p.at + int64(i*block+bit)
				flip := func(files *[2][]byte) { files[p.which][at] ^= 1 << (at % 8) }
				for after := uint64(1); after < 6; after++ {
					found, d := w.with(t, after, flip)
					want := from(after+1, 6)
					var damage *Damage
					if n > after { // else it does not matter
						want = slices.DeleteFunc(want, func(one uint64) bool { return one == n })
						if n < 6 {
							damage = &Damage{File: fmt.Sprint("journal.", p.which), Offset: p.at, Missing: [][2]uint64{{n, n}}, Records: 1}
						}
					}
					if d != nil {
						d.Reason = ""
					}
					if !slices.Equal(found, want) || !reflect.DeepEqual(d, damage) {
						t.Fatalf("byte %d of frame %d, after %d: found %v, want %v; %+v, want %+v", at-p.at, n, after, found, want, d, damage)
					}
				}
			}
		}
	}
}

// TestDamage: what is damage, and what is lost then.
func TestDamage(t *testing.T) {
	t.Parallel()
	w, newer, other := someFrames(t, false), someFrames(t, true), someFrames(t, false)
	zero := func(w *written, n uint64) func(*[2][]byte) {
		return func(files *[2][]byte) {
			p := w.heads[n]
			clear(files[p.which][p.at:][:p.count*block])
		}
	}
	both := func(all ...func(*[2][]byte)) func(*[2][]byte) {
		return func(files *[2][]byte) {
			for _, f := range all {
				f(files)
			}
		}
	}
	spoil := func(which, copyOf int) func(*[2][]byte) {
		return func(files *[2][]byte) { files[which][copyOf*block+50]++ }
	}
	missing := func(which int) func(*[2][]byte) { return func(files *[2][]byte) { files[which] = nil } }
	short := func(which int, to int64) func(*[2][]byte) {
		return func(files *[2][]byte) { files[which] = files[which][:to] }
	}
	// forge puts a frame somewhere else under a number, as only somebody can who has read the file.
	forge := func(w *written, n uint64, as uint64, at int64) func(*[2][]byte) {
		return func(files *[2][]byte) {
			p := w.heads[n]
			b := files[p.which]
			copy(b[at:], b[p.at:][:p.count*block])
			h := header{id: w.id, mark: mark(b[32:])}
			frame, _ := decodeHead(b[p.at:], &h, h.seed())
			frame.offset, frame.number = at, as
			frame.put(b[at:][:headSize], &h.mark, h.seed())
		}
	}
	none := [][2]uint64(nil)
	for name, c := range map[string]struct {
		w      *written
		after  uint64
		change func(*[2][]byte)
		found  []uint64
		damage *Damage
	}{
		"nothing":                        {w, 1, both(), from(2, 6), nil},
		"nothing is pending":             {w, 6, both(), nil, nil},
		"more was filled than there was": {w, 9, both(), nil, nil},
		"a frame is gone":                {w, 1, zero(w, 3), []uint64{2, 4, 5, 6}, &Damage{"journal.1", w.heads[3].at, "", [][2]uint64{{3, 3}}, 1}},
		"the first of a file":            {w, 1, zero(w, 4), []uint64{2, 3, 5, 6}, &Damage{"journal.0", framesAt, "", [][2]uint64{{4, 4}}, 1}},
		"two that are neighbours":        {w, 1, both(zero(w, 3), zero(w, 4)), []uint64{2, 5, 6}, &Damage{"journal.0", framesAt, "", [][2]uint64{{3, 4}}, 2}},
		"two that are not":               {w, 1, both(zero(w, 3), zero(w, 5)), []uint64{2, 4, 6}, &Damage{"journal.1", w.heads[3].at, "", [][2]uint64{{3, 3}, {5, 5}}, 2}},
		"all of a file":                  {w, 1, both(zero(w, 2), zero(w, 3)), []uint64{4, 5, 6}, &Damage{"journal.1", framesAt, "", [][2]uint64{{2, 3}}, 2}},
		"all of a file, and the first":   {w, 1, both(zero(w, 2), zero(w, 3), zero(w, 4)), []uint64{5, 6}, &Damage{"journal.0", framesAt, "", [][2]uint64{{2, 4}}, 3}},
		"the rest of a file":             {w, 2, both(zero(w, 3), zero(w, 4)), from(5, 6), &Damage{"journal.0", framesAt, "", [][2]uint64{{3, 4}}, 2}},
		"all of a journal":               {newer, 0, both(zero(newer, 1), zero(newer, 2)), []uint64{3}, &Damage{"journal.1", framesAt, "", [][2]uint64{{1, 2}}, 2}},
		"all of its first file":          {newer, 0, zero(newer, 1), from(2, 3), &Damage{"journal.0", framesAt, "", [][2]uint64{{1, 1}}, 1}},
		"frames that are filled":         {w, 3, both(zero(w, 2), zero(w, 3)), from(4, 6), nil},
		"the last frame, as if torn":     {w, 1, zero(w, 6), from(2, 5), nil},
		// The header of the first file says that frame 3 was durable when it was begun.
		"what a header was begun after": {w, 1, both(zero(w, 3), zero(w, 4), zero(w, 5), zero(w, 6)), from(2, 2), &Damage{"journal.1", w.heads[3].at, "", [][2]uint64{{3, 3}}, 1}},
		"the last two, as if torn":      {w, 1, both(zero(w, 5), zero(w, 6)), from(2, 4), nil},
		// The head of frame 6 is whole, so frame 5 was durable.
		"the contents of the last two": {w, 1, func(files *[2][]byte) {
			files[0][w.heads[5].at+100]++
			files[0][w.heads[6].at+100]++
		}, from(2, 4), &Damage{"journal.0", w.heads[5].at, "", [][2]uint64{{5, 5}}, 1}},
		"the first header":                       {w, 1, spoil(0, 0), from(2, 6), nil},
		"the second header":                      {w, 1, spoil(0, 1), from(2, 6), nil},
		"a header of each":                       {w, 1, both(spoil(0, 0), spoil(1, 1)), from(2, 6), nil},
		"both headers of the newer file":         {w, 1, both(spoil(0, 0), spoil(0, 1)), from(2, 3), &Damage{"journal.0", 0, "", none, -1}},
		"both headers of the older file":         {w, 1, both(spoil(1, 0), spoil(1, 1)), from(4, 6), &Damage{"journal.1", 0, "", [][2]uint64{{2, 3}}, -1}},
		"the newer file":                         {w, 1, missing(0), from(2, 3), &Damage{"journal.0", 0, "", none, -1}},
		"the older file":                         {w, 1, missing(1), from(4, 6), &Damage{"journal.1", 0, "", [][2]uint64{{2, 3}}, -1}},
		"both files":                             {w, 1, both(missing(0), missing(1)), nil, &Damage{"journal.1", 0, "", none, -1}},
		"both files of a journal with no frames": {w, 0, both(missing(0), missing(1)), nil, &Damage{"journal.1", 0, "", none, -1}},
		"a file is empty":                        {w, 1, short(0, 0), from(2, 3), &Damage{"journal.0", 0, "", none, -1}},
		"a file is a header":                     {w, 1, short(0, block), from(2, 3), &Damage{"journal.0", block, "", none, -1}},
		"the newer file ends in a frame":         {w, 1, short(0, w.heads[5].at+block+7), from(2, 4), &Damage{"journal.0", w.heads[5].at + block + 7, "", none, -1}},
		"the newer file ends before a frame":     {w, 1, short(0, w.heads[5].at), from(2, 4), &Damage{"journal.0", w.heads[5].at, "", none, -1}},
		"the newer file ends later":              {w, 1, short(0, MinSize-1), from(2, 6), &Damage{"journal.0", MinSize - 1, "", none, -1}},
		"the older file ends later":              {w, 1, short(1, MinSize-1), from(2, 6), nil},
		"the older file ends in a frame":         {w, 1, short(1, w.heads[3].at-1), from(4, 6), &Damage{"journal.1", framesAt, "", [][2]uint64{{2, 3}}, 2}},
		"files of two journals":                  {w, 1, func(files *[2][]byte) { files[1] = other.files[1] }, from(4, 6), &Damage{"journal.1", 0, "", [][2]uint64{{2, 3}}, -1}},
		"files of another journal":               {w, 1, func(files *[2][]byte) { *files = other.files }, nil, &Damage{"journal.1", 0, "", none, -1}},
		"frames of another journal":              {w, 1, func(files *[2][]byte) { copy(files[1][framesAt:], other.files[1][framesAt:]) }, from(4, 6), &Damage{"journal.1", framesAt, "", [][2]uint64{{2, 3}}, 2}},
		"the names are exchanged":                {w, 1, func(files *[2][]byte) { files[0], files[1] = files[1], files[0] }, nil, &Damage{"journal.1", 0, "", none, -1}},
		"one file has both names":                {w, 1, func(files *[2][]byte) { files[0] = files[1] }, from(2, 3), &Damage{"journal.0", 0, "", none, -1}},
		"a frame elsewhere": {w, 1, func(files *[2][]byte) {
			copy(files[0][framesAt+10*block:], files[0][w.heads[6].at:][:2*block])
			clear(files[0][w.heads[6].at:][:block])
		}, from(2, 5), nil},
		"a frame twice, as if of its place": {w, 1, forge(w, 6, 6, framesAt+10*block), from(2, 6), nil},
		"a frame of the other file":         {newer, 0, forge(newer, 3, 1, framesAt), []uint64{1, 3}, &Damage{"journal.1", framesAt, "", [][2]uint64{{2, 2}}, 1}},
		"a frame twice":                     {w, 1, func(files *[2][]byte) { copy(files[0][framesAt+10*block:], files[0][w.heads[6].at:][:2*block]) }, from(2, 6), nil},
	} {
		found, d := c.w.with(t, c.after, c.change)
		if d != nil {
			d.Reason = ""
		}
		if !slices.Equal(found, c.found) || !reflect.DeepEqual(d, c.damage) {
			t.Errorf("%s: found %v, want %v; damage\n%+v, want\n%+v", name, found, c.found, d, c.damage)
		}
	}
}

// TestAnotherFormat: a journal of an unknown version is refused, and is not taken for damage.
func TestAnotherFormat(t *testing.T) {
	t.Parallel()
	w := someFrames(t, false)
	b := w.files[0]
	for _, version := range []uint32{FormatVersion - 1, FormatVersion + 1} {
		order.PutUint32(b[8:], version)
		order.PutUint32(b[80:], checksum(b[:80]))
		must(t, os.WriteFile(Paths(w.dir)[0], b, 0o600))
		var d *Damage
		if p, err := Read(w.dir, w.id, 1, nil); p != nil || !errors.Is(err, ErrNewer) || errors.As(err, &d) {
			t.Error(version, err)
		}
	}
}

// TestHostileBodies: bytes that a caller chose never pass for a frame, also where the frame around them is damaged.
func TestHostileBodies(t *testing.T) {
	t.Parallel()
	dir := memory(t)
	j := created(t, dir, Options{Size: MinSize})
	calls := map[uint64]Call{1: blocks(1, 1)}
	_, err := j.Write(encoded(calls[1]))
	must(t, err)
	real, err := os.ReadFile(Paths(dir)[0])
	must(t, err)
	real = real[framesAt:][:block]
	// In each block of a body stands a frame, as if of this place: one without a mark, one with the mark of another
	// round, and one that knows all but the mark.
	for _, which := range []string{"zeros", "of another round", "of another file"} {
		frame := bytes.Clone(real)
		m, number := mark{}, uint64(len(calls)+1)
		switch which {
		case "of another round":
			m = mark(bytes.Repeat([]byte("m"), 16))
		case "of another file":
			m = j.files[1].header.mark
		}
		c := blocks(int(number), 5)
		start := j.files[0].at
		body := len(encoded(c)) - len(c.Records[0].Body) + headSize // where the body begins in the frame
		for i := 1; i < 5; i++ {
			h, _ := decodeHead(real, &j.files[0].header, j.files[0].seed)
			h.offset, h.number = start+int64(i)*block, number+uint64(i)
			seed := (&header{id: j.id, mark: m}).seed()
			h.content = seed
			h.put(frame, &m, seed)
			copy(c.Records[0].Body[i*block-body:], frame)
		}
		got, err := j.Write(encoded(c))
		must(t, err)
		calls[got] = c
		read, err := pending(t, dir, j.ID(), 0)
		must(t, err)
		if found := numbers(t, read, calls); !slices.Equal(found, from(1, got)) {
			t.Errorf("%s: %v", which, found)
		}
		f, err := os.OpenFile(Paths(dir)[0], os.O_RDWR, 0)
		must(t, err)
		first := make([]byte, block)
		_, err = f.ReadAt(first, start)
		must(t, err)
		_, err = f.WriteAt(make([]byte, block), start)
		must(t, err)
		read, err = pending(t, dir, j.ID(), 0)
		if found := numbers(t, read, calls); err != nil || !slices.Equal(found, from(1, got-1)) {
			t.Errorf("%s, torn: %v, %v", which, found, err)
		}
		_, err = f.WriteAt(first, start)
		must(t, errors.Join(err, f.Close()))
	}
}

// FuzzContent: what is accepted as the content of a frame is, encoded again, the same bytes, and takes no more memory than
// a few times as much.
func FuzzContent(f *testing.F) {
	for _, calls := range [][]Call{{callOf(1, 1, 0)}, {callOf(1, 2, 30), callOf(2, 1, 5)}, {blocks(1, 1)}} {
		f.Add(encoded(calls...))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		calls, records, err := count(content)
		if err != nil {
			return
		}
		decoded, err := decodeCalls(content, calls, records)
		if err != nil {
			return
		}
		var again []byte
		slots := 0
		for i := range decoded {
			again = AppendCall(again, &decoded[i])
			slots += cap(decoded[i].Records)
		}
		if !bytes.Equal(again, content) || len(decoded) != int(calls) || slots != int(records) {
			t.Errorf("%q\nbecomes\n%q", content, again)
		}
		if _, err := decodeCalls(content, calls, records+1); err == nil {
			t.Error("the number of records is not looked at")
		}
	})
}

// FuzzRead: whatever becomes of a part of a file, what is found is what was written, and each frame once, in order.
// If it is not said to be damaged, what is missing is at the end.
func FuzzRead(f *testing.F) {
	w := someFrames(f, false)
	for n, p := range w.heads {
		f.Add(p.which == 1, uint32(p.at), []byte{byte(n)}, uint8(1))
		f.Add(p.which == 1, uint32(p.at+48), []byte{255, 255, 255, 255}, uint8(n))
	}
	f.Add(false, uint32(72), []byte{255, 255, 255, 255, 255, 255, 240, 0}, uint8(0))
	f.Fuzz(func(t *testing.T, second bool, at uint32, with []byte, after uint8) {
		w := *w
		w.dir = memory(t)
		which := 0
		if second {
			which = 1
		}
		// The checksums are made good, so that what they guard is reached.
		w.files[which] = bytes.Clone(w.files[which])
		b := w.files[which]
		copy(b[int(at)%len(b):], with)
		for i := range copies {
			order.PutUint32(b[i*block+80:], checksum(b[i*block:][:80]))
		}
		good := someHeader(&w, which)
		for _, p := range w.heads {
			if p.which == which && good {
				h := (&header{id: w.id, mark: mark(b[32:])}).seed()
				order.PutUint32(b[p.at+16:], update(h, b[p.at+20:][:summedSize-20]))
			}
		}
		for i, path := range Paths(w.dir) {
			must(t, os.WriteFile(path, w.files[i], 0o600))
		}
		found, err := Read(w.dir, w.id, uint64(after), nil)
		last := uint64(after)
		for _, frame := range found {
			if frame.Number <= last {
				t.Errorf("frame %d comes after frame %d", frame.Number, last)
			}
			if frame.Number != last+1 && err == nil {
				t.Errorf("nobody says that frame %d is missing", last+1)
			}
			last = frame.Number
		}
	})
}

// someHeader reports if a file has a header.
func someHeader(w *written, which int) bool {
	for i := range copies {
		if h, whole, err := decodeHeader(w.files[which][i*block:]); whole && err == nil && h.id == w.id {
			return true
		}
	}
	return false
}

// TestUnreadableFiles: what is no file, or cannot be opened, is an error, and no damage.
func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	w := someFrames(t, false)
	path := Paths(w.dir)[1]
	must(t, os.Remove(path))
	must(t, os.Mkdir(path, 0o700))
	var d *Damage
	if p, err := Read(w.dir, w.id, 1, nil); p != nil || err == nil || errors.As(err, &d) {
		t.Error(err)
	}
	if p, err := Read(filepath.Join(w.dir, "none"), w.id, 1, nil); len(p) > 0 || !errors.As(err, &d) {
		t.Error(err)
	}
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func update(seed uint32, b []byte) uint32 { return crc32.Update(seed, castagnoli, b) }

// unreadable is a file of which the disk does not read some blocks.
type unreadable struct {
	bytes.Reader
	bad []int64
}

func (u *unreadable) ReadAt(b []byte, at int64) (int, error) {
	for _, bad := range u.bad {
		if at < bad+block && bad < at+int64(len(b)) {
			return 0, syscall.EIO
		}
	}
	return u.Reader.ReadAt(b, at)
}

// TestUnreadableBlocks: a block that the disk does not read is damage if it may have held what is pending.
func TestUnreadableBlocks(t *testing.T) {
	t.Parallel()
	w := someFrames(t, false)
	for name, c := range map[string]struct {
		after  uint64
		bad    [2][]int64
		found  []uint64
		damage *Damage
	}{
		"none":                        {1, [2][]int64{}, from(2, 6), nil},
		"a header":                    {1, [2][]int64{{0}, {block}}, from(2, 6), nil},
		"both headers":                {1, [2][]int64{{0, block}}, from(2, 3), &Damage{"journal.0", block, "", nil, -1}},
		"the beginning of a frame":    {1, [2][]int64{{w.heads[5].at}}, []uint64{2, 3, 4, 6}, &Damage{"journal.0", w.heads[5].at, "", [][2]uint64{{5, 5}}, 1}},
		"a block of a frame":          {1, [2][]int64{{w.heads[5].at + block}}, []uint64{2, 3, 4, 6}, &Damage{"journal.0", w.heads[5].at, "", [][2]uint64{{5, 5}}, 1}},
		"the beginning of the last":   {1, [2][]int64{{w.heads[6].at}}, from(2, 5), &Damage{"journal.0", w.heads[6].at, "", nil, -1}},
		"a block of the last":         {1, [2][]int64{{w.heads[6].at + block}}, from(2, 5), &Damage{"journal.0", w.heads[6].at + block, "", nil, -1}},
		"behind the last":             {1, [2][]int64{{MinSize - block}}, from(2, 6), &Damage{"journal.0", MinSize - block, "", nil, -1}},
		"before the last, and behind": {1, [2][]int64{{w.heads[5].at, MinSize - block}}, []uint64{2, 3, 4, 6}, &Damage{"journal.0", w.heads[5].at, "", [][2]uint64{{5, 5}}, -1}},
		"of what is filled":           {3, [2][]int64{nil, {w.heads[2].at, w.heads[3].at}}, from(4, 6), nil},
	} {
		var files [2]*scanned
		for i := range files {
			files[i] = &scanned{path: Paths(w.dir)[i]}
			u := &unreadable{*bytes.NewReader(w.files[i]), c.bad[i]}
			must(t, files[i].read(u, int64(len(w.files[i])), i, w.id, auth{&Key{}, c.after}))
		}
		frames, err := pendingIn(files[0], files[1], c.after)
		found := numbers(t, frames, w.calls)
		var d *Damage
		if errors.As(err, &d) {
			d.Reason = ""
		}
		if !slices.Equal(found, c.found) || !reflect.DeepEqual(d, c.damage) {
			t.Errorf("%s: found %v, want %v; damage\n%+v, want\n%+v", name, found, c.found, d, c.damage)
		}
	}
}
