# `make demo` and `make test` do everything on a fresh machine with Python 3.11+, make and git.
PYTHON ?= python3
BIN := .venv/bin
USE := .venv/.installed-for-use
DEVELOP := .venv/.installed-for-development

.PHONY: demo test test-fast test-slow test-long lint format catalogue clean

demo: $(USE)  ## train X-FED, FedPer, FedAvg and Local on the embedded data; table and figure under runs/demo
	$(BIN)/xfed compare --methods xfed,fedper,fedavg,local --out runs/demo

test: lint test-fast  ## lint, types, import direction, fast tests

test-fast: $(DEVELOP)  ## the fast tests alone
	$(BIN)/pytest -n auto -m "not slow"

test-slow: $(DEVELOP)  ## what takes longer: bits of every method, a clean installation of the wheel
	$(BIN)/pytest -n auto -m "slow and not long"

test-long: $(DEVELOP)  ## what takes minutes: federations of real Flower nodes, killed and resumed
	$(BIN)/pytest -m long

lint: $(DEVELOP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(DEVELOP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

catalogue: $(DEVELOP)  ## describe methods, data sets, models and engines anew, for listings without torch
	$(BIN)/python -m xfed.cli.listing

clean:
	rm -rf .venv runs dist build runtime/build

$(USE): pyproject.toml runtime/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ./runtime --editable .
	touch $@

$(DEVELOP): pyproject.toml runtime/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ./runtime --editable '.[dev]'
	touch $@ $(USE)
