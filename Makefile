# Everything a newcomer types. `make` alone prints this help.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SEED ?=
export SIZE

.PHONY: help demo up test check fmt bench soak lock clean

help: ## print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The stamp is written last, so an interrupted install is done again.
$(READY): requirements-dev.lock
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Haulage needs Python 3.11 or newer: set PYTHON=python3.11 (or newer).")'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes --requirement requirements-dev.lock
	printf '#!/bin/sh\nPYTHONPATH="%s" exec "%s/python" -m cli "$$@"\n' '$(CURDIR)' '$(CURDIR)/$(BIN)' > $(BIN)/haulage
	chmod +x $(BIN)/haulage
	touch $@

demo: $(READY) ## export 200,000 rows through the whole house and check the file row by row
	$(BIN)/haulage demo

up: $(READY) ## start everything and stay: API, workers, engine, database, object store
	$(BIN)/haulage up

test: $(READY) ## the whole test suite
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile $(if $(SEED),--randomly-seed $(SEED) --hypothesis-seed $(SEED))

check: $(READY) ## the static checks: ruff, mypy, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

fmt: $(READY) ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## measure; `make bench-foundation` runs one room, SIZE=small is quick
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
