# Everything that a person, or CI, does with this repository. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps
TARGET := $(or $(CARGO_TARGET_DIR),target)
# The first Python on PATH that is new enough; `make PYTHON=python3.13 run` overrules it.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# What the extension is compiled from: no tests, and nothing of the crates that only check or measure it.
RUST   := $(shell find rust/gpusize-* -type f -not -path '*/tests/*' -not -path '*/examples/*') Cargo.toml Cargo.lock

# ---------------------------------------------------------------------------------------------------- using it

.PHONY: run
run: setup ## Set everything up, then size a simulated cluster: the whole path in about a minute
	$(BIN)/gpusize run $(ARGS)

.PHONY: stair-step
stair-step: setup ## A stair of rates in a minute, and a replica that comes in the middle (docs/how-to/stair-step.md)
	$(BIN)/gpusize run --stages '30/s@10s, 60/s@10s, 90/s@10s, 120/s@30s' --process constant --connections 1024 \
		--replicas '1@0s,2@30s' --start-delay 5s --max-tokens 40 --slo 'p95 runtime <= 1s' $(ARGS)

.PHONY: setup
setup: $(STAMPS)/extension ## Make .venv with the extension in it; .venv/bin/gpusize is the command

$(STAMPS)/venv:
	@test -n "$(PYTHON)" || { echo "make: no Python >= 3.11 on PATH (set PYTHON=/path/to/python3)" >&2; exit 3; }
	@command -v cargo >/dev/null || { echo "make: no cargo on PATH: install a Rust toolchain, 1.88 or newer" >&2; exit 3; }
	@echo "== virtual environment: $$($(PYTHON) --version)"
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/run: requirements/run.txt $(STAMPS)/venv
	@echo "== Python packages to run"
	$(PIP) install -r $<
	@touch $@

$(STAMPS)/dev: requirements/dev.txt $(STAMPS)/run
	@echo "== Python packages to test, lint and package"
	$(PIP) install -r $<
	@touch $@

# Editable: Python sources are used where they lie, only Rust sources ask for a new build.
$(STAMPS)/extension: $(RUST) pyproject.toml $(STAMPS)/run
	@echo "== extension, release build (minutes the first time)"
	env -u CONDA_PREFIX VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --locked --skip-install
	PATH="$(abspath $(BIN)):$$PATH" $(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# ------------------------------------------------------------------------------------------------- checking it

.PHONY: test
test: setup $(STAMPS)/dev ## Rust and Python tests (PYTEST_ARGS="-k name" narrows the latter)
	@# Compiling is no part of a test, nor of its time limit; the second are programs that some tests start.
	cargo test --quiet --workspace --locked --no-run
	@# Both in one command: cargo then compiles what they depend on with the features that the extension asks for.
	cargo build --quiet --release --locked --package bench-worlds --package bench-tools
	$(BIN)/python -m scripts.run_tests all $(PYTEST_ARGS)

.PHONY: test-slow
test-slow: setup $(STAMPS)/dev ## The tests that take minutes
	$(BIN)/python -m scripts.run_tests python -m slow --timeout 900 $(PYTEST_ARGS)

.PHONY: test-faults
test-faults: setup $(STAMPS)/dev ## The whole fault matrix of docs/reference/faults.md, under every kind of load (some minutes)
	$(BIN)/python -m scripts.run_tests python -m "slow or not slow" tests/faults $(PYTEST_ARGS)

.PHONY: test-machine
test-machine: setup $(STAMPS)/dev ## The tests of containers on an emulated Debian with systemd and cgroup v2 (root; slow)
	$(BIN)/python -m scripts.machine docker
	$(BIN)/python -m scripts.machine podman

.PHONY: peers
peers: $(STAMPS)/venv ## Servers and clients of the field, each in an environment of its own (minutes once, then kept)
	$(BIN)/python scripts/peers.py $(PEERS)

.PHONY: kube-server
kube-server: $(STAMPS)/venv ## Of the peers, a Kubernetes control plane alone (17 minutes of CPU, once; then it is kept)
	$(BIN)/python scripts/peers.py kube

.PHONY: test-peers
test-peers: setup $(STAMPS)/dev peers-to-test ## The tests that compare with them
	$(BIN)/python -m scripts.run_tests python -m peers tests/peers $(PYTEST_ARGS)

.PHONY: peers-to-test
peers-to-test: $(STAMPS)/venv
	$(BIN)/python scripts/peers.py || test "$${CI:-}" != true

.PHONY: test-gpu
test-gpu: setup $(STAMPS)/dev ## The tests that hold what is said of GPUs against a real one (needs nvidia-smi, and PyTorch in .venv)
	$(BIN)/pytest -q -s -m gpu tests/gpu $(PYTEST_ARGS)

AUDIT_CASES ?= 1000
.PHONY: audit
audit: setup $(STAMPS)/dev ## Figures against the raw requests of 1,000 random levels, estimates against the levels of 300 servers
	AUDIT_CASES=$$(($(AUDIT_CASES) * 3 / 10)) $(BIN)/pytest -q tests/audit/test_estimates_audit.py & other=$$!; \
		AUDIT_CASES=$(AUDIT_CASES) $(BIN)/pytest -q tests/audit/test_summary_audit.py; wait $$other

.PHONY: mutants
mutants: setup $(STAMPS)/dev ## How many small faults the tests find: 25 in each of four areas (ARGS="--area records --count 50")
	$(BIN)/python -m scripts.mutants $(ARGS)

FUZZ_SECONDS ?= 120
.PHONY: fuzz
fuzz: ## Fuzz the readers of answers, each for FUZZ_SECONDS (120); what is learnt is kept in rust/fuzz/corpus
	$(PYTHON) scripts/fuzz.py --seconds $(FUZZ_SECONDS) --keep

.PHONY: fuzz-smoke
fuzz-smoke: ## A few seconds of each fuzz target, nothing kept
	@# Optimising the readers more takes longer than it saves in these seconds.
	CARGO_PROFILE_FUZZ_OPT_LEVEL=1 $(PYTHON) scripts/fuzz.py --seconds 5

.PHONY: lint
lint: lint-rust lint-python lint-stubs ## rustfmt, clippy, ruff, layers of imports, mypy, stubtest

.PHONY: lint-rust
lint-rust:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

.PHONY: lint-python
lint-python: $(STAMPS)/dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/python -m scripts.layers
	$(BIN)/python -m scripts.prose --check
	$(BIN)/mypy
	@# Every test can be imported; and the turns of `make test` find their bytecode.
	$(BIN)/python -m pytest --collect-only -q -p no:cacheprovider | tail -n 1

.PHONY: lint-stubs
lint-stubs: setup $(STAMPS)/dev
	$(BIN)/stubtest gpusize._core --mypy-config-file pyproject.toml --allowlist tests/packaging/stubtest-allowlist.txt

.PHONY: audit-deps
audit-deps: $(STAMPS)/dev ## Licences of all dependencies, and known advisories where they can be had
	$(BIN)/python scripts/audit_deps.py

.PHONY: fmt
fmt: $(STAMPS)/dev ## Format Rust and Python in place, and break lines of prose at 120
	cargo fmt --all
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format
	$(BIN)/python -m scripts.prose

.PHONY: coverage
coverage: setup $(STAMPS)/dev ## Line coverage of Rust and of Python, both printed at the end
	TARGET=$(TARGET)/coverage BIN=$(BIN) scripts/coverage.sh

.PHONY: bench
bench: setup $(STAMPS)/dev ## The benchmarks that need nothing but this repository: records and the simulated cluster's model
	$(BIN)/python -m benches.http --only records,model

.PHONY: bench-http
bench-http: setup $(STAMPS)/dev ## The timing bars: beside wrk, nginx and a bare timer, with the host's facts
	$(BIN)/python -m benches.http

.PHONY: bench-apis
bench-apis: setup $(STAMPS)/dev peers ## The bars of the APIs: beside h2load, aiohttp, Triton, openai, tritonclient, llama.cpp
	$(BIN)/python -m benches.apis

.PHONY: bench-load
bench-load: setup $(STAMPS)/dev ## The bars of loads: truth, timing, cost and endurance, beside the field's generators
	-$(BIN)/python scripts/peers.py clients --load
	$(BIN)/python -m benches.load

.PHONY: bench-estimates
bench-estimates: setup $(STAMPS)/dev ## Whether estimates hold: 4 x 300 simulated clusters with known answers (an hour or two the first time)
	$(BIN)/python -m benches.estimates --many --record

.PHONY: bench-engines
bench-engines: setup $(STAMPS)/dev ## Whether estimates hold for engines of language models: 4 x 100 simulated ones (an hour the first time)
	$(BIN)/python -m benches.estimates --family engines --record

.PHONY: bench-real
bench-real: setup $(STAMPS)/dev ## Whether counts hold for real servers: llama.cpp and Triton, told from one and measured with up to four (half an hour)
	-$(BIN)/python scripts/peers.py llama llama-server triton
	$(BIN)/python -m benches.real

.PHONY: bench-first-users
bench-first-users: setup $(STAMPS)/dev ## Whether 200 systems as people try it on first get the right number or refusal (a minute)
	$(BIN)/python -m benches.estimates.first_users --record

.PHONY: bench-agents
bench-agents: setup $(STAMPS)/dev ## Whether 160 workflows, their calls, and users who pause get the right number (ten minutes)
	$(BIN)/python -m benches.estimates.agents --record

.PHONY: bench-search
bench-search: setup $(STAMPS)/dev ## How often the interval of the search for the edge holds the truth, in virtual time
	$(BIN)/python -m benches.search --record
	$(BIN)/python -m benches.search_more --record

.PHONY: bench-prove
bench-prove: setup $(STAMPS)/dev ## How often proofs are wrong, and what they cost, on 200 simulated worlds in virtual time (ten minutes)
	$(BIN)/python -m benches.prove --record

.PHONY: bench-telemetry
bench-telemetry: setup $(STAMPS)/dev ## Whether estimates from scrapes alone hold, and are refused rightly, on 200 simulated worlds (an hour)
	$(BIN)/python -m benches.telemetry --record

.PHONY: bench-compare
bench-compare: setup $(STAMPS)/dev ## How often comparisons are wrong, and what they find, on simulated clusters and a real server (half an hour)
	$(BIN)/python -m benches.compare --record

.PHONY: bench-import
bench-import: setup $(STAMPS)/dev ## Memory and time of importing a gigabyte of requests, and whether its figures are right (a minute)
	$(BIN)/python -m benches.imports --record

.PHONY: bench-adaptive
bench-adaptive: setup $(STAMPS)/dev ## The search in real time: GPU counts against those of virtual time (some minutes)
	$(BIN)/python -m benches.adaptive

.PHONY: bench-cluster
bench-cluster: setup $(STAMPS)/dev ## 1,000 GPUs with 100,000 users for ten minutes of virtual time (under a minute)
	$(BIN)/python -m benches.cluster

.PHONY: bench-cluster-submit
bench-cluster-submit: setup $(STAMPS)/dev ## Pods created per second, beside Kubernetes' own client (a minute)
	$(BIN)/python -m benches.cluster_submit --record

.PHONY: bench-scaling
bench-scaling: setup $(STAMPS)/dev ## Scaling told from few counts: a real Triton with 1, 2 and 4 instances, and data whose law is known
	$(BIN)/python scripts/peers.py triton
	$(BIN)/python -m benches.scaling

.PHONY: bench-scheduler
bench-scheduler: setup $(STAMPS)/dev ## Cluster tests on a real control plane with 1,000 fake nodes: times that are known, the seed's commands (half an hour)
	$(BIN)/python scripts/peers.py kube
	$(BIN)/python -m benches.scheduler --record

.PHONY: bench-sample
bench-sample: setup $(STAMPS)/dev ## What the sampler of resources costs, and how near it comes to what a program really used
	-$(BIN)/python scripts/peers.py psutil
	$(BIN)/python -m benches.sample

.PHONY: bench-report
bench-report: setup $(STAMPS)/dev ## CPU time of reports and estimates beside the commit before they read files once (half an hour)
	$(BIN)/python -m benches.report --record

.PHONY: bench-page
bench-page: setup $(STAMPS)/dev ## How soon the report page of a million requests opens in Chromium (a minute)
	$(BIN)/python -m benches.page --record

.PHONY: bench-autoscale
bench-autoscale: setup $(STAMPS)/dev ## Autoscaling: a day of series pulled, a day judged, a policy simulated, settings tuned in 40 worlds (an hour)
	$(BIN)/python -m benches.autoscale --record

.PHONY: bench-cluster-watch
bench-cluster-watch: setup $(STAMPS)/dev ## How fast the events of pods are read and stamped, beside lightkube and the official client (some minutes)
	$(BIN)/python -m benches.cluster_watch --record

.PHONY: bench-distribute
bench-distribute: setup $(STAMPS)/dev ## Load from several hosts: how far apart they begin, what two cost over one, ten million records home (some minutes)
	$(BIN)/python -m benches.distribute --record

.PHONY: soak
soak: setup $(STAMPS)/dev ## A hundred million requests in one level (some twenty minutes)
	$(BIN)/python -m benches.soak

# ------------------------------------------------------------------------------------------------- handing it on

.PHONY: docs
docs: $(STAMPS)/dev ## The documentation site, into site/
	$(BIN)/zensical build --strict --clean

.PHONY: wheel
wheel: $(STAMPS)/dev ## An abi3 manylinux wheel in dist/, audited and tried in clean environments
	$(BIN)/python scripts/wheel.py

.PHONY: lock
lock: $(STAMPS)/dev ## Resolve requirements/*.txt again from pyproject.toml
	BIN=$(BIN) scripts/lock.sh

.PHONY: clean
clean: ## Remove everything that make made; run folders stay
	cargo clean --quiet
	rm -rf $(VENV) dist site htmlcov python/gpusize/_core*.so .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
	find python tests benches scripts -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
