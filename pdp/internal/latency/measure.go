package latency

import (
	"errors"
	"time"
)

// Measure calls the functions that begin returns, one for each worker, all workers at the same time and each again and
// again until d has passed. It returns how long each call took, and how long all of it took. Each worker calls at least
// once, and stops at its first error. The end of one call is the beginning of the next: reading the clock is dear
// beside a fast call.
func Measure(d time.Duration, workers int, begin func(worker int) (call func() error)) (*Histogram, time.Duration, error) {
	end := time.Now().Add(d)
	return Together(workers, func(worker int, times *Histogram) error { return times.repeat(end, begin(worker)) })
}

// Together runs all workers at the same time. Each counts in a histogram of its own. Together returns what all of them
// counted, and how long all of it took.
func Together(workers int, work func(worker int, times *Histogram) error) (*Histogram, time.Duration, error) {
	type result struct {
		times Histogram
		err   error
	}
	results := make(chan *result)
	start := time.Now()
	for worker := range workers {
		go func() {
			var r result
			r.err = work(worker, &r.times)
			results <- &r
		}()
	}
	all := new(Histogram)
	var err error
	for range workers {
		r := <-results
		all.Add(&r.times)
		err = errors.Join(err, r.err)
	}
	return all, time.Since(start), err
}

func (h *Histogram) repeat(end time.Time, call func() error) error {
	for before := time.Now(); ; {
		if err := call(); err != nil {
			return err
		}
		now := time.Now()
		h.Record(now.Sub(before))
		if before = now; !now.Before(end) {
			return nil
		}
	}
}
