# Everything is installed into .venv. Two commands do all: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Half of the tests' time is waiting for Slurm, sshd and deadlines: more workers than the two cores of a small machine.
JOBS ?= 4
# What training needs, and what the tests need besides.
READY := $(VENV)/.ready
TESTED := $(VENV)/.ready-test
LOCKS := $(wildcard requirements/*)
TORCH ?= auto
export TORCH

# One torch and BLAS thread a process: several on a busy machine spin against each other.
export OMP_NUM_THREADS := 1
# Else each of a thousand processes that the tests start would compile the packages anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-long test-gpu lint docs lock bench hour clean

$(READY): pyproject.toml constraints.txt $(LOCKS)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13) and "Python 3.11 to 3.13 is needed: make PYTHON=python3.11")'
	@PYTHON=$(PYTHON) sh requirements/install.sh $(VENV) base torch trainer
	@touch $@

$(TESTED): $(READY)
	@sh requirements/install.sh $(VENV) show test
	@touch $@

demo: $(READY)
	@VENV=$(VENV) PATH="$(abspath $(BIN)):$$PATH" sh examples/demo.sh

# In the order of the folders: the long files first, a thousand short unit tests to fill up at the end.
test: $(TESTED)
	bash tests/real/install.sh
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not long and not gpu"

test-long: $(TESTED)
	bash tests/real/install.sh
	$(BIN)/python -m pytest -n $(JOBS) -m long --timeout 3600

# Besides what needs a GPU: interrupted trainings, which use it, or fail.
test-gpu: $(TESTED)
	ANCHORLEG_TEST_ON_GPU=1 $(BIN)/python -m pytest -m "gpu or not long" tests/unit/trainer/test_updates.py \
	    tests/integration/test_resume_exact.py tests/integration/test_updates_killed.py \
	    tests/integration/test_group_resume.py tests/integration/test_ranks.py

# The site of the pages: build/site/index.html.
docs: $(READY)
	@[ -x $(BIN)/mkdocs ] || sh requirements/install.sh $(VENV) docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo build/site/index.html

lint: $(TESTED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Pins stay as they are where pyproject.toml and constraints.txt allow it; --upgrade is for UV_FLAGS.
# hatchling and editables build our own editable install.
UNIVERSAL := --universal --python-version 3.11 --no-annotate --no-header --quiet
COMPILE := printf 'hatchling\neditables\n' | uv pip compile pyproject.toml - $(UNIVERSAL) -c constraints.txt
lock:
	cd requirements && cat base.lock trainer.lock torch.lock show.lock test.lock >$(abspath $(VENV))/all.lock
	$(COMPILE) --extra trainer --extra show --extra dev --generate-hashes $(UV_FLAGS) -o $(VENV)/all.lock
	$(COMPILE) -c $(VENV)/all.lock -o $(VENV)/base.lock
	$(COMPILE) -c $(VENV)/all.lock --extra trainer -o $(VENV)/trainer.lock
	$(COMPILE) -c $(VENV)/all.lock --extra trainer --extra show -o $(VENV)/show.lock
	$(PYTHON) requirements/split.py $(foreach lock,all base trainer show,$(VENV)/$(lock).lock)
	echo mkdocs-material | uv pip compile - $(UNIVERSAL) -c $(VENV)/all.lock --generate-hashes -o requirements/docs.lock

# Figures and their page go to bench/out/, which git ignores. `make bench REPLACE=1` replaces the committed ones.
# bench/hour.py takes seven hours, bench/faults.py one, and bench/mutants.py measures the tests: they are run by
# themselves. What fails is named at the end, and the page is made of the others.
BY_HAND := bench/faults.py bench/figures.py bench/hour.py bench/mutants.py bench/report.py

bench: $(TESTED)
	bash tests/real/install.sh
	failed=; for script in $(filter-out $(BY_HAND),$(wildcard bench/*.py)) bench/report.py; do \
		$(BIN)/python "$$script" $(if $(REPLACE),--replace) || failed="$$failed $$script"; \
	done; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

# The hour of preset `laptop` with a published seed, once more, beside what was published: bench/out/hour_again.csv.
SEED ?= 100
hour: $(TESTED)
	env -u OMP_NUM_THREADS $(BIN)/python bench/hour.py --again $(SEED) $(if $(REPLACE),--replace)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache dist build
