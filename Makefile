# Everything a newcomer types. `make` alone prints this help.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools
DOCS := $(VENV)/.docs
SEED ?=
# Tests wait more than they compute: three for each of two cores keep both busy.
PROCESSES ?= 5
PYTEST = $(BIN)/python -m pytest --dist loadfile --durations 20 $(if $(SEED),--randomly-seed $(SEED) --hypothesis-seed $(SEED))
export SIZE
# Where compiled modules are not kept, every process that is started compiles all of ours anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo up test test-whole test-fast fuzz worlds lab lab-down cluster drill compat planted check shape words fmt pages docs bench soak lock clean rehearsal release-check

help: ## print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The stamps are written last, so an interrupted install is done again. `uv` installs in seconds what takes `pip` minutes,
# and compiles all modules at once; where it cannot be had, `pip` does it. Both take only what the hashes in the locks name.
$(READY): requirements-up.lock requirements-uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Haulage needs Python 3.11 or newer: set PYTHON=python3.11 (or newer).")'
	@echo "Making the environment $(VENV)."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(call install,requirements-up.lock,Haulage)
	@printf '#!/bin/sh\nPYTHONPATH="%s" exec "%s/python" -m cli "$$@"\n' '$(CURDIR)' '$(CURDIR)/$(BIN)' > $(BIN)/haulage
	@chmod +x $(BIN)/haulage
	@touch $@

$(TOOLS): $(READY) requirements-dev.lock
	@$(call install,requirements-dev.lock,checks and tests)
	@touch $@

$(DOCS): $(TOOLS) requirements-docs.lock
	@$(call install,requirements-docs.lock,the site of the documents)
	@touch $@

PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes --requirement
UV := $(BIN)/uv pip install --python $(BIN)/python --cache-dir $(VENV)/.cache --require-hashes --compile-bytecode --requirement
define install
echo "Installing what $(2) needs: those packages of $(1) that are for this machine."; \
if { test -x $(BIN)/uv || { echo "First uv, which installs the others."; $(PIP) requirements-uv.lock; }; } && $(UV) $(1); then rm -rf $(VENV)/.cache; \
else rm -rf $(VENV)/.cache; echo "uv could not do it; pip takes some minutes."; $(PIP) $(1); fi
endef

demo: $(READY) ## show every system at real work and check the outcome; SYSTEM=orders shows one
	$(BIN)/haulage demo $(SYSTEM)

up: $(READY) ## start everything and stay: API, workers, engine, database, object store, stand-ins
	$(BIN)/haulage up

test: $(TOOLS) ## what every change must pass; SEED=… repeats a run, PROCESSES=2 needs less memory
	$(PYTEST) --numprocesses $(PROCESSES) -m "not long and not soak"

test-whole: $(TOOLS) ## the same and the tests that take long for what seldom breaks
	$(PYTEST) --numprocesses $(PROCESSES)

test-fast: $(TOOLS) ## unit tests and recorded histories, without any part: those of `make test`
	$(PYTEST) --numprocesses 3 -m "not long and not soak" tests/unit tests/replay

fuzz: $(TOOLS) ## 50,000 and more requests that no document allows, counted at the end, and templates that nobody would write
	FUZZ_EXAMPLES=100 FUZZ_HEADERS=50000 $(PYTEST) --numprocesses 2 --timeout 3600 tests/fuzz

worlds: SEED := $(or $(SEED),$(shell date +%s))
worlds: $(TOOLS) ## play many worlds: SYSTEM=downloads N=1000; SEED=… repeats a run, or goes on with it
	@echo "SEED=$(SEED) plays these worlds again, and goes on where a run of the same code was broken off."
	WORLDS=$(or $(N),1000) WORLDS_SEED=$(SEED) WORLDS_FOLDER=$(CURDIR)/.haulage-worlds $(BIN)/python -m pytest --numprocesses 0 --capture no --timeout 14400 -m "soak or not soak" tests/worlds/test_$(or $(SYSTEM),downloads).py

lab: $(TOOLS) ## what deploy/ ships, on seventeen hosts of this machine until Ctrl-C; needs root, Go and packages that it names
	$(BIN)/python -m lab

lab-down: ## end the lab of this folder
	$(BIN)/python -m lab down

cluster: $(TOOLS) ## lose hosts of the lab, and cut them off, under load of all systems: N=100 faults, SEED=1
	$(BIN)/python -m tests.cluster $(or $(N),100) $(or $(SEED),1) $(KINDS)

drill: $(TOOLS) ## back up the lab under work of all systems, destroy all its hosts, restore, and compare
	$(BIN)/python -m tests.cluster.drill

rehearsal: $(TOOLS) ## roll the next version in and back under load of all systems: about ten minutes; before a release
	$(BIN)/python -m tests.rehearsal $(SEED)

release-check: $(TOOLS) ## all that must hold before a release, in a clean clone of the last commit; takes hours, SEED=… goes on with a run
	$(BIN)/python -m tests.release $(SEED)

compat: $(TOOLS) ## build flowSvr's own Go SDK and have its workers do 2,000 tasks; COMPAT_SDK=… names a checkout of it
	@command -v go >/dev/null || { echo "Go is missing: apt-get install --no-install-recommends golang-go"; exit 1; }
	@command -v redis-server >/dev/null || command -v valkey-server >/dev/null || { echo "Redis is missing: apt-get install --no-install-recommends redis-server"; exit 1; }
	COMPAT_TASKS=$(or $(N),2000) COMPAT_SDK=$(COMPAT_SDK) $(BIN)/python -m pytest --numprocesses 0 --capture no --timeout 1800 tests/compat

planted: $(TOOLS) ## plant defects in copies of the tree, one at a time: a test must notice each; before a release
	$(BIN)/python -m tests.planted

check: $(TOOLS) ## the static checks: ruff, mypy, import rules, shape and words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m checks.shape
	$(BIN)/python -m checks.words

shape: $(TOOLS) ## count files, lines and small modules of the server; --list of checks.shape names them
	$(BIN)/python -m checks.shape

words: $(TOOLS) ## count words and names that only we would understand; --list of checks.words names them
	$(BIN)/python -m checks.words

fmt: $(TOOLS) ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

pages: $(TOOLS) ## write anew what is generated from the code: references, tables, dashboards, the picture of the layers
	for each in settings_reference architecture_picture observability operations retention wire_names; do $(BIN)/python -m tests.support.$$each || exit; done
	$(BIN)/python -m tests.replay.fingerprints

docs: $(DOCS) ## build the documents and the references of API, problems and commands into build/docs/html; fails at a broken link
	$(BIN)/python -m tests.support.site

bench: $(TOOLS) ## measure; `make bench-foundation` runs one system, SIZE=small is quick, RUNS=3 records the medians of three runs, STRICT=1 fails where a ratio fell by a quarter
	$(BIN)/python -m bench $(if $(STRICT),--strict)

bench-%: $(TOOLS)
	$(BIN)/python -m bench $*

soak: $(TOOLS) ## the long fault and endurance runs
	$(BIN)/python -m pytest -m soak --timeout 3600

lock: $(TOOLS) ## renew the pinned versions and the bill of materials; fails if a licence is not permitted, a version withdrawn, or a package abandoned or dormant
	$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade uv
	echo uv | $(LOCK) - -o requirements-uv.lock
	$(LOCK) --upgrade --extra server --extra embedded --extra dev pyproject.toml -o requirements-dev.lock
	$(LOCK) --constraint requirements-dev.lock --extra server --extra embedded pyproject.toml -o requirements-up.lock
	$(LOCK) --constraint requirements-dev.lock --extra server pyproject.toml -o requirements.lock
	$(LOCK) --constraint requirements-dev.lock --extra docs pyproject.toml -o requirements-docs.lock
	@$(MAKE) --no-print-directory $(DOCS)
	$(BIN)/python -m checks.sbom

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url

# A running installation locks its folder; the demo has one inside.
define REQUIRE_DATA_UNUSED
import fcntl, pathlib, sys
for lock in sorted(pathlib.Path(".haulage").glob("**/run.lock")):
    try:
        fcntl.flock(lock.open("a"), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"make clean would remove all data of what runs in {lock.parent}. Stop that first; nothing was removed.")
endef
export REQUIRE_DATA_UNUSED

clean: ## remove all data of `make up` and `make demo`, and what was installed; refused while one of them runs
	@$(PYTHON) -c "$$REQUIRE_DATA_UNUSED"
	rm -rf $(VENV) .haulage .mypy_cache .ruff_cache .pytest_cache .hypothesis
