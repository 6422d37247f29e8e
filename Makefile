# Two commands for newcomers, each doing all its own set-up: `make demo` and `make test`.
# Needs Python 3.11 or newer, make and a C++20 compiler; nothing is installed outside .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
NATIVE := $(shell find native -type f) CMakeLists.txt
# The editable install follows edits of Python files by itself, but it lists the modules when it is
# made: the list's checksum is part of the stamp's name, so that new or moved modules install again.
MODULES := $(shell find src -name '*.py' | sort | cksum | cut -d' ' -f1)
INSTALLED := $(VENV)/installed-$(MODULES)

.PHONY: demo test lint typecheck pytest clean

demo: $(INSTALLED)
	$(BIN)/labelgrove demo

test: lint typecheck pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: $(INSTALLED)
	$(BIN)/mypy --strict

pytest: $(INSTALLED)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

$(INSTALLED): pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt scikit-build-core nanobind cmake ninja
	$(PIP) -c constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@

clean:
	rm -rf build $(VENV) .mypy_cache .ruff_cache .hypothesis
