package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"policy-service/pdp/pdptest/night"
)

// TestOverloadSoak asks a server that can do about 300 decisions a second five times as
// many, at moments that do not depend on its answers. What it does answer it goes on
// answering as many of, and as soon, as when it could do all; the others it refuses at once.
// It takes a minute, on a machine that does nothing else.
func TestOverloadSoak(t *testing.T) {
	night.Soaks(t)
	o := overload{long: time.Minute, short: 5 * time.Second, recovery: 5 * time.Second}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "dear.cedar"), []byte(dearPolicies()), 0o600); err != nil {
		t.Fatal(err)
	}
	server, addr := serveIn(t, "--policies", dir, "--max-concurrent", "1")
	t.Cleanup(func() { end(t, server) })
	o.victim = &victim{addr, server.Process.Pid, &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 512}}}
	t.Cleanup(o.client.CloseIdleConnections)
	o.calibrate(t)

	before := max(1, o.capacity(t))
	normal := o.arrive(t, before/2, o.short)
	peak := o.peak(t)
	flood := o.arrive(t, 5*before, o.long)
	grown := o.peak(t) - peak
	after := o.arrive(t, before/2, o.recovery+o.short)
	capacity := min(before, o.capacity(t))

	good := float64(len(flood.took)) / o.long.Seconds()
	t.Logf("capacity %.0f/s; normal: p99 %v", capacity, normal.p99())
	t.Logf("overload: %d asked, %d answered (%.0f/s), %d refused; p50 %v, p99 %v; memory grew by %d MiB, and asking took %.2f of a core",
		flood.asked, len(flood.took), good, flood.refused, flood.quantile(0.5), flood.p99(), grown, flood.cores)
	if flood.refused == 0 || len(flood.took) == 0 {
		t.Errorf("of %d in overload %d were refused, and %d answered", flood.asked, flood.refused, len(flood.took))
	}
	if grown > 128 {
		t.Errorf("memory grew by %d MiB", grown)
	}
	if status, err := o.once(t.Context()); err != nil || status != http.StatusOK {
		t.Errorf("after the overload: %d %v", status, err)
	}
	if good < 0.8*capacity {
		t.Errorf("%.0f/s of %.0f/s are answered when more is asked", good, capacity)
	}
	if flood.p99() > 10*normal.p99() {
		t.Errorf("p99 is %v, and was %v", flood.p99(), normal.p99())
	}
	if normal.refused > normal.asked/4 {
		t.Errorf("%d of %d were refused without overload", normal.refused, normal.asked)
	}
	late := 0
	for _, at := range after.refusedAt {
		if at > o.recovery {
			late++
		}
	}
	if late > after.asked/4 {
		t.Errorf("%d of %d were refused later than %v after the overload", late, after.asked, o.recovery)
	}
	if flood.cores > 0.5 {
		t.Errorf("asking took %.2f of a core, and was part of the load", flood.cores)
	}
}

// overload is a server, and what is asked of it.
type overload struct {
	*victim
	long, short, recovery time.Duration
	question              string
}

// dearPolicies take long to decide about, as long as the request has it.
func dearPolicies() string {
	var text strings.Builder
	for n := range 200 {
		fmt.Fprintf(&text, "@id(\"p%d\") permit (principal, action == Action::\"read\", resource) when { context.a.containsAll(context.b) && context.level == %d };\n", n, n)
	}
	return text.String()
}

// calibrate finds a question that takes a three-hundredth of a second.
func (o *overload) calibrate(t *testing.T) {
	t.Helper()
	const want = time.Second / 300
	size := 100
	for range 3 {
		numbers := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(slices.Collect(count(size)))), ","), "[]")
		o.question = `{"subject":{"type":"u","id":"a"},"action":{"name":"read"},"resource":{"type":"d","id":"p"},"context":{"level":7,"a":[` + numbers + `],"b":[` + numbers + `]}}`
		const times = 30
		start := o.cpu(t)
		for range times {
			if status, err := o.once(t.Context()); err != nil || status != http.StatusOK {
				t.Fatal(status, err)
			}
		}
		took := (o.cpu(t) - start) / times
		size = max(10, min(4000, int(float64(size)*float64(want)/float64(took))))
	}
}

func count(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := 0; i < n && yield(i); i++ {
		}
	}
}

func (o *overload) once(ctx context.Context) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+o.addr+"/access/v1/evaluation", strings.NewReader(o.question))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := o.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	switch allowed := string(body) == `{"decision":true}`; {
	case err != nil:
	case answer.StatusCode == http.StatusOK && allowed, answer.StatusCode == http.StatusServiceUnavailable && answer.Header.Get("Retry-After") == "1":
	default:
		err = fmt.Errorf("got %d %.200s", answer.StatusCode, body)
	}
	return answer.StatusCode, err
}

// capacity is how many a second four clients get answered who ask without a pause.
func (o *overload) capacity(t *testing.T) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), o.short)
	defer cancel()
	var mu sync.Mutex
	answered := 0
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				if status, err := o.once(ctx); err == nil && status == http.StatusOK {
					mu.Lock()
					answered++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return float64(answered) / o.short.Seconds()
}

// arrivals is what became of requests that were made at set moments.
type arrivals struct {
	asked, refused int
	took           []time.Duration // of those that were decided, from when they were due
	refusedAt      []time.Duration
	cores          float64
}

// arrive makes so many requests a second, whatever became of those before.
func (o *overload) arrive(t *testing.T, perSecond float64, long time.Duration) *arrivals {
	t.Helper()
	a := &arrivals{}
	var mu sync.Mutex
	var all sync.WaitGroup
	every := time.Duration(float64(time.Second) / perSecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	start, used := time.Now(), ownCPU()
	for due := time.Duration(0); due < long; due += every {
		for time.Since(start) < due { // one tick can stand for several that were missed
			<-tick.C
		}
		a.asked++
		all.Go(func() {
			status, err := o.once(t.Context())
			took := time.Since(start) - due
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case status == http.StatusOK:
				a.took = append(a.took, took)
			default:
				a.refused++
				a.refusedAt = append(a.refusedAt, due)
			}
		})
		if a.asked%500 == 0 { // who asks about health is never sent away
			all.Go(func() {
				if answer, err := o.client.Get("http://" + o.addr + "/readyz"); err != nil || answer.StatusCode != http.StatusOK {
					t.Error("/readyz", err)
				} else {
					_ = answer.Body.Close()
				}
			})
		}
	}
	a.cores = (ownCPU() - used).Seconds() / time.Since(start).Seconds()
	all.Wait()
	slices.Sort(a.took)
	if len(a.took) == 0 {
		t.Fatal("nothing was decided")
	}
	return a
}

func (a *arrivals) p99() time.Duration { return a.quantile(0.99) }

func (a *arrivals) quantile(q float64) time.Duration { return a.took[int(q*float64(len(a.took)-1))] }

// ownCPU is what the process that asks has used.
func ownCPU() time.Duration {
	var use syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &use)
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
