# One command each; `make help` lists them. All lands in this folder (.venv, .tempotrace, lake), but for the caches of
# pip and Maven and what setup.sh says that it installs by apt.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
CODE := schemas producers streams sinks tempotrace loadtest tests
DEMO_ARGS ?=
TEST_ARGS ?=
TEST_JOBS ?= 2
BENCH_ARGS ?=

.PHONY: help setup demo test check bench format lint types imports tidiness lock clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 18

setup: ## install everything needed into .venv (a second run downloads nothing)
	@deploy/setup.sh

demo: setup ## start Kafka, run the whole pipeline on live input (DEMO_ARGS="--json ...")
	@$(BIN)/tempotrace demo $(DEMO_ARGS)

test: setup ## run every test, TEST_JOBS=2 at a time (TEST_ARGS="-k broker ...")
	@$(BIN)/python -m pytest -q -n $(TEST_JOBS) --dist worksteal $(TEST_ARGS)

bench: setup ## measure each stage beside a bare copy (BENCH_ARGS="--json ...")
	@$(BIN)/tempotrace bench $(BENCH_ARGS)

check: setup lint types imports tidiness ## format, lint, types, import contract, tidiness, then every test
	@$(BIN)/python -m pytest -q -n $(TEST_JOBS) --dist worksteal $(TEST_ARGS)

format: setup ## rewrite the code in the agreed format
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix $(CODE)

lint: setup
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/ruff check $(CODE)

types: setup
	@$(BIN)/mypy $(CODE)

imports: setup
	@$(BIN)/lint-imports

tidiness: setup
	@$(BIN)/python -m pytest -q tests/unit/test_tidiness.py

lock: ## write requirements.txt again from pyproject.toml (needs the package index)
	@deploy/lock.sh

clean: ## remove the environment, the broker and all local state; lakes stay
	@rm -rf .venv .tempotrace build *.egg-info
