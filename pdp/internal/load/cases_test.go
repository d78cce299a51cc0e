package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// testCase is one way to use the service.
type testCase struct {
	name, what string
	policies   int    // of the organisation; 0 is the starter bundle
	entities   int    // of the organisation; 0 is 10,000
	batch      bool   // 50 items a request
	log        string // the mode; "" is no log
	credential string // "", "key" or "jwt"
	// measure is the measurement of the case, if it is not asked as the others are.
	measure func(c *comparison, ctx context.Context, o options, s *setup, bare *process) error
}

const batchSize = 50

var testCases = []testCase{
	{name: "policies-10", what: "10 policies", policies: 10},
	{name: "policies-10000", what: "10,000 policies", policies: 10_000},
	{name: "native", what: "native shape with obligations, starter bundle"},
	{name: "batch", what: "batches of 50, 10 policies", policies: 10, batch: true},
	{name: "jwt", what: "10 policies, JWT (RS256)", policies: 10, credential: "jwt"},
	{name: "best-effort", what: "10 policies, log best_effort", policies: 10, log: "best_effort"},
	{name: "best-effort-key", what: "10 policies, log best_effort, API key", policies: 10, log: "best_effort", credential: "key"},
	{name: "strict", what: "10 policies, log strict", policies: 10, log: "strict"},
	{name: "strict-key", what: "10 policies, log strict, API key", policies: 10, log: "strict", credential: "key"},
	{name: "strict-batch", what: "batches of 50, 10 policies, log strict, API key", policies: 10, batch: true, log: "strict", credential: "key"},
	{name: "idle", what: "starter bundle, log strict, API key: just started, and nobody asks", log: "strict", credential: "key", measure: (*comparison).measureIdle},
	{name: "reload", what: "10,000 policies, 100,000 entities, log strict, API key: every file is edited", policies: 10_000, entities: 100_000, log: "strict", credential: "key", measure: (*comparison).measureReloads},
}

func caseNames() []string {
	names := make([]string, len(testCases))
	for i, c := range testCases {
		names[i] = c.name
	}
	return names
}

func chosen(names string) ([]testCase, error) {
	if names == "all" {
		return testCases, nil
	}
	var some []testCase
	for _, name := range strings.Split(names, ",") {
		i := slices.Index(caseNames(), name)
		if i < 0 {
			return nil, fmt.Errorf("there is no case %q; try CASES=all, or some of %s", name, strings.Join(caseNames(), ","))
		}
		some = append(some, testCases[i])
	}
	return some, nil
}

func (c testCase) path() string {
	switch {
	case c.policies == 0:
		return "/v1/authorize"
	case c.batch:
		return "/access/v1/evaluations"
	}
	return "/access/v1/evaluation"
}

// perRequest is how many decisions one request asks for, and so how many records it makes.
func (c testCase) perRequest() uint64 {
	if c.batch {
		return batchSize
	}
	return 1
}
