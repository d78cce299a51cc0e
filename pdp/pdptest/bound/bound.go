// Package bound makes no promise: it is for the tests of this module alone. It lets a benchmark fail where what was
// promised of it is broken: a metric that is only printed tells nobody.
package bound

import (
	"slices"
	"syscall"
	"testing"
	"time"
)

// Check reports a metric, and fails the benchmark where it is more than was promised.
func Check(b *testing.B, value float64, unit string, most float64) {
	b.Helper()
	b.ReportMetric(value, unit)
	if Broken(value, most) {
		b.Errorf("%s is %.4g, the bound is %g", unit, value, most)
	}
}

// Broken is whether a value is more than it may be, or no number at all.
func Broken(value, most float64) bool { return !(value <= most) }

// Passes are measured one by one, so that a pass which the rest of the machine disturbed does not count.
type Passes []float64

// Took adds a pass, in milliseconds.
func (p *Passes) Took(d time.Duration) { *p = append(*p, d.Seconds()*1000) }

// Against adds a pass in which two took turns: how many times as long the one took.
func (p *Passes) Against(one, other time.Duration) { *p = append(*p, one.Seconds()/other.Seconds()) }

// Median is the pass in the middle; there must be one.
func (p Passes) Median() float64 { return slices.Sorted(slices.Values(p))[len(p)/2] }

// CPU is the time that the process has computed for. Who waits for a machine that is busy uses none.
func CPU(t testing.TB) time.Duration {
	t.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
