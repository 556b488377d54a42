# Tidemark's front door. `make help` lists the targets; continuous integration runs exactly `make test`.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
# trust what the machine trusts: behind a proxy of a company its certificate is known there only
export UV_SYSTEM_CERTS ?= true
UV_VERSION := 0.13.8
UV = $(shell command -v uv || echo .uv/bin/uv)
CODE := spark_jobs expectations dags docs tests
VENDOR := spark_jobs/portal/vendor

# the first Python that works and is new enough; a version manager's shim may exist and not work
SUITABLE := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))
PYTHON ?= $(shell for python in python3.11 python3.12 python3; do \
	if "$$python" -c '$(SUITABLE)' 2>/dev/null; then echo "$$python"; break; fi; done)

# `make audit`: how long it may take, and `AUDIT=--if-reachable`, with which it passes where no advisory can be read
AUDIT_SECONDS ?= 600
AUDIT ?=
# of `make test-slice`: the minutes in which test files begin
TIDEMARK_SLICE_MINUTES ?= 20
# … and its tests, by their markers
SLICE ?= long or turns

# the last words of `make setup`, if there was anything to set up
define NEXT
"" "Tidemark is set up. Next:" \
"  source .venv/bin/activate" \
"  tidemark try FILE...      your own CSV, NDJSON or Parquet files, without a server" \
"  tidemark                  says what to do next, at any time" \
"  make demo                 the whole way on real data, with Airflow"
endef

.PHONY: help setup setup-s3 setup-postgresql setup-kafka setup-lineage programs up down demo test test-served test-others test-long test-slice test-fast chaos attack lint map words format docs vendor sbom audit clean check-tools

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.ready .jars/.ready ## the environment from the lock, and Delta's jars (nothing to do the second time)
	@:

setup-s3: setup .jars/s3/.ready ## what a lake on S3 needs beside it: 13 MB of jars

setup-postgresql: setup .jars/postgresql/.ready ## what sources that read tables of PostgreSQL need beside it: its driver, 1 MB

setup-kafka: setup .jars/kafka/.ready ## what sources that read topics need beside it: 10 MB of jars

setup-lineage: setup .jars/lineage/.ready ## what telling lineage needs (TIDEMARK_LINEAGE): 43 MB of jar, and Airflow's provider

programs: ## compose, helm and versitygw into .programs, if Go is here: tests of the files below docker/ use them
	@if command -v go >/dev/null; then .ci/programs .programs; else echo "Go is not here; tests that need its programs are skipped" >&2; fi

up: setup ## start the lake server and Airflow
	$(BIN)/tidemark up

down: ## end the lake server and Airflow
	@if [ -x $(BIN)/tidemark ]; then $(BIN)/tidemark down; else echo "nothing is set up"; fi

demo: setup ## the whole way on real input: a week of flights through Airflow, then the results
	$(BIN)/tidemark demo

test: setup setup-postgresql setup-kafka docs ## documentation, lint, types, and every test but the long ones and those that wait for their turn
	@# all at once: tests with servers wait for them most of the time, and leave a core to the others
	$(MAKE) --no-print-directory --jobs=3 lint test-served test-others

test-served test-others: export TIDEMARK_TEST_SHARE ?= 0.3
test-served test-others: export TIDEMARK_TEST_TURNS ?= 0.05

test-served: setup setup-postgresql setup-kafka ## of `make test` the tests that start servers
	$(BIN)/pytest -m "(server or airflow) and not long" --durations=40

test-others: setup setup-postgresql setup-kafka ## of `make test` the others, two files at a time
	$(BIN)/pytest -n 2 --dist loadfile -m "not long and not server and not airflow" --durations=40

test-long: setup setup-postgresql setup-kafka setup-lineage ## the demo as a test, any slicing of days, a run killed after each of its commits and what else takes a minute or more; all random cases (over an hour)
	$(BIN)/pytest -m "long or turns or share or (hypothesis and not server)"

test-slice: setup setup-postgresql setup-kafka setup-lineage ## of the long tests and those in turns, as many files as begin within TIDEMARK_SLICE_MINUTES; other ones at each commit
	TIDEMARK_SLICE_MINUTES=$(TIDEMARK_SLICE_MINUTES) $(BIN)/pytest -m "$(SLICE)" --durations=20

attack: setup ## what SECURITY.md promises, tried against a running server: statements as a reader and as a writer, and listeners
	$(BIN)/pytest -m attack

chaos: setup ## 200 faults against runs of seven days, each followed by the way on; TIDEMARK_CHAOS_SEED, _FAULTS and _SECONDS choose
	$(BIN)/python -m tests.chaos.campaign

# compiled tests are kept, also where the environment says otherwise: two workers take 3 s to compile them
test-fast: setup ## tests that start no JVM and no server and are not slow, with a twentieth of the random cases that `make test` tries
	PYTHONDONTWRITEBYTECODE= TIDEMARK_TEST_SHARE=0.05 $(BIN)/pytest -n 2 --dist loadscope --ignore tests/sources/test_sample.py -m "not spark and not server and not airflow and not long and not slow" tests/engine tests/definitions tests/restatement tests/reads tests/architecture tests/sources tests/storage tests/cli

lint: setup .jars/scalafmt/.ready ## ruff, mypy and scalafmt
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/mypy --package docs
	$(BIN)/python -m tests.jvm.scala_format --test

map: setup ## rooms of the code with their sizes and imports, circles, and the functions that a stage calls
	$(BIN)/python -m tests.architecture.map

words: setup ## hard words in names and docstrings, by room; AT=REVISION counts in another revision
	$(BIN)/python -m tests.architecture.words $(if $(AT),--at $(AT))

format: setup .jars/scalafmt/.ready ## rewrite the code as ruff and scalafmt format it
	$(BIN)/ruff check --fix-only --quiet $(CODE)
	$(BIN)/ruff format $(CODE)
	$(BIN)/python -m tests.jvm.scala_format

docs: .venv/.ready .docs/.ready ## the documentation as a site of files, site/index.html; its reference is made of the code
	$(BIN)/python -m docs.generate
	@# else the theme advertises its successor at each build
	NO_MKDOCS_2_WARNING=true .docs/bin/mkdocs build --quiet --strict
	@echo "the documentation is $(CURDIR)/site/index.html"

vendor: ## the portal's style sheet, charts and editor anew from npm, in the versions of their lock; `git diff` shows what differs (needs npm)
	rm -rf .vendor && mkdir .vendor
	cp $(VENDOR)/package.json $(VENDOR)/package-lock.json $(VENDOR)/.npmrc $(VENDOR)/codemirror.entry.mjs .vendor/
	cd .vendor && npm ci --silent
	cp .vendor/node_modules/@picocss/pico/css/pico.min.css .vendor/node_modules/echarts/dist/echarts.min.js $(VENDOR)/
	cp .vendor/node_modules/@picocss/pico/LICENSE.md $(VENDOR)/licences/pico.md
	cp .vendor/node_modules/echarts/LICENSE $(VENDOR)/licences/echarts.txt
	cp .vendor/node_modules/echarts/NOTICE $(VENDOR)/licences/echarts-notice.txt
	cp .vendor/node_modules/echarts/licenses/LICENSE-d3 $(VENDOR)/licences/d3.txt
	cp .vendor/node_modules/zrender/LICENSE $(VENDOR)/licences/zrender.txt
	cp .vendor/node_modules/tslib/LICENSE.txt $(VENDOR)/licences/tslib.txt
	cd .vendor/node_modules && for package in @codemirror/* @lezer/* @marijn/* crelt style-mod w3c-keyname; do \
		cp $$package/LICENSE $(CURDIR)/$(VENDOR)/licences/$$(echo $$package | tr -d @ | tr / -).txt; done
	cd .vendor && node_modules/.bin/esbuild codemirror.entry.mjs --bundle --minify --format=iife --global-name=CodeMirror \
		--target=es2022 --legal-comments=none --log-level=warning --outfile=$(CURDIR)/$(VENDOR)/codemirror.min.js
	cd $(VENDOR) && sha256sum pico.min.css echarts.min.js codemirror.min.js licences/* > SHA256SUMS
	rm -rf .vendor

sbom: setup .audit/.ready ## what is installed, as sbom.json (CycloneDX): packages with licences, and Delta's jars
	.audit/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON -o .audit/packages.json $(BIN)/python
	$(BIN)/python -m spark_jobs.server.sbom .audit/packages.json sbom.json

audit: setup .audit/.ready ## fail if a package of the lock has a known vulnerability that a newer version mends
	@rm -f .audit/findings.json
	@# it fails where it finds something, and where it can't look; what its report says counts
	timeout $(AUDIT_SECONDS) .audit/bin/pip-audit --require-hashes --disable-pip -r requirements.lock --progress-spinner off -f json -o .audit/findings.json 2> .audit/pip-audit.log || true
	$(BIN)/python -m spark_jobs.server.audit .audit/findings.json $(AUDIT)

clean: down ## remove the environment, jars and caches; data under .tidemark stays
	rm -rf .venv .uv .jars .audit .docs docs/reference site sbom.json .pytest_cache .mypy_cache .ruff_cache .hypothesis dbt/target dbt/logs
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

check-tools:
	@if [ -z "$(PYTHON)" ] || ! "$(PYTHON)" -c '$(SUITABLE)' 2>/dev/null; then \
		python="$(or $(PYTHON),python3)"; \
		echo "Tidemark needs Python 3.11 or 3.12; found: $$("$$python" --version 2>&1 || echo none)." >&2; \
		echo "Install one (Debian, Ubuntu: apt-get install python3 python3-pip), or name it: make PYTHON=/path/to/python setup" >&2; \
		exit 1; fi
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version="$$("$$java" -version 2>&1 | sed -nE '1s/.*"(1\.)?([0-9]+).*/\2/p' || true)"; \
	if [ "$${version:-0}" -lt 17 ]; then \
		echo "Spark needs Java 17 or newer; found: $${version:-none}." >&2; \
		echo "Install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) and run make again." >&2; \
		exit 1; fi

.venv/.ready: requirements.lock pyproject.toml | check-tools
	@if ! [ -x "$$(command -v $(UV))" ]; then \
		echo "fetching uv $(UV_VERSION), which installs packages, into .uv (seconds)"; \
		PIP_ROOT_USER_ACTION=ignore $(PYTHON) -m pip install --quiet --disable-pip-version-check --target .uv --upgrade "uv==$(UV_VERSION)" \
		|| { echo "uv is missing and pip did not bring it; install uv or python3-pip" >&2; exit 1; }; fi
	@if ! $(BIN)/python -c '$(SUITABLE)' 2>/dev/null; then $(UV) venv --quiet --clear --python "$(PYTHON)" .venv; fi
	@echo "installing the packages of requirements.lock into .venv, 2.5 GB (one to four minutes)"
	@VIRTUAL_ENV=.venv $(UV) pip sync --quiet --compile-bytecode --require-hashes requirements.lock
	@VIRTUAL_ENV=.venv $(UV) pip install --quiet --no-deps --editable .
	@# uv links files out of its cache, with the modes of whoever filled it; they get the modes that this umask gives
	@chmod -R +rX .venv
	@# where Python may not write bytecode (PYTHONDONTWRITEBYTECODE), each command would compile 1,300 modules: 4 s
	@$(BIN)/python -m compileall -q -j 2 spark_jobs expectations dags
	@echo "compiling the kernels (about a minute)"
	@$(BIN)/python -m spark_jobs.jobs.rehearse
	@touch $@

.audit/.ready: audit.lock .venv/.ready
	$(UV) venv --quiet --clear --python "$(PYTHON)" .audit
	VIRTUAL_ENV=.audit $(UV) pip sync --quiet --require-hashes audit.lock
	@touch $@

.docs/.ready: docs.lock .venv/.ready
	$(UV) venv --quiet --clear --python "$(PYTHON)" .docs
	VIRTUAL_ENV=.docs $(UV) pip sync --quiet --require-hashes docs.lock
	@touch $@

.jars/.ready: spark_jobs/jvm/jars.lock .venv/.ready
	@echo "fetching the jars of Delta, 13 MB, into .jars, and compiling the guard of SQL (about a minute)"
	@$(BIN)/python -m spark_jobs.jvm.jars
	@touch $@
	@$(if $(filter setup,$(MAKECMDGOALS)),printf '%s\n' $(NEXT))

.jars/%/.ready: spark_jobs/jvm/jars-%.lock .jars/.ready
	$(BIN)/python -m spark_jobs.jvm.jars $*
	@touch $@

.jars/lineage/.ready: spark_jobs/jvm/jars-lineage.lock lineage.lock .jars/.ready
	VIRTUAL_ENV=.venv $(UV) pip install --quiet --compile-bytecode --no-deps --require-hashes -r lineage.lock
	$(BIN)/python -m spark_jobs.jvm.jars lineage
	@touch $@
