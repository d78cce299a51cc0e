package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"policy-service/pdp/internal/latency"
)

// measureIdle starts the service anew for each run, and looks at it when it has been idle for a while.
func (c *comparison) measureIdle(ctx context.Context, o options, s *setup, _ *process) error {
	for range o.runs {
		if err := c.measureStart(ctx, o, s); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) measureStart(ctx context.Context, o options, s *setup) (err error) {
	service, err := startService(ctx, o.binary, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.stop()) }()
	return c.measureRest(ctx, o, s, service)
}

// measureRest looks at what the service takes at rest. The floor is not looked at: its binary is that of this test, which
// holds much besides.
func (c *comparison) measureRest(ctx context.Context, o options, s *setup, service *process) error {
	now, err := service.rest(ctx, o.duration)
	c.add(metric{s.name, "", idleMemory}, now.memory, none)
	c.add(metric{s.name, "", idleCPU}, now.cpu, none)
	return err
}

var none = math.NaN() // of the floor, where it has none

// atRest is what a process takes while nobody asks: MB, and percent of a core.
type atRest struct{ memory, cpu float64 }

// rest leaves a process alone for d.
func (p *process) rest(ctx context.Context, d time.Duration) (now atRest, err error) {
	before, err := cpu(p.Process.Pid)
	if err != nil {
		return now, err
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return now, ctx.Err()
	}
	after, err := cpu(p.Process.Pid)
	if err != nil {
		return now, err
	}
	now.cpu = 100 * float64(after-before) / float64(d)
	now.memory, err = p.memory("VmRSS")
	return now, err
}

// memory is what the kernel says of a process, in MB: VmRSS is what it has now, VmHWM the most that it ever had.
func (p *process) memory(name string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), name+":")
	kiB, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, err := strconv.ParseFloat(kiB, 64)
	return n * 1024 / 1e6, err
}

// forgetPeak has VmHWM begin anew. 5 says so: proc_pid_clear_refs(5).
func (p *process) forgetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Process.Pid), []byte("5"), 0)
}

// reloadLoad is how the service is asked while it reloads.
var reloadLoad = load{rateConnections, 1000}

// measureReloads edits the bundle while the service is asked. Only what is asked from the edit until it is in force counts
// as asked in the reload.
func (c *comparison) measureReloads(ctx context.Context, o options, s *setup, bare *process) (err error) {
	service, err := startService(ctx, o.binary, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.stop()) }()
	if err := c.measureRest(ctx, o, s, service); err != nil {
		return err
	}
	both := sides(bare, service, s)
	for _, one := range both {
		if one.client, err = dial(one.target, reloadLoad, one.exchanges); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, one.client.close()) }()
		if _, _, err := one.client.drive(ctx, slice); err != nil { // warms up, and is not counted
			return err
		}
	}
	for run := range o.runs {
		if err := c.measureReload(ctx, o, run, s, both, service); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) measureReload(ctx context.Context, o options, run int, s *setup, both []*side, service *process) error {
	floors, _, err := both[0].client.drive(ctx, o.duration/2)
	if err != nil {
		return err
	}
	quiet, _, err := both[1].client.drive(ctx, o.duration/2)
	if err != nil {
		return err
	}
	edit, err := s.stageEdit(run)
	if err != nil {
		return err
	}
	if err := service.forgetPeak(); err != nil {
		return err
	}
	before, err := cpu(service.Process.Pid)
	if err != nil {
		return err
	}
	times, took, err := both[1].client.driveDuring(ctx, func() error { return edit.inForce(ctx, service, s) })
	if err != nil {
		return err
	}
	after, err := cpu(service.Process.Pid)
	if err != nil {
		return err
	}
	peak, err := service.memory("VmHWM")
	if err != nil {
		return err
	}
	still, err := service.rest(ctx, o.duration/2)
	if err != nil {
		return err
	}
	at := reloadLoad.String()
	c.add(metric{s.name, at, quietP99}, milliseconds(quiet), milliseconds(floors))
	c.add(metric{s.name, at, reloadP99}, milliseconds(times), milliseconds(floors))
	c.add(metric{s.name, at, reloadTime}, took.Seconds(), none)
	c.add(metric{s.name, at, reloadCPU}, (after - before).Seconds(), none)
	c.add(metric{s.name, at, peakMemory}, peak, none)
	c.add(metric{s.name, at, afterMemory}, still.memory, none)
	c.addTimes(s.name, reloadLoad, floors, times)
	c.print("%7s  from the edit until it is in force, %.1f s: p99 %s, max %s; before: p99 %s; peak %.0f MB", at, took.Seconds(),
		latency.Short(times.Quantile(.99)), latency.Short(times.Max()), latency.Short(quiet.Quantile(.99)), peak)
	return nil
}

func milliseconds(times *latency.Histogram) float64 { return times.Quantile(.99).Seconds() * 1000 }

// driveDuring asks until something is done.
func (c *client) driveDuring(ctx context.Context, do func() error) (*latency.Histogram, time.Duration, error) {
	if err := c.expect(2 * patience); err != nil {
		return nil, 0, err
	}
	asking, done := context.WithCancel(ctx)
	defer done()
	ended := make(chan error, 1)
	go func() {
		defer done()
		ended <- do()
	}()
	times, took, err := c.driveOpen(asking, patience)
	return times, took, errors.Join(err, <-ended)
}

// edit is what a bundle's files become, by their paths. All of it is written before, because to write it takes a while.
type edit map[string]string

// stageEdit changes each file of the bundle, so that nothing that was read of it before can be used again. No decision is
// another.
func (s *setup) stageEdit(n int) (edit, error) {
	all := edit{}
	put := func(name, text string) error {
		staged := filepath.Join(filepath.Dir(s.policies), "staged-"+filepath.Base(name))
		all[staged] = name
		return os.WriteFile(staged, []byte(text), 0o600)
	}
	policies, err := filepath.Glob(filepath.Join(s.policies, "*.cedar"))
	if err != nil {
		return nil, err
	}
	for _, name := range policies {
		text, err := os.ReadFile(name)
		if err == nil {
			err = put(name, fmt.Sprintf("%s// edit %d\n", text, n))
		}
		if err != nil {
			return nil, err
		}
	}
	entities := filepath.Join(s.policies, "entities", "all.json")
	text, err := os.ReadFile(entities)
	if err != nil {
		return nil, err
	}
	return all, put(entities, fmt.Sprintf("[{\"uid\":{\"type\":\"user\",\"id\":\"edit-%d\"},\"attrs\":{},\"parents\":[]},\n%s", n, strings.TrimPrefix(string(text), "[")))
}

// inForce makes the edit, and returns when the service says that it is in force.
func (e edit) inForce(ctx context.Context, service *process, s *setup) error {
	before, err := readiness(ctx, service.addr, s.authorization)
	if err != nil {
		return err
	}
	for staged, name := range e {
		if err := os.Rename(staged, name); err != nil {
			return err
		}
	}
	err = poll(ctx, patience, func() (bool, error) {
		now, err := readiness(ctx, service.addr, s.authorization)
		if err == nil && now.Refused != nil {
			err = errors.New("it was refused")
		}
		return err == nil && now.Bundle.Digest != before.Bundle.Digest, err
	})
	if err != nil {
		return fmt.Errorf("an edit is not in force: %w", err)
	}
	return nil
}
