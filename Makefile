# Plain `make` prints the targets: the words after ## below. Tools are pinned by the tool lines of go.mod.

GO ?= go
FUZZTIME ?= 30s
BENCH ?= .
BENCHTIME ?= 1s
DURATION ?= 5s
CONNS ?= 4,32,128
RATES ?= 1000,5000
RUNS ?= 5
CASES ?= all
SOAKTIME ?= 30m
SOAKNEIGHBOURS ?= 60s

# A request that the starter bundle allows. `make run` prints it, and the README shows it with its answer; a test asks it.
define FIRST_CURL
curl -sS http://127.0.0.1:8180/access/v1/evaluation -H 'Content-Type: application/json' -d '{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"tickets:create_ticket"}}'
endef
export FIRST_CURL

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.PHONY: help build run first-curl mcp-demo mcp-try test race soak lint loc fuzz bench bench-http bench-cerbos conformance mcp-conformance bench-mcp ci

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/policy-service, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/policy-service ./cmd/policy-service

run: build first-curl ## serve policies/starter on 127.0.0.1:8180, and print a request to try
	bin/policy-service serve --policies policies/starter --data .data --listen 127.0.0.1:8180

first-curl:
	@printf '%s\n' "$$FIRST_CURL"

# All that the two make is in DEMO.
DEMO = .mcp-demo

mcp-demo: build ## serve a folder by the filesystem server of npm, behind the MCP gateway (needs npm); then make mcp-try
	@sh pdp/mcp/examples/filesystem/start $(DEMO)

mcp-try: ## call three tools through the gateway of mcp-demo, and look them up in the decision log
	@sh pdp/mcp/examples/filesystem/try $(DEMO)

# The packages whose tests take longest begin first, so that none of them is left to run alone.
LONGEST = ./pdp/server ./cmd/policy-service ./pdp/mcp ./pdp ./pdp/decisionlog ./conformance/...

# The longest package waits half of its time: one package more runs than there are cores.
AT_ONCE = $(shell expr 1 + $$(getconf _NPROCESSORS_ONLN))

# lint has vetted all of it: to vet each package once more as it is tested takes minutes.
test: ## run all tests
	$(GO) test -vet=off -p $(AT_ONCE) -timeout 15m $(LONGEST) ./...

# Every test again under the race detector, which is several times slower. What is made by chance is made less often
# (-short): test has made all of it, and who runs beside whom shows early. A program built with the detector sleeps a
# second before it ends, so that what still runs may report; transcripts run hundreds of them, and wait less.
race: ## run all tests with the race detector (needs a C compiler)
	GORACE="$${GORACE:-atexit_sleep_ms=50}" $(GO) test -race -short -vet=off -p $(AT_ONCE) -timeout 25m $(LONGEST) ./...

# What shows only after a while: a server that answers for SOAKTIME while everything happens to it, 200 crashes of a
# server under load instead of 20, 100 stops instead of 8, a minute of five times as many questions as can be answered,
# several times the records that retention keeps, and SOAKNEIGHBOURS of each kind of neighbour who does their worst, after
# as long without them: another half an hour; and SOAKTIME of an MCP gateway whose PDP and server come and go. Not part
# of ci. Each wait in these tests has its own end: the timeout is only to be longer than any SOAKTIME.
soak: ## SOAKTIME of reloads, rotations and overload, kills and stops under load, bad neighbours (SOAKTIME=30m, SOAKNEIGHBOURS=60s)
	SOAK=1 SOAKTIME='$(SOAKTIME)' SOAKNEIGHBOURS='$(SOAKNEIGHBOURS)' $(GO) test -count=1 -v -timeout 24h -run 'Crash|PowerCut|Soak|StopUnderLoad' ./pdp/decisionlog/... ./pdp/mcp ./cmd/policy-service/

lint: ## gofmt, go vet, staticcheck, and whether go.mod and the module cache are as they should be
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	GOARCH=386 $(GO) vet ./evaluation ./obligations ./evaluation/authzenclient ./evaluation/coaz # PEPs run where an int has 32 bits, too
	$(GO) tool staticcheck ./...
	$(GO) mod tidy -diff
	$(GO) mod verify

loc: ## count the lines of Go by room, code and comments apart
	@.ci/loc

fuzz: ## run every fuzz target for FUZZTIME each (default 30s)
	@FUZZTIME=$(FUZZTIME) .ci/fuzz

# -run='^$$' keeps the tests out; the benchmarks themselves report the ratio of many policies to few.
bench: ## run the benchmarks (BENCH=regexp, BENCHTIME=1s)
	$(GO) test -run='^$$' -bench='$(BENCH)' -benchtime=$(BENCHTIME) -benchmem -timeout 15m ./evaluation/ ./evaluation/coaz/ ./pdp/...

# Some ten minutes on a quiet machine; a case alone takes one or two. DURATION is of a run; RUNS are made of each case and load that has a
# bound, and one of the others. The log's disk is that of TMPDIR. A test whose package is not named prints while it runs.
# It has ends of its own: the timeout is only to be longer than any DURATION.
bench-http: build ## measure the service over HTTP beside the floor (DURATION=5s, RUNS=5, CONNS=4,32,128, RATES=1000,5000, CASES=all)
	@cd conformance/load && \
		BENCH_HTTP='-binary $(CURDIR)/bin/policy-service -duration $(DURATION) -runs $(RUNS) -conns=$(CONNS) -rates=$(RATES) -cases $(CASES)' \
		$(GO) test -count=1 -timeout 24h -run '^TestBenchHTTP$$'

# Two minutes, once Cerbos is built in CERBOS.
CERBOS ?= $${TMPDIR:-/tmp}/bench-cerbos

bench-cerbos: ## measure Cerbos beside the floor (needs curl; gets its source from the module proxy)
	@DURATION=$(DURATION) CONNS=$(CONNS) RATES=$(RATES) sh conformance/load/cerbos "$(CERBOS)"

# Some 20 seconds. It fails if a bound is broken: see conformance/load/benchmcp_test.go.
bench-mcp: build ## measure the MCP gateway beside a bare reverse proxy (DURATION=5s)
	@cd conformance/load && \
		BENCH_MCP='-binary $(CURDIR)/bin/policy-service -duration $(DURATION)' \
		$(GO) test -count=1 -timeout 24h -run '^TestBenchMCP$$'

# Over plain HTTP, over TLS, with each kind of credential and on a tenant's path. Any other PDP: policy-service conformance URL.
conformance: ## run the conformance suite against our own server, in each of its modes
	$(GO) test -count=1 ./conformance/...

# Some 20 seconds are for the installation of what package-lock.json pins, of which Node 22 is a part.
mcp-conformance: ## hold the MCP gateway to the official suite, to clients and servers of others, and to its page (needs npm)
	MCP_CONFORMANCE=1 $(GO) test -count=1 -timeout 10m -parallel 4 -run '^(TestOthers|TestDemo)$$' ./pdp/mcp ./cmd/policy-service

# One after the other, whatever -j says: two cores give wrong times to tests that measure.
ci: ## all that must hold before a change lands
	$(MAKE) lint
	$(MAKE) build
	$(MAKE) test
	$(MAKE) race
	$(MAKE) mcp-conformance
	$(MAKE) fuzz FUZZTIME=3s
