# `make demo` and `make test` need git, make and Python >= 3.11; everything else is set up in $(VENV).

VENV ?= .venv
# The Python that the environment is made with; empty: the first one on PATH that is new enough.
PYTHON ?=
JOBS ?= 2
COMPONENT_JOBS ?= 3
PYTEST_ARGS ?=
# Where `make install-alone` writes junit xml; empty: nowhere.
REPORTS ?=
# `make install-alone` runs one in so many tests of each package; 1: all of them; 0: the first of each module.
SHARE ?= 1
DEMO_TASKS ?= examples/terminal_tasks.jsonl
DEMO_OUT ?= runs/demo
DEMO_ARGS ?=
TINY_RL_ARGS ?=
FUZZ_ARGS ?=
ATTACK_ARGS ?=
# Where `make engine` keeps vLLM and its models between runs.
ENGINE ?= .engine

BIN := $(VENV)/bin
SOURCES := $(wildcard */src plugins/*/src)
TEST_FOLDERS := $(wildcard */tests plugins/*/tests examples/*/tests tests)
EXAMPLE_MODULES := $(foreach module,$(wildcard examples/*/*.py examples/*/*/*.py),$(if $(findstring /tests/,$(module)),,$(module)))

# The set-up is called every time: it takes a tenth of a second when there is nothing to do.
setup = python=$$(PYTHON="$(PYTHON)" sh scripts/find_python.sh) && "$$python" scripts/setup_env.py --venv "$(VENV)" --group

.PHONY: help demo smoke test test-components test-deep check check-format check-lint check-style check-requirements check-types check-test-types format wheels install-alone lowest bench bench-parsers bench-tokens bench-sandboxes bench-capacity bench-pool bench-cluster soak fuzz attack engine tiny-rl lock env clean

help:
	@echo "make demo           set up and run the shipped tasks on the embedded oracle model; writes $(DEMO_OUT)"
	@echo "make smoke          set up and run the first fast test of every module; half a minute"
	@echo "make test           set up and run the fast tests of every package: no root, service or sandbox is needed"
	@echo "make test-components  each real component once: Docker, Slurm, Ray, SSH, bubblewrap, ..."
	@echo "make test-deep      everything else: broken components, attacks, second levels, killed callers; half an hour"
	@echo "make check          formatting, lint, types, style and requirement bounds"
	@echo "make format         format the code and apply safe lint fixes"
	@echo "make wheels         build every package into dist/"
	@echo "make install-alone  install every wheel by itself and run its own tests"
	@echo "make lowest         the same with the lowest versions of everything that is declared"
	@echo "make bench          measure speed and memory"
	@echo "make bench-parsers  measure the parsers, and compare them with vLLM's and SGLang's (PEERS=python)"
	@echo "make bench-tokens   measure training data at token level, and compare it with peers' (PEERS=python)"
	@echo "make bench-sandboxes  measure every backend beside bare bash, docker exec and SWE-ReX (PEERS=python)"
	@echo "make bench-capacity measure what idle sandboxes of each kind hold; writes docs/capacity.md"
	@echo "make bench-pool     measure slot pools"
	@echo "make bench-cluster  measure Slurm, Nomad and Ray beside the local session, and runs on 1 to 4 hosts"
	@echo "make soak           run 1,000 rollouts on each backend while sandboxes and the caller are killed"
	@echo "make fuzz           give 1,000,000 spoilt messages to every tool-call parser; ten minutes (FUZZ_ARGS=...)"
	@echo "make attack         run the shipped attacks on every level of isolation that this machine offers (ATTACK_ARGS=...)"
	@echo "make engine         test runs against a real vLLM on this machine's processors (AVX-512); installs it in $(ENGINE)"
	@echo "make tiny-rl        teach and train a small transformer through Atropos, three seeds; writes runs/tiny_rl"
	@echo "make lock           pin the requirements anew (UPGRADE=1: to the newest versions)"
	@echo "make env            only set up $(VENV)"
	@echo "make clean          remove what these commands wrote"
	@echo "Variables: VENV=$(VENV) PYTHON=$(PYTHON) JOBS=$(JOBS) PYTEST_ARGS=... DEMO_ARGS=..."

demo:
	@$(setup) run
	$(BIN)/hermes-core run $(DEMO_TASKS) --model oracle --group-size 4 --out $(DEMO_OUT) $(DEMO_ARGS)

# No more threads of `tokenizers` than processors of a small machine: it never recovers where one cannot start.
smoke test test-components test-deep install-alone lowest: export RAYON_NUM_THREADS ?= 2

# Of whatever a test starts, no more than so many processes can live at a time.
pytest = scripts/bounded.sh -p 3000 $(BIN)/python -m pytest

smoke:
	@$(setup) dev
	HERMES_TEST_SHARE=0 $(pytest) -n $(JOBS) -q -m "not components and not deep" $(PYTEST_ARGS)

# Which test belongs where is in tests/tiers.toml.
test:
	@$(setup) dev
	$(pytest) -n $(JOBS) -m "not components and not deep" $(PYTEST_ARGS)

# A component's tests share it, and wait for it: never two of them at once, and more workers than processors.
test-components:
	@$(setup) dev
	$(pytest) -n $(COMPONENT_JOBS) --dist loadgroup -m components $(PYTEST_ARGS)

test-deep:
	@$(setup) dev
	$(pytest) -n $(JOBS) --dist loadgroup -m deep $(PYTEST_ARGS)

# All of them are run before any failure ends the command.
check:
	@$(setup) dev
	@$(MAKE) --keep-going -j $(JOBS) --output-sync=target --no-print-directory check-format check-lint check-style check-requirements check-types check-test-types

check-format:
	$(BIN)/ruff format --check .

check-lint:
	$(BIN)/ruff check .

check-style:
	$(BIN)/python scripts/check_style.py

check-requirements:
	$(BIN)/python scripts/check_requirements.py

check-types:
	$(BIN)/mypy $(SOURCES) scripts conftest.py $(wildcard benchmarks) $(EXAMPLE_MODULES)

check-test-types:
	$(BIN)/python scripts/check_test_types.py $(TEST_FOLDERS)

format:
	@$(setup) dev
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

wheels:
	@$(setup) dev
	$(BIN)/python scripts/build_wheels.py --out dist

install-alone: wheels
	$(BIN)/python scripts/check_wheels.py --wheels dist --jobs $(JOBS) --share $(SHARE) $(if $(REPORTS),--reports $(REPORTS))

# The same with the lowest versions that the packages declare: a lower bound is a tested promise.
lowest: wheels
	$(BIN)/python scripts/check_wheels.py --wheels dist --jobs $(JOBS) --lowest $(if $(REPORTS),--reports $(REPORTS))

bench:
	@$(setup) dev
	$(BIN)/python -m benchmarks.run $(if $(PEERS),--peers-python $(PEERS))

# PEERS: a Python that has vLLM and SGLang; without it their columns stay as they are committed.
bench-parsers:
	@$(setup) dev
	-$(BIN)/python -m benchmarks.parsers.speed --write $(if $(PEERS),--peers-python $(PEERS))
	$(BIN)/python -m benchmarks.parsers.behaviours --write $(if $(PEERS),--peers-python $(PEERS))
	$(BIN)/python -m benchmarks.parsers.readme_tables

# PEERS: a Python that has the peers; without it only those that the development environment has are measured.
bench-tokens:
	@$(setup) dev
	-$(BIN)/python -m benchmarks.tokens.framework_cost --write
	$(BIN)/python -m benchmarks.tokens.scenarios --write $(if $(PEERS),--peers-python $(PEERS))

# Needs a Docker engine and sshd; what is absent is named. PEERS: a Python that has swe-rex.
bench-sandboxes:
	@$(setup) dev
	$(BIN)/python -m benchmarks.sandboxes.backends --write $(if $(PEERS),--peers-python $(PEERS))

# Wants a quiet machine, a Docker engine and sshd; what is absent is named.
bench-capacity:
	@$(setup) dev
	$(BIN)/python -m benchmarks.sandboxes.capacity --write

bench-pool:
	@$(setup) dev
	$(BIN)/python -m benchmarks.pool --write

# Needs Slurm's programs as root; what is absent is named.
bench-cluster:
	@$(setup) dev
	$(BIN)/python -m benchmarks.clusters.cluster --write

soak:
	@$(setup) dev
	$(BIN)/python -m benchmarks.sandboxes.soak --write

# Other texts each time: it prints the seed that repeats them. FUZZ_ARGS="--seed 7 --only hermes lfm2" chooses.
fuzz:
	@$(setup) dev
	$(BIN)/python scripts/fuzz_parsers.py --texts 1000000 $(FUZZ_ARGS)

# They kill, fork and fill: nothing that they start outlives the bound.
attack:
	@$(setup) dev
	scripts/bounded.sh -p 3000 $(BIN)/python scripts/run_attacks.py $(ATTACK_ARGS)

# One engine at a time, and never in CI: 3.5 GB, which are kept.
engine:
	@$(setup) dev
	$(BIN)/python scripts/setup_engine.py $(ENGINE)
	HERMES_TEST_ENGINE=$(abspath $(ENGINE)) $(pytest) -n 0 --timeout 900 tests/engine $(PYTEST_ARGS)

# The framework of its model is installed for it alone. TINY_RL_ARGS="--seeds 1" runs one seed.
tiny-rl:
	@$(setup) dev --also examples/tiny_rl/requirements.txt
	PYTHONPATH=examples $(BIN)/python -m tiny_rl.run $(TINY_RL_ARGS)

lock:
	@$(setup) dev
	$(BIN)/python scripts/lock.py --uv $(BIN)/uv $(if $(UPGRADE),--upgrade)
	@$(setup) dev

env:
	@$(setup) dev

clean:
	rm -rf dist build $(DEMO_OUT) .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
