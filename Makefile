# Everything is installed into .venv. Two commands do all: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Half of the tests' time is waiting for Slurm, sshd and deadlines: more workers than the two cores of a small machine.
JOBS ?= 4
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Wheels alone, each with a sum that is in the lock: nothing else is downloaded, and no stranger's setup.py runs.
CHECKED := --quiet --require-hashes --only-binary :all: --no-deps
# torch is the one package that people take from elsewhere too (a build for CPUs, a cluster's own wheels), with sums that
# nobody here knows. So where pip is told of other places, torch is taken by its version alone; TORCH=checked insists.
TORCH ?= auto

# One torch and BLAS thread a process: several on a busy machine spin against each other.
export OMP_NUM_THREADS := 1
# Else each of a thousand processes that the tests start would compile the packages anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-long test-gpu lint lock bench hour clean

$(READY): pyproject.toml constraints.txt requirements.lock requirements-torch.lock
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13) and "Python 3.11 to 3.13 is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install $(CHECKED) -r requirements.lock
	if [ $(TORCH) = checked ] || ! $(PIP) config list | grep -E 'find-links|extra-index-url' >/dev/null; then \
		$(PIP) install $(CHECKED) -r requirements-torch.lock; \
	else \
		$(PIP) install --quiet -c constraints.txt torch; \
	fi
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	touch $(READY)

demo: $(READY)
	@PATH="$(abspath $(BIN)):$$PATH" sh examples/demo.sh

# In the order of the folders: the long files first, a thousand short unit tests to fill up at the end.
test: $(READY)
	bash tests/real/install.sh
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not long and not gpu"

test-long: $(READY)
	bash tests/real/install.sh
	$(BIN)/python -m pytest -n $(JOBS) -m long --timeout 3600

# Besides what needs a GPU: interrupted trainings, which use it, or fail.
test-gpu: $(READY)
	ANCHORLEG_TEST_ON_GPU=1 $(BIN)/python -m pytest -m "gpu or not long" tests/unit/trainer/test_updates.py \
	    tests/integration/test_resume_exact.py tests/integration/test_updates_killed.py \
	    tests/integration/test_group_resume.py tests/integration/test_ranks.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Needs uv. Pins stay as they are where pyproject.toml and constraints.txt allow it; --upgrade is for UV_FLAGS.
lock:
	cat requirements.lock requirements-torch.lock >$(VENV)/all.lock
	uv pip compile pyproject.toml --extra trainer --extra dev --universal --python-version 3.11 --generate-hashes \
		--no-annotate --no-header --quiet -c constraints.txt $(UV_FLAGS) -o $(VENV)/all.lock
	awk '/^[a-z]/ { out = /^(torch==|triton|cuda-|nvidia-)/ && !/^nvidia-ml-py/ ? "requirements-torch.lock" : "requirements.lock" } \
		{ print >out }' $(VENV)/all.lock

# Figures and their page go to bench/out/, which git ignores. `make bench REPLACE=1` replaces the committed ones.
# bench/hour.py takes seven hours, and bench/mutants.py measures the tests: they are run by themselves. What fails is
# named at the end, and the page is made of the others.
BY_HAND := bench/figures.py bench/hour.py bench/mutants.py bench/report.py

bench: $(READY)
	bash tests/real/install.sh
	failed=; for script in $(filter-out $(BY_HAND),$(wildcard bench/*.py)) bench/report.py; do \
		$(BIN)/python "$$script" $(if $(REPLACE),--replace) || failed="$$failed $$script"; \
	done; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

# The hour of preset `laptop` with a published seed, once more, beside what was published: bench/out/hour_again.csv.
SEED ?= 100
hour: $(READY)
	env -u OMP_NUM_THREADS $(BIN)/python bench/hour.py --again $(SEED) $(if $(REPLACE),--replace)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache dist build
