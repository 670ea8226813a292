# Every target sets up what it needs: Python 3.11 or later, pip, git and make are enough.

PYTHON ?= python3
PROCESSES ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
ARGS ?=
SEEDS ?= 20000
FROM ?= 0

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS := dev

# Tests start hundreds of processes; without bytecode each of them would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run tour test sample faults browser check docs claims sim bench bench-peers dist hashes sbom format clean
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(READY)  ## the demonstration: a worker, example jobs and the dashboard (ARGS="--for 20")
	$(BIN)/holdfast demo $(ARGS)

tour: $(READY)  ## a tour in the terminal: jobs that succeed, are retried, fail, wait, and survive kill -9
	$(BIN)/python examples/tour.py $(ARGS)

test: $(READY)  ## the tests, on both stores (PROCESSES=4, ARGS="-k abort"; without it, one more than there are cores)
	$(BIN)/python -m pytest -q -n $(PROCESSES) --dist worksteal --ignore tests/faults $(ARGS)

sample: $(READY)  ## a sample of what has a command of its own: faults, pages in a browser if there is one, the bench
	$(BIN)/python -m pytest -q -rs -n $(PROCESSES) --dist worksteal tests/faults tests/browser/test_live.py
	$(BIN)/python -m bench --quick --only exec-sqlite enqueue-postgres workflows-sqlite --json build/sample.json

faults: $(READY)  ## fault tests at their full size, one at a time, on both stores, and docs/fault-report.md; takes an hour and a half, and half an hour with ARGS="-n 3 --dist worksteal"
	$(BIN)/python -m pytest -q -m "faults or fault" --fault-report=docs/fault-report.md $(ARGS)

browser: $(READY)  ## every page in the system's Chromium (ARGS="--pictures" keeps the pictures of the docs)
	$(BIN)/python -m pytest -q -rs tests/browser $(ARGS)

check: $(READY)  ## format, lint, types, import contracts, guarantees and generated docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python docs/claims.py --check
	$(BIN)/python -m docs.schema --check
	$(BIN)/python -m docs.generator --check

docs: $(READY)  ## write the generated pages, and the dumps of both schemas
	$(BIN)/python docs/claims.py --write
	$(BIN)/python -m docs.schema --write
	$(BIN)/python -m docs.generator --write

claims: $(READY)  ## which tests hold which guarantee, and which guarantee has none
	$(BIN)/python docs/claims.py

sim: $(READY)  ## play many seeds of the simulation (SEEDS=20000 FROM=0 STORE=sqlite, or postgres)
	SEEDS=$(SEEDS) FROM=$(FROM) STORE=$(STORE) $(BIN)/python -m tests.simulation

bench: $(READY)  ## measure throughput, latency and memory on this machine
	$(BIN)/python -m bench $(ARGS)

bench-peers: $(READY)  ## the same measures for other queues, each in an environment of its own
	$(BIN)/python -m bench.peers $(ARGS)

dist: $(READY)  ## wheel and source distribution of the last commit in dist/, checked and installed on every Python found (ARGS=--quick: not installed)
	$(BIN)/python -m release.distributions $(ARGS)

hashes: $(READY)  ## write constraints-hashes.txt: the pins that users need, with the hashes of all their files
	CUSTOM_COMPILE_COMMAND="make hashes" $(BIN)/pip-compile --quiet $(foreach extra,postgres traces web yaml,--extra $(extra)) --constraint constraints.txt --generate-hashes \
		--no-annotate --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras \
		--output-file constraints-hashes.txt pyproject.toml

sbom: $(READY)  ## write dist/sbom.cdx.json: everything that Holdfast runs with, as CycloneDX
	$(BIN)/python -m release.bill_of_materials dist/sbom.cdx.json

format: $(READY)  ## rewrite the code in the house style
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format --quiet .

clean:  ## remove what the other targets made
	rm -rf $(VENV) .pg bench/environments build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS)]' -c constraints.txt
	@touch $@
