# Each of `make demo` and `make test` does all the set-up it needs on a machine with Python 3.11 or newer.

PYTHON ?= python3
PYTHONS ?= 3.12 3.13
BIN := .venv/bin

# Spark starts its workers with this Python, not with the python3 on the PATH.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python

# Tests start hundreds of processes: what they import is compiled once, also where the environment says otherwise.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test quick check check-all answers conformance soak crash night mutants format bench docs pictures lab lock
.PHONY: check-form check-types check-house check-docs check-notebooks check-emulator check-settlement check-spark-all
.PHONY: check-browser check-kills check-others
.PHONY: dist audit check-browsers check-clients check-cluster check-install check-lowest check-marimo check-next-sdk check-pythons check-spark

help: ## Show these lines
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 24

setup: ## Set up .venv with the locked packages, Java, Chromium, and VS Code's script for widgets
	@$(PYTHON) -m scripts.bootstrap

demo: ## Set up, then run the main job on real data against the emulator
	@$(PYTHON) -m scripts.bootstrap environment java
	@$(BIN)/sbnotebook demo

test: setup ## Set up, then check
	@$(MAKE) --no-print-directory check

check: check-form ## Everything that CI runs: format, lint, types, layers, tests, three notebooks, browser
# At the same time: the checker of types has one thread, and most tests wait now and then.
	$(BIN)/basedpyright sbnotebook pyspark_servicebus scripts & types=$$!; $(PYTEST); tested=$$?; \
	wait $$types || { echo "The types have errors: see above."; exit 1; }; exit $$tested

quick: check-form ## Check the form, and run the tests of what changed, or of FILES="sbnotebook/model/address.py"
	tests=$$($(BIN)/python -m scripts.related_tests $(FILES)) && $(PYTEST) $$tests

check-form: ## Check format, lint and layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports --no-logo

PYTEST = $(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder

# All tests, in parts. check-others runs every test that no other part names.
PARTS = types house docs notebooks emulator settlement spark-all browser kills cluster others
check-all: setup $(PARTS:%=check-%) ## All tests that there are, with new random choices
THOROUGH = SBNOTEBOOK_THOROUGH=1 $(PYTEST)
CRASHES = $(wildcard tests/*/test_*crash.py tests/*/*/test_*crash.py)
KILLS = tests/crash $(CRASHES)
EMULATOR = tests/emulator tests/model tests/analysis
DOCS = tests/house/test_docs.py tests/house/test_reference.py

check-types: check-form ## Part of check-all: form, and the types of everything
	$(BIN)/basedpyright

check-house: ## Part of check-all: the project's own habits, and its distributions
	$(THOROUGH) tests/house tests/packaging $(DOCS:%=--ignore=%)

check-docs: ## Part of check-all: every page of the documentation
	$(THOROUGH) $(DOCS)

check-notebooks: ## Part of check-all: every tutorial
	$(THOROUGH) notebooks

check-emulator: ## Part of check-all: the model, the analysis and the emulator
	$(THOROUGH) $(EMULATOR) $(CRASHES:%=--ignore=%)

check-settlement: ## Part of check-all: the settlement library
	$(THOROUGH) tests/settlement $(CRASHES:%=--ignore=%)

check-spark-all: ## Part of check-all: Spark
	$(THOROUGH) tests/spark

check-browser: ## Part of check-all: JupyterLab and the panels in Chromium
	$(THOROUGH) tests/browser

check-kills: ## Part of check-all: kill processes and the emulator, and count every message
	$(THOROUGH) $(KILLS)

APART = tests/house tests/packaging $(EMULATOR) tests/settlement tests/spark tests/browser tests/cluster $(KILLS)
check-others: ## Part of check-all: what no other part runs
	$(THOROUGH) tests $(APART:%=--ignore=%)

conformance: ## Run the SDK's own live tests against the emulator, and write what came of it into the documentation
	$(BIN)/python tests/conformance

soak crash check-cluster: export SBNOTEBOOK_THOROUGH = 1
soak: ## Kill the emulator and processes that act 200 times each, disturb every action in 500 runs, attack for ten minutes
	SBNOTEBOOK_CRASHES=200 $(BIN)/pytest -o faulthandler_timeout=0 tests/emulator/test_store_crash.py \
		tests/emulator/test_store_transactions_crash.py tests/settlement/sending/test_delivery_chaos.py \
		tests/settlement/actions/test_resubmit_crash.py tests/settlement/actions/test_undo_crash.py
	SBNOTEBOOK_CRASHES=500 $(BIN)/pytest -o faulthandler_timeout=0 tests/settlement/test_engine_variants.py
	SBNOTEBOOK_MESSAGES=100000 $(BIN)/pytest -o faulthandler_timeout=0 tests/settlement/test_engine_memory.py
	SBNOTEBOOK_CRASHES=5000 $(BIN)/pytest -o faulthandler_timeout=0 tests/security/test_message_costs.py \
		tests/analysis/test_page_columns.py tests/emulator/entities/test_registry_stateful.py
	SBNOTEBOOK_CRASHES=2000 $(BIN)/pytest -o faulthandler_timeout=0 tests/analysis/test_json_values.py
	SBNOTEBOOK_SOAK_SECONDS=600 $(BIN)/pytest -o faulthandler_timeout=0 -s tests/security/test_soak.py
	SBNOTEBOOK_CRASHES=20 $(BIN)/pytest -o faulthandler_timeout=0 tests/security/test_patterns.py \
		tests/settlement/test_pace_sharing.py

crash: ## Kill Spark's driver, its processes and the emulator under 20 streams, and count every message afterwards
	SBNOTEBOOK_CRASHES=20 $(BIN)/pytest -o faulthandler_timeout=0 tests/crash

check-cluster: ## Part of check-all: test on a standalone cluster of Spark, whose machines share nothing but the network
	SBNOTEBOOK_CRASHES=2 $(BIN)/pytest -o faulthandler_timeout=0 tests/cluster

night: ## Drive a night on call in JupyterLab, in four windows, with a picture of each step in build/night
	SBNOTEBOOK_NIGHT=build/night $(BIN)/pytest -o faulthandler_timeout=0 tests/browser/test_night_on_call.py

IN_FIREFOX = tests/browser/test_night_on_call.py tests/browser/test_record.py tests/browser/test_causes.py \
	tests/browser/test_detail.py tests/browser/test_facets.py tests/browser/test_fitting.py \
	tests/browser/test_triage.py tests/browser/test_monitor.py tests/browser/test_lock_board.py \
	tests/browser/test_accessibility.py

check-browsers: ## Test the panels in Firefox and WebKitGTK, where the system has them
	SBNOTEBOOK_BROWSER=firefox $(BIN)/pytest -rs -m browser -o faulthandler_timeout=0 $(IN_FIREFOX)
	$(BIN)/pytest -rs -o faulthandler_timeout=0 tests/browser/in_webkit.py

mutants: ## Test the tests: change the code in 60 random places, and count how often a test fails; MUTANTS="--seed 7"
	$(BIN)/python -m scripts.mutants $(MUTANTS)

answers: ## Record the answers to wrong input, to review (tests/answers)
	SBNOTEBOOK_WRITE_ANSWERS=1 $(BIN)/pytest -q -o faulthandler_timeout=0 tests/test_errors_answers.py \
		tests/spark/test_source_answers.py

format: ## Write the synchronous twins of the asynchronous verbs and the reference, format, and mend what ruff can mend
	$(BIN)/python -m scripts.sync_twins
	$(BIN)/python -m scripts.reference_pages
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: ## Measure the library against the plain SDK and physical limits, and the emulator's CPU time for a message
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.emulator_cpu
	$(BIN)/python -m benchmarks.emulator_size

docs: ## Run the tutorials and build the documentation with what they show; a warning is an error
	DOCS_NOTEBOOKS=cache $(BIN)/sphinx-build -W -q docs docs/_build/html

dist: ## Build the wheel and the source distribution into dist/
	@rm -rf dist
	$(BIN)/python -m hatchling build

audit: ## Look for published advisories about the locked packages and the lowest allowed versions
	@$(BIN)/uv venv --quiet --clear build/audit
	@$(BIN)/uv pip install --quiet --python build/audit --require-hashes -r requirements/audit.txt
	@build/audit/bin/python -m scripts.audit

# What downloads too much for every run.
check-install: ## Install the wheel with pip into an empty environment, and try it as a new user
	$(BIN)/pytest -o faulthandler_timeout=0 tests/packaging/installing.py

check-marimo: ## Drive the panels in the newest marimo
	$(call set_up_beside,marimo,3.11,requirements/dev.txt)
	$(BIN)/uv pip install --quiet --python build/marimo marimo
	build/marimo/bin/python -m pytest -o faulthandler_timeout=0 tests/browser/in_marimo.py

# $(1): the environment's name, $(2): its Python, $(3): its lock.
define set_up_beside
$(BIN)/uv venv --quiet --clear --python $(2) build/$(1)
$(BIN)/uv pip install --quiet --python build/$(1) --build-constraints requirements/build.txt --require-hashes -r $(3)
$(BIN)/uv pip install --quiet --python build/$(1) --no-deps --editable .
endef
# A real part of every layer, two files at a time.
PART ?= tests/test_doctor.py tests/client tests/magics tests/widgets/table tests/demo tests/testing \
	tests/spark/test_peek_reader.py tests/spark/test_send_writer.py
RUN_PART = bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(PART)

check-lowest: ## Test with the lowest version of each dependency that pyproject.toml allows
	$(call set_up_beside,lowest,3.11,requirements/lowest.txt)
	build/lowest/$(RUN_PART)

check-next-sdk: PART = tests/settlement/sdk tests/settlement/connecting tests/settlement/locking tests/settlement/sending
check-next-sdk: ## Test with the newest azure-servicebus, also where pyproject.toml does not allow it
	$(call set_up_beside,next-sdk,3.11,requirements/dev.txt)
	$(BIN)/uv pip install --quiet --python build/next-sdk --upgrade '$(SDK)'
	@build/next-sdk/bin/python -c 'from azure.servicebus import __version__ as v; print("Testing azure-servicebus", v)'
	SBNOTEBOOK_ANY_SDK=1 build/next-sdk/$(RUN_PART)

SDK ?= azure-servicebus

check-spark: build/spark-4.0 build/spark-4.1 ## Test with the Spark of Databricks' long-term runtimes: 4.0 reads, 4.1 writes, too

READ_SPARK = tests/spark/test_schema_arrow_types.py tests/spark/test_peek_reader.py tests/spark/test_session_load.py
build/spark-4.0: PART = $(READ_SPARK)
build/spark-4.1: PART = $(READ_SPARK) tests/spark/test_send_writer.py
build/spark-%: requirements/lowest.txt FORCE
	$(call set_up_beside,spark-$*,3.11,$<)
	$(BIN)/uv pip install --quiet --python $@ 'pyspark==$*.*'
	$@/$(RUN_PART)

check-pythons: ## Test with other versions of Python where they can be had: PYTHONS="3.12 3.13"
	@for version in $(PYTHONS); do \
		if $(BIN)/uv python find --quiet $$version || $(BIN)/uv python install --quiet $$version; \
		then $(MAKE) --no-print-directory build/python-$$version || exit 1; \
		else echo "Python $$version cannot be had here, so nothing was tested with it."; fi; \
	done

build/python-%: requirements/dev.txt FORCE
	$(call set_up_beside,python-$*,$*,$<)
	$@/$(RUN_PART)

FORCE:

# npm ci in a copy: Node looks for packages beside the file that imports them.
check-clients: ## Test the emulator with clients that are not ours: Celery, Proton, and the SDK for JavaScript
	@$(PYTHON) -m scripts.bootstrap environment node
	$(call set_up_beside,clients,3.11,requirements/clients.txt)
	@mkdir -p build/javascript && cp tests/clients/javascript/* build/javascript/
	cd build/javascript && npm ci --no-audit --no-fund --loglevel=error
	build/clients/bin/python -m pytest -c tests/clients/clients.ini --rootdir=. tests/clients/with_*.py

pictures: ## Take the pictures of the documentation anew (docs/images), to look at
	$(BIN)/python -m scripts.pictures

lab: ## Open JupyterLab on a copy of the tutorials
	$(BIN)/sbnotebook lab

# make lock UPGRADE=--upgrade moves to the newest versions; without it only what pyproject.toml asks for changes.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-annotate --custom-compile-command "make lock" $(UPGRADE)

lock: ## Write requirements/*.txt again from pyproject.toml
	$(COMPILE) --group bootstrap -o requirements/bootstrap.txt
	$(COMPILE) --group build -o requirements/build.txt
	$(COMPILE) pyproject.toml --all-extras --group dev -o requirements/dev.txt
	$(COMPILE) --group audit -o requirements/audit.txt
	$(COMPILE) pyproject.toml --group clients -o requirements/clients.txt
	$(COMPILE) pyproject.toml --all-extras --group test --resolution lowest-direct -o requirements/lowest.txt
