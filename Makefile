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
SOAKTIME ?= 5m
SOAKNEIGHBOURS ?= 10s

# A request that the starter bundle allows. `make run` prints it, and the README shows it with its answer; a test asks it.
define FIRST_CURL
curl -sS http://127.0.0.1:8180/access/v1/evaluation -H 'Content-Type: application/json' -d '{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"tickets:create_ticket"}}'
endef
export FIRST_CURL

# Without the paths of this checkout in it, what one checkout compiled serves every other one.
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath

# What is tested and looked at is what is released, without C: so it is compiled once for all of it. The race detector needs C.
export CGO_ENABLED := 0

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.PHONY: help build release image run first-curl cluster mcp-demo mcp-try test race npm npm-changed lint lint-rare vuln ci night whole race-whole measure \
	soak loc fuzz bench bench-http bench-cerbos conformance bench-mcp bench-cluster

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# What is tried here is what is released: the same file, byte for byte. The go command writes the tag and the commit into it.
BUILD = $(GO) build -trimpath -ldflags='-s -w'

build: ## build bin/policy-service, one static binary
	@echo "compiling bin/policy-service: some minutes the first time, seconds after that"
	@$(BUILD) -o bin/policy-service ./cmd/policy-service

# One directory for each platform, which release and image read. What is released names its commit, or is not built.
PLATFORMS = linux-amd64 linux-arm64 darwin-amd64 darwin-arm64
DIST = dist

$(DIST)/%/policy-service: FORCE
	@echo "compiling $@"
	@GOOS=$(word 1,$(subst -, ,$*)) GOARCH=$(word 2,$(subst -, ,$*)) $(BUILD) -buildvcs=true -o $@ ./cmd/policy-service

FORCE:

release: ## build dist/: binaries and archives for linux and darwin, amd64 and arm64, an SBOM, SHA256SUMS (some minutes)
	@rm -rf $(DIST)
	@$(MAKE) $(PLATFORMS:%=$(DIST)/%/policy-service)
	@$(GO) run ./.ci/release $(DIST)

image: $(DIST)/linux-amd64/policy-service $(DIST)/linux-arm64/policy-service ## build the image for linux, amd64 and arm64: an OCI layout, and archives for docker load
	@$(GO) run ./.ci/release -image $(DIST)

run: build first-curl ## serve policies/starter on 127.0.0.1:8180, and print a request to try
	bin/policy-service serve --policies policies/starter --data .data --listen 127.0.0.1:8180

first-curl:
	@printf '%s\n' "$$FIRST_CURL"

cluster: build ## serve three replicas that share their state in three members of etcd, and print a story to try
	@sh pdp/cluster/example/start .cluster

# All that the two make is in DEMO.
DEMO = .mcp-demo

mcp-demo: build ## serve a folder by the filesystem server of npm, behind the MCP gateway (needs npm); then make mcp-try
	@sh pdp/mcp/examples/filesystem/start $(DEMO)

mcp-try: ## call three tools through the gateway of mcp-demo, and look them up in the decision log
	@sh pdp/mcp/examples/filesystem/try $(DEMO)

# The packages whose tests take longest begin first, so that none of them is left to run alone.
LONGEST = ./cmd/policy-service ./pdp/internal/server ./pdp/internal/console ./pdp/internal/approval ./pdp/internal/mcp ./pdp ./pdp/internal/decisionlog ./pdp/internal/capability ./conformance/... ./pdp/internal/load ./pdp/internal/cluster

# The longest packages wait half of their time: two packages more run than there are cores, and one more in the gate, where lint
# runs beside them.
AT_ONCE = $(shell expr $(if $(WITHOUT),2,1) + $$(getconf _NPROCESSORS_ONLN))

# lint has vetted all of it: to vet each package once more as it is tested takes minutes. The timeout ends only what is stuck: a
# package whose tests build programs of others takes four minutes, and ten more where nothing of those is compiled yet.
# Tests make thousands of servers and stores, of which little stays: with Go's default much of the time goes to the collector.
TESTS = env GOGC="$${GOGC:-400}" $(GO) run ./.ci/tests
GO_TEST = -vet=off $(COUNT) -timeout 40m

# What make test leaves out, and make ci has: tests in browsers, in databases, beside an etcd, of what Helm, Kubernetes and Compose
# make of our files, by judges of our proofs, and of archives and images. They ask night.Other for these names.
WITHOUT ?= browsers databases etcd kubernetes judges releases

# make test takes results that the go command has kept, of packages whose tests would read the same files again. The tests of a few
# start programs that read the checkout, of which the go command hears nothing. They call filetree.Checkout, and run again after any
# change of it:
#   cmd/policy-service    a shell that a page is typed into, the program, make, cp and go
#   conformance/pep       go, which builds an example
#   evaluation/clients    Python, which runs a client
#   pdp/pdptest/strangers go, which tests examples in another module
#   and with WITHOUT= all that ask package judged for a program of a module below pdp/pdptest
# The gate and the night run all tests anew, and leave nothing out.
COUNT ?=
ci night whole race race-whole npm measure soak: export COUNT = -count=1
ci night whole race race-whole npm measure soak: export WITHOUT =

test: ## run the tests that need Go, make and curl alone (minutes; seconds where nothing has changed)
	@WITHOUT='$(WITHOUT)' .ci/inmemory $(TESTS) $(GO_TEST) -short -p $(AT_ONCE) $(LONGEST) ./...

# A program built with the detector sleeps a second before it ends, so that what still runs may report.
RACE = .ci/inmemory env CGO_ENABLED=1 GORACE="$${GORACE:-atexit_sleep_ms=50}" $(GO) run ./.ci/tests

race: ## run the tests of .ci/race with the race detector (needs a C compiler)
	@$(RACE) -list .ci/race $(GO_TEST) -race -short

npm: ## hold us to programs of others, MCP, Rust Cedar, CEL; test the clients in TypeScript and Python (needs npm, and what .ci/run installs)
	@NPM=1 $(GO) run ./.ci/tests -calls Npm $(GO_TEST) $(SHORT) -parallel 4

# The rooms in which files become a bundle, and a bundle answers questions.
LIBRARY = $(addprefix pdp/internal/,access bundle document engine filter lint outline places source)

# The files that programs of others judge us by.
NPM_JUDGES = pdp/mcp pdp/internal/mcp pdp/internal/rpc pdp/console pdp/internal/console pdp/internal/cedartext $(LIBRARY) evaluation obligations policies cmd/policy-service/deploy/compose pdp/capability pdp/internal/capability pdp/internal/server/capabilities pdp/pdptest/mcptest pdp/pdptest/browsertest go.mod go.sum

npm-changed:
	@.ci/unchanged npm $(NPM_JUDGES) || { $(MAKE) npm SHORT=-short && .ci/unchanged -keep npm $(NPM_JUDGES); }

# The programs of the gate, which ./... leaves out because their directory is hidden.
PROGRAMS = $(patsubst %/main.go,./%,$(wildcard .ci/*/main.go))

lint: ## gofmt, go vet, staticcheck, the dependency promises, and whether go.mod is tidy
	@unformatted=$$(gofmt -l . .ci); [ -z "$$unformatted" ] || { echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./... $(PROGRAMS)
	$(GO) run ./.ci/structure
	$(GO) tool staticcheck ./... $(PROGRAMS)
	$(GO) mod tidy -diff

# The programs of others that tests ask have modules of their own, with all of Kubernetes and etcd in them.
MODULES = $(patsubst %/go.mod,%,$(wildcard pdp/pdptest/*/go.mod))

lint-rare: ## what lint leaves to the night: vet as of 32 bits and of the modules for tests, and the module cache
	GOARCH=386 $(GO) vet ./evaluation ./obligations ./evaluation/authzenclient/... ./evaluation/coaz # PEPs run where an int has 32 bits, too
	for m in $(MODULES); do $(GO) vet -C $$m ./... && $(GO) mod tidy -C $$m -diff || exit; done
	$(GO) mod verify

# It fails where it cannot read the database, and says so: what was not looked up is not clean.
vuln: ## look for known vulnerabilities in what we call (needs vuln.go.dev, or VULNDB=URL of another such database)
	$(GO) tool govulncheck $(VULNDB:%=-db %) ./... $(PROGRAMS)
	for m in $(MODULES); do $(GO) tool govulncheck $(VULNDB:%=-db %) -C $$m ./... || exit; done

# The gate: all that must hold before a change lands, in ten minutes on two cores.
ci: ## run lint, build, test and race, and npm if what it judges has changed
	@$(GO) run ./.ci/steps build lint+test race npm-changed

# What the gate leaves out, in at most two hours on two cores. Before a release: FUZZTIME=5m SOAKTIME=30m SOAKNEIGHBOURS=60s.
night: ## run everything: whole tests, race of all, npm, fuzz (FUZZTIME=30s), soak (SOAKTIME=5m), measure, vuln
	@$(GO) run ./.ci/steps -k build lint lint-rare vuln measure whole race-whole npm soak fuzz

whole: ## run the tests with all generated cases
	@$(TESTS) $(GO_TEST) -p $(AT_ONCE) $(LONGEST) ./...

race-whole: ## run all tests with the race detector
	@$(RACE) $(GO_TEST) -race -short -p $(AT_ONCE) $(LONGEST) ./...

# One after the other, with nothing beside them.
measure: ## run the tests that compare times, CPU, memory or allocations (on a machine that does nothing else)
	@MEASURE=1 $(GO) run ./.ci/tests -calls Measures $(GO_TEST) -p 1 -parallel 1

# What shows only after a while: a server that answers for SOAKTIME while everything happens to it, 200 crashes of a
# server under load instead of 20, 100 stops instead of 8, a minute of five times as many questions as can be answered,
# several times the records that retention keeps, and SOAKNEIGHBOURS of each kind of neighbour who does their worst, of a
# PDP and of an MCP gateway, beside as long without them; one kind gives up while that gateway's PDP and server come and go.
# Each wait in these tests has its own end: the timeout is only to be longer than any SOAKTIME.
soak: ## SOAKTIME of reloads, rotations and overload, kills and stops under load, bad neighbours (SOAKTIME=5m, SOAKNEIGHBOURS=10s)
	@SOAK=1 SOAKTIME='$(SOAKTIME)' SOAKNEIGHBOURS='$(SOAKNEIGHBOURS)' $(GO) run ./.ci/tests -calls Soaks $(GO_TEST) -timeout 24h

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
	@cd pdp/internal/load && \
		BENCH_HTTP='-binary $(CURDIR)/bin/policy-service -duration $(DURATION) -runs $(RUNS) -conns=$(CONNS) -rates=$(RATES) -cases $(CASES)' \
		$(GO) test -count=1 -timeout 24h -run '^TestBenchHTTP$$'

# Two minutes, once Cerbos is built in CERBOS.
CERBOS ?= $${TMPDIR:-/tmp}/bench-cerbos

bench-cerbos: ## measure Cerbos beside the floor (needs curl; gets its source from the module proxy)
	@DURATION=$(DURATION) CONNS=$(CONNS) RATES=$(RATES) sh pdp/internal/load/cerbos "$(CERBOS)"

# Some 20 seconds. It fails if a bound is broken: see pdp/internal/load/benchmcp_test.go.
# BEFORE=PROGRAM measures beside that program instead: build it from the commit before.
bench-mcp: build ## measure the MCP gateway beside a bare reverse proxy (DURATION=5s), or BEFORE=PROGRAM
	@cd pdp/internal/load && \
		BENCH_MCP='-binary $(CURDIR)/bin/policy-service -duration $(DURATION) $(if $(BEFORE),-before $(abspath $(BEFORE)))' \
		$(GO) test -count=1 -timeout 24h -run '^TestBenchMCP$$'

# Some 40 seconds. All files are on the disk of TMPDIR. DURATION is of a run: two loads without state, two with it.
bench-cluster: build ## measure three replicas on etcd beside one server (DURATION=5s)
	@cd pdp/internal/load && \
		BENCH_CLUSTER='-binary $(CURDIR)/bin/policy-service -duration $(DURATION)' \
		$(GO) test -count=1 -timeout 24h -run '^TestBenchCluster$$'

# Over plain HTTP, over TLS, with each kind of credential and on a tenant's path. Any other PDP: policy-service conformance URL.
conformance: ## run the conformance suite against our own server, in each of its modes
	$(GO) test -count=1 ./conformance/...
