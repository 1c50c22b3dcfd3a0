# Two commands: `make run` opens the dashboard, `make test` runs the tests. `make help` lists the rest.
#
#   EXTRAS=dashboard,onnx   what `make run` installs (default: all)
#   ARGS="…"                passed on: files to open for `run`, pytest's options for `test` and `test-slow`
#   VERSION=0.2.0           the version that `make changelog` writes the changes of
#   PYTHON=python3.12       the Python that makes .venv (default: the first one found that is 3.11 or newer)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

EXTRAS ?= all
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
comma := ,

# One stamp for each set of extras: a second run finds it fresh and starts at once.
stamp = $(VENV)/.installed-$(subst $(comma),-,$(1))
RUN_STAMP := $(call stamp,$(EXTRAS))
TEST_STAMP := $(call stamp,test)
DOCS_STAMP := $(call stamp,docs)
PINS := pyproject.toml requirements.lock

.PHONY: help run test test-slow test-slice mutation lint format docs changelog bench lock wheel browser clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r target text; do \
		printf '%-16s %s\n' "$$target" "$$text"; done

run: $(RUN_STAMP) ## install what is missing, then open the dashboard on 127.0.0.1 (ARGS="file.csv")
	@exec $(BIN)/memplan dashboard $(ARGS)

# Python may keep what it compiles, whatever the environment says: each worker, server and child starts sooner.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -rfEs

test: $(TEST_STAMP) browser ## run all tests except the slow ones (ARGS="-k name" for some)
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: $(TEST_STAMP) browser ## run the slow tests: large models, long searches, hundreds of examples a property
	$(PYTEST) --hypothesis-profile=thorough -m "slow or hypothesis" $(ARGS)

test-slice: $(TEST_STAMP) browser ## run the slow tests that tests/slow_slice.txt lists, as CI does
	$(PYTEST) -m slow @tests/slow_slice.txt $(ARGS)

mutation: $(TEST_STAMP) ## change the core and the checkers, a bit at a time: do tests notice? (ARGS="--sample 20")
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutation $(ARGS)

browser: $(TEST_STAMP) ## find or install the browser that the tests drive
	@scripts/install-browser.sh $(BIN)/python

lint: $(TEST_STAMP) ## ruff, and mypy: strict on the engine and the dashboard
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(TEST_STAMP) ## put the code into ruff's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Read from the sources: nothing of memplan is imported. A draft of the changes fails on a file that is not one.
docs: $(DOCS_STAMP) ## build the documentation into site/, every link checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/towncrier build --draft --version next >/dev/null

changelog: $(DOCS_STAMP) ## move changes/ into CHANGELOG.md (VERSION=0.2.0)
	$(BIN)/towncrier build --yes --version $(VERSION)

bench: $(TEST_STAMP) ## run the benchmarks and print their tables
	$(BIN)/python -m benchmarks $(ARGS)

lock: $(TEST_STAMP) $(DOCS_STAMP) ## write requirements.lock and docs/licences.md anew, from constraints.txt
	$(BIN)/python -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install -q pip-tools
	$(VENV)/lock/bin/pip-compile -q --generate-hashes --allow-unsafe --no-annotate --no-emit-options \
		-o $(VENV)/hashed.txt constraints.txt
	$(BIN)/python scripts/lock.py --write $(VENV)/hashed.txt

wheel: $(TEST_STAMP) ## build the wheel and try it outside the checkout
	@scripts/check-wheel.sh $(BIN)/python

clean: ## remove the virtual environment, caches and build leftovers
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@scripts/make-venv.sh $(VENV) $(PYTHON)

$(VENV)/.installed-%: $(PINS) | $(BIN)/python
	@echo "memplan: installing into $(VENV) (the first time takes a few minutes)"
	@scripts/install.sh $(BIN)/python $(subst -,$(comma),$*)
	@touch $@
