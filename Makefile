# Two commands for newcomers, each doing all its own set-up: `make demo` and `make test`.
# Needs Python 3.11 or newer, make and a C++20 compiler; nothing is installed outside .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
NATIVE := $(shell find native -type f 2>/dev/null) CMakeLists.txt

.PHONY: demo test lint typecheck pytest bench clean

demo: $(VENV)/installed
	$(BIN)/labelgrove demo

test: lint typecheck pytest

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: $(VENV)/installed
	$(BIN)/mypy --strict

pytest: $(VENV)/installed
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# The editable install follows Python edits by itself; changed kernels or pins install again.
$(VENV)/installed: pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt pip scikit-build-core nanobind cmake ninja
	$(PIP) -c constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@

clean:
	rm -rf build $(VENV) .mypy_cache .ruff_cache .hypothesis
