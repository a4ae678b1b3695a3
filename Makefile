# Everything a newcomer types. `make` alone prints this help.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SEED ?=
# Tests wait more than they compute: three for each of two cores keep both busy.
PROCESSES ?= 6
PYTEST = $(BIN)/python -m pytest --dist loadfile --durations 20 $(if $(SEED),--randomly-seed $(SEED) --hypothesis-seed $(SEED))
export SIZE
# Where compiled modules are not kept, every process that is started compiles all of ours anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo up test test-fast fuzz worlds compat planted check shape words fmt bench soak lock clean

help: ## print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The stamp is written last, so an interrupted install is done again.
$(READY): requirements-dev.lock
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Haulage needs Python 3.11 or newer: set PYTHON=python3.11 (or newer).")'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes --requirement requirements-dev.lock
	printf '#!/bin/sh\nPYTHONPATH="%s" exec "%s/python" -m cli "$$@"\n' '$(CURDIR)' '$(CURDIR)/$(BIN)' > $(BIN)/haulage
	chmod +x $(BIN)/haulage
	touch $@

demo: $(READY) ## show every system at real work and check the outcome; SYSTEM=orders shows one
	$(BIN)/haulage demo $(SYSTEM)

up: $(READY) ## start everything and stay: API, workers, engine, database, object store, stand-ins
	$(BIN)/haulage up

test: $(READY) ## the whole test suite; SEED=… repeats a run, PROCESSES=4 needs less memory
	$(PYTEST) --numprocesses $(PROCESSES)

test-fast: $(READY) ## unit tests and recorded histories, without any part
	$(PYTEST) --numprocesses 2 tests/unit tests/replay

fuzz: $(READY) ## many more requests that no document allows, and templates that nobody would write
	FUZZ_EXAMPLES=100 $(PYTEST) --numprocesses 2 --timeout 3600 tests/fuzz

worlds: SEED := $(or $(SEED),$(shell date +%s))
worlds: $(READY) ## play many worlds: SYSTEM=downloads N=1000; SEED=… repeats a run, or goes on with it
	@echo "SEED=$(SEED) plays these worlds again, and goes on where a run of the same code was broken off."
	WORLDS=$(or $(N),1000) WORLDS_SEED=$(SEED) WORLDS_FOLDER=$(CURDIR)/.haulage-worlds $(BIN)/python -m pytest --numprocesses 0 --capture no --timeout 14400 -m "soak or not soak" tests/worlds/test_$(or $(SYSTEM),downloads).py

compat: $(READY) ## build flowSvr's own Go SDK and have its workers do 2,000 tasks; COMPAT_SDK=… names a checkout of it
	@command -v go >/dev/null || { echo "Go is missing: apt-get install --no-install-recommends golang-go"; exit 1; }
	@command -v redis-server >/dev/null || command -v valkey-server >/dev/null || { echo "Redis is missing: apt-get install --no-install-recommends redis-server"; exit 1; }
	COMPAT_TASKS=$(or $(N),2000) COMPAT_SDK=$(COMPAT_SDK) $(BIN)/python -m pytest --numprocesses 0 --capture no --timeout 1800 tests/compat

planted: $(READY) ## plant defects in copies of the tree, one at a time: a test must notice each; before a release
	$(BIN)/python -m tests.planted

check: $(READY) ## the static checks: ruff, mypy, import rules, shape and words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m checks.shape
	$(BIN)/python -m checks.words

shape: $(READY) ## count files, lines and small modules of the server; --list of checks.shape names them
	$(BIN)/python -m checks.shape

words: $(READY) ## count words and names that only we would understand; --list of checks.words names them
	$(BIN)/python -m checks.words

fmt: $(READY) ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## measure; `make bench-foundation` runs one system, SIZE=small is quick
	$(BIN)/python -m bench

bench-%: $(READY)
	$(BIN)/python -m bench $*

soak: $(READY) ## the long fault and endurance runs
	$(BIN)/python -m pytest -m soak --timeout 3600

lock: $(READY) ## renew the pinned versions
	$(BIN)/python -m pip install -qq --disable-pip-version-check uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --extra server pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --extra server --extra embedded --extra dev pyproject.toml -o requirements-dev.lock

clean: ## remove what was installed and what the embedded parts keep
	rm -rf $(VENV) .haulage .mypy_cache .ruff_cache .pytest_cache .hypothesis
