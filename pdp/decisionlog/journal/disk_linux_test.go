package journal

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"policy-service/pdp/pdptest/memorydisk"
)

// fills writes a frame, and has it filled.
func fills(t *testing.T, j *Journal) {
	t.Helper()
	number, err := j.Write(encoded(blocks(1, perFile)))
	must(t, err)
	j.Filled(number)
	must(t, j.Recycle())
}

// ballast takes all but so many bytes of a disk.
func ballast(t *testing.T, dir string, leave int64) (path string) {
	t.Helper()
	free, known := freeSpace(dir)
	if !known {
		t.Fatal("nobody knows how much is free")
	}
	path = filepath.Join(dir, "ballast")
	must(t, os.WriteFile(path, make([]byte, free-leave), 0o600))
	return path
}

// TestSmallDisk: a disk of 3 MiB has room for a journal and for others. A journal takes a sixteenth of what is free.
func TestSmallDisk(t *testing.T) {
	t.Parallel()
	for size, want := range map[string][2]int64{ // new, and then
		"3m":   {MinSize, MinSize},
		"16m":  {1 << 20, 1 << 20},
		"40m":  {1 << 20, 36 << 20 / 16},
		"300m": {1 << 20, 16 << 20},
	} {
		t.Run(size, func(t *testing.T) {
			dir := memorydisk.New(t, "size="+size)
			j := created(t, dir, Options{})
			for i, f := range j.files {
				if f.header.size != want[0] {
					t.Errorf("new, file %d has %d bytes", i, f.header.size)
				}
			}
			for j.now().round < 12 {
				fills(t, j)
			}
			for i, f := range j.files {
				if size := f.header.size; size < want[1]*9/10 || size > want[1]*21/20 {
					t.Errorf("after a while, file %d has %d bytes, want about %d", i, size, want[1])
				}
			}
		})
	}
}

// TestFullDisk: a journal that is there is used, and grows no more. To create one fails, and leaves nothing.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := memorydisk.New(t, "size=60m")
	j := created(t, dir, Options{})
	heavy := ballast(t, dir, 300<<10)
	for j.now().round < 6 {
		fills(t, j)
	}
	for _, path := range Paths(dir) {
		if info, err := os.Stat(path); err != nil || info.Size() != 1<<20 {
			t.Error(info.Size(), err)
		}
	}
	must(t, os.Remove(heavy))
	for j.now().round < 8 {
		fills(t, j)
	}
	for _, path := range Paths(dir) {
		if info, err := os.Stat(path); err != nil || info.Size() != 2<<20 {
			t.Error(info.Size(), err)
		}
	}
	must(t, j.Close())
	for _, path := range Paths(dir) {
		must(t, os.Remove(path))
	}
	ballast(t, dir, 300<<10)
	if j, err := Create(dir, Options{}); j != nil || !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	for _, path := range Paths(dir) {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
}
