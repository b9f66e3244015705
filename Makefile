# Two commands matter: `make demo` runs the whole graph in the sandbox, `make test` runs the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCKS := deploy/locks
STAMP := $(VENV)/.installed
UV_FLAGS := --python-version 3.11 --python-platform x86_64-manylinux_2_28 --no-header --no-annotate -q
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup browser demo recorded test lint ui bench lock lock-check clean \
	acceptance-spine acceptance-learning acceptance-environment acceptance-evaluation acceptance-lineage acceptance-scaleout

help: ## say what can be typed
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 26

setup: $(STAMP) ## install everything into .venv

$(STAMP): pyproject.toml $(LOCKS)/cpu.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed. Try: make PYTHON=python3.11 setup")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing packages into $(VENV) (a few minutes the first time)"
	@$(BIN)/pip install -qq --disable-pip-version-check -c $(LOCKS)/cpu.txt -e '.[train,live,dev]'
	@touch $(STAMP)

demo: setup ## run the whole graph in the sandbox, ending with the board
	@source ./env.sh && geo build && geo report

recorded: setup ## the same assets over recorded Mapillary data, and one scripted episode
	@export GEO_PROFILE=recorded && source ./env.sh && geo build && geo walkthrough --out build/recorded

browser: setup ## a browser for the pages' tests, from the system's packages where that is possible
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
		&& echo "Installing chromium for the pages' tests" && apt-get update -qq >/dev/null \
		&& DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; } \
		|| echo "No chromium here: the tests that drive a browser will be skipped (install the package chromium)"

test: setup lint browser ## lint, types, import contract and all fast tests
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow and not gpu"

lint: setup ## ruff, mypy --strict, import contract
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy env_service geo_assets resources sensors
	@$(BIN)/lint-imports

ui: setup ## Dagster's web interface on the sandbox
	@source ./env.sh && dagster dev

bench: setup ## measure against reference methods, as ratios
	@source ./env.sh && geo bench

lock: setup ## resolve both locks anew from pyproject.toml
	@$(BIN)/uv pip compile pyproject.toml --extra gpu --extra live --extra dev $(UV_FLAGS) -o $(LOCKS)/gpu.txt
	@$(BIN)/uv pip compile pyproject.toml --extra train --extra live --extra dev $(UV_FLAGS) -c $(LOCKS)/gpu.txt \
		| grep -vE '^(nvidia-|cuda-|triton)' > $(LOCKS)/cpu.txt.part && mv $(LOCKS)/cpu.txt.part $(LOCKS)/cpu.txt

lock-check: setup ## prove that the GPU lock still resolves, without installing it
	@mkdir -p build && cp $(LOCKS)/gpu.txt build/gpu.txt
	@$(BIN)/uv pip compile pyproject.toml --extra gpu --extra live --extra dev $(UV_FLAGS) -o build/gpu.txt
	@diff $(LOCKS)/gpu.txt build/gpu.txt && echo "The GPU lock resolves to itself."

acceptance-spine: setup ## kill -9 at random moments of the pool, the mirror and a sweep; compare the bytes
	@$(BIN)/python -m pytest -q -m slow tests/acceptance/test_acceptance_spine.py

acceptance-learning: setup ## the whole graph, the learning claims for two seeds, and one training again, byte for byte
	@$(BIN)/python -m pytest -q -s -m slow tests/acceptance/test_acceptance_learning.py

acceptance-environment: setup ## 10,000 fuzzed frames, 200 cut sockets, 1,000 episodes by 8 clients
	@$(BIN)/python -m pytest -q -s -m slow tests/acceptance/test_acceptance_environment.py

acceptance-evaluation: setup ## kill -9 at 50 moments of a sweep, every sin of an endpoint, interval coverage
	@$(BIN)/python -m pytest -q -s -m slow tests/acceptance/test_acceptance_evaluation.py tests/acceptance/test_acceptance_coverage.py

acceptance-lineage: setup ## the staleness table on the real sandbox graph, and jobs that outlive their orchestrator
	@$(BIN)/python -m pytest -q -s -m slow tests/acceptance/test_acceptance_lineage.py \
		tests/acceptance/test_acceptance_lineage_jobs.py tests/acceptance/test_acceptance_lineage_rented.py \
		tests/acceptance/test_acceptance_sensors.py

acceptance-scaleout: setup ## the mirror over workers that are killed, onto S3 and Postgres on loopback; the same bytes
	@$(BIN)/python -m pytest -q -s -m slow tests/acceptance/test_acceptance_scaleout.py

clean: ## remove what the sandbox made; the environment stays
	@rm -rf .geo/sandbox build
