# One command set, the same locally and in CI. Every target makes .venv when it is missing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
EXTRAS ?= demo

# A deployment is many processes, tests are hundreds of them: none should compile every source file again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help demo train test long coverage faults fuzz hunt check docs paper protos vectors lock web bench release released clean
help:
	@echo "make demo    install, run the whole deployment on 6,366 real answers, show the result"
	@echo "make train   install, train a model on shuffled gradients"
	@echo "make test    install, run every test but the longest"
	@echo "make long    install, run every test"
	@echo "make faults  1,000 drawn schedules of kills, partitions, rotation and full disks; every promise checked after each"
	@echo "make fuzz    10^5 malformed messages against every call and every decoder"
	@echo "make hunt    an hour of random settings: is a certificate below the truth?"
	@echo "make check   formatting, lint, types, architecture, drift of the generated code, documentation and how it is written"
	@echo "make docs    the documentation site, in build/site"
	@echo "make paper   the paper of the exchange bound as HTML and PDF, in docs/paper"
	@echo "make protos  regenerate croupier/protocol/v1 from proto/, and the JSON schemas of certificates and results"
	@echo "make vectors make the golden vectors for clients in other languages again"
	@echo "make lock    the hashes of the packages in the services' image, for the versions of constraints.txt"
	@echo "make web     the package and the participants' page from web/; fails if the committed page was another (needs Node and npm)"
	@echo "make release wheel and source distribution of the commit, built twice and compared, with checksums and a bill of materials, in dist/"
	@echo "make released  the wheel installed without an index, one environment for each extra, and in each what its page promises (needs root)"
	@echo "make bench   how long certificates take; throughput against the number of users; a cluster; load; stores; compared with the last run"

# A stamp per extra, so that 'make demo' does not install what only tests need. What is imported is compiled
# then; pip would compile every file (of torch alone 22 s of CPU).
$(VENV)/.installed-%: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing croupier[$*] into $(VENV) ..."
	@$(PIP) install --quiet --no-compile --constraint constraints.txt --editable '.[$*]' 2>$(VENV)/pip.log || { cat $(VENV)/pip.log >&2; exit 1; }
	@touch $@

demo: $(VENV)/.installed-demo
	$(BIN)/croupier demo

train: $(VENV)/.installed-sgd
	$(BIN)/croupier train $(ARGS)

bench: $(VENV)/.installed-demo $(VENV)/.installed-cluster
	$(BIN)/croupier research bench-accountant
	$(BIN)/croupier bench --times 3
	$(BIN)/croupier research bench-cluster
	$(BIN)/croupier research bench-load
	$(BIN)/croupier research bench-stores $(if $(POSTGRESQL),--postgresql $(POSTGRESQL))
	$(BIN)/croupier research capacity
	$(BIN)/croupier research bench-report

WORKERS ?= 4
PARALLEL := -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PARALLEL) -m "not slow" $(ARGS)

long: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PARALLEL) tests $(ARGS)

# The tests of 'make test', a tenth slower, and which lines they reach.
coverage: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m slipcover -m pytest $(PARALLEL) -m "not slow" $(ARGS)
	$(BIN)/python -m slipcover --merge .coverage.json --fail-under 95

faults: $(VENV)/.installed-dev
	$(BIN)/python -m tests.faults $(ARGS)

# 10^5 hostile messages; 'make test' makes the first twentieth of them.
fuzz: $(VENV)/.installed-dev
	CROUPIER_FUZZ_SHARE=1 $(BIN)/python -m pytest -n 2 -q tests/fuzz $(ARGS)

hunt: $(VENV)/.installed-dev
	$(BIN)/python -m tests.accountant $(ARGS)

CHECKS := check-types check-documentation check-words check-lint check-architecture check-drift
.PHONY: $(CHECKS)
check: $(VENV)/.installed-dev
	@$(MAKE) --no-print-directory --jobs 2 --output-sync $(CHECKS)

check-types:
	$(BIN)/python -m mypy
# With --quiet, mkdocs counts no warnings, and lets links to nowhere pass.
check-documentation:
	@mkdir -p build
	@echo "$(BIN)/mkdocs build --strict"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict >build/docs.log 2>&1 || { grep -E "WARNING|ERROR|Error" build/docs.log; exit 1; }
check-words:
	$(BIN)/python .ci/words
	$(BIN)/codespell
check-lint:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
check-architecture:
	$(BIN)/lint-imports
check-drift:
	PYTHON=$(BIN)/python sh proto/generate.sh --check
	$(BIN)/croupier research pages --check

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

paper: $(VENV)/.installed-paper
	$(BIN)/croupier research paper-build

protos: $(VENV)/.installed-dev
	PYTHON=$(BIN)/python sh proto/generate.sh

vectors: $(VENV)/.installed-dev
	$(BIN)/python -m tests.vectors

# Asks the index that pip is configured with, twice for each file.
lock: $(VENV)/.installed-dev
	$(BIN)/python .ci/lock

# With the versions and hashes of web/package-lock.json the page has the same bytes on every machine.
web: $(VENV)/.installed-dev
	cd web && npm ci --ignore-scripts --no-audit --no-fund
	$(BIN)/python -m grpc_tools.protoc --proto_path=proto --plugin=protoc-gen-es=web/node_modules/.bin/protoc-gen-es \
	  --es_out=web/src/gen --es_opt=target=ts,import_extension=js proto/croupier/protocol/v1/*.proto
	cd web && npm run --silent types && npm run --silent package && node build.mjs
	git diff --exit-code --stat -- web deploy/page

# A release is built with these tools alone.
BUILD := .venv-build
$(BUILD)/.installed: pyproject.toml constraints.txt
	@test -x $(BUILD)/bin/python || $(PYTHON) -m venv $(BUILD)
	@$(BUILD)/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt hatchling cyclonedx-python-lib uv
	@touch $@

release: $(BUILD)/.installed
	$(BUILD)/bin/python .ci/release

released: $(BUILD)/.installed $(VENV)/.installed-dev
	$(PYTHON) .ci/released $(BUILD)/bin/python $(BIN)/python

clean:
	rm -rf $(VENV) $(BUILD) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
