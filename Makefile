# `make demo` and `make test` do everything on a fresh machine with Python 3.11+, make and git.
PYTHON ?= python3
BIN := .venv/bin
USE := .venv/.installed-for-use
DEVELOP := .venv/.installed-for-development

.PHONY: help demo test test-fast test-slow test-long lint format catalogue lock audit licences sbom docs docs-serve wheels clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(USE)  ## train X-FED, FedPer, FedAvg and Local on the embedded data; table, figure and report under runs/demo
	$(BIN)/xfed compare --methods xfed,fedper,fedavg,local --out runs/demo
	$(BIN)/xfed report runs/demo -o runs/demo/report.html

test: lint test-fast  ## lint, types, import direction, fast tests

test-fast: $(DEVELOP)  ## the fast tests alone
	$(BIN)/pytest -n auto --dist worksteal --durations 12 -m "not slow"

test-slow: $(DEVELOP)  ## what takes longer: bits of every method, every page of the docs, clean installations
	$(BIN)/pytest -n auto --dist worksteal --durations 25 --timeout 1500 -m "slow and not long"

test-long: $(DEVELOP)  ## what takes minutes: larger federations of real Flower nodes, killed and come back; every method on Ray
	$(BIN)/pytest -m long --timeout 3600

lint: $(DEVELOP)  ## style, types, import direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/vulture

format: $(DEVELOP)  ## put code into the house's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

catalogue: $(DEVELOP)  ## describe methods, data sets, models and engines anew, for listings without torch
	$(BIN)/python -m xfed.cli.listing

lock: $(DEVELOP)  ## write requirements.lock: exact versions of everything for development, with hashes
	.ci/lock

audit: $(DEVELOP)  ## look up known vulnerabilities of what requirements.lock names; needs a network
	$(BIN)/uv tool run pip-audit@2.10.1 --require-hashes --disable-pip -r requirements.lock

licences: $(DEVELOP)  ## list the licences of all dependencies in docs/licences.md
	printf "\043 Licences of dependencies\n\n" > docs/licences.md
	$(BIN)/uv tool run pip-licenses@5.5.5 --python=$(BIN)/python --ignore-packages xfed xfed-runtime --format=markdown >> docs/licences.md

sbom: $(DEVELOP)  ## write what requirements.lock names as a CycloneDX bill of materials, dist/xfed.cdx.json
	mkdir -p dist
	$(BIN)/uv tool run --from cyclonedx-bom@7.5.0 cyclonedx-py requirements --pyproject pyproject.toml -o dist/xfed.cdx.json requirements.lock

docs: $(DEVELOP)  ## build the documentation into site/; broken links fail
	$(BIN)/python docs/figures/imports.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(DEVELOP)  ## show the documentation while you write it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

wheels: $(DEVELOP)  ## build wheels and source distributions of both packages into dist/
	$(BIN)/python -m build --outdir dist runtime
	$(BIN)/python -m build --outdir dist .

clean:  ## remove everything that was made
	rm -rf .venv runs dist build runtime/build site

$(USE): pyproject.toml runtime/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ./runtime --editable .
	touch $@

$(DEVELOP): pyproject.toml runtime/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ./runtime --editable '.[dev]'
	touch $@ $(USE)
