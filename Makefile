# Everything is installed into .venv. Two commands do all: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Half of the tests' time is waiting for Slurm, sshd and deadlines: more workers than the two cores of a small machine.
JOBS ?= 4
READY := $(VENV)/.ready

# One torch and BLAS thread a process: several on a busy machine spin against each other.
export OMP_NUM_THREADS := 1

.PHONY: demo test test-long test-gpu lint bench clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[trainer,dev]'
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

test-gpu: $(READY)
	$(BIN)/python -m pytest -m gpu

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Figures and their page go to bench/out/, which git ignores. `make bench REPLACE=1` replaces the committed ones.
bench: $(READY)
	for script in $(filter-out bench/figures.py bench/report.py,$(wildcard bench/*.py)) bench/report.py; do \
		$(BIN)/python "$$script" $(if $(REPLACE),--replace) || exit 1; \
	done

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache dist build
