package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"policy-service/pdp/latency"
)

// slice is how long one side is asked before it is the other's turn.
const slice = 250 * time.Millisecond

// sample is what was seen of one side in one slice.
type sample struct {
	requests             uint64
	took, cpu, generator time.Duration // cpu is the server's
	logState                           // what came to the log
}

// side is the floor or ours.
type side struct {
	process *process
	client  *client
	setup   *setup // nil for the floor
	samples []sample
	times   latency.Histogram // of all slices
}

// measure asks both sides over so many connections, in turns for d together.
func measure(ctx context.Context, floor, service *process, s *setup, connections int, d time.Duration) (sides [2]*side, err error) {
	sides = [2]*side{{process: floor}, {process: service, setup: s}}
	for i, exchanges := range [][]exchange{answeredBy(s.exchanges, floorAnswer), s.exchanges} {
		if sides[i].client, err = dial(sides[i].process.addr, connections, exchanges); err != nil {
			return sides, err
		}
		defer func() { err = errors.Join(err, sides[i].client.close()) }()
		if _, _, err := sides[i].client.drive(ctx, slice); err != nil { // warms up, and is not counted
			return sides, err
		}
	}
	for turn := range int(d / (2 * slice)) {
		for i := range sides {
			// Who goes first changes, so that neither always follows the other.
			if err := sides[(turn+i)%2].turn(ctx); err != nil {
				return sides, err
			}
		}
	}
	return sides, nil
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
	generator, err := cpu(os.Getpid())
	if err != nil {
		return err
	}
	after, err := s.state(ctx, before.log.records+times.Count()*s.perRequest())
	if err != nil {
		return err
	}
	s.times.Add(times)
	s.samples = append(s.samples, sample{
		requests: times.Count(), took: took, cpu: after.cpu - before.cpu, generator: generator - before.generator,
		logState: logState{after.log.records - before.log.records, after.log.commits - before.log.commits},
	})
	return nil
}

// state is what is looked at before and after a slice.
type state struct {
	log            logState
	cpu, generator time.Duration
}

func (s *side) state(ctx context.Context, records uint64) (now state, err error) {
	if s.setup != nil {
		if now.log, err = caughtUp(ctx, s.process, s.setup, records); err != nil {
			return now, err
		}
	}
	if now.cpu, err = cpu(s.process.Process.Pid); err != nil {
		return now, err
	}
	now.generator, err = cpu(os.Getpid())
	return now, err
}

func (s *side) perRequest() uint64 {
	if s.setup == nil {
		return 0
	}
	return uint64(s.setup.perRequest())
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

// ratio is the median over slices of ours to the floor's that lay beside it.
func ratio(sides [2]*side, f func(sample) float64) float64 {
	all := make([]float64, len(sides[0].samples))
	for i := range all {
		all[i] = f(sides[1].samples[i]) / f(sides[0].samples[i])
	}
	return median(all)
}

func median[T cmp.Ordered](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}
