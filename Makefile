# Every target sets up what it needs; `make` alone prints the help text.
PYTHON ?= python3
BIN := .venv/bin
# Where the public workloads may lie; the first that is there wins, as in voda itself.
DATA = $(firstword $(wildcard $(VODA_DATA)/adaptdl-osdi21 data/adaptdl-osdi21 ../shared/data/adaptdl-osdi21))
WORKERS ?= 2
# Real processes and servers are waited for: two fifths of the time, and two thirds on a real Kubernetes, of which each
# process of the tests runs up to two, of 1.1 GB each.
TEST_WORKERS ?= $(shell echo $$(($(WORKERS) + 1)))
E2E_WORKERS ?= $(shell echo $$((2 * $(WORKERS))))
# Of the simulated control planes: how many, and from which on.
SEEDS ?= 200
FROM ?= 0
# Of the random user: how many steps of each seed.
STEPS ?= 1000
# Of the torture: chance, how often disks suffer, for how long processes do (empty: until enough were killed), and
# which stores' (empty: all).
SEED ?= 1
# Of the mutants: how many, and options: --resume, --retry, --seed 2.
SAMPLE ?= 500
MUTANTS =
ROUNDS ?= 200
SECONDS =
STORES =
DISKS = $(or $(STORES),sqlite postgres jetstream)
# The tests of one process share control planes.
KUBERNETES_TESTS = tests/integration/kubernetes tests/e2e/kubernetes
# Kubelets and containers of their own, by hand.
NODE_TESTS = tests/e2e/node
# NVIDIA's GPUs, by hand.
GPU_TESTS = tests/e2e/gpu
# A real browser.
DASHBOARD_TESTS = tests/e2e/dashboard
# All other tests are either slow or not, so that `make test` and `make check` leave none out and run none twice.
PYTEST = $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal $(patsubst %,--ignore=%,$(KUBERNETES_TESTS) $(NODE_TESTS) $(GPU_TESTS) $(DASHBOARD_TESTS))
# A test that hangs fails, with its stack, and the others go on; one that waits for real peers fails before by itself.
HANGS = --timeout=420
# What a long run took most of its time for.
SLOWEST = --durations=20 --durations-min=5
# Each process of the tests would compile voda anew, were nothing kept.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-vc compare test check slow frameworks dst torture torture-disks torture-processes hostile
.PHONY: e2e e2e-older e2e-node e2e-gpu monkey lint type web web-check
.PHONY: bench bench-kube bench-log fidelity chart format lock house mutants clean

help: ## Print this text.
	@echo "voda: a control plane for elastic deep-learning training"
	@echo
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

setup: ## Make .venv from the lock and install voda into it (at once when nothing changed).
	@$(PYTHON) tools/bootstrap.py

demo: setup ## Run three real training jobs on this machine, and watch them shrink and grow.
	@$(BIN)/python examples/demo.py --out out/demo

demo-vc: setup ## Run two teams of four slots each on this machine; one borrows from the other and gives back.
	@$(BIN)/python examples/demo.py --virtual-clusters --out out/demo-vc

compare: setup ## Compare all policies on measured workloads; pictures under out/compare.
	@rm -rf out/compare
	$(BIN)/voda simulate --workload voda-exp/run_1 --all --out out/compare/voda-exp
ifneq ($(DATA),)
	$(BIN)/voda simulate --workload pollux/workload-6 --all --out out/compare/pollux-6
else
	@echo "The Pollux workloads are not on this machine, so only voda-exp/run_1 was simulated"
	@echo "(docs/workloads.md tells how to get them)."
endif

test: setup ## Run the tests, all but the slow ones: minutes.
	@$(PYTHON) tools/bootstrap.py --postgres
	@$(PYTHON) tools/bootstrap.py --compiler
	$(PYTEST) -m 'not slow'

# As much chaos as every commit has to stand; `make dst torture` is for more. The slow tests ruin disks in more rounds.
check: SEEDS = 30
check: SECONDS = 40
check: web-check slow dst torture-processes hostile e2e ## Run all that `make test` leaves out: slow tests, dst, torture, hostile, e2e.

slow: setup $(if $(filter true,$(CI)),frameworks) ## Run the tests that are marked slow.
	@$(PYTHON) tools/bootstrap.py --postgres
	@$(PYTHON) tools/bootstrap.py --compiler
	$(PYTEST) -m slow $(SLOWEST)

frameworks: setup
	@$(PYTHON) tools/bootstrap.py --torch
	@$(PYTHON) tools/bootstrap.py --mpi

dst: setup ## Search for broken promises in SEEDS simulated control planes, all faults injected.
	$(BIN)/python -m tests.dst --seeds $(SEEDS) --from $(FROM) --jobs $(WORKERS)

torture: torture-disks torture-processes ## Ruin disks, and kill, stop and cut off real processes (SECONDS=60 per store).

# For so many seconds all stores at once, for their processes mostly wait; for so many kills one after the other.
torture-processes: setup
	@$(PYTHON) tools/bootstrap.py --postgres
	printf '%s\n' $(DISKS) | xargs -I STORE -P $(if $(SECONDS),3,1) \
	  $(BIN)/python -m tests.torture --seed $(SEED) $(if $(SECONDS),--seconds $(SECONDS)) --store STORE

hostile: setup ## Let a hostile user and its jobs loose beside an honest one, as root (SECONDS=60 SEED=1).
	@$(PYTHON) tools/bootstrap.py --faketime
	$(BIN)/python -m tests.hostile --seed $(SEED) --seconds $(or $(SECONDS),60)

torture-disks: setup
	@$(PYTHON) tools/bootstrap.py --postgres
	@$(PYTHON) tools/bootstrap.py --compiler
	$(if $(filter sqlite,$(DISKS)),$(BIN)/python -m tests.torture.powercut --rounds $(ROUNDS))
	for store in $(filter-out jetstream,$(DISKS)); do \
	  $(BIN)/python -m tests.torture.damage --store $$store --rounds $(ROUNDS) || exit 1; done
# Each of its rounds starts servers, up to three.
	$(if $(filter jetstream,$(DISKS)),$(BIN)/python -m tests.torture.damage --store jetstream --rounds $$(($(ROUNDS) / 10 + 1)))
	for store in $(DISKS) $(if $(filter jetstream,$(DISKS)),jetstream-limit) $(if $(filter sqlite,$(DISKS)),service); do \
	  $(BIN)/python -m tests.torture.diskfull --store $$store || exit 1; done

e2e: setup ## Run the tests on a real Kubernetes (ENVTEST_K8S_VERSION, KUBEBUILDER_ASSETS), and in a real browser.
	@$(PYTHON) tools/bootstrap.py --kubernetes
	@$(PYTHON) tools/bootstrap.py --browser
	$(BIN)/python -m tools.second_try $(HANGS) -n $(E2E_WORKERS) --dist loadfile --no-loadscope-reorder $(SLOWEST) \
	  $(KUBERNETES_TESTS) $(DASHBOARD_TESTS)

# What depends on the version most: Jobs and their templates, gates, and each operator's job from its start to its end.
e2e-older: setup ## Run some of these tests on the oldest Kubernetes that is supported upstream, 1.35.4.
	@$(PYTHON) tools/bootstrap.py --kubernetes
	ENVTEST_K8S_VERSION=1.35.4 $(BIN)/python -m tools.second_try $(HANGS) -n $(E2E_WORKERS) --dist loadfile --no-loadscope-reorder \
	  $(patsubst %,tests/e2e/kubernetes/test_%.py,jobs gates lifecycle)

monkey: SEEDS = 1
monkey: setup ## Let a random user and random faults loose on a real Kubernetes (STEPS=1000 SEEDS=10 FROM=0 CLAIMS=1).
	@$(PYTHON) tools/bootstrap.py --kubernetes
	$(BIN)/python -m tests.monkey --seed $(FROM) --seeds $(SEEDS) --steps $(STEPS) $(if $(CLAIMS),--claims)

e2e-node: RESIZES = 6
e2e-node: setup ## Install voda by its chart on two real nodes, as root, and train there (RESIZES=50).
	@$(PYTHON) tools/bootstrap.py --nodes
	@$(PYTHON) tools/bootstrap.py --torch
	RESIZES=$(RESIZES) $(BIN)/python -m pytest -p no:xdist -s --durations=8 -o faulthandler_timeout=900 $(NODE_TESTS)

e2e-gpu: setup ## Run the tests on this machine's NVIDIA GPU, whole and shared by MPS.
	@$(PYTHON) tools/bootstrap.py --torch
	$(BIN)/python -m pytest -p no:xdist --durations=8 $(GPU_TESTS)

# The committed files are in the wheel, so that users need no node.
web: ## Build the dashboard from web/ into voda/dashboard/static (needs node, 20.19 or newer).
	@$(PYTHON) tools/bootstrap.py --node
	cd web && npm ci --no-audit --no-fund && npm run build

web-check: ## Check the types of web/, run its tests, and compare what it builds with what is committed, byte for byte.
	@$(PYTHON) tools/bootstrap.py --node
	cd web && npm ci --no-audit --no-fund && npm run check && npm test && npm run build -- --outDir out/static
	diff -r web/out/static voda/dashboard/static

lint: setup ## Check style, format and who may import whom.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

type: setup ## Check types, strictly.
	$(BIN)/mypy $(wildcard voda tests benchmarks migrations tools)

bench: setup ## Measure, and print every figure as a ratio against its yardstick.
	$(BIN)/python -m benchmarks

bench-kube: setup ## Measure voda on a real Kubernetes control plane, all on this machine.
	@$(PYTHON) tools/bootstrap.py --kubernetes
	$(BIN)/python -m benchmarks.kube

bench-log: setup ## Measure the log on every store: appends, tails, starts, simulation.
	@$(PYTHON) tools/bootstrap.py --postgres
	$(BIN)/python -m benchmarks.log

fidelity: setup ## Show that the simulator reproduces published and measured results.
	$(BIN)/python -m benchmarks.fidelity

chart: setup ## Write the Helm chart's values.yaml and README from its schema, and record what Helm renders.
	@$(PYTHON) tools/bootstrap.py --kubernetes
	$(BIN)/python -m tools.chart
	$(BIN)/python -m pytest -q tests/integration/kubernetes/test_chart.py --update-golden

format: setup ## Rewrite the sources in the common format.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: setup ## Resolve the dependencies again (UPGRADE=--upgrade for newer ones).
	$(BIN)/uv pip compile $(LOCKED) pyproject.toml --extra all --output-file requirements.lock
	$(BIN)/uv pip compile $(LOCKED) pyproject.toml --extra all --extra dev --extra examples --constraints requirements.lock \
	  --output-file requirements-dev.lock
	echo 'hatchling>=1.27' | $(BIN)/uv pip compile $(LOCKED) - --constraints requirements-dev.lock \
	  --output-file deploy/build.lock

LOCKED = --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
  --custom-compile-command "make lock" $(UPGRADE)

mutants: setup ## Change the pure core in SAMPLE places, one at a time, and see whether the tests find it.
	$(BIN)/python -m tools.mutants --sample $(SAMPLE) --jobs $(WORKERS) $(MUTANTS)

house: ## Print the figures of the code: lines, names, folders, the largest object, what imports what.
	@$(PYTHON) -m tools.house -v

clean: ## Remove whatever the other targets made.
	rm -rf .venv .venv-torch web/node_modules web/out out dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
