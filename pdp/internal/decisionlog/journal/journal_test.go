package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/pdptest/night"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func created(t testing.TB, dir string, o Options) *Journal {
	t.Helper()
	j, err := Create(dir, o)
	must(t, err)
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// callOf is a call with so many records, all different from those of other calls.
func callOf(n, records, body int) Call {
	c := Call{
		Time: time.Date(2026, 11, 23, 10, 0, n, 123456789, time.UTC), Payer: fmt.Sprint("payer ", n), Weight: int64(-n),
	}
	for i := range records {
		r := Record{ID: fmt.Sprintf("id %d.%d", n, i), Body: make([]byte, body)}
		for at, text := 0, fmt.Sprintf("body of %d.%d ", n, i); at < body; at += len(text) {
			copy(r.Body[at:], text)
		}
		c.Records = append(c.Records, r)
	}
	return c
}

// encoded are calls as Write takes them.
func encoded(calls ...Call) (all []byte) {
	for _, c := range calls {
		all = AppendCall(all, &c)
	}
	return all
}

// blocks is a call that takes so many blocks of a file as a frame.
func blocks(n, count int) Call {
	c := callOf(n, 1, 0)
	c.Records[0].Body = callOf(n, 1, count*block-headSize-len(encoded(c))).Records[0].Body
	return c
}

// pending reads all that is pending.
func pending(t testing.TB, dir string, id ID, after uint64) ([]Frame, error) {
	t.Helper()
	all, err := Read(dir, id, after, &Key{})
	if d := (*Damage)(nil); err != nil && !errors.As(err, &d) {
		t.Fatal(err)
	}
	return all, err
}

// numbers are those of frames that are as they were written: frame n is the call n.
func numbers(t testing.TB, all []Frame, calls map[uint64]Call) (found []uint64) {
	t.Helper()
	for _, f := range all {
		if want := calls[f.Number]; len(f.Calls) != 1 || !reflect.DeepEqual(f.Calls[0], want) {
			t.Fatalf("frame %d is not what was written", f.Number)
		}
		found = append(found, f.Number)
	}
	return found
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	dir := memory(t)
	j := created(t, dir, Options{})
	var want []Frame
	records := uint64(0)
	for n := range 20 {
		f := Frame{Number: uint64(n + 1), First: records}
		for i := range n%3 + 1 {
			c := callOf(10*n+i, i+1, 100*n)
			f.Calls = append(f.Calls, c)
			records += uint64(len(c.Records))
		}
		number, err := j.Write(encoded(f.Calls...))
		must(t, err)
		if number != f.Number {
			t.Errorf("frame %d has the number %d", f.Number, number)
		}
		want = append(want, f)
	}
	for after := range len(want) + 1 {
		got, err := pending(t, dir, j.ID(), uint64(after))
		if err != nil || !slices.EqualFunc(got, want[after:], func(a, b Frame) bool { return reflect.DeepEqual(a, b) }) {
			t.Errorf("after %d there are %d frames, or others than were written: %v", after, len(got), err)
		}
	}
	must(t, j.Close())
	must(t, j.Close())
	if _, err := j.Write(encoded(callOf(1, 1, 1))); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := j.Erase(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// What a frame leaves of its last block is zeros, and nothing of a frame before.
func TestRestOfABlock(t *testing.T) {
	t.Parallel()
	dir := memory(t)
	j := created(t, dir, Options{})
	_, err := j.Write(encoded(blocks(1, 1)))
	must(t, err)
	small := encoded(callOf(2, 1, 10))
	_, err = j.Write(small)
	must(t, err)
	b, err := os.ReadFile(Paths(dir)[0])
	must(t, err)
	if rest := b[framesAt+block+headSize+len(small) : framesAt+2*block]; len(bytes.Trim(rest, "\x00")) > 0 {
		t.Errorf("%q", rest)
	}
}

// Times far away, empty texts, and all bytes.
func TestUnusualCalls(t *testing.T) {
	t.Parallel()
	dir := memory(t)
	j := created(t, dir, Options{})
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	calls := []Call{
		{Time: time.Time{}, Records: []Record{{Body: []byte{}}}},
		{Time: time.Unix(1<<40, 999_999_999).UTC(), Payer: string(every), Weight: -1 << 63, Records: []Record{{ID: string(every), Body: every}}},
		{Time: time.Unix(-1<<40, 1).UTC(), Weight: 1<<63 - 1, Records: make([]Record, 1000)},
	}
	for i := range calls[2].Records {
		calls[2].Records[i].Body = []byte{}
	}
	_, err := j.Write(encoded(calls...))
	must(t, err)
	if got, err := pending(t, dir, j.ID(), 0); err != nil || len(got) != 1 || !reflect.DeepEqual(got[0].Calls, calls) {
		t.Errorf("%v, %d", err, len(got))
	}
	// A time of another zone is the same moment.
	c := calls[1]
	c.Time = c.Time.In(time.FixedZone("", 3600))
	if !bytes.Equal(encoded(c), encoded(calls[1])) {
		t.Error("the zone of a time is in its bytes")
	}
}

func TestWriteRefusesWhatIsNoCall(t *testing.T) {
	t.Parallel()
	dir := memory(t)
	j := created(t, dir, Options{})
	good := encoded(callOf(1, 2, 10))
	for what, calls := range map[string][]byte{
		"nothing":                   nil,
		"a part":                    good[:len(good)-1],
		"a part of one behind one":  append(bytes.Clone(good), good[:20]...),
		"a call without records":    encoded(Call{Payer: "p"}),
		"a call shorter than it is": append([]byte{0, 0, 0, 9}, good[4:]...),
	} {
		if n, err := j.Write(calls); !errors.Is(err, errEncoded) || n != 0 {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
	// AppendCall says so of a call that is too long for its length.
	if n, err := j.Write(append(make([]byte, 4), good[4:]...)); !errors.Is(err, ErrTooLarge) || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := j.Write(good); n != 1 || err != nil {
		t.Errorf("afterwards: %d, %v", n, err)
	}
}

const perFile = MinSize/block - copies // blocks for frames of the smallest file

func TestFull(t *testing.T) {
	t.Parallel()
	dir := memory(t)
	j := created(t, dir, Options{Size: MinSize + 1})
	calls := map[uint64]Call{}
	writes := func(want error, count int) {
		t.Helper()
		next := uint64(len(calls) + 1)
		c := blocks(int(next), count)
		n, err := j.Write(encoded(c))
		if !errors.Is(err, want) || (want == nil) != (n == next) {
			t.Fatalf("%d blocks: frame %d, %v, want %v", count, n, err, want)
		}
		if err == nil {
			calls[n] = c
		}
	}
	reads := func(after uint64) {
		t.Helper()
		got, err := pending(t, dir, j.ID(), after)
		must(t, err)
		if found := numbers(t, got, calls); len(found) != len(calls)-int(after) || len(found) > 0 && found[0] != after+1 {
			t.Fatalf("after %d: %v", after, found)
		}
	}
	writes(ErrTooLarge, perFile+1)
	writes(nil, perFile) // which fills the file exactly
	writes(nil, perFile-1)
	writes(ErrFull, 2)
	writes(nil, 1)
	writes(ErrFull, 1)
	reads(0)
	j.Filled(1)
	writes(nil, perFile-2) // 4, which begins the file
	reads(1)
	writes(ErrFull, 3)
	j.Filled(2)
	writes(ErrFull, 3) // frame 3 is in the same file
	j.Filled(3)
	writes(nil, 2)         // 5, in the same as 4
	writes(nil, perFile-1) // 6
	writes(nil, 1)         // 7
	writes(ErrFull, 1)
	j.Filled(4)
	writes(ErrFull, 1)
	j.Filled(5)
	writes(nil, 1)
	reads(5)
	if info, err := os.Stat(Paths(dir)[0]); err != nil || info.Size() != MinSize || info.Mode() != 0o600 {
		t.Error(info, err)
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{-1, 1, MinSize - 1, MaxSize + block} {
		if _, err := Create(memory(t), Options{Size: size}); err == nil {
			t.Errorf("a journal of %d bytes is created", size)
		}
	}
	dir := memory(t)
	j := created(t, dir, Options{})
	for _, path := range Paths(dir) {
		if info, err := os.Stat(path); err != nil || info.Size() != DefaultSize {
			t.Error(info.Size(), err)
		}
	}
	for n, count := range []int{DefaultSize/block - copies, DefaultSize/block - copies + 1} {
		if _, err := j.Write(encoded(blocks(1, count))); errors.Is(err, ErrTooLarge) != (n == 1) || n == 0 && err != nil {
			t.Errorf("%d blocks: %v", count, err)
		}
	}
}

// While one goroutine writes, another one fills: each frame is there until it is filled, and each once.
func TestFilledBehind(t *testing.T) {
	t.Parallel()
	dir := memory(t)
	j := created(t, dir, Options{Size: 1 << 20})
	const most = 1500
	written := make(chan uint64, most)
	freed := make(chan struct{}, 1)
	var both sync.WaitGroup
	both.Go(func() {
		defer close(written)
		for n := 1; n <= most; {
			number, err := j.Write(encoded(callOf(n, n%7+1, 100*(n%50))))
			switch {
			case errors.Is(err, ErrFull):
				<-freed
			case err != nil || number != uint64(n):
				t.Error(number, err)
				return
			default:
				written <- number
				n++
			}
		}
	})
	both.Go(func() {
		for number := range written {
			if number%20 == 0 || len(written) == 0 {
				j.Filled(number)
				select {
				case freed <- struct{}{}:
				default:
				}
			}
		}
	})
	both.Wait()
	if j.last != most || j.filled.Load() != most || j.round < 5 {
		t.Errorf("%d frames, %d filled, in %d rounds", j.last, j.filled.Load(), j.round)
	}
	if got, err := pending(t, dir, j.ID(), most-3); err != nil || len(got) != 3 {
		t.Error(len(got), err)
	}
}

// A new journal has another id, and nothing of the one before.
func TestCreateAgain(t *testing.T) {
	t.Parallel()
	dir := memory(t)
	j := created(t, dir, Options{})
	_, err := j.Write(encoded(callOf(1, 1, 1)))
	must(t, err)
	must(t, j.Close())
	again := created(t, dir, Options{})
	if again.ID() == j.ID() || again.ID().String() == j.ID().String() {
		t.Error("it has the same id")
	}
	if got, err := pending(t, dir, again.ID(), 0); err != nil || len(got) != 0 {
		t.Error(len(got), err)
	}
	var d *Damage
	if got, err := pending(t, dir, j.ID(), 0); !errors.As(err, &d) || d.Records != -1 || len(got) != 0 {
		t.Error(len(got), err)
	}
}

// A symbolic link in a file's place is replaced, and where it leads to nothing is written.
func TestLinks(t *testing.T) {
	t.Parallel()
	dir, elsewhere := memory(t), filepath.Join(memory(t), "file")
	must(t, os.WriteFile(elsewhere, []byte("theirs"), 0o600))
	must(t, os.Symlink(elsewhere, Paths(dir)[1]))
	j := created(t, dir, Options{})
	if text, err := os.ReadFile(elsewhere); err != nil || string(text) != "theirs" {
		t.Errorf("%q, %v", text, err)
	}
	must(t, j.Close())
	must(t, os.Rename(Paths(dir)[1], Paths(dir)[1]+".real"))
	must(t, os.Symlink(Paths(dir)[1]+".real", Paths(dir)[1]))
	var d *Damage
	if p, err := Read(dir, j.ID(), 0, nil); p != nil || err == nil || errors.As(err, &d) {
		t.Errorf("it reads where a link leads to: %v", err)
	}
}

// After Erase no byte of a record is in the files, and the journal goes on.
func TestErase(t *testing.T) {
	t.Parallel()
	dir := memory(t)
	j := created(t, dir, Options{Size: MinSize})
	calls := map[uint64]Call{}
	put := func(count int) {
		t.Helper()
		c := blocks(len(calls)+1, count)
		n, err := j.Write(encoded(c))
		must(t, err)
		calls[n] = c
	}
	holds := func() (any bool) {
		for _, path := range Paths(dir) {
			b, err := os.ReadFile(path)
			must(t, err)
			for _, text := range []string{"body of", "payer", "id "} {
				any = any || bytes.Contains(b, []byte(text))
			}
			for at := range len(b)/block - copies {
				if part := b[framesAt+at*block:][:block]; !any && len(bytes.Trim(part, "\x00")) > 0 {
					t.Errorf("%s has bytes at %d", path, framesAt+at*block)
				}
			}
		}
		return any
	}
	erased := func() {
		t.Helper()
		if !holds() {
			t.Fatal("there is nothing to erase")
		}
		j.Filled(uint64(len(calls)))
		must(t, j.Erase())
		if holds() {
			t.Fatal("the files have the bytes of records")
		}
		if got, err := pending(t, dir, j.ID(), uint64(len(calls))); err != nil || len(got) != 0 {
			t.Fatal(len(got), err)
		}
	}
	must(t, j.Erase()) // of nothing
	put(1)
	if err := j.Erase(); !errors.Is(err, ErrPending) {
		t.Errorf("with a frame that is pending: %v", err)
	}
	erased()
	put(3)
	put(perFile - 10) // in the same
	erased()
	put(perFile - 1) // in the other
	erased()
	j.Filled(uint64(len(calls)))
	put(1)
	j.Filled(uint64(len(calls)))
	put(perFile) // in the first, from its beginning
	j.Filled(uint64(len(calls)))
	put(5) // in the other, and the first holds 1 + perFile of frames that are filled
	erased()
	put(2)
	put(perFile - 7) // up to the end
	got, err := pending(t, dir, j.ID(), uint64(len(calls)-2))
	must(t, err)
	if found := numbers(t, got, calls); len(found) != 2 {
		t.Error(found)
	}
	erased()
}

func TestMoveAside(t *testing.T) {
	t.Parallel()
	dir := memory(t)
	at := time.Date(2026, 11, 23, 19, 0, 0, 5, time.FixedZone("", 3600))
	j := created(t, dir, Options{})
	must(t, j.Close())
	moved, err := MoveAside(dir, at)
	want := []string{filepath.Join(dir, "journal.0.lost-20261123T180000.000000005Z"), filepath.Join(dir, "journal.1.lost-20261123T180000.000000005Z")}
	if err != nil || !reflect.DeepEqual(moved, want) {
		t.Errorf("%v, %v", moved, err)
	}
	for _, path := range want {
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Error(err)
		}
	}
	if moved, err := MoveAside(dir, at.Add(1)); err != nil || moved != nil {
		t.Errorf("none: %v, %v", moved, err)
	}
	j = created(t, dir, Options{})
	must(t, j.Close())
	must(t, os.Remove(Paths(dir)[0])) // as if it was killed between the two
	if moved, err := MoveAside(dir, at); err == nil || moved != nil {
		t.Errorf("over others: %v, %v", moved, err)
	}
	if moved, err := MoveAside(dir, at.Add(time.Hour)); err != nil || len(moved) != 1 {
		t.Errorf("one: %v, %v", moved, err)
	}
}

// In the steady state nothing is allocated.
func TestAllocations(t *testing.T) {
	night.Measures(t)
	j := created(t, memory(t), Options{Size: MinSize})
	c := callOf(1, 2, 600)
	calls := make([]byte, 0, 32<<10)
	n := testing.AllocsPerRun(50, func() {
		calls = calls[:0]
		for range 8 {
			calls = AppendCall(calls, &c)
		}
		if _, err := j.Write(calls); err != nil && !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%g allocations a frame", n)
	}
}
