# `make demo` and `make test` need git, make, python3 (3.11 to 3.13) with venv, and a package index; each installs what it needs into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
DOCS_INSTALLED := $(VENV)/installed-docs

DATA ?=
OUTPUT ?= demo
STEPS ?=

# A file's tests stay together, since they share what is costly to make. XLA keeps what it compiles, some 15 GB in all at
# the end, shared among the processes: three at most.
AT_ONCE := -n logical --maxprocesses 3 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help install demo pictures test test-all lint format types docs dist clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## make .venv with the package and its development tools

demo: $(INSTALLED) ## run the main job on a small spoken corpus, or on DATA=path/to/LJSpeech-1.1
	$(BIN)/xtts demo --output "$(OUTPUT)" $(if $(DATA),--data "$(DATA)") $(if $(STEPS),--steps $(STEPS))

pictures: $(INSTALLED) ## make the pictures of README and docs from the demo, which it runs if needed; needs Chromium
	$(BIN)/python benchmarks/pictures.py --demo "$(OUTPUT)"

test: $(INSTALLED) ## run the tests, but for those marked slow, as many at once as there are cores, three at most
	$(BIN)/python -m pytest $(AT_ONCE)

test-all: $(INSTALLED) ## run every test
	$(BIN)/python -m pytest -m ""

lint: $(INSTALLED) ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(INSTALLED) ## mend what the linter and the formatter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(INSTALLED) ## check types
	$(BIN)/mypy

docs: $(DOCS_INSTALLED) ## build the documentation into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

dist: $(INSTALLED) ## build the sdist and the wheel in dist/
	$(BIN)/python -m build

clean: ## remove everything made here but the cache
	rm -rf $(VENV) build dist demo site *.egg-info .pytest_cache .hypothesis .ruff_cache .mypy_cache
	find xtts_pipeline tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is younger than what decides the versions, so a second run installs nothing.
$(INSTALLED): setup.cfg pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || { \
	  echo "$(PYTHON): found $$($(PYTHON) --version 2>/dev/null || echo none), expected Python 3.11 to 3.13;" \
	    "run make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
