package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkWrite is a frame of calls of 700 bytes. In turns with it, a bare write and sync of as many bytes goes to a file of
// the same kind: bare-ns/op is what that takes.
func BenchmarkWrite(b *testing.B) {
	for _, count := range []int{1, 5, 28, 128} {
		b.Run(fmt.Sprint("calls=", count), func(b *testing.B) {
			dir := b.TempDir()
			j := created(b, dir, Options{Size: firstSize})
			raw, err := os.Create(filepath.Join(dir, "bare"))
			must(b, err)
			defer func() { must(b, raw.Close()) }()
			bare := diskFile{raw}
			err = writeZeros(bare, 0, firstSize, func() {})
			must(b, errors.Join(err, bare.Sync()))
			c, calls, size := callOf(1, 1, 700), make([][]byte, count), int64(0)
			for i := range calls {
				calls[i] = AppendCall(nil, &c)
				size += int64(len(calls[i]))
			}
			frame, at, took := make([]byte, extent(size)), int64(0), time.Duration(0)
			for i := range frame {
				frame[i] = byte(i)
			}
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				number, err := j.Write(calls)
				j.Filled(number)
				must(b, errors.Join(err, j.Recycle()))
				b.StopTimer()
				if at+int64(len(frame)) > firstSize {
					at = 0
				}
				start := time.Now()
				_, err = bare.WriteAt(frame, at)
				must(b, errors.Join(err, bare.Sync()))
				at, took = at+int64(len(frame)), took+time.Since(start)
				b.StartTimer()
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "bare-ns/op")
		})
	}
}

// BenchmarkAppendCall is what a caller does for its own part.
func BenchmarkAppendCall(b *testing.B) {
	c, buffer := callOf(1, 1, 700), make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buffer = AppendCall(buffer[:0], &c)
	}
}
