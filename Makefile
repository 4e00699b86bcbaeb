# The face of the build; Bazel (WORKSPACE, BUILD) is its one definition.
#
# Without PYTHON everything runs in .venv, made here with the locked requirements. With PYTHON=<python>, as an argument
# or in the environment, that Python and its TensorFlow are used as they are.

.DEFAULT_GOAL := help
TIERS := test-xla test-types test-isa test-sanitizers test-tf-keras test-packages test-docs test-gpu-emulated
.PHONY: help build test test-full $(TIERS) test-matrix test-fuzz dev demo bench bench-record docs lock compile-commands lint \
	format wheel wheel-aarch64 sdist doctor clean

# The words of an origin: command line, environment, environment override.
ifneq ($(and $(PYTHON),$(filter command environment,$(origin PYTHON))),)
ENVIRONMENT :=
DEVELOPMENT :=
LEGACY_KERAS :=
JAX :=
ifneq ($(filter environment,$(origin PYTHON)),)
$(info PYTHON=$(PYTHON), from the environment)
endif
else
override PYTHON := .venv/bin/python
ENVIRONMENT := .venv/stamp
DEVELOPMENT := .venv/stamp-dev
LEGACY_KERAS := .venv/stamp-tf-keras
JAX := .build/jax/stamp
endif

# A worker of pytest takes about half a gigabyte. Three keep two cores busy, since tests wait for their child processes.
PYTEST_WORKERS ?= 3
PYTEST = $(PYTHON) -m pytest -n $(PYTEST_WORKERS) --dist loadgroup
# Of the engine's C++ tests in test-isa and test-sanitizers: short or full.
LENGTH ?= short
FUZZ_SECONDS ?= 600
# What make dev compiles and runs: an instruction set or native, storage types, and gru, lstm, layer_norm, simple_rnn or
# rnn_stack (all where it is empty).
ISA ?= native
TYPES ?= f32
FAMILY ?=
# What make passes on to demo, bench, bench-record and lock.
ARGS ?=
MATRIX := 2.19 2.20 2.21

# TensorFlow's own notes about itself would hide what these verbs print.
bench bench-record docs doctor: export TF_CPP_MIN_LOG_LEVEL := 2
# Of the theme's authors, about a later MkDocs.
docs: export NO_MKDOCS_2_WARNING := 1

help:
	@echo 'make build             the libraries for this machine, into tf_blockrnn/ (PYTHON=<python>: for that TensorFlow)'
	@echo 'make demo              trains a character model on real text (ARGS=...)'
	@echo 'make test              the tests that a change needs first'
	@echo 'make test-full         all other tests; each of these is a part of it:'
	@echo '  test-xla             in functions that XLA compiles'
	@echo '  test-types           in all types and in larger grids'
	@echo '  test-isa             by every instruction set of this machine, and AArch64 emulated (LENGTH=full)'
	@echo '  test-sanitizers      the engine under AddressSanitizer and ThreadSanitizer (LENGTH=full)'
	@echo '  test-tf-keras        on tf_keras (Keras 2), with TF_USE_LEGACY_KERAS=1'
	@echo '  test-packages        the wheel, the source distribution, C and C++ programs, a new op'
	@echo '  test-docs            pages, examples, the site, benchmarks and their reports'
	@echo '  test-gpu-emulated    compiles the CUDA engine (needs nvcc) and runs its kernels on the CPU'
	@echo 'make test-matrix       the Python tests on TensorFlow $(MATRIX), each in its own environment'
	@echo 'make test-fuzz         searches FAMILY, or each, for FUZZ_SECONDS with libFuzzer (clang)'
	@echo 'make dev               the engine tests, compiled fast (ISA=native TYPES="f32 bf16" FAMILY=lstm)'
	@echo 'make bench             measures the ops against their peers (ARGS=...)'
	@echo 'make bench-record      all benches in turn, with the newest peers, on a quiet machine; goes on where it ended'
	@echo 'make docs              README, guides and API reference as one site with a search, into site/'
	@echo 'make lock              requirements/*.txt from requirements/*.in (ARGS=--upgrade)'
	@echo 'make compile-commands  compile_commands.json, for clangd and other tools'
	@echo 'make lint              clang-format, clang-tidy and ruff, changing nothing'
	@echo 'make format            formats the sources'
	@echo 'make wheel             a wheel for TensorFlow $(MATRIX), into dist/ (PYTHON=<python>: for that of the Python)'
	@echo 'make wheel-aarch64     the wheel for AArch64, cross-compiled, for TensorFlow $(MATRIX), into dist/'
	@echo 'make sdist             the source distribution, into dist/'
	@echo 'make doctor            what is installed and in use; checks an op against NumPy'
	@echo 'make clean             removes what was built, not the environments'

# What the build and the demo need.
# Bazel is installed meanwhile, where it is missing; what can't be installed is reported by the build.
.venv/stamp: requirements/tf2.21.in requirements/tf2.21.txt requirements/demo.in tools/make_venv.sh
	python3 tools/build.py --install-bazel & tools/make_venv.sh .venv tf2.21 tf2.21 demo && wait
	touch $@

.venv/stamp-dev: .venv/stamp requirements/dev.in requirements/examples.txt
	tools/make_venv.sh .venv tf2.21 dev
	$(WITHOUT_DEPENDENCIES) --requirement=requirements/examples.txt
	touch $@

.venv/stamp-tf-keras: .venv/stamp-dev requirements/tf-keras.txt
	$(WITHOUT_DEPENDENCIES) --requirement=requirements/tf-keras.txt
	touch $@

WITHOUT_DEPENDENCIES := .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps

.venv-tf%/stamp: requirements/tf%.in requirements/tf%.txt requirements/demo.in requirements/dev.in tools/make_venv.sh
	tools/make_venv.sh .venv-tf$* tf$* tf$* demo dev
	touch $@

build: $(ENVIRONMENT)
	$(PYTHON) tools/build.py

demo: build
	PYTHONPATH=. $(PYTHON) examples/demo.py $(ARGS)

# Tests in tiers (tests/tiers.py). The first is for every change, and its C++ tests have the build's objects.
test: build $(DEVELOPMENT)
	$(PYTEST) -m core
	$(PYTHON) tools/cpp_tests.py release --types f32 -- --config=core

# One build serves all of them.
test-full: export TF_BLOCKRNN_ISA ?= all
test-full: export TF_BLOCKRNN_CUDA_ARCHITECTURES ?= 80
test-full: $(TIERS)

test-xla test-types test-docs: test-%: build $(DEVELOPMENT)
	$(PYTEST) -m $*

# These are about builds for other machines than this one.
test-isa test-packages: export TF_BLOCKRNN_ISA ?= all
test-isa: build $(DEVELOPMENT)
	$(PYTEST) -m isa
	$(PYTHON) tools/cpp_tests.py release --isa all --length $(LENGTH)
	$(PYTHON) tools/cpp_tests.py aarch64 --length $(LENGTH)

test-packages: build $(DEVELOPMENT)
	$(PYTEST) -m packages

test-sanitizers: $(DEVELOPMENT)
	$(PYTHON) tools/cpp_tests.py asan --length $(LENGTH)
	$(PYTHON) tools/cpp_tests.py tsan --length $(LENGTH)

test-gpu-emulated: export TF_BLOCKRNN_CUDA_ARCHITECTURES ?= 80
test-gpu-emulated: build $(DEVELOPMENT) $(JAX)
	$(PYTEST) -m gpu

# A process has one tf.keras, so these tests need one of their own.
test-tf-keras: build $(LEGACY_KERAS)
	TF_USE_LEGACY_KERAS=1 $(PYTEST) tests/legacy_keras

test-matrix: $(MATRIX:%=test-tf%) test-tf-keras

# A copy of the tree, so that the libraries in tf_blockrnn/ stay what they are.
.PHONY: $(MATRIX:%=test-tf%)
$(MATRIX:%=test-tf%): test-tf%: .venv-tf%/stamp
	.venv-tf$*/bin/python tools/copy_tree.py .build/tf$*
	.venv-tf$*/bin/python tools/build.py --output .build/tf$*/tf_blockrnn
	cd .build/tf$* && $(CURDIR)/.venv-tf$*/bin/python -m pytest -n $(PYTEST_WORKERS) --dist loadgroup \
		-m "core or xla or types"

test-fuzz: $(DEVELOPMENT)
	$(PYTHON) tools/cpp_tests.py fuzz --seconds $(FUZZ_SECONDS) --family "$(FAMILY)"

dev: $(ENVIRONMENT)
	$(PYTHON) tools/cpp_tests.py dev --isa "$(ISA)" --types "$(TYPES)" --family "$(FAMILY)"

bench: build $(DEVELOPMENT)
	$(PYTHON) -m bench $(ARGS)

# The newest peers are in an environment of their own, beside the same TensorFlow.
.venv-bench/stamp: requirements/tf2.21.in requirements/peers.in requirements/peers.txt tools/make_venv.sh
	tools/make_venv.sh .venv-bench peers tf2.21 peers
	touch $@

# The bench of bfloat16 measures two instruction sets.
bench-record: export TF_BLOCKRNN_ISA ?= all
bench-record: build $(if $(ENVIRONMENT),.venv-bench/stamp)
	$(if $(ENVIRONMENT),.venv-bench/bin/python,$(PYTHON)) -m bench all $(ARGS)

docs: build $(DEVELOPMENT)
	$(PYTHON) -m mkdocs build
	@echo 'site/index.html; the search needs a server: $(PYTHON) -m http.server --directory site'

# The versions stay what they are in the files, unless ARGS says otherwise. uv takes indexes from UV_INDEX.
LOCK := $(PYTHON) -m uv pip compile --quiet --no-annotate --custom-compile-command 'make lock' \
	--python-version 3.11 --python-platform x86_64-manylinux_2_36
lock: $(DEVELOPMENT)
	set -e; for version in $(MATRIX); do $(LOCK) $(ARGS) requirements/tf$$version.in requirements/demo.in \
		requirements/dev.in requirements/jax.in --output-file requirements/tf$$version.txt; done; \
	$(LOCK) $(ARGS) requirements/tf2.21.in requirements/peers.in --output-file requirements/peers.txt; \
	for name in examples tf-keras; do \
		$(LOCK) $(ARGS) --no-deps requirements/$$name.in --output-file requirements/$$name.txt; done

compile-commands: $(ENVIRONMENT)
	$(PYTHON) tools/compile_commands.py

lint: $(DEVELOPMENT)
	PYTHON=$(PYTHON) tools/lint.sh check

format: $(DEVELOPMENT)
	PYTHON=$(PYTHON) tools/lint.sh format

# For tests/gpu/check_ffi.py, which needs no TensorFlow.
.build/jax/stamp: requirements/jax.in requirements/tf2.21.txt tools/make_venv.sh
	tools/make_venv.sh .build/jax tf2.21 jax
	touch $@

# Environments with a TensorFlow and what it needs, to build for it.
.build/tensorflow-%/stamp: requirements/tf%.in requirements/tf%.txt tools/make_venv.sh
	tools/make_venv.sh .build/tensorflow-$* tf$* tf$*
	touch $@

# Beside the libraries in tf_blockrnn/, those for the other versions of TensorFlow; with PYTHON=<python> none.
OTHER_TENSORFLOWS := $(if $(ENVIRONMENT),$(filter-out 2.21,$(MATRIX)))
# For others' processors and GPUs, not for this machine's alone.
wheel: export TF_BLOCKRNN_ISA ?= all
wheel: export TF_BLOCKRNN_CUDA_ARCHITECTURES ?= all
wheel: build $(DEVELOPMENT) $(OTHER_TENSORFLOWS:%=.build/tensorflow-%/stamp)
	set -e; $(foreach version,$(OTHER_TENSORFLOWS),.build/tensorflow-$(version)/bin/python tools/build.py \
		--for-tensorflow --output .build/wheel-tf$(version);) \
	$(PYTHON) tools/wheel.py $(OTHER_TENSORFLOWS:%=.build/wheel-tf%)

# Without CUDA. What is downloaded and built stays in .build/aarch64/.
wheel-aarch64: $(DEVELOPMENT)
	$(PYTHON) tools/aarch64_wheel.py $(MATRIX)

sdist: $(DEVELOPMENT)
	$(PYTHON) -m build --sdist --no-isolation --outdir dist .

# Of what is there: it builds and installs nothing.
doctor:
	@command -v $(PYTHON) >/dev/null || { echo 'there is no $(PYTHON): `make build` makes .venv/bin/python;' \
		'`make doctor PYTHON=<python>` takes another' >&2; exit 1; }
	@$(PYTHON) -m tf_blockrnn doctor

clean:
	python3 tools/build.py --clean
	rm -rf .build dist site compile_commands.json tf_blockrnn/*.so tf_blockrnn/_build_info.json
