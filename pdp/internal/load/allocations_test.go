package main

import (
	"context"
	"errors"
	"net/http/httptest"
	"runtime"
	"strings"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/internal/server/floor"
)

// allocations counts the allocations of a request, which cannot be seen from outside: a
// server with the same configuration runs in this process, and the floor after it, each
// behind a real port and asked by the same generator, which itself allocates nothing. There is a number for each run.
func allocations(ctx context.Context, s *setup, runs int) (ours, floors []allocated, err error) {
	told := server.Config{Program: server.Program{Source: pdp.Dir(s.policies)}, Listen: "127.0.0.1:0", Data: s.data}
	if s.config != "" {
		if _, err := server.ConfigForm.Read(config.Given{File: s.config}, &told); err != nil {
			return nil, nil, err
		}
	}
	told.DecisionLog.Mode = decisionlog.Mode(s.log)
	service, err := server.New(told)
	if err != nil {
		return nil, nil, err
	}
	if err := service.Start(ctx); err != nil {
		return nil, nil, err
	}
	ours, err = countAllocations(ctx, service.Addr(), s.exchanges, runs)
	if err = errors.Join(err, service.Stop(ctx)); err != nil {
		return nil, nil, err
	}
	bare := httptest.NewServer(floor.Handler())
	defer bare.Close()
	floors, err = countAllocations(ctx, strings.TrimPrefix(bare.URL, "http://"), answeredBy(s.exchanges, floor.Answer), runs)
	return ours, floors, err
}

// allocated is per request.
type allocated struct{ objects, bytes float64 }

// countAllocations asks over 32 connections, so that a strict log commits as it does under load.
func countAllocations(ctx context.Context, addr string, exchanges []exchange, runs int) (each []allocated, err error) {
	c, err := dial(target{addr: addr}, load{connections: 32}, exchanges)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if _, _, err := c.drive(ctx, 100*time.Millisecond); err != nil { // pools fill
		return nil, err
	}
	for range runs {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		times, _, err := c.drive(ctx, slice)
		if err != nil {
			return nil, err
		}
		runtime.ReadMemStats(&after)
		n := float64(times.Count())
		each = append(each, allocated{float64(after.Mallocs-before.Mallocs) / n, float64(after.TotalAlloc-before.TotalAlloc) / n})
	}
	return each, nil
}
