package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"policy-service/pdp/internal/latency"
)

// slice is how long one side is asked before it is the turn of the other.
const slice = 250 * time.Millisecond

// sample are the numbers of one side in one slice.
type sample struct {
	requests  uint64
	took      time.Duration
	cpu       time.Duration // of the server; 0 if it is not known
	generator time.Duration // of this process; 0 likewise
	logState                // the growth of the log
}

// side is one of the servers.
type side struct {
	name      string
	target    target
	exchanges []exchange
	pid       int     // of the server's process, if it is on this machine and its CPU is to be measured
	log       *logged // nil for a server without a log, or whose log is not looked at
	client    *client
	samples   []sample
	times     latency.Histogram // of all slices
}

// logged is the log of decisions that a server keeps.
type logged struct {
	perRequest uint64 // how many records a request makes
	// wait returns when the log has so many records, or when it has not grown for a while.
	wait func(ctx context.Context, records uint64) (logState, error)
}

// logState is what can be known of a log from outside.
type logState struct{ records, commits uint64 }

// measure asks all sides, in turns, for d together.
func measure(ctx context.Context, sides []*side, l load, d time.Duration) (err error) {
	for _, s := range sides {
		s.samples, s.times = nil, latency.Histogram{}
		if s.client, err = dial(s.target, l, s.exchanges); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.client.close()) }()
		if _, _, err := s.client.drive(ctx, slice); err != nil { // warms up, and is not counted
			return err
		}
	}
	for turn := range int(d / (time.Duration(len(sides)) * slice)) {
		for i := range sides {
			// Who goes first changes, so that neither always follows the other.
			if err := sides[(turn+i)%len(sides)].turn(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// turn is one slice of one side.
func (s *side) turn(ctx context.Context) error {
	before, err := s.state(ctx, 0)
	if err != nil {
		return err
	}
	times, took, err := s.client.drive(ctx, slice)
	if err != nil {
		return err
	}
	one := sample{requests: times.Count(), took: took}
	var records uint64
	if s.pid != 0 {
		generator, err := cpu(os.Getpid())
		if err != nil {
			return err
		}
		one.generator = generator - before.generator
	}
	if s.log != nil {
		records = before.log.records + times.Count()*s.log.perRequest
	}
	after, err := s.state(ctx, records)
	if err != nil {
		return err
	}
	one.cpu = after.cpu - before.cpu
	one.logState = logState{after.log.records - before.log.records, after.log.commits - before.log.commits}
	s.times.Add(times)
	s.samples = append(s.samples, one)
	return nil
}

// state is read before and after a slice.
type state struct {
	log            logState
	cpu, generator time.Duration
}

func (s *side) state(ctx context.Context, records uint64) (now state, err error) {
	if s.log != nil {
		if now.log, err = s.log.wait(ctx, records); err != nil {
			return now, err
		}
	}
	if s.pid == 0 {
		return now, nil
	}
	if now.cpu, err = cpu(s.pid); err != nil {
		return now, err
	}
	now.generator, err = cpu(os.Getpid())
	return now, err
}

func (s sample) perSecond() float64        { return float64(s.requests) / s.took.Seconds() }
func (s sample) cpuPerRequest() float64    { return float64(s.cpu) / float64(s.requests) }
func (s sample) generatorCost() float64    { return float64(s.generator) / float64(s.requests) }
func (s sample) recordsPerCommit() float64 { return float64(s.records) / float64(max(s.commits, 1)) }
func (s sample) cpuPerCommit() float64     { return float64(s.cpu) / float64(max(s.commits, 1)) }

// median of what f says of each slice.
func (s *side) median(f func(sample) float64) float64 {
	all := make([]float64, len(s.samples))
	for i, one := range s.samples {
		all[i] = f(one)
	}
	return median(all)
}

// ratio is the median, over slices that lay side by side, of the second side to the first.
func ratio(sides []*side, f func(sample) float64) float64 {
	all := make([]float64, len(sides[0].samples))
	for i := range all {
		all[i] = f(sides[1].samples[i]) / f(sides[0].samples[i])
	}
	return median(all)
}

func median[T cmp.Ordered](all []T) T { return slices.Sorted(slices.Values(all))[len(all)/2] }
