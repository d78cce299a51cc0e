package main

import (
	"context"
	"errors"
	"net/http/httptest"
	"runtime"
	"strings"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server"
	"policy-service/pdp/server/config"
	"policy-service/pdp/server/floor"
)

// allocations counts what a request allocates, which nobody can see from outside: a
// server with the same configuration runs in this process, and the floor after it, each
// behind a real port and asked by the same generator, which itself allocates nothing.
func allocations(ctx context.Context, s *setup) (ours, floors float64, err error) {
	told := server.Config{Program: server.Program{Source: pdp.Dir(s.policies)}, Listen: "127.0.0.1:0", Data: s.data}
	if s.config != "" {
		if _, err := server.ConfigForm.Read(config.Given{File: s.config}, &told); err != nil {
			return 0, 0, err
		}
	}
	told.DecisionLog.Mode = decisionlog.Mode(s.log)
	service, err := server.New(told)
	if err != nil {
		return 0, 0, err
	}
	if err := service.Start(ctx); err != nil {
		return 0, 0, err
	}
	ours, err = allocated(ctx, service.Addr(), s.exchanges)
	if err = errors.Join(err, service.Stop(ctx)); err != nil {
		return 0, 0, err
	}
	bare := httptest.NewServer(floor.Handler())
	defer bare.Close()
	floors, err = allocated(ctx, strings.TrimPrefix(bare.URL, "http://"), answeredBy(s.exchanges, floor.Answer))
	return ours, floors, err
}

// allocated is per request, over 32 connections so that a strict log commits as it
// does under load.
func allocated(ctx context.Context, addr string, exchanges []exchange) (each float64, err error) {
	c, err := dial(target{addr: addr}, 32, exchanges)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if _, _, err := c.drive(ctx, 100*time.Millisecond); err != nil { // pools fill
		return 0, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	times, _, err := c.drive(ctx, slice)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(max(times.Count(), 1)), err
}
